//! The events that a node sends when its blocks move between layers, and those that it receives.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, SystemTime};

use shoal_base::clock;
use shoal_policy::eviction::PolicyName;
use shoal_policy::eviction::c2p::{Event, EventKind};
use shoal_policy::{Layer, NodeId};
use shoal_s3::object::Version;

use super::layers::cluster;
use super::{BLOCK, Lab, object, put, put_all, until, version};
use crate::{CacheEvent, PinOrder, RemovalReason, Store};

const HERE: u64 = 0;
const ELSEWHERE: u64 = 1;
const ORDER: PinOrder = PinOrder(7);

/// A lab of a node that keeps objects whole together with others.
fn lab() -> Lab {
    let mut lab = Lab::for_blocks(40);
    lab.layers = 2;
    lab.config.policy = Some(PolicyName::C2pLru);
    lab
}

fn in_l2(store: &Store) -> usize {
    store.layers.rooms()[1].keys
}

/// The set of blocks of a small version that belong to L2.
fn at_home(store: &Store, version: &Version) -> u64 {
    let indexes = 0..version.block_count();
    indexes
        .filter(|&index| store.layers.layer_of(version.block(index)) == Layer::L2)
        .fold(0, |blocks, index| blocks | (1 << index))
}

/// Waits until the blocks with this node as home are in L2. Returns the events sent for them.
async fn sent_after_moves(store: &Store, version: &Version) -> Vec<CacheEvent> {
    let expected = at_home(store, version).count_ones() as usize;
    assert!(expected > 1, "some blocks are at home here");
    until("blocks move", || in_l2(store) == expected).await;
    store.cache_events.take()
}

/// Asserts that the node reports once which of 20 blocks it holds, and no reads.
fn assert_sends_once_what_is_here(sent: &[CacheEvent], here: u64) {
    let sent: Vec<_> = sent
        .iter()
        .map(
            |CacheEvent {
                 event, group_blocks, ..
             }| (event.kind, event.held, event.read, *group_blocks),
        )
        .collect();
    assert_eq!(sent, [(EventKind::Add, here, 0, 20)]);
}

#[tokio::test]
async fn blocks_that_come_home_after_a_restart_are_told_to_others_as_no_reads() {
    let lab = lab();
    let (store, _) = lab.open();
    store.layers.set_hierarchy(cluster(&[HERE, ELSEWHERE]));
    let version = version(1, "a", BLOCK * 20);
    put_all(&store, &version).await;
    let (store, _) = lab.reopen(store).await;
    assert!(store.cache_events.keep());
    store.layers.set_hierarchy(cluster(&[HERE, ELSEWHERE]));
    let sent = sent_after_moves(&store, &version).await;
    assert_sends_once_what_is_here(&sent, at_home(&store, &version));
}

#[tokio::test]
async fn copies_that_come_home_when_nodes_leave_are_told_to_others_as_no_reads() {
    let lab = lab();
    let (store, _) = lab.open();
    assert!(store.cache_events.keep());
    store.layers.set_hierarchy(cluster(&[ELSEWHERE]));
    let version = version(1, "a", BLOCK * 20);
    put_all(&store, &version).await;
    assert_eq!(store.cache_events.take(), [], "L1 is the node's own");
    store.layers.set_hierarchy(cluster(&[HERE, ELSEWHERE]));
    let sent = sent_after_moves(&store, &version).await;
    assert_sends_once_what_is_here(&sent, at_home(&store, &version));
}

#[tokio::test]
async fn blocks_that_come_home_with_the_end_of_a_pin_are_told_to_others_as_no_reads() {
    let lab = lab();
    let (store, _) = lab.open();
    assert!(store.cache_events.keep());
    let version = version(1, "a", BLOCK * 20);
    put_all(&store, &version).await;
    let in_an_hour = clock::utc_now() + Duration::from_hours(1);
    let kept = store
        .pinning
        .pin(ORDER, in_an_hour, vec![object(1)])
        .await
        .unwrap();
    assert_eq!((kept[0].blocks, kept[0].refusal), (20, None));
    store.layers.set_hierarchy(cluster(&[HERE, ELSEWHERE]));
    store.pinning.end(ORDER).await;
    let sent = sent_after_moves(&store, &version).await;
    assert_sends_once_what_is_here(&sent, at_home(&store, &version));
}

