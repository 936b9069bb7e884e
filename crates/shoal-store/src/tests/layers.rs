//! Blocks of this node in their layers: they move when the hierarchy changes, and leave when their layer
//! shrinks.

use std::sync::Arc;

use shoal_policy::admission::Refusal;
use shoal_policy::eviction::layered::divide;
use shoal_policy::ring::{ORDINARY_WEIGHT, Ring};
use shoal_policy::route::{Hierarchy, Neighbourhood};
use shoal_policy::{Layer, NodeId};
use shoal_s3::object::Version;

use super::{BLOCK, Lab, data, evictions, put, put_all, refusals, until, version};
use crate::{RemovalReason, Store};

const HERE: u64 = 0;
const ELSEWHERE: u64 = 1;

/// A hierarchy whose L2 is these nodes.
pub(super) fn cluster(nodes: &[u64]) -> Arc<Hierarchy> {
    let nodes = nodes.iter().map(|&node| (NodeId(node), ORDINARY_WEIGHT));
    let neighbourhood = Neighbourhood {
        ring: Ring::new(nodes.collect()),
        former: None,
    };
    Arc::new(Hierarchy {
        node: NodeId(HERE),
        layers: vec![neighbourhood],
    })
}

/// A lab of a node in a cluster, with room for about this many blocks.
fn lab(blocks: u64) -> Lab {
    let mut lab = Lab::for_blocks(blocks);
    lab.layers = 2;
    lab
}

/// Gives the layers these percents of the room.
pub(super) fn split(store: &Store, percents: [u64; 2]) {
    store.layers.resize(&divide(store.layers.room_bytes(), &percents));
}

/// Asserts that the layers together hold exactly the resident blocks; true at any moment.
pub(super) fn assert_each_block_in_one_layer(store: &Store) {
    super::assert_consistent(store);
}

fn blocks(store: &Store) -> [usize; 2] {
    assert_each_block_in_one_layer(store);
    let layers = store.layers.rooms();
    [layers[0].keys, layers[1].keys]
}

/// How many blocks of a version belong to L1 and to L2.
fn belonging(store: &Store, version: &Version) -> [usize; 2] {
    let indexes = 0..version.block_count();
    let in_l2 = indexes
        .filter(|&index| store.layers.layer_of(version.block(index)) == Layer::L2)
        .count();
    [version.block_count() as usize - in_l2, in_l2]
}

async fn assert_whole(store: &Arc<Store>, version: &Version) {
    for index in 0..version.block_count() {
        let block = store.load(version.block(index), true).await.unwrap();
        assert_eq!(block, data(version, index), "block {index}");
    }
}

#[tokio::test]
async fn blocks_move_to_other_layers_when_the_hierarchy_changes_and_none_is_lost_or_written_again() {
    let lab = lab(400);
    let (store, _) = lab.open();
    // More blocks than one turn examines.
    let versions: Vec<_> = (0..30).map(|number| version(number, "a", BLOCK * 10)).collect();
    for version in &versions {
        put_all(&store, version).await;
    }
    assert_eq!(blocks(&store), [300, 0], "a node alone has nothing but L1");
    for nodes in [
        &[HERE][..],
        &[HERE, ELSEWHERE],
        &[HERE, ELSEWHERE, 2],
        &[ELSEWHERE],
    ] {
        store.layers.set_hierarchy(cluster(nodes));
        let expected = versions
            .iter()
            .map(|version| belonging(&store, version))
            .fold([0, 0], |[l1, l2], [more_l1, more_l2]| {
                [l1 + more_l1, l2 + more_l2]
            });
        until("blocks move", || blocks(&store) == expected).await;
    }
    assert_eq!(blocks(&store), [300, 0], "no block is at home here any longer");
    assert_eq!(store.counters().stored_blocks, 300);
    for version in &versions {
        assert_whole(&store, version).await;
    }
}

#[tokio::test]
async fn a_block_that_comes_is_placed_where_it_belongs() {
    let lab = lab(40);
    let (store, _) = lab.open();
    store.layers.set_hierarchy(cluster(&[HERE, ELSEWHERE]));
    let version = version(1, "a", BLOCK * 20);
    put_all(&store, &version).await;
    let expected = belonging(&store, &version);
    assert!(expected[0] > 0 && expected[1] > 0, "both layers have some");
    assert_eq!(blocks(&store), expected);
}

#[tokio::test]
async fn a_restart_finds_every_block_and_its_layer_again() {
    let lab = lab(40);
    let (store, _) = lab.open();
    store.layers.set_hierarchy(cluster(&[HERE, ELSEWHERE]));
    let version = version(1, "a", BLOCK * 20);
    put_all(&store, &version).await;
    let before = blocks(&store);
    let (store, recovery) = lab.reopen(store).await;
    assert_eq!(recovery.blocks, 20);
    assert_eq!(
        blocks(&store),
        [20, 0],
        "the node does not know its neighbours yet"
    );
    store.layers.set_hierarchy(cluster(&[HERE, ELSEWHERE]));
    until("blocks move", || blocks(&store) == before).await;
    assert_whole(&store, &version).await;
}

#[tokio::test]
async fn a_layer_that_shrinks_gives_its_blocks_to_one_that_grows() {
    let lab = lab(40);
    let (store, _) = lab.open();
    store.layers.set_hierarchy(cluster(&[HERE, ELSEWHERE]));
    let version = version(1, "a", BLOCK * 200);
    let (own, shared): (Vec<u32>, Vec<u32>) =
        (0..200).partition(|&index| store.layers.layer_of(version.block(index)) == Layer::L1);
    for &index in &own[..34] {
        put(&store, &version, index).await.unwrap();
    }
    assert_eq!(blocks(&store), [34, 0], "L1 uses room that L2 does not need yet");
    split(&store, [25, 75]);
    assert_eq!(blocks(&store), [34, 0], "nothing leaves for an empty place");
    for &index in &shared[..60] {
        put(&store, &version, index).await.unwrap();
    }
    let [l1, l2] = blocks(&store);
    assert!(
        (7..=11).contains(&l1) && (24..=34).contains(&l2),
        "{l1} and {l2} blocks"
    );
    let held = |index: &&u32| store.contains(version.block(**index));
    let newest = own[34 - l1..34].iter();
    assert_eq!(newest.filter(held).count(), l1, "the oldest have left");
}

#[tokio::test]
async fn a_layer_without_a_share_refuses_what_comes_and_keeps_what_is_here() {
    let lab = lab(40);
    let (store, _) = lab.open();
    let here = version(1, "a", BLOCK * 4);
    put_all(&store, &here).await;
    store.layers.set_hierarchy(cluster(&[ELSEWHERE]));
    split(&store, [0, 100]);
    let more = version(2, "a", BLOCK);
    assert_eq!(put(&store, &more, 0).await, Err(Refusal::NoShare));
    assert_eq!(refusals(&store, Refusal::NoShare), 1);
    assert!(!store.contains(more.block(0)));
    assert_eq!(
        put(&store, &here, 0).await.unwrap(),
        data(&here, 0),
        "it is here already"
    );
    assert_eq!(
        evictions(&store, RemovalReason::Room),
        0,
        "its new home may ask for it"
    );
    assert_whole(&store, &here).await;
}
