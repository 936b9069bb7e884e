//! Stories of clients whose secrets a service knows: the node asks it for each access key that it does not
//! know.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;
use parking_lot::Mutex;
use shoal_base::secret::Secret;
use shoal_node::config::{Config, FreshnessMode, KeySourceConfig, KeySourceKind, UnknownIdentities};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::client::{Client, Reply};
use crate::cluster::Cluster;
use crate::gate::refused;
use crate::lake::{Access, Lake};
use crate::node::{BLOCK, Node, lake};
use crate::waiting::{until, value};

const KEY: &str = "NEW-USER.1";
const SECRET: &str = "secret of a new user";

/// A service that answers in the form of trino's aws-proxy.
struct Service {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    secrets: BTreeMap<String, String>,
    /// The heads of the requests.
    asked: Vec<String>,
    /// Answered to every request, if it is set.
    trouble: Option<u16>,
}

impl Service {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut head = vec![0; 4096];
                let read = stream.read(&mut head).await.unwrap_or(0);
                let head = String::from_utf8_lossy(&head[..read]).into_owned();
                let answer = shared.lock().answer(head);
                drop(stream.write_all(answer.as_bytes()).await);
            }
        });
        Self { address, state }
    }

    fn config(&self) -> KeySourceConfig {
        KeySourceConfig {
            kind: KeySourceKind::Http,
            url: Some(format!("http://{}/v1/keys", self.address)),
            ca_file: None,
            headers: Some(Secret::new("Authorization: Bearer of-the-node\nx-site: one")),
            account: None,
            cache_time: Duration::from_secs(1),
        }
    }

    fn add(&self, lake: &Lake, secret: &str) {
        self.state.lock().secrets.insert(KEY.into(), secret.into());
        lake.add_user(KEY, secret);
    }

    fn asked(&self) -> usize {
        self.state.lock().asked.len()
    }
}

