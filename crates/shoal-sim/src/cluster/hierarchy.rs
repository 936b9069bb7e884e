//! Two layers (D3N, dissertation 4.4): L1 holds what a node's own clients read, L2 what has its home on the node, for all of them.
//!
//! A node divides its room between the two, for good or anew every period ([`shoal_policy::partition`]). Layers do not overlap: a block
//! that is at home on a node is L2's there, whoever reads it, so that it is stored once. A block that comes from the lake
//! is kept by its home and by the reader.

use std::time::Duration;

use shoal_policy::NodeId;
use shoal_policy::mrc::{Reach, ReuseDistances};
use shoal_policy::partition::{self, Demand, MissLatency, adaptation_limit};
use shoal_policy::ring::{ORDINARY_WEIGHT, Ring};

use super::{Arrival, Cooperation, NodeIndex, Push, Room, Route, Wanted};
use crate::block::Block;
use crate::cache::Cache;
use crate::clock::Time;
use crate::hash::NumberSet;
use crate::policy::{AnyPolicy, PolicyName};

/// How the room of a node is divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// L1's share at the start: 0 is "L2 only".
    pub l1_share: f64,
    /// How often it is divided anew; never when it is none.
    pub period: Option<Duration>,
    /// How much of the room may change its layer at once; the policy's own limit when it is none.
    pub limit: Option<f64>,
}

/// Nodes in two layers.
#[derive(Debug)]
pub struct Hierarchy {
    nodes: Vec<Layers>,
    ring: Ring,
    split: Split,
}

#[derive(Debug)]
struct Layers {
    l1: Layer,
    l2: Layer,
}

/// A layer of a node, and what it would take to divide the room anew.
#[derive(Debug)]
struct Layer {
    cache: Cache<AnyPolicy>,
    distances: ReuseDistances,
    misses: MissLatency,
    /// Blocks on their way whose last use is known: only such misses are timed.
    known: NumberSet<Block>,
}

impl Hierarchy {
    /// `nodes` with `capacity_bytes` each; no block is larger than `block_bytes`.
    pub fn new(
        nodes: usize,
        capacity_bytes: u64,
        block_bytes: u64,
        split: Split,
        policy: PolicyName,
    ) -> Self {
        assert!(
            (0.0..=1.0).contains(&split.l1_share),
            "a share is between 0 and 1"
        );
        #[expect(clippy::cast_sign_loss, reason = "a share is not negative")]
        let l1_bytes = ((capacity_bytes as f64 * split.l1_share).round() as u64).min(capacity_bytes);
        let reach = Reach::of_full_blocks(capacity_bytes.max(block_bytes), block_bytes);
        let layer = |bytes| Layer {
            cache: Cache::new(bytes, policy.build()),
            distances: ReuseDistances::sampled(reach),
            misses: MissLatency::default(),
            known: NumberSet::default(),
        };
        let layers = |_| Layers {
            l1: layer(l1_bytes),
            l2: layer(capacity_bytes - l1_bytes),
        };
        let ids = (0..nodes as u64).map(|node| (NodeId(node), ORDINARY_WEIGHT));
        Self {
            nodes: (0..nodes).map(layers).collect(),
            ring: Ring::new(ids.collect()),
            split,
        }
    }

    fn home(&self, block: Block) -> NodeIndex {
        let NodeId(node) = self
            .ring
            .home(block.fingerprint())
            .expect("a ring with nodes has a home for all");
        node as NodeIndex
    }
}

impl Layer {
    /// A request to the layer; whether it holds the block.
    fn request(&mut self, wanted: &Wanted) -> bool {
        let known = self
            .distances
            .record(wanted.block.fingerprint(), wanted.bytes)
            .is_some();
        let hit = self.cache.serve(wanted);
        if known && !hit {
            self.known.insert(wanted.block);
        }
        hit
    }

    /// A miss of the layer has come.
    fn landed(&mut self, arrival: &Arrival) {
        // Others miss at any size: what they cost says nothing about what room would save.
        if self.known.remove(&arrival.wanted.block) {
            self.misses.record(arrival.now - arrival.wanted.now);
        }
        self.cache.keep(arrival, |_| ());
    }

    fn decay(&mut self) {
        self.distances.decay();
        self.misses.decay();
    }
}

impl Layers {
    fn adapt(&mut self, limit: Option<f64>) {
        let curves = [self.l1.distances.curve(), self.l2.distances.curve()];
        let demand = |layer: &Layer, curve| Demand {
            curve,
            miss_latency: layer.misses.mean(),
            size_bytes: layer.cache.capacity_bytes(),
        };
        let demands = [demand(&self.l1, &curves[0]), demand(&self.l2, &curves[1])];
        let capacity_bytes = demands[0].size_bytes + demands[1].size_bytes;
        #[expect(clippy::cast_sign_loss, reason = "a share is not negative")]
        let limit_bytes = limit.map_or_else(
            || adaptation_limit(capacity_bytes),
            |share| (capacity_bytes as f64 * share) as u64,
        );
        let sizes = partition::adapt(&demands, limit_bytes);
        // Who shrinks goes first, so that both never hold more than there is.
        let mut layers = [(&mut self.l1, sizes[0]), (&mut self.l2, sizes[1])];
        layers.sort_by_key(|(layer, bytes)| *bytes > layer.cache.capacity_bytes());
        for (layer, bytes) in layers {
            layer.cache.resize(bytes);
            layer.decay();
        }
    }
}

