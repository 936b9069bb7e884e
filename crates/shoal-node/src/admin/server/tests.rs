//! Tests of the admin pages over a real socket.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, StatusCode};
use serde_json::{Value, json};
use shoal_net::conditions::Condition;
use shoal_net::http::connection::ClientBody;
use shoal_net::http::listener::listen;
use shoal_net::http::pages::{self, Page};
use shoal_net::shutdown::{self, Trigger};
use shoal_s3::uri::S3Uri;
use shoal_writeback::FlushProgress;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Admin, MissingParts, Pages};
use crate::admin::allowed_hosts::AllowedHosts;
use crate::admin::explain::{ExplainQuery, Explanation};
use crate::admin::members::Members;
use crate::admin::other_nodes::OtherPage;
use crate::admin::task_pages::TaskPage;
use crate::handoff::Handoff;

struct Running {
    address: SocketAddr,
    missing: Arc<MissingParts>,
    _trigger: Trigger,
}

/// Pages with fixed content.
struct Canned;

impl Pages for Canned {
    fn metrics(self: Arc<Self>) -> String {
        "shoal_resident_bytes 7\n# EOF\n".into()
    }

    async fn status(self: Arc<Self>) -> Value {
        json!({ "node": "a1" })
    }

    fn conditions(&self) -> Vec<Condition> {
        Vec::new()
    }

    fn members(&self) -> Members {
        Members {
            speaker: "a1".into(),
            members: vec![],
        }
    }

    async fn explain(&self, query: ExplainQuery) -> Explanation {
        Explanation {
            pins: Vec::new(),
            node: query.object.to_string(),
            version: None,
            blocks: Vec::new(),
            entries: Vec::new(),
            completeness: Vec::new(),
        }
    }

    async fn other(&self, page: OtherPage, query: Option<&str>) -> Page {
        let said = format!("{} {query:?}", page.node);
        pages::page(StatusCode::OK, "text/plain", said)
    }

    async fn tasks(&self, page: TaskPage, _: Request<ClientBody>) -> Page {
        pages::page(StatusCode::OK, "text/plain", format!("{page:?}"))
    }

    fn flush(&self, _: Option<S3Uri>) -> FlushProgress {
        FlushProgress::default()
    }

    fn handoff(&self) -> Option<&Arc<Handoff>> {
        None
    }
}

fn start() -> Running {
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let missing = Arc::new(MissingParts::new(&["store", "s3-listener"]));
    let (trigger, shutdown) = shutdown::channel();
    let admin = Admin {
        pages: Arc::new(Canned),
        missing: Arc::clone(&missing),
        hosts: AllowedHosts::default(),
        auth: Arc::default(),
    };
    tokio::spawn(admin.serve(listener, None, shutdown));
    Running {
        address,
        missing,
        _trigger: trigger,
    }
}

/// Returns the status, headers and body of a response.
async fn ask(running: &Running, method: &str, path: &str) -> (u16, String, String) {
    ask_with(running, method, &format!("{path} HTTP/1.1\r\nHost: h")).await
}

/// `target` extends to the host.
async fn ask_with(running: &Running, method: &str, target: &str) -> (u16, String, String) {
    let mut stream = TcpStream::connect(running.address).await.unwrap();
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
    let running = start();
    assert_eq!(ask(&running, "GET", "/healthz").await.0, 200);
    assert_eq!(ask(&running, "GET", "/healthz?x=1").await.0, 200);
    let (status, head, body) = ask(&running, "HEAD", "/healthz").await;
    assert_eq!((status, body.as_str()), (200, ""));
    assert!(head.contains("content-length: 6"), "{head}");
}

#[tokio::test]
async fn a_node_is_ready_when_all_its_parts_are_and_tells_which_are_not() {
    let running = start();
    let (status, _, body) = ask(&running, "GET", "/readyz").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status, body),
        (
            503,
            json!({ "ready": false, "missing": ["store", "s3-listener"], "conditions": [] })
        )
    );
    *running.missing.lock() = &["s3-listener"];
    assert_eq!(ask(&running, "GET", "/readyz").await.0, 503);
    *running.missing.lock() = &[];
    let (status, _, body) = ask(&running, "GET", "/readyz").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    let expected = json!({ "ready": true, "missing": [], "conditions": [] });
    assert_eq!((status, body), (200, expected));
    *running.missing.lock() = &["s3-listener"];
    assert_eq!(ask(&running, "GET", "/readyz").await.0, 503);
}

#[tokio::test]
async fn the_metrics_are_what_the_node_measures() {
    let running = start();
    let (status, head, body) = ask(&running, "GET", "/metrics").await;
    assert_eq!(status, 200);
    assert!(
        head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"),
        "{head}"
    );
    assert_eq!(body, "shoal_resident_bytes 7\n# EOF\n");
}

#[tokio::test]
async fn the_status_is_what_the_node_says() {
    let (status, head, body) = ask(&start(), "GET", "/status").await;
    assert_eq!((status, body.as_str()), (200, "{\"node\":\"a1\"}"));
    assert!(
        head.contains("content-type: application/json") && head.contains("cache-control: no-store"),
        "{head}"
    );
}

#[tokio::test]
async fn the_members_are_those_the_node_knows() {
    let (status, head, body) = ask(&start(), "GET", "/members").await;
    assert_eq!((status, body.as_str()), (200, "{\"members\":[],\"self\":\"a1\"}"));
    assert!(head.contains("content-type: application/json"), "{head}");
}

#[tokio::test]
async fn there_is_nothing_else_and_nothing_can_be_changed() {
    let running = start();
    for path in ["/", "/bucket/key", "/metrics/", "//status"] {
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
    let running = start();
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(running.address).await.unwrap());
    }
    for _ in 0..3 {
        assert_eq!(ask(&running, "GET", "/healthz").await.0, 200);
    }
}

#[tokio::test]
async fn a_page_of_another_site_reads_nothing_and_orders_nothing() {
    let running = start();
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
    let running = start();
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
    let running = start();
    let (status, _, body) = ask(&running, "GET", "/explain?object=s3%3A%2F%2Fb%2Fk").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &body["node"]), (200, &json!("s3://b/k")));
    let (status, _, body) = ask(&running, "GET", "/explain?object=b").await;
    assert_eq!(status, 400);
    assert!(body.contains("object=s3://bucket/key"), "{body}");
    assert_eq!(ask(&running, "POST", "/explain?object=s3://b/k").await.0, 405);
}
