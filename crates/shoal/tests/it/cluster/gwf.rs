//! Nodes with a directory whose room is short: which blocks stay, move and leave.

use std::time::Duration;

use serde_json::{Value, json};
use shoal_node::config::{Config, CooperationMode};

use super::{Cluster, Wire, free_address};
use crate::back::{assert_back, back};
use crate::lake::Content;
use crate::node::BLOCK;
use crate::waiting::value;

/// Room for some 80 blocks. A twentieth of it is kept free ahead of need: more than a story reads at a time,
/// so that no block leaves before the directory was asked.
const CAPACITY: u64 = 6 << 20;

/// Objects that a story reads at most to fill a node.
const OBJECTS_MAX: u32 = 200;

/// Room on all nodes but the first for some 80 blocks. The first has twice as much: it takes what the
/// others push to it.
fn with_a_larger_node(node: usize, config: &mut Config) {
    with_little_room(node, config);
    if node == 0 {
        config.store.capacity_bytes *= 2;
    }
}

fn with_little_room(_: usize, config: &mut Config) {
    config.cooperation.mode = CooperationMode::Directory;
    config.store.capacity_bytes = CAPACITY;
}

impl Cluster {
    /// Reads new objects of four blocks through a node, one after the other, until `is_enough`.
    async fn fill(&self, node: usize, prefix: &str, mut is_enough: impl AsyncFnMut(&Self) -> bool) {
        for number in 0..OBJECTS_MAX {
            let key = format!("{prefix}-{number}");
            let bytes = self.put(&key, 4);
            self.read(node, &key, &bytes).await;
            self.nodes[node].settle().await;
            tokio::time::sleep(Duration::from_millis(30)).await;
            if is_enough(self).await {
                return;
            }
        }
        panic!("{OBJECTS_MAX} objects of four blocks are not enough");
    }

    pub(super) async fn left(&self, node: usize, reason: &str) -> u64 {
        let name = format!("shoal_evictions_total{{reason=\"{reason}\"}}");
        self.metric_or_zero(node, &name).await
    }

    async fn pushes(&self, node: usize, outcome: &str) -> u64 {
        let name = format!("shoal_gwf_pushes_total{{outcome=\"{outcome}\"}}");
        self.metric_or_zero(node, &name).await
    }

    /// A metric of a node; zero while it has not been counted.
    pub(super) async fn metric_or_zero(&self, node: usize, name: &str) -> u64 {
        let metrics = self.nodes[node].admin("/metrics").await;
        let text = metrics.text().to_owned();
        let value = text.lines().find_map(|line| line.strip_prefix(name));
        value.map_or(0, |value| value.trim().parse().unwrap())
    }

    pub(super) async fn explained(&self, node: usize, key: &str) -> Value {
        let page = self.nodes[node]
            .admin(&format!("/explain?object=s3://b/{key}"))
            .await;
        serde_json::from_slice(&page.body).unwrap()
    }

    /// Waits until each node knows the others' blocks.
    async fn exchanges(&self) {
        tokio::time::sleep(Duration::from_millis(1_300)).await;
    }
}

#[tokio::test]
async fn a_copy_leaves_before_last_copies_and_leaves_its_weight_to_the_other() {
    let cluster = Cluster::start_with(2, with_a_larger_node).await;
    let shared = cluster.put("shared", 4);
    for node in [0, 1] {
        cluster.read(node, "shared", &shared).await;
        cluster.settle_reports().await;
    }
    let there = cluster.explained(1, "shared").await;
    assert_eq!(there["blocks"][0]["worth"]["weight"], 0, "it is n0's: {there}");
    assert_eq!(there["entries"][0]["global_weight"], 1);
    // A use of the copy is n1's own.
    cluster.read(1, "shared", &shared).await;
    cluster
        .fill(1, "filler", async |cluster| cluster.left(1, "copied").await >= 4)
        .await;
    cluster.settle_reports().await;
    let here = cluster.explained(0, "shared").await;
    let entry = &here["entries"][0];
    assert_eq!(entry["holders"], json!(["n0"]), "{here}");
    assert_eq!(entry["global_weight"], 2, "one use through n0, and one on n1");
    let there = cluster.explained(1, "shared").await;
    assert_eq!(there["blocks"][0]["reason"], "copied");
    assert_eq!(there["blocks"][0]["decision"], "copied");
    let read = cluster.lake.body_bytes_sent();
    cluster.read(0, "shared", &shared).await;
    assert_eq!(cluster.lake.body_bytes_sent(), read);
    cluster.stop().await;
}