impl Cooperation for Hierarchy {
    fn route(&mut self, wanted: &Wanted) -> Route {
        let home = self.home(wanted.block);
        if home == wanted.node {
            return if self.nodes[home].l2.request(wanted) {
                Route::Local
            } else {
                Route::Lake { through: None }
            };
        }
        if self.nodes[wanted.node].l1.request(wanted) {
            Route::Local
        } else if self.nodes[home].l2.request(wanted) {
            Route::Peer { from: home }
        } else {
            Route::Lake { through: Some(home) }
        }
    }

    fn landed(&mut self, arrival: &Arrival) -> Vec<Push> {
        let home = self.home(arrival.wanted.block);
        if matches!(arrival.route, Route::Lake { .. }) {
            self.nodes[home].l2.landed(arrival);
        }
        if home != arrival.wanted.node {
            self.nodes[arrival.wanted.node].l1.landed(arrival);
        }
        Vec::new()
    }

    fn joined(&mut self, wanted: &Wanted) {
        let layers = &mut self.nodes[wanted.node];
        // It is in one of them, or was refused.
        let _held = layers.l1.cache.serve(wanted) || layers.l2.cache.serve(wanted);
    }

    fn remove(&mut self, block: Block) {
        for layers in &mut self.nodes {
            layers.l1.cache.remove(block);
            layers.l2.cache.remove(block);
        }
    }

    fn period(&self) -> Option<Duration> {
        self.split.period
    }

    fn adapt(&mut self, _now: Time) -> Vec<Push> {
        for layers in &mut self.nodes {
            layers.adapt(self.split.limit);
        }
        Vec::new()
    }

    fn room(&self, node: NodeIndex) -> Room {
        let Layers { l1, l2 } = &self.nodes[node];
        Room {
            l1_capacity_bytes: l1.cache.capacity_bytes(),
            l1_used_bytes: l1.cache.used_bytes(),
            l2_capacity_bytes: l2.cache.capacity_bytes(),
            l2_used_bytes: l2.cache.used_bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Arrival, Cooperation, Route, Wanted};
    use super::{Hierarchy, Split};
    use crate::block::Block;
    use crate::chance::Chance;
    use crate::clock::Time;
    use crate::policy::PolicyName;

    /// `readers` read any of `objects`, for twenty periods; the room of L1 and L2 on node 0 then. A block takes `peer_ms` between
    /// nodes and `lake_ms` from the lake.
    fn adapted(readers: &[usize], objects: u64, peer_ms: u64, lake_ms: u64) -> (u64, u64) {
        let split = Split {
            l1_share: 0.5,
            period: Some(Duration::from_secs(90)),
            limit: None,
        };
        let mut nodes = Hierarchy::new(2, 10_000, 10, split, PolicyName::Lru);
        let mut chance = Chance::new(1);
        for _ in 0..20 {
            for _ in 0..3_000 {
                for &node in readers {
                    let object = chance.below(objects) as u32;
                    read(&mut nodes, node, object, peer_ms, lake_ms);
                }
            }
            nodes.adapt(Time::ZERO);
        }
        let room = nodes.room(0);
        assert_eq!(room.l1_capacity_bytes + room.l2_capacity_bytes, 10_000);
        assert!(room.l1_used_bytes <= room.l1_capacity_bytes && room.l2_used_bytes <= room.l2_capacity_bytes);
        (room.l1_capacity_bytes, room.l2_capacity_bytes)
    }

    fn read(nodes: &mut Hierarchy, node: usize, object: u32, peer_ms: u64, lake_ms: u64) {
        let wanted = Wanted {
            node,
            block: Block { object, index: 0 },
            bytes: 10,
            object_blocks: 1,
            now: Time::ZERO,
        };
        let route = nodes.route(&wanted);
        let took_ms = match route {
            Route::Local => return,
            Route::Peer { .. } => peer_ms,
            Route::Lake { through: None } => lake_ms,
            Route::Lake { through: Some(_) } => peer_ms + lake_ms,
        };
        let now = Time::ZERO + Duration::from_millis(took_ms);
        nodes.landed(&Arrival { wanted, route, now });
    }

    #[test]
    fn room_goes_to_l2_while_the_lake_is_far() {
        // 1,900 blocks are more than one node holds and less than both: kept once each, none comes from the lake.
        let (_, l2) = adapted(&[0, 1], 1_900, 10, 100);
        assert!(l2 > 9_000, "L2 has {l2}");
    }

    #[test]
    fn room_goes_to_l1_while_the_way_between_nodes_is_congested() {
        let (l1, _) = adapted(&[0, 1], 1_900, 1_000, 10);
        assert!(l1 > 9_000, "L1 has {l1}");
    }

    #[test]
    fn a_node_nobody_asks_stays_as_it_is() {
        assert_eq!(adapted(&[], 100, 10, 100), (5_000, 5_000));
    }
}
