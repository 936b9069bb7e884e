//! Objects whose changes are reported to the directory: a warm read does not ask the lake, and is never
//! stale.

use std::time::Duration;

use http::StatusCode;
use serde_json::Value;
use shoal_base::clock;
use shoal_node::config::{Config, CooperationMode, FreshnessMode, FreshnessRule};

use super::redis::Redis;
use super::{Cluster, free_address};
use crate::client::Reply;
use crate::lake::{Access, Fault, Request};
use crate::node::OTHER_KEY;
use crate::waiting::{until, value};

/// Two writes through a node without a directory take less, however busy the machine is, unless both wait.
const PATIENCE: Duration = Duration::from_secs(90);

fn coherent(_: usize, config: &mut Config) {
    config.cooperation.mode = CooperationMode::Directory;
    config.freshness.default = FreshnessMode::Coherent;
    // Other tests take the processor meanwhile.
    config.directory.timeout = Duration::from_secs(1);
}

impl Cluster {
    async fn get(&self, node: usize, key: &str) -> Reply {
        self.nodes[node].client().get(&format!("/b/{key}")).send().await
    }

    /// Reads through a node until a read asks the lake nothing.
    async fn is_warm(&self, node: usize, key: &str) {
        until(&format!("n{node} reads {key} without the lake"), async || {
            self.get(node, key).await;
            self.asks_nothing(node, key).await
        })
        .await;
    }

    /// Returns true if a read through a node asks the lake nothing.
    async fn asks_nothing(&self, node: usize, key: &str) -> bool {
        let asked = self.lake.requests().len();
        self.get(node, key).await;
        self.lake.requests().len() == asked
    }

    async fn coherence(&self, node: usize) -> Value {
        self.nodes[node].status().await["directory"]["coherent"].clone()
    }

    async fn put_through(&self, node: usize, key: &str, bytes: &'static str) -> Reply {
        let client = self.nodes[node].client();
        client.put(&format!("/b/{key}"), bytes).send().await
    }
}

#[tokio::test]
async fn a_warm_read_asks_the_lake_nothing_until_a_node_changes_the_object() {
    let cluster = Cluster::start_with(3, coherent).await;
    cluster.lake.put("b", "k", "first");
    for node in 0..3 {
        cluster.is_warm(node, "k").await;
    }
    let head = cluster.nodes[0].client().head("/b/k");
    let asked = cluster.lake.requests().len();
    assert_eq!(head.send().await.status, StatusCode::OK);
    assert_eq!(cluster.lake.requests().len(), asked, "a HEAD neither");

    let writer = cluster.nodes[1].client();
    let deletions = "<Delete><Object><Key>k</Key></Object></Delete>";
    let changes = [
        (writer.put("/b/k", "second"), Some("second")),
        (writer.delete("/b/k"), None),
        (writer.put("/b/k", "third"), Some("third")),
        (writer.post("/b?delete", deletions), None),
        (writer.put("/b/other", "fourth"), None),
        (
            writer.put("/b/k", "").header("x-amz-copy-source", "/b/other"),
            Some("fourth"),
        ),
    ];
    for (number, (change, expected)) in changes.into_iter().enumerate() {
        let changed = change.send().await;
        assert!(
            changed.status.is_success(),
            "change {number}: {} {}",
            changed.status,
            changed.text()
        );
        for node in 0..3 {
            let read = cluster.get(node, "k").await;
            let content = (read.status == StatusCode::OK).then_some(&*read.body);
            assert_eq!(content, expected.map(str::as_bytes), "change {number}, n{node}");
        }
    }
    // The end is reported to the directory in the background.
    for node in 0..3 {
        cluster.is_warm(node, "k").await;
    }
    let page = cluster.coherence(2).await;
    assert_eq!(page["attached"], true);
    assert_eq!(page["absent"].as_array().unwrap().len(), 0);
    assert!(page["looks"]["settled"].as_u64() > Some(2), "{page}");
    cluster.stop().await;
}

