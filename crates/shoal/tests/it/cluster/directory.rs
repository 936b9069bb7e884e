//! Nodes that share a directory of blocks, in this process or in Redis.

use std::time::Duration;

use futures_util::future::join_all;
use shoal_node::config::{Config, CooperationMode};
use shoal_store::RemovalReason;
use tempfile::TempDir;

use super::redis::Redis;
use super::{Cluster, Wire, free_address};
use crate::lake::Request;
use crate::node::{BLOCK, Node};
use crate::waiting::{until, value};

fn by_directory(_: usize, config: &mut Config) {
    config.cooperation.mode = CooperationMode::Directory;
}

/// Waits longer for the directory, because other tests take the processor meanwhile.
fn patiently(node: usize, config: &mut Config) {
    by_directory(node, config);
    config.directory.timeout = Duration::from_secs(1);
}

async fn start(nodes: usize) -> Cluster {
    Cluster::start_with(nodes, patiently).await
}

impl Cluster {
    /// The looks of a node into the directory that were answered.
    async fn looks(&self, node: usize) -> u64 {
        let name = "shoal_directory_requests_total{request=\"look\",outcome=\"answered\"}";
        self.metric(node, name).await
    }

    async fn has_condition(&self, node: usize, condition: &str) -> bool {
        self.nodes[node].admin("/status").await.text().contains(condition)
    }

    /// Waits until the nodes' blocks have been reported to the directory.
    pub(super) async fn settle_reports(&self) {
        self.settle().await;
        let under_way = async |node: &Node| {
            let status = node.status().await;
            status["directory"]["reports_under_way"].as_u64().unwrap_or(0)
        };
        let counts = async || join_all(self.nodes.iter().map(under_way)).await;
        let what = "the directory has all reports";
        value(what, counts, |counts| counts.iter().all(|count| *count == 0)).await;
    }
}

#[tokio::test]
async fn a_block_read_by_one_node_is_served_to_its_neighbours() {
    let cluster = start(3).await;
    let bytes = cluster.put("k", 12);
    cluster.read(0, "k", &bytes).await;
    cluster.settle_reports().await;
    assert_eq!(cluster.sent(0, "peer").await, 0, "no block has a home elsewhere");
    for node in [1, 2] {
        cluster.read(node, "k", &bytes).await;
        assert_eq!(cluster.sent(node, "peer").await, bytes.len() as u64, "n{node}");
        let status = cluster.nodes[node].status().await;
        assert_eq!(status["cooperation"]["mode"], "directory");
    }
    assert_eq!(cluster.lake.body_bytes_sent(), bytes.len() as u64);
    cluster.stop().await;
}

