//! D4N: nodes with a directory that knows the worth of blocks, and GWF as the decision rule (dissertation
//! 4.5.3, Algorithm 3).
//!
//! Every read leaves a copy on the reader's node. The block that is worth least is evicted. The last copy of
//! a block is weighted by its worth to all nodes, and is pushed to another node if it is worth more than that
//! node's blocks. All nodes know the age at once, whereas D4N broadcasts it from time to time. A pushed block
//! belongs to no node while it is on its way, and no block is pushed to make room for it.
//!
//! **Invariant**: a node has at most [`PUSHES_MAX`] blocks on their way to any other. The blocks that the
//! receiver holds decide about pushes, and they change only when pushes arrive. Without a bound, a node whose
//! link is full keeps the least average and receives every block evicted by the others, and its own
//! clients' reads wait behind those pushes.

use shoal_policy::eviction::Gwf;
use shoal_policy::eviction::gwf::{Action, Ageing, Facts, Peer, Reading, Weight, Worth, decide};

use super::directory::Holders;
use super::{Arrival, Cooperation, NodeIndex, Push, Route, Wanted};
use crate::block::Block;
use crate::cache::Cache;
use crate::chance::Chance;
use crate::clock::Time;
use shoal_policy::hash::KeyMap;

/// The maximum number of pushed blocks on their way from one node to another. A node that is sent this many
/// is not offered more.
const PUSHES_MAX: u32 = 8;

/// Nodes with a directory and GWF.
#[derive(Debug)]
pub struct DirectoryGwf {
    /// The cache of each node.
    pub caches: Vec<Cache<Gwf<Block>>>,
    reading: Reading,
    holders: Holders,
    global_weights: KeyMap<Block, Weight>,
    /// The worth of a pushed block at its destination.
    pushed_worths: KeyMap<(Block, NodeIndex), Worth>,
    /// The number of blocks on their way from the first node to the second.
    pushes: KeyMap<(NodeIndex, NodeIndex), u32>,
    sizes: KeyMap<Block, u64>,
    chance: Chance,
}

impl DirectoryGwf {
    /// Creates `nodes` with `capacity_bytes` each, at most 256; `chance` chooses among holders.
    pub fn new(nodes: usize, capacity_bytes: u64, ageing: Ageing, reading: Reading, chance: Chance) -> Self {
        Self {
            caches: (0..nodes)
                .map(|_| Cache::new(capacity_bytes, Box::new(Gwf::new(ageing))))
                .collect(),
            reading,
            holders: Holders::new(nodes),
            global_weights: KeyMap::default(),
            pushed_worths: KeyMap::default(),
            pushes: KeyMap::default(),
            sizes: KeyMap::default(),
            chance,
        }
    }

    /// Admits a block that a client has read, after the evictions that it needs. A worth of `None` means that
    /// of a first use.
    fn take_in(&mut self, node: NodeIndex, block: Block, bytes: u64, worth: Option<Worth>) -> Vec<Push> {
        if !self.has_use_for(node, block, bytes) {
            return Vec::new();
        }
        let pushes = self.make_room(node, bytes, true);
        self.hold(node, block, bytes, worth);
        pushes
    }

    fn has_use_for(&self, node: NodeIndex, block: Block, bytes: u64) -> bool {
        !self.caches[node].contains(block) && bytes <= self.caches[node].capacity_bytes()
    }

    fn make_room(&mut self, node: NodeIndex, bytes: u64, may_push: bool) -> Vec<Push> {
        let mut pushes = Vec::new();
        while !self.caches[node].has_room(bytes) && self.part_with_least(node, may_push, &mut pushes) {}
        pushes
    }

    fn hold(&mut self, node: NodeIndex, block: Block, bytes: u64, worth: Option<Worth>) {
        if self.caches[node].admit(block, bytes, |_| ()).is_err() {
            return;
        }
        if let Some(worth) = worth {
            self.caches[node].residency.policy_mut().weigh(&block, worth);
        }
        self.sizes.insert(block, bytes);
        self.holders.add(block, node);
    }