#[tokio::test]
async fn an_object_that_may_be_changing_is_asked_for_at_the_lake() {
    let cluster = Cluster::start_with(2, coherent).await;
    cluster.lake.put("b", "k", "first");
    cluster.is_warm(0, "k").await;
    let gate = cluster.lake.hold(Request::is_put);
    let writing = cluster.put_through(1, "k", "second");
    let reading = async {
        gate.arrived(1).await;
        for _ in 0..3 {
            assert!(!cluster.asks_nothing(0, "k").await, "it is being written");
        }
        gate.open();
    };
    let (written, ()) = tokio::join!(writing, reading);
    assert_eq!(written.status, StatusCode::OK);
    assert_eq!(cluster.get(0, "k").await.body, "second");
    cluster.is_warm(0, "k").await;

    // The lake may have carried this one out, or may do so later.
    cluster.lake.behave();
    cluster
        .lake
        .misbehave(Fault::reset().when(Request::is_put).always());
    let unknown = cluster.put_through(1, "k", "third").await;
    assert!(unknown.status.is_server_error(), "{}", unknown.status);
    for _ in 0..3 {
        assert!(!cluster.asks_nothing(0, "k").await, "it may still change");
    }
    assert_eq!(cluster.coherence(1).await["changes_under_way"], 1);
    cluster.stop().await;
}

#[tokio::test]
async fn the_lakes_yes_to_one_caller_is_no_yes_to_another() {
    let cluster = Cluster::start_with(2, coherent).await;
    cluster.lake.put("b", "k", "first");
    cluster.lake.deny(OTHER_KEY, Access::Read, "b/k");
    cluster.is_warm(0, "k").await;
    cluster.nodes[0].is_not_readable_by_others("/b/k").await;
    assert!(cluster.asks_nothing(0, "k").await, "the first caller's yes holds");
    cluster.stop().await;
}

#[tokio::test]
async fn a_node_with_other_rules_ends_the_trust_of_all() {
    let mut cluster = Cluster::start_with(2, coherent).await;
    cluster.lake.put("b", "k", "first");
    cluster.is_warm(0, "k").await;
    cluster
        .add(|node, config| {
            coherent(node, config);
            config.freshness.rules = vec![FreshnessRule {
                prefix: "s3://b/k".into(),
                mode: FreshnessMode::Revalidate,
            }];
        })
        .await;
    cluster.sees(3).await;
    value(
        "n2 is absent",
        async || cluster.coherence(0).await,
        |coherence| coherence["absent"] == serde_json::json!(["n2"]),
    )
    .await;
    assert!(!cluster.asks_nothing(0, "k").await);
    assert_eq!(cluster.put_through(2, "k", "second").await.status, StatusCode::OK);
    assert_eq!(cluster.get(0, "k").await.body, "second");
    cluster.stop().await;
}

#[tokio::test]
async fn without_the_directory_reads_ask_the_lake_and_the_first_writes_wait() {
    let Some(mut redis) = Redis::start() else {
        eprintln!("skipped: redis-server is not installed");
        return;
    };
    let url = redis.url();
    let cluster = Cluster::start_with(2, |node, config| {
        coherent(node, config);
        config.directory.url = url.clone();
    })
    .await;
    cluster.lake.put("b", "k", "first");
    for node in 0..2 {
        cluster.is_warm(node, "k").await;
    }
    redis.kill();
    let began = clock::instant();
    assert_eq!(cluster.get(0, "k").await.body, "first");
    assert_eq!(cluster.put_through(1, "k", "second").await.status, StatusCode::OK);
    assert!(
        began.elapsed() > Duration::from_secs(8),
        "others may have believed the directory: {:?}",
        began.elapsed()
    );
    assert_eq!(cluster.get(0, "k").await.body, "second");
    let waits = cluster.coherence(1).await["waits"].as_u64();
    assert_eq!(cluster.put_through(1, "k", "third").await.status, StatusCode::OK);
    assert_eq!(cluster.get(0, "k").await.body, "third");
    let page = cluster.coherence(1).await;
    assert_eq!(
        (page["waits"].as_u64(), &page["attached"]),
        (waits, &Value::Bool(false))
    );

    redis.start_again();
    cluster.is_warm(0, "k").await;
    assert_eq!(cluster.put_through(1, "k", "fourth").await.status, StatusCode::OK);
    assert_eq!(cluster.get(0, "k").await.body, "fourth");
    cluster.stop().await;
}

#[tokio::test]
async fn a_node_that_never_had_a_directory_goes_on() {
    let cluster = Cluster::start_with(1, |node, config| {
        coherent(node, config);
        config.directory.url = format!("redis://{}", free_address());
    })
    .await;
    let began = clock::instant();
    assert_eq!(cluster.put_through(0, "k", "first").await.status, StatusCode::OK);
    assert_eq!(cluster.put_through(0, "k", "second").await.status, StatusCode::OK);
    assert!(
        began.elapsed() < PATIENCE,
        "the wait was not that of the start only"
    );
    assert_eq!(cluster.get(0, "k").await.body, "second");
    assert!(!cluster.asks_nothing(0, "k").await);
    cluster.stop().await;
}
