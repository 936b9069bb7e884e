//! The case study of the C2P paper (4.2) without its disks and queues: 8 nodes of 128 segments, 500 objects
//! of 5 segments, placed unevenly, 2,000 reads by a power law, one a second.
//!
//! The paper reports, against LRU, 6.7% more objects found whole, 50% fewer found in part, 5% fewer reads of
//! the disk. It does not name the exponent of its power law; over 20 seeds, of which the test runs four, we
//! find
//!
//! | exponent | objects whole | objects in part | disk reads |
//! |---|---|---|---|
//! | 2 | +6.7% | −52% | −2.5% |
//! | 3 | +6.7% | −51% | −5.2% |
//! | 4 | +4.8% | −52% | −5.1% |
//!
//! with the comparator as printed and uses within a minute of each other close. Inverted it gains less:
//! +4.1%, +4.3%, +3.2% objects whole, as it is LRU but for a minute, and this popularity does not change.
//! Where it does, the answer may be another. Against Algorithm 1, which the text of the paper names as its
//! LRU, disks are read as often.
//!
//! Shoal's own clock runs with the exchange of blocks ([`Clock::Exchange`]), so that it makes no difference
//! how fast objects are read.

use std::time::Duration;

use shoal_policy::eviction::c2p::{C2p, Clock, Closeness, Completeness, Event, Reading, Rule};
use shoal_policy::eviction::{Duel, Eviction, Lfuda, Lru, S3Fifo};
use shoal_policy::{NodeId, PartOf};

const NODES: usize = 8;
const SEGMENTS_PER_NODE: usize = 128;
const OBJECTS: u32 = 500;
const SEGMENTS_PER_OBJECT: u32 = 5;
const READS: u64 = 2_000;
const SEEDS: u64 = 4;

/// The time between two reads, unless a test says otherwise.
const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Segment {
    object: u32,
    index: u32,
}

impl PartOf for Segment {
    type Whole = u32;

    fn whole(&self) -> u32 {
        self.object
    }

    fn index(&self) -> u32 {
        self.index
    }
}

/// The numbers that the paper reports, over all seeds.
#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    object_hits: u32,
    partial_misses: u32,
    disk_reads: u32,
}

