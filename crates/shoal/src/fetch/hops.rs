//! How requests for blocks to other nodes ended, counted for whoever shows it.

use std::sync::atomic::{AtomicU64, Ordering};

/// How one such request ended. All but the first cost a read its time and nothing else: the next stop of the route is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopEnd {
    /// All that was asked for came.
    Brought,
    /// The node had left when it was to be asked.
    Gone,
    /// It said no: it does not hold the block, is busy, or would wait in a circle.
    Refused,
    /// It could not be reached.
    Unreachable,
    /// It took a connection and did not answer in time.
    Silent,
    /// It broke off in the middle of a block.
    BrokeOff,
    /// It sent nothing for a while, and did not live when it was asked.
    Dead,
    /// It lives and sent nothing for so long that somebody else was asked, within the budget for that (hedging).
    Stuck,
}

/// Counts hops by their ends. One that nobody waits for any more has none.
#[derive(Debug, Default)]
pub(super) struct Hops([AtomicU64; HopEnd::ALL.len()]);

impl HopEnd {
    /// Every end, in the order of declaration.
    pub const ALL: [Self; 8] = [
        Self::Brought,
        Self::Gone,
        Self::Refused,
        Self::Unreachable,
        Self::Silent,
        Self::BrokeOff,
        Self::Dead,
        Self::Stuck,
    ];

    /// The word in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Brought => "brought",
            Self::Gone => "gone",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Silent => "silent",
            Self::BrokeOff => "broke-off",
            Self::Dead => "dead",
            Self::Stuck => "stuck",
        }
    }
}

impl Hops {
    pub(super) fn count(&self, end: HopEnd) {
        self.0[end as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> [(HopEnd, u64); HopEnd::ALL.len()] {
        HopEnd::ALL.map(|end| (end, self.0[end as usize].load(Ordering::Relaxed)))
    }
}
