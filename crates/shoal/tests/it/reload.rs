//! A node whose configuration changes while it serves: SIGHUP.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use http::StatusCode;
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::client::{Client, raw};
use crate::lake::{Access, Lake};
use crate::process::Process;

const RELOADED: &str = "configuration reloaded";
const REFUSED: &str = "the new configuration is refused";

struct Story {
    lake: Lake,
    folder: TempDir,
    node: Process,
    reloads: AtomicUsize,
}

impl Story {
    /// A node that knows these identities, in front of a lake that knows them and others.
    async fn start(identities: &[(&str, &str)]) -> Self {
        Self::start_in(TempDir::new().unwrap(), &[], identities).await
    }

    /// The same, with its file in this folder and with more arguments.
    async fn start_in(folder: TempDir, more: &[&str], identities: &[(&str, &str)]) -> Self {
        let lake = Lake::start().await;
        for name in ["alice", "bob", "carol"] {
            lake.add_user(name, &secret(name));
        }
        lake.put("b", "k", "some bytes");
        let file = folder.path().join("shoal.toml");
        write(&file, "", identities);
        let (endpoint, store) = (lake.url(), folder.path().join("store"));
        let arguments = [
            ["--config", file.to_str().unwrap()],
            ["--lake-endpoint", &endpoint],
            ["--store-path", store.to_str().unwrap()],
        ];
        let node = Process::serve(&[&arguments.concat(), more].concat()).await;
        Self {
            lake,
            folder,
            node,
            reloads: AtomicUsize::new(0),
        }
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("shoal.toml")
    }

    /// Puts another configuration in the place of what is there, and has the node take it over.
    async fn becomes(&self, settings: &str, identities: &[(&str, &str)]) {
        write(&self.file(), settings, identities);
        self.node.signal(Signal::HUP);
        let reloads = self.reloads.fetch_add(1, Ordering::Relaxed) + 1;
        self.node.says_again(RELOADED, reloads).await;
    }

    async fn status_of(&self, name: &str) -> StatusCode {
        get(&self.node.client(name, &secret(name))).await
    }
}

fn secret(name: &str) -> String {
    format!("the secret of {name}")
}

fn own(name: &'static str) -> (&'static str, &'static str) {
    (name, "")
}

/// Each identity with its name and its secret; the usual one when that is empty.
fn write(file: &PathBuf, settings: &str, identities: &[(&str, &str)]) {
    let mut text = settings.to_owned();
    for (name, given) in identities {
        let secret = if given.is_empty() {
            secret(name)
        } else {
            (*given).to_owned()
        };
        let lines = [
            "",
            "[[identity]]",
            &format!("access_key = \"{name}\""),
            &format!("secret_key = \"{secret}\"\n"),
        ];
        text += &lines.join("\n");
    }
    let aside = file.with_extension("aside");
    fs::write(&aside, text).unwrap();
    fs::rename(&aside, file).unwrap();
}

async fn get(client: &Client) -> StatusCode {
    client.get("/b/k").send().await.status
}

/// Reads repeatedly until stopped; returns how many reads failed, and how many there
/// were.
fn load(client: Client) -> (Arc<AtomicBool>, JoinHandle<(usize, usize)>) {
    let stop = Arc::<AtomicBool>::default();
    let told = Arc::clone(&stop);
    let reading = tokio::spawn(async move {
        let (mut failed, mut all) = (0, 0);
        while !told.load(Ordering::Relaxed) {
            let reply = client.get("/b/k").try_send().await;
            failed += usize::from(reply.is_err() || reply.is_ok_and(|reply| reply.body != "some bytes"));
            all += 1;
        }
        (failed, all)
    });
    (stop, reading)
}

