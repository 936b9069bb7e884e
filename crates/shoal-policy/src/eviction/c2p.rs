//! Evicts blocks of objects that other nodes have begun to evict.

mod closeness;
mod compare;
mod events;
mod global;
mod memory;
mod recorded;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use shoal_base::words;

pub use closeness::{CANDIDATES, Clock, Closeness, Rule};
pub use compare::{Reading, Uses, compare};
pub use events::{Event, EventKind};
pub use global::{GROUP_BLOCKS, Presence};

use self::memory::Memory;
use self::recorded::{Recorded, RecordedEvent};
use super::structures::grouped::{Grouped, WholeState};
use super::{Eviction, Gwf, Named};
use crate::{NodeId, PartOf};

/// C2P (Nadgowda et al., *Co-operative Caching in Distributed Storage Systems*): a reader waits for the last
/// block of an object, so an object cached in part on several nodes is hardly better than one that is not
/// cached at all. Nodes send each other the events of their blocks ([`C2p::take_events`], gathered in a
/// [`crate::outbox`]), so that all of them evict the same objects.
///
/// The victim (C2P comparator, Algorithm 2) is a block of the least *complete* object ([`Completeness`]).
/// Among equals the policy below decides: the paper's own comparator ([`Closeness`]), or any other
/// ([`Eviction::compare`]).
///
/// The paper sorts all blocks for each victim. Here incomplete objects are kept in the order of their
/// completeness and of the last use of their least recently used block, O(log n) for n objects. The victim is
/// chosen among the [`CANDIDATES`] least complete objects, each represented by that block. If all objects are
/// complete, the policy below chooses alone.
///
/// Objects of more than [`GROUP_BLOCKS`] blocks are split into groups of that size, which are judged
/// separately. The paper derives the size of an object from the ratio of global to local hits; here the
/// caller passes it to [`Eviction::observe`]. Global metadata is kept for groups with a block on this node
/// and for at most as many others: those whose last local block left, and those known only from other nodes'
/// events.
#[derive(Debug)]
pub struct C2p<K: PartOf> {
    below: Box<Named<K>>,
    /// The held blocks by group, each with the time of its last use.
    groups: Grouped<InGroup<K>, Duration, Presence>,
    global: Memory<Group<K::Whole>>,
    completeness: Completeness,
    now: Duration,
    /// The events for other nodes.
    recorded: Recorded<K>,
}

words! {
    /// The meaning of a complete object.
    #[derive(Default)]
    pub enum Completeness {
        /// For objects that may be read in part: only blocks that readers on any node used recently count.
        /// When a block is cached or used by a reader, the object counts as complete, as above. An evicted
        /// block reduces the count unless another node still holds it; copies on several nodes count once.
        #[default]
        Read = "read",
        /// As in the paper, for objects that are read whole: every block counts. When any node caches a block
        /// the object counts as complete, because the rest will follow. Each evicted block reduces the count.
        Whole = "whole",
    }
}

/// A key as a part of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct InGroup<K>(K);

/// Blocks of one object that are judged together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group<W> {
    whole: W,
    number: u32,
}

/// The blocks of one group on all nodes, as one node has learned of them. Sets of blocks are bit masks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupKnowledge {
    /// How complete the group is.
    pub presence: Presence,
    /// The blocks that readers used recently.
    pub read: u64,
    /// The blocks that this node holds.
    pub here: u64,
    /// The other nodes, each with the blocks that it last reported.
    pub others: Vec<(NodeId, u64)>,
}

/// The pseudo-node for all other nodes, as reported by a directory ([`C2p::learn`]).
pub const DIRECTORY: NodeId = NodeId(u64::MAX);

/// The presence from which the rest of an object is worth prefetching.
const NEARLY_WHOLE: Presence = Presence::new(3, 4);

/// Returns the number of blocks in group `number` of an object with `blocks` blocks.
fn of_group(number: u32, blocks: u32) -> u32 {
    let before = number.saturating_mul(GROUP_BLOCKS);
    blocks.saturating_sub(before).min(GROUP_BLOCKS)
}

/// Returns a bit mask of the first `blocks` blocks of a group.
const fn all_of(blocks: u32) -> u64 {
    match blocks {
        GROUP_BLOCKS.. => u64::MAX,
        blocks => (1 << blocks) - 1,
    }
}

impl WholeState<Duration> for Presence {
    /// How complete the group is, and when its least recently used block was used.
    type Rank = (Self, Duration);

