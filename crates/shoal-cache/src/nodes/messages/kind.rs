//! The kinds of messages between nodes.

use serde::Serialize;
use serde::de::DeserializeOwned;
use shoal_net::words;

words! {
    /// Kind of a message.
    pub enum Kind {
        /// An event of a block in a cache (C2P, table 2a).
        CacheEvent = "cache-event",
    }
}

impl Kind {
    /// Returns the number on the wire, which must never be used for another kind.
    pub const fn number(self) -> u8 {
        match self {
            Self::CacheEvent => 1,
        }
    }

    /// Returns the kind with this number; `None` if this build does not know it.
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }
}

/// A message of one kind. New fields may be appended: earlier builds ignore them, and later builds must
/// accept messages without them.
pub trait Message: Serialize + DeserializeOwned + Send + 'static {
    /// Its kind.
    const KIND: Kind;

    /// Importance, below [`DEGREES`](shoal_policy::outbox::DEGREES). When too many messages wait for one
    /// node, the least important are dropped first.
    fn importance(&self) -> usize;

    /// True if it must not wait for others to the same node.
    fn is_urgent(&self) -> bool {
        false
    }
}
