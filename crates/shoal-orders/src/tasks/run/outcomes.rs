//! Counts what became of the objects of a task.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use shoal_policy::Source;
use shoal_s3::object::ObjectName;

use crate::tasks::parts::lake_view::ObjectFailure;
use crate::tasks::records::progress::{Progress, Tally};

/// The number of objects that the lake refuses in a row before the task ends: the lake refuses the identity.
const REFUSALS_MAX: u32 = 100;

/// Counts what became of the objects of a task.
pub(in crate::tasks) struct Outcomes {
    progress: Arc<Mutex<Progress>>,
    /// The objects in a row that the lake has refused.
    refusals: AtomicU32,
    /// Something to know about the task although all of it is done.
    remark: OnceLock<String>,
}

impl Outcomes {
    /// Counts in the progress of a task.
    pub(super) fn new(progress: &Arc<Mutex<Progress>>) -> Self {
        Self {
            progress: Arc::clone(progress),
            refusals: AtomicU32::new(0),
            remark: OnceLock::new(),
        }
    }

    /// Changes the counters.
    pub(super) fn count<T>(&self, change: impl FnOnce(&mut Tally) -> T) -> T {
        change(&mut self.progress.lock().tally)
    }

    /// Shows what the task waits for, or nothing.
    pub(super) fn wait_for(&self, detail: Option<String>) {
        self.progress.lock().detail = detail;
    }

    /// Remarks something on the task, which is shown once all of it is done. The first remark counts.
    pub(super) fn remark(&self, remark: String) {
        drop(self.remark.set(remark));
    }

    /// Returns the remark on the task.
    pub(super) fn remarked(&self) -> Option<String> {
        self.remark.get().cloned()
    }

    /// Counts a block that was brought, or was there.
    pub(super) fn brought(&self, bytes: u64, source: Option<Source>) {
        self.count(|tally| tally.brought(bytes, source));
        if source == Some(Source::Lake) {
            self.end_refusals();
        }
    }

    /// Counts an object as done, or as what it failed with.
    ///
    /// # Errors
    ///
    /// Fails if the task has to end for it, with the reason.
    pub(super) fn note(&self, name: &ObjectName, outcome: Result<(), ObjectFailure>) -> Result<(), String> {
        self.count(|tally| match &outcome {
            Ok(()) => tally.objects.done += 1,
            Err(ObjectFailure::Skipped(why)) => tally.skipped(name, why),
            Err(ObjectFailure::Failed(why) | ObjectFailure::Refused(why)) => tally.failed(name, why),
        });
        match outcome {
            Ok(()) | Err(ObjectFailure::Skipped(_)) => self.end_refusals(),
            Err(ObjectFailure::Failed(_)) => {}
            Err(ObjectFailure::Refused(why)) => {
                if self.refusals.fetch_add(1, Ordering::Relaxed) + 1 >= REFUSALS_MAX {
                    return Err(format!("the lake refused {REFUSALS_MAX} objects in a row: {why}"));
                }
            }
        }
        Ok(())
    }

    /// Ends a row of refusals: the lake has sent something, or an object is left alone.
    pub(super) fn end_refusals(&self) {
        self.refusals.store(0, Ordering::Relaxed);
    }
}
