//! Which node a client should use: the topologically nearest one, and among equally near ones always the
//! same.
//!
//! Places are compared from the outside in: `dc1/cluster-a/rack-1` shares three levels with itself, two with
//! another rack of the cluster, one with another cluster. Nodes that share equally many levels with a client
//! are equally near, and a *weighted rendezvous* decides among them (Thaler and Ravishankar 1998). Each pair
//! of client and node has its own random number. So a client stays with one node as long as the node lives,
//! clients spread over the nodes in proportion to their weights, and a node that leaves moves only its own
//! clients. All callers with the same view of the nodes decide alike, without communication.
//!
//! Only differences in load move clients. A node whose load is at most [`SIMILAR_LOADS`] above that of the
//! least loaded of its equals has full weight, so short fluctuations move no client, and clients stay where
//! their blocks are cached. Beyond that, the weight falls linearly to zero at full load, and clients move in
//! proportion.

use std::collections::BTreeMap;

use crate::NodeId;
use crate::fingerprint::mix;

/// Loads (0 to 1) that differ by no more than this count as equal.
pub const SIMILAR_LOADS: f64 = 0.1;

/// A node that the client could use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate<'a> {
    /// The node.
    pub node: NodeId,
    /// Its place, outermost level first, levels separated by slashes.
    pub topology: &'a str,
    /// Requests in flight as a fraction of the node's limit, 0 to 1.
    pub load: f64,
}

/// The client that needs a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client<'a> {
    /// Its place; if `None`, all nodes are equally far.
    pub topology: Option<&'a str>,
    /// Distinguishes it from other clients, such as a digest of its address.
    pub key: u64,
}

/// How a candidate ranks for a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranked {
    /// Its index in the candidates as they were given.
    pub index: usize,
    /// Levels of topology that it shares with the client.
    pub shared_levels: usize,
    /// Its weight in the choice among nodes that share as many levels: 1, or less if it carries more load
    /// than they do.
    pub weight: f64,
}

/// Returns the candidates in the order in which the client should try them.
pub fn rank(client: Client<'_>, candidates: &[Candidate<'_>]) -> Vec<Ranked> {
    let shared_with = |candidate: &Candidate<'_>| {
        client
            .topology
            .map_or(0, |place| shared_levels(place, candidate.topology))
    };
    let shared: Vec<usize> = candidates.iter().map(shared_with).collect();
    let mut least_loads = BTreeMap::new();
    for (candidate, levels) in candidates.iter().zip(&shared) {
        let least = least_loads.entry(levels).or_insert(1.0_f64);
        *least = least.min(within_bounds(candidate.load));
    }
    let mut ranked: Vec<(f64, Ranked)> = candidates
        .iter()
        .zip(&shared)
        .enumerate()
        .map(|(index, (candidate, shared_levels))| {
            let weight = weight(candidate.load, least_loads[shared_levels]);
            let ranked = Ranked {
                index,
                shared_levels: *shared_levels,
                weight,
            };
            (arrival(client.key, candidate.node, weight), ranked)
        })
        .collect();
    ranked.sort_by(|(early, a), (late, b)| {
        b.shared_levels
            .cmp(&a.shared_levels)
            .then(early.total_cmp(late))
            .then(candidates[a.index].node.cmp(&candidates[b.index].node))
    });
    ranked.into_iter().map(|(_, ranked)| ranked).collect()
}

/// The number of levels that two places share, from the outside in.
pub fn shared_levels(a: &str, b: &str) -> usize {
    a.split('/').zip(b.split('/')).take_while(|(a, b)| a == b).count()
}

/// The weight of a node with `load`, where the least loaded of its equals has `least_load`.
fn weight(load: f64, least_load: f64) -> f64 {
    let excess = within_bounds(load) - least_load - SIMILAR_LOADS;
    (1.0 - excess.max(0.0) / (1.0 - SIMILAR_LOADS)).max(0.0)
}

/// A load that is not a number or outside 0 to 1 counts as full, because a node that reports nonsense should
/// not attract clients.
fn within_bounds(load: f64) -> f64 {
    if (0.0..=1.0).contains(&load) { load } else { 1.0 }
}

