//! Counts the outcomes of writes and uploads since the node started.

use std::sync::atomic::{AtomicU64, Ordering};

use super::status::{UploadEnd, WriteBackOutcome};

/// Counters of outcomes.
#[derive(Debug, Default)]
pub(crate) struct Outcomes {
    writes: [AtomicU64; WriteBackOutcome::ALL.len()],
    uploads: [AtomicU64; UploadEnd::ALL.len()],
}

impl Outcomes {
    pub(crate) fn count(&self, outcome: WriteBackOutcome) {
        self.writes[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_upload(&self, end: UploadEnd) {
        self.uploads[end as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn writes(&self) -> Vec<(WriteBackOutcome, u64)> {
        let count = |outcome| (outcome, self.writes[outcome as usize].load(Ordering::Relaxed));
        WriteBackOutcome::ALL.into_iter().map(count).collect()
    }

    pub(crate) fn uploads(&self) -> [(UploadEnd, u64); UploadEnd::ALL.len()] {
        UploadEnd::ALL.map(|end| (end, self.uploads[end as usize].load(Ordering::Relaxed)))
    }
}
