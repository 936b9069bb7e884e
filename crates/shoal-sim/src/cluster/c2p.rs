//! Storage nodes whose caches evict the same objects: C2P.
//!
//! A node reports events of its blocks to the other nodes that store blocks of the same object. Messages wait
//! up to 200 ms for others to the same node, checked every 50 ms; their transfer takes no time.

use std::time::Duration;

use shoal_policy::eviction::C2p;
use shoal_policy::eviction::c2p::{AGGREGATION, Event, EventKind, Outbox, Settings};

use super::storage::Placement;
use super::{Arrival, Cooperation, NodeIndex, Push, Room, Route, Wanted};
use crate::block::Block;
use crate::cache::Cache;
use crate::clock::Time;
use crate::hash::NumberMap;

/// The maximum number of events that wait for one node; the paper's nodes send some 70 a second.
const EVENTS_MAX: usize = 1024;

/// Storage nodes with C2P.
#[derive(Debug)]
pub struct StorageC2p {
    nodes: Vec<Node>,
    placement: Placement,
    prefetch: bool,
    /// The number and the sizes of the blocks of every object that was read.
    objects: NumberMap<u32, Object>,
}

#[derive(Debug)]
struct Node {
    cache: Cache<C2p<Block>>,
    outbox: Outbox<NodeIndex, Block>,
}

#[derive(Clone, Debug)]
struct Object {
    block_bytes: Vec<u64>,
}

impl StorageC2p {
    /// Creates `nodes` with `capacity_bytes` each, and `placement` on them. With `prefetch`, a miss of one
    /// node makes the others fetch their blocks of the object.
    pub fn new(
        nodes: usize,
        placement: Placement,
        capacity_bytes: u64,
        settings: Settings,
        prefetch: bool,
    ) -> Self {
        let node = |_| Node {
            cache: Cache::new(capacity_bytes, C2p::new(settings)),
            outbox: Outbox::new(EVENTS_MAX),
        };
        Self {
            nodes: (0..nodes).map(node).collect(),
            placement,
            prefetch,
            objects: NumberMap::default(),
        }
    }

    /// Queues an event of `block` on `node` for the node's peers.
    fn tell(&mut self, node: NodeIndex, block: Block, kind: EventKind, now: Time) {
        let blocks = self
            .objects
            .get(&block.object)
            .map_or(0, |object| object.block_bytes.len() as u32);
        let at = now.since_start();
        let event = Event { at, key: block, kind };
        let peers = peers(self.placement, node, block.object, blocks);
        self.nodes[node].outbox.push(event, peers, at);
    }

    fn take_in(&mut self, arrival: &Arrival, kind: EventKind) {
        let Wanted { node, block, .. } = arrival.wanted;
        let mut left = Vec::new();
        if self.nodes[node].cache.keep(arrival, |victim| left.push(victim)) {
            self.tell(node, block, kind, arrival.now);
        }
        for victim in left {
            self.tell(node, victim, EventKind::Replace, arrival.now);
        }
    }

    fn deliver(&mut self, to: NodeIndex, event: &Event<Block>) -> Vec<Push> {
        self.nodes[to].cache.policy_mut().hear(event);
        let Some(object) = self.objects.get(&event.key.object) else {
            return Vec::new();
        };
        if !self.prefetch {
            return Vec::new();
        }
        let placement = self.placement;
        let blocks = (0..object.block_bytes.len() as u32).map(|index| Block {
            object: event.key.object,
            index,
        });
        let here = blocks.filter(|block| placement.of(*block) == to);
        let push = |block: Block| Push {
            block,
            bytes: object.block_bytes[block.index as usize],
            from: None,
            to,
        };
        let siblings = self.nodes[to].cache.policy().siblings(event, here);
        siblings.into_iter().map(push).collect()
    }
}

/// The other nodes that store blocks of `object`.
fn peers(placement: Placement, node: NodeIndex, object: u32, blocks: u32) -> Vec<NodeIndex> {
    let stored = (0..blocks).map(|index| placement.of(Block { object, index }));
    let mut peers: Vec<_> = stored.filter(|&peer| peer != node).collect();
    peers.sort_unstable();
    peers.dedup();
    peers
}

