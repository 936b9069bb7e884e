//! Old states, from which pages are read. Their number and age are bounded.
//!
//! `redb` cannot reuse pages of the file that an old state needs, so each one costs room while others write.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redb::ReadTransaction;

use super::database::Database;
use crate::engine::Revision;

/// How long a state is kept after its last use.
const IDLE_MAX: Duration = Duration::from_mins(1);
/// Maximum age of a state.
const AGE_MAX: Duration = Duration::from_mins(5);
/// Maximum number of states. Beyond it the least recently used one is dropped.
const SNAPSHOTS_MAX: usize = 64;

/// The state at one revision.
pub(super) struct Snapshot {
    pub(super) revision: Revision,
    pub(super) transaction: ReadTransaction,
    /// Keeps the file open while it is read.
    #[expect(dead_code, reason = "held, not used")]
    pub(super) database: Arc<Database>,
}

/// The old states.
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
    /// Adds a state, or records another use.
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

    /// The state at a revision, if available.
    pub(super) fn find(&mut self, revision: Revision, now: Instant) -> Option<Arc<Snapshot>> {
        self.forget_old(now);
        let kept = self.kept.get_mut(&revision)?;
        kept.used = now;
        Some(Arc::clone(&kept.snapshot))
    }

    /// Drops expired states.
    pub(super) fn forget_old(&mut self, now: Instant) {
        self.kept
            .retain(|_, kept| now - kept.used < IDLE_MAX && now - kept.since < AGE_MAX);
    }

    /// Drops all states.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
    }

    /// Returns true if there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }
}
