//! State and counters of a link, for operators.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::BandwidthScope;

/// The state of a link.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkFigures {
    /// Configured bandwidth of each direction.
    pub bandwidth_bytes_per_second: u64,
    /// The scope of that bandwidth.
    pub scope: BandwidthScope,
    /// The number of nodes that share it, as far as this node knows.
    pub nodes: u64,
    /// From the lake.
    pub down: LaneFigures,
    /// To the lake.
    pub up: LaneFigures,
}

/// The state of one direction.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct LaneFigures {
    /// The share of this node at present.
    pub share_bytes_per_second: u64,
    /// The recent rate of all classes together.
    pub rate_bytes_per_second: u64,
    /// Bytes that a plan's promise has moved for clients ahead of others, since the node started.
    #[serde(skip)]
    pub promised_bytes: u64,
    /// The figures of each class, by its word.
    pub classes: BTreeMap<String, ClassFigures>,
}

/// The transfers of a class in one direction.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClassFigures {
    /// Bytes moved since the node started.
    pub bytes: u64,
    /// The recent rate.
    pub rate_bytes_per_second: u64,
    /// The number of transfers that are waiting.
    pub waiting: usize,
    /// The number of waits since the node started.
    pub waits: u64,
    /// The total time of those waits.
    pub waited_ms: u64,
}
