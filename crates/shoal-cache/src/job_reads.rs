//! Counts the reads of planned jobs on this node: a deadline is met when the job has its bytes, not when they
//! are cached.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_base::moment::millis_since_1970;
use shoal_net::clock;
use shoal_net::link::{JobId, JobNames};
use shoal_policy::{ObjectId, VersionId};
use shoal_s3::object::Version;

/// Maximum number of jobs that are observed at a time, of their objects, and of blocks that they have read.
const JOBS_MAX: usize = 1024;
const OBJECTS_MAX: usize = 1 << 18;
const BLOCKS_MAX: usize = 1 << 20;

/// A job that is observed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedJob {
    /// The job.
    pub id: JobId,
    /// Its names. A read that names another job in `x-shoal-job` is not counted; one that names none is.
    pub names: JobNames,
    /// The end of the count, in milliseconds since 1970: the deadline of the job.
    pub until_ms: u64,
    /// When the count is forgotten.
    pub forget_ms: u64,
}

/// There are too many jobs, objects or blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyReads;

/// Counts what jobs read.
#[derive(Debug, Default)]
pub struct JobReads {
    /// True if any job is observed. Otherwise a read only costs a load of this.
    has_any: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    jobs: HashMap<JobId, ObservedJob>,
    /// The blocks of each object that each job has read.
    objects: HashMap<ObjectId, Vec<(JobId, ReadBlocks)>>,
    /// The number of pairs of job and object, and of blocks.
    pairs: usize,
    blocks: usize,
}

/// The bytes that were read of each block of the newest version of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadBlocks {
    version: Option<VersionId>,
    bytes: HashMap<u32, u64>,
    /// Blocks of which every byte was read, in any order.
    whole: HashSet<u32>,
}

impl ReadBlocks {
    /// Returns the blocks that were read to their ends, in ascending order.
    pub fn whole(&self) -> Vec<u32> {
        let mut whole: Vec<u32> = self.whole.iter().copied().collect();
        whole.sort_unstable();
        whole
    }

    /// Returns the bytes that were read of the other blocks.
    pub fn partial_bytes(&self) -> u64 {
        self.bytes.values().sum()
    }

    /// Counts bytes of a block.
    fn add(&mut self, version: &Version, index: u32, bytes: u64) {
        if self.version != Some(version.id) {
            *self = Self {
                version: Some(version.id),
                ..Self::default()
            };
        }
        if self.whole.contains(&index) {
            return;
        }
        let read = self.bytes.entry(index).or_default();
        *read += bytes;
        if *read >= version.block_len(index) {
            self.bytes.remove(&index);
            self.whole.insert(index);
        }
    }

    fn len(&self) -> usize {
        self.bytes.len() + self.whole.len()
    }
}

impl JobReads {
    /// Observes a job's reads of objects. Objects that are observed already keep their counts. Returns what
    /// the job has read of each here.
    ///
    /// # Errors
    ///
    /// There are too many jobs, or too many objects in them.
    pub fn observe(&self, job: ObservedJob, objects: &[ObjectId]) -> Result<Vec<ReadBlocks>, TooManyReads> {
        let mut inner = self.inner.lock();
        inner.forget(millis_since_1970(clock::utc_now()));
        let id = job.id;
        let is_new = |object: &&ObjectId| {
            let readers = inner.objects.get(*object);
            readers.is_none_or(|readers| readers.iter().all(|(known, _)| *known != id))
        };
        let pairs = inner.pairs + objects.iter().filter(is_new).count();
        if pairs > OBJECTS_MAX || !inner.jobs.contains_key(&id) && inner.jobs.len() >= JOBS_MAX {
            return Err(TooManyReads);
        }
        inner.jobs.insert(id, job);
        let read = objects
            .iter()
            .map(|object| inner.of(*object, id).clone())
            .collect();
        self.has_any.store(true, Ordering::Relaxed);
        Ok(read)
    }

    /// Counts bytes of a block that were sent to a client, whose request names the job that `job` returns.
    pub fn sent<'j>(
        &self,
        version: &Version,
        index: u32,
        bytes: usize,
        job: impl FnOnce() -> Option<&'j str>,
    ) {
        if !self.has_any.load(Ordering::Relaxed) {
            return;
        }
        let mut inner = self.inner.lock();
        let Inner {
            jobs,
            objects,
            blocks,
            ..
        } = &mut *inner;
        let Some(readers) = objects.get_mut(&version.object) else {
            return;
        };
        let (now_ms, job) = (millis_since_1970(clock::utc_now()), job());
        for (id, read) in readers {
            let is_of_job = jobs.get(id).is_some_and(|known| {
                now_ms <= known.until_ms && job.is_none_or(|job| known.names.include(job))
            });
            if is_of_job && *blocks < BLOCKS_MAX {
                let before = read.len();
                read.add(version, index, bytes as u64);
                *blocks = *blocks + read.len() - before;
            }
        }
    }
}

