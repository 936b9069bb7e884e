//! Blocks that go to their holders while the rest of the object is still on its way to the first node.

use bytes::Bytes;
use http::StatusCode;

use super::cluster::{all_read, cluster, settled};
use super::slow::Slow;
use super::{back, flush, until};
use crate::cluster::{Cluster, Wire};
use crate::lake::Content;
use crate::node::{BLOCK, Node};

/// Enough for each of three nodes to be home to some.
const BLOCKS: u64 = 24;

fn object(seed: u64) -> Bytes {
    Content::synthetic(BLOCKS * BLOCK, seed).all()
}

fn blocks(node: &Node) -> u64 {
    node.store().counters().blocks
}

/// Blocks that this node has given to others.
async fn given(cluster: &Cluster, node: usize) -> u64 {
    cluster
        .metric(node, "shoal_peer_answers_total{result=\"served\"}")
        .await
}

/// A write to the first node of which all but the last bytes have come, and are where they go.
async fn nearly_written(cluster: &Cluster, key: &str, object: &Bytes) -> Slow {
    let mut writer = Slow::begin(&cluster.nodes[0], key, object.clone()).await;
    writer.sends_all_but(10).await;
    let [node, others @ ..] = &cluster.nodes[..] else {
        panic!("there is a node")
    };
    until("all blocks but the last are where they go", async || {
        let stays = std::fs::read_dir(node.store_path().join("aside"))
            .unwrap()
            .count() as u64;
        let goes = blocks(node);
        stays + goes == BLOCKS - 1 && others.iter().map(blocks).sum::<u64>() == goes
    })
    .await;
    assert!(others.iter().all(|other| blocks(other) > 1));
    writer
}

#[tokio::test]
async fn blocks_are_with_their_holders_before_the_last_byte_has_come_and_go_there_once() {
    let cluster = cluster(3).await;
    let object = object(1);
    let writer = nearly_written(&cluster, "tmp/k", &object).await;
    for node in &cluster.nodes {
        let read = node.client().get("/b/tmp/k").send().await;
        assert_eq!(read.status, StatusCode::NOT_FOUND, "it is not written yet");
    }
    let before = given(&cluster, 0).await;
    let answer = writer.end().await;
    assert!(answer.contains("x-shoal-write: back"), "{answer}");
    assert!(
        given(&cluster, 0).await <= before + 1,
        "all but the last block are there already"
    );
    let there = blocks(&cluster.nodes[1]) + blocks(&cluster.nodes[2]);
    assert_eq!(given(&cluster, 0).await, there, "each went to its holder, once");
    assert_eq!(blocks(&cluster.nodes[0]), BLOCKS, "nothing stands in any more");
    all_read(&cluster, "tmp/k", &object).await;
    assert_eq!(flush(&cluster.nodes[1], "").await["flush"]["failed"], 0);
    assert!(cluster.lake.object("b", "tmp/k").unwrap().content.all() == object);
    cluster.stop().await;
}

#[tokio::test]
async fn a_write_that_breaks_off_leaves_nothing_at_its_node_and_nothing_to_be_found_elsewhere() {
    let cluster = cluster(3).await;
    let (never, written) = (object(2), object(3));
    drop(nearly_written(&cluster, "tmp/k", &never).await);
    until("its node has forgotten it", async || {
        blocks(&cluster.nodes[0]) == 0
    })
    .await;
    for node in &cluster.nodes {
        let read = node.client().get("/b/tmp/k").send().await;
        assert_eq!(read.status, StatusCode::NOT_FOUND);
    }
    let put = cluster.nodes[1]
        .client()
        .put("/b/tmp/k", written.clone())
        .send()
        .await;
    assert_eq!(put.header("x-shoal-write"), Some("back"), "{}", put.text());
    all_read(&cluster, "tmp/k", &written).await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_block_that_its_holder_lost_before_the_write_ends_is_sent_again() {
    let cluster = cluster(3).await;
    let object = object(4);
    let writer = nearly_written(&cluster, "tmp/k", &object).await;
    let holder = &cluster.nodes[1];
    let stand_in = holder.store().blocks_by_use().await[0].version;
    holder.store().remove_version(stand_in);
    assert_eq!(blocks(holder), 0);
    let answer = writer.end().await;
    assert!(answer.contains("x-shoal-write: back"), "{answer}");
    assert!(blocks(holder) > 0);
    all_read(&cluster, "tmp/k", &object).await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_write_whose_blocks_cannot_go_ahead_is_written_all_the_same() {
    let cluster = cluster(3).await;
    let object = object(5);
    let mut writer = Slow::begin(&cluster.nodes[0], "tmp/k", object.clone()).await;
    for way in &cluster.ways[1..] {
        way.becomes(Wire::Stuck);
    }
    writer.sends_all_but(10).await;
    let broken = "shoal_peer_failures_total{peer=\"n1\"}";
    until("it was tried", async || cluster.metric(0, broken).await > 0).await;
    for way in &cluster.ways[1..] {
        way.becomes(Wire::Whole);
    }
    settled(&cluster).await;
    let answer = writer.end().await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    all_read(&cluster, "tmp/k", &object).await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_holder_that_goes_while_an_object_comes_takes_nothing_of_it_along() {
    let mut cluster = Cluster::start_with(3, |_, config| back(config)).await;
    settled(&cluster).await;
    let object = object(6);
    let writer = nearly_written(&cluster, "tmp/k", &object).await;
    let gone = cluster.nodes.pop().unwrap().halt().await;
    cluster.sees(2).await;
    settled(&cluster).await;
    let answer = writer.end().await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    all_read(&cluster, "tmp/k", &object).await;
    drop(gone);
    cluster.stop().await;
}

#[tokio::test]
async fn a_node_that_drains_while_an_object_comes_keeps_nothing_of_it() {
    let cluster = cluster(3).await;
    let object = object(7);
    let writer = nearly_written(&cluster, "tmp/k", &object).await;
    let leaving = &cluster.nodes[1];
    assert_eq!(leaving.order("/drain").await.status, StatusCode::ACCEPTED);
    cluster.is_told("n1", "draining").await;
    settled(&cluster).await;
    let answer = writer.end().await;
    assert!(answer.contains("x-shoal-write: back"), "{answer}");
    assert_eq!(leaving.status().await["write_back"]["objects"], 0);
    all_read(&cluster, "tmp/k", &object).await;
    cluster.stop().await;
}
