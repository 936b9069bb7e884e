//! Collectors behind TLS of a private authority, which ask for a token: the node shows it to them alone.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use shoal_base::secret::Secret;
use tempfile::TempDir;

use super::receiver::Collector;
use super::{counted, node_with};
use crate::client::Client;
use crate::commands::{run, text};
use crate::lake::{ACCESS_KEY, Lake, SECRET_KEY};
use crate::misconfigured::Process;
use crate::tls;
use crate::waiting::{until, value};

const TOKEN: &str = "Bearer of-this-cluster";

fn headers() -> Secret {
    Secret::new(format!("Authorization: {TOKEN}\nx-tenant: one"))
}

#[tokio::test]
async fn a_collector_with_a_certificate_of_a_private_authority_gets_spans_with_the_token_it_asks_for() {
    let collector = Collector::asking_for(TOKEN).await;
    let outside = tls::in_front_of(collector.address()).await;
    let node = node_with(&collector, 1.0, |config| {
        config.trace.endpoint = Some(format!("https://{outside}"));
        config.trace.ca_file = Some(tls::CERTIFICATE.into());
        config.trace.headers = Some(headers());
    })
    .await;
    node.lake.put("b", "k", "bytes");
    assert_eq!(node.client().get("/b/k").send().await.text(), "bytes");
    until("the spans are sent", async || counted(&node, "sent").await >= 2).await;
    assert!(collector.spans().iter().any(super::Span::is_root));
    // No other server gets the token.
    assert!(node.lake.requests().iter().all(|request| {
        request.header("x-tenant").is_none() && !request.header("authorization").unwrap_or("").contains(TOKEN)
    }));
    node.stop().await;
    assert_eq!(collector.refused(), 0);
}

#[tokio::test]
async fn without_the_token_the_collector_refuses_and_without_the_authority_it_is_sent_nothing() {
    for (ca_file, headers) in [
        (Some(PathBuf::from(tls::CERTIFICATE)), None),
        (None, Some(headers())),
    ] {
        let collector = Collector::asking_for(TOKEN).await;
        let outside = tls::in_front_of(collector.address()).await;
        let is_trusted = ca_file.is_some();
        let node = node_with(&collector, 1.0, |config| {
            config.trace.endpoint = Some(format!("https://{outside}"));
            config.trace.ca_file = ca_file;
            config.trace.headers = headers;
        })
        .await;
        node.lake.put("b", "k", "bytes");
        assert_eq!(node.client().get("/b/k").send().await.text(), "bytes");
        let failed = async || counted(&node, "failed").await;
        value("spans are lost", failed, |failed| *failed >= 2).await;
        assert_eq!(collector.refused() > 0, is_trusted);
        assert!(collector.bytes().is_empty());
        node.stop().await;
    }
}

/// A file with headers for the collector at this URL, and the lines of a configuration that name it.
fn configured(folder: &TempDir, url: &str) -> String {
    let file = folder.path().join("collector-headers");
    fs::write(&file, format!("authorization: {TOKEN}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    format!(
        "[trace]\nendpoint = \"{url}\"\nheaders_file = \"{}\"\nsample = 1.0\n",
        file.display()
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_token_is_in_no_log_and_on_no_page_and_in_no_file_of_support() {
    let lake = Lake::start().await;
    lake.put("b", "k", "bytes");
    let (folder, collector) = (tempfile::tempdir().unwrap(), Collector::refusing().await);
    let lines = configured(&folder, &collector.url())
        + &format!(
            "[lake]\nendpoint = \"{}\"\n[log]\nfilter = \"debug\"\n\
             [[identity]]\naccess_key = \"{ACCESS_KEY}\"\nsecret_key = \"{SECRET_KEY}\"\n",
            lake.url()
        );
    let node = Process::start(&lines);
    let (s3, admin) = node.addresses();
    let client = Client::signing(s3, ACCESS_KEY, SECRET_KEY);
    assert_eq!(client.get("/b/k").send().await.text(), "bytes");
    node.logs(&["WARN", "the collector of traces has not accepted spans", "503"]);
    assert_eq!(node.count("of-this-cluster"), 0, "the log");
    let status = node.page("/status").await.to_string();
    assert!(!status.contains("of-this-cluster"), "{status}");

    let file = folder.path().join("shoal.toml");
    fs::write(&file, &lines).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let file = file.display().to_string();
    let checked = run(&["serve", "--config", &file, "--check"]);
    let shown = format!("{}{}", text(&checked.stdout), text(&checked.stderr));
    assert!(
        shown.contains("[trace]") && !shown.contains("of-this-cluster"),
        "{shown}"
    );
    let bundle = folder.path().join("bundle").display().to_string();
    let node_url = format!("http://{admin}");
    let asked = run(&["support", &bundle, "--config", &file, "--node", &node_url]);
    assert_eq!(asked.status.code(), Some(0), "{}", text(&asked.stderr));
    for file in fs::read_dir(&bundle).unwrap() {
        let path = file.unwrap().path();
        let content = fs::read_to_string(&path).unwrap();
        assert!(!content.contains("of-this-cluster"), "{}", path.display());
    }
    node.stop();
}
