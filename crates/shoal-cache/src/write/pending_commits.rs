//! Objects that the lake has committed but whose blocks cannot be found yet. Readers of such an object wait
//! for up to a second.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_policy::ObjectId;
use tokio::sync::watch;

/// Longest time that a read waits before it asks the lake like any other read.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The writes that are being finished, by object.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingCommits(Arc<Mutex<HashMap<ObjectId, Writes>>>);

/// The writes of one object.
#[derive(Debug)]
struct Writes {
    count: usize,
    ended: watch::Sender<()>,
}

/// A write that is being finished, until this is dropped.
#[derive(Debug)]
pub(super) struct PendingCommit {
    pending_commits: PendingCommits,
    object: ObjectId,
}

impl PendingCommits {
    pub(super) fn begin(&self, object: ObjectId) -> PendingCommit {
        let fresh = || Writes {
            count: 0,
            ended: watch::Sender::new(()),
        };
        self.0.lock().entry(object).or_insert_with(fresh).count += 1;
        PendingCommit {
            pending_commits: self.clone(),
            object,
        }
    }

    /// Returns a future that ends when no write of the object is being finished, or after [`TIMEOUT`]. `None`
    /// if there is nothing to wait for.
    pub(super) fn ended(&self, object: ObjectId) -> Option<impl Future<Output = ()> + use<>> {
        let writes = self.0.lock();
        let mut ended = writes.get(&object)?.ended.subscribe();
        Some(async move {
            // The sender is dropped with the last write. After the timeout, the lake serves the read faster.
            let _ = tokio::time::timeout(TIMEOUT, ended.changed()).await;
        })
    }
}

impl Drop for PendingCommit {
    fn drop(&mut self) {
        let mut writes = self.pending_commits.0.lock();
        if let Some(of_object) = writes.get_mut(&self.object) {
            of_object.count -= 1;
            if of_object.count == 0 {
                writes.remove(&self.object);
            }
        }
    }
}
