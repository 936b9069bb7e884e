//! Figures about dirty objects for operators.

use std::sync::Arc;
use std::time::Duration;

use shoal_registry::engine::Room;
use shoal_registry::worker::{FailedFlush, Pace};

use super::registry_room::RegistryNearlyFull;
use super::survey::Survey;
use super::sweep::Swept;

/// Counts of dirty objects and uploads in all tiers.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Dirty objects that this node wrote and that are not yet at the lake.
    pub objects: u64,
    /// Bytes in the tiers, of all nodes.
    pub bytes: u64,
    /// The number of objects with each outcome since the node started.
    pub outcomes: Vec<(WriteBackOutcome, u64)>,
    /// Uploads that began at this node: open ones, and those that ended recently.
    pub uploads: u64,
    /// The number of uploads with each end since the node started.
    pub upload_ends: [(UploadEnd, u64); UploadEnd::ALL.len()],
}

/// The state of one tier.
#[derive(Clone, Debug)]
pub struct TierStatus {
    /// The name in the configuration.
    pub name: Arc<str>,
    /// True if this node's session with the registry is current.
    pub is_reachable: bool,
    /// Dirty objects that this node wrote and that are not yet at the lake.
    pub objects: u64,
    /// Bytes in the store, of all nodes.
    pub bytes: u64,
    /// The capacity of the store.
    pub capacity_bytes: u64,
    /// True if the store has no room for another object: it has reached its capacity, or reports that it is
    /// full.
    pub is_full: bool,
    /// The fill level of the registry, if it reports one.
    pub registry: Option<Room>,
    /// Present if the registry accepts nothing that takes room, with the reason.
    pub nearly_full: Option<RegistryNearlyFull>,
    /// The registry's contents, of all nodes, as of the last survey.
    pub survey: Survey,
    /// Uploads that began at this node.
    pub uploads: u64,
    /// The age of the oldest of `objects` that is not marked short-lived; `None` if there is none.
    pub oldest: Option<Duration>,
    /// The current schedule of flushes: their age, and how many run in parallel.
    pub pace: Pace,
    /// The number of dead nodes that this node acts for.
    pub adopted: usize,
    /// Objects whose last flush failed, the oldest first.
    pub failed: Vec<FailedFlush>,
    /// Unreferenced pieces that this node has removed since it started.
    pub swept: Swept,
}

/// The outcome of an object that was written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBackOutcome {
    /// Acknowledged before it was at the lake.
    Committed,
    /// Flushed to the lake.
    Flushed,
    /// A flush failed; it is retried.
    Failed,
    /// Flushed; the lake's ETag is not the acknowledged one, and not an MD5.
    Renamed,
}

impl WriteBackOutcome {
    /// All variants.
    pub const ALL: [Self; 4] = [Self::Committed, Self::Flushed, Self::Failed, Self::Renamed];

    /// Returns the label in metrics and `/status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Flushed => "flushed",
            Self::Failed => "failed",
            Self::Renamed => "renamed",
        }
    }
}

/// The end of an upload at this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UploadEnd {
    /// It was completed.
    Completed,
    /// The client aborted it.
    Aborted,
}

impl UploadEnd {
    /// All variants, in order of declaration.
    pub const ALL: [Self; 2] = [Self::Completed, Self::Aborted];

    /// Returns the label in metrics and `/status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Aborted => "aborted",
        }
    }
}