/// Nodes race for each client. Arrival times are exponential with the weight as their rate, so a node is
/// first with the probability of its weight among all weights. A change of weight moves only as many clients
/// as it accounts for.
fn arrival(client: u64, node: NodeId, weight: f64) -> f64 {
    let bits = mix(mix(client) ^ mix(node.0).rotate_left(32));
    // A float holds 53 bits; the half keeps the share off 0, which has no logarithm.
    let share = ((bits >> 11) as f64 + 0.5) / (1_u64 << 53) as f64;
    -share.ln() / weight
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest};

    use super::{Candidate, Client, Ranked, rank, shared_levels};
    use crate::NodeId;

    const HERE: &str = "dc1/a/r1";

    fn node(node: u64, topology: &str, load: f64) -> Candidate<'_> {
        let node = NodeId(node);
        Candidate { node, topology, load }
    }

    fn client(topology: Option<&str>, key: u64) -> Client<'_> {
        Client { topology, key }
    }

    /// The nodes in the order in which the client tries them.
    fn order(client: Client<'_>, candidates: &[Candidate<'_>]) -> Vec<u64> {
        let ranked = rank(client, candidates);
        ranked
            .iter()
            .map(|ranked| candidates[ranked.index].node.0)
            .collect()
    }

    /// The first choice of each of many clients.
    fn first_choices(candidates: &[Candidate<'_>]) -> Vec<u64> {
        (0..20_000)
            .map(|key| order(client(Some(HERE), key), candidates)[0])
            .collect()
    }

    fn share(choices: &[u64], node: u64) -> f64 {
        choices.iter().filter(|choice| **choice == node).count() as f64 / choices.len() as f64
    }

    #[test]
    fn places_are_compared_level_by_level_from_the_outside() {
        for (a, b, levels) in [
            ("dc1/a/r1", "dc1/a/r1", 3),
            ("dc1/a/r1", "dc1/a/r10", 2),
            ("dc1/a/r1", "dc1/b/r1", 1),
            ("dc1/a/r1", "dc2/a/r1", 0),
            ("dc1/a/r1", "dc1", 1),
            ("dc1", "dc1/a/r1", 1),
            ("dc1/a", "dc1/a/r1/h7", 2),
        ] {
            assert_eq!(shared_levels(a, b), levels, "{a} {b}");
        }
    }

    #[test]
    fn a_node_that_shares_more_of_the_clients_place_comes_first_at_any_load() {
        let nodes = [
            node(1, "dc2/a/r1", 0.0),
            node(2, "dc1/b/r1", 0.0),
            node(3, "dc1/a/r2", 0.0),
            node(4, "dc1/a/r1", 0.99),
        ];
        for (place, expected) in [
            ("dc1/a/r1", [4, 3, 2, 1]),
            ("dc1/a/r2", [3, 4, 2, 1]),
            ("dc1/a/r2/vm-9", [3, 4, 2, 1]),
        ] {
            assert_eq!(order(client(Some(place), 7), &nodes), expected, "{place}");
        }
        let without_the_nearest = order(client(Some(HERE), 7), &nodes[..3]);
        assert_eq!(without_the_nearest, [3, 2, 1]);
    }

    #[test]
    fn a_client_of_unknown_place_has_all_nodes_equally_far() {
        let nodes = [node(1, "dc1/a/r1", 0.0), node(2, "dc2/b/r2", 0.0)];
        let ranked = rank(client(None, 1), &nodes);
        assert!(ranked.iter().all(|ranked| ranked.shared_levels == 0));
        let firsts: Vec<u64> = (0..1000).map(|key| order(client(None, key), &nodes)[0]).collect();
        assert!((share(&firsts, 1) - 0.5).abs() < 0.05);
    }

    #[test]
    fn clients_spread_evenly_over_equals_and_stay_while_loads_are_similar() {
        let nodes = [node(1, HERE, 0.30), node(2, HERE, 0.30), node(3, HERE, 0.30)];
        let choices = first_choices(&nodes);
        for node in 1..=3 {
            assert!((share(&choices, node) - 1.0 / 3.0).abs() < 0.02);
        }
        let a_second_later = [node(1, HERE, 0.34), node(2, HERE, 0.27), node(3, HERE, 0.36)];
        assert_eq!(first_choices(&a_second_later), choices);
    }

    #[test]
    fn a_node_that_carries_more_than_its_equals_gets_fewer_clients_and_a_full_one_none() {
        let shares = |load| {
            let choices = first_choices(&[node(1, HERE, 0.0), node(2, HERE, load)]);
            share(&choices, 2)
        };
        assert!(
            (shares(0.55) - 1.0 / 3.0).abs() < 0.02,
            "half the weight of its equal"
        );
        assert!(shares(1.0) < f64::EPSILON);
        let both_full = first_choices(&[node(1, HERE, 1.0), node(2, HERE, 1.0)]);
        assert!((share(&both_full, 2) - 0.5).abs() < 0.02);
    }

    #[test]
    fn a_change_of_load_moves_only_what_it_is_worth_and_only_away() {
        let before = first_choices(&[node(1, HERE, 0.0), node(2, HERE, 0.0), node(3, HERE, 0.0)]);
        let after = first_choices(&[node(1, HERE, 0.0), node(2, HERE, 0.4), node(3, HERE, 0.0)]);
        let moved: Vec<_> = before.iter().zip(&after).filter(|(a, b)| a != b).collect();
        assert!(!moved.is_empty() && moved.iter().all(|(from, to)| **from == 2 && **to != 2));
        assert!(
            (share(&after, 2) - 0.25).abs() < 0.02,
            "a weight of 2/3 beside two of 1"
        );
    }

    #[test]
    fn a_load_that_is_no_share_counts_as_full() {
        for wrong in [f64::NAN, -1.0, 1.5, f64::INFINITY] {
            let choices = first_choices(&[node(1, HERE, 0.2), node(2, HERE, wrong)]);
            assert!(share(&choices, 2) < 0.2, "{wrong}");
        }
    }

    #[test]
    fn the_order_is_that_of_every_other_release() {
        let nodes = [11, 22, 33, 44].map(|id| node(id, HERE, 0.0));
        let firsts: Vec<u64> = (0..12)
            .map(|key| order(client(Some(HERE), key), &nodes)[0])
            .collect();
        assert_eq!(firsts, [22, 22, 44, 44, 33, 33, 11, 33, 44, 22, 11, 33]);
    }

    proptest! {
        #![proptest_config(proptest::test_runner::Config { failure_persistence: None, cases: 128, ..Default::default() })]

        #[test]
        fn every_node_is_ranked_once_in_any_order_of_the_input(
            nodes in proptest::collection::btree_map(any::<u64>(), (0..4_usize, any::<f64>()), 0..12),
            key in any::<u64>(),
        ) {
            let places = ["dc1/a/r1", "dc1/a/r2", "dc1/b/r1", "dc2/a/r1"];
            let mut candidates: Vec<_> = nodes
                .iter()
                .map(|(&id, &(place, load))| node(id, places[place], load))
                .collect();
            let ranked = rank(client(Some(HERE), key), &candidates);
            let mut indices: Vec<_> = ranked.iter().map(|ranked| ranked.index).collect();
            indices.sort_unstable();
            prop_assert_eq!(indices, (0..candidates.len()).collect::<Vec<_>>());
            prop_assert!(ranked.is_sorted_by(|a, b| a.shared_levels >= b.shared_levels));
            let in_bounds = |ranked: &Ranked| (0.0..=1.0).contains(&ranked.weight);
            prop_assert!(ranked.iter().all(in_bounds));
            let forwards = order(client(Some(HERE), key), &candidates);
            candidates.reverse();
            prop_assert_eq!(order(client(Some(HERE), key), &candidates), forwards);
        }

        #[test]
        fn a_node_that_goes_moves_only_its_own_clients(
            ids in proptest::collection::btree_set(any::<u64>(), 2..10),
            key in any::<u64>(),
        ) {
            let candidates: Vec<_> = ids.iter().map(|&id| node(id, HERE, 0.5)).collect();
            let all = order(client(Some(HERE), key), &candidates);
            for gone in &ids {
                let left: Vec<_> = candidates.iter().filter(|one| one.node.0 != *gone).copied().collect();
                let expected: Vec<_> = all.iter().filter(|id| *id != gone).copied().collect();
                prop_assert_eq!(order(client(Some(HERE), key), &left), expected);
            }
        }
    }
}
