//! Tests the split from outside, over a real store.

use std::sync::Arc;
use std::time::Duration;

use shoal_net::shutdown;
use shoal_policy::eviction::PolicyName;
use shoal_policy::fingerprint::Fingerprint;
use shoal_policy::{BlockId, Layer, VersionId};
use shoal_store::{Store, StoreConfig};
use tempfile::TempDir;

use super::{LayerRequests, MissTimer, Split, SplitRule};

const BLOCK_BYTES: u64 = 64 << 10;
const PERIOD: Duration = Duration::from_secs(90);

/// A node with room for about a thousand blocks, and its split.
struct Node {
    store: Arc<Store>,
    split: Arc<Split>,
    _folder: TempDir,
}

impl Node {
    fn new(layers: usize, rule: &SplitRule) -> Self {
        Self::with(layers, rule, |_| {})
    }

    fn with(layers: usize, rule: &SplitRule, change: impl FnOnce(&mut Split)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = StoreConfig {
            path: folder.path().join("store"),
            capacity_bytes: 1000 * BLOCK_BYTES,
            block_bytes: BLOCK_BYTES,
            policy: Some(PolicyName::Lru),
            ..StoreConfig::default()
        };
        let (store, _) = Store::open(&config, BLOCK_BYTES, layers).unwrap();
        let mut split = Split::new(Arc::clone(&store), rule, PERIOD, BLOCK_BYTES);
        change(&mut split);
        Self {
            store,
            split: split.into(),
            _folder: folder,
        }
    }

    fn targets(&self) -> Vec<u64> {
        self.store
            .layers
            .rooms()
            .iter()
            .map(|room| room.target_bytes)
            .collect()
    }

    /// Clients request new blocks from L1, and other nodes request any of 900 blocks from L2. All of these
    /// requests miss.
    fn is_asked(&self) {
        for number in 0..4000 {
            let fresh = self
                .split
                .requested(Layer::L1, block(1, number), BLOCK_BYTES, false);
            assert!(fresh.is_none(), "no size of L1 would have had it");
            let any = (Fingerprint::of_number(number.into()).0 % 900) as u32;
            let missed = self.split.requested(Layer::L2, block(2, any), BLOCK_BYTES, false);
            missed.into_iter().for_each(MissTimer::answered);
        }
    }
}

fn block(version: u8, index: u32) -> BlockId {
    BlockId {
        version: VersionId([version; 16]),
        index,
    }
}

#[tokio::test]
async fn room_goes_to_the_layer_whose_misses_it_saves_a_twentieth_at_a_time() {
    let node = Node::new(2, &SplitRule::Adaptive);
    let room_bytes = node.store.layers.room_bytes();
    assert_eq!(node.targets(), [room_bytes.div_ceil(2), room_bytes / 2]);
    let mut before = node.targets();
    for _ in 0..9 {
        node.is_asked();
        node.split.adapt();
        let now = node.targets();
        assert_eq!(now.iter().sum::<u64>(), room_bytes);
        assert!(now[1] >= before[1] && now[1] - before[1] <= room_bytes / 20);
        before = now;
    }
    assert!(before[1] > room_bytes * 85 / 100, "{before:?} of {room_bytes}");
}

#[tokio::test]
async fn a_layer_goes_one_step_at_a_time_and_forgets_at_its_pace() {
    for (step, decay, steps) in [(5, 100.0, 1), (5, 0.0, 3), (12, 0.0, 3)] {
        let node = Node::with(2, &SplitRule::Adaptive, |split| {
            split.pace.limit_bytes = split.store.layers.room_bytes() * step / 100;
            split.pace.kept = 1.0 - decay / 100.0;
        });
        let (before, room_bytes) = (node.targets(), node.store.layers.room_bytes());
        node.is_asked();
        for _ in 0..3 {
            node.split.adapt();
        }
        let gained = node.targets()[1] - before[1];
        let expected = steps * (room_bytes * step / 100);
        assert_eq!(gained, expected, "{step}% at a time, {decay}% forgotten");
    }
}

#[tokio::test]
async fn without_requests_the_split_stays_as_it_is() {
    let node = Node::new(3, &SplitRule::Adaptive);
    let before = node.targets();
    node.split.adapt();
    assert_eq!(node.targets(), before);
    assert_eq!(before.len(), 3);
}

#[tokio::test]
async fn a_fixed_split_is_what_was_configured_whatever_is_asked_for() {
    let node = Node::new(2, &SplitRule::Fixed(vec![0, 100]));
    let expected = [0, node.store.layers.room_bytes()];
    assert_eq!(node.targets(), expected);
    let timed = || node.split.requested(Layer::L2, block(1, 1), BLOCK_BYTES, false);
    assert!(timed().is_none() && timed().is_none());
    node.split.adapt();
    assert_eq!(node.targets(), expected);
}

#[tokio::test]
async fn a_node_alone_has_one_layer_with_all_the_room() {
    for rule in [SplitRule::Adaptive, SplitRule::Fixed(vec![50, 50])] {
        let node = Node::new(1, &rule);
        assert_eq!(node.targets(), [node.store.layers.room_bytes()]);
    }
}

#[tokio::test]
async fn only_misses_of_blocks_that_were_asked_for_before_are_worth_timing() {
    let node = Node::new(2, &SplitRule::Adaptive);
    let asked = |layer, held| {
        let timed = node.split.requested(layer, block(1, 1), BLOCK_BYTES, held);
        timed.is_some()
    };
    assert!(!asked(Layer::L2, false), "a first use");
    assert!(asked(Layer::L2, false));
    assert!(!asked(Layer::L2, true), "a hit");
    assert!(!asked(Layer::L1, false), "a first use in another layer");
    let requests = |layer, hits, misses| LayerRequests { layer, hits, misses };
    let expected = [requests(Layer::L1, 0, 1), requests(Layer::L2, 1, 2)];
    assert_eq!(node.split.requests(), expected);
}

#[tokio::test]
async fn the_reuse_of_small_blocks_is_seen_as_far_as_the_room_reaches() {
    let node = Node::new(2, &SplitRule::Adaptive);
    let small_blocks = 3600;
    let asked = |number| {
        let timed = node
            .split
            .requested(Layer::L2, block(1, number), BLOCK_BYTES / 4, false);
        timed.is_some()
    };
    (0..small_blocks).for_each(|number| _ = asked(number));
    assert!((0..small_blocks).all(asked), "all of them fit into the room");
}

#[tokio::test(start_paused = true)]
async fn the_split_is_found_once_a_period_until_the_node_stops() {
    let node = Node::new(2, &SplitRule::Adaptive);
    let (stop, stopping) = shutdown::channel();
    let before = node.targets();
    let running = tokio::spawn(Arc::clone(&node.split).run(stopping));
    node.is_asked();
    tokio::time::sleep(PERIOD * 9 / 10).await;
    assert_eq!(node.targets(), before);
    tokio::time::sleep(PERIOD / 5).await;
    assert!(node.targets()[1] > before[1]);
    stop.begin();
    running.await.unwrap();
}