impl Cooperation for StorageC2p {
    fn answering(&self, _node: NodeIndex, block: Block) -> NodeIndex {
        self.placement.of(block)
    }

    fn route(&mut self, wanted: &Wanted) -> Route {
        let Wanted {
            node,
            block,
            bytes,
            now,
            ..
        } = *wanted;
        let object = self.objects.entry(block.object).or_insert_with(|| Object {
            block_bytes: vec![bytes; wanted.object_blocks as usize],
        });
        object.block_bytes[block.index as usize] = bytes;
        if self.nodes[node].cache.serve(wanted) {
            self.tell(node, block, EventKind::Hit, now);
            Route::Local
        } else {
            Route::Lake { through: None }
        }
    }

    fn landed(&mut self, arrival: &Arrival) -> Vec<Push> {
        if arrival.route != Route::Local {
            self.take_in(arrival, EventKind::Miss);
        }
        Vec::new()
    }

    fn pushed(&mut self, push: &Push, now: Time) -> Vec<Push> {
        let object_blocks = self.objects[&push.block.object].block_bytes.len() as u32;
        let wanted = Wanted {
            node: push.to,
            block: push.block,
            bytes: push.bytes,
            object_blocks,
            now,
        };
        let route = Route::Lake { through: None };
        self.take_in(&Arrival { wanted, route, now }, EventKind::Add);
        Vec::new()
    }

    fn joined(&mut self, wanted: &Wanted) {
        self.nodes[wanted.node].cache.serve(wanted);
    }

    fn remove(&mut self, block: Block) {
        let node = self.placement.of(block);
        self.nodes[node].cache.remove(block);
    }

    fn period(&self) -> Option<Duration> {
        Some(AGGREGATION / 4)
    }

    fn adapt(&mut self, now: Time) -> Vec<Push> {
        let mut pushes = Vec::new();
        for from in 0..self.nodes.len() {
            for (to, events) in self.nodes[from].outbox.take_due(now.since_start()) {
                self.nodes[to].cache.advance(now);
                for event in &events {
                    pushes.extend(self.deliver(to, event));
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
    use shoal_policy::eviction::c2p::{Reads, Settings};

    use super::super::storage::Placement;
    use super::super::{Arrival, Cooperation, Route, Wanted};
    use super::StorageC2p;
    use crate::block::Block;
    use crate::clock::Time;

    const NODES: usize = 2;
    const PLACEMENT: Placement = Placement::new(NODES, 1);

    fn nodes(prefetch: bool) -> StorageC2p {
        let settings = Settings {
            reads: Reads::Whole,
            ..Settings::default()
        };
        StorageC2p::new(NODES, PLACEMENT, 40, settings, prefetch)
    }

    fn wanted(block: Block, now: Time) -> Wanted {
        Wanted {
            node: PLACEMENT.of(block),
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
                .find(|&b| PLACEMENT.of(b) == node)
        };
        let found = (0..100).find_map(|object| Some([on(object, 0)?, on(object, 1)?]));
        found.expect("some object is on both nodes")
    }

    #[test]
    fn a_miss_makes_the_other_nodes_fetch_their_blocks_when_they_hear_of_it() {
        for prefetch in [false, true] {
            let (mut nodes, [first, second]) = (nodes(prefetch), shared());
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
        let mut nodes = StorageC2p::new(
            NODES,
            PLACEMENT,
            20,
            Settings {
                reads: Reads::Whole,
                ..Settings::default()
            },
            false,
        );
        let [first, second] = shared();
        let stored_on = |node| {
            let blocks = (first.object + 1..100).map(|object| Block { object, index: 0 });
            blocks.filter(move |&block| PLACEMENT.of(block) == node)
        };
        let [other, newcomer] = [0, 1].map(|nth| stored_on(1).nth(nth).unwrap());
        read(&mut nodes, other, Time::ZERO);
        read(&mut nodes, first, Time(1));
        read(&mut nodes, second, Time(2));
        // Two other blocks evict the first block from node 0, and node 0 tells node 1.
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
