//! Storage nodes with C2P that fetch ahead: when an event of another node shows that an object is being read,
//! a node fetches the missing blocks of it.

use std::time::Duration;

use shoal_policy::eviction::c2p::GROUP_BLOCKS;
use shoal_policy::hash::KeyMap;
use shoal_sim::Time;
use shoal_sim::block::Block;
use shoal_sim::cluster::{Arrival, Cooperation, NodeIndex, Placement, Push, Route, StorageC2p, Wanted};

use super::{Room, Simulated};

/// Storage nodes that fetch ahead.
pub(super) struct Prefetch {
    nodes: StorageC2p,
    placement: Placement,
    /// The sizes of the blocks of every object that was read.
    objects: KeyMap<u32, Vec<u64>>,
}

impl Prefetch {
    /// Lets these nodes, among which `placement` places blocks, fetch ahead.
    pub(super) fn new(nodes: StorageC2p, placement: Placement) -> Self {
        Self {
            nodes,
            placement,
            objects: KeyMap::default(),
        }
    }
}

impl Cooperation for Prefetch {
    fn answering(&self, node: NodeIndex, block: Block) -> NodeIndex {
        self.nodes.answering(node, block)
    }

    fn route(&mut self, wanted: &Wanted) -> Route {
        let Wanted { block, bytes, .. } = *wanted;
        let sizes = self.objects.entry(block.object);
        let sizes = sizes.or_insert_with(|| vec![bytes; wanted.object_blocks as usize]);
        sizes[block.index as usize] = bytes;
        self.nodes.route(wanted)
    }

    fn landed(&mut self, arrival: &Arrival) -> Vec<Push> {
        self.nodes.landed(arrival)
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
        let cache = &mut self.nodes.caches[push.to];
        if cache.keep(&Arrival { wanted, route, now }, |_| ()) {
            cache.residency.policy_mut().added(&push.block);
        }
        Vec::new()
    }

    fn remove(&mut self, block: Block) {
        self.nodes.remove(block);
    }

    fn period(&self) -> Option<Duration> {
        self.nodes.period()
    }

    fn adapt(&mut self, now: Time) -> Vec<Push> {
        let mut pushes = Vec::new();
        self.nodes.exchange(now, |to, policy, event| {
            let object = event.key.object;
            let Some(sizes) = self.objects.get(&object) else {
                return;
            };
            let missing = policy.missing(event, sizes.len() as u32);
            let first = event.key.index - event.key.index % GROUP_BLOCKS;
            let missing = (0..GROUP_BLOCKS).filter(|place| missing & (1 << place) != 0);
            let missing = missing.map(|place| Block {
                object,
                index: first + place,
            });
            let here = missing.filter(|block| self.placement.node_of(*block) == to);
            pushes.extend(here.map(|block| Push {
                block,
                bytes: sizes[block.index as usize],
                from: None,
                to,
            }));
        });
        pushes.sort_unstable_by_key(|push| (push.to, push.block));
        pushes.dedup();
        pushes
    }
}

impl Simulated for Prefetch {
    fn joined(&mut self, wanted: &Wanted) {
        self.nodes.joined(wanted);
    }

    fn room(&self, node: NodeIndex) -> Room {
        self.nodes.room(node)
    }
}

#[cfg(test)]
mod tests {
    use shoal_policy::eviction::c2p::Completeness;
    use shoal_policy::eviction::{C2p, PolicyName};
    use shoal_sim::Time;
    use shoal_sim::block::Block;
    use shoal_sim::cluster::{Arrival, Cooperation, Placement, Route, StorageC2p, Wanted};

    use super::Prefetch;

    const NODES: usize = 2;
    const PLACEMENT: Placement = Placement::new(NODES, 1);

    fn nodes(capacity_bytes: u64, prefetch: bool) -> Box<dyn Cooperation> {
        let policy = || C2p::above(PolicyName::C2p.build_below(), Completeness::Whole);
        let nodes = StorageC2p::new(NODES, PLACEMENT, capacity_bytes, policy);
        if prefetch {
            Box::new(Prefetch::new(nodes, PLACEMENT))
        } else {
            Box::new(nodes)
        }
    }

    fn read(nodes: &mut dyn Cooperation, block: Block, now: Time) -> Route {
        let wanted = Wanted {
            node: PLACEMENT.node_of(block),
            block,
            bytes: 10,
            object_blocks: 4,
            now,
        };
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
            let nodes = &mut *nodes;
            read(nodes, first, Time::ZERO);
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
            assert_eq!(read(nodes, second, Time(400_000_000)), expected);
        }
    }
}
