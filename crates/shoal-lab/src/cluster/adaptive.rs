//! Nodes in two layers that divide their room again every period ([`shoal_policy::partition`]), beginning
//! with equal parts.

use std::time::Duration;

use shoal_policy::Layer;
use shoal_policy::eviction::Eviction;
use shoal_policy::hash::KeyMap;
use shoal_policy::mrc::{Reach, ReuseDistances};
use shoal_policy::partition::{Pace, Partition};
use shoal_sim::block::Block;
use shoal_sim::cluster::{Arrival, Cooperation, Hierarchy, NodeIndex, Push, Route, Wanted};
use shoal_sim::{Cache, Time};

use super::{Room, Simulated};

/// Nodes in two layers, whose sizes adapt.
pub(super) struct Adaptive {
    nodes: Hierarchy,
    splits: Vec<Split>,
    /// The length of a period.
    period: Duration,
    /// The room of a node.
    capacity_bytes: u64,
    /// Maximum share of the room that changes its layer at once; `None` is a twentieth, as in D3N.
    limit_share: Option<f64>,
}

/// How the room of one node is divided.
struct Split {
    partition: Partition,
    /// Unanswered misses that are timed, and their start.
    known: KeyMap<(u8, Block), Time>,
}

impl Adaptive {
    /// Lets these nodes, with `capacity_bytes` each, adapt every `period`; no block is larger than
    /// `block_bytes`.
    pub(super) fn new(
        nodes: Hierarchy,
        capacity_bytes: u64,
        block_bytes: u64,
        period: Duration,
        limit_share: Option<f64>,
    ) -> Self {
        let reach = Reach::of_full_blocks(capacity_bytes.max(block_bytes), block_bytes);
        let split = |_| {
            let distances = [Layer::L1, Layer::L2].map(|_| ReuseDistances::sampled(reach));
            Split {
                partition: Partition::even(capacity_bytes, distances.into()),
                known: KeyMap::default(),
            }
        };
        let mut adaptive = Self {
            splits: nodes.nodes.iter().map(split).collect(),
            nodes,
            period,
            capacity_bytes,
            limit_share,
        };
        adaptive.resize();
        adaptive
    }

    /// Gives each layer the room that its partition says.
    fn resize(&mut self) {
        for (layers, split) in self.nodes.nodes.iter_mut().zip(&self.splits) {
            resize(&mut layers.l1, split.partition.size_bytes(Layer::L1));
            resize(&mut layers.l2, split.partition.size_bytes(Layer::L2));
        }
    }

    /// Records the request for a block to a layer of a node, and whether the layer holds it.
    fn requested(&mut self, node: NodeIndex, layer: Layer, hit: bool, wanted: &Wanted) {
        let Split { partition, known } = &mut self.splits[node];
        let is_known = partition.requested(layer, wanted.block.fingerprint(), wanted.bytes);
        if is_known && !hit {
            known.entry((layer.0, wanted.block)).or_insert(wanted.now);
        }
    }

    /// Records that a miss of a layer of a node was answered.
    fn answered(&mut self, node: NodeIndex, layer: Layer, arrival: &Arrival) {
        let Split { partition, known } = &mut self.splits[node];
        if let Some(since) = known.remove(&(layer.0, arrival.wanted.block)) {
            partition.missed(layer, arrival.now - since);
        }
    }
}

/// Changes the room of a cache; blocks that no longer fit leave.
fn resize<P: Eviction<Block> + ?Sized>(Cache { residency }: &mut Cache<P>, capacity_bytes: u64) {
    while residency.room().used_bytes() > capacity_bytes {
        let victim = residency.evict(&mut |_| true);
        residency.left(victim.expect("a cache that holds something has a victim"));
    }
    residency.resize(capacity_bytes);
}

impl Split {
    /// The total time that the timed, unanswered misses of `layer` have waited by `now`.
    fn unanswered(&self, layer: Layer, now: Time) -> Duration {
        let known = self.known.iter().filter(|((missed, _), _)| *missed == layer.0);
        known.map(|(_, &since)| now - since).sum()
    }
}

