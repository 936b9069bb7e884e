//! Figures on dirty objects for operators.

use super::multipart::UploadEnd;

/// Counts of dirty objects.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Dirty objects of which this node keeps a part or the manifest.
    pub objects: u64,
    /// Bytes of their blocks on this node.
    pub bytes: u64,
    /// How many objects had each outcome since the node started.
    pub outcomes: Vec<(WriteBackOutcome, u64)>,
    /// Open uploads that this node keeps.
    pub uploads: u64,
    /// Bytes of parts on this node, of uploads that any node keeps.
    pub upload_bytes: u64,
    /// How many uploads ended in each way since the node started.
    pub upload_ends: [(UploadEnd, u64); UploadEnd::ALL.len()],
}

/// The outcome of an object that was written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBackOutcome {
    /// Acknowledged before the lake had it.
    Committed,
    /// Flushed to the lake.
    Flushed,
    /// A flush failed; it is tried again.
    Failed,
    /// Lost before it was flushed.
    Lost,
    /// Flushed, and named by the lake with another ETag than the acknowledged one.
    Renamed,
}

impl WriteBackOutcome {
    /// Every outcome.
    pub const ALL: [Self; 5] = [
        Self::Committed,
        Self::Flushed,
        Self::Failed,
        Self::Lost,
        Self::Renamed,
    ];

    /// The word in metrics and `/status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Flushed => "flushed",
            Self::Failed => "failed",
            Self::Lost => "lost",
            Self::Renamed => "renamed",
        }
    }
}
