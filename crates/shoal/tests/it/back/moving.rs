//! Names that have another home now, because a node has come: what is flushed meanwhile, and by whom.

use std::time::Duration;

use futures_util::future::join_all;
use http::StatusCode;

use super::cluster::{cluster, settled};
use super::{back, bytes, flush, reads, until, write_back};
use crate::cluster::{Cluster, Wire};
use crate::lake::{Fault, Gate, Request};

/// Enough for each of three nodes to be home to some.
const KEYS: u64 = 24;

/// As many as are flushed at a time by one order.
const FLIGHTS: usize = 8;

fn key(number: u64) -> String {
    format!("tmp/{number}")
}

fn is_put(request: &Request) -> bool {
    request.is_put() && request.key.starts_with(b"tmp/")
}

async fn written_back(cluster: &Cluster, keys: u64) {
    for number in 0..keys {
        write_back(&cluster.nodes[0].client(), &key(number), &bytes(number)).await;
    }
}

#[tokio::test]
async fn a_node_that_has_not_heard_from_all_nodes_flushes_nothing() {
    let interval = Duration::from_secs(5);
    let prompt = |_, config: &mut shoal_node::config::Config| {
        back(config);
        config.write.age = interval;
    };
    let mut cluster = Cluster::start_with(2, prompt).await;
    settled(&cluster).await;
    written_back(&cluster, KEYS).await;
    // It may know that something was overwritten or removed, and nobody can ask it.
    cluster.ways[1].becomes(Wire::Stuck);
    cluster.add(prompt).await;
    cluster.sees(3).await;
    let tried = async |node| {
        let outcome = |outcome| format!("shoal_written_back_total{{outcome=\"{outcome}\"}}");
        cluster.metric(node, &outcome("flushed")).await + cluster.metric(node, &outcome("failed")).await
    };
    let before = [tried(0).await, tried(2).await];
    tokio::time::sleep(interval + Duration::from_secs(1)).await;
    assert_eq!([tried(0).await, tried(2).await], before);
    cluster.ways[1].becomes(Wire::Whole);
    until("everything is at the lake", async || {
        (0..KEYS).all(|number| cluster.lake.object("b", key(number)).is_some())
    })
    .await;
    for number in 0..KEYS {
        reads(&cluster.nodes[2].client(), &key(number), &bytes(number)).await;
    }
    cluster.stop().await;
}

#[tokio::test]
async fn an_order_to_flush_outlasts_a_change_of_members() {
    let mut cluster = cluster(2).await;
    written_back(&cluster, KEYS).await;
    cluster.ways[1].becomes(Wire::Stuck);
    cluster.add(|_, config| back(config)).await;
    cluster.sees(3).await;
    assert_eq!(
        cluster.nodes[0].order("/flush").await.status,
        StatusCode::ACCEPTED
    );
    tokio::time::sleep(Duration::from_secs(5)).await;
    cluster.ways[1].becomes(Wire::Whole);
    until("the order is carried out", async || {
        let progress = cluster.nodes[0].status().await["write_back"]["flush"].clone();
        assert!(progress["error"].is_null(), "{progress}");
        progress["flushed"] == KEYS
    })
    .await;
    cluster.stop().await;
}

#[tokio::test]
async fn an_object_whose_home_changed_before_its_flush_is_left_to_the_new_home() {
    let cluster = cluster(2).await;
    written_back(&cluster, KEYS).await;
    // Both have the records of all: with two nodes, who is not the home is the next one.
    let mut flushed = Vec::new();
    for node in &cluster.nodes {
        for number in 0..KEYS {
            node.takes_as_due(&key(number)).await;
        }
        flushed.push(cluster.lake.count(is_put));
    }
    assert!((1..KEYS as usize).contains(&flushed[0]), "{flushed:?}");
    assert_eq!(flushed[1], KEYS as usize, "each by its home, and only once");
    cluster.stop().await;
}

#[tokio::test]
async fn a_flush_that_began_at_the_former_home_never_comes_after_that_of_a_later_write() {
    let mut cluster = cluster(2).await;
    written_back(&cluster, FLIGHTS as u64).await;
    let gate = Gate::new();
    let held = Fault::new().body_held_by(&gate).when(is_put).times(FLIGHTS);
    cluster.lake.misbehave(held);
    cluster.nodes[0].order("/flush").await;
    gate.arrived(FLIGHTS).await;
    cluster.add(|_, config| back(config)).await;
    cluster.sees(3).await;
    let client = cluster.nodes[2].client();
    let overwrites = (0..FLIGHTS as u64).map(|number| {
        let put = client.put(&format!("/b/{}", key(number)), bytes(100 + number));
        tokio::spawn(put.send())
    });
    let overwrites: Vec<_> = overwrites.collect();
    // The lake has all bytes of the first writes, and takes its time.
    tokio::time::sleep(Duration::from_secs(1)).await;
    cluster.nodes[2].order("/flush").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    gate.open();
    for overwrite in join_all(overwrites).await {
        assert_eq!(overwrite.unwrap().status, StatusCode::OK);
    }
    settled(&cluster).await;
    let report = flush(&cluster.nodes[0], "").await;
    assert_eq!(report["flush"]["failed"], 0, "{report}");
    for number in 0..FLIGHTS as u64 {
        let at_the_lake = cluster.lake.object("b", key(number)).unwrap();
        assert!(
            at_the_lake.content.all() == bytes(100 + number),
            "the last write of {number}"
        );
        for node in &cluster.nodes {
            reads(&node.client(), &key(number), &bytes(100 + number)).await;
        }
    }
    cluster.stop().await;
}