#[tokio::test]
async fn blocks_that_a_restart_finds_count_as_no_reads_on_a_node_by_itself() {
    let mut lab = lab();
    lab.layers = 1;
    let (store, _) = lab.open();
    let version: Arc<Version> = version(1, "a", BLOCK * 4);
    put_all(&store, &version).await;
    let known = |store: &Store| store.cache_events.knowledge(Layer::L1, version.block(0)).unwrap();
    assert_eq!((known(&store).read, known(&store).here), (0b1111, 0b1111));
    let (store, _) = lab.reopen(store).await;
    assert_eq!((known(&store).read, known(&store).here), (0, 0b1111));
}

#[tokio::test]
async fn what_nodes_hold_that_are_gone_is_forgotten_a_few_groups_at_a_time() {
    let mut lab = Lab::for_blocks(600);
    lab.layers = 2;
    lab.config.policy = Some(PolicyName::C2pLru);
    let (store, _) = lab.open();
    store.layers.set_hierarchy(cluster(&[HERE]));
    let versions: Vec<_> = (0..=255).map(|number| version(number, "a", BLOCK * 2)).collect();
    let versions = [versions, vec![version(0, "b", BLOCK * 2)]].concat();
    let [stays, goes] = [NodeId(ELSEWHERE), NodeId(2)];
    for version in &versions {
        put(&store, version, 0).await.unwrap();
        let event = Event {
            at: Duration::from_secs(1),
            key: version.block(1),
            kind: EventKind::Miss,
            held: 0b10,
            read: 0b10,
            is_urgent: false,
        };
        let event = CacheEvent {
            layer: Layer::L2,
            event,
            group_blocks: 2,
        };
        for node in [stays, goes] {
            store.cache_events.receive(node, &[event]);
        }
    }
    let known_holders = || {
        let known = versions.iter().map(|version| {
            let known = store.cache_events.knowledge(Layer::L2, version.block(0)).unwrap();
            known.others.iter().map(|(node, _)| *node).collect::<Vec<_>>()
        });
        known.collect::<Vec<_>>()
    };
    let kept = [stays].into();
    let mut forgetting = pin!(store.cache_events.forget(&kept));
    let first_turn = forgetting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(
        first_turn.is_pending(),
        "257 groups are more than one turn examines"
    );
    assert!(known_holders().contains(&vec![stays, goes]));
    forgetting.await;
    assert!(known_holders().iter().all(|holders| *holders == [stays]));
}

#[tokio::test]
async fn events_have_the_right_time_after_a_start_with_a_clock_that_was_ahead() {
    let lab = lab();
    let (store, _) = lab.open();
    store.ground.ledger.started_ahead(Duration::from_hours(1));
    assert!(store.cache_events.keep());
    store.layers.set_hierarchy(cluster(&[HERE]));
    put_all(&store, &version(1, "a", BLOCK)).await;
    let sent = store.cache_events.take();
    let now = clock::utc_now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let ages: Vec<_> = sent.iter().map(|sent| now.checked_sub(sent.event.at)).collect();
    assert!(
        matches!(ages[..], [Some(age)] if age < Duration::from_mins(1)),
        "{ages:?}"
    );
}

/// Returns true if the store has an urgent event for other nodes.
fn is_urgent(store: &Store) -> bool {
    let urgent = pin!(store.cache_events.urgent());
    urgent.poll(&mut Context::from_waker(Waker::noop())).is_ready()
}

#[tokio::test]
async fn a_block_that_leaves_a_complete_object_is_urgent_and_the_next_one_is_not() {
    let lab = lab();
    let (store, _) = lab.open();
    assert!(store.cache_events.keep());
    store.layers.set_hierarchy(cluster(&[HERE]));
    let version = version(1, "a", BLOCK * 4);
    put_all(&store, &version).await;
    assert!(!is_urgent(&store), "nothing has left");
    for (index, expected) in [(0, true), (1, false)] {
        store.cache_events.take();
        let leaving = vec![(version.block(index), RemovalReason::Room)];
        assert_eq!(store.removal.part_with(leaving).await, []);
        assert_eq!(is_urgent(&store), expected, "block {index}");
    }
    assert_eq!(store.cache_events.take().len(), 1);
}

#[tokio::test]
async fn an_eviction_for_room_is_urgent_ahead_of_demand_and_on_demand() {
    let lab = lab();
    let (store, _) = lab.open();
    assert!(store.cache_events.keep());
    store.layers.set_hierarchy(cluster(&[HERE]));
    for number in 0..10 {
        put_all(&store, &version(number, "a", BLOCK * 4)).await;
    }
    until("room is made ahead of demand", || is_urgent(&store)).await;
    store.cache_events.take();
    for _ in 0..4 {
        assert!(store.ground.ledger.evict().is_some());
    }
    assert!(is_urgent(&store));
}
