//! Blocks of objects that other nodes have begun to forget leave first.

mod closeness;
mod compare;
mod events;
mod global;
#[cfg(test)]
mod tests;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt::Debug;
use std::hash::{BuildHasherDefault, Hash};
use std::time::Duration;

pub use closeness::{CANDIDATES, Closeness, Rule};
pub use compare::{Reading, Uses, compare};
pub use events::{Event, EventKind};
pub use global::{GROUP_BLOCKS, Presence};

use self::global::Global;
use super::grouped::{Grouped, WholeState};
use super::{Eviction, Ranking};
use crate::hash::KeyHasher;
use crate::{NodeId, PartOf};

/// C2P (Nadgowda et al., *Co-operative Caching in Distributed Storage Systems*): a reader waits for the last
/// block of an object, so an object cached in part on several nodes is hardly better than one that is not
/// cached at all. Nodes tell each other the events of their blocks ([`C2p::take_events`], gathered in a
/// [`crate::outbox`]), and all of them let go of the same objects.
///
/// The victim (C2P comparator, Algorithm 2) is a block of the object that is *complete* to the least part
/// ([`Completeness`]). Among equals the policy below decides: the paper's own comparator ([`Closeness`]), or
/// any [`Ranking`].
///
/// The paper sorts all blocks for each victim. Here incomplete objects are kept in the order of their
/// completeness and of the last use of their least recently used block, O(log n) for n objects. The victim is
/// sought among the first [`CANDIDATES`] of the least complete, each represented by that block. Where all
/// objects are complete, the policy below chooses as if it were alone.
///
/// Objects of more than [`GROUP_BLOCKS`] blocks are judged in groups of so many blocks. The paper derives the
/// size of an object from the ratio of global to local hits; here the caller tells it to [`C2p::observe`].
/// Global metadata is kept for groups of which a block is here, and for at most as many others: those whose
/// last block left here, and those that other nodes told of.
#[derive(Debug)]
pub struct C2p<K: PartOf, B = Closeness<K>> {
    below: B,
    /// The held blocks by group, each with the time of its last use.
    groups: Grouped<InGroup<K>, Duration, Standing>,
    global: HashMap<Group<K::Whole>, Known, BuildHasherDefault<KeyHasher>>,
    /// Groups of which nothing is held here, in the order in which they came to be so.
    absent: BTreeMap<u64, Group<K::Whole>>,
    absences: u64,
    completeness: Completeness,
    now: Duration,
    /// Whether events are kept for other nodes.
    is_telling: bool,
    waiting: VecDeque<(Duration, K, EventKind)>,
    lost: u64,
}

/// The meaning of a complete object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Completeness {
    /// As in the paper, for objects that are read whole: every block counts. A block that comes in anywhere
    /// makes the object complete, because all of them will come. Each block that leaves takes its part away.
    Whole,
    /// For objects of which readers may want a part: the blocks count that readers used lately, on any node.
    /// A block that comes in makes the object complete, as above, and so does a reader that uses one. A block
    /// that leaves takes its part away unless another node holds it, too, however many do.
    #[default]
    Read,
}

impl Completeness {
    /// Every one.
    pub const ALL: [Self; 2] = [Self::Read, Self::Whole];

    /// The word in settings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Read => "read",
        }
    }
}

/// A key as a part of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct InGroup<K>(K);

/// Blocks of one object that are judged together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group<W> {
    whole: W,
    number: u32,
}

#[derive(Clone, Debug, Default)]
struct Known {
    global: Global,
    /// Its number among the groups of which nothing is held here.
    absence: Option<u64>,
}

/// The completeness of a group of which a block is here.
#[derive(Clone, Copy, Debug)]
struct Standing {
    presence: Presence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Rank {
    presence: Presence,
    used_at: Duration,
}

/// Stands for all other nodes together, of which a directory tells ([`C2p::learn`]).
pub const DIRECTORY: NodeId = NodeId(u64::MAX);

/// The most events that wait to be taken. The oldest are lost.
const WAITING_MAX: usize = 4096;

/// The part of an object that has to be there for the rest to be worth fetching before a reader asks.
const NEARLY_WHOLE: Presence = Presence::of(3, 4);

/// The number of groups without a block here that are remembered in any case.
const ABSENT_MIN: usize = 16;

/// The number of blocks of a group of an object that has so many blocks.
fn of_group(number: u32, blocks: u32) -> u32 {
    let before = number.saturating_mul(GROUP_BLOCKS);
    blocks.saturating_sub(before).min(GROUP_BLOCKS)
}

/// The first blocks of a group, a bit for each.
const fn all_of(blocks: u32) -> u64 {
    match blocks {
        GROUP_BLOCKS.. => u64::MAX,
        blocks => (1 << blocks) - 1,
    }
}

impl Default for Standing {
    fn default() -> Self {
        Self {
            presence: Presence::WHOLE,
        }
    }
}

impl WholeState<Duration> for Standing {
    type Rank = Rank;

