//! Old states that pages are read from, for a bounded time and a bounded number.
//!
//! `redb` cannot reuse a page of the file that an old state still needs, so a state that is kept costs room
//! while others write.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redb::ReadTransaction;

use super::database::Database;
use crate::engine::Revision;

/// A state is kept for this long after it was last used.
const IDLE_MAX: Duration = Duration::from_mins(1);
/// A state is kept for no longer than this.
const AGE_MAX: Duration = Duration::from_mins(5);
/// The maximum number of states. Beyond it the one that was used least recently goes.
const SNAPSHOTS_MAX: usize = 64;

/// The state at one revision.
pub(super) struct Snapshot {
    pub(super) revision: Revision,
    pub(super) transaction: ReadTransaction,
    /// The file stays open as long as it is read.
    #[expect(dead_code, reason = "held, not used")]
    pub(super) database: Arc<Database>,
}

/// The states that are kept.
#[derive(Default)]
pub(super) struct Snapshots {
    kept: HashMap<Revision, Kept>,
}

struct Kept {
    snapshot: Arc<Snapshot>,
    since: Instant,
    used: Instant,
}

impl Snapshots {
    /// Keeps a state, or notes that it was used again.
    pub(super) fn keep(&mut self, snapshot: Arc<Snapshot>, now: Instant) {
        self.forget_old(now);
        let kept = self.kept.entry(snapshot.revision);
        kept.or_insert(Kept {
            snapshot,
            since: now,
            used: now,
        })
        .used = now;
        if self.kept.len() > SNAPSHOTS_MAX {
            let oldest = self
                .kept
                .iter()
                .min_by_key(|(_, kept)| kept.used)
                .map(|(revision, _)| *revision);
            self.kept
                .remove(&oldest.expect("there are more than the maximum"));
        }
    }

    /// The state at a revision, if it is kept.
    pub(super) fn find(&mut self, revision: Revision, now: Instant) -> Option<Arc<Snapshot>> {
        self.forget_old(now);
        let kept = self.kept.get_mut(&revision)?;
        kept.used = now;
        Some(Arc::clone(&kept.snapshot))
    }

    /// Forgets the states whose time is over.
    pub(super) fn forget_old(&mut self, now: Instant) {
        self.kept
            .retain(|_, kept| now - kept.used < IDLE_MAX && now - kept.since < AGE_MAX);
    }

    /// Forgets all states.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }

    /// Returns true if there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}
