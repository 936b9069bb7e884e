//! Stories of access to the admin port: to its pages, and to its orders.

use std::fs;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};

use http::StatusCode;
use serde_json::Value;
use shoal_base::tls::OwnCertificate;
use shoal_node::admin::client::{AdminAccess, AdminClient, AdminErrorKind, AdminUrl};
use shoal_node::config::Config;
use tempfile::TempDir;

use super::{order, put_objects};
use crate::client::Client;
use crate::node::Node;
use crate::tls::{CERTIFICATE, PRIVATE_KEY};

const OLD: &str = "an-old-token-of-these-tests";
const NEW: &str = "a-new-token-of-these-tests";

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/tls")
        .join(name)
}

/// An address of this machine that is not loopback, if it has one. No packet is sent to find out.
fn own_address() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    socket.connect("192.0.2.1:9").ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback() && !address.is_unspecified()).then_some(address)
}

fn tokens(folder: &TempDir, text: &str) -> PathBuf {
    let path = folder.path().join("tokens");
    fs::write(&path, text).unwrap();
    path
}

async fn status(address: SocketAddr, path: &str, token: Option<&str>) -> StatusCode {
    let mut call = Client::anonymous(address).get(path);
    if let Some(token) = token {
        call = call.header("authorization", format!("Bearer {token}"));
    }
    call.send().await.status
}

async fn give(address: SocketAddr, path: &str, token: Option<&str>) -> StatusCode {
    let mut call = Client::anonymous(address).post(path, "");
    if let Some(token) = token {
        call = call.header("authorization", format!("Bearer {token}"));
    }
    call.send().await.status
}

#[tokio::test]
async fn orders_need_a_token_where_tokens_are_configured() {
    let folder = tempfile::tempdir().unwrap();
    let file = tokens(&folder, &format!("# rotated\n{OLD}\n{NEW}\n"));
    let node = Node::start_with(|config| config.admin.token_file = Some(file.clone())).await;
    let address = node.admin_address();
    for path in [
        "/tasks",
        "/status",
        "/metrics",
        "/members",
        "/healthz",
        "/readyz",
        "/explain?object=s3://b/k",
    ] {
        assert_eq!(
            status(address, path, None).await,
            StatusCode::OK,
            "{path}: looking over loopback is open"
        );
    }
    for path in [
        "/flush",
        "/drain",
        "/undrain",
        "/tasks",
        "/tasks/x/cancel",
        "/cached",
    ] {
        for token in [None, Some("a-wrong-token-of-these-tests"), Some("")] {
            assert_eq!(
                give(address, path, token).await,
                StatusCode::UNAUTHORIZED,
                "{path} {token:?}"
            );
        }
        for token in [OLD, NEW] {
            assert_ne!(
                give(address, path, Some(token)).await,
                StatusCode::UNAUTHORIZED,
                "{path}"
            );
        }
    }
    let reply = Client::anonymous(address).post("/flush", "").send().await;
    assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
    assert!(reply.text().contains("\nhint: "), "{}", reply.text());
    node.stop().await;
}

