//! Chooses the read that opens an unknown object; the others wait for it.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_policy::ObjectId;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// The objects that are being opened: each has one leader, the other readers wait for its end.
#[derive(Debug, Default)]
pub struct Openings(Arc<Mutex<HashMap<ObjectId, Arc<Notify>, foldhash::fast::RandomState>>>);

/// How to handle an object that is not known yet.
pub(super) enum Opening {
    /// Open it; the others wait until the guard is gone.
    Lead(OpeningGuard),
    /// Wait until this ends.
    Wait(OwnedNotified),
}

pub(super) struct OpeningGuard {
    openings: Openings,
    object: ObjectId,
}

impl Openings {
    pub(super) fn enter(&self, object: ObjectId) -> Opening {
        let mut openings = self.0.lock();
        match openings.entry(object) {
            // Made under the lock, the waiter hears of an end that comes before it waits.
            Entry::Occupied(ended) => Opening::Wait(Arc::clone(ended.get()).notified_owned()),
            Entry::Vacant(place) => {
                place.insert(Arc::default());
                Opening::Lead(OpeningGuard {
                    openings: Self(Arc::clone(&self.0)),
                    object,
                })
            }
        }
    }
}

impl Drop for OpeningGuard {
    fn drop(&mut self) {
        if let Some(ended) = self.openings.0.lock().remove(&self.object) {
            ended.notify_waiters();
        }
    }
}
