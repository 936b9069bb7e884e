//! Uploads that nobody ends, and nodes that are to go while some are under way.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde_json::Value;

use super::cluster::settled;
use super::multipart::{self, begin, cluster, complete, etag, is_upload, list, parts};
use super::{reads, until};
use crate::cluster::Cluster;
use crate::node::Node;

const HOUR: Duration = Duration::from_hours(1);

/// What a node says of uploads.
async fn uploads(node: &Node) -> Value {
    node.status().await["write_back"]["uploads"].clone()
}

/// Puts each part by way of the node beside it; the list that completes them.
async fn put_all(cluster: &Cluster, id: &str, parts: &[Bytes], nodes: &[usize]) -> String {
    let clients: Vec<_> = nodes.iter().map(|&node| cluster.nodes[node].client()).collect();
    list(multipart::put_all(&clients, "tmp/k", id, parts).await)
}

/// Nothing of any part is on the disk of a node.
async fn holds_nothing(node: &Node) -> bool {
    uploads(node).await["bytes"] == 0 && node.store().counters().blocks == 0
}

async fn drains(node: &Node) {
    assert_eq!(node.order("/drain").await.status, StatusCode::ACCEPTED);
    until("it waits for what somebody is busy with", async || {
        let drain = node.status().await["drain"].clone();
        drain["state"] == "draining" && drain["objects_dirty"] == 1
    })
    .await;
}

async fn is_drained(node: &Node) {
    until("it is drained", async || {
        node.status().await["drain"]["state"] == "drained"
    })
    .await;
}

#[tokio::test]
async fn an_abandoned_upload_is_given_up_after_a_day_and_leaves_nothing() {
    let cluster = cluster(2).await;
    let [keeper, other] = &cluster.nodes[..] else {
        panic!("two nodes")
    };
    let id = begin(&keeper.client(), "tmp/k").await;
    put_all(&cluster, &id, &parts(30)[..2], &[0, 1]).await;
    let target = format!("/b/tmp/k?uploadId={id}");
    for node in &cluster.nodes {
        node.tidies_uploads_after(23 * HOUR).await;
        assert_eq!(node.client().get(&target).send().await.status, StatusCode::OK);
        assert!(!holds_nothing(node).await);
    }
    assert_eq!(cluster.metric(0, "shoal_uploads_open").await, 1);
    assert!(cluster.metric(1, "shoal_upload_bytes").await > 0);

    keeper.tidies_uploads_after(25 * HOUR).await;
    for node in &cluster.nodes {
        let gone = node.client().get(&target).send().await;
        assert_eq!(
            (gone.status, gone.code()),
            (StatusCode::NOT_FOUND, "NoSuchUpload")
        );
        until("its parts are gone", async || holds_nothing(node).await).await;
    }
    let ended = &uploads(keeper).await["ended"];
    assert_eq!((&ended["expired"], &ended["aborted"]), (&1.into(), &0.into()));
    assert_eq!(uploads(other).await["ended"]["expired"], 0, "it is counted once");
    let expired = "shoal_uploads_ended_total{outcome=\"expired\"}";
    assert_eq!(cluster.metric(0, expired).await, 1);
    assert_eq!(cluster.metric(0, expired).await, 1, "and not anew each time");
    assert_eq!(cluster.metric(0, "shoal_uploads_open").await, 0);
    assert_eq!(cluster.lake.count(is_upload), 0);
    cluster.stop().await;
}

#[tokio::test]
async fn a_part_whose_keeper_does_not_come_back_is_held_for_a_day() {
    let mut cluster = cluster(2).await;
    let part = parts(31).remove(0);
    let id = begin(&cluster.nodes[1].client(), "tmp/k").await;
    put_all(&cluster, &id, std::slice::from_ref(&part), &[0]).await;
    let gone = cluster.nodes.pop().unwrap().halt().await;
    cluster.sees(1).await;
    let holder = &cluster.nodes[0];
    holder.tidies_uploads_after(23 * HOUR).await;
    assert_eq!(uploads(holder).await["bytes"], part.len());
    holder.tidies_uploads_after(25 * HOUR).await;
    assert!(holds_nothing(holder).await);
    drop(gone);
    cluster.stop().await;
}

#[tokio::test]
async fn a_node_that_drains_waits_for_the_uploads_that_it_keeps_and_begins_none() {
    let mut cluster = cluster(3).await;
    let parts = parts(32);
    let id = begin(&cluster.nodes[2].client(), "tmp/k").await;
    let listed = put_all(&cluster, &id, &parts, &[2, 0, 1]).await;
    let leaving = &cluster.nodes[2];
    drains(leaving).await;
    let begun = leaving.client().post("/b/tmp/other?uploads=", "").send().await;
    assert_eq!(begun.status, StatusCode::OK, "{}", begun.text());
    assert_eq!(begun.header("x-cache-reason"), Some("unsettled"));
    let completed = complete(&cluster.nodes[0].client(), "tmp/k", &id, &listed).await;
    assert_eq!(completed.status, StatusCode::OK, "{}", completed.text());
    is_drained(leaving).await;
    let told = uploads(leaving).await;
    assert_eq!((&told["open"], &told["bytes"]), (&0.into(), &0.into()));
    assert_eq!(told["ended"]["completed"], 1);
    assert_eq!(leaving.status().await["write_back"]["objects"], 0);
    cluster.nodes.pop().unwrap().stop().await;
    cluster.sees(2).await;
    settled(&cluster).await;
    for node in &cluster.nodes {
        let read = reads(&node.client(), "tmp/k", &Bytes::from(parts.concat())).await;
        assert_eq!(read.header("etag"), Some(etag(&parts).as_str()));
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_node_that_drains_keeps_parts_for_others_until_their_upload_is_over() {
    let cluster = cluster(3).await;
    let part = parts(33).remove(0);
    let id = begin(&cluster.nodes[0].client(), "tmp/k").await;
    put_all(&cluster, &id, std::slice::from_ref(&part), &[2]).await;
    drains(&cluster.nodes[2]).await;
    assert_eq!(uploads(&cluster.nodes[2]).await["bytes"], part.len());
    let target = format!("/b/tmp/k?uploadId={id}");
    let aborted = cluster.nodes[1].client().delete(&target).send().await;
    assert_eq!(aborted.status, StatusCode::NO_CONTENT);
    is_drained(&cluster.nodes[2]).await;
    assert!(holds_nothing(&cluster.nodes[2]).await);
    assert_eq!(uploads(&cluster.nodes[0]).await["ended"]["aborted"], 1);
    cluster.stop().await;
}