    fn rank(&self, _held: u32, oldest: &Duration) -> Rank {
        let presence = self.presence;
        // The policy below puts the complete ones in order.
        let used_at = if presence == Presence::WHOLE {
            Duration::ZERO
        } else {
            *oldest
        };
        Rank { presence, used_at }
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
    /// The block's place in a set of blocks of its group.
    fn bit(&self) -> u64 {
        1 << self.index()
    }
}

impl<K: PartOf, B: Default> Default for C2p<K, B> {
    fn default() -> Self {
        Self::above(B::default(), Completeness::default())
    }
}

impl<K: PartOf, B> C2p<K, B> {
    /// An empty policy above an empty one.
    pub fn above(below: B, completeness: Completeness) -> Self {
        Self {
            below,
            groups: Grouped::default(),
            global: HashMap::default(),
            absent: BTreeMap::new(),
            absences: 0,
            completeness,
            now: Duration::ZERO,
            is_telling: true,
            waiting: VecDeque::new(),
            lost: 0,
        }
    }

    /// The policy below.
    pub const fn below(&self) -> &B {
        &self.below
    }

    /// The policy below, for facts that only this policy takes. Keys come and go through this one.
    pub const fn below_mut(&mut self) -> &mut B {
        &mut self.below
    }

    /// Sets whether events are kept for other nodes, as they are at first. Those that wait are forgotten.
    pub fn set_telling(&mut self, is_telling: bool) {
        self.is_telling = is_telling;
        while self.forget_oldest() {}
    }

    /// The number of events that were lost because they were not taken in time.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Forgets the event that has waited for longest. Returns whether there was one. The next event of its
    /// group is told, even one that says nothing new.
    fn forget_oldest(&mut self) -> bool {
        let Some((_, key, _)) = self.waiting.pop_front() else {
            return false;
        };
        if let Some(known) = self.global.get_mut(&InGroup(key).whole()) {
            known.global.waits(false);
        }
        true
    }
}

impl<K: Copy + Eq + Hash + PartOf, B: Ranking<K>> C2p<K, B> {
    /// Records that the object of a held block has `blocks` blocks in all.
    pub fn observe(&mut self, key: &K, blocks: u32) {
        let (group, completeness) = (InGroup(*key).whole(), self.completeness);
        if let Some(known) = self.global.get_mut(&group) {
            known
                .global
                .set_blocks(of_group(group.number, blocks), completeness);
            self.judge(group);
        }
    }

    /// Notes that a block that has just come in was not fetched for a reader.
    pub fn added(&mut self, key: &K) {
        let of_key = |(_, other, kind): &&mut (Duration, K, EventKind)| {
            other == key && matches!(kind, EventKind::Miss | EventKind::Add)
        };
        if let Some((.., kind)) = self.waiting.iter_mut().rev().find(of_key) {
            *kind = EventKind::Add;
        }
    }

    /// Notes that the object of a held block is gone for good. The caller removes its blocks.
    pub fn deleted(&mut self, key: &K) {
        self.happened(*key, EventKind::Delete);
    }

    /// Takes in an event of a block on another node.
    pub fn hear(&mut self, node: NodeId, event: &Event<K>) {
        let (group, now) = (InGroup(event.key).whole(), self.now);
        self.known(group).global.hear(node, event, now);
        self.judge(group);
    }

    /// Takes in which of some blocks of the group of a block other nodes hold, as a directory tells: a bit
    /// for each block.
    pub fn learn(&mut self, key: &K, of: u64, held: u64) {
        let (group, now) = (InGroup(*key).whole(), self.now);
        self.known(group).global.learn_some(DIRECTORY, of, held, now);
        self.judge(group);
    }

    /// The groups of which something is known, for [`C2p::forget`].
    pub fn groups(&self) -> impl Iterator<Item = Group<K::Whole>> {
        self.global.keys().copied()
    }

    /// Forgets the blocks of a group that nodes hold which are not to be `kept`.
    pub fn forget(&mut self, group: Group<K::Whole>, kept: &HashSet<NodeId>) {
        let known = self.global.get_mut(&group);
        if known.is_some_and(|known| known.global.forget(kept)) {
            self.judge(group);
        }
    }

    /// Removes the events that have not been told, in the order in which they happened, each with the blocks
    /// of the group that this node has by now.
    pub fn take_events(&mut self) -> Vec<Event<K>> {
        let now = self.now;
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        let events = waiting.map(|(at, key, kind)| {
            let known = self.global.get_mut(&InGroup(key).whole());
            let (held, read) = known.map_or((0, 0), |known| known.global.tell(now));
            Event {
                at,
                key,
                kind,
                held,
                read,
            }
        });
        events.collect()
    }

