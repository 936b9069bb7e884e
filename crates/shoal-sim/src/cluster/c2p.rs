//! Storage nodes whose caches evict the same objects: C2P.
//!
//! A node reports events of its blocks to the other nodes that store blocks of the same object. Messages wait
//! up to 200 ms for others to the same node, and urgent ones until the next check, every 50 ms; their
//! transfer takes no time.

use std::time::Duration;

use shoal_policy::NodeId;
use shoal_policy::eviction::C2p;
use shoal_policy::eviction::c2p::{Event, GROUP_BLOCKS};
use shoal_policy::outbox::{AGGREGATION, Limits, Outbox};

use super::solo::Placement;
use super::{Arrival, Cooperation, NodeIndex, Push, Route, Wanted};
use crate::block::Block;
use crate::cache::Cache;
use crate::clock::Time;
use shoal_policy::hash::KeyMap;

/// The maximum number of events that wait for one node; the paper's nodes send some 70 a second.
const EVENTS_MAX: Limits = Limits {
    batch_bytes: 1024,
    waiting_bytes: 1024,
};

/// Storage nodes with C2P.
#[derive(Debug)]
pub struct StorageC2p {
    /// The cache of each node.
    pub caches: Vec<Cache<C2p<Block>>>,
    outboxes: Vec<Outbox<NodeIndex, Event<Block>>>,
    placement: Placement,
    /// The number of blocks of every object that was read.
    objects: KeyMap<u32, u32>,
}

impl StorageC2p {
    /// Creates `nodes` with `capacity_bytes` each, and `placement` on them.
    pub fn new(
        nodes: usize,
        placement: Placement,
        capacity_bytes: u64,
        policy: impl Fn() -> C2p<Block>,
    ) -> Self {
        Self {
            caches: (0..nodes)
                .map(|_| Cache::new(capacity_bytes, Box::new(policy())))
                .collect(),
            outboxes: (0..nodes).map(|_| Outbox::new(EVENTS_MAX)).collect(),
            placement,
            objects: KeyMap::default(),
        }
    }

    /// Delivers the events that are due, and calls `received` after each, with the node that has received it.
    pub fn exchange(&mut self, now: Time, mut received: impl FnMut(NodeIndex, &C2p<Block>, &Event<Block>)) {
        for cache in &mut self.caches {
            cache.advance(now);
        }
        self.gather();
        for (from, outbox) in self.outboxes.iter_mut().enumerate() {
            for (to, events) in outbox.take_due(now.since_start(), |_| true) {
                let policy = self.caches[to].residency.policy_mut();
                for event in &events {
                    policy.receive(NodeId(from as u64), event);
                    received(to, policy, event);
                }
            }
        }
    }

    /// Queues the events of every node for its peers.
    fn gather(&mut self) {
        for (index, cache) in self.caches.iter_mut().enumerate() {
            for event in cache.residency.policy_mut().take_events() {
                let blocks = self.objects.get(&event.key.object).copied().unwrap_or(0);
                for peer in peers(self.placement, index, event.key, blocks) {
                    // A dropped event costs accuracy only.
                    drop(self.outboxes[index].push(event, peer, event.at));
                }
            }
        }
    }
}

/// The other nodes that store blocks of the group of a block, whose object has `blocks` blocks.
fn peers(placement: Placement, node: NodeIndex, block: Block, blocks: u32) -> Vec<NodeIndex> {
    let first = block.index - block.index % GROUP_BLOCKS;
    let group = first..blocks.min(first + GROUP_BLOCKS);
    let stored = group.map(|index| placement.node_of(Block { index, ..block }));
    let mut peers: Vec<_> = stored.filter(|&peer| peer != node).collect();
    peers.sort_unstable();
    peers.dedup();
    peers
}

impl Cooperation for StorageC2p {
    fn answering(&self, _node: NodeIndex, block: Block) -> NodeIndex {
        self.placement.node_of(block)
    }

    fn route(&mut self, wanted: &Wanted) -> Route {
        let object = self.objects.entry(wanted.block.object);
        object.or_insert(wanted.object_blocks);
        if self.caches[wanted.node].serve(wanted) {
            Route::Local
        } else {
            Route::Lake { through: None }
        }
    }

    fn landed(&mut self, arrival: &Arrival) -> Vec<Push> {
        if arrival.route != Route::Local {
            self.caches[arrival.wanted.node].keep(arrival, |_| ());
        }
        Vec::new()
    }

    fn remove(&mut self, block: Block) {
        let node = self.placement.node_of(block);
        self.caches[node].remove(block);
    }

    fn period(&self) -> Option<Duration> {
        Some(AGGREGATION / 4)
    }

    fn adapt(&mut self, now: Time) -> Vec<Push> {
        self.exchange(now, |_, _, _| ());
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use shoal_policy::eviction::c2p::Completeness;
    use shoal_policy::eviction::{C2p, PolicyName};

    use super::super::solo::Placement;
    use super::super::{Arrival, Cooperation, Route, Wanted};
    use super::StorageC2p;
    use crate::block::Block;
    use crate::clock::Time;

    const NODES: usize = 2;
    const PLACEMENT: Placement = Placement::new(NODES, 1);

    fn nodes(capacity_bytes: u64) -> StorageC2p {
        let policy = || C2p::above(PolicyName::C2p.build_below(), Completeness::Whole);
        StorageC2p::new(NODES, PLACEMENT, capacity_bytes, policy)
    }

    fn wanted(block: Block, now: Time) -> Wanted {
        Wanted {
            node: PLACEMENT.node_of(block),
            block,
            bytes: 10,
            object_blocks: 4,
            now,
        }
    }

    fn read(nodes: &mut StorageC2p, block: Block, now: Time) -> Route {
        let wanted = wanted(block, now);
        let route = nodes.route(&wanted);
        nodes.landed(&Arrival { wanted, route, now });
        route
    }

    /// An object of four blocks that both nodes store, and one block on each.
    fn shared() -> [Block; 2] {
        let on = |object, node| {
            (0..4)
                .map(move |index| Block { object, index })
                .find(|&b| PLACEMENT.node_of(b) == node)
        };
        let found = (0..100).find_map(|object| Some([on(object, 0)?, on(object, 1)?]));
        found.expect("some object is on both nodes")
    }

    #[test]
    fn a_block_whose_object_others_let_go_of_leaves_first() {
        let mut nodes = nodes(20);
        let [first, second] = shared();
        let stored_on = |node| {
            let blocks = (first.object + 1..100).map(|object| Block { object, index: 0 });
            blocks.filter(move |&block| PLACEMENT.node_of(block) == node)
        };
        let [other, newcomer] = [0, 1].map(|nth| stored_on(1).nth(nth).unwrap());
        read(&mut nodes, other, Time::ZERO);
        read(&mut nodes, first, Time(1));
        read(&mut nodes, second, Time(2));
        // Two other blocks evict the first block from node 0, and node 0 sends that to node 1.
        stored_on(0).take(2).for_each(|block| {
            read(&mut nodes, block, Time(3));
        });
        nodes.adapt(Time(300_000_000));
        read(&mut nodes, newcomer, Time(300_000_001));
        let held = |block| nodes.caches[1].contains(block);
        assert!(
            !held(second) && held(other) && held(newcomer),
            "the other one was used longer ago"
        );
    }
}