impl Inner {
    fn of(&mut self, object: ObjectId, job: JobId) -> &ReadBlocks {
        let readers = self.objects.entry(object).or_default();
        let place = readers.iter().position(|(id, _)| *id == job);
        let place = place.unwrap_or_else(|| {
            self.pairs += 1;
            readers.push((job, ReadBlocks::default()));
            readers.len() - 1
        });
        &readers[place].1
    }

    fn forget(&mut self, now_ms: u64) {
        let before = self.jobs.len();
        self.jobs.retain(|_, job| job.forget_ms > now_ms);
        if self.jobs.len() == before {
            return;
        }
        let jobs = &self.jobs;
        self.objects.retain(|_, readers| {
            readers.retain(|(id, _)| jobs.contains_key(id));
            !readers.is_empty()
        });
        let readers = || self.objects.values().flatten();
        self.pairs = readers().count();
        self.blocks = readers()
            .map(|(_, read)| read.bytes.len() + read.whole.len())
            .sum();
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderMap;
    use shoal_base::moment::millis_since_1970;
    use shoal_net::clock;
    use shoal_policy::ObjectId;
    use shoal_s3::object::Version;

    use super::{JOBS_MAX, JobId, JobNames, JobReads, ObservedJob, TooManyReads};

    fn version(etag: &str) -> Version {
        let object = ObjectId([3; 16]);
        Version {
            id: Version::id_of(object, etag, 25),
            object,
            etag: etag.into(),
            size_bytes: 25,
            block_bytes: 10,
            last_modified: None,
            headers: HeaderMap::new(),
        }
    }

    fn job(number: u64, until_ms: u64) -> ObservedJob {
        ObservedJob {
            id: JobId { plan: 7, job: number },
            names: JobNames {
                run: format!("j{number}@2026-11-20"),
                all_runs: format!("j{number}*"),
            },
            until_ms,
            forget_ms: u64::MAX,
        }
    }

    #[test]
    fn a_job_has_read_what_was_sent_to_it_by_its_deadline() {
        let (reads, version) = (JobReads::default(), version("\"e\""));
        let (object, none) = ([version.object], ObjectId([4; 16]));
        reads.sent(&version, 0, 10, || None);
        reads.observe(job(1, u64::MAX), &object).unwrap();
        reads.observe(job(2, 0), &object).unwrap();
        for (index, bytes, name) in [
            (0, 4, Some("j1")),
            (0, 6, None),
            (0, 10, Some("j1@2026-11-20")),
            (2, 5, Some("j1")),
            (1, 7, Some("j1")),
            (1, 3, Some("another")),
        ] {
            reads.sent(&version, index, bytes, || name);
        }
        let read = &reads.observe(job(1, u64::MAX), &[version.object, none]).unwrap();
        assert_eq!((read[0].whole(), read[0].partial_bytes()), (vec![0, 2], 7));
        assert_eq!(read[1].partial_bytes(), 0);
        let late = &reads.observe(job(2, 0), &object).unwrap()[0];
        assert_eq!(
            (late.whole(), late.partial_bytes()),
            (vec![], 0),
            "after its deadline"
        );
    }

    #[test]
    fn bytes_of_an_older_version_do_not_count_with_those_of_a_newer_one() {
        let (reads, one, other) = (JobReads::default(), version("\"e\""), version("\"f\""));
        reads.observe(job(1, u64::MAX), &[one.object]).unwrap();
        reads.sent(&one, 0, 10, || None);
        reads.sent(&other, 1, 10, || None);
        let read = &reads.observe(job(1, u64::MAX), &[one.object]).unwrap()[0];
        assert_eq!(read.whole(), [1]);
    }

    #[test]
    fn observed_jobs_are_bounded_and_forgotten() {
        let reads = JobReads::default();
        let forget_ms = millis_since_1970(clock::utc_now()) + 60_000;
        for number in 0..JOBS_MAX as u64 {
            let job = ObservedJob {
                forget_ms,
                ..job(number, u64::MAX)
            };
            reads.observe(job, &[ObjectId([1; 16])]).unwrap();
        }
        let another = job(JOBS_MAX as u64, u64::MAX);
        assert_eq!(reads.observe(another.clone(), &[]), Err(TooManyReads));
        reads.inner.lock().forget(forget_ms);
        assert_eq!(reads.observe(another, &[]), Ok(vec![]));
        assert_eq!(reads.inner.lock().pairs, 0);
    }
}
