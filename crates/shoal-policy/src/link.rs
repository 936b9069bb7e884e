//! How transfers share the link to the lake: in classes, the first of which goes before all others.
//!
//! A link has a bandwidth in each direction. A [`Meter`] gives permission to send or to receive some bytes at
//! a time, so that all classes together stay within it (token buckets, as Netco's metered block transfers,
//! section 5 of its paper). The rules, in their order:
//!
//! 1. **Guarantees.** Planned transfers, and clients' reads to which a plan promises a rate, get the rate
//!    that the plan reserves, and cleaning gets a twentieth of the bandwidth, if they wait. All reservations
//!    together are at most four fifths of the bandwidth.
//! 2. **Clients.** A transfer that a client waits for goes as soon as the link has any room.
//! 3. **Planned** transfers go within their own rate, which they never exceed.
//! 4. **Prefetch**, and then
//! 5. **cleaning** get the rest, all of it, at once.
//!
//! Transfers of the classes after the clients go only when the link has room for a whole quantum. So they
//! leave no debt: a client never waits for them, except for the bytes that are on their way, and of those
//! there are few ([`ahead_bytes`]). While a client's first bytes are expected they hold back, for a twelfth
//! of the time at most. Within a class, payers take turns by bytes ([`fair`](crate::fair)).
//!
//! Prefetch has no guarantee: while clients use all of the link it waits, because it is work that may be in
//! vain. Cleaning has one, because dirty objects pile up without it.

mod ahead;
mod bucket;
mod demand;
mod meter;
mod news;
mod shares;

pub use ahead::{AnswerTime, ahead_bytes};
pub use bucket::Bucket;
pub use demand::{Demand, Need};
pub use meter::{Ask, Granted, Meter};
pub use news::{Heard, News};
pub use shares::shares;

/// The purpose of a transfer. The first class goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A client waits for it: reads, writes, and all other requests.
    Client,
    /// A plan says when it happens, and how fast.
    Planned,
    /// A client will probably want it.
    Prefetch,
    /// It brings dirty objects to the lake.
    Cleaning,
}

impl Class {
    /// Every class, the first one first.
    pub const ALL: [Self; 4] = [Self::Client, Self::Planned, Self::Prefetch, Self::Cleaning];

    /// The word in metrics, on pages and between nodes.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Planned => "planned",
            Self::Prefetch => "prefetch",
            Self::Cleaning => "cleaning",
        }
    }

    /// The class of a word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == word)
    }
}

/// A rate or a number of bytes, rounded down.
#[expect(clippy::cast_sign_loss, reason = "rates and bytes are not negative")]
fn whole(bytes: f64) -> u64 {
    bytes as u64
}

/// A direction of the link. Links are full duplex: each direction has the whole bandwidth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From the lake.
    Down,
    /// To the lake.
    Up,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Self; 2] = [Self::Down, Self::Up];

    /// The word in metrics and on pages.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Up => "up",
        }
    }
}