    /// Decides about the block of least weight on `node` and executes the decision. Returns true if there was
    /// one.
    fn part_with_least(&mut self, node: NodeIndex, may_push: bool, pushes: &mut Vec<Push>) -> bool {
        let Some(candidate) = self.caches[node].residency.policy().candidate(&mut |_| true) else {
            return false;
        };
        let block = candidate.key;
        let peers: Vec<_> = self.peers(node).filter(|_| may_push).collect();
        let facts = Facts {
            local: candidate.local,
            global_weight: self.global_weights.get(&block).copied().unwrap_or(Weight::ZERO),
            is_last_copy: self.holders.is_last(block, node),
            next_rank: candidate.next_rank,
            age: self.caches[node].residency.policy().age(),
            peers: &peers,
        };
        for action in decide(&facts, self.reading) {
            match action {
                Action::TakeGlobalWeight(_) => {
                    self.global_weights.remove(&block);
                }
                Action::AddGlobalWeight(weight) => self.add_global_weight(block, weight),
                Action::Push { to, local } => {
                    self.pushed_worths.insert((block, to), local);
                    let under_way = self.pushes.entry((node, to)).or_default();
                    *under_way += 1;
                    assert!(*under_way <= PUSHES_MAX, "few pushes are on their way to a node");
                    pushes.push(Push {
                        block,
                        bytes: self.sizes[&block],
                        from: Some(node),
                        to,
                    });
                }
                Action::RaiseAge(age) => {
                    for cache in &mut self.caches {
                        cache.residency.policy_mut().learn_age(age);
                    }
                }
                Action::Keep { local } => self.caches[node].residency.policy_mut().weigh(&block, local),
                Action::Drop => {
                    self.caches[node].remove(block);
                    self.holders.remove(block, node);
                }
            }
        }
        true
    }

    /// The nodes that `node` may push to now.
    fn peers(&self, node: NodeIndex) -> impl Iterator<Item = Peer<NodeIndex>> {
        let others = self.caches.iter().enumerate().filter(move |&(other, _)| {
            let pushes = self.pushes.get(&(node, other)).copied().unwrap_or(0);
            other != node && pushes < PUSHES_MAX
        });
        others.map(|(node, cache)| Peer {
            node,
            average_rank: cache.residency.policy().average_rank(),
        })
    }

    /// Records that a block comes to its reader from another node: it is worth more to all.
    pub fn comes_from_peer(&mut self, wanted: &Wanted) {
        let use_weight = self.caches[wanted.node].residency.policy().use_weight();
        self.add_global_weight(wanted.block, use_weight);
    }

    fn add_global_weight(&mut self, block: Block, weight: Weight) {
        let global = self.global_weights.entry(block).or_insert(Weight::ZERO);
        *global = *global + weight;
    }
}

impl Cooperation for DirectoryGwf {
    fn route(&mut self, wanted: &Wanted) -> Route {
        if self.caches[wanted.node].serve(wanted) {
            return Route::Local;
        }
        match self.holders.any(wanted.block, &mut self.chance) {
            Some(from) => {
                self.comes_from_peer(wanted);
                Route::Peer { from }
            }
            None => Route::Lake { through: None },
        }
    }

    fn landed(&mut self, arrival: &Arrival) -> Vec<Push> {
        let Wanted {
            node, block, bytes, ..
        } = arrival.wanted;
        match arrival.route {
            Route::Local => Vec::new(),
            Route::Peer { .. } => {
                let worth = self.caches[node].residency.policy().worth_now(Weight::ZERO);
                self.take_in(node, block, bytes, Some(worth))
            }
            Route::Lake { .. } => self.take_in(node, block, bytes, None),
        }
    }

