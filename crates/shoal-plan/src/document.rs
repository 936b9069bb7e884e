//! A plan with the request that it answers, the start of its clock, and the forecast of its files and jobs.
//! `shoal plan` writes it, and a coordinator carries it out.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};
pub use shoal_base::forecast::{DeadlineRule, Extent};
use thiserror::Error;

use crate::model::{Request, RequestError, VERSION};
use crate::plan::{FilePlan, Plan};

/// A plan, with everything needed to carry it out. Times that end in `_s` are seconds after `epoch_ms`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// The version of the format of document, request and plan: [`VERSION`].
    pub version: u32,
    /// The time 0 s, in milliseconds since 1970.
    pub epoch_ms: u64,
    /// The forecast of each file of the request, in its order.
    pub files: Vec<ExpectedFile>,
    /// The forecast of each job of the request, in its order.
    pub jobs: Vec<ExpectedJob>,
    /// Jobs that are forecast and not in the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOut>,
    /// The request that the plan answers.
    pub request: Request,
    /// The plan.
    pub plan: Plan,
}

/// The forecast of a file from the history: its path, its extent and its size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedFile {
    /// `s3://bucket/key`, or a prefix that ends in `/`. Its version is the current one at the lake when the
    /// transfer begins.
    pub path: String,
    /// The part of the path that the file is.
    pub extent: Extent,
    /// The 10th percentile of the bytes that runs read.
    pub bytes_low: u64,
    /// The 90th percentile of the bytes that runs read.
    pub bytes_high: u64,
    /// The objects below the prefix, if the history names objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub objects: Option<u64>,
}

/// The forecast of a job from the history, beyond the parts that the request holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedJob {
    /// The name shared by all runs of the job, with `*` for dates and ids.
    pub name: String,
    /// The 10th percentile of the submission time.
    pub early_s: f64,
    /// The 90th percentile of the submission time.
    pub late_s: f64,
    /// The probability that it is submitted at all, from 0 to 1.
    pub probability: f64,
    /// The source of the deadline.
    pub deadline_rule: DeadlineRule,
}

/// A job that is forecast and not planned for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeftOut {
    /// The name of its run.
    pub job: String,
    /// Its submission.
    pub submit_s: f64,
    /// The reason.
    pub why: WhyLeftOut,
}

/// Why a job is not in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WhyLeftOut {
    /// The sizes of all its inputs are unknown.
    NothingToRead,
}

/// The document is invalid.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum DocumentError {
    /// The document has another version of the format.
    #[error(
        "the plan has version {found}, and this is version {expected}\nhint: plan again with this version of shoal"
    )]
    Version {
        /// The version of the document.
        found: u32,
        /// The supported version.
        expected: u32,
    },
    /// Its request is invalid.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// Its parts contradict each other.
    #[error("the plan contradicts its request: {0}\nhint: plan again; do not change a plan by hand")]
    Contradiction(String),
}

impl Document {
    /// Checks that the parts are consistent and stay within the files: a document from a file or a socket may
    /// have been modified.
    ///
    /// # Errors
    /// The first contradiction.
    pub fn check(&self) -> Result<(), DocumentError> {
        let mut versions = [self.version, self.plan.version].into_iter();
        if let Some(found) = versions.find(|version| *version != VERSION) {
            let expected = VERSION;
            return Err(DocumentError::Version { found, expected });
        }
        self.request.check()?;
        self.check_parts().map_err(DocumentError::Contradiction)
    }

    fn check_parts(&self) -> Result<(), String> {
        let same = |what: &str, found: usize, expected: usize| {
            if found == expected {
                return Ok(());
            }
            Err(format!("{found} {what}, and the request has {expected}"))
        };
        let (files, jobs) = (&self.request.files, &self.request.jobs);
        same("files", self.files.len(), files.len())?;
        same("jobs", self.jobs.len(), jobs.len())?;
        same("planned jobs", self.plan.jobs.len(), jobs.len())?;
        let sizes: HashMap<&str, (u64, u64)> = files
            .iter()
            .map(|file| (file.name.as_str(), (file.bytes, file.block_bytes)))
            .collect();
        for (job, planned) in jobs.iter().zip(&self.plan.jobs) {
            if job.name != planned.job {
                return Err(format!("{} stands where {} belongs", planned.job, job.name));
            }
            // A job may have a hundred thousand inputs.
            let inputs: HashSet<&String> = job.inputs.iter().collect();
            for read in &planned.reads {
                if !inputs.contains(&read.file) {
                    return Err(format!("{} does not read {}", job.name, read.file));
                }
                sane(&job.name, read.remote_bytes_per_second)?;
            }
        }
        for plan in &self.plan.files {
            let &(bytes, block_bytes) = sizes
                .get(plan.file.as_str())
                .ok_or_else(|| format!("no job reads {}", plan.file))?;
            check_file(plan, bytes.div_ceil(block_bytes))?;
        }
        self.check_usage()
    }

    fn check_usage(&self) -> Result<(), String> {
        let usage = &self.plan.usage;
        let slots = usage.link_bytes_per_second.len();
        let series = [
            &usage.promised_bytes_per_second,
            &usage.fetched_bytes_per_second,
            &usage.remote_bytes_per_second,
            &usage.cached_bytes,
            &usage.paged_bytes,
        ];
        if series.iter().any(|series| series.len() != slots) {
            return Err("the link and the cache have different numbers of slots".to_owned());
        }
        sane("the length of a slot", usage.slot_s)?;
        let all = series.into_iter().chain([&usage.link_bytes_per_second]);
        all.flatten().try_for_each(|&value| sane("a slot", value))
    }
}

/// Checks that transfers, pins and evictions are in order and stay within the file.
fn check_file(plan: &FilePlan, blocks: u64) -> Result<(), String> {
    let name = &plan.file;
    let within = |first: u64, count: u64| match first.checked_add(count) {
        Some(end) if end <= blocks => Ok(()),
        _ => Err(format!("{name} has {blocks} blocks, and more are planned")),
    };
    for transfer in &plan.transfers {
        ordered(name, transfer.start_s, transfer.end_s)?;
        sane(name, transfer.bytes_per_second)?;
        within(transfer.first_block, transfer.blocks)?;
    }
    for cached in plan.cached.iter().chain(&plan.paged) {
        ordered(name, cached.from_s, cached.until_s)?;
        sane(name, cached.bytes)?;
    }
    for eviction in &plan.evictions {
        ordered(name, eviction.at_s, eviction.at_s)?;
        within(eviction.first_block, eviction.blocks)?;
    }
    Ok(())
}

fn sane(what: &str, value: f64) -> Result<(), String> {
    if value.is_finite() && value >= 0.0 {
        return Ok(());
    }
    Err(format!("{what} has the number {value}"))
}

fn ordered(what: &str, start_s: f64, end_s: f64) -> Result<(), String> {
    if start_s.is_finite() && end_s.is_finite() && start_s <= end_s {
        return Ok(());
    }
    Err(format!("{what} has an interval from {start_s} s to {end_s} s"))
}