#[tokio::test]
async fn quotas_come_change_and_go() {
    let story = Story::start(&[own("alice")]).await;
    let shown = async || {
        let admin = Client::anonymous(story.node.admin);
        let metrics = admin.get("/metrics").send().await;
        let lines = metrics.text().lines().map(str::to_owned);
        let quotas = lines.filter(|line| line.starts_with("shoal_quota_"));
        quotas.collect::<Vec<_>>()
    };
    assert_eq!(shown().await, Vec::<String>::new());
    let quota = "[[quota]]\nidentity = \"alice\"\n";
    let room = format!("{quota}room = \"1GiB\"\n");
    story.becomes(&room, &[own("alice")]).await;
    assert_eq!(story.status_of("alice").await, StatusCode::OK);
    assert!(shown().await[1].ends_with("shoal_quota_room_bytes{quota=\"alice\"} 1073741824"));
    let rate = format!("{quota}room = \"2GiB\"\nbandwidth = \"8Mbit\"\n");
    story.becomes(&rate, &[own("alice")]).await;
    let after = shown().await;
    assert!(after.contains(&"shoal_quota_room_bytes{quota=\"alice\"} 2147483648".to_owned()));
    assert!(after.contains(&"shoal_quota_bandwidth_bytes_per_second{quota=\"alice\"} 1000000".to_owned()));
    story.becomes("", &[own("alice")]).await;
    assert_eq!(shown().await, Vec::<String>::new());
    assert_eq!(story.node.stop().await, Some(0));
}

#[tokio::test]
async fn identities_come_and_go_under_load_and_no_request_is_lost() {
    let story = Story::start(&[own("alice"), own("bob")]).await;
    let (stop, reading) = load(story.node.client("alice", &secret("alice")));
    assert_eq!(story.status_of("bob").await, StatusCode::OK);
    assert_eq!(story.status_of("carol").await, StatusCode::FORBIDDEN);

    story.becomes("", &[own("alice"), own("carol")]).await;
    assert_eq!(story.status_of("bob").await, StatusCode::FORBIDDEN);
    assert_eq!(story.status_of("carol").await, StatusCode::OK);

    story
        .becomes("", &[("bob", "another secret"), own("alice")])
        .await;
    assert_eq!(
        story.status_of("bob").await,
        StatusCode::FORBIDDEN,
        "the old secret has ended"
    );
    stop.store(true, Ordering::Relaxed);
    let (failed, all) = reading.await.unwrap();
    assert!(failed == 0 && all > 0, "{failed} of {all}");
    assert_eq!(story.node.stop().await, Some(0));
}

#[tokio::test]
async fn no_identity_inherits_what_the_lake_granted_to_another_one() {
    let immutable = "[freshness]\ndefault = \"immutable\"\n";
    let story = Story::start(&[own("alice"), own("bob")]).await;
    story.becomes(immutable, &[own("alice"), own("bob")]).await;
    assert_eq!(story.status_of("bob").await, StatusCode::OK);
    for name in ["bob", "carol"] {
        story.lake.deny(name, Access::Read, "b");
    }
    assert_eq!(story.status_of("bob").await, StatusCode::OK, "bob has a grant");

    // Carol stands where Bob stood.
    story.becomes(immutable, &[own("alice"), own("carol")]).await;
    assert_eq!(story.status_of("carol").await, StatusCode::FORBIDDEN);
    // Alice stands where Bob stood; he comes back and has to ask.
    story.becomes(immutable, &[own("bob"), own("alice")]).await;
    assert_eq!(story.status_of("bob").await, StatusCode::FORBIDDEN);
    assert_eq!(story.node.stop().await, Some(0));
}

