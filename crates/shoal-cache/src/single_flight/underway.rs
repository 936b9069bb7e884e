//! Objects that tasks of this node work on, while other tasks wait for them.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use shoal_policy::ObjectId;
use tokio::sync::watch;

/// Pieces of work in progress, by object. Those on one object share a sender, which ends with the last.
#[derive(Clone, Debug, Default)]
pub struct Underway(Arc<Mutex<HashMap<ObjectId, Weak<watch::Sender<()>>>>>);

/// Work on an object, in progress until this is dropped.
#[derive(Debug)]
pub struct Work {
    underway: Underway,
    object: ObjectId,
    /// `None` once it ends.
    ended: Option<Arc<watch::Sender<()>>>,
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
        match works.get(&object).and_then(Weak::upgrade) {
            Some(others) => Err(Ended(others.subscribe())),
            None => Ok(self.begin_among(&mut works, object)),
        }
    }

    /// Returns the end of the work on an object; `None` if there is nothing to wait for.
    pub fn ended(&self, object: ObjectId) -> Option<Ended> {
        let works = self.0.lock();
        Some(Ended(works.get(&object)?.upgrade()?.subscribe()))
    }

    fn begin_among(&self, works: &mut HashMap<ObjectId, Weak<watch::Sender<()>>>, object: ObjectId) -> Work {
        let ended = works.get(&object).and_then(Weak::upgrade).unwrap_or_default();
        works.insert(object, Arc::downgrade(&ended));
        let underway = self.clone();
        let ended = Some(ended);
        Work {
            underway,
            object,
            ended,
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let mut works = self.underway.0.lock();
        // Dropped under the lock, under which alone senders are shared: so one piece of work is the last.
        self.ended = None;
        let ended = works.get(&self.object).expect("work in progress is known");
        if ended.strong_count() == 0 {
            works.remove(&self.object);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::{ObjectId, Underway};

    #[test]
    fn nothing_is_left_of_work_that_ends_at_the_same_time() {
        let (underway, begun) = (Underway::default(), AtomicU64::new(0));
        let work = || {
            for round in 1..=20_000 {
                let work = underway.begin(ObjectId(u128::from(round).to_le_bytes()));
                begun.fetch_add(1, Ordering::AcqRel);
                while begun.load(Ordering::Acquire) < 2 * round {
                    thread::yield_now();
                }
                drop(work);
            }
        };
        thread::scope(|scope| {
            scope.spawn(work);
            scope.spawn(work);
        });
        assert!(underway.0.lock().is_empty());
    }

    #[test]
    fn work_ends_with_its_last_piece() {
        let (underway, object) = (Underway::default(), ObjectId([1; 16]));
        let first = underway.begin_alone(object).expect("there is no work yet");
        let second = underway.begin(object);
        drop(first);
        assert!(underway.begin_alone(object).is_err() && underway.ended(object).is_some());
        drop(second);
        assert!(underway.ended(object).is_none());
    }
}
