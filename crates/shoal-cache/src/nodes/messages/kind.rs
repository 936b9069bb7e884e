//! The kinds of messages between nodes.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Kind of a message. Its number is used on the wire and must never be reused for another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// An event of a block in a cache (C2P, table 2a).
    CacheEvent = 1,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 1] = [Self::CacheEvent];

    /// Label in metrics and `/status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CacheEvent => "cache-event",
        }
    }

    /// Returns the kind with this number; `None` if this build does not know it.
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Returns the position among all kinds.
    pub(super) fn place(self) -> usize {
        let place = Self::ALL.iter().position(|kind| *kind == self);
        place.expect("every kind is among all")
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
}