impl State {
    fn answer(&mut self, head: String) -> String {
        let key = head
            .strip_prefix("GET /v1/keys/")
            .and_then(|rest| rest.split_once(' '))
            .map_or(String::new(), |(key, _)| key.to_owned());
        self.asked.push(head);
        let secret = self.secrets.get(&key);
        let (status, body) = match (self.trouble, secret) {
            (Some(status), _) => (status, String::new()),
            (None, Some(secret)) => {
                let emulated = serde_json::json!({"accessKey": key, "secretKey": secret});
                let answer = serde_json::json!({"emulated": emulated, "identity": {"user": "new"}});
                (200, answer.to_string())
            }
            (None, None) => (404, String::new()),
        };
        format!(
            "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
    }
}

async fn node(service: &Service, change: impl FnOnce(&mut Config)) -> Node {
    let lake = lake().await;
    let node = Node::in_front_of(&lake, |config| {
        config.key_sources = vec![service.config()];
        change(config);
    });
    node.await
}

async fn get(node: &Node, secret: &str) -> Reply {
    let client = Client::signing(node.address(), KEY, secret);
    client.get("/b/k").send().await
}

#[tokio::test]
async fn a_user_who_was_just_made_is_an_identity_like_any_other() {
    let service = Service::start().await;
    let node = node(&service, |config| {
        config.freshness.default = FreshnessMode::Immutable;
    })
    .await;
    node.lake.put("b", "k", "bytes");
    refused(
        &get(&node, SECRET).await,
        StatusCode::FORBIDDEN,
        "InvalidAccessKeyId",
    );
    service.add(&node.lake, SECRET);
    let known = async || get(&node, SECRET).await.status == StatusCode::OK;
    until("the key is known", known).await;
    let asked = service.asked();
    let replies = join_all((0..20).map(|_| get(&node, SECRET))).await;
    assert!(replies.iter().all(|reply| reply.text() == "bytes"));
    assert!(service.asked() <= asked + 2, "an answer holds for a time");
    let head = service.state.lock().asked[0].to_ascii_lowercase();
    assert!(
        head.contains("authorization: bearer of-the-node") && head.contains("x-site: one"),
        "{head}"
    );
    assert_eq!(node.lake.last_request().access_key.as_deref(), Some(KEY));

    refused(
        &get(&node, "guess").await,
        StatusCode::FORBIDDEN,
        "SignatureDoesNotMatch",
    );
    node.lake.deny(KEY, Access::Write, "b");
    let put = Client::signing(node.address(), KEY, SECRET)
        .put("/b/k", "x")
        .send()
        .await;
    refused(&put, StatusCode::FORBIDDEN, "AccessDenied");
}

#[tokio::test]
async fn a_key_that_the_service_withdraws_or_changes_ends_within_the_time_of_its_answer() {
    let service = Service::start().await;
    let node = node(&service, |config| {
        config.freshness.default = FreshnessMode::Immutable;
    })
    .await;
    node.lake.put("b", "k", "bytes");
    service.add(&node.lake, SECRET);
    assert_eq!(get(&node, SECRET).await.status, StatusCode::OK);
    service.add(&node.lake, "another");
    let status = async |secret| get(&node, secret).await.status;
    value(
        "the new secret counts",
        async || status("another").await,
        |status| *status == StatusCode::OK,
    )
    .await;
    refused(
        &get(&node, SECRET).await,
        StatusCode::FORBIDDEN,
        "SignatureDoesNotMatch",
    );
    service.state.lock().secrets.clear();
    let ended = async || status("another").await == StatusCode::FORBIDDEN;
    until("the key has ended", ended).await;
    refused(
        &get(&node, "another").await,
        StatusCode::FORBIDDEN,
        "InvalidAccessKeyId",
    );
}

#[tokio::test]
async fn made_up_keys_cost_the_service_little_and_never_another_path() {
    let service = Service::start().await;
    let node = node(&service, |_| ()).await;
    let ask = |key: String| {
        let client = Client::signing(node.address(), &key, "x");
        async move { client.get("/b/k").send().await }
    };
    let replies = join_all((0..50).map(|_| ask("made-up".into()))).await;
    assert!(replies.iter().all(|reply| reply.code() == "InvalidAccessKeyId"));
    assert!(service.asked() < 10, "{}", service.asked());
    let before = service.asked();
    for key in ["..", "a b", "x%2f", &"k".repeat(200)] {
        assert_eq!(ask(key.into()).await.code(), "InvalidAccessKeyId");
    }
    assert_eq!(service.asked(), before);
}

#[tokio::test]
async fn a_service_that_fails_says_nothing_about_a_key() {
    let service = Service::start().await;
    let node = node(&service, |_| ()).await;
    service.state.lock().trouble = Some(403);
    let reply = get(&node, SECRET).await;
    refused(&reply, StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable");
    assert!(reply.text().contains("A key source"), "{}", reply.text());
    // The identities of the configuration need no service.
    node.lake.put("b", "k", "bytes");
    assert_eq!(node.client().get("/b/k").send().await.text(), "bytes");

    let other = self::node(&service, |config| {
        config.s3.unknown_identities = UnknownIdentities::Lake;
    });
    let other = other.await;
    other.lake.put("b", "k", "bytes");
    other.lake.add_user(KEY, SECRET);
    assert_eq!(get(&other, SECRET).await.text(), "bytes", "the lake judges it");
}

#[tokio::test]
async fn nodes_share_the_blocks_that_such_a_client_reads() {
    let service = Service::start().await;
    let cluster = Cluster::start_with(3, |_, config| config.key_sources = vec![service.config()]).await;
    let bytes = cluster.put("k", 5);
    service.add(&cluster.lake, SECRET);
    for node in &cluster.nodes {
        assert_eq!(get(node, SECRET).await.body, bytes);
    }
    assert!(cluster.lake.body_bytes_sent() <= 5 * BLOCK);
}