#[tokio::test]
async fn other_machines_may_look_or_give_orders_only_as_configured() {
    let Some(own) = own_address() else {
        eprintln!("skipped: this machine has no address but loopback");
        return;
    };
    let everywhere = |config: &mut Config| config.admin.listen = SocketAddr::from(([0, 0, 0, 0], 0));
    let node = Node::start_with(everywhere).await;
    let from_elsewhere = SocketAddr::new(own, node.admin_address().port());
    assert_eq!(status(from_elsewhere, "/status", None).await, StatusCode::OK);
    let reply = Client::anonymous(from_elsewhere).post("/flush", "").send().await;
    assert_eq!(reply.status, StatusCode::FORBIDDEN);
    assert!(
        reply.text().contains("\nhint: set [admin] token_file"),
        "{}",
        reply.text()
    );
    node.stop().await;

    let folder = tempfile::tempdir().unwrap();
    let file = tokens(&folder, OLD);
    let node = Node::start_with(|config| {
        everywhere(config);
        config.admin.token_file = Some(file);
    })
    .await;
    let from_elsewhere = SocketAddr::new(own, node.admin_address().port());
    for (path, open) in [
        ("/healthz", true),
        ("/readyz", true),
        ("/status", false),
        ("/metrics", false),
        ("/members", false),
        ("/tasks", false),
    ] {
        let expected = if open {
            StatusCode::OK
        } else {
            StatusCode::UNAUTHORIZED
        };
        for (token, expected) in [(None, expected), (Some(OLD), StatusCode::OK)] {
            let answered = status(from_elsewhere, path, token).await;
            // The lake may not have answered yet.
            let is_early = path == "/readyz" && answered == StatusCode::SERVICE_UNAVAILABLE;
            assert!(answered == expected || is_early, "{path}: {answered}");
        }
    }
    assert_eq!(
        give(from_elsewhere, "/flush", Some(OLD)).await,
        StatusCode::ACCEPTED
    );
    node.stop().await;
}

#[tokio::test]
async fn an_operator_with_a_certificate_gives_orders_and_others_do_not() {
    let node = Node::start_with(|config| {
        config.admin.tls_cert = Some(CERTIFICATE.into());
        config.admin.tls_key = Some(PRIVATE_KEY.into());
        config.admin.client_ca = Some(data("client-ca.pem"));
    })
    .await;
    put_objects(&node, ["a".into()]);
    let url: AdminUrl = format!("https://{}", node.admin_address()).parse().unwrap();
    let access = |certificate: Option<&str>| AdminAccess {
        ca_file: Some(CERTIFICATE.into()),
        certificate: certificate.map(|name| OwnCertificate {
            certificate: data(&format!("{name}.pem")),
            key: data(&format!("{name}.key")),
        }),
        ..AdminAccess::default()
    };
    let body = || order("prefetch", "s3://b/a").to_string().into_bytes();
    let operator = AdminClient::new(url.clone(), &access(Some("client"))).unwrap();
    let task: Value = operator.post_json("/tasks", body()).await.unwrap();
    assert_eq!(task["kind"], "prefetch");
    let nobody = AdminClient::new(url.clone(), &access(None)).unwrap();
    nobody.get::<Value>("/status").await.unwrap();
    let refused = nobody.post_json::<Value>("/tasks", body()).await.unwrap_err();
    assert!(
        matches!(
            refused.why,
            AdminErrorKind::Refused {
                status: StatusCode::UNAUTHORIZED,
                ..
            }
        ),
        "{refused}"
    );
    let stranger = AdminClient::new(url.clone(), &access(Some("stranger"))).unwrap();
    let refused = stranger.get::<Value>("/status").await.unwrap_err();
    assert!(
        matches!(refused.why, AdminErrorKind::Unreachable(_)),
        "its handshake fails: {refused}"
    );
    let plain: AdminUrl = format!("http://{}", node.admin_address()).parse().unwrap();
    let unencrypted = AdminClient::new(plain, &AdminAccess::default()).unwrap();
    assert!(unencrypted.get::<Value>("/status").await.is_err());
    node.stop().await;
}

#[tokio::test]
async fn a_token_file_without_tokens_is_refused_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = tokens(&folder, "short");
    let mut config = Config::default();
    config.s3.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    config.admin.listen = SocketAddr::from(([127, 0, 0, 1], 0));
    config.store.path = folder.path().join("store");
    config.store.capacity_bytes = 64 << 20;
    config.admin.token_file = Some(file);
    let Err(error) = shoal_node::Gateway::start(config).await else {
        panic!("it started");
    };
    assert!(
        error.to_string().contains("line 1 is no token") && error.to_string().contains("\nhint: "),
        "{error}"
    );
}
