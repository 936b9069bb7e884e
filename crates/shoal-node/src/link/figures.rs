//! State and counters of a link, for operators.

use std::time::Duration;

use shoal_policy::link::{Class, Direction};

use super::BandwidthScope;

/// The state of a link.
#[derive(Clone, Debug)]
pub struct LinkFigures {
    /// Bytes a second in each direction, as configured.
    pub bandwidth: u64,
    /// Whether each node has this bandwidth, or all nodes share it.
    pub scope: BandwidthScope,
    /// The number of nodes that share it, as this node knows.
    pub nodes: u64,
    /// Both directions.
    pub lanes: [(Direction, LaneFigures); 2],
}

/// The state of one direction.
#[derive(Clone, Copy, Debug)]
pub struct LaneFigures {
    /// Bytes a second that this node may use now.
    pub share: u64,
    /// Bytes since the node started that clients got by the promise of a plan, before other clients.
    pub promised_bytes: u64,
    /// Each class.
    pub classes: [(Class, ClassFigures); Class::ALL.len()],
}

impl LaneFigures {
    /// Bytes a second that all classes have moved lately.
    pub fn rate(&self) -> u64 {
        self.classes.iter().map(|(_, figures)| figures.rate).sum()
    }
}

/// The transfers of a class in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassFigures {
    /// Bytes moved since the node started.
    pub bytes: u64,
    /// Bytes a second that were moved lately.
    pub rate: u64,
    /// Transfers that wait now.
    pub waiting: usize,
    /// The number of waits since the node started.
    pub waits: u64,
    /// The time that they took together.
    pub waited: Duration,
}
