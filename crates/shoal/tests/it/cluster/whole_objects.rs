//! Nodes that hold parts of the same objects and keep objects whole together (C2P).

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use serde_json::Value;
use shoal_cache::Peer;
use shoal_net::{Channel, node_id};
use shoal_node::config::{Config, CooperationMode, SplitRule};
use shoal_policy::eviction::PolicyName;
use shoal_policy::{BlockId, NodeId, VersionId};
use shoal_store::RemovalReason;

use super::{Cluster, SECRET, Wire};
use crate::node::BLOCK;
use crate::waiting::{until, value};

/// Room for some 50 blocks, all of it for blocks that are at home on the node.
fn keeps_objects_whole(_: usize, config: &mut Config) {
    config.store.capacity_bytes = 4 << 20;
    config.store.policy = Some(PolicyName::C2pLru);
    config.cooperation.layers = ["rack", "cluster"].map(Into::into).into();
    config.cooperation.split = SplitRule::Fixed(vec![0, 100]);
}

impl Cluster {
    async fn whole_objects(nodes: usize) -> Self {
        Self::start_with(nodes, keeps_objects_whole).await
    }

    /// Reads an object of this many blocks through the first node.
    async fn reads_whole(&self, key: &str, blocks: u64) -> Bytes {
        let bytes = self.put(key, blocks);
        self.read(0, key, &bytes).await;
        self.settle().await;
        bytes
    }

    /// Reads an object of this many blocks; every node is the home of several.
    async fn reads_spread(&self, blocks: u64) -> (String, Bytes) {
        for number in 0.. {
            let key = format!("spread-{number}");
            let bytes = self.reads_whole(&key, blocks).await;
            let resident = (0..self.nodes.len()).map(|node| self.resident(node, &key));
            if join_all(resident).await.iter().all(|blocks| blocks.len() > 1) {
                return (key, bytes);
            }
        }
        unreachable!("some object is spread over all nodes");
    }

    async fn reads_block(&self, node: usize, key: &str, index: u32) {
        let first = u64::from(index) * BLOCK;
        let range = format!("bytes={first}-{}", first + BLOCK - 1);
        let client = self.nodes[node].client();
        let reply = client.get(&format!("/b/{key}")).range(&range).send().await;
        assert_eq!(reply.body.len() as u64, BLOCK);
    }

    /// The blocks of an object that are on a node's disk.
    async fn resident(&self, node: usize, key: &str) -> Vec<BlockId> {
        let page = self.explained(node, key).await;
        // A node without a block of it knows no version.
        let Some(version) = page["version"]["id"].as_str() else {
            return Vec::new();
        };
        let version = VersionId(u128::from_str_radix(version, 16).unwrap().to_be_bytes());
        let blocks = page["blocks"].as_array().unwrap().iter();
        let resident = blocks.filter(|block| block["here"] == "resident");
        let index = |block: &Value| block["index"].as_u64().unwrap() as u32;
        resident
            .map(|block| BlockId {
                version,
                index: index(block),
            })
            .collect()
    }

    /// How complete an object of few blocks is, as a node sees it.
    async fn completeness(&self, node: usize, key: &str) -> Value {
        let page = self.explained(node, key).await;
        page["completeness"][0].clone()
    }

    /// Waits until what a node knows of an object's completeness is as it should be.
    async fn knows(&self, node: usize, key: &str, is_right: impl Fn(&Value) -> bool) {
        let completeness = async || self.completeness(node, key).await;
        value(&format!("n{node} is right about {key}"), completeness, is_right).await;
    }

    /// Has a node give up one block of an object, as if it needed the room.
    async fn gives_up_one(&self, node: usize, key: &str) -> BlockId {
        self.gives_up(node, key, |_| true).await
    }

    /// Has a node give up one of some blocks of an object.
    async fn gives_up(&self, node: usize, key: &str, is_one: impl Fn(&BlockId) -> bool) -> BlockId {
        let give_up = async || {
            for block in self.resident(node, key).await.into_iter().filter(&is_one) {
                let leaving = vec![(block, RemovalReason::Room)];
                // A reader that is done may hold a block for a while.
                let store = self.nodes[node].store();
                if store.removal.part_with(leaving).await.is_empty() {
                    return Some(block);
                }
            }
            None
        };
        let given_up = value(
            &format!("n{node} gives up a block of {key}"),
            give_up,
            Option::is_some,
        )
        .await;
        given_up.expect("the wait is over when there is one")
    }

    /// Another end that knows the secret and can say anything to a node.
    fn liar_to(&self, node: usize) -> Arc<Peer> {
        let channel = Arc::new(Channel::new("liar", [SECRET], 10));
        let name = format!("n{node}");
        Arc::new(Peer::new(&name, self.ways[node].address(), &channel))
    }
}

