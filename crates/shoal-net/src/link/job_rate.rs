//! The rate at which a planned job reads from the lake: a floor that its plan promises, and a ceiling.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_base::stars;
use shoal_base::words::Count;
use shoal_policy::link::Bucket;
use tokio::time::Instant;

use super::{Link, PlannedRate, since};
use crate::time::clock;

/// More than any link moves.
const RATE_MAX: u64 = 1 << 50;

/// Burst of a ceiling, as a time at that rate.
const BURST_TIME: Duration = Duration::from_millis(100);

/// Minimum burst of a ceiling in bytes.
const BURST_BYTES_MIN: u64 = 256 << 10;

/// Names a job of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobId {
    /// The plan.
    pub plan: u128,
    /// The number of the job.
    pub job: u64,
}

/// The names by which reads identify themselves as a job's, in `x-shoal-job`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobNames {
    /// The name of this run.
    pub run: String,
    /// The name of all runs of the job, in which a star stands for a date, an id or a number.
    pub all_runs: String,
}

impl JobNames {
    /// Returns true if `name` is a name of the job.
    pub fn include(&self, name: &str) -> bool {
        name == self.run || stars::matches(&self.all_runs, name)
    }
}

/// The rates of a job at one node, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRates {
    /// The part of the link that reads of the job's objects have before other clients.
    pub floor: u64,
    /// The rate that reads that name the job do not exceed; `None` if they may have all there is.
    pub ceiling: Option<u64>,
}

/// Bytes that came from the lake to this node for a job, since its promise began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobBytes {
    /// For reads that name the job.
    pub named: u64,
    /// For reads of its objects that do not name it, while the link is metered.
    pub unnamed: u64,
}

/// The floor and the ceiling of a job's reads from the lake, at one node. All reads share them.
#[derive(Debug)]
pub struct JobRate {
    /// The job.
    pub id: JobId,
    floor: Arc<PlannedRate>,
    ceiling: Mutex<Option<Bucket>>,
    began: Instant,
    named_bytes: AtomicU64,
    unnamed_bytes: AtomicU64,
    /// Bytes that came for all jobs, by reads that name them.
    of_all_jobs: Arc<Count>,
}

impl JobRate {
    /// Creates the rate of a job. Its floor takes precedence over clients on `link`; a node without a link
    /// has no floors. Bytes for the job are also counted in `of_all_jobs`.
    pub fn new(id: JobId, link: Option<&Arc<Link>>, rates: JobRates, of_all_jobs: Arc<Count>) -> Arc<Self> {
        let rate = Self {
            id,
            floor: PlannedRate::promised(link, rates.floor),
            ceiling: Mutex::new(None),
            began: clock::runtime_instant(),
            named_bytes: AtomicU64::new(0),
            unnamed_bytes: AtomicU64::new(0),
            of_all_jobs,
        };
        rate.set(rates);
        Arc::new(rate)
    }

    /// Changes the rates.
    pub fn set(&self, rates: JobRates) {
        self.floor.set(rates.floor);
        let now = since(self.began);
        let mut ceiling = self.ceiling.lock();
        let Some(rate) = rates.ceiling else {
            *ceiling = None;
            return;
        };
        let (rate, burst) = ceiling_of(rate);
        match &mut *ceiling {
            Some(bucket) => bucket.set(rate, burst, now),
            None => *ceiling = Some(Bucket::new(rate, burst, now)),
        }
    }

    /// Returns the bytes that have come.
    pub fn bytes(&self) -> JobBytes {
        JobBytes {
            named: self.named_bytes.load(Ordering::Relaxed),
            unnamed: self.unnamed_bytes.load(Ordering::Relaxed),
        }
    }

    /// Takes permission of the ceiling to move `bytes`. Returns how long to wait before they may move.
    pub(super) fn take(&self, bytes: u64) -> Duration {
        let now = since(self.began);
        let mut ceiling = self.ceiling.lock();
        let wait = ceiling.as_mut().map(|bucket| bucket.take_and_wait(bytes, now));
        wait.unwrap_or_default()
    }

    /// Returns permission of the ceiling that was not used.
    pub(super) fn give_back(&self, bytes: u64) {
        if let Some(bucket) = &mut *self.ceiling.lock() {
            bucket.give_back(bytes);
        }
    }

    /// Takes permission of the floor to move `bytes`, if any is left.
    pub(super) fn take_promised(&self, bytes: u64) -> bool {
        self.floor.take_if_any(bytes)
    }

    pub(super) fn moved_for_job(&self, bytes: u64) {
        self.named_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.of_all_jobs.add(bytes);
    }

    pub(super) fn moved_for_others(&self, bytes: u64) {
        self.unnamed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Returns the rate and the burst of a ceiling of `rate` bytes per second.
pub(super) fn ceiling_of(rate: u64) -> (u64, u64) {
    let rate = rate.clamp(1, RATE_MAX);
    let burst = (u128::from(rate) * BURST_TIME.as_millis() / 1_000) as u64;
    (rate, burst.max(BURST_BYTES_MIN))
}
