//! Stories of failing nodes and wires, which cost clients nothing but time.

use futures_util::future::join_all;
use http::{HeaderValue, header};

use super::{Cluster, Wire};
use crate::node::BLOCK;

#[tokio::test]
async fn a_dead_home_costs_a_hop_and_no_read() {
    let cluster = Cluster::start(3).await;
    let bytes = cluster.put("k", 24);
    cluster.ways[1].becomes(Wire::Cut);
    cluster.ways[2].becomes(Wire::Cut);
    cluster.read(0, "k", &bytes).await;
    assert_eq!(cluster.lake.body_bytes_sent(), bytes.len() as u64);
    cluster.stop().await;
}

#[tokio::test]
async fn a_home_that_dies_in_the_middle_of_a_block_costs_no_byte_twice() {
    let cluster = Cluster::start(2).await;
    let bytes = cluster.put("k", 16);
    cluster.read(1, "k", &bytes).await;
    cluster.settle().await;
    for way in &cluster.ways {
        // Behind the first record of TLS, whose bytes are proven, and before the last.
        way.breaks_after(BLOCK * 3 / 4);
    }
    cluster.lake.forget_requests();
    cluster.read(0, "k", &bytes).await;
    let asked = cluster.lake.requests();
    let ranges = asked
        .iter()
        .filter_map(|request| request.headers.get(header::RANGE));
    let starts: Vec<u64> = ranges.map(first_byte).collect();
    assert!(
        !starts.is_empty(),
        "the other node was home of some of sixteen blocks"
    );
    assert!(starts.iter().all(|start| start % BLOCK > 0), "{starts:?}");
    cluster.stop().await;
}

fn first_byte(range: &HeaderValue) -> u64 {
    let range = range.to_str().unwrap().strip_prefix("bytes=").unwrap();
    range.split_once('-').unwrap().0.parse().unwrap()
}

#[tokio::test]
async fn a_home_that_stands_still_is_passed_by() {
    for wire in [Wire::Frozen, Wire::Stuck] {
        let cluster = Cluster::start(3).await;
        let bytes = cluster.put("k", 12);
        cluster.ways[1].becomes(wire);
        cluster.read(0, "k", &bytes).await;
        let again = cluster.put("other", 12);
        cluster.read(0, "other", &again).await;
        cluster.stop().await;
    }
}

#[tokio::test]
async fn nodes_that_cannot_reach_each_other_still_serve() {
    let cluster = Cluster::start(4).await;
    let bytes = cluster.put("k", 16);
    cluster.ways.iter().for_each(|way| way.becomes(Wire::Cut));
    join_all((0..4).map(|node| cluster.read(node, "k", &bytes))).await;
    cluster.ways.iter().for_each(|way| way.becomes(Wire::Whole));
    cluster.sees(4).await;
    let other = cluster.put("other", 16);
    join_all((0..4).map(|node| cluster.read(node, "other", &other))).await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_hundred_readers_do_not_notice_that_a_node_dies() {
    let cluster = Cluster::start(4).await;
    let bytes = cluster.put("k", 32);
    let readers = (0..100).map(|reader| cluster.read(reader % 3, "k", &bytes));
    let dies = async {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        cluster.ways[3].becomes(Wire::Cut);
    };
    tokio::join!(join_all(readers), dies);
    let paid = cluster.lake.body_bytes_sent() as f64 / bytes.len() as f64;
    assert!(paid <= 1.1, "{paid}");
    cluster.stop().await;
}

#[tokio::test]
async fn metrics_tell_what_nodes_ask_of_each_other_and_what_a_dead_one_costs() {
    let cluster = Cluster::start(2).await;
    let bytes = cluster.put("k", 16);
    cluster.read(0, "k", &bytes).await;
    let brought = cluster.metric(0, r#"shoal_hops_total{result="brought"}"#).await;
    let served = cluster
        .metric(1, r#"shoal_peer_answers_total{result="served"}"#)
        .await;
    let received = cluster.metric(0, r#"shoal_peer_bytes_total{peer="n1"}"#).await;
    assert!(brought > 0 && served >= brought);
    assert!(received >= brought * BLOCK);
    let failures = r#"shoal_peer_failures_total{peer="n1"}"#;
    let before = cluster.metric(0, failures).await;
    cluster.ways[1].becomes(Wire::Cut);
    let other = cluster.put("other", 16);
    cluster.read(0, "other", &other).await;
    let lost = cluster
        .metric(0, r#"shoal_hops_total{result="unreachable"}"#)
        .await;
    assert!(lost > 0);
    assert!(cluster.metric(0, failures).await >= before + lost);
    cluster.stop().await;
}