/// How complete an object is, in whole percents; more than all if that is not known.
fn percent(known: &Value) -> u64 {
    let percent = known["percent"].to_string();
    let whole = percent.split('.').next().and_then(|whole| whole.parse().ok());
    whole.unwrap_or(101)
}

fn held(known: &Value, node: &str) -> u64 {
    known["held"][node].as_u64().unwrap_or(0)
}

#[tokio::test]
async fn an_object_whose_one_block_left_is_given_up_elsewhere_before_older_ones() {
    // Only n2 is short of room.
    let cluster = Cluster::start_with(3, |node, config| {
        keeps_objects_whole(node, config);
        config.store.capacity_bytes = if node == 2 { 4 << 20 } else { 64 << 20 };
    })
    .await;
    for number in 0..8 {
        cluster.reads_whole(&format!("older-{number}"), 4).await;
    }
    let (key, _) = cluster.reads_spread(12).await;
    let key = key.as_str();
    cluster.knows(2, key, |known| known["read"] == 12).await;
    let parts = cluster.resident(2, key).await.len() as u64;
    assert!(parts > 0, "n2 is home to some of it");
    cluster.gives_up_one(1, key).await;
    cluster.knows(2, key, |known| percent(known) < 100).await;
    for number in 0..200 {
        if cluster.left(2, "room").await > 0 {
            break;
        }
        cluster.reads_whole(&format!("newer-{number}"), 6).await;
    }
    // All that left n2 until now, but for what came after the last of these.
    let left = cluster.left(2, "room").await;
    let parted = parts - cluster.resident(2, key).await.len() as u64;
    assert!(
        left > 0 && parted == parts.min(left),
        "{parted} of {left}, of {parts}"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn nodes_tell_each_other_what_they_hold_and_how_complete_that_is() {
    let cluster = Cluster::whole_objects(3).await;
    let (key, bytes) = cluster.reads_spread(12).await;
    let key = key.as_str();
    for node in 0..3 {
        cluster
            .knows(node, key, |known| {
                let all = ["n0", "n1", "n2"].map(|node| held(known, node));
                percent(known) == 100 && known["read"] == 12 && all.iter().sum::<u64>() == 12
            })
            .await;
    }
    cluster.gives_up_one(1, key).await;
    cluster
        .knows(0, key, |known| {
            percent(known) < 100 && known["missing"][0].is_u64()
        })
        .await;
    // The next reader brings it back.
    cluster.read(2, key, &bytes).await;
    cluster
        .knows(0, key, |known| {
            percent(known) == 100 && known["missing"][0].is_null()
        })
        .await;
    let told = |node| cluster.metric(node, r#"shoal_messages_total{kind="cache-event",outcome="sent"}"#);
    assert!(told(1).await > 0);
    let overflowed = r#"shoal_messages_total{kind="cache-event",outcome="overflowed"}"#;
    assert_eq!(cluster.metric(1, overflowed).await, 0);
    cluster.stop().await;
}

#[tokio::test]
async fn what_a_dead_node_held_counts_for_nothing() {
    let mut cluster = Cluster::whole_objects(3).await;
    let (key, _) = cluster.reads_spread(12).await;
    let key = key.as_str();
    cluster
        .knows(0, key, |known| held(known, "n1") > 0 && percent(known) == 100)
        .await;
    cluster.ways[1].becomes(Wire::Cut);
    let dead = cluster.nodes.remove(1);
    cluster
        .knows(0, key, |known| held(known, "n1") == 0 && percent(known) < 100)
        .await;
    dead.stop().await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_node_that_restarts_tells_what_it_holds_before_a_reader_asks() {
    let mut cluster = Cluster::whole_objects(2).await;
    let (key, bytes) = cluster.reads_spread(12).await;
    let key = key.as_str();
    let is_known = |known: &Value| held(known, "n1") > 0 && held(known, "n0") + held(known, "n1") == 12;
    cluster.knows(0, key, is_known).await;
    let stopped = cluster.nodes.remove(1).halt().await;
    cluster.knows(0, key, |known| held(known, "n1") == 0).await;
    // It finds its blocks before it finds n0.
    cluster.ways[0].becomes(Wire::Cut);
    cluster.nodes.insert(1, stopped.start().await);
    cluster.knows(1, key, |known| held(known, "n1") > 0).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    cluster.ways[0].becomes(Wire::Whole);
    cluster
        .knows(0, key, |known| is_known(known) && percent(known) == 100)
        .await;
    // Its later events say so, too.
    let before = held(&cluster.completeness(0, key).await, "n1");
    cluster.gives_up_one(1, key).await;
    cluster
        .knows(0, key, |known| held(known, "n1") == before - 1)
        .await;
    cluster.read(0, key, &bytes).await;
    cluster.stop().await;
}

#[tokio::test]
async fn events_that_got_lost_are_learned_with_later_ones() {
    let cluster = Cluster::whole_objects(2).await;
    let (key, bytes) = cluster.reads_spread(12).await;
    let key = key.as_str();
    cluster.knows(0, key, |known| held(known, "n1") > 0).await;
    let before = held(&cluster.completeness(0, key).await, "n1");
    // n0 is reached by gossip alone: messages of n1 are lost until then.
    cluster.ways[0].becomes(Wire::Stuck);
    cluster.gives_up_one(1, key).await;
    let lost = r#"shoal_messages_total{kind="cache-event",outcome="lost"}"#;
    until("a message of n1 is lost", async || {
        cluster.metric(1, lost).await > 0
    })
    .await;
    cluster.ways[0].becomes(Wire::Whole);
    assert_eq!(
        held(&cluster.completeness(0, key).await, "n1"),
        before,
        "n0 has not heard of it"
    );
    cluster.gives_up_one(1, key).await;
    cluster
        .knows(0, key, |known| held(known, "n1") == before - 2)
        .await;
    cluster.read(0, key, &bytes).await;
    cluster.stop().await;
}

/// Reads of several blocks through a node: complete, partial, none.
async fn found(cluster: &Cluster, node: usize) -> [u64; 3] {
    let mut counts = [0; 3];
    for (count, found) in counts.iter_mut().zip(["complete", "partial", "none"]) {
        let name = format!("shoal_object_reads_total{{blocks=\"several\",found=\"{found}\"}}");
        // A client may have its last byte a moment before the node has counted.
        *count = cluster.metric(node, &name).await;
    }
    counts
}

/// Waits until a node has counted this many reads.
async fn has_counted(cluster: &Cluster, node: usize, expected: [u64; 3]) {
    let what = format!("n{node} has counted {expected:?}");
    value(
        &what,
        async || found(cluster, node).await,
        |counts| *counts == expected,
    )
    .await;
}

#[tokio::test]
async fn every_node_counts_the_objects_that_are_found_whole_in_part_and_not_at_all() {
    for mode in [CooperationMode::Hierarchy, CooperationMode::Directory] {
        let cluster = Cluster::start_with(2, |_, config| config.cooperation.mode = mode).await;
        let bytes = cluster.put("k", 12);
        cluster.read(0, "k", &bytes).await;
        cluster.settle_reports().await;
        has_counted(&cluster, 0, [0, 0, 1]).await;
        // Blocks of another node count as found.
        cluster.read(1, "k", &bytes).await;
        cluster.settle_reports().await;
        has_counted(&cluster, 1, [1, 0, 0]).await;
        for node in [0, 1] {
            cluster.gives_up(node, "k", |block| block.index == 5).await;
        }
        cluster.settle_reports().await;
        cluster.read(0, "k", &bytes).await;
        has_counted(&cluster, 0, [0, 1, 1]).await;
        let status: Value = serde_json::from_slice(&cluster.nodes[0].admin("/status").await.body).unwrap();
        assert_eq!(status["reads"]["of_several_blocks"]["partial"], 1);
        cluster.stop().await;
    }
}

#[tokio::test]
async fn a_node_by_itself_counts_the_objects_that_it_finds_whole_in_part_and_not_at_all() {
    let mut cluster = Cluster::start(0).await;
    let by_itself = |_, config: &mut Config| config.cooperation.mode = CooperationMode::Solo;
    cluster.add(by_itself).await;
    let bytes = cluster.put("k", 12);
    for expected in [[0, 0, 1], [1, 0, 1]] {
        cluster.read(0, "k", &bytes).await;
        cluster.settle().await;
        has_counted(&cluster, 0, expected).await;
    }
    cluster.gives_up_one(0, "k").await;
    cluster.read(0, "k", &bytes).await;
    has_counted(&cluster, 0, [1, 1, 1]).await;
    cluster.stop().await;
}

/// A batch of messages as it stands on the wire: the sender, one kind, and the messages.
fn batch(sender: NodeId, kind: u8, messages: &[Vec<u8>]) -> Bytes {
    let mut bytes = Vec::new();
    number(&mut bytes, sender.0);
    number(&mut bytes, 1);
    bytes.push(kind);
    number(&mut bytes, messages.len() as u64);
    for message in messages {
        number(&mut bytes, message.len() as u64);
        bytes.extend(message);
    }
    bytes.into()
}

/// An event of a block in L2.
fn event(kind: u8, block: BlockId, at_ms: u64, held: u64, read: u64) -> Vec<u8> {
    let mut bytes = vec![kind, 2];
    bytes.extend(block.version.0);
    for value in [u64::from(block.index), at_ms, held, read] {
        number(&mut bytes, value);
    }
    bytes
}

fn number(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

#[tokio::test]
async fn lies_about_other_caches_cost_accuracy_until_the_next_read_and_nothing_else() {
    let cluster = Cluster::whole_objects(2).await;
    let (key, bytes) = cluster.reads_spread(12).await;
    let key = key.as_str();
    cluster.knows(0, key, |known| percent(known) == 100).await;
    let blocks = cluster.resident(0, key).await;
    let liar = cluster.liar_to(0);
    let deleted = event(3, blocks[0], 1, 0, 0);
    liar.send_messages(batch(node_id("n1"), 1, &[deleted]))
        .await
        .unwrap();
    cluster.knows(0, key, |known| percent(known) == 0).await;
    cluster.read(0, key, &bytes).await;
    cluster.knows(0, key, |known| percent(known) == 100).await;

    // Of no member, of no kind, of no time, in no form, and far too much of it.
    let future = event(4, blocks[0], u64::MAX, 0, u64::MAX);
    for refused in [
        batch(node_id("nobody"), 1, &[event(4, blocks[0], 1, 0, 0)]),
        batch(node_id("n0"), 1, &[event(4, blocks[0], 1, 0, 0)]),
        Bytes::from_static(b"\xff\xff\xff"),
        Bytes::from(vec![0; 1 << 20]),
    ] {
        assert!(liar.send_messages(refused).await.is_err());
    }
    for passed_over in [
        batch(node_id("n1"), 200, &[vec![1, 2, 3]]),
        batch(node_id("n1"), 1, &[vec![1, 2, 3], vec![]]),
        batch(node_id("n1"), 1, &[future]),
    ] {
        liar.send_messages(passed_over).await.unwrap();
    }
    let flood = (0..60_u64).map(|round| {
        let events = (0..500_u64).map(|number| {
            let version = VersionId(u128::from(round * 1_000 + number).to_le_bytes());
            let block = BlockId {
                version,
                index: number as u32,
            };
            event((number % 5) as u8, block, number, u64::MAX, u64::MAX)
        });
        liar.send_messages(batch(node_id("n1"), 1, &events.collect::<Vec<_>>()))
    });
    join_all(flood).await;
    let refused = cluster.metric(0, r#"shoal_message_batches_total{outcome="rate-limited"}"#);
    assert!(refused.await > 0, "a node that sends too much is held to a rate");
    assert!(percent(&cluster.completeness(0, key).await) == 100);
    cluster.read(0, key, &bytes).await;
    let capacity = cluster.metric(0, "shoal_capacity_bytes").await;
    assert!(cluster.metric(0, "shoal_resident_bytes").await <= capacity);
    let malformed = r#"shoal_messages_total{kind="cache-event",outcome="malformed"}"#;
    assert_eq!(cluster.metric(0, malformed).await, 2);
    cluster.stop().await;
}

#[tokio::test]
async fn a_node_that_keeps_no_objects_whole_passes_events_over() {
    let cluster = Cluster::start_with(2, |node, config| {
        keeps_objects_whole(node, config);
        if node == 1 {
            config.store.policy = Some(PolicyName::Lru);
        }
    })
    .await;
    let (key, bytes) = cluster.reads_spread(12).await;
    let key = key.as_str();
    let sent = r#"shoal_messages_total{kind="cache-event",outcome="sent"}"#;
    until("an event is sent", async || cluster.metric(0, sent).await > 0).await;
    assert_eq!(cluster.completeness(1, key).await, Value::Null);
    cluster.read(1, key, &bytes).await;
    assert_eq!(bytes.len() as u64, 12 * BLOCK);
    cluster.stop().await;
}

#[tokio::test]
async fn nodes_that_share_a_directory_learn_from_its_answers_and_send_no_events() {
    let cluster = Cluster::start_with(2, |_, config| {
        config.cooperation.mode = CooperationMode::Directory;
        config.store.policy = Some(PolicyName::C2pLru);
    })
    .await;
    let bytes = cluster.put("k", 4);
    cluster.read(0, "k", &bytes).await;
    cluster.settle_reports().await;
    cluster.reads_block(1, "k", 0).await;
    cluster.knows(1, "k", |known| held(known, "others") == 4).await;

    cluster.gives_up_one(0, "k").await;
    cluster.settle_reports().await;
    cluster.reads_block(1, "k", 2).await;
    cluster.knows(1, "k", |known| held(known, "others") == 3).await;
    cluster.read(1, "k", &bytes).await;
    let sent = r#"shoal_messages_total{kind="cache-event",outcome="sent"}"#;
    assert_eq!(cluster.metric(1, sent).await, 0);
    cluster.stop().await;
}
