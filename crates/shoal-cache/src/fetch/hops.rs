//! Counts the outcomes of requests for blocks to other nodes, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Outcome of one request to a peer, a *hop*. Except for the first, an outcome costs a read only time: the
/// next stop of the route is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopOutcome {
    /// The peer sent all requested bytes.
    Brought,
    /// The node had left the cluster before it was asked.
    Gone,
    /// The node refused: it does not hold the block, is busy, or would wait in a cycle.
    Refused,
    /// The node could not be reached.
    Unreachable,
    /// The node accepted a connection and did not answer in time.
    Silent,
    /// The node broke off in the middle of a block.
    BrokeOff,
    /// The node sent nothing for a while and did not answer a probe.
    Dead,
    /// The node is alive but sent nothing for a long time, so another source was asked, within the hedging
    /// budget.
    Stuck,
}

/// Counts hops by outcome. Hops of abandoned fetches are not counted.
#[derive(Debug, Default)]
pub(super) struct HopCounters([AtomicU64; HopOutcome::ALL.len()]);

impl HopOutcome {
    /// Every outcome, in declaration order.
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

impl HopCounters {
    pub(super) fn count(&self, outcome: HopOutcome) {
        self.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counts(&self) -> [(HopOutcome, u64); HopOutcome::ALL.len()] {
        HopOutcome::ALL.map(|outcome| (outcome, self.0[outcome as usize].load(Ordering::Relaxed)))
    }
}