#[tokio::test]
async fn blocks_below_64_kib_have_no_entries_and_are_found_at_their_homes() {
    let cluster = start(2).await;
    let objects = [("long", 2 * BLOCK + 5), ("small", BLOCK - 1), ("tiny", 5)];
    let objects = objects.map(|(key, len)| (key, cluster.put_bytes(key, len)));
    for node in [0, 1] {
        for (key, bytes) in &objects {
            cluster.read(node, key, bytes).await;
        }
        cluster.settle_reports().await;
    }
    let read: usize = objects.iter().map(|(_, bytes)| bytes.len()).sum();
    assert_eq!(cluster.lake.body_bytes_sent(), read as u64);
    let holders = async |key: &str| {
        let explained = cluster.explained(0, key).await;
        let entries = explained["entries"].as_array().unwrap().clone();
        let holders = entries
            .iter()
            .map(|entry| entry["holders"].as_array().unwrap().len());
        holders.collect::<Vec<_>>()
    };
    assert_eq!(holders("long").await, [2, 2, 0]);
    assert_eq!(holders("small").await, [0]);
    let reports = async || {
        let name = "shoal_directory_requests_total{request=\"report\",outcome=\"answered\"}";
        cluster.metric(0, name).await
    };
    let before = reports().await;
    let here = cluster.nodes[0].store().blocks_by_use(0).await;
    let here = here.into_iter().map(|block| (block, RemovalReason::Room));
    cluster.nodes[0].store().removal.part_with(here.collect()).await;
    cluster.settle_reports().await;
    assert_eq!(reports().await, before + 1, "two blocks of one object");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_cold_readers_on_all_nodes_cost_the_lake_one_read() {
    let cluster = start(4).await;
    let bytes = cluster.put("k", 8);
    cluster.crowd(400, 0..4, "k", &bytes).await;
    assert_eq!(cluster.lake.body_bytes_sent(), bytes.len() as u64);
    cluster.stop().await;
}

#[tokio::test]
async fn a_local_hit_asks_nobody() {
    let cluster = start(2).await;
    let bytes = cluster.put("k", 4);
    cluster.read(0, "k", &bytes).await;
    cluster.settle_reports().await;
    let (looks, requests) = (cluster.looks(0).await, cluster.lake.requests().len());
    assert!(
        (1..4).contains(&looks),
        "{looks} looks for four blocks of one response"
    );
    cluster.read(0, "k", &bytes).await;
    assert_eq!(
        (cluster.looks(0).await, cluster.lake.requests().len()),
        (looks, requests)
    );
    cluster.stop().await;
}

#[tokio::test]
async fn what_is_written_through_one_node_is_read_from_it() {
    let cluster = Cluster::start_with(2, |node, config| {
        patiently(node, config);
        config.write.default = shoal_node::config::WriteMode::Through;
    })
    .await;
    let bytes = bytes::Bytes::from(vec![7; 3 * BLOCK as usize]);
    let client = cluster.nodes[0].client();
    let put = client.put("/b/new", bytes.clone()).send().await;
    assert_eq!(put.status, 200);
    cluster.settle_reports().await;
    cluster.read(1, "new", &bytes).await;
    assert_eq!(cluster.sent(1, "peer").await, bytes.len() as u64);
    assert_eq!(cluster.lake.body_bytes_sent(), 0);
    cluster.stop().await;
}

#[tokio::test]
async fn a_node_that_is_cut_off_while_it_fetches_costs_others_a_read_of_the_lake() {
    let cluster = start(2).await;
    let bytes = cluster.put("k", 1);
    let gate = cluster.lake.hold(Request::is_get);
    let (first, second) = (cluster.read(0, "k", &bytes), async {
        // The first node has the claim by now, and its request is held.
        gate.arrived(1).await;
        let read = cluster.read(1, "k", &bytes);
        let cut = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            cluster.ways[0].becomes(Wire::Cut);
            gate.open();
        };
        tokio::join!(read, cut)
    });
    tokio::join!(first, second);
    assert!(cluster.lake.body_bytes_sent() <= 2 * bytes.len() as u64);
    cluster.stop().await;
}

#[tokio::test]
async fn a_claim_lasts_as_long_as_a_slow_lake_needs() {
    let cluster = start(2).await;
    let bytes = cluster.put("k", 1);
    let gate = cluster.lake.hold(Request::is_get);
    let (first, second) = (cluster.read(0, "k", &bytes), async {
        gate.arrived(1).await;
        // A claim that was not renewed would be over.
        tokio::time::sleep(Duration::from_secs(11)).await;
        let read = cluster.read(1, "k", &bytes);
        let open = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            gate.open();
        };
        tokio::join!(read, open)
    });
    tokio::join!(first, second);
    assert_eq!(cluster.lake.body_bytes_sent(), bytes.len() as u64);
    assert_eq!(cluster.sent(1, "peer").await, bytes.len() as u64);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_the_survivors_of_a_node_one_fetches_what_it_alone_held() {
    let cluster = Cluster::start_with(3, by_directory).await;
    let bytes = cluster.put("k", 4);
    cluster.read(0, "k", &bytes).await;
    cluster.settle_reports().await;
    cluster.ways[0].becomes(Wire::Cut);
    cluster.crowd(200, 1..3, "k", &bytes).await;
    assert_eq!(cluster.lake.body_bytes_sent(), 2 * bytes.len() as u64);
    cluster.stop().await;
}

