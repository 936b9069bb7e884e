//! Who opens an object that nothing is known of, and who waits for that.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_policy::ObjectId;
use tokio::sync::watch;

/// Objects being opened: one leader each, the others wait for its end.
#[derive(Debug, Default)]
pub struct Openings(Arc<Mutex<HashMap<ObjectId, watch::Receiver<()>>>>);

/// What to do about an object that is not known yet.
pub(super) enum Opening {
    /// Open it; the others wait until the guard is gone.
    Lead(OpeningGuard),
    /// Wait until this ends.
    Wait(watch::Receiver<()>),
}

pub(super) struct OpeningGuard {
    openings: Arc<Mutex<HashMap<ObjectId, watch::Receiver<()>>>>,
    object: ObjectId,
    _ended: watch::Sender<()>,
}

impl Openings {
    pub(super) fn enter(&self, object: ObjectId) -> Opening {
        let mut openings = self.0.lock();
        if let Some(ended) = openings.get(&object) {
            return Opening::Wait(ended.clone());
        }
        let (ended, waiting) = watch::channel(());
        openings.insert(object, waiting);
        Opening::Lead(OpeningGuard {
            openings: Arc::clone(&self.0),
            object,
            _ended: ended,
        })
    }
}

impl Drop for OpeningGuard {
    fn drop(&mut self) {
        self.openings.lock().remove(&self.object);
    }
}
