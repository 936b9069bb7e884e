//! Objects that tasks of this node work on, while other tasks wait for them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_policy::ObjectId;
use tokio::sync::watch;

/// Pieces of work in progress, by object.
#[derive(Clone, Debug, Default)]
pub struct Underway(Arc<Mutex<HashMap<ObjectId, Works>>>);

/// The pieces of work on one object.
#[derive(Debug)]
struct Works {
    count: usize,
    ended: watch::Sender<()>,
}

/// Work on an object, in progress until this is dropped.
#[derive(Debug)]
pub struct Work {
    underway: Underway,
    object: ObjectId,
}

/// The end of all work on an object.
#[derive(Debug)]
pub struct Ended(watch::Receiver<()>);

impl Ended {
    /// Waits for it.
    pub async fn wait(mut self) {
        // The sender is dropped with the last piece of work.
        let _ = self.0.changed().await;
    }
}

impl Underway {
    /// Begins work on an object, also beside other work on it.
    pub fn begin(&self, object: ObjectId) -> Work {
        self.begin_among(&mut self.0.lock(), object)
    }

    /// Begins work on an object. If there is work on it already, returns the end of that instead.
    pub fn begin_alone(&self, object: ObjectId) -> Result<Work, Ended> {
        let mut works = self.0.lock();
        match works.get(&object) {
            Some(others) => Err(Ended(others.ended.subscribe())),
            None => Ok(self.begin_among(&mut works, object)),
        }
    }

    /// Returns the end of the work on an object; `None` if there is nothing to wait for.
    pub fn ended(&self, object: ObjectId) -> Option<Ended> {
        let works = self.0.lock();
        Some(Ended(works.get(&object)?.ended.subscribe()))
    }

    fn begin_among(&self, works: &mut HashMap<ObjectId, Works>, object: ObjectId) -> Work {
        let fresh = || Works {
            count: 0,
            ended: watch::Sender::new(()),
        };
        works.entry(object).or_insert_with(fresh).count += 1;
        let underway = self.clone();
        Work { underway, object }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let mut works = self.underway.0.lock();
        let of_object = works.get_mut(&self.object).expect("its work is counted");
        of_object.count -= 1;
        if of_object.count == 0 {
            works.remove(&self.object);
        }
    }
}