    fn rank(&self, _held: u32, oldest: &Duration) -> Self::Rank {
        // The policy below orders complete groups.
        let is_whole = *self == Self::WHOLE;
        (*self, if is_whole { Duration::ZERO } else { *oldest })
    }
}

impl<K: PartOf> PartOf for InGroup<K> {
    type Whole = Group<K::Whole>;

    fn whole(&self) -> Self::Whole {
        Group {
            whole: self.0.whole(),
            number: self.0.index() / GROUP_BLOCKS,
        }
    }

    fn index(&self) -> u32 {
        self.0.index() % GROUP_BLOCKS
    }
}

impl<K: PartOf> InGroup<K> {
    /// The bit of the block in a set of its group.
    fn bit(&self) -> u64 {
        1 << self.index()
    }
}

impl<K: PartOf> C2p<K> {
    /// Creates an empty policy above `below`, which must be empty too.
    pub fn above(below: Box<Named<K>>, completeness: Completeness) -> Self {
        assert!(below.c2p().is_none(), "C2P stands above another policy");
        Self {
            below,
            groups: Grouped::default(),
            global: Memory::default(),
            completeness,
            now: Duration::ZERO,
            recorded: Recorded::default(),
        }
    }
}

impl<K: Copy + Eq + Hash + PartOf> C2p<K> {
    /// Enables or disables the recording of events for other nodes (initially enabled), and drops queued
    /// events.
    pub fn set_recording(&mut self, is_recording: bool) {
        for event in self.recorded.set_on(is_recording) {
            self.was_dropped(event);
        }
    }

    /// The number of events dropped because they were not taken in time.
    pub const fn lost(&self) -> u64 {
        self.recorded.lost()
    }

    /// Marks a block that was just inserted as not fetched for a reader.
    pub fn added(&mut self, key: &K) {
        self.recorded.added(key);
    }

    /// Records that the object of a held block was deleted. The caller removes its blocks.
    pub fn deleted(&mut self, key: &K) {
        self.happened(*key, EventKind::Delete, false);
    }

    /// Applies an event received from another node.
    pub fn receive(&mut self, node: NodeId, event: &Event<K>) {
        let (group, now) = (InGroup(event.key).whole(), self.now);
        self.global
            .known(group, self.groups.wholes())
            .receive(node, event, now);
        self.judge(group);
    }

    /// Applies a directory's answer about the group of `key`: of the blocks in the mask `of`, other nodes
    /// hold those in `held`.
    pub fn learn(&mut self, key: &K, of: u64, held: u64) {
        let (group, now) = (InGroup(*key).whole(), self.now);
        self.global
            .known(group, self.groups.wholes())
            .learn_some(DIRECTORY, of, held, now);
        self.judge(group);
    }

    /// The groups with global metadata, for [`C2p::forget`].
    pub fn groups(&self) -> impl Iterator<Item = Group<K::Whole>> {
        self.global.groups()
    }

    /// Forgets the blocks of a group on nodes that are not in `kept`.
    pub fn forget(&mut self, group: Group<K::Whole>, kept: &HashSet<NodeId>) {
        let global = self.global.get_mut(group);
        if global.is_some_and(|global| global.forget(kept)) {
            self.judge(group);
        }
    }

    /// Takes the queued events, oldest first, each with the blocks of its group that this node holds now.
    pub fn take_events(&mut self) -> Vec<Event<K>> {
        let now = self.now;
        let recorded = self.recorded.take().into_iter();
        let events = recorded.map(|event| {
            let global = self.global.get_mut(InGroup(event.key).whole());
            let (held, read) = global.map_or((0, 0), |global| global.take_state(now));
            Event {
                at: event.at,
                key: event.key,
                kind: event.kind,
                held,
                read,
                is_urgent: event.is_urgent,
            }
        });
        events.collect()
    }

    /// Returns true if an urgent event was queued since events were last taken ([`Event::is_urgent`]).
    pub const fn has_urgent(&self) -> bool {
        self.recorded.has_urgent()
    }

