//! Blocks of objects that other nodes have begun to forget leave first.

mod compare;
mod events;

use std::hash::Hash;
use std::time::Duration;

pub use compare::{Reading, Uses, compare};
pub use events::{AGGREGATION, Event, EventKind, Outbox};

use super::Eviction;
use super::grouped::{Grouped, WholeState};
use crate::PartOf;

/// C2P (Nadgowda et al., *Co-operative Caching in Distributed Storage Systems*): a reader waits for the last
/// block of an object, so an object cached in part on several nodes is hardly better than one that is not
/// cached at all. Nodes tell each other what happens to their blocks ([`Event`], gathered in an [`Outbox`]),
/// and all of them let go of the same objects.
///
/// The victim (C2P comparator, Algorithm 2) is the block whose object is *in cache* to the least fraction;
/// among equals it is the lesser by [`compare()`] (Algorithm 1).
///
/// The paper sorts all blocks for each victim. Here objects are kept in the order of that fraction and of the
/// last use of their least recently used block, O(log n) for n objects. The victim is sought among the first
/// [`CANDIDATES`] objects of the least fraction, each represented by that block. This is the paper's choice
/// as long as no more objects share that fraction and the blocks that a node holds of one object are used
/// together: in the paper's set-up, with 128 blocks a node.
///
/// The paper derives the size of an object from the ratio of global to local hits; here the caller tells it
/// to [`C2p::observe`]. The policy keeps global metadata only for objects of which it holds a block, and only
/// the metadata that the comparators need.
#[derive(Debug)]
pub struct C2p<K: PartOf> {
    blocks: Grouped<K, Block, Object>,
    settings: Settings,
    now: Duration,
}

/// The most objects that are compared for one victim.
pub const CANDIDATES: usize = 128;

/// How C2P decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether objects are read whole.
    pub reads: Reads,
    /// How to read the comparator.
    pub reading: Reading,
    /// Uses less than this apart are close to each other. The paper derives its threshold from its workload
    /// and does not give it.
    pub affinity: Duration,
}

/// How far a block that comes into a cache speaks for the other blocks of its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// As in the paper: every read is of a whole object, so the arrival of one block means that all arrive.
    Whole,
    /// A block speaks only for itself, and presence is counted. Each lost event leaves the count wrong by
    /// one; the count stays between the number of blocks held here and the number of all blocks.
    Partial,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    bytes: u64,
    uses: Uses,
}

/// The global metadata of an object.
#[derive(Clone, Copy, Debug, Default)]
struct Object {
    /// The number of blocks of the object; 0 when it is not known.
    blocks: u32,
    /// The number of them that are in a cache somewhere.
    present: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Rank {
    presence: Presence,
    used_at: Duration,
}

/// *Object in Cache*, the fraction of an object's blocks that are in a cache, in units of 2⁻³².
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Presence(u64);

impl Object {
    fn presence(self) -> Presence {
        // An object about which nothing is known counts as present.
        let (present, blocks) = if self.blocks == 0 {
            (1, 1)
        } else {
            (self.present, self.blocks)
        };
        Presence((u64::from(present) << 32) / u64::from(blocks))
    }

    fn came(&mut self, held: u32, reads: Reads) {
        self.present = match reads {
            Reads::Whole => self.blocks,
            Reads::Partial => (self.present + 1).max(held),
        };
        if self.blocks != 0 {
            self.present = self.present.min(self.blocks);
        }
    }

    fn left(&mut self, held: u32) {
        self.present = self.present.saturating_sub(1).max(held);
    }
}

impl WholeState<Block> for Object {
    type Rank = Rank;

