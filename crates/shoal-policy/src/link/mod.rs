//! How transfers share the link to the lake: in priority classes.
//!
//! A link has a bandwidth in each direction. A [`Meter`] grants permission to send or receive a few bytes at
//! a time, so that all classes together stay within the bandwidth (token buckets, as Netco's metered block
//! transfers, section 5 of its paper). The rules, in order of priority:
//!
//! 1. **Guarantees.** Waiting planned transfers, and client reads to which a plan promises a rate, get the
//!    rate that the plan reserves, and waiting cleaning gets a twentieth of the bandwidth. The sum of all
//!    reservations is capped at four fifths of the bandwidth.
//! 2. **Clients.** A transfer for which a client waits proceeds as soon as the link has any room.
//! 3. **Planned** transfers proceed at their own rate, which they never exceed.
//! 4. **Prefetch**, and then
//! 5. **cleaning** get all of the remaining bandwidth at once.
//!
//! Transfers of the classes below clients proceed only if the link has room for a whole quantum. So they
//! leave no debt: a client waits only for their bytes in flight, which are few ([`ahead_bytes`]). They are
//! held back while a client's first bytes are expected, for at most a twelfth of the time. Within a class,
//! payers take turns by bytes ([`fair`](crate::fair)).
//!
//! Prefetch has no guarantee and waits while clients use the whole link, because nobody may ever read its
//! bytes. Cleaning has one, because dirty objects would pile up without it.

mod ahead;
mod bucket;
mod demand;
mod demand_exchange;
mod meter;
mod queues;
mod shares;

pub use ahead::{AnswerTime, ahead_bytes};
pub use bucket::Bucket;
pub use demand::Demand;
pub use demand_exchange::{DemandExchange, ReceivedDemand};
pub use meter::{Ask, Granted, Meter};
pub use shares::shares;
use shoal_base::words;

words! {
    /// The purpose of a transfer, highest priority first.
    pub enum Class {
        /// A client waits for it: reads, writes, and all other requests.
        Client = "client",
        /// A plan schedules its time and rate.
        Planned = "planned",
        /// A client will probably read its bytes.
        Prefetch = "prefetch",
        /// It writes dirty objects to the lake.
        Cleaning = "cleaning",
    }
}

impl Class {
    /// Parses the name of a class.
    pub fn from_name(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|class| class.as_str() == word)
    }
}

/// A rate or a number of bytes, rounded down.
#[expect(clippy::cast_sign_loss, reason = "rates and bytes are not negative")]
fn whole(bytes: f64) -> u64 {
    bytes as u64
}

words! {
    /// A direction of the link. Links are full duplex: each direction has the whole bandwidth.
    pub enum Direction {
        /// From the lake.
        Down = "down",
        /// To the lake.
        Up = "up",
    }
}