#[tokio::test]
async fn a_new_secret_holds_at_once_and_ends_what_was_granted_to_the_old_one() {
    let immutable = "[freshness]\ndefault = \"immutable\"\n";
    let story = Story::start(&[own("alice")]).await;
    story.becomes(immutable, &[own("alice")]).await;
    assert_eq!(story.status_of("alice").await, StatusCode::OK);
    story.lake.add_user("alice", "another secret");
    story.lake.deny("alice", Access::Read, "b");
    story.becomes(immutable, &[("alice", "another secret")]).await;
    assert_eq!(
        story.status_of("alice").await,
        StatusCode::FORBIDDEN,
        "the old secret"
    );
    let renewed = story.node.client("alice", "another secret");
    assert_eq!(
        get(&renewed).await,
        StatusCode::FORBIDDEN,
        "the lake was asked, and said no"
    );
    story.lake.allow("alice", Access::Read, "b");
    assert_eq!(get(&renewed).await, StatusCode::OK);
    assert_eq!(story.node.stop().await, Some(0));
}

#[tokio::test]
async fn rules_and_logs_change_and_what_cannot_is_named() {
    let story = Story::start(&[own("alice")]).await;
    assert_eq!(story.status_of("alice").await, StatusCode::OK);
    let settings = "[[freshness.rule]]\nprefix = \"s3://b/\"\nfreshness = \"immutable\"\n\
                    [[write.rule]]\nprefix = \"s3://b/through/\"\nmode = \"through\"\n\
                    [log]\naccess = true\nfilter = \"debug\"\n\
                    [limits]\nrequests = 7\n";
    story.becomes(settings, &[own("alice")]).await;
    let named = story.node.says("this setting changes with a restart only").await;
    assert_eq!(
        (&named["level"], &named["setting"]),
        (&"WARN".into(), &"[limits] requests".into())
    );

    assert_eq!(story.status_of("alice").await, StatusCode::OK);
    story.lake.forget_requests();
    assert_eq!(story.status_of("alice").await, StatusCode::OK);
    assert_eq!(story.lake.count(|_| true), 0, "the rule holds");
    story.node.says("\"operation\":\"get_object\"").await;
    raw(story.node.s3, "this is no request\r\n\r\n").await;
    story.node.says("\"level\":\"DEBUG\"").await;
    let put = story
        .node
        .client("alice", &secret("alice"))
        .put("/b/through/k", "x");
    assert_eq!(put.send().await.header("x-shoal-write"), Some("through"));
    assert_eq!(
        story.node.status().await["config"]["need_restart"],
        serde_json::json!(["[limits] requests"])
    );
    assert_eq!(story.node.stop().await, Some(0));
}

#[tokio::test]
async fn a_broken_file_is_named_and_the_node_goes_on_with_what_it_had() {
    let story = Story::start(&[own("alice")]).await;
    let (stop, reading) = load(story.node.client("alice", &secret("alice")));
    for (times, broken) in ["[s3\n", "[store]\ncapcity = \"1GiB\"\n"].into_iter().enumerate() {
        fs::write(story.file(), broken).unwrap();
        story.node.signal(Signal::HUP);
        let refusal = story.node.says_again(REFUSED, times + 1).await;
        assert_eq!(refusal["level"], "ERROR");
        assert!(
            refusal["error"].as_str().unwrap().contains("shoal.toml:"),
            "{refusal}"
        );
    }
    assert_eq!(story.status_of("alice").await, StatusCode::OK);
    let config = &story.node.status().await["config"];
    assert_eq!(
        (&config["reloads"], &config["failed_reloads"]),
        (&0.into(), &2.into())
    );
    assert!(config["error"].as_str().unwrap().contains("capcity"));
    let metrics = story.node.metrics().await;
    for line in [
        "shoal_config_reload_ok 0\n",
        "shoal_config_reloads_total{result=\"failed\"} 2\n",
    ] {
        assert!(metrics.contains(line), "{line}");
    }

    story.becomes("", &[own("alice"), own("bob")]).await;
    assert_eq!(story.status_of("bob").await, StatusCode::OK);
    assert!(story.node.metrics().await.contains("shoal_config_reload_ok 1\n"));
    stop.store(true, Ordering::Relaxed);
    let (failed, all) = reading.await.unwrap();
    assert!(failed == 0 && all > 0, "{failed} of {all}");
    assert_eq!(story.node.stop().await, Some(0));
}

