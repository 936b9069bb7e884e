//! A cluster small enough to try every split: nodes with two layers, and requests that wait a hop or for the
//! lake.

use std::time::Duration;

use shoal_policy::NodeId;
use shoal_policy::eviction::{Eviction, Lru};
use shoal_policy::fingerprint::Fingerprint;
use shoal_policy::mrc::{Reach, ReuseDistances};
use shoal_policy::partition::{Demand, MissLatency, Pace, adapt};
use shoal_policy::ring::{ORDINARY_WEIGHT, Ring};

/// The cluster of an experiment, and its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub nodes: u64,
    /// Room of one node, in blocks; all blocks are full.
    pub capacity: u64,
    pub periods: u64,
    pub requests_a_period: u64,
    /// From a home to the lake and back; a hop from node to node takes one millisecond.
    pub lake: Duration,
    pub split: Split,
    pub membership: Membership,
}

/// How a node divides its room.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Split {
    /// L1 has this many blocks, L2 the rest.
    Fixed(u64),
    /// L1 starts with this many blocks, and the split is adapted after each period, with L1 misses timed in
    /// this way.
    Adapted(u64, Timing),
}

/// The part of a wait that counts as the latency of an L1 miss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Timing {
    /// The way to the home and back.
    Hop,
    /// All of the wait, averaged over every miss.
    EveryMiss,
    /// All of the wait, averaged over misses of blocks that are on the shadow list.
    KnownMisses,
}

/// The layers of a block that a client reads on the node that is its home.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Membership {
    /// It belongs to L2.
    Disjoint,
    /// It belongs to both layers, as in D3N.
    Overlapping,
}

/// The blocks of a cluster's requests: `block(node, number)` is the block that a client of `node` reads as
/// the request with this number.
pub(crate) type Workload = fn(u64, u64) -> u64;

const HOP: Duration = Duration::from_millis(1);

/// The mean wait of a request in the second half of the time.
pub(crate) fn mean_wait(setup: Setup, block: Workload) -> Duration {
    let ring = Ring::new(
        (0..setup.nodes)
            .map(|node| (NodeId(node), ORDINARY_WEIGHT))
            .collect(),
    );
    let mut nodes: Vec<Node> = (0..setup.nodes).map(|_| Node::new(setup)).collect();
    let mut waited = Duration::ZERO;
    let requests = setup.periods * setup.requests_a_period;
    for number in 0..requests {
        let node = number % setup.nodes;
        let block = Fingerprint::of_number(block(node, number));
        let home = ring.home(block).expect("the ring has nodes");
        let wait = read(&mut nodes, node as usize, home.0 as usize, block, setup);
        if number >= requests / 2 {
            waited += wait;
        }
        if (number + 1) % setup.requests_a_period == 0 {
            for node in &mut nodes {
                node.end_period(setup);
            }
        }
    }
    waited.div_f64((requests - requests / 2) as f64)
}

fn read(nodes: &mut [Node], node: usize, home: usize, block: Fingerprint, setup: Setup) -> Duration {
    let is_home = node == home;
    if is_home && setup.membership == Membership::Disjoint {
        return nodes[home].serve_as_home(block, setup.lake);
    }
    let Looked { hit, known } = nodes[node].l1.look(block);
    if hit {
        return Duration::ZERO;
    }
    let hop = if is_home { Duration::ZERO } else { HOP };
    let wait = hop + nodes[home].serve_as_home(block, setup.lake);
    match setup.split {
        Split::Adapted(_, Timing::Hop) => nodes[node].l1.miss_latency.record(HOP),
        Split::Adapted(_, Timing::KnownMisses) if !known => {}
        _ => nodes[node].l1.miss_latency.record(wait),
    }
    wait
}

struct Node {
    l1: CacheLayer,
    l2: CacheLayer,
}

impl Node {
    fn new(setup: Setup) -> Self {
        let l1 = match setup.split {
            Split::Fixed(l1) | Split::Adapted(l1, _) => l1,
        };
        Self {
            l1: CacheLayer::new(l1, setup.capacity),
            l2: CacheLayer::new(setup.capacity - l1, setup.capacity),
        }
    }

    fn serve_as_home(&mut self, block: Fingerprint, lake: Duration) -> Duration {
        if self.l2.look(block).hit {
            return Duration::ZERO;
        }
        self.l2.miss_latency.record(lake);
        lake
    }

    fn end_period(&mut self, setup: Setup) {
        if let Split::Adapted(..) = setup.split {
            let curves = [self.l1.distances.curve(), self.l2.distances.curve()];
            let demand = |layer: &CacheLayer, curve| Demand {
                curve,
                miss_latency: layer.miss_latency.mean(Duration::ZERO),
                size_bytes: layer.capacity,
            };
            let demands = [demand(&self.l1, &curves[0]), demand(&self.l2, &curves[1])];
            let sizes = adapt(&demands, Pace::published(setup.capacity).limit_bytes);
            self.l1.end_period(sizes[0]);
            self.l2.end_period(sizes[1]);
        }
    }
}

/// Blocks of one byte.
struct CacheLayer {
    blocks: Lru<Fingerprint>,
    capacity: u64,
    distances: ReuseDistances,
    miss_latency: MissLatency,
}

struct Looked {
    hit: bool,
    /// True if a larger layer would have held the block.
    known: bool,
}

impl CacheLayer {
    fn new(capacity: u64, capacity_max: u64) -> Self {
        Self {
            blocks: Lru::default(),
            capacity,
            distances: ReuseDistances::exact(Reach::of_full_blocks(capacity_max, 1)),
            miss_latency: MissLatency::default(),
        }
    }

    fn look(&mut self, block: Fingerprint) -> Looked {
        let known = self.distances.record(block, 1).is_some();
        let hit = self.blocks.contains(&block);
        if hit {
            self.blocks.touch(&block);
        } else {
            self.blocks.insert(block, 1);
            self.shrink();
        }
        Looked { hit, known }
    }

    fn end_period(&mut self, capacity: u64) {
        self.capacity = capacity;
        self.shrink();
        self.distances.decay(0.5);
        self.miss_latency.decay(0.5);
    }

    fn shrink(&mut self) {
        while self.blocks.len() as u64 > self.capacity {
            self.blocks.evict(&mut |_| true);
        }
    }
}

/// Returns a uniformly random number below `bound`.
pub(crate) fn below(bound: u64, seed: u64) -> u64 {
    ((u128::from(Fingerprint::of_number(seed).0) * u128::from(bound)) >> 64) as u64
}

/// Chance: a number below 2 to the power of `octaves`, where each power of two is as likely to be the next
/// above it. This is Zipf's law with exponent 1.
pub(crate) fn zipf(octaves: u32, seed: u64) -> u64 {
    below(2 << below(octaves.into(), seed), !seed)
}

/// A block that only this node's clients read.
pub(crate) fn private(node: u64, block: u64) -> u64 {
    ((node + 1) << 32) | block
}