/// A number that looks random (the finisher of `SplitMix64`).
const fn scatter(n: u64) -> u64 {
    let n = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

fn fraction(n: u64) -> f64 {
    (scatter(n) >> 11) as f64 / (1u64 << 53) as f64
}

/// Which of its nodes a segment lies on: by chance, so that some objects have several on one.
fn node_of(seed: u64, segment: Segment) -> usize {
    let n = u64::from(segment.object * SEGMENTS_PER_OBJECT + segment.index);
    scatter(scatter(seed) ^ n) as usize % NODES
}

/// The object of a read: a power law over the objects (numpy's `power`: the density grows with the number as
/// x^(a−1)).
#[expect(clippy::cast_sign_loss, reason = "a product of positive numbers")]
fn object_of(seed: u64, read: u64, exponent: f64) -> u32 {
    (fraction(scatter(seed + 1_000) ^ read).powf(1.0 / exponent) * f64::from(OBJECTS)) as u32
}

/// The cache of a node, and the events that it sends and receives.
trait Node: Eviction<Segment> {
    fn take_events(&mut self) -> Vec<Event<Segment>> {
        Vec::new()
    }

    fn receive(&mut self, _node: NodeId, _event: &Event<Segment>) {}
}

impl Node for Lru<Segment> {}
impl Node for Closeness<Segment> {}
impl Node for Lfuda<Segment> {}
impl Node for S3Fifo<Segment> {}
impl Node for Duel<Segment> {}

impl Node for C2p<Segment> {
    fn take_events(&mut self) -> Vec<Event<Segment>> {
        self.take_events()
    }

    fn receive(&mut self, node: NodeId, event: &Event<Segment>) {
        self.receive(node, event);
    }
}

fn run<P: Node>(exponent: f64, pause: Duration, empty: impl Fn() -> P) -> Counts {
    let mut counts = Counts::default();
    for seed in 0..SEEDS {
        let mut nodes: Vec<P> = (0..NODES).map(|_| empty()).collect();
        for read in 0..READS {
            let now = pause * u32::try_from(read).expect("there are 2,000 reads");
            let object = object_of(seed, read, exponent);
            let mut hits = 0;
            for index in 0..SEGMENTS_PER_OBJECT {
                let key = Segment { object, index };
                let node = &mut nodes[node_of(seed, key)];
                node.advance(now);
                if node.contains(&key) {
                    node.touch(&key);
                    hits += 1;
                    continue;
                }
                if node.len() == SEGMENTS_PER_NODE {
                    node.evict(&mut |_| true).expect("a full cache has a victim");
                }
                node.insert(key, 1 << 20);
                node.observe(&key, SEGMENTS_PER_OBJECT);
            }
            // A second passes before the next read, so every node has received the events by then.
            for place in 0..NODES {
                for event in nodes[place].take_events() {
                    let others = nodes.iter_mut().enumerate().filter(|(other, _)| *other != place);
                    for (_, node) in others {
                        node.receive(NodeId(place as u64), &event);
                    }
                }
            }
            counts.object_hits += u32::from(hits == SEGMENTS_PER_OBJECT);
            counts.partial_misses += u32::from(0 < hits && hits < SEGMENTS_PER_OBJECT);
            counts.disk_reads += SEGMENTS_PER_OBJECT - hits;
        }
    }
    counts
}

/// The rule with the time of the clock.
fn published() -> Rule {
    Rule {
        clock: Clock::Wall,
        ..Rule::default()
    }
}

/// C2P above its own comparator with this rule.
fn c2p(exponent: f64, pause: Duration, rule: Rule, completeness: Completeness) -> Counts {
    run(exponent, pause, || {
        C2p::above(Box::new(Closeness::new(rule)), completeness)
    })
}

#[test]
fn objects_are_found_whole_more_often_and_in_part_half_as_often() {
    for exponent in [2.0, 3.0, 4.0] {
        let lru = run(exponent, SECOND, Lru::default);
        let above = |reading, completeness| {
            let rule = Rule {
                reading,
                ..published()
            };
            c2p(exponent, SECOND, rule, completeness)
        };
        let printed = above(Reading::Printed, Completeness::Whole);
        let inverted = above(Reading::Inverted, Completeness::Whole);
        let read = above(Reading::Printed, Completeness::Read);
        println!("{exponent}: {lru:?}\n printed {printed:?}\n inverted {inverted:?}");
        assert!(printed.object_hits * 100 > lru.object_hits * 104);
        assert!(printed.partial_misses * 100 < lru.partial_misses * 55);
        assert!(printed.disk_reads * 100 < lru.disk_reads * 98);
        assert!(inverted.object_hits * 100 > lru.object_hits * 103);
        assert!(inverted.object_hits < printed.object_hits);
        assert_eq!(read, printed, "objects are read whole");
    }
}

/// Co-operation still halves the objects found in part, and saves no read of a disk.
#[test]
fn against_the_papers_own_lru_objects_are_found_in_part_half_as_often_and_disks_are_read_as_often() {
    for exponent in [2.0, 3.0, 4.0] {
        let alone = run(exponent, SECOND, || Closeness::new(published()));
        let above = c2p(exponent, SECOND, published(), Completeness::Whole);
        println!("{exponent}: {alone:?}\n above {above:?}");
        assert!(above.partial_misses * 100 < alone.partial_misses * 55);
        assert!(above.object_hits > alone.object_hits);
        assert!(above.disk_reads * 100 > alone.disk_reads * 98);
    }
}

/// With the delays of the paper's table 1 an object is read in an eighth of a second, all uses of 2,000 reads
/// are within four minutes, and a threshold of a minute leaves hardly any count to decide.
#[test]
fn with_a_clock_that_follows_the_exchange_of_blocks_reads_may_be_fast_or_slow() {
    for pause in [SECOND, SECOND / 8, SECOND / 80] {
        let lru = run(3.0, pause, Lru::default);
        let alone = run(3.0, pause, Closeness::default);
        let above = c2p(3.0, pause, Rule::default(), Completeness::Whole);
        println!("{pause:?}: {lru:?}\n alone {alone:?}\n above {above:?}");
        assert!(above.partial_misses * 100 < lru.partial_misses * 55);
        assert!(above.partial_misses * 100 < alone.partial_misses * 55);
        assert!(above.object_hits * 100 > lru.object_hits * 106);
        assert!(above.object_hits > alone.object_hits);
        assert!(above.disk_reads * 100 < lru.disk_reads * 96);
    }
}

#[test]
fn above_any_other_policy_objects_are_found_in_part_less_often() {
    fn compare<B: Eviction<Segment> + Node + Default + Send + 'static>(name: &str) {
        let above = || C2p::above(Box::new(B::default()), Completeness::default());
        let (alone, above) = (run(3.0, SECOND, B::default), run(3.0, SECOND, above));
        println!("{name}: {alone:?}\n above {above:?}");
        assert!(above.partial_misses * 100 < alone.partial_misses * 65, "{name}");
        assert!(above.object_hits > alone.object_hits, "{name}");
    }
    compare::<Lru<_>>("LRU");
    compare::<Lfuda<_>>("LFUDA");
    compare::<S3Fifo<_>>("S3-FIFO");
    compare::<Duel<_>>("duel");
}