#[tokio::test]
async fn an_entry_that_is_wrong_is_repaired_by_the_node_that_finds_it() {
    let mut cluster = start(3).await;
    let bytes = cluster.put("k", 4);
    cluster.read(0, "k", &bytes).await;
    cluster.settle_reports().await;
    // The node comes back with an empty disk, and does not know what it has lost.
    let empty = TempDir::new().unwrap();
    let path = empty.path().join("store");
    cluster.restart(0, |config| config.store.path = path).await;
    cluster.sees(3).await;
    cluster.read(1, "k", &bytes).await;
    assert_eq!(cluster.lake.body_bytes_sent(), 2 * bytes.len() as u64);
    cluster.settle_reports().await;
    let refused = "shoal_peer_answers_total{result=\"not-held\"}";
    let wrong = cluster.metric(0, refused).await;
    assert_eq!(wrong, 4, "n1 was sent to n0 for each block");
    cluster.read(2, "k", &bytes).await;
    assert_eq!(cluster.metric(0, refused).await, wrong, "n2 was not");
    assert_eq!(cluster.lake.body_bytes_sent(), 2 * bytes.len() as u64);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_answer_of_the_directory_blocks_are_found_at_their_homes() {
    let nowhere = format!("redis://{}", free_address());
    let cluster = Cluster::start_with(3, |node, config| {
        by_directory(node, config);
        config.directory.url = nowhere.clone();
    })
    .await;
    let bytes = cluster.put("k", 12);
    cluster.crowd(300, 0..3, "k", &bytes).await;
    assert_eq!(cluster.lake.body_bytes_sent(), bytes.len() as u64);
    assert!(cluster.has_condition(0, "directory-silent").await);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_share_what_they_read_by_way_of_redis_and_go_on_without_it() {
    let Some(mut redis) = Redis::start() else {
        eprintln!("skipped: redis-server is not installed");
        return;
    };
    let url = redis.url();
    let cluster = Cluster::start_with(3, |node, config| {
        patiently(node, config);
        config.directory.url = url.clone();
    })
    .await;
    let first = cluster.put("first", 8);
    cluster.crowd(300, 0..3, "first", &first).await;
    assert_eq!(cluster.lake.body_bytes_sent(), first.len() as u64);
    assert!(!cluster.has_condition(0, "directory-silent").await);

    redis.kill();
    cluster.lake.forget_requests();
    let second = cluster.put("second", 9);
    cluster.crowd(300, 0..3, "second", &second).await;
    assert!(cluster.has_condition(0, "directory-silent").await);
    // Nodes find out one by one that there is no directory.
    assert!(cluster.lake.body_bytes_sent() <= 2 * second.len() as u64);

    redis.start_again();
    for node in 0..3 {
        until(&format!("the directory answers n{node}"), async || {
            !cluster.has_condition(node, "directory-silent").await
        })
        .await;
    }
    cluster.lake.forget_requests();
    let third = cluster.put("third", 10);
    cluster.crowd(300, 0..3, "third", &third).await;
    assert_eq!(cluster.lake.body_bytes_sent(), third.len() as u64);
    cluster.stop().await;
}

#[tokio::test]
async fn what_redis_forgets_is_told_again_also_by_a_node_that_comes_back() {
    let Some(redis) = Redis::start() else {
        eprintln!("skipped: redis-server is not installed");
        return;
    };
    let url = redis.url();
    let mut cluster = Cluster::start_with(2, |node, config| {
        patiently(node, config);
        config.directory.url = url.clone();
    })
    .await;
    let objects: Vec<_> = (1..=2)
        .map(|blocks| cluster.put(&format!("k{blocks}"), blocks))
        .collect();
    for (number, bytes) in (1..).zip(&objects) {
        cluster.read(0, &format!("k{number}"), bytes).await;
    }
    cluster.settle_reports().await;
    let read = cluster.lake.body_bytes_sent();
    redis.flush();
    redis.knows_again().await;
    cluster.read(1, "k1", &objects[0]).await;
    assert_eq!(cluster.sent(1, "peer").await, objects[0].len() as u64);

    redis.flush();
    cluster.restart(0, |_| ()).await;
    cluster.sees(2).await;
    redis.knows_again().await;
    cluster.read(1, "k2", &objects[1]).await;
    assert_eq!(cluster.lake.body_bytes_sent(), read);
    cluster.stop().await;
}
