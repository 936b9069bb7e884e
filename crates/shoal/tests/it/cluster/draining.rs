//! A node that is to go gives away what it holds.

use http::StatusCode;
use serde_json::Value;

use super::{Cluster, Wire, seen};
use crate::node::{BLOCK, Node};
use crate::waiting::value;

/// Waits until a node has given away what others take, and says what became of it.
async fn drained(node: &Node) -> Value {
    let drain = async || node.status().await["drain"].clone();
    value("the node is drained", drain, |drain| drain["state"] == "drained").await
}

#[tokio::test]
async fn blocks_that_a_node_gave_away_before_it_stopped_cost_the_lake_nothing() {
    let mut cluster = Cluster::start(3).await;
    let bytes = cluster.put("k", 48);
    cluster.read(2, "k", &bytes).await;
    cluster.settle().await;
    let paid = cluster.lake.body_bytes_sent();
    assert_eq!(
        cluster.nodes[2].order("/drain").await.status,
        StatusCode::ACCEPTED
    );
    let drain = drained(&cluster.nodes[2]).await;
    assert_eq!(drain["blocks_given"], 48);
    assert_eq!(drain["bytes_given"], 48 * BLOCK);
    assert_eq!(
        (&drain["blocks_left"], &drain["blocks_kept"]),
        (&0.into(), &0.into())
    );
    cluster.settle().await;
    cluster.nodes.pop().unwrap().stop().await;
    cluster.sees(2).await;
    cluster.read(0, "k", &bytes).await;
    cluster.read(1, "k", &bytes).await;
    assert_eq!(cluster.lake.body_bytes_sent(), paid, "the cache is not lost");
    cluster.stop().await;
}

#[tokio::test]
async fn a_node_that_drains_stays_up_and_is_home_to_nothing() {
    let cluster = Cluster::start(3).await;
    let before = cluster.put("before", 12);
    cluster.read(1, "before", &before).await;
    cluster.settle().await;
    cluster.nodes[1].order("/drain").await;
    drained(&cluster.nodes[1]).await;
    assert_eq!(seen(&cluster.nodes[0]).await, ["n0", "n1", "n2"]);
    let held = cluster.nodes[1].status().await["store"]["blocks"].clone();
    let after = cluster.put("after", 24);
    cluster.read(0, "after", &after).await;
    cluster.settle().await;
    assert_eq!(cluster.nodes[1].status().await["store"]["blocks"], held);
    assert_eq!(
        cluster.read(1, "before", &before).await.header("x-cache"),
        Some("HIT")
    );
    cluster.read(1, "after", &after).await;
    cluster.stop().await;
}

#[tokio::test]
async fn blocks_that_no_node_can_take_are_kept_and_reported() {
    let cluster = Cluster::start(2).await;
    let bytes = cluster.put("k", 3);
    cluster.read(0, "k", &bytes).await;
    cluster.settle().await;
    // The one successor cannot ask for what it is to take over.
    cluster.ways[0].becomes(Wire::Stuck);
    cluster.ways[1].becomes(Wire::Cut);
    cluster.nodes[0].order("/drain").await;
    let drain = drained(&cluster.nodes[0]).await;
    assert_eq!(
        (&drain["blocks_given"], &drain["blocks_kept"]),
        (&0.into(), &3.into())
    );
    cluster.read(0, "k", &bytes).await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_node_that_serves_again_asks_for_what_it_missed_before_it_asks_the_lake() {
    let cluster = Cluster::start(3).await;
    cluster.nodes[1].order("/drain").await;
    drained(&cluster.nodes[1]).await;
    let bytes = cluster.put("k", 32);
    cluster.read(0, "k", &bytes).await;
    cluster.settle().await;
    let paid = cluster.lake.body_bytes_sent();
    let reply = cluster.nodes[1].order("/undrain").await;
    assert_eq!(reply.status, StatusCode::ACCEPTED);
    assert_eq!(cluster.nodes[1].status().await["drain"]["state"], "serving");
    cluster.wait_for_state("n1", "serving").await;
    cluster.read(1, "k", &bytes).await;
    cluster.read(2, "k", &bytes).await;
    assert_eq!(cluster.lake.body_bytes_sent(), paid);
    cluster.stop().await;
}