impl Cooperation for Adaptive {
    fn route(&mut self, wanted: &Wanted) -> Route {
        let (home, route) = (self.nodes.home(wanted.block), self.nodes.route(wanted));
        let is_local = route == Route::Local;
        if home == wanted.node {
            self.requested(home, Layer::L2, is_local, wanted);
        } else {
            self.requested(wanted.node, Layer::L1, is_local, wanted);
            if !is_local {
                self.requested(home, Layer::L2, route == Route::Peer { from: home }, wanted);
            }
        }
        route
    }

    fn filled(&mut self, home: NodeIndex, arrival: &Arrival) {
        self.answered(home, Layer::L2, arrival);
        self.nodes.filled(home, arrival);
    }

    fn landed(&mut self, arrival: &Arrival) -> Vec<Push> {
        let layer = match arrival.route {
            Route::Lake { through: None } => Layer::L2,
            _ => Layer::L1,
        };
        self.answered(arrival.wanted.node, layer, arrival);
        self.nodes.landed(arrival)
    }

    fn remove(&mut self, block: Block) {
        self.nodes.remove(block);
    }

    fn period(&self) -> Option<Duration> {
        Some(self.period)
    }

    fn adapt(&mut self, now: Time) -> Vec<Push> {
        let mut pace = Pace::published(self.capacity_bytes);
        #[expect(clippy::cast_sign_loss, reason = "a share is between 0 and 1")]
        if let Some(share) = self.limit_share {
            pace.limit_bytes = (self.capacity_bytes as f64 * share) as u64;
        }
        for split in &mut self.splits {
            let unanswered = [Layer::L1, Layer::L2].map(|layer| split.unanswered(layer, now));
            split.partition.adapt(pace, &unanswered);
        }
        self.resize();
        Vec::new()
    }
}

impl Simulated for Adaptive {
    fn joined(&mut self, wanted: &Wanted) {
        self.nodes.joined(wanted);
    }

    fn room(&self, node: NodeIndex) -> Room {
        self.nodes.room(node)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shoal_base::seeded::Chance;
    use shoal_sim::Time;
    use shoal_sim::block::Block;
    use shoal_sim::cluster::{Arrival, Cooperation, Hierarchy, Route, Wanted};
    use shoal_sim::policy::PolicyName;

    use super::Adaptive;
    use crate::cluster::Simulated as _;

    /// Nodes with `capacity_bytes` each, for blocks of ten bytes, that adapt every 90 seconds.
    fn adaptive(nodes: usize, capacity_bytes: u64) -> Adaptive {
        let layers = Hierarchy::new(nodes, capacity_bytes, 0.5, PolicyName::LRU);
        Adaptive::new(layers, capacity_bytes, 10, Duration::from_secs(90), None)
    }

    /// Lets `readers` read random `objects` for twenty periods. Returns the room of L1 and L2 on node 0 at
    /// the end. A block takes `peer_ms` between nodes and `lake_ms` from the lake.
    fn adapted(readers: &[usize], objects: u64, peer_ms: u64, lake_ms: u64) -> (u64, u64) {
        let mut nodes = adaptive(2, 10_000);
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

    fn read(nodes: &mut Adaptive, node: usize, object: u32, peer_ms: u64, lake_ms: u64) {
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
        let mut nodes = adaptive(1, 20);
        let wanted = |object| Wanted {
            node: 0,
            block: Block { object, index: 0 },
            bytes: 10,
            object_blocks: 1,
            now: Time::ZERO,
        };
        nodes.route(&wanted(0));
        assert!(nodes.splits[0].known.is_empty(), "a first use misses at any size");
        read(&mut nodes, 0, 0, 1, 1);
        read(&mut nodes, 0, 1, 1, 1);
        nodes.route(&wanted(0));
        assert_eq!(nodes.splits[0].known.len(), 1);
        read(&mut nodes, 0, 0, 1, 1);
        assert!(nodes.splits[0].known.is_empty(), "it has been timed");
    }

    #[test]
    fn a_node_without_requests_stays_as_it_is() {
        assert_eq!(adapted(&[], 100, 10, 100), (5_000, 5_000));
    }
}
