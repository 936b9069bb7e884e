//! Storage nodes whose caches evict the same objects: C2P.
//!
//! A node reports events of its blocks to the other nodes that store blocks of the same object. Messages wait
//! up to 200 ms for others to the same node, checked every 50 ms; their transfer takes no time.

use std::time::Duration;

use shoal_policy::NodeId;
use shoal_policy::eviction::C2p;
use shoal_policy::eviction::c2p::{Event, GROUP_BLOCKS};
use shoal_policy::outbox::{AGGREGATION, Limits, Outbox};

use super::solo::Placement;
use super::{Arrival, Cooperation, NodeIndex, Push, Room, Route, Wanted};
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
    nodes: Vec<Node>,
    placement: Placement,
    prefetch: bool,
    /// The sizes of the blocks of every object that was read.
    objects: KeyMap<u32, Vec<u64>>,
}

#[derive(Debug)]
struct Node {
    cache: Cache<C2p<Block>>,
    outbox: Outbox<NodeIndex, Event<Block>>,
}

impl StorageC2p {
    /// Creates `nodes` with `capacity_bytes` each, and `placement` on them. With `prefetch`, a node
    /// fetches the missing blocks of an object when an event of another node shows that it is being read.
    pub fn new(
        nodes: usize,
        placement: Placement,
        capacity_bytes: u64,
        policy: impl Fn() -> C2p<Block>,
        prefetch: bool,
    ) -> Self {
        let node = |_| Node {
            cache: Cache::new(capacity_bytes, Box::new(policy())),
            outbox: Outbox::new(EVENTS_MAX),
        };
        Self {
            nodes: (0..nodes).map(node).collect(),
            placement,
            prefetch,
            objects: KeyMap::default(),
        }
    }

    /// Queues the events of every node for its peers.
    fn gather(&mut self) {
        for index in 0..self.nodes.len() {
            for event in self.nodes[index].cache.policy_mut().take_events() {
                let object = event.key.object;
                let blocks = self.objects.get(&object);
                let blocks = blocks.map_or(0, |sizes| sizes.len() as u32);
                for peer in peers(self.placement, index, event.key, blocks) {
                    // A dropped event costs accuracy only.
                    drop(self.nodes[index].outbox.push(event, peer, event.at));
                }
            }
        }
    }

    fn deliver(&mut self, from: NodeIndex, to: NodeIndex, event: &Event<Block>) -> Vec<Push> {
        let policy = self.nodes[to].cache.policy_mut();
        policy.receive(NodeId(from as u64), event);
        let Some(sizes) = self.objects.get(&event.key.object).filter(|_| self.prefetch) else {
            return Vec::new();
        };
        let missing = policy.missing(event, sizes.len() as u32);
        let first = event.key.index - event.key.index % GROUP_BLOCKS;
        let missing = (0..GROUP_BLOCKS).filter(|place| missing & (1 << place) != 0);
        let missing = missing.map(|place| Block {
            object: event.key.object,
            index: first + place,
        });
        let push = |block: Block| Push {
            block,
            bytes: sizes[block.index as usize],
            from: None,
            to,
        };
        let here = missing.filter(|block| self.placement.node_of(*block) == to);
        here.map(push).collect()
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
        let Wanted {
            node, block, bytes, ..
        } = *wanted;
        let sizes = self.objects.entry(block.object);
        let sizes = sizes.or_insert_with(|| vec![bytes; wanted.object_blocks as usize]);
        sizes[block.index as usize] = bytes;
        if self.nodes[node].cache.serve(wanted) {
            Route::Local
        } else {
            Route::Lake { through: None }
        }
    }

    fn landed(&mut self, arrival: &Arrival) -> Vec<Push> {
        if arrival.route != Route::Local {
            self.nodes[arrival.wanted.node].cache.keep(arrival, |_| ());
        }
        Vec::new()
    }

    fn pushed(&mut self, push: &Push, now: Time) -> Vec<Push> {
        let object_blocks = self.objects[&push.block.object].len() as u32;
        let wanted = Wanted {
            node: push.to,
            block: push.block,
            bytes: push.bytes,
            object_blocks,
            now,
        };
        let route = Route::Lake { through: None };
        let cache = &mut self.nodes[push.to].cache;
        if cache.keep(&Arrival { wanted, route, now }, |_| ()) {
            cache.policy_mut().added(&push.block);
        }
        Vec::new()
    }

    fn joined(&mut self, wanted: &Wanted) {
        self.nodes[wanted.node].cache.serve(wanted);
    }

    fn remove(&mut self, block: Block) {
        let node = self.placement.node_of(block);
        self.nodes[node].cache.remove(block);
    }

    fn period(&self) -> Option<Duration> {
        Some(AGGREGATION / 4)
    }

    fn adapt(&mut self, now: Time) -> Vec<Push> {
        for node in &mut self.nodes {
            node.cache.advance(now);
        }
        self.gather();
        let mut pushes = Vec::new();
        for from in 0..self.nodes.len() {
            for (to, events) in self.nodes[from].outbox.take_due(now.since_start(), |_| true) {
                for event in &events {
                    pushes.extend(self.deliver(from, to, event));
                }
            }
        }
        pushes.sort_unstable_by_key(|push| (push.to, push.block));
        pushes.dedup();
        pushes
    }

    fn room(&self, node: NodeIndex) -> Room {
        self.nodes[node].cache.room()
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

    fn nodes(capacity_bytes: u64, prefetch: bool) -> StorageC2p {
        let policy = || C2p::above(PolicyName::C2p.build_below(), Completeness::Whole);
        StorageC2p::new(NODES, PLACEMENT, capacity_bytes, policy, prefetch)
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
    fn a_miss_makes_the_other_nodes_fetch_their_blocks_when_they_hear_of_it() {
        for prefetch in [false, true] {
            let (mut nodes, [first, second]) = (nodes(40, prefetch), shared());
            read(&mut nodes, first, Time::ZERO);
            assert!(
                nodes.adapt(Time(100_000_000)).is_empty(),
                "messages wait for others"
            );
            let pushes = nodes.adapt(Time(200_000_000));
            assert_eq!(pushes.iter().any(|push| push.block == second), prefetch);
            assert!(pushes.iter().all(|push| push.to == 1 && push.from.is_none()));
            for push in &pushes {
                nodes.pushed(push, Time(300_000_000));
            }
            let expected = if prefetch {
                Route::Local
            } else {
                Route::Lake { through: None }
            };
            assert_eq!(read(&mut nodes, second, Time(400_000_000)), expected);
        }
    }

    #[test]
    fn a_block_whose_object_others_let_go_of_leaves_first() {
        let mut nodes = nodes(20, false);
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
        let held = |block| nodes.nodes[1].cache.contains(block);
        assert!(
            !held(second) && held(other) && held(newcomer),
            "the other one was used longer ago"
        );
    }
}
