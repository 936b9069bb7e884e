//! Stories of nodes that cooperate: they share blocks, and each asks in the name of its client.

use std::time::Duration;

use http::StatusCode;
use shoal_node::config::SplitRule;

use super::Cluster;
use crate::back::digests::{block_files, flip};
use crate::lake::{ANONYMOUS, Access, Content, Fault, Object, Request};
use crate::node::{BLOCK, OTHER_KEY};
use crate::waiting::value;

#[tokio::test]
async fn a_block_read_by_one_node_is_served_to_its_neighbours() {
    let cluster = Cluster::start(3).await;
    let bytes = cluster.put("k", 12);
    cluster.read(0, "k", &bytes).await;
    cluster.settle().await;
    assert_eq!(cluster.lake.body_bytes_sent(), bytes.len() as u64);
    for node in [1, 2] {
        cluster.read(node, "k", &bytes).await;
        assert!(cluster.sent(node, "peer").await > 0);
        assert_eq!(cluster.sent(node, "lake").await, 0, "n{node}");
    }
    assert_eq!(
        cluster.lake.body_bytes_sent(),
        bytes.len() as u64,
        "nothing crossed twice"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn a_block_of_a_neighbour_that_the_lakes_digest_contradicts_is_not_kept_and_the_lake_is_read() {
    let cluster = Cluster::start(2).await;
    let target = |number: u64| format!("k{number}");
    let small = |number| Content::synthetic(10_000, number).all();
    for number in 0..20 {
        cluster.lake.put("b", target(number), Object::new(small(number)));
        cluster.read(0, &target(number), &small(number)).await;
    }
    cluster.settle().await;
    // The blocks are mapped, so the file is what the node has in memory, and sends.
    let files = block_files(cluster.nodes[0].store_path());
    for file in &files {
        flip(file, 9_999);
    }
    let mut refused = 0;
    for number in 0..20 {
        let read = || {
            cluster.nodes[1]
                .client()
                .get(&format!("/b/{}", target(number)))
                .try_send()
        };
        // A broken-off answer is no answer.
        match read().await {
            Ok(reply) => assert!(reply.body == small(number), "{number}"),
            Err(_) => refused += 1,
        }
        assert!(read().await.unwrap().body == small(number), "{number}");
    }
    assert!(cluster.lake.count(Request::is_get) > 20, "{refused}");
    cluster.stop().await;
}

#[tokio::test]
async fn a_block_from_a_neighbour_is_kept() {
    let cluster = Cluster::start(2).await;
    let bytes = cluster.put("k", 6);
    cluster.read(0, "k", &bytes).await;
    cluster.read(1, "k", &bytes).await;
    cluster.settle().await;
    let from_peers = cluster.sent(1, "peer").await;
    let reply = cluster.read(1, "k", &bytes).await;
    assert_eq!(reply.header("x-cache"), Some("HIT"));
    assert_eq!(cluster.sent(1, "peer").await, from_peers);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_cold_readers_on_all_nodes_cost_the_lake_one_read() {
    let cluster = Cluster::start(4).await;
    let bytes = cluster.put("k", 8);
    cluster.crowd(400, 0..4, "k", &bytes).await;
    assert_eq!(cluster.lake.body_bytes_sent(), bytes.len() as u64);
    cluster.stop().await;
}

#[tokio::test]
async fn ranges_fetch_the_blocks_they_touch_wherever_these_are_at_home() {
    let cluster = Cluster::start(3).await;
    let bytes = cluster.put("k", 9);
    let range = format!("bytes={}-{}", BLOCK + 10, 3 * BLOCK + 9);
    for node in 0..3 {
        let reply = cluster.nodes[node]
            .client()
            .get("/b/k")
            .range(&range)
            .send()
            .await;
        assert_eq!(reply.status, StatusCode::PARTIAL_CONTENT);
        assert_eq!(reply.body, bytes[BLOCK as usize + 10..3 * BLOCK as usize + 10]);
    }
    cluster.settle().await;
    assert_eq!(cluster.lake.body_bytes_sent(), 3 * BLOCK);
    cluster.stop().await;
}

#[tokio::test]
async fn a_block_comes_whole_though_its_readers_have_what_they_want_of_it() {
    let cluster = Cluster::start(3).await;
    let bytes = cluster.put("k", 3);
    cluster.lake.misbehave(
        Fault::new()
            .paced(BLOCK as usize / 4, Duration::from_millis(50))
            .always(),
    );
    for node in 0..3 {
        let first = cluster.nodes[node].client().get("/b/k").range("bytes=0-9");
        assert_eq!(first.send().await.body, bytes[..10]);
    }
    cluster.settle().await;
    assert_eq!(cluster.lake.body_bytes_sent(), BLOCK);
    cluster.stop().await;
}

#[tokio::test]
async fn each_node_asks_for_permission_in_the_name_of_its_client() {
    let cluster = Cluster::start_with(3, |_, config| {
        config.freshness.default = shoal_node::config::FreshnessMode::Revalidate;
    })
    .await;
    let bytes = cluster.put("k", 6);
    cluster.lake.deny(OTHER_KEY, Access::Read, "b/k");
    cluster.read(0, "k", &bytes).await;
    cluster.settle().await;
    for node in &cluster.nodes {
        node.is_not_readable_by_others("/b/k").await;
    }
    cluster.lake.allow(OTHER_KEY, Access::Read, "b/k");
    assert_eq!(cluster.nodes[1].other().get("/b/k").send().await.body, bytes);
    // Revoked at the lake while every byte lies on the nodes.
    cluster.lake.deny(OTHER_KEY, Access::Read, "b/k");
    for node in &cluster.nodes {
        assert_eq!(
            node.other().get("/b/k").send().await.status,
            StatusCode::FORBIDDEN
        );
    }
    cluster.stop().await;
}

#[tokio::test]
async fn homes_ask_the_lake_in_the_name_of_the_client() {
    let cluster = Cluster::start(3).await;
    let bytes = cluster.put("open", 6);
    cluster.lake.allow(ANONYMOUS, Access::Read, "b/open");
    assert_eq!(
        cluster.nodes[0].stranger().get("/b/open").send().await.body,
        bytes
    );
    let others = cluster.put("others", 6);
    assert_eq!(
        cluster.nodes[0].other().get("/b/others").send().await.body,
        others
    );
    let of = |key: &'static str| move |request: &Request| request.is_get() && request.path.contains(key);
    let who = |request: &Request| request.header("authorization").map(str::to_owned);
    for request in cluster
        .lake
        .requests()
        .iter()
        .filter(|request| of("/open")(request))
    {
        assert_eq!(who(request), None);
    }
    for request in cluster
        .lake
        .requests()
        .iter()
        .filter(|request| of("/others")(request))
    {
        assert!(who(request).unwrap().contains(OTHER_KEY), "{request:?}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn an_object_that_changes_is_read_whole_in_one_version() {
    let cluster = Cluster::start_with(3, |_, config| {
        config.freshness.default = shoal_node::config::FreshnessMode::Revalidate;
    })
    .await;
    let before = cluster.put("k", 6);
    for node in 0..3 {
        cluster.read(node, "k", &before).await;
    }
    let after = cluster.put("k", 7);
    for node in 0..3 {
        cluster.read(node, "k", &after).await;
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_node_that_comes_asks_the_former_home_before_the_lake() {
    let mut cluster = Cluster::start(2).await;
    let bytes = cluster.put("k", 32);
    cluster.read(0, "k", &bytes).await;
    cluster.settle().await;
    let paid = cluster.lake.body_bytes_sent();
    cluster.add(|_, _| ()).await;
    cluster.sees(3).await;
    cluster.read(2, "k", &bytes).await;
    cluster.read(0, "k", &bytes).await;
    assert_eq!(cluster.lake.body_bytes_sent(), paid, "the cache is not lost");
    cluster.stop().await;
}

#[tokio::test]
async fn a_layer_without_a_share_keeps_nothing() {
    let cluster = Cluster::start_with(2, |_, config| {
        config.cooperation.split = SplitRule::Fixed(vec![0, 0, 100]);
    })
    .await;
    let bytes = cluster.put("k", 12);
    for _ in 0..2 {
        cluster.read(0, "k", &bytes).await;
        cluster.settle().await;
    }
    let (local, peer) = (cluster.sent(0, "local").await, cluster.sent(0, "peer").await);
    assert_eq!(
        local + peer,
        2 * bytes.len() as u64 - cluster.sent(0, "lake").await
    );
    let at_home = cluster.blocks(0).await;
    assert!(at_home["L3"] > 0 && at_home["L1"] == 0, "{at_home:?}");
    assert_eq!(
        peer,
        2 * (12 - at_home["L3"]) * BLOCK,
        "asked for again each time"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn every_block_is_in_one_layer_and_moves_when_homes_do() {
    let mut cluster = Cluster::start(1).await;
    let bytes = cluster.put("k", 32);
    cluster.read(0, "k", &bytes).await;
    cluster.settle().await;
    assert_eq!(
        cluster.blocks(0).await["L3"],
        32,
        "who is alone is home to everything"
    );
    cluster.add(|_, _| ()).await;
    cluster.sees(2).await;
    let layers = async || cluster.blocks(0).await;
    let layers = value("blocks have moved to L1", layers, |layers| layers["L1"] > 0).await;
    assert!(layers["L3"] > 0, "{layers:?}");
    assert_eq!(layers.values().sum::<u64>(), 32);
    cluster.stop().await;
}