    fn pushed(&mut self, push: &Push, _now: Time) -> Vec<Push> {
        let &Push {
            block,
            bytes,
            from,
            to,
        } = push;
        if let Some(pushes) = from.and_then(|from| self.pushes.get_mut(&(from, to))) {
            assert!(*pushes > 0, "a push arrives once");
            *pushes -= 1;
        }
        // The block was removed while it was on its way.
        let worth = self.pushed_worths.remove(&(block, to));
        if worth.is_none() || !self.has_use_for(to, block, bytes) {
            return Vec::new();
        }
        let pushes = self.make_room(to, bytes, false);
        self.hold(to, block, bytes, worth);
        pushes
    }

    fn remove(&mut self, block: Block) {
        for (node, cache) in self.caches.iter_mut().enumerate() {
            self.pushed_worths.remove(&(block, node));
            if cache.remove(block) {
                self.holders.remove(block, node);
            }
        }
        self.global_weights.remove(&block);
    }
}

#[cfg(test)]
mod tests {
    use shoal_policy::eviction::gwf::{Ageing, Reading, Weight};

    use super::super::{Arrival, Cooperation, Push, Route, Wanted};
    use super::{DirectoryGwf, PUSHES_MAX};
    use crate::block::Block;
    use crate::chance::Chance;
    use crate::clock::Time;

    fn wanted(node: usize, object: u32) -> Wanted {
        Wanted {
            node,
            block: Block { object, index: 0 },
            bytes: 10,
            object_blocks: 1,
            now: Time::ZERO,
        }
    }

    /// Reads an object. Returns the route and the pushes that the read caused.
    fn read(nodes: &mut DirectoryGwf, node: usize, object: u32) -> (Route, Vec<(u32, usize)>) {
        let wanted = wanted(node, object);
        let route = nodes.route(&wanted);
        let arrival = Arrival {
            wanted,
            route,
            now: Time::ZERO,
        };
        let mut left = nodes.landed(&arrival);
        let mut pushes = Vec::new();
        while let Some(push) = left.pop() {
            pushes.push((push.block.object, push.to));
            left.extend(nodes.pushed(&push, Time::ZERO));
        }
        (route, pushes)
    }

    const LAKE: Route = Route::Lake { through: None };

    #[test]
    fn copies_leave_before_last_copies() {
        let mut nodes = DirectoryGwf::new(2, 20, Ageing::Added, Reading::Text, Chance::new(1));
        assert_eq!(read(&mut nodes, 0, 0).0, LAKE);
        assert_eq!(read(&mut nodes, 1, 1).0, LAKE);
        assert_eq!(read(&mut nodes, 0, 1).0, Route::Peer { from: 1 });
        // Node 0 is full: its copy of 1 has never been used there and makes room for 2.
        assert_eq!(read(&mut nodes, 0, 2), (LAKE, Vec::new()));
        assert_eq!(read(&mut nodes, 0, 0).0, Route::Local);
        assert_eq!(read(&mut nodes, 0, 1).0, Route::Peer { from: 1 });
    }

    #[test]
    fn a_last_copy_that_is_worth_more_goes_where_worth_is_less() {
        let mut nodes = DirectoryGwf::new(2, 20, Ageing::Added, Reading::Text, Chance::new(1));
        // Node 1 is empty: its blocks are worth nothing on average.
        read(&mut nodes, 0, 0);
        read(&mut nodes, 0, 1);
        read(&mut nodes, 0, 1);
        let (route, pushes) = read(&mut nodes, 0, 2);
        assert_eq!((route, pushes), (LAKE, vec![(0, 1)]));
        assert_eq!(read(&mut nodes, 0, 0).0, Route::Peer { from: 1 });
    }

    #[test]
    fn the_directory_learns_what_a_block_is_worth_to_others_and_all_nodes_the_age() {
        let mut nodes = DirectoryGwf::new(2, 10, Ageing::Added, Reading::Text, Chance::new(1));
        let block = Block { object: 0, index: 0 };
        read(&mut nodes, 0, 0);
        read(&mut nodes, 1, 0);
        assert_eq!(nodes.global_weights.get(&block), Some(&Weight::from(1)));
        read(&mut nodes, 0, 0);
        // The copy of weight 2 leaves node 0, and leaves its weight to the one on node 1.
        read(&mut nodes, 0, 1);
        assert_eq!(nodes.global_weights.get(&block), Some(&Weight::from(3)));
        assert_eq!(nodes.caches[1].residency.policy().age(), Weight::from(3));
    }

