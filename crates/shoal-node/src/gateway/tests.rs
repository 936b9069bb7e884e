//! Tests of the admin pages over a real socket.

use std::time::Duration;

use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use shoal_base::secret::Secret;
use shoal_net::http::pages::ready_under;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Config, Gateway};

/// A node that caches alone, in front of a lake that does not answer.
struct Running {
    gateway: Gateway,
    _folder: TempDir,
}

async fn start() -> Running {
    let folder = tempfile::tempdir().unwrap();
    let mut config = Config::default();
    config.node.name = "a1".into();
    config.s3.listen = "127.0.0.1:0".parse().unwrap();
    config.admin.listen = config.s3.listen;
    config.lake.endpoint = "http://127.0.0.1:1".into();
    config.lake.access_key = Some("key".into());
    config.lake.secret_key = Some(Secret::new("secret"));
    config.store.path = folder.path().into();
    config.store.capacity_bytes = 16 * config.store.block_bytes;
    Running {
        gateway: Gateway::start(config).await.unwrap(),
        _folder: folder,
    }
}

/// Returns the status, headers and body of a response.
async fn ask(running: &Running, method: &str, path: &str) -> (u16, String, String) {
    ask_with(running, method, &format!("{path} HTTP/1.1\r\nHost: h")).await
}

/// `target` extends to the host.
async fn ask_with(running: &Running, method: &str, target: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(running.gateway.admin_address()).await.unwrap();
    let request = format!("{method} {target}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    timeout(Duration::from_secs(20), stream.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), head.to_owned(), body.to_owned())
}

#[tokio::test]
async fn a_live_node_says_so() {
    let running = start().await;
    assert_eq!(ask(&running, "GET", "/healthz").await.0, 200);
    assert_eq!(ask(&running, "GET", "/healthz?x=1").await.0, 200);
    let (status, head, body) = ask(&running, "HEAD", "/healthz").await;
    assert_eq!((status, body.as_str()), (200, ""));
    assert!(head.contains("content-length: 6"), "{head}");
}

#[tokio::test]
async fn a_node_is_not_ready_while_a_part_of_it_is_missing_or_a_condition_holds() {
    let page = ready_under(&["s3"], &[]);
    let body = page.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        body,
        json!({ "ready": false, "missing": ["s3"], "conditions": [] })
    );
    assert_eq!(ready_under(&["s3"], &[]).status(), 503);
    assert_eq!(ready_under(&[], &[]).status(), 200);

    let (status, _, body) = ask(&start().await, "GET", "/readyz").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["missing"]), (503, &json!([])));
    assert_eq!(body["conditions"][0]["condition"], "lake-never-answered");
}

#[tokio::test]
async fn the_metrics_are_what_the_node_measures() {
    let running = start().await;
    let (status, head, body) = ask(&running, "GET", "/metrics").await;
    assert_eq!(status, 200);
    assert!(
        head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{head}"
    );
    assert!(
        body.contains("\nshoal_resident_bytes 0\n") && body.ends_with("\n# EOF\n"),
        "{body}"
    );
}

#[tokio::test]
async fn the_status_is_what_the_node_says() {
    let (status, head, body) = ask(&start().await, "GET", "/status").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["node"]["name"]), (200, &json!("a1")));
    assert!(
        head.contains("content-type: application/json") && head.contains("cache-control: no-store"),
        "{head}"
    );
}

#[tokio::test]
async fn the_members_are_those_the_node_knows() {
    let (status, head, body) = ask(&start().await, "GET", "/members").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status, &body["self"], &body["members"][0]["name"]),
        (200, &json!("a1"), &json!("a1"))
    );
    assert!(head.contains("content-type: application/json"), "{head}");
}

#[tokio::test]
async fn there_is_nothing_else_and_nothing_can_be_changed() {
    let running = start().await;
    for path in ["/bucket", "/bucket/key", "/metrics/", "//status"] {
        assert_eq!(ask(&running, "GET", path).await.0, 404, "{path}");
    }
    for method in ["PUT", "POST", "DELETE"] {
        let (status, head, _) = ask(&running, method, "/status").await;
        assert_eq!(status, 405);
        assert!(head.contains("allow: GET, HEAD"), "{head}");
    }
}

#[tokio::test]
async fn silent_connections_do_not_keep_a_probe_out() {
    let running = start().await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(running.gateway.admin_address()).await.unwrap());
    }
    for _ in 0..3 {
        assert_eq!(ask(&running, "GET", "/healthz").await.0, 200);
    }
}

#[tokio::test]
async fn a_page_of_another_site_reads_nothing_and_orders_nothing() {
    let running = start().await;
    let rebound = |path: &str| format!("{path} HTTP/1.1\r\nHost: evil.com");
    for path in ["/metrics", "/status", "/members", "/explain?object=s3://b/k"] {
        let (status, _, body) = ask_with(&running, "GET", &rebound(path)).await;
        assert_eq!(status, 421, "{path} {body}");
        assert!(body.contains("hint: "), "{body}");
    }
    assert_eq!(ask_with(&running, "POST", &rebound("/drain")).await.0, 421);
    let probe = ask_with(&running, "GET", &rebound("/healthz")).await;
    assert_eq!(probe.0, 200, "probes see that it lives");
}

#[tokio::test]
async fn orders_are_posted_and_not_by_web_pages() {
    let running = start().await;
    for path in ["/drain", "/undrain"] {
        let (status, head, _) = ask(&running, "GET", path).await;
        assert_eq!(status, 405);
        assert!(head.contains("allow: POST"), "{head}");
        let (status, _, body) = ask(&running, "POST", path).await;
        assert_eq!(
            status, 409,
            "no other node can take the blocks of a node that caches alone"
        );
        assert!(body.contains("caches alone"), "{body}");
        let from_a_page = format!("{path} HTTP/1.1\r\nOrigin: http://example.com\r\nX-Rest:");
        assert_eq!(ask(&running, "POST", &from_a_page).await.0, 403);
    }
}

#[tokio::test]
async fn where_blocks_are_is_told_of_one_object() {
    let running = start().await;
    let (status, _, body) = ask(&running, "GET", "/explain?object=s3%3A%2F%2Fb%2Fk").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["node"]), (200, &json!("a1")));
    let (status, _, body) = ask(&running, "GET", "/explain?object=b").await;
    assert_eq!(status, 400);
    assert!(body.contains("object=s3://bucket/key"), "{body}");
    assert_eq!(ask(&running, "POST", "/explain?object=s3://b/k").await.0, 405);
}