    /// Returns a bit mask of the blocks in the event's group that are worth prefetching, excluding blocks
    /// that any node holds. This goes beyond the paper, which mentions it as future work (section 6).
    ///
    /// With [`Completeness::Whole`], a miss of one block means that all `blocks` of its object are wanted.
    /// With [`Completeness::Read`], the object has to be in use and at least three quarters present.
    pub fn missing(&self, event: &Event<K>, blocks: u32) -> u64 {
        let all = all_of(of_group(InGroup(event.key).whole().number, blocks));
        let Some(global) = self.global.get(InGroup(event.key).whole()) else {
            return 0;
        };
        match (self.completeness, event.kind) {
            (Completeness::Whole, EventKind::Miss) => all & !global.here,
            (Completeness::Read, EventKind::Miss | EventKind::Hit) => {
                let read = global.read();
                let missing = read & !global.present();
                let there = read.count_ones() - missing.count_ones();
                if Presence::new(there, read.count_ones()) >= NEARLY_WHOLE {
                    missing & all
                } else {
                    0
                }
            }
            _ => 0,
        }
    }

    /// The number of blocks in the group of `key`; 0 if unknown.
    pub fn group_blocks(&self, key: &K) -> u32 {
        self.global
            .get(InGroup(*key).whole())
            .map_or(0, |global| global.blocks)
    }

    /// Returns what this node has learned of the group of `key`; `None` if it has learned nothing.
    pub fn knowledge(&self, key: &K) -> Option<GroupKnowledge> {
        let global = self.global.get(InGroup(*key).whole())?;
        Some(GroupKnowledge {
            presence: global.presence(self.completeness),
            read: global.read(),
            here: global.here,
            others: global.others().collect(),
        })
    }

    /// The blocks of incomplete objects that `may_leave` allows, the least complete object first: they are
    /// evicted before all others.
    pub fn incomplete_first(&self, may_leave: &mut dyn FnMut(&K) -> bool) -> Vec<K> {
        let incomplete = self.incomplete().take(CANDIDATES);
        let blocks = incomplete.flat_map(|(_, blocks)| blocks);
        blocks.filter(may_leave).collect()
    }

    /// The incomplete groups, the least complete first, each with its blocks on this node.
    fn incomplete(&self) -> impl Iterator<Item = (Presence, impl Iterator<Item = K>)> {
        self.groups
            .least_first()
            .take_while(|((presence, _), _)| *presence < Presence::WHOLE)
            .map(|((presence, _), parts)| (presence, parts.map(|(InGroup(key), _)| key)))
    }

    /// The block of the least complete object that the policy below would evict first; `None` if all objects
    /// are complete.
    fn first_of_incomplete(&self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<K> {
        let mut candidates = self
            .incomplete()
            .filter_map(|(presence, mut blocks)| Some((presence, blocks.find(&mut *may_leave)?)))
            .peekable();
        let &(least, _) = candidates.peek()?;
        // Start from the least recently used, because not every ranking is transitive.
        let victim = candidates
            .take(CANDIDATES)
            .take_while(|(presence, _)| *presence == least)
            .min_by(|(_, one), (_, other)| self.below.compare(one, other));
        victim.map(|(_, key)| key)
    }

    /// Updates the rank of a group's blocks from its completeness.
    fn judge(&mut self, group: Group<K::Whole>) {
        if let Some(global) = self.global.get(group) {
            let presence = global.presence(self.completeness);
            self.groups.change(&group, |standing| *standing = presence);
        }
    }

    fn happened(&mut self, key: K, kind: EventKind, is_urgent: bool) {
        if !self.recorded.is_on() {
            return;
        }
        let dropped = self.recorded.push(RecordedEvent {
            at: self.now,
            key,
            kind,
            is_urgent,
        });
        if let Some(event) = dropped {
            self.was_dropped(event);
        }
        if let Some(global) = self.global.get_mut(InGroup(key).whole()) {
            global.is_waiting = true;
        }
    }

    /// Has the next event of a group sent even if it adds nothing new, because one was dropped.
    fn was_dropped(&mut self, event: RecordedEvent<K>) {
        if let Some(global) = self.global.get_mut(InGroup(event.key).whole()) {
            global.is_waiting = false;
        }
    }

    /// Records that a reader used a block on this node.
    fn used(&mut self, key: K) {
        let (part, now) = (InGroup(key), self.now);
        let Some(global) = self.global.get_mut(part.whole()) else {
            return;
        };
        if global.hit(part.bit(), now) {
            self.happened(key, EventKind::Hit, false);
        }
        self.judge(part.whole());
    }

    /// Returns true if a block is on this node but has been set aside, so that it has no rank.
    fn is_aside(&self, key: &K) -> bool {
        let part = InGroup(*key);
        let global = self.global.get(part.whole());
        !self.groups.contains(&part) && global.is_some_and(|global| global.here & part.bit() != 0)
    }

    /// Records that a block has left this node. The event is urgent if the group was complete until then.
    fn left(&mut self, key: K) {
        let part = InGroup(key);
        let group = part.whole();
        debug_assert!(!self.below.contains(&key), "a block that left has no rank");
        self.groups.remove(&part);
        let mut breaks = false;
        if let Some(global) = self.global.get_mut(group) {
            let was_whole = global.presence(self.completeness) == Presence::WHOLE;
            global.left(part.bit());
            breaks = was_whole && global.presence(self.completeness) < Presence::WHOLE;
            if global.here == 0 {
                self.global.set_absent(group, self.groups.wholes());
            }
            self.judge(group);
        }
        self.happened(key, EventKind::Replace, breaks);
    }
}

impl<K: Copy + Eq + Hash + Debug + PartOf> Eviction<K> for C2p<K> {
    fn insert(&mut self, key: K, bytes: u64) {
        let (part, now) = (InGroup(key), self.now);
        self.below.insert(key, bytes);
        self.groups.insert(part, now);
        self.global.present(part.whole()).came(part.bit(), true, now);
        self.judge(part.whole());
        self.happened(key, EventKind::Miss, false);
    }