#[tokio::test]
async fn a_file_that_is_empty_or_has_no_end_leaves_the_settings_as_they_are() {
    let folder = TempDir::new().unwrap();
    let tokens = folder.path().join("tokens");
    fs::write(&tokens, "a-token-of-these-operators\n").unwrap();
    let more = ["--admin-token-file", tokens.to_str().unwrap()];
    let story = Story::start_in(folder, &more, &[own("alice")]).await;
    let pipe = story.folder.path().join("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    // It is open, and nothing comes.
    let _writer = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let (zero, pipe) = ("/dev/zero".as_ref(), pipe.as_path());
    let mut refused = 0;
    let mut is_refused = async |said: &str| {
        story.node.signal(Signal::HUP);
        refused += 1;
        let refusal = story.node.says_again(REFUSED, refused).await;
        assert!(refusal["error"].as_str().unwrap().contains(said), "{refusal}");
        assert_eq!(story.status_of("alice").await, StatusCode::OK);
    };
    for (target, said) in [(zero, "no end"), (pipe, "sends nothing")] {
        fs::remove_file(story.file()).unwrap();
        std::os::unix::fs::symlink(target, story.file()).unwrap();
        is_refused(said).await;
    }
    fs::remove_file(story.file()).unwrap();
    fs::write(story.file(), "").unwrap();
    is_refused("it is empty").await;
    write(&story.file(), "", &[own("alice")]);
    fs::remove_file(&tokens).unwrap();
    std::os::unix::fs::symlink(zero, &tokens).unwrap();
    is_refused("no end").await;
    assert_eq!(story.node.stop().await, Some(0));
}

#[tokio::test]
async fn a_signal_that_means_nothing_does_not_end_the_node() {
    let story = Story::start(&[own("alice")]).await;
    for (signal, name) in [(Signal::USR1, "SIGUSR1"), (Signal::USR2, "SIGUSR2")] {
        story.node.signal(signal);
        let told = story.node.says(name).await;
        assert_eq!(told["level"], "WARN");
    }
    assert_eq!(story.status_of("alice").await, StatusCode::OK);
    assert_eq!(story.node.stop().await, Some(0));
}

#[tokio::test]
async fn tokens_of_operators_are_rotated_by_a_reload() {
    const OLD: &str = "an-old-token-of-operators";
    const NEW: &str = "a-new-token-of-operators";
    let folder = TempDir::new().unwrap();
    let tokens = folder.path().join("tokens");
    fs::write(&tokens, format!("{OLD}\n")).unwrap();
    let more = ["--admin-token-file", tokens.to_str().unwrap()];
    let story = Story::start_in(folder, &more, &[own("alice")]).await;
    let flush = async |token: &str| {
        let call = Client::anonymous(story.node.admin).post("/flush", "");
        let call = call.header("authorization", format!("Bearer {token}"));
        call.send().await.status
    };
    for (text, old, new) in [
        (format!("{OLD}\n"), StatusCode::ACCEPTED, StatusCode::UNAUTHORIZED),
        (
            format!("{OLD}\n{NEW}\n"),
            StatusCode::ACCEPTED,
            StatusCode::ACCEPTED,
        ),
        (format!("{NEW}\n"), StatusCode::UNAUTHORIZED, StatusCode::ACCEPTED),
    ] {
        fs::write(&tokens, text).unwrap();
        story.becomes("", &[own("alice")]).await;
        assert_eq!((flush(OLD).await, flush(NEW).await), (old, new));
    }
    // A file that holds no token is refused, and the tokens stay as they were.
    fs::write(&tokens, "# none\n").unwrap();
    story.node.signal(Signal::HUP);
    story.node.says(REFUSED).await;
    assert_eq!(flush(NEW).await, StatusCode::ACCEPTED);
    assert_eq!(flush(OLD).await, StatusCode::UNAUTHORIZED);
    assert_eq!(story.node.stop().await, Some(0));
}
