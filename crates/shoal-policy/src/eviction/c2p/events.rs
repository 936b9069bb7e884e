//! Events that nodes send each other about their caches.

use std::time::Duration;

use crate::outbox::Outgoing;

/// Something that happened to one block on one node (C2P, table 2a), and that node's blocks of the object.
///
/// The paper sends the event alone, so that a lost one leaves its receivers wrong. Here each event also tells
/// the blocks of the object that the node holds, and those that its readers used: one that comes makes up for
/// those that did not, and one that comes twice or too late changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<K> {
    /// The time, on the clock of the node where it happened.
    pub at: Duration,
    /// The block.
    pub key: K,
    /// The kind of event.
    pub kind: EventKind,
    /// The blocks of its group that the node holds, a bit for each.
    pub held: u64,
    /// The blocks of its group that readers used on that node lately.
    pub read: u64,
}

/// The five kinds of events, the least important first. Under overload, the least important are dropped
/// first.
///
/// A lost hit changes no presence. A lost add or miss makes an object look less present than it is, until its
/// next event. A lost delete or replacement makes blocks stay that are of no use, for as long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// The block was read from the cache.
    Hit,
    /// The block is in the cache, and was not fetched for a reader: perhaps it was here before a restart.
    Add,
    /// The block was fetched for a read and is in the cache.
    Miss,
    /// The block is gone for good, not only from the cache.
    Delete,
    /// The block left the cache to make room.
    Replace,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Hit, Self::Add, Self::Miss, Self::Delete, Self::Replace];

    /// The word for people.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Add => "add",
            Self::Miss => "miss",
            Self::Delete => "delete",
            Self::Replace => "replace",
        }
    }
}

impl<K> Outgoing for Event<K> {
    /// A place in a queue that is counted in events.
    fn bytes(&self) -> usize {
        1
    }

    fn importance(&self) -> usize {
        self.kind as usize
    }
}
