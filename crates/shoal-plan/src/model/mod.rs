//! The input of a planner: files, jobs, the link to the lake, the cache, and earlier promises.
//!
//! Times are seconds since a moment of the caller's choice, the same for all of a request. Sizes are bytes,
//! rates bytes a second.

mod validate;

use serde::{Deserialize, Serialize};

pub use self::validate::{MAX_READS, MAX_SLOTS, RequestError};

/// The version of [`Request`] and of [`crate::Plan`] that this build reads and writes.
pub const VERSION: u32 = 1;

/// Everything that a plan depends on. The same request gives the same plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// The version of this form: [`VERSION`].
    pub version: u32,
    /// The time that is planned.
    pub window: Window,
    /// The link between the lake and the cache.
    pub link: Link,
    /// The cache, and its contents at the start.
    pub cache: Cache,
    /// The files that jobs read.
    pub files: Vec<File>,
    /// The jobs, in any order.
    pub jobs: Vec<Job>,
    /// How to plan.
    #[serde(default)]
    pub options: Options,
}

impl Request {
    /// Returns the end of the last job.
    pub fn ends_s(&self) -> f64 {
        let deadlines = self.jobs.iter().map(|job| job.deadline_s);
        deadlines.fold(self.window.end_s, f64::max)
    }
}

/// The time that is planned: jobs are submitted in `start_s..end_s`. Slots go on to the last deadline.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// The start: nothing is transferred before it.
    pub start_s: f64,
    /// The end: no job is submitted from here on.
    pub end_s: f64,
    /// The length of a slot. Within a slot each transfer has one rate. A job counts as reading in every slot
    /// that it touches, and a file as cached from the next slot on, so a plan holds between slots as well.
    pub slot_s: f64,
}

/// The link between the lake and the cache.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// The rate from the start of the window on (the paper's *B*).
    pub bytes_per_second: f64,
    /// Later changes of that rate, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<LinkChange>,
    /// Rates that are already promised to others: transfers of a former plan, reads of running jobs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub promised: Vec<Promise>,
}

impl Link {
    /// Returns the rate at a time.
    pub fn rate_at(&self, now_s: f64) -> f64 {
        let changes = self.changes.iter().take_while(|change| change.at_s <= now_s);
        changes
            .last()
            .map_or(self.bytes_per_second, |change| change.bytes_per_second)
    }
}

/// From a time on, the link has another rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkChange {
    /// The time of the change.
    pub at_s: f64,
    /// The rate from then on.
    pub bytes_per_second: f64,
}

/// A rate that is not free for this plan.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Promise {
    /// The start.
    pub start_s: f64,
    /// The end.
    pub end_s: f64,
    /// The rate in between.
    pub bytes_per_second: f64,
}

/// The cache of the compute cluster, all nodes together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// The room for planned files (the paper's *C*).
    pub capacity_bytes: u64,
    /// The rate at which one job reads cached files at most; without a value only its own rate bounds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<f64>,
    /// The contents of the cache at the start of the window.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<Held>,
}

impl Cache {
    /// Sets what the cache holds. It has room for that, even if a plan in force holds more than its room by
    /// the rounding of a solver.
    pub fn hold(&mut self, held: Vec<Held>) {
        let bytes = held.iter().map(|held| held.bytes).fold(0, u64::saturating_add);
        self.capacity_bytes = self.capacity_bytes.max(bytes);
        self.held = held;
    }
}

/// The first bytes of a file, in the cache at the start of the window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Held {
    /// The name of the file.
    pub file: String,
    /// Its cached bytes.
    pub bytes: u64,
    /// They may not be evicted before this time, as a running job reads them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned_until_s: Option<f64>,
}

/// A file that jobs read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// The name, such as `s3://bucket/key`, or a prefix whose objects are read together.
    pub name: String,
    /// The size.
    pub bytes: u64,
    /// The time from which on it can be read from the lake; without a value, the start of the window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_s: Option<f64>,
    /// The size of its blocks.
    #[serde(default = "File::default_block_bytes")]
    pub block_bytes: u64,
}

impl File {
    /// 4 MiB, the block of a node.
    pub const fn default_block_bytes() -> u64 {
        4 << 20
    }
}

/// A job that reads files, each of them whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// The name.
    pub name: String,
    /// When it starts to read (the paper's *a*).
    pub submit_s: f64,
    /// When it must have read everything (the paper's *d*).
    pub deadline_s: f64,
    /// The names of the files that it reads.
    pub inputs: Vec<String>,
    /// The rate at which it reads all its inputs together at most, from wherever they come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second_max: Option<f64>,
}

/// How to plan.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Options {
    /// The objective.
    pub objective: Objective,
    /// How whole jobs follow from a fractional solution.
    pub rounding: Rounding,
    /// The policy that manages the cache's unplanned room.
    pub paging: Paging,
    /// The seed of [`Rounding::Randomized`].
    pub seed: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            objective: Objective::LeastPeak,
            rounding: Rounding::Prefix,
            paging: Paging::Belady,
            seed: 1,
        }
    }
}

/// The objective of a plan (4.1 of the paper).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// All jobs in time with the least peak share of the link (light and medium load). If the link cannot
    /// serve them all, the most deadlines.
    LeastPeak,
    /// The most jobs in time (high load).
    MostDeadlines,
}

/// How whole jobs follow from a fractional solution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rounding {
    /// Jobs in the order of their fraction for their cost, as long as link and cache hold. Never too much.
    Prefix,
    /// Each job by chance, as printed in 4.2; where that is more than the link has, jobs are left out.
    Randomized,
}

/// The policy that manages the room of the cache that the plan leaves (4.3: the *usable* room).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Paging {
    /// None: files that jobs read from the lake are not kept.
    Off,
    /// Belady's MIN: the file whose next planned use is farthest away leaves first.
    Belady,
    /// PACMan's LIFE: evicts incompletely cached files first, larger ones before smaller ones.
    Life,
}
