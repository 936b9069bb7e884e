//! The rates that plans promise to jobs' reads from the lake: the remote reads of Netco's section 4.2.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use shoal_base::words::Count;
use shoal_policy::ObjectId;
use tokio::time::Instant;

use super::{JobBytes, JobId, JobNames, JobRate, JobRates, Link};
use crate::time::clock;

/// Maximum number of promises.
const PROMISES_MAX: usize = 1024;

/// Maximum number of objects in all promises together.
const OBJECTS_MAX: usize = 1 << 18;

/// Maximum duration of a promise.
const LIFE_MAX: Duration = Duration::from_mins(1);

/// The jobs whose reads have a rate by plan. Promises expire unless they are renewed.
#[derive(Debug, Default)]
pub struct Promises {
    list: Mutex<Vec<Promise>>,
    /// True if there is any promise. Otherwise a request only costs a load of this.
    has_any: AtomicBool,
    /// Bytes that came from the lake for reads that name their job.
    bytes: Arc<Count>,
}

/// A promise to a job, as its coordinator gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PromiseToJob {
    /// The job.
    pub id: JobId,
    /// Its names.
    pub names: JobNames,
    /// Its rates at this node.
    pub rates: JobRates,
    /// The time after which it ends.
    pub life: Duration,
}

#[derive(Debug)]
struct Promise {
    names: JobNames,
    until: Instant,
    rate: Arc<JobRate>,
    objects: HashSet<ObjectId>,
}

/// A node has reached the limit of promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyPromises;

impl Promises {
    /// Promises a job its rates for its reads of `objects`. Renewing a promise extends it, changes its rates
    /// and adds these objects. Returns the bytes that have come for the job.
    ///
    /// # Errors
    ///
    /// There are too many promises, or too many objects in them.
    pub fn give(
        &self,
        link: Option<&Arc<Link>>,
        promise: PromiseToJob,
        objects: Vec<ObjectId>,
    ) -> Result<JobBytes, TooManyPromises> {
        let now = clock::runtime_instant();
        let mut list = self.list.lock();
        list.retain(|promise| promise.until > now);
        let known: usize = list.iter().map(|promise| promise.objects.len()).sum();
        let place = list.iter().position(|known| known.rate.id == promise.id);
        if known + objects.len() > OBJECTS_MAX || place.is_none() && list.len() >= PROMISES_MAX {
            return Err(TooManyPromises);
        }
        let place = place.unwrap_or_else(|| {
            list.push(Promise {
                rate: JobRate::new(promise.id, link, promise.rates, Arc::clone(&self.bytes)),
                names: promise.names,
                until: now,
                objects: HashSet::new(),
            });
            list.len() - 1
        });
        let known = &mut list[place];
        known.rate.set(promise.rates);
        known.until = now + promise.life.min(LIFE_MAX);
        known.objects.extend(objects);
        let bytes = known.rate.bytes();
        assert!(list.len() <= PROMISES_MAX, "promises are bounded");
        self.has_any.store(true, Ordering::Relaxed);
        Ok(bytes)
    }

    /// Ends a promise.
    pub fn end(&self, id: JobId) {
        self.list.lock().retain(|promise| promise.rate.id != id);
    }

    /// Returns true if any promise may be valid.
    pub fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Relaxed)
    }

    /// Returns the rates of the jobs that read an object by plan.
    pub fn of(&self, object: ObjectId) -> Vec<Arc<JobRate>> {
        let list = self.valid();
        let of_it = list.iter().filter(|promise| promise.objects.contains(&object));
        of_it.map(|promise| Arc::clone(&promise.rate)).collect()
    }

    /// Returns the rate of the job that reads an object by plan and has this name. `name` is not called
    /// unless there are promises.
    pub fn of_job<'n>(
        &self,
        object: ObjectId,
        name: impl FnOnce() -> Option<&'n str>,
    ) -> Option<Arc<JobRate>> {
        let name = self.has_any().then(name).flatten()?;
        let list = self.valid();
        let mut of_it = list.iter().filter(|promise| promise.objects.contains(&object));
        let promise = of_it.find(|promise| promise.names.include(name))?;
        Some(Arc::clone(&promise.rate))
    }

    /// Returns the rate of a job.
    pub fn of_id(&self, id: JobId) -> Option<Arc<JobRate>> {
        let list = self.valid();
        let promise = list.iter().find(|promise| promise.rate.id == id)?;
        Some(Arc::clone(&promise.rate))
    }

    /// Returns the number of jobs that have a rate now.
    pub fn jobs(&self) -> usize {
        self.valid().len()
    }

    /// Returns the bytes that came from the lake at the rates of jobs, since the node started.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
    }

    /// Locks the promises, of which those that are over are gone.
    fn valid(&self) -> MutexGuard<'_, Vec<Promise>> {
        let now = clock::runtime_instant();
        let mut list = self.list.lock();
        list.retain(|promise| promise.until > now);
        self.has_any.store(!list.is_empty(), Ordering::Relaxed);
        list
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use shoal_policy::ObjectId;

    use super::{LIFE_MAX, OBJECTS_MAX, PROMISES_MAX, PromiseToJob, Promises, TooManyPromises};
    use crate::link::{Bandwidth, BandwidthScope, JobId, JobNames, JobRates, Link};

    const SECOND: Duration = Duration::from_secs(1);

    fn link() -> Arc<Link> {
        let bytes_per_second = 1_000_000;
        Link::new(Bandwidth {
            bytes_per_second,
            scope: BandwidthScope::Node,
        })
    }

    const fn of(job: u64) -> JobId {
        JobId { plan: 7, job }
    }

    fn to(job: u64, floor: u64, life: Duration) -> PromiseToJob {
        PromiseToJob {
            id: of(job),
            names: JobNames {
                run: format!("j{job}@2026-11-20T02:00:04Z"),
                all_runs: format!("j{job}_*"),
            },
            rates: JobRates { floor, ceiling: None },
            life,
        }
    }

    fn object(number: u32) -> ObjectId {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_be_bytes());
        ObjectId(id)
    }

    #[tokio::test(start_paused = true)]
    async fn a_promise_is_about_its_objects_and_ends_unless_it_is_given_again() {
        let (promises, link) = (Promises::default(), link());
        let give = |id, life, objects| promises.give(Some(&link), to(id, 1_000, life), objects).unwrap();
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
    async fn a_read_that_names_the_job_has_the_jobs_rate() {
        let promises = Promises::default();
        promises
            .give(None, to(1, 1_000, SECOND), vec![object(1)])
            .unwrap();
        let rate = promises.of_id(of(1)).unwrap();
        for (number, name, is_it) in [
            (1, Some("j1_2026-11-21"), true),
            (1, Some("j1@2026-11-20T02:00:04Z"), true),
            (1, Some("j10_2026-11-21"), false),
            (1, None, false),
            (2, Some("j1_2026-11-21"), false),
        ] {
            let found = promises.of_job(object(number), || name);
            let found = found.map(|found| Arc::ptr_eq(&found, &rate));
            assert_eq!(found, is_it.then_some(true), "{number} {name:?}");
        }
        tokio::time::advance(SECOND).await;
        assert!(promises.of_job(object(1), || Some("j1_")).is_none());
        assert!(promises.of_id(of(1)).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn promises_and_their_objects_are_bounded() {
        let (promises, link) = (Promises::default(), link());
        let give = |id, objects| promises.give(Some(&link), to(id, 1, SECOND), objects);
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
