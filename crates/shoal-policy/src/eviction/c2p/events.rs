//! Events that nodes send each other about their caches.

use std::time::Duration;

use shoal_base::words;

use crate::outbox::Outgoing;

/// Something that happened to one block on one node (C2P, table 2a), and that node's blocks of the object.
///
/// The paper sends the event alone, so a lost one leaves its receivers with a wrong view. Here each event
/// also carries the blocks of the group that the node holds, and those that its readers used: a delivered
/// event makes up for lost ones, and a duplicate or late one changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<K> {
    /// The time, on the clock of the node where it happened.
    pub at: Duration,
    /// The block.
    pub key: K,
    /// The kind of event.
    pub kind: EventKind,
    /// Bit mask of the blocks in its group that the node holds.
    pub held: u64,
    /// Bit mask of the blocks in its group that readers used on that node recently.
    pub read: u64,
    /// True if the group was complete until this block was evicted. Until the other nodes know, they evict
    /// blocks of other objects.
    pub is_urgent: bool,
}

words! {
    /// The five kinds of events, the least important first. Under overload, the least important are dropped
    /// first.
    ///
    /// A lost hit changes no presence. A lost add or miss makes an object look less present than it is, until
    /// its next event. A lost delete or replacement keeps useless blocks cached until then.
    pub enum EventKind {
        /// The block was read from the cache.
        Hit = "hit",
        /// The block is in the cache but was not fetched for a reader; it may date from before a restart.
        Add = "add",
        /// The block was fetched for a read and is in the cache.
        Miss = "miss",
        /// The object was deleted, so the block is invalid everywhere.
        Delete = "delete",
        /// The block was evicted to make room.
        Replace = "replace",
    }
}

impl<K> Outgoing for Event<K> {
    /// The queue is bounded by the number of events.
    fn bytes(&self) -> usize {
        1
    }

    fn importance(&self) -> usize {
        self.kind as usize
    }

    fn is_urgent(&self) -> bool {
        self.is_urgent
    }
}