    /// The blocks of the group of an event that are worth fetching before a reader asks, a bit for each: none
    /// that some node holds. It goes beyond the paper, whose outlook (section 6) names it.
    ///
    /// Where objects are read whole, a miss of one block means that all `blocks` of its object are wanted.
    /// Else an object has to be nearly complete, three quarters at least, and in use.
    pub fn missing(&self, event: &Event<K>, blocks: u32) -> u64 {
        let all = all_of(of_group(InGroup(event.key).whole().number, blocks));
        let Some(Known { global, .. }) = self.global.get(&InGroup(event.key).whole()) else {
            return 0;
        };
        match (self.completeness, event.kind) {
            (Completeness::Whole, EventKind::Miss) => all & !global.here(),
            (Completeness::Read, EventKind::Miss | EventKind::Hit) => {
                let read = global.read();
                let missing = read & !global.present();
                let there = read.count_ones() - missing.count_ones();
                if Presence::of(there, read.count_ones()) >= NEARLY_WHOLE {
                    missing & all
                } else {
                    0
                }
            }
            _ => 0,
        }
    }

    /// The number of blocks of the group of a block; 0 if it is not known.
    pub fn group_blocks(&self, key: &K) -> u32 {
        let known = self.global.get(&InGroup(*key).whole());
        known.map_or(0, |known| known.global.blocks())
    }

    /// How complete the group of a block is, as far as this node knows; `None` if it knows nothing of it.
    pub fn presence(&self, key: &K) -> Option<Presence> {
        let known = self.global.get(&InGroup(*key).whole())?;
        Some(known.global.presence(self.completeness))
    }

    /// The blocks of the group of a block that readers used lately, those that are here, and those that each
    /// other node holds: a bit for each block. Empty if nothing is known of the group.
    pub fn knowledge(&self, key: &K) -> (u64, u64, Vec<(NodeId, u64)>) {
        let known = self.global.get(&InGroup(*key).whole());
        known.map_or((0, 0, Vec::new()), |Known { global, .. }| {
            (global.read(), global.here(), global.others().collect())
        })
    }

    /// The blocks of incomplete objects that `may_leave` allows, the least complete first: they leave before
    /// all others.
    pub fn incomplete_first(&self, may_leave: &mut dyn FnMut(&K) -> bool) -> Vec<K> {
        let incomplete = self.incomplete().take(CANDIDATES);
        let blocks = incomplete.flat_map(|(_, group)| self.groups.parts_of(group));
        blocks
            .map(|(InGroup(key), _)| key)
            .filter(|key| may_leave(key))
            .collect()
    }

    fn incomplete(&self) -> impl Iterator<Item = (Rank, super::slot::Slot)> {
        self.groups
            .least_first()
            .take_while(|(rank, _)| rank.presence < Presence::WHOLE)
    }

