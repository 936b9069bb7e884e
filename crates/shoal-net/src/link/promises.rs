//! The rates that plans promise to clients' reads from the lake: the remote reads of Netco's section 4.2.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shoal_policy::ObjectId;
use tokio::time::Instant;

use super::{Link, PlannedRate};
use crate::time::clock;

/// Maximum number of promises.
const PROMISES_MAX: usize = 1024;

/// Maximum number of objects in all promises together.
const OBJECTS_MAX: usize = 1 << 18;

/// Maximum duration of a promise.
const LIFE_MAX: Duration = Duration::from_mins(1);

/// The reads that have a promised rate. Promises expire unless they are renewed.
#[derive(Debug, Default)]
pub struct Promises {
    list: Mutex<Vec<Promise>>,
    /// True if there is any promise. Otherwise a request only costs a load of this.
    has_any: AtomicBool,
}

/// Names a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromiseId {
    /// The plan that gives it.
    pub plan: u128,
    /// The number of the job that it is given to.
    pub job: u64,
}

#[derive(Debug)]
struct Promise {
    id: PromiseId,
    bytes_per_second: u64,
    until: Instant,
    rate: Arc<PlannedRate>,
    objects: HashSet<ObjectId>,
}

/// A node has reached the limit of promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyPromises;

impl Promises {
    /// Promises a rate to all reads of `objects` together, for `life` from now on. Renewing a promise extends
    /// it and adds these objects; if the rate differs, the promise is replaced.
    ///
    /// # Errors
    ///
    /// There are too many promises, or too many objects in them.
    pub fn give(
        &self,
        link: &Arc<Link>,
        (id, bytes_per_second): (PromiseId, u64),
        life: Duration,
        objects: Vec<ObjectId>,
    ) -> Result<(), TooManyPromises> {
        let now = clock::runtime_instant();
        let mut list = self.list.lock();
        list.retain(|promise| {
            promise.until > now && (promise.id != id || promise.bytes_per_second == bytes_per_second)
        });
        let known: usize = list.iter().map(|promise| promise.objects.len()).sum();
        let is_new = list.iter().all(|promise| promise.id != id);
        if known + objects.len() > OBJECTS_MAX || is_new && list.len() >= PROMISES_MAX {
            return Err(TooManyPromises);
        }
        if is_new {
            list.push(Promise {
                id,
                bytes_per_second,
                until: now,
                rate: PlannedRate::promised(Some(link), bytes_per_second),
                objects: HashSet::new(),
            });
        }
        let promise = list.iter_mut().find(|promise| promise.id == id);
        let promise = promise.expect("it was added");
        promise.until = now + life.min(LIFE_MAX);
        promise.objects.extend(objects);
        assert!(list.len() <= PROMISES_MAX, "promises are bounded");
        self.has_any.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ends a promise.
    pub fn end(&self, id: PromiseId) {
        self.list.lock().retain(|promise| promise.id != id);
    }

    /// Returns true if any promise may be valid.
    pub fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Relaxed)
    }

    /// Returns the rates that are promised to reads of an object.
    pub fn of(&self, object: ObjectId) -> Vec<Arc<PlannedRate>> {
        let now = clock::runtime_instant();
        let mut list = self.list.lock();
        list.retain(|promise| promise.until > now);
        self.has_any.store(!list.is_empty(), Ordering::Relaxed);
        let of_it = list.iter().filter(|promise| promise.objects.contains(&object));
        of_it.map(|promise| Arc::clone(&promise.rate)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use shoal_policy::ObjectId;

    use super::{LIFE_MAX, OBJECTS_MAX, PROMISES_MAX, PromiseId, Promises, TooManyPromises};
    use crate::link::{Bandwidth, BandwidthScope, Link};

    const SECOND: Duration = Duration::from_secs(1);

    fn link() -> Arc<Link> {
        let bytes_per_second = 1_000_000;
        Link::new(Bandwidth {
            bytes_per_second,
            scope: BandwidthScope::Node,
        })
    }

    const fn of(job: u64) -> PromiseId {
        PromiseId { plan: 7, job }
    }

    fn object(number: u32) -> ObjectId {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        ObjectId(id)
    }

    #[tokio::test(start_paused = true)]
    async fn a_promise_is_about_its_objects_and_ends_unless_it_is_given_again() {
        let (promises, link) = (Promises::default(), link());
        let give = |id, life, objects| promises.give(&link, (of(id), 1_000), life, objects).unwrap();
        assert!(!promises.has_any());
        give(1, SECOND * 10, vec![object(1)]);
        give(2, SECOND * 10, vec![object(1), object(2)]);
        let rates = |number| promises.of(object(number)).len();
        assert_eq!([rates(1), rates(2), rates(3)], [2, 1, 0]);
        let before = promises.of(object(2));
        tokio::time::advance(SECOND * 5).await;
        give(2, SECOND * 10, vec![object(3)]);
        assert!(
            Arc::ptr_eq(&before[0], &promises.of(object(3))[0]),
            "one rate for all"
        );
        tokio::time::advance(SECOND * 6).await;
        assert_eq!([rates(1), rates(2), rates(3)], [1, 1, 1]);
        promises.end(of(2));
        assert_eq!(rates(3), 0);
        assert!(!promises.has_any());
        give(4, LIFE_MAX * 100, vec![object(4)]);
        tokio::time::advance(LIFE_MAX).await;
        assert_eq!(rates(4), 0, "no promise is for ever");
    }

    #[tokio::test(start_paused = true)]
    async fn a_promise_of_another_rate_replaces_the_former_one() {
        let (promises, link) = (Promises::default(), link());
        promises
            .give(&link, (of(1), 1_000), SECOND, vec![object(1), object(2)])
            .unwrap();
        promises
            .give(&link, (of(1), 2_000), SECOND, vec![object(1)])
            .unwrap();
        assert_eq!(promises.of(object(1)).len(), 1);
        assert_eq!(promises.of(object(2)).len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn promises_and_their_objects_are_bounded() {
        let (promises, link) = (Promises::default(), link());
        let give = |id, objects| promises.give(&link, (of(id), 1), SECOND, objects);
        for id in 0..PROMISES_MAX as u64 {
            give(id, vec![object(1)]).unwrap();
        }
        assert_eq!(give(PROMISES_MAX as u64, vec![object(1)]), Err(TooManyPromises));
        give(0, vec![object(2)]).unwrap();
        let many = (0..OBJECTS_MAX as u32).map(object).collect();
        assert_eq!(give(0, many), Err(TooManyPromises));
        tokio::time::advance(SECOND).await;
        give(PROMISES_MAX as u64, vec![object(1)]).unwrap();
    }
}
