//! C2P's global metadata (table 2c): the blocks of one group on all nodes, as one node knows them.

use std::collections::HashSet;
use std::time::Duration;

use super::Completeness;
use super::events::{Event, EventKind};
use crate::NodeId;

/// The maximum number of blocks in a group, one bit each.
pub const GROUP_BLOCKS: u32 = u64::BITS;

/// The maximum number of other nodes remembered per group. A further one replaces the node with the oldest
/// event.
const OTHERS_MAX: usize = GROUP_BLOCKS as usize;

/// Length of an epoch. Blocks count as used recently if a reader used them in the current or the previous
/// epoch of the object. A new epoch begins with the first use after the current one has ended, so idle time
/// starts none.
const EPOCH: Duration = Duration::from_mins(1);

/// Minimum interval between hits that report nothing new. They are sent so that a lost event is made up for
/// within an epoch.
const HIT_PAUSE: Duration = Duration::from_secs(EPOCH.as_secs() / 2);

/// The metadata of one group of blocks. A set of blocks has a bit for each, by position in the group.
#[derive(Clone, Debug, Default)]
pub(super) struct Global {
    /// The number of blocks in the group; 0 if unknown.
    pub(super) blocks: u32,
    /// The blocks that this node holds.
    pub(super) here: u64,
    others: Vec<Other>,
    /// The number of cached blocks, as the paper counts them.
    counted: u32,
    /// The blocks that readers used on any node, in the current and in the previous epoch.
    read: [u64; 2],
    /// The blocks that left any cache since a reader last used the object.
    gone: u64,
    /// As `read`, for readers on this node only.
    read_here: [u64; 2],
    epoch_at: Duration,
    is_deleted: bool,
    sent_at: Option<Duration>,
    /// The blocks used on this node that have been reported to other nodes.
    sent: u64,
    /// True if an event of the group is queued, which will carry the group's state.
    pub(super) is_waiting: bool,
}

/// The blocks of the group that another node holds.
#[derive(Clone, Copy, Debug)]
struct Other {
    node: NodeId,
    held: u64,
    /// Time of the node's latest event, on its clock.
    at: Duration,
}

/// The part of an object's blocks that is in a cache, in units of 2⁻³² (*Object in Cache*).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Presence(u64);

/// A group of which nothing has been learned counts as whole.
impl Default for Presence {
    fn default() -> Self {
        Self::WHOLE
    }
}

impl Presence {
    /// Every block is there.
    pub const WHOLE: Self = Self(1 << 32);

    /// The presence of `present` out of `blocks` blocks; an empty group is whole.
    pub const fn new(present: u32, blocks: u32) -> Self {
        if blocks == 0 {
            return Self::WHOLE;
        }
        Self(((present as u64) << 32) / blocks as u64)
    }

    /// As a number from 0 to 1.
    pub fn fraction(self) -> f64 {
        self.0 as f64 / Self::WHOLE.0 as f64
    }
}

impl Global {
    pub(super) fn set_blocks(&mut self, blocks: u32, completeness: Completeness) {
        if completeness == Completeness::Whole && self.blocks == 0 {
            self.counted = blocks;
        }
        self.blocks = blocks;
        self.counted = self.counted.min(blocks);
    }

    /// Records that a block is on this node now; `is_read` is true if a reader asked for it.
    pub(super) fn came(&mut self, bit: u64, is_read: bool, now: Duration) {
        self.here |= bit;
        self.comes_whole();
        if is_read {
            self.used(bit, now);
        }
    }

    /// Records that a reader used a block on this node. Returns true if the other nodes should be notified.
    pub(super) fn hit(&mut self, bit: u64, now: Duration) -> bool {
        self.used(bit, now);
        self.gone = 0;
        let is_due = self.sent_at.is_none_or(|at| now.saturating_sub(at) >= HIT_PAUSE);
        !self.is_waiting && (is_due || self.sent & bit == 0)
    }

    fn used(&mut self, bit: u64, now: Duration) {
        // Even if another node reported the object as deleted: readers get only versions that the lake has.
        self.is_deleted = false;
        self.turn(now);
        self.read[0] |= bit;
        self.read_here[0] |= bit;
    }

    /// Records that a block has left this node.
    pub(super) fn left(&mut self, bit: u64) {
        self.here &= !bit;
        self.gone |= bit;
        self.count_one_less();
    }