    fn bring(&mut self, key: K, bytes: u64) {
        let (part, now) = (InGroup(key), self.now);
        self.below.insert(key, bytes);
        self.groups.insert(part, now);
        let global = self.global.present(part.whole());
        global.came(part.bit(), false, now);
        let is_sent_anyway = global.is_waiting;
        self.judge(part.whole());
        // One event carries the state of the whole group, and a node may bring a million blocks at once.
        if !is_sent_anyway {
            self.happened(key, EventKind::Add, false);
        }
    }

    fn touch(&mut self, key: &K) {
        let (part, now) = (InGroup(*key), self.now);
        if !self.groups.contains(&part) {
            if self.is_aside(key) {
                self.used(*key);
            }
            return;
        }
        self.below.touch(key);
        self.groups.touch(&part, |used_at| *used_at = now);
        self.used(*key);
    }

    fn remove(&mut self, key: &K) -> Option<u64> {
        let bytes = self.below.remove(key)?;
        self.left(*key);
        Some(bytes)
    }

    fn set_aside(&mut self, key: &K) -> Option<u64> {
        // The block still counts towards the completeness of its object, although it has no rank.
        let bytes = self.below.set_aside(key)?;
        self.groups.remove(&InGroup(*key));
        Some(bytes)
    }

    fn take_back(&mut self, key: K, bytes: u64) {
        if !self.is_aside(&key) {
            self.bring(key, bytes);
            return;
        }
        let (part, now) = (InGroup(key), self.now);
        self.below.take_back(key, bytes);
        self.groups.insert(part, now);
        self.judge(part.whole());
    }

    fn left_aside(&mut self, key: &K) {
        if self.is_aside(key) {
            self.below.left_aside(key);
            self.left(*key);
        }
    }

    fn victim(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<K> {
        self.first_of_incomplete(may_leave)
            .or_else(|| self.below.victim(may_leave))
    }

    fn evict_key(&mut self, key: &K) -> Option<u64> {
        let bytes = self.below.evict_key(key)?;
        self.left(*key);
        Some(bytes)
    }

    fn advance(&mut self, now: Duration) {
        self.now = now;
        self.below.advance(now);
    }

    fn observe(&mut self, key: &K, blocks: u32) {
        let (group, completeness) = (InGroup(*key).whole(), self.completeness);
        if let Some(global) = self.global.get_mut(group) {
            global.set_blocks(of_group(group.number, blocks), completeness);
            self.judge(group);
        }
    }

    fn contains(&self, key: &K) -> bool {
        self.below.contains(key)
    }

    fn len(&self) -> usize {
        self.below.len()
    }

    fn gwf(&self) -> Option<&Gwf<K>> {
        self.below.gwf()
    }

    fn gwf_mut(&mut self) -> Option<&mut Gwf<K>> {
        self.below.gwf_mut()
    }

    fn c2p(&self) -> Option<&Self> {
        Some(self)
    }

    fn c2p_mut(&mut self) -> Option<&mut Self> {
        Some(self)
    }
}
