//! A plan: the outcome of each job, and the use of link and cache for it. `shoal-planner` writes it as JSON.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};
use shoal_base::amount::human_amount;

use crate::model::Objective;
use crate::model::Request;

/// A plan. Times are seconds on the clock of the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The version of the format, as in the request.
    pub version: u32,
    /// The objective of this plan: the most deadlines also if the link cannot serve every job, and after
    /// [`crate::planner::replan`].
    pub objective: Objective,
    /// How good the plan is, and bounds for any plan.
    pub quality: Quality,
    /// Each job, in the order of the request.
    pub jobs: Vec<JobPlan>,
    /// Each file that is fetched, kept or evicted.
    pub files: Vec<FilePlan>,
    /// The link and the cache over time.
    pub usage: Usage,
}

/// How good a plan is.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// Jobs that are planned.
    pub planned: usize,
    /// No plan serves more jobs than this, within the assumptions of the linear program: files are cached
    /// whole before a job starts, and bytes that a job reads remotely serve no other job.
    pub planned_at_most: f64,
    /// The greatest share of the link that is promised or planned in any slot, before demand paging.
    pub peak_share: f64,
    /// For the least peak: no plan has a lower peak, with the same assumptions.
    pub peak_share_at_least: Option<f64>,
    /// Bytes that are fetched into the cache before jobs start.
    pub fetched_bytes: f64,
    /// Bytes that planned jobs read from the lake.
    pub remote_bytes: f64,
    /// Bytes that planned jobs read from the cache because an earlier job has read them from the lake.
    pub paged_bytes: f64,
}

impl Plan {
    /// Returns a plan that fetches and promises nothing.
    pub fn empty(request: &Request) -> Self {
        Self {
            version: request.version,
            objective: request.options.objective,
            quality: Quality {
                planned: 0,
                planned_at_most: 0.0,
                peak_share: 0.0,
                peak_share_at_least: None,
                fetched_bytes: 0.0,
                remote_bytes: 0.0,
                paged_bytes: 0.0,
            },
            jobs: Vec::new(),
            files: Vec::new(),
            usage: Usage {
                start_s: request.window.start_s,
                slot_s: request.window.slot_s,
                link_bytes_per_second: Vec::new(),
                promised_bytes_per_second: Vec::new(),
                fetched_bytes_per_second: Vec::new(),
                remote_bytes_per_second: Vec::new(),
                capacity_bytes: 0.0,
                cached_bytes: Vec::new(),
                paged_bytes: Vec::new(),
            },
        }
    }
}

/// A job in a plan: its outcome and its reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobPlan {
    /// The name.
    pub job: String,
    /// Planned, or why not.
    pub outcome: Outcome,
    /// For a planned job: each of its inputs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<ReadPlan>,
}

/// The outcome of planning a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It meets its deadline with the cached bytes and the rates that are planned for it.
    Planned,
    /// The plan promises it nothing; it uses what is left of link and cache.
    BestEffort(Reason),
}

/// Why a job is not planned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Its own rate, or that of cache and link together, is too low for its deadline.
    TooSlow {
        /// The time that reading takes at that rate.
        needs_s: f64,
        /// The time from submission to deadline.
        has_s: f64,
    },
    /// Even alone, link and cache could not bring its bytes in time.
    TooLarge {
        /// Its bytes.
        bytes: f64,
        /// The most bytes that cache and link can provide by its deadline.
        most_bytes: f64,
    },
    /// Other jobs need the link or the cache more.
    NoRoom {
        /// The resource that it lacks.
        short: Short,
        /// The bytes that it would have to read remotely.
        missing_bytes: f64,
        /// The bytes that it can read remotely, at the least rate that the link has left while it runs.
        link_left_bytes: f64,
        /// The start of the slot in which the link has the least left.
        narrowest_s: f64,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSlow { needs_s, has_s } => {
                write!(
                    f,
                    "its rate is too low: reading takes {needs_s:.0} s, and it has {has_s:.0} s"
                )
            }
            Self::TooLarge { bytes, most_bytes } => write!(
                f,
                "even alone, link and cache bring {} of its {} in time",
                human_amount(*most_bytes),
                human_amount(*bytes)
            ),
            Self::NoRoom {
                short,
                missing_bytes,
                link_left_bytes,
                ..
            } => {
                let short = match short {
                    Short::Link => "link",
                    Short::Cache => "cache",
                };
                let (missing, left) = (human_amount(*missing_bytes), human_amount(*link_left_bytes));
                write!(
                    f,
                    "{missing} are not cached for it, the link has {left} left for it, and the {short} is short"
                )
            }
        }
    }
}