    /// Applies an event received from another node.
    pub(super) fn receive<K>(&mut self, node: NodeId, event: &Event<K>, now: Duration) {
        let read = event.read;
        // Blocks that readers on that node used recently and that it no longer holds.
        let left = read & !event.held;
        match event.kind {
            EventKind::Hit => {
                self.turn(now);
                self.gone |= left;
                self.is_deleted = false;
            }
            EventKind::Add | EventKind::Miss => {
                self.turn(now);
                self.comes_whole();
                self.is_deleted = false;
            }
            EventKind::Replace => {
                self.gone |= left;
                self.count_one_less();
            }
            EventKind::Delete => self.is_deleted = true,
        }
        self.read[0] |= read;
        self.learn(node, event.held, event.at);
    }

    /// Sets the blocks that another node holds, unless a later report from that node is known.
    pub(super) fn learn(&mut self, node: NodeId, held: u64, at: Duration) {
        let known = self.others.iter().position(|other| other.node == node);
        if known.is_some_and(|place| self.others[place].at > at) {
            return;
        }
        if let Some(place) = known {
            self.gone |= self.others.remove(place).held & !held;
        }
        if self.others.len() == OTHERS_MAX {
            self.others.remove(0);
        }
        // A node without blocks is remembered too, because an older event from it may arrive later.
        self.others.push(Other { node, held, at });
    }

    /// As [`Global::learn`], but only for the blocks in `of`; the others are unchanged.
    pub(super) fn learn_some(&mut self, node: NodeId, of: u64, held: u64, at: Duration) {
        let known = self.others.iter().find(|other| other.node == node);
        let before = known.map_or(0, |other| other.held);
        self.learn(node, (before & !of) | (held & of), at);
    }

    /// Forgets nodes that are not in `kept`, with their blocks. Returns true if there were any.
    pub(super) fn forget(&mut self, kept: &HashSet<NodeId>) -> bool {
        let before = self.others.len();
        let gone = self.others.extract_if(.., |other| !kept.contains(&other.node));
        self.gone |= gone.fold(0, |gone, other| gone | other.held);
        self.others.len() < before
    }

    /// The part of the group that is in a cache.
    pub(super) fn presence(&self, completeness: Completeness) -> Presence {
        if self.is_deleted {
            return Presence(0);
        }
        match completeness {
            Completeness::Whole => Presence::new(self.counted, self.blocks),
            Completeness::Read => {
                let read = self.read();
                Presence::new((read & !self.lost()).count_ones(), read.count_ones())
            }
        }
    }

    /// The blocks that readers on any node used recently.
    pub(super) fn read(&self) -> u64 {
        self.read[0] | self.read[1]
    }

    /// The blocks that at least one node holds.
    pub(super) fn present(&self) -> u64 {
        self.others
            .iter()
            .fold(self.here, |held, other| held | other.held)
    }

    /// The blocks that left a cache and that no node holds.
    fn lost(&self) -> u64 {
        self.gone & !self.present()
    }

    /// The other known nodes, each with the blocks that it holds.
    pub(super) fn others(&self) -> impl Iterator<Item = (NodeId, u64)> {
        self.others.iter().map(|other| (other.node, other.held))
    }

    /// Returns the state to send to other nodes, which counts as sent at `now`: the blocks on this node, and
    /// those that readers used here.
    pub(super) fn take_state(&mut self, now: Duration) -> (u64, u64) {
        let read = self.read_here[0] | self.read_here[1];
        self.is_waiting = false;
        self.sent_at = Some(now);
        self.sent = read;
        (self.here, read)
    }

    /// Counts all blocks as present because a reader is using the object: it will fetch the missing ones too.
    /// They count until they leave.
    fn comes_whole(&mut self) {
        self.counted = self.blocks;
        self.gone = 0;
    }

    fn count_one_less(&mut self) {
        self.counted = self.counted.saturating_sub(1).max(self.here.count_ones());
    }

    /// Begins a new epoch of the object's use if the last one is over.
    fn turn(&mut self, now: Duration) {
        if now.saturating_sub(self.epoch_at) >= EPOCH {
            self.read = [0, self.read[0]];
            self.read_here = [0, self.read_here[0]];
            self.epoch_at = now;
        }
    }
}
