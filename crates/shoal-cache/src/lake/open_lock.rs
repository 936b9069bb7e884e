//! Lets one read open an unknown object while concurrent reads of it wait.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_policy::ObjectId;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// Objects being opened, each by one read. Like nginx's `proxy_cache_lock`, other reads wait until it
/// finishes.
#[derive(Debug, Default)]
pub struct OpenLock(Arc<Mutex<HashMap<ObjectId, Arc<Notify>, foldhash::fast::RandomState>>>);

/// Role of a read of an unknown object.
pub(super) enum OpenRole {
    /// Opens the object; other reads wait until the permit is dropped.
    Lead(OpenPermit),
    /// Waits until another read has opened the object.
    Wait(OwnedNotified),
}

pub(super) struct OpenPermit {
    locked: OpenLock,
    object: ObjectId,
}

impl OpenLock {
    pub(super) fn acquire(&self, object: ObjectId) -> OpenRole {
        let mut locked = self.0.lock();
        match locked.entry(object) {
            // Created under the mutex, so that a notification sent before the first poll is not lost.
            Entry::Occupied(ended) => OpenRole::Wait(Arc::clone(ended.get()).notified_owned()),
            Entry::Vacant(place) => {
                place.insert(Arc::default());
                OpenRole::Lead(OpenPermit {
                    locked: Self(Arc::clone(&self.0)),
                    object,
                })
            }
        }
    }
}

impl Drop for OpenPermit {
    fn drop(&mut self) {
        if let Some(ended) = self.locked.0.lock().remove(&self.object) {
            ended.notify_waiters();
        }
    }
}