/// A resource that a job lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Short {
    /// The link, before the job starts and while it runs.
    Link,
    /// Room in the cache: the link could bring the bytes before the job starts.
    Cache,
}

/// How a job reads a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadPlan {
    /// The file.
    pub file: String,
    /// Bytes that are fetched before the job starts, or cached from before, in whole blocks.
    pub cached_bytes: f64,
    /// Bytes that an earlier job's read has left in the cache.
    pub paged_bytes: f64,
    /// The rate at which the rest is read from the lake, from submission to deadline.
    pub remote_bytes_per_second: f64,
    /// True if the remote bytes are kept for a later job.
    pub keep: bool,
}

/// A file in a plan: its fetches, the intervals in which it is cached, and its evictions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FilePlan {
    /// The file.
    pub file: String,
    /// Its fetches into the cache, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub transfers: Vec<TransferPlan>,
    /// The intervals in which its first bytes are cached, in order of time, without pages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cached: Vec<Cached>,
    /// The intervals in which a job's read is kept for later jobs, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paged: Vec<Cached>,
    /// The blocks that leave the cache, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evictions: Vec<Eviction>,
}

/// Blocks that are fetched one after the other, each at the same rate: rectangles of Algorithm 1.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransferPlan {
    /// The start of the first block.
    pub start_s: f64,
    /// The end of the last block: never after the slots in which the plan fetches the file without a gap.
    pub end_s: f64,
    /// The rate of each block. It exceeds what the slots have for this transfer by less than one block over
    /// the time of the transfer, and only where blocks are not whole between slots.
    pub bytes_per_second: f64,
    /// The first block.
    pub first_block: u64,
    /// The number of blocks.
    pub blocks: u64,
}

impl TransferPlan {
    /// Returns the part of a file that it fetches: whole blocks, but the last block of the file may be short.
    pub fn bytes(&self, file_bytes: u64, block_bytes: u64) -> Range<u64> {
        let end = self.first_block.saturating_add(self.blocks);
        let byte = |block: u64| block.saturating_mul(block_bytes).min(file_bytes);
        byte(self.first_block)..byte(end)
    }
}

/// Bytes that are cached for a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cached {
    /// The start.
    pub from_s: f64,
    /// The end.
    pub until_s: f64,
    /// The number of the file's first bytes; of a paged file, the number of those that are not cached.
    pub bytes: f64,
}

/// Blocks that leave the cache.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Eviction {
    /// When.
    pub at_s: f64,
    /// The first block.
    pub first_block: u64,
    /// The number of blocks.
    pub blocks: u64,
}

/// The link and the cache, slot by slot.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// The start of the first slot.
    pub start_s: f64,
    /// The length of a slot.
    pub slot_s: f64,
    /// The rate of the link.
    pub link_bytes_per_second: Vec<f64>,
    /// The part promised to others.
    pub promised_bytes_per_second: Vec<f64>,
    /// The part for fetches into the cache.
    pub fetched_bytes_per_second: Vec<f64>,
    /// The part for remote reads of planned jobs.
    pub remote_bytes_per_second: Vec<f64>,
    /// The room of the cache.
    pub capacity_bytes: f64,
    /// The cached bytes, without pages.
    pub cached_bytes: Vec<f64>,
    /// The bytes of jobs' reads that are kept for later jobs.
    pub paged_bytes: Vec<f64>,
}
