//! Counts how requests for blocks to other nodes ended, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// How one such request ended. Every end but the first costs a read only time: the next stop of the route is
/// asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopEnd {
    /// All requested bytes came.
    Brought,
    /// The node had left before it was asked.
    Gone,
    /// The node refused: it does not hold the block, is busy, or would wait in a circle.
    Refused,
    /// The node could not be reached.
    Unreachable,
    /// The node took a connection and did not answer in time.
    Silent,
    /// The node broke off in the middle of a block.
    BrokeOff,
    /// The node sent nothing for a while, and was not alive when it was asked.
    Dead,
    /// The node is alive but sent nothing for a long time, so that another place was asked, within the budget
    /// for that (hedging).
    Stuck,
}

/// Counts hops by their ends. A hop that no reader waits for any more is not counted.
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

    /// The label in metrics.
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
