//! State and counters of a link, for operators.

use std::time::Duration;

use shoal_policy::link::{Class, Direction};

use super::BandwidthScope;

/// The state of a link.
#[derive(Clone, Debug)]
pub struct LinkFigures {
    /// Configured bandwidth of each direction, in bytes per second.
    pub bandwidth: u64,
    /// The scope of that bandwidth.
    pub scope: BandwidthScope,
    /// The number of nodes that share it, as far as this node knows.
    pub nodes: u64,
    /// Both directions.
    pub lanes: [(Direction, LaneFigures); 2],
}

/// The state of one direction.
#[derive(Clone, Copy, Debug)]
pub struct LaneFigures {
    /// The share of this node at present, in bytes per second.
    pub share: u64,
    /// Bytes that a plan's promise has moved for clients ahead of others, since the node started.
    pub promised_bytes: u64,
    /// The figures of each class.
    pub classes: [(Class, ClassFigures); Class::ALL.len()],
}

impl LaneFigures {
    /// Returns the recent rate of all classes together, in bytes per second.
    pub fn rate(&self) -> u64 {
        self.classes.iter().map(|(_, figures)| figures.rate).sum()
    }
}

/// The transfers of a class in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassFigures {
    /// Bytes moved since the node started.
    pub bytes: u64,
    /// The recent rate, in bytes per second.
    pub rate: u64,
    /// The number of transfers that are waiting.
    pub waiting: usize,
    /// The number of waits since the node started.
    pub waits: u64,
    /// The total time of those waits.
    pub waited: Duration,
}
