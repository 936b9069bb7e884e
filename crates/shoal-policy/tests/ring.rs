//! Homes on a ring: shares, and what moves when nodes come and go.

mod exact_shares;

use std::collections::{BTreeMap, BTreeSet};

use proptest::proptest;

use shoal_policy::NodeId;
use shoal_policy::fingerprint::Fingerprint;
use shoal_policy::ring::{ORDINARY_WEIGHT, Ring};

use exact_shares::exact_shares;

fn ring(nodes: impl IntoIterator<Item = u64>) -> Ring {
    Ring::new(
        nodes
            .into_iter()
            .map(|node| (NodeId(node), ORDINARY_WEIGHT))
            .collect(),
    )
}

fn homes(ring: &Ring, blocks: u64) -> Vec<NodeId> {
    let home = |block| {
        ring.home(Fingerprint::of_number(block))
            .expect("the ring has nodes")
    };
    (0..blocks).map(home).collect()
}

fn counts(homes: &[NodeId]) -> BTreeMap<NodeId, usize> {
    homes.iter().fold(BTreeMap::new(), |mut counts, &home| {
        *counts.entry(home).or_default() += 1;
        counts
    })
}

#[test]
fn every_share_is_within_a_twentieth_of_its_due() {
    for nodes in [1, 2, 3, 4, 7, 10, 32, 100, 316, 1000] {
        let ring = ring(0..nodes);
        let shares = exact_shares(&ring);
        assert_eq!(shares.len() as u64, nodes);
        assert!((shares.values().sum::<f64>() - 1.0).abs() < 1e-9);
        for (node, share) in shares {
            assert!(
                (share * nodes as f64 - 1.0).abs() < 0.05,
                "{node:?} of {nodes}: {share}"
            );
        }
    }
}

#[test]
fn a_reader_that_misses_nodes_finds_the_home_of_the_ring_without_them() {
    let (whole, rest) = (ring(0..9), ring((0..9).filter(|node| ![2, 5].contains(node))));
    for block in (0..5_000).map(Fingerprint::of_number) {
        let among = whole.home_among(block, |node| ![2, 5].contains(&node.0));
        assert_eq!(among, rest.home(block));
        assert_eq!(whole.home_among(block, |_| true), whole.home(block));
    }
    assert_eq!(whole.home_among(Fingerprint::of_number(1), |_| false), None);
    assert_eq!(ring([]).home_among(Fingerprint::of_number(1), |_| true), None);
}

#[test]
fn shares_are_what_counting_finds() {
    let ring = Ring::new(BTreeMap::from([
        (NodeId(1), 3),
        (NodeId(2), 1),
        (NodeId(3), 0),
        (NodeId(4), 2),
    ]));
    let blocks = 200_000;
    let counts = counts(&homes(&ring, blocks));
    for (node, share) in exact_shares(&ring) {
        let counted = counts.get(&node).copied().unwrap_or(0) as f64 / blocks as f64;
        assert!(
            (counted - share).abs() < 0.005,
            "{node:?}: {counted} counted, {share} said"
        );
    }
}

#[test]
fn a_hundred_thousand_blocks_are_within_a_twentieth_on_up_to_sixteen_nodes() {
    for nodes in [4, 8, 16] {
        for (node, count) in counts(&homes(&ring(0..nodes), 100_000)) {
            let of_mean = (count as u64 * nodes) as f64 / 100_000.0;
            assert!(
                (of_mean - 1.0).abs() < 0.05,
                "{node:?} of {nodes}: {of_mean} of the mean"
            );
        }
    }
}

#[test]
fn on_many_nodes_blocks_spread_as_chance_spreads_them_and_no_wider() {
    for nodes in [100, 1000] {
        let mean = 100_000.0 / nodes as f64;
        let counts = counts(&homes(&ring(0..nodes), 100_000));
        let squares: f64 = counts.values().map(|&count| (count as f64 - mean).powi(2)).sum();
        let deviation = (squares / nodes as f64).sqrt();
        assert!(deviation < 1.1 * mean.sqrt(), "{nodes} nodes: {deviation}");
    }
}

#[test]
fn a_joining_node_takes_its_share_and_nothing_else_moves() {
    for nodes in [1, 4, 10, 100] {
        let (before, after) = (homes(&ring(0..nodes), 20_000), homes(&ring(0..=nodes), 20_000));
        let moved: Vec<_> = before
            .iter()
            .zip(&after)
            .filter(|(before, after)| before != after)
            .collect();
        assert!(moved.iter().all(|(_, after)| **after == NodeId(nodes)));
        let share = moved.len() as f64 / 20_000.0 * (nodes + 1) as f64;
        assert!((share - 1.0).abs() < 0.3, "{share} of 1/{}", nodes + 1);
    }
}

#[test]
fn weights_are_shares_and_a_change_of_weight_moves_the_difference() {
    let light = Ring::new((0..8).map(|node| (NodeId(node), ORDINARY_WEIGHT)).collect());
    let mut weights = light.weights().clone();
    weights.insert(NodeId(3), 3 * ORDINARY_WEIGHT);
    let heavy = Ring::new(weights);
    assert!((exact_shares(&heavy)[&NodeId(3)] - 0.3).abs() < 0.015);
    let (before, after) = (homes(&light, 20_000), homes(&heavy, 20_000));
    let moved: BTreeSet<_> = before
        .iter()
        .zip(&after)
        .filter(|(before, after)| before != after)
        .map(|(_, after)| *after)
        .collect();
    assert_eq!(moved, BTreeSet::from([NodeId(3)]));
}

#[test]
fn a_node_without_weight_is_home_to_nothing() {
    let ring = Ring::new(BTreeMap::from([(NodeId(1), 0), (NodeId(2), 1)]));
    assert!(homes(&ring, 1000).iter().all(|&home| home == NodeId(2)));
    assert_eq!(Ring::new(BTreeMap::new()).home(Fingerprint(0)), None);
    assert_eq!(
        Ring::new(BTreeMap::from([(NodeId(1), 0)])).home(Fingerprint(0)),
        None
    );
    assert!(exact_shares(&Ring::new(BTreeMap::new())).is_empty());
}

#[test]
fn homes_are_those_of_every_other_release() {
    let ring = ring([11, 22, 33, 44, 55]);
    let homes: Vec<u64> = homes(&ring, 16).iter().map(|home| home.0).collect();
    assert_eq!(
        homes,
        [55, 11, 33, 44, 11, 33, 33, 22, 22, 33, 33, 11, 22, 22, 11, 33]
    );
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { failure_persistence: None, cases: 64, ..Default::default() })]

    #[test]
    fn a_leaving_node_moves_its_own_share_and_nothing_else(
        weights in proptest::collection::btree_map(0..1000_u64, 1..40_u32, 2..20),
        block in 0..1000_u64,
    ) {
        let weights: BTreeMap<NodeId, u32> = weights.into_iter().map(|(node, weight)| (NodeId(node), weight)).collect();
        let all = Ring::new(weights.clone());
        for &gone in weights.keys() {
            let mut left = weights.clone();
            left.remove(&gone);
            let left = Ring::new(left);
            for block in (block * 50..block * 50 + 50).map(Fingerprint::of_number) {
                let (before, after) = (all.home(block), left.home(block));
                assert!(before == Some(gone) || before == after, "{before:?} to {after:?} when {gone:?} left");
            }
        }
    }
}