    fn rank(&self, _held: u32, oldest: &Block) -> Rank {
        Rank {
            presence: self.presence(),
            used_at: oldest.uses.at,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            reads: Reads::Partial,
            // The printed reading gained more than its inversion in the paper's case study, which
            // tests/c2p.rs repeats.
            reading: Reading::Printed,
            affinity: Duration::from_mins(1),
        }
    }
}

impl<K: Copy + Eq + Hash + PartOf> Default for C2p<K> {
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl<K: Copy + Eq + Hash + PartOf> C2p<K> {
    /// An empty policy.
    pub fn new(settings: Settings) -> Self {
        Self {
            blocks: Grouped::default(),
            settings,
            now: Duration::ZERO,
        }
    }

    /// Records that `whole` has `blocks` blocks in all. Ignored when none of its blocks is held.
    pub fn observe(&mut self, whole: &K::Whole, blocks: u32) {
        let reads = self.settings.reads;
        self.blocks.change(whole, |object, _| {
            if reads == Reads::Whole && object.blocks == 0 {
                object.present = blocks;
            }
            object.blocks = blocks;
            object.present = object.present.min(blocks);
        });
    }

    /// Takes in an event of a block on another node.
    pub fn hear(&mut self, event: &Event<K>) {
        let reads = self.settings.reads;
        self.blocks
            .change(&event.key.whole(), |object, held| match event.kind {
                EventKind::Add | EventKind::Miss => object.came(held, reads),
                EventKind::Replace => object.left(held),
                // An object that is gone in part for good can no longer be read.
                EventKind::Delete => object.present = 0,
                EventKind::Hit => {}
            });
    }

    /// Returns the blocks to fetch ahead of their reads when another node missed a block of the same object:
    /// those of `here`, the object's blocks whose home is this node, that are not held. This goes beyond the
    /// paper, whose outlook (section 6) names it.
    ///
    /// Where reads are partial, a miss speaks for its neighbours only if at least half of the object is
    /// already in cache.
    pub fn siblings(&self, event: &Event<K>, here: impl IntoIterator<Item = K>) -> Vec<K> {
        let is_read_whole = match self.settings.reads {
            Reads::Whole => true,
            Reads::Partial => self
                .blocks
                .state(&event.key.whole())
                .is_some_and(|object| object.blocks > 0 && object.presence() >= Presence(1 << 31)),
        };
        if event.kind != EventKind::Miss || !is_read_whole {
            return Vec::new();
        }
        here.into_iter().filter(|key| !self.contains(key)).collect()
    }

    fn first_to_leave(&self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<K> {
        let mut candidates = self
            .blocks
            .least_first()
            .filter_map(|(rank, whole)| {
                let (key, block) = self.blocks.parts_of(whole).find(|(key, _)| may_leave(key))?;
                Some((rank.presence, key, block.uses))
            })
            .peekable();
        let &(least, ..) = candidates.peek()?;
        let Settings {
            reading, affinity, ..
        } = self.settings;
        // Start from the least recently used: the comparator is not an order, see its documentation.
        let victim = candidates
            .take(CANDIDATES)
            .take_while(|(presence, ..)| *presence == least)
            .min_by(|(.., a), (.., b)| compare(*a, *b, affinity, reading, self.now));
        victim.map(|(_, key, _)| key)
    }
}

impl<K: Copy + Eq + Hash + PartOf> Eviction<K> for C2p<K> {
    fn insert(&mut self, key: K, bytes: u64) {
        let (uses, reads) = (Uses::first(self.now), self.settings.reads);
        self.blocks.insert(key, Block { bytes, uses }, |object, held| {
            object.came(held, reads);
        });
    }

    fn touch(&mut self, key: &K) {
        let now = self.now;
        self.blocks
            .touch(key, |block, _| block.uses = block.uses.again(now));
    }

    fn remove(&mut self, key: &K) -> Option<u64> {
        self.blocks.remove(key, Object::left).map(|block| block.bytes)
    }

    fn evict(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<(K, u64)> {
        let key = self.first_to_leave(may_leave)?;
        self.remove(&key).map(|bytes| (key, bytes))
    }

    fn advance(&mut self, now: Duration) {
        self.now = now;
    }

    fn contains(&self, key: &K) -> bool {
        self.blocks.contains(key)
    }

    fn len(&self) -> usize {
        self.blocks.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, any, proptest};

    use super::{C2p, Event, EventKind, Eviction, Reading, Reads, Settings, Uses, compare};
    use crate::eviction::conformance::leaving_order;

    /// Objects of four blocks: keys 0 to 3, 4 to 7, 8 to 11.
    fn holding(reads: Reads, keys: &[u32]) -> C2p<u32> {
        let mut policy = C2p::new(Settings {
            reads,
            ..Settings::default()
        });
        for &key in keys {
            policy.insert(key, 1);
            policy.observe(&(key / 4), 4);
        }
        policy
    }

    fn hear(policy: &mut C2p<u32>, kind: EventKind, key: u32) {
        let at = Duration::ZERO;
        policy.hear(&Event { at, key, kind });
    }

    #[test]
    fn a_part_that_another_node_replaced_leaves_here_too() {
        let mut policy = holding(Reads::Whole, &[0, 4, 8, 9]);
        hear(&mut policy, EventKind::Replace, 5);
        hear(&mut policy, EventKind::Replace, 10);
        hear(&mut policy, EventKind::Replace, 11);
        assert_eq!(leaving_order(policy), [8, 9, 4, 0], "a half, three quarters, all");
    }

    #[test]
    fn a_miss_anywhere_makes_an_object_whole_again() {
        let mut policy = holding(Reads::Whole, &[0, 4]);
        for _ in 0..3 {
            hear(&mut policy, EventKind::Replace, 1);
        }
        hear(&mut policy, EventKind::Replace, 5);
        hear(&mut policy, EventKind::Miss, 1);
        assert_eq!(leaving_order(policy), [4, 0]);
    }

    #[test]
    fn replacements_by_this_node_count_as_well() {
        let mut policy = holding(Reads::Whole, &[0, 4, 5]);
        assert_eq!(policy.evict(&mut |key| *key == 4), Some((4, 1)));
        assert_eq!(leaving_order(policy), [5, 0]);
    }

    #[test]
    fn a_deleted_object_leaves_first() {
        let mut policy = holding(Reads::Whole, &[0, 4]);
        hear(&mut policy, EventKind::Replace, 1);
        hear(&mut policy, EventKind::Delete, 5);
        assert_eq!(leaving_order(policy), [4, 0]);
    }

    #[test]
    fn partial_reads_are_counted() {
        let mut policy = holding(Reads::Partial, &[0, 4, 8, 9]);
        hear(&mut policy, EventKind::Miss, 1);
        hear(&mut policy, EventKind::Add, 2);
        assert_eq!(
            leaving_order(policy),
            [4, 8, 9, 0],
            "one, two and then one, three of four"
        );
    }

    #[test]
    fn a_count_stays_between_what_is_held_and_all() {
        let mut policy = holding(Reads::Partial, &[0, 1, 4]);
        for _ in 0..9 {
            hear(&mut policy, EventKind::Replace, 2);
            hear(&mut policy, EventKind::Miss, 5);
        }
        hear(&mut policy, EventKind::Replace, 5);
        assert_eq!(policy.blocks.state(&0).unwrap().present, 2);
        assert_eq!(policy.blocks.state(&1).unwrap().present, 3);
    }

    #[test]
    fn presence_comes_before_use() {
        let mut policy = holding(Reads::Whole, &[0, 4]);
        hear(&mut policy, EventKind::Replace, 5);
        policy.advance(Duration::from_secs(100));
        policy.touch(&4);
        policy.touch(&4);
        assert_eq!(leaving_order(policy), [4, 0]);
    }

    #[test]
    fn among_equals_the_comparator_decides() {
        for (apart_secs, reading, order) in [
            (10, Reading::Printed, [0, 4]),
            (10, Reading::Inverted, [4, 0]),
            (100, Reading::Printed, [4, 0]),
            (100, Reading::Inverted, [0, 4]),
        ] {
            let mut policy = holding(Reads::Whole, &[0]);
            policy.settings.reading = reading;
            policy.touch(&0);
            policy.touch(&0);
            policy.advance(Duration::from_secs(apart_secs));
            policy.insert(4, 1);
            assert_eq!(leaving_order(policy), order, "{reading:?} {apart_secs}");
        }
    }

    #[test]
    fn a_miss_elsewhere_names_the_siblings_to_fetch() {
        let miss = |key| Event {
            at: Duration::ZERO,
            key,
            kind: EventKind::Miss,
        };
        let policy = holding(Reads::Whole, &[0]);
        assert_eq!(policy.siblings(&miss(1), [0, 2]), [2]);
        assert_eq!(policy.siblings(&miss(5), [4, 7]), [4, 7]);
        let hit = Event {
            kind: EventKind::Hit,
            ..miss(1)
        };
        assert!(policy.siblings(&hit, [0, 2]).is_empty());
    }

    #[test]
    fn where_reads_are_partial_one_miss_is_not_a_reason_to_fetch_the_rest() {
        let mut policy = holding(Reads::Partial, &[0]);
        let miss = Event {
            at: Duration::ZERO,
            key: 1,
            kind: EventKind::Miss,
        };
        assert!(policy.siblings(&miss, [2]).is_empty());
        policy.hear(&miss);
        assert_eq!(policy.siblings(&miss, [2]), [2], "half of it is in cache");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// A node holds one block of each object, and no two are used at the same time.
        #[test]
        fn victims_are_those_of_the_papers_comparator(
            steps in vec((0..5u8, 0..10u32), 0..200), is_printed in any::<bool>(), affinity_secs in 0..100u64
        ) {
            let settings = Settings {
                reads: Reads::Whole,
                reading: if is_printed { Reading::Printed } else { Reading::Inverted },
                affinity: Duration::from_secs(affinity_secs),
            };
            let mut policy = C2p::new(settings);
            // (key, blocks of the object that are present, uses), least recently used first.
            let mut model: Vec<(u32, u32, Uses)> = Vec::new();
            for (second, (step, object)) in (0..).zip(steps) {
                let (key, now) = (4 * object, Duration::from_secs(7 * second));
                policy.advance(now);
                let place = model.iter().position(|&(other, ..)| other == key);
                match (step, place) {
                    (0 | 1, None) => {
                        policy.insert(key, 1);
                        policy.observe(&object, 4);
                        model.push((key, 4, Uses::first(now)));
                    }
                    (0 | 1, Some(place)) => {
                        policy.touch(&key);
                        let (_, present, uses) = model.remove(place);
                        model.push((key, present, uses.again(now)));
                    }
                    (2, _) => {
                        hear(&mut policy, EventKind::Replace, key + 1);
                        place.inspect(|&place| model[place].1 = 1.max(model[place].1 - 1));
                    }
                    (3, _) => {
                        hear(&mut policy, EventKind::Miss, key + 1);
                        place.inspect(|&place| model[place].1 = 4);
                    }
                    _ => {
                        let least = model.iter().map(|&(_, present, _)| present).min();
                        let victim = model
                            .iter()
                            .filter(|&&(_, present, _)| Some(present) == least)
                            .min_by(|a, b| compare(a.2, b.2, settings.affinity, settings.reading, now))
                            .map(|&(key, ..)| key);
                        assert_eq!(policy.evict(&mut |_| true).map(|(key, _)| key), victim);
                        model.retain(|&(key, ..)| Some(key) != victim);
                    }
                }
            }
        }
    }
}