#[tokio::test]
async fn a_last_copy_that_other_nodes_have_used_outlives_those_that_none_has() {
    let cluster = Cluster::start_with(3, with_a_larger_node).await;
    let shared = cluster.put("shared", 4);
    for node in 0..3 {
        cluster.read(node, "shared", &shared).await;
        cluster.settle_reports().await;
    }
    // The copies leave the other nodes, and n0 has the last one.
    for node in [1, 2] {
        let prefix = format!("filler-of-n{node}");
        cluster
            .fill(node, &prefix, async |cluster| {
                cluster.left(node, "copied").await >= 4
            })
            .await;
    }
    cluster.settle_reports().await;
    cluster
        .fill(0, "filler", async |cluster| {
            cluster.metric_or_zero(0, "shoal_gwf_kept_total").await >= 4
        })
        .await;
    let here = cluster.explained(0, "shared").await;
    assert_eq!(here["blocks"][0]["here"], "resident", "{here}");
    assert_eq!(here["blocks"][0]["decision"], "kept", "{here}");
    assert_eq!(
        here["entries"][0]["global_weight"], 0,
        "it went into the weight here"
    );
    assert_eq!(
        here["blocks"][0]["worth"]["weight"], 3,
        "one use of each node: {here}"
    );
    let read = cluster.lake.body_bytes_sent();
    cluster.read(0, "shared", &shared).await;
    assert_eq!(cluster.lake.body_bytes_sent(), read);
    cluster.stop().await;
}

#[tokio::test]
async fn last_copies_move_to_a_node_whose_blocks_are_worth_less() {
    let cluster = Cluster::start_with(2, with_little_room).await;
    cluster.exchanges().await;
    // Once n1 has one of these blocks, its own are worth as much, and it refuses others. So it has agreed to
    // take several before the first one can arrive.
    cluster.ways[0].becomes(Wire::Stuck);
    cluster
        .fill(0, "filler", async |cluster| {
            let status = cluster.nodes[1].status().await;
            status["reads"]["flights"].as_u64() >= Some(4)
        })
        .await;
    cluster.ways[0].becomes(Wire::Whole);
    let pushes = async || cluster.nodes[0].status().await["directory"]["gwf"]["pushes_under_way"].clone();
    value("no push is under way", pushes, |pushes| *pushes == 0).await;
    cluster.settle_reports().await;
    assert_eq!(
        cluster.pushes(0, "taken").await,
        cluster.left(0, "pushed").await,
        "what was taken left"
    );
    let mut moved = 0;
    for number in 0..4 {
        let key = format!("filler-{number}");
        let [here, there] = [0, 1].map(|node| cluster.explained(node, &key));
        let (here, there) = tokio::join!(here, there);
        for index in 0..4 {
            let (block, held) = (&here["blocks"][index], &there["blocks"][index]);
            if block["decision"] != "pushed to n1" {
                continue;
            }
            moved += 1;
            assert_eq!(
                (&block["here"], &block["reason"]),
                (&json!("evicted"), &json!("pushed"))
            );
            assert_eq!(here["entries"][index]["holders"], json!(["n1"]), "{here}");
            assert_eq!(held["here"], "resident", "{there}");
            assert_eq!(
                held["worth"],
                json!({ "weight": 1, "since": 1 }),
                "as much as on n0"
            );
            let read = cluster.lake.body_bytes_sent();
            let range = format!(
                "bytes={}-{}",
                index as u64 * BLOCK,
                (index as u64 + 1) * BLOCK - 1
            );
            let client = cluster.nodes[0].client();
            let reply = client
                .get(&format!("/b/{key}"))
                .header("range", &range)
                .send()
                .await;
            assert_eq!((reply.status.as_u16(), reply.body.len() as u64), (206, BLOCK));
            assert_eq!(cluster.lake.body_bytes_sent(), read, "n1 has it");
        }
    }
    assert!(moved >= 4);
    cluster.stop().await;
}

