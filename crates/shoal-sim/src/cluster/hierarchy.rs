//! Two layers (D3N, dissertation 4.4): L1 holds blocks that a node's own clients read; L2 holds blocks whose
//! home is the node, for all nodes.
//!
//! A node divides its room between the two, once or again every period ([`shoal_policy::partition`]).
//! Layers do not overlap: a block at home on a node is in its L2, whichever client reads it, so that it is
//! stored once. A block that comes from the lake is kept by its home and by the reader's node.

use std::time::Duration;

use shoal_policy::eviction::Named;
use shoal_policy::mrc::{Reach, ReuseDistances};
use shoal_policy::partition::{Pace, Partition};
use shoal_policy::ring::{ORDINARY_WEIGHT, Ring};
use shoal_policy::{Layer, NodeId};

use super::{Arrival, Cooperation, NodeIndex, Push, Room, Route, Wanted};
use crate::block::Block;
use crate::cache::Cache;
use crate::clock::Time;
use crate::policy::PolicyName;
use shoal_policy::hash::KeyMap;

/// How the room of a node is divided.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Split {
    /// Fixed: this share is L1's. 0 is "L2 only".
    Fixed(f64),
    /// Adapted after every period, starting with equal parts.
    Adaptive {
        /// The length of a period.
        period: Duration,
        /// Maximum share of the room that changes its layer at once; `None` is a twentieth, as in D3N.
        limit_share: Option<f64>,
    },
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
    l1: Cache<Named<Block>>,
    l2: Cache<Named<Block>>,
    /// `Some` if the split is adaptive.
    partition: Option<Partition>,
    /// Unanswered misses that are timed, and their start.
    known: KeyMap<(u8, Block), Time>,
}

