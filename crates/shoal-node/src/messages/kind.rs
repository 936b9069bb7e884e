//! The kinds of messages between nodes.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Kind of a message. Its number stands on the wire, so no other kind ever gets that number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// An event of a block in a cache (C2P, table 2a).
    CacheEvent = 1,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 1] = [Self::CacheEvent];

    /// The word in metrics and `/status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::CacheEvent => "cache-event",
        }
    }

    /// The kind with this number; `None` if this build does not know it.
    pub fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }

    /// Its place among all kinds.
    pub(super) fn place(self) -> usize {
        let place = Self::ALL.iter().position(|kind| *kind == self);
        place.expect("every kind is among all")
    }
}

/// A message of one kind. A field may be added at the end: nodes of an earlier build ignore it, and cannot
/// be read by later builds unless these can do without it.
pub trait Message: Serialize + DeserializeOwned + Send + 'static {
    /// Its kind.
    const KIND: Kind;

    /// Its importance, below [`DEGREES`](shoal_policy::outbox::DEGREES). When too many messages wait for a
    /// node, the least important are dropped first.
    fn importance(&self) -> usize;
}