    #[test]
    fn a_block_removed_on_its_way_does_not_arrive() {
        let mut nodes = DirectoryGwf::new(2, 10, Ageing::Added, Reading::Text, Chance::new(1));
        read(&mut nodes, 0, 0);
        let arrival = Arrival {
            wanted: wanted(0, 1),
            route: LAKE,
            now: Time::ZERO,
        };
        let pushes = nodes.landed(&arrival);
        assert_eq!((pushes.len(), pushes[0].to), (1, 1));
        nodes.remove(Block { object: 0, index: 0 });
        nodes.pushed(&pushes[0], Time::ZERO);
        assert_eq!(read(&mut nodes, 1, 0).0, LAKE);
    }

    /// Reads a block from the lake and returns the pushes that it causes; all of them stay on their way.
    fn begin_read(nodes: &mut DirectoryGwf, node: usize, object: u32) -> Vec<Push> {
        let wanted = wanted(node, object);
        let route = nodes.route(&wanted);
        assert_eq!(route, LAKE);
        let now = Time::ZERO;
        nodes.landed(&Arrival { wanted, route, now })
    }

    #[test]
    fn a_node_whose_link_is_full_gets_no_more_blocks_unasked() {
        let mut nodes = DirectoryGwf::new(3, 20, Ageing::Added, Reading::Text, Chance::new(1));
        let mut pushes = Vec::new();
        let mut fill = |nodes: &mut DirectoryGwf, objects: std::ops::Range<u32>| {
            for object in objects {
                pushes.extend(begin_read(nodes, 0, object));
            }
            [1, 2].map(|to| pushes.iter().filter(|push| push.to == to).count() as u32)
        };
        // Nodes 1 and 2 count as worth nothing to the end, since nothing has arrived there. The next best
        // node gets the pushes that the best one cannot take.
        let many = 4 * PUSHES_MAX;
        assert_eq!(fill(&mut nodes, 0..many), [PUSHES_MAX; 2]);
        nodes.remove(Block { object: 0, index: 0 });
        let arrived = Push {
            block: Block { object: 0, index: 0 },
            bytes: 10,
            from: Some(0),
            to: 1,
        };
        nodes.pushed(&arrived, Time::ZERO);
        assert_eq!(
            fill(&mut nodes, many..2 * many),
            [PUSHES_MAX + 1, PUSHES_MAX],
            "what arrives makes way, even if it is of no use there"
        );
    }

    #[test]
    fn nothing_is_pushed_to_make_room_for_what_was_pushed() {
        let mut nodes = DirectoryGwf::new(3, 20, Ageing::Added, Reading::Text, Chance::new(1));
        for (node, uses) in [(0, 2), (1, 1), (2, 3)] {
            for object in [2 * node as u32, 2 * node as u32 + 1] {
                (0..uses).for_each(|_| drop(read(&mut nodes, node, object)));
            }
        }
        let pushes = begin_read(&mut nodes, 0, 6);
        assert_eq!(pushes.iter().map(|push| push.to).collect::<Vec<_>>(), [1]);
        // Meanwhile node 2 loses all its blocks, so a block that leaves node 1 would be worth more there.
        nodes.remove(Block { object: 4, index: 0 });
        nodes.remove(Block { object: 5, index: 0 });
        assert_eq!(nodes.pushed(&pushes[0], Time::ZERO), Vec::new());
        assert_eq!(nodes.route(&wanted(1, 0)), Route::Local, "it has arrived");
        assert_eq!(nodes.route(&wanted(1, 2)), LAKE, "and another has left");
    }
}