    /// The block of the least complete object that the policy below would evict first; `None` if all objects
    /// are complete.
    fn first_of_incomplete(&self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<K> {
        let mut candidates = self
            .incomplete()
            .filter_map(|(rank, group)| {
                let mut blocks = self.groups.parts_of(group).map(|(InGroup(key), _)| key);
                Some((rank.presence, blocks.find(|key| may_leave(key))?))
            })
            .peekable();
        let &(least, _) = candidates.peek()?;
        // Start from the least recently used: not every ranking is an order.
        let victim = candidates
            .take(CANDIDATES)
            .take_while(|(presence, _)| *presence == least)
            .min_by(|(_, one), (_, other)| self.below.compare(one, other));
        victim.map(|(_, key)| key)
    }

    /// The state of a group. The group is remembered from now on.
    fn known(&mut self, group: Group<K::Whole>) -> &mut Known {
        if let Entry::Vacant(unknown) = self.global.entry(group) {
            unknown.insert(Known::default());
            self.is_absent(group);
        }
        self.global.get_mut(&group).expect("it is there by now")
    }

    /// Remembers a group of which nothing is held here, and forgets the one that has been so for longest if
    /// there are too many.
    fn is_absent(&mut self, group: Group<K::Whole>) {
        let Some(known) = self.global.get_mut(&group) else {
            return;
        };
        if known.absence.is_none() {
            known.absence = Some(self.absences);
            self.absent.insert(self.absences, group);
            self.absences += 1;
        }
        while self.absent.len() > self.groups.wholes().max(ABSENT_MIN) {
            let Some((_, longest)) = self.absent.pop_first() else {
                return;
            };
            self.global.remove(&longest);
        }
    }

    /// Remembers a group of which a block is here now.
    fn is_present(&mut self, group: Group<K::Whole>) -> &mut Global {
        let known = self.global.entry(group).or_default();
        if let Some(absence) = known.absence.take() {
            self.absent.remove(&absence);
        }
        &mut known.global
    }

    /// Gives the blocks of a group the rank that its completeness means.
    fn judge(&mut self, group: Group<K::Whole>) {
        let Some(known) = self.global.get(&group) else {
            return;
        };
        let presence = known.global.presence(self.completeness);
        self.groups
            .change(&group, |standing, _| standing.presence = presence);
    }

    fn happened(&mut self, key: K, kind: EventKind) {
        if !self.is_telling {
            return;
        }
        if self.waiting.len() == WAITING_MAX {
            self.forget_oldest();
            self.lost += 1;
        }
        self.waiting.push_back((self.now, key, kind));
        if let Some(known) = self.global.get_mut(&InGroup(key).whole()) {
            known.global.waits(true);
        }
    }

    /// Notes that a reader uses a block that is here.
    fn used(&mut self, key: K) {
        let (part, now) = (InGroup(key), self.now);
        let Some(known) = self.global.get_mut(&part.whole()) else {
            return;
        };
        if known.global.hit(part.bit(), now) {
            self.happened(key, EventKind::Hit);
        }
        self.judge(part.whole());
    }

    /// Whether a block is here and has no rank.
    fn is_aside(&self, key: &K) -> bool {
        let part = InGroup(*key);
        let known = self.global.get(&part.whole());
        !self.groups.contains(&part) && known.is_some_and(|known| known.global.here() & part.bit() != 0)
    }

    /// Notes that a block has left.
    fn left(&mut self, key: K, kind: EventKind) {
        let part = InGroup(key);
        let group = part.whole();
        self.groups.remove(&part, |_, _| ());
        if let Some(known) = self.global.get_mut(&group) {
            known.global.left(part.bit());
            let is_absent = known.global.here() == 0;
            self.judge(group);
            if is_absent {
                self.is_absent(group);
            }
        }
        self.happened(key, kind);
    }
}

impl<K: Copy + Eq + Hash + PartOf, B: Ranking<K>> Eviction<K> for C2p<K, B> {
    fn insert(&mut self, key: K, bytes: u64) {
        let (part, now) = (InGroup(key), self.now);
        self.below.insert(key, bytes);
        self.groups.insert(part, now, |_, _| ());
        self.is_present(part.whole()).came(part.bit(), true, now);
        self.judge(part.whole());
        self.happened(key, EventKind::Miss);
    }

    fn bring(&mut self, key: K, bytes: u64) {
        let (part, now) = (InGroup(key), self.now);
        self.below.insert(key, bytes);
        self.groups.insert(part, now, |_, _| ());
        let global = self.is_present(part.whole());
        global.came(part.bit(), false, now);
        let is_told_anyway = global.is_waiting();
        self.judge(part.whole());
        // One event tells of all blocks of the group, and a node may bring a million blocks at once.
        if !is_told_anyway {
            self.happened(key, EventKind::Add);
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
        self.groups.touch(&part, |used_at, _| *used_at = now);
        self.used(*key);
    }

    fn remove(&mut self, key: &K) -> Option<u64> {
        let bytes = self.below.remove(key)?;
        self.left(*key, EventKind::Replace);
        Some(bytes)
    }

    fn set_aside(&mut self, key: &K) -> Option<u64> {
        // The block is here for the completeness of its object, at any rank of its own.
        let bytes = self.below.set_aside(key)?;
        self.groups.remove(&InGroup(*key), |_, _| ());
        Some(bytes)
    }

    fn take_back(&mut self, key: K, bytes: u64) {
        if !self.is_aside(&key) {
            self.bring(key, bytes);
            return;
        }
        let (part, now) = (InGroup(key), self.now);
        self.below.take_back(key, bytes);
        self.groups.insert(part, now, |_, _| ());
        self.judge(part.whole());
    }

    fn left_aside(&mut self, key: &K) {
        if self.is_aside(key) {
            self.below.left_aside(key);
            self.left(*key, EventKind::Replace);
        }
    }

    fn evict(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<(K, u64)> {
        let (key, bytes) = match self.first_of_incomplete(may_leave) {
            Some(key) => (key, self.below.evict_key(&key)?),
            None => self.below.evict(may_leave)?,
        };
        self.left(key, EventKind::Replace);
        Some((key, bytes))
    }

    fn advance(&mut self, now: Duration) {
        self.now = now;
        self.below.advance(now);
    }

    fn contains(&self, key: &K) -> bool {
        self.below.contains(key)
    }

    fn len(&self) -> usize {
        self.below.len()
    }
}
