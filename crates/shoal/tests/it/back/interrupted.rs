//! Writes in the middle of which something happens to a node.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::StatusCode;

use super::cluster::{cluster, settled};
use super::{bytes, flush, reads, until};
use crate::client::Reply;
use crate::cluster::{Cluster, Wire};
use crate::lake::{Fault, Request};

const KEYS: u64 = 12;

fn key(number: u64) -> String {
    format!("tmp/{number}")
}

/// Writes all keys at once through the first node, each with bytes of its own; gives the answers.
async fn write_all(cluster: &Cluster, seeds_from: u64) -> Vec<Reply> {
    let client = cluster.nodes[0].client();
    let puts = (0..KEYS).map(|number| {
        let put = client.put(&format!("/b/{}", key(number)), bytes(seeds_from + number));
        put.send()
    });
    join_all(puts).await
}

/// What all nodes agree on; `None`: that there is no such object.
async fn agreed(cluster: &Cluster, number: u64) -> Option<Bytes> {
    let target = format!("/b/{}", key(number));
    let first = cluster.nodes[0].client().get(&target).send().await;
    for node in &cluster.nodes {
        let read = node.client().get(&target).send().await;
        assert_eq!(read.status, first.status, "{target}");
        assert!(read.body == first.body || !read.status.is_success(), "{target}");
    }
    match first.status {
        StatusCode::OK => Some(first.body),
        StatusCode::NOT_FOUND => None,
        status => panic!("{target}: {status}"),
    }
}

#[tokio::test]
async fn an_overwrite_that_neither_a_node_nor_the_lake_takes_leaves_what_was_there() {
    let cluster = cluster(3).await;
    for reply in write_all(&cluster, 0).await {
        assert_eq!(reply.header("x-shoal-write"), Some("back"));
    }
    cluster.ways[2].becomes(Wire::Stuck);
    let is_put = |request: &Request| request.is_put() && request.key.starts_with(b"tmp/");
    cluster.lake.misbehave(Fault::status(503).when(is_put).always());
    let overwrites = write_all(&cluster, 100).await;
    cluster.lake.behave();
    cluster.ways[2].becomes(Wire::Whole);
    cluster.sees(3).await;
    settled(&cluster).await;
    let mut undone = 0;
    for (number, overwrite) in (0..).zip(&overwrites) {
        let read = agreed(&cluster, number).await.expect("something was written");
        let is_new = read == bytes(100 + number);
        assert!(is_new || read == bytes(number), "one write, and all of it");
        assert!(
            is_new || overwrite.status.is_server_error(),
            "what is acknowledged stays"
        );
        undone += u64::from(!is_new);
        // The others may not ask the node that was stuck before its circuit breaker closes.
        until("all objects are flushed", async || {
            flush(&cluster.nodes[1], "").await["flush"]["failed"] == 0
        })
        .await;
        let at_the_lake = cluster.lake.object("b", key(number)).unwrap();
        assert!(at_the_lake.content.all() == read, "the lake gets what was read");
    }
    assert!(undone > 0, "some needed the node that is stuck");
    cluster.stop().await;
}

#[tokio::test]
async fn a_node_that_dies_while_objects_are_committed_takes_whole_ones_along_and_brings_them_back() {
    let mut cluster = cluster(3).await;
    let dying = cluster.nodes.pop().unwrap();
    let (written, gone) = tokio::join!(write_all(&cluster, 0), async {
        tokio::time::sleep(Duration::from_millis(20)).await;
        dying.halt().await
    });
    cluster.sees(2).await;
    settled(&cluster).await;
    for number in 0..KEYS {
        if let Some(read) = agreed(&cluster, number).await {
            assert!(read == bytes(number), "{number} is whole");
        }
    }
    cluster.nodes.push(gone.start().await);
    cluster.sees(3).await;
    settled(&cluster).await;
    for (number, reply) in (0..).zip(&written) {
        if reply.status == StatusCode::OK {
            for node in &cluster.nodes {
                reads(&node.client(), &key(number), &bytes(number)).await;
            }
        }
    }
    assert!(
        written.iter().any(|reply| reply.status == StatusCode::OK),
        "some were acknowledged"
    );
    cluster.stop().await;
}