#[tokio::test]
async fn a_node_whose_readers_wait_takes_no_pushes() {
    let cluster = Cluster::start_with(2, |node, config| {
        with_little_room(node, config);
        // One block that is on its way takes half of the room for such blocks.
        if node == 1 {
            config.limits.fill_bytes = 2 * BLOCK - 1024;
        }
    })
    .await;
    let gate = cluster
        .lake
        .hold(|request| request.is_get() && request.path.contains("slow"));
    let bytes = cluster.put("slow", 1);
    let reading = cluster.read(1, "slow", &bytes);
    let filling = async {
        gate.arrived(1).await;
        cluster.exchanges().await;
        cluster
            .fill(0, "filler", async |cluster| cluster.left(0, "room").await >= 20)
            .await;
        assert_eq!(cluster.pushes(0, "taken").await, 0);
        gate.open();
    };
    tokio::join!(reading, filling);
    cluster.stop().await;
}

/// They have no entries: other nodes look for them at their homes.
#[tokio::test]
async fn a_small_block_leaves_its_home_as_the_last_copy_and_other_nodes_as_a_copy() {
    let cluster = Cluster::start_with(2, with_little_room).await;
    cluster.exchanges().await;
    let keys: Vec<_> = (0..12).map(|number| format!("small-{number}")).collect();
    let mut homes = Vec::new();
    for key in &keys {
        let bytes = cluster.put_bytes(key, BLOCK - 1);
        cluster.read(0, key, &bytes).await;
        cluster.settle().await;
        let explained = cluster.explained(0, key).await;
        let is_home = explained["blocks"][0]["homes"][0] == "n0";
        // A use through the other node counts where the block is found.
        cluster.read(1, key, &bytes).await;
        cluster.settle().await;
        // The policy receives uses in batches.
        cluster.nodes[0].store().blocks_by_use(0).await;
        let after = cluster.explained(0, key).await;
        let [before, after] =
            [explained, after].map(|page| page["blocks"][0]["worth"]["weight"].as_u64().unwrap());
        assert_eq!(after - before, u64::from(is_home), "{key}");
        homes.push(is_home);
    }
    assert!(homes.contains(&true) && homes.contains(&false), "{homes:?}");
    let have_left = async |cluster: &Cluster| {
        for key in &keys {
            if cluster.explained(0, key).await["blocks"][0]["here"] != "evicted" {
                return false;
            }
        }
        true
    };
    cluster.fill(0, "filler", have_left).await;
    for (key, is_home) in keys.iter().zip(homes) {
        let block = &cluster.explained(0, key).await["blocks"][0];
        let expected = if is_home { "dropped" } else { "copied" };
        assert_eq!(block["decision"], expected, "{key}: {block}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn without_an_answer_of_the_directory_room_is_made_by_local_worth() {
    let nowhere = format!("redis://{}", free_address());
    let cluster = Cluster::start_with(2, |node, config| {
        with_little_room(node, config);
        config.directory.url = nowhere.clone();
    })
    .await;
    cluster
        .fill(0, "filler", async |cluster| cluster.left(0, "room").await >= 40)
        .await;
    for reason in ["copied", "pushed"] {
        assert_eq!(cluster.left(0, reason).await, 0, "{reason}");
    }
    cluster.stop().await;
}

/// As [`with_little_room`]. Objects below `tmp/` are written back.
fn that_writes_back(node: usize, config: &mut Config) {
    with_little_room(node, config);
    back(config);
}

#[tokio::test]
async fn last_copies_of_a_short_lived_object_leave_and_do_not_move() {
    let cluster = Cluster::start_with(2, that_writes_back).await;
    cluster.exchanges().await;
    let client = cluster.nodes[0].client();
    for number in 0..8 {
        let bytes = Content::synthetic(4 * BLOCK, number).all();
        let put = client.put(&format!("/b/tmp/{number}"), bytes);
        assert_back(&put.header("x-shoal-lifetime", "short").send().await);
    }
    cluster.settle_reports().await;
    let noted = cluster.explained(0, "tmp/7").await;
    assert_eq!(noted["entries"][0]["extensions"], json!(["short"]), "{noted}");
    cluster
        .fill(0, "filler", async |cluster| {
            cluster.pushes(0, "short-lived").await >= 8
        })
        .await;
    for number in 0..8 {
        let there = cluster.explained(1, &format!("tmp/{number}")).await;
        assert_eq!(there["version"], Value::Null, "n1 has no block of it: {there}");
    }
    cluster.stop().await;
}