impl Hierarchy {
    /// Creates `nodes` with `capacity_bytes` each; no block is larger than `block_bytes`.
    pub fn new(
        nodes: usize,
        capacity_bytes: u64,
        block_bytes: u64,
        split: Split,
        policy: PolicyName,
    ) -> Self {
        let reach = Reach::of_full_blocks(capacity_bytes.max(block_bytes), block_bytes);
        let layers = |_| {
            let (partition, l1_bytes) = match split {
                #[expect(clippy::cast_sign_loss, reason = "a share is between 0 and 1")]
                Split::Fixed(share) => (None, (capacity_bytes as f64 * share).round() as u64),
                Split::Adaptive { .. } => {
                    let distances = [Layer::L1, Layer::L2].map(|_| ReuseDistances::sampled(reach));
                    let partition = Partition::even(capacity_bytes, distances.into());
                    let l1_bytes = partition.size_bytes(Layer::L1);
                    (Some(partition), l1_bytes)
                }
            };
            Layers {
                l1: Cache::new(l1_bytes, policy.build()),
                l2: Cache::new(capacity_bytes.saturating_sub(l1_bytes), policy.build()),
                partition,
                known: KeyMap::default(),
            }
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

impl Layers {
    const fn cache(&mut self, layer: Layer) -> &mut Cache<Named<Block>> {
        match layer {
            Layer::L1 => &mut self.l1,
            _ => &mut self.l2,
        }
    }

    /// Requests a block from a layer. Returns true if the layer holds it.
    fn request(&mut self, layer: Layer, wanted: &Wanted) -> bool {
        let hit = self.cache(layer).serve(wanted);
        if let Some(partition) = &mut self.partition {
            let known = partition.requested(layer, wanted.block.fingerprint(), wanted.bytes);
            if known && !hit {
                self.known.entry((layer.0, wanted.block)).or_insert(wanted.now);
            }
        }
        hit
    }

    /// Records that a miss of a layer was answered.
    fn landed(&mut self, layer: Layer, arrival: &Arrival) {
        let since = self.known.remove(&(layer.0, arrival.wanted.block));
        if let (Some(partition), Some(since)) = (&mut self.partition, since) {
            partition.missed(layer, arrival.now - since);
        }
        self.cache(layer).keep(arrival, |_| ());
    }

    /// The total time that the timed, unanswered misses of `layer` have waited by `now`.
    fn unanswered(&self, layer: Layer, now: Time) -> Duration {
        let known = self.known.iter().filter(|((missed, _), _)| *missed == layer.0);
        known.map(|(_, &since)| now - since).sum()
    }

    fn adapt(&mut self, limit_share: Option<f64>, now: Time) {
        let capacity_bytes = self.l1.capacity_bytes() + self.l2.capacity_bytes();
        let mut pace = Pace::published(capacity_bytes);
        #[expect(clippy::cast_sign_loss, reason = "a share is between 0 and 1")]
        if let Some(share) = limit_share {
            pace.limit_bytes = (capacity_bytes as f64 * share) as u64;
        }
        let unanswered = [Layer::L1, Layer::L2].map(|layer| self.unanswered(layer, now));
        let Some(partition) = &mut self.partition else {
            return;
        };
        partition.adapt(pace, &unanswered);
        let sizes = [Layer::L1, Layer::L2].map(|layer| (layer, partition.size_bytes(layer)));
        for (layer, bytes) in sizes {
            self.cache(layer).resize(bytes);
        }
    }
}

impl Cooperation for Hierarchy {
    fn route(&mut self, wanted: &Wanted) -> Route {
        let home = self.home(wanted.block);
        if home == wanted.node {
            return if self.nodes[home].request(Layer::L2, wanted) {
                Route::Local
            } else {
                Route::Lake { through: None }
            };
        }
        if self.nodes[wanted.node].request(Layer::L1, wanted) {
            Route::Local
        } else if self.nodes[home].request(Layer::L2, wanted) {
            Route::Peer { from: home }
        } else {
            Route::Lake { through: Some(home) }
        }
    }

    fn filled(&mut self, home: NodeIndex, arrival: &Arrival) {
        self.nodes[home].landed(Layer::L2, arrival);
    }

    fn landed(&mut self, arrival: &Arrival) -> Vec<Push> {
        let layer = match arrival.route {
            Route::Lake { through: None } => Layer::L2,
            _ => Layer::L1,
        };
        self.nodes[arrival.wanted.node].landed(layer, arrival);
        Vec::new()
    }

    fn joined(&mut self, wanted: &Wanted) {
        let layers = &mut self.nodes[wanted.node];
        // The block is in one of them, or was refused.
        let _held = layers.l1.serve(wanted) || layers.l2.serve(wanted);
    }

    fn remove(&mut self, block: Block) {
        for layers in &mut self.nodes {
            layers.l1.remove(block);
            layers.l2.remove(block);
        }
    }

    fn period(&self) -> Option<Duration> {
        match self.split {
            Split::Fixed(_) => None,
            Split::Adaptive { period, .. } => Some(period),
        }
    }

    fn adapt(&mut self, now: Time) -> Vec<Push> {
        if let Split::Adaptive { limit_share, .. } = self.split {
            for layers in &mut self.nodes {
                layers.adapt(limit_share, now);
            }
        }
        Vec::new()
    }

    fn room(&self, node: NodeIndex) -> Room {
        let Layers { l1, l2, .. } = &self.nodes[node];
        Room {
            l1_capacity_bytes: l1.capacity_bytes(),
            l1_used_bytes: l1.used_bytes(),
            l2_capacity_bytes: l2.capacity_bytes(),
            l2_used_bytes: l2.used_bytes(),
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

    /// Lets `readers` read random `objects` for twenty periods. Returns the room of L1 and L2 on node 0 at
    /// the end. A block takes `peer_ms` between nodes and `lake_ms` from the lake.
    fn adapted(readers: &[usize], objects: u64, peer_ms: u64, lake_ms: u64) -> (u64, u64) {
        let split = Split::Adaptive {
            period: Duration::from_secs(90),
            limit_share: None,
        };
        let mut nodes = Hierarchy::new(2, 10_000, 10, split, PolicyName::LRU);
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
        let after = |millis| Time::ZERO + Duration::from_millis(millis);
        if let Route::Lake { through: Some(home) } = route {
            let now = after(lake_ms);
            nodes.filled(home, &Arrival { wanted, route, now });
        }
        let now = after(took_ms);
        nodes.landed(&Arrival { wanted, route, now });
    }

    #[test]
    fn room_goes_to_l2_while_the_lake_is_far() {
        // 1,900 blocks are more than one node holds and less than both hold: kept once each, none comes from
        // the lake.
        let (_, l2) = adapted(&[0, 1], 1_900, 10, 100);
        assert!(l2 > 9_000, "L2 has {l2}");
    }

    #[test]
    fn room_goes_to_l1_while_the_way_between_nodes_is_congested() {
        let (l1, _) = adapted(&[0, 1], 1_900, 1_000, 10);
        assert!(l1 > 9_000, "L1 has {l1}");
    }

    #[test]
    fn only_misses_that_more_room_would_save_are_timed() {
        // One node, whose L2 is the home of all blocks: one block fits, and the last two are remembered.
        let split = Split::Adaptive {
            period: Duration::from_secs(90),
            limit_share: None,
        };
        let mut nodes = Hierarchy::new(1, 20, 10, split, PolicyName::LRU);
        let wanted = |object| Wanted {
            node: 0,
            block: Block { object, index: 0 },
            bytes: 10,
            object_blocks: 1,
            now: Time::ZERO,
        };
        nodes.route(&wanted(0));
        assert!(nodes.nodes[0].known.is_empty(), "a first use misses at any size");
        read(&mut nodes, 0, 0, 1, 1);
        read(&mut nodes, 0, 1, 1, 1);
        nodes.route(&wanted(0));
        assert_eq!(nodes.nodes[0].known.len(), 1);
        read(&mut nodes, 0, 0, 1, 1);
        assert!(nodes.nodes[0].known.is_empty(), "it has been timed");
    }

    #[test]
    fn a_node_without_requests_stays_as_it_is() {
        assert_eq!(adapted(&[], 100, 10, 100), (5_000, 5_000));
    }
}
