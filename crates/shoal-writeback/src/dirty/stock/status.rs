//! Figures about dirty objects for operators.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shoal_base::amount::human_bytes;
use shoal_net::metrics::Counts;
use shoal_net::words;
use shoal_registry::Name;
use shoal_registry::engine::Room;
use shoal_registry::worker::FailedFlush;

use super::sweep::Swept;

/// The state of one tier.
#[derive(Clone, Debug)]
pub struct TierStatus {
    /// The part of `/status`.
    pub page: TierPage,
    /// True if the store has no room for another object: it has reached its capacity, or reports that it is
    /// full.
    pub is_full: bool,
    /// Present if the registry accepts nothing that takes room, with the reason.
    pub nearly_full: Option<RegistryNearlyFull>,
    /// The name of a dirty object that no rule covers.
    pub without_rule: Option<Name>,
    /// The problem that the last probe of the store has found.
    pub store_problem: Option<String>,
    /// Age without a new part after which an upload is aborted.
    pub upload_age: Duration,
    /// Objects whose last flush failed, the oldest first.
    pub failed: Vec<FailedFlush>,
    /// Unreferenced pieces that this node has removed since it started.
    pub swept: Swept,
}

/// A tier, and this node's objects in it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TierPage {
    /// The name in the configuration.
    pub name: String,
    /// False if this node's session with the registry has ended.
    pub reachable: bool,
    /// Dirty objects that this node wrote.
    pub objects: u64,
    /// Removals that this node has acknowledged, and that the lake has not carried out yet.
    pub removals: u64,
    /// Bytes in the store, of all nodes.
    pub bytes: u64,
    /// The most that the store may hold.
    pub capacity_bytes: u64,
    /// Uploads that began at this node.
    pub uploads: u64,
    /// Bytes in parts of uploads that have not ended, of all nodes.
    pub upload_bytes: u64,
    /// Dirty objects of all nodes that no rule names.
    pub without_rule: u64,
    /// Bytes that the registry uses, if it reports them.
    pub registry_bytes: Option<u64>,
    /// Bytes that the registry may use.
    pub registry_quota_bytes: Option<u64>,
    /// The age of the oldest of `objects` that is not short-lived and not held.
    pub oldest_seconds: Option<u64>,
    /// The age at which objects are due.
    pub age_seconds: u64,
    /// The age at which short-lived objects are due.
    pub short_age_seconds: u64,
    /// Flushes at a time, at most.
    pub parallel: usize,
    /// Dead nodes for which this node acts.
    pub adopted_nodes: usize,
    /// Objects whose last flush failed.
    pub failed: usize,
}

/// The registry of a tier is nearly full, so that nothing begins that takes room. The last part of the room
/// is reserved for what makes room: flushes, removals of dirty objects, and the ends of changes and uploads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the registry of tier {tier} is nearly full ({used} of {quota}): dirty objects are brought to the lake and can be \
     removed, and nothing else begins", used = human_bytes(room.used_bytes), quota = human_bytes(room.quota_bytes)
)]
pub struct RegistryNearlyFull {
    /// The tier.
    pub tier: Arc<str>,
    /// The remedy to show to operators.
    pub remedy: &'static str,
    pub(crate) room: Room,
}

/// Counts of writes and uploads since the node started.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    pub(crate) writes: Counts<WriteBackOutcome>,
    pub(crate) uploads: Counts<UploadEnd>,
}

words! {
    /// The outcome of an object that was written back.
    pub(crate) enum WriteBackOutcome {
        /// Acknowledged before it was at the lake.
        Committed = "committed",
        /// Acknowledged as removed before the lake has removed it.
        Removed = "removed",
        /// Flushed to the lake.
        Flushed = "flushed",
        /// Removed at the lake, after the removal was acknowledged.
        Deleted = "deleted",
        /// A flush or a removal failed; it is retried.
        Failed = "failed",
        /// Flushed; the lake's ETag is not the acknowledged one, and not an MD5.
        Renamed = "renamed",
    }
}

words! {
    /// The end of an upload at this node.
    pub(crate) enum UploadEnd {
        /// It was completed.
        Completed = "completed",
        /// The client aborted it.
        Aborted = "aborted",
    }
}
