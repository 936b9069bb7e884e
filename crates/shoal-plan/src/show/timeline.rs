//! A plan as spans of time, for a console: bounded, however large the plan is.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::Document;
use crate::plan::{FilePlan, Outcome};

/// The most jobs and the most files; more would not be legible.
const JOBS_MAX: usize = 40;
const FILES_MAX: usize = 30;

/// The jobs and fetches of a plan. Times are seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// The start of the plan.
    pub from: f64,
    /// The last deadline.
    pub until: f64,
    /// Jobs in the order of their submission. If there are too many, those that are over are left out, and
    /// then the last ones.
    pub jobs: Vec<JobSpan>,
    /// The files with the most fetched bytes, in the order of their first fetch.
    pub files: Vec<FileSpans>,
}

/// A job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobSpan {
    /// Its name.
    pub job: String,
    /// Its submission.
    pub submit: f64,
    /// Its deadline.
    pub deadline: f64,
    /// False if the plan promises it nothing.
    pub is_planned: bool,
}

/// A file that is fetched.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FileSpans {
    /// Its path.
    pub file: String,
    /// When its blocks are fetched: the start and the end of each transfer.
    pub fetched: Vec<(f64, f64)>,
    /// When it is cached: the start and the end of each interval.
    pub cached: Vec<(f64, f64)>,
}

impl Timeline {
    /// Returns the spans of a plan at a time, in seconds since 1970.
    pub fn of(document: &Document, now: f64) -> Self {
        let (request, plan) = (&document.request, &document.plan);
        let at = |seconds: f64| document.epoch_ms as f64 / 1e3 + seconds;
        let outcomes = plan.jobs.iter().map(|job| (&*job.job, &job.outcome));
        let outcomes: HashMap<&str, &Outcome> = outcomes.collect();
        let jobs = request.jobs.iter().map(|job| JobSpan {
            job: job.name.clone(),
            submit: at(job.submit_s),
            deadline: at(job.deadline_s),
            is_planned: matches!(outcomes.get(&*job.name), Some(Outcome::Planned)),
        });
        let mut jobs: Vec<JobSpan> = jobs.collect();
        jobs.sort_by(|a, b| a.submit.total_cmp(&b.submit));
        let mut beyond = jobs.len().saturating_sub(JOBS_MAX);
        jobs.retain(|job| {
            let leaves = beyond > 0 && job.deadline < now;
            beyond -= usize::from(leaves);
            !leaves
        });
        jobs.truncate(JOBS_MAX);
        let paths = request.files.iter().zip(&document.files);
        let paths: HashMap<&str, &str> = paths.map(|(file, known)| (&*file.name, &*known.path)).collect();
        let blocks = |file: &FilePlan| file.transfers.iter().map(|transfer| transfer.blocks).sum::<u64>();
        let mut files: Vec<&FilePlan> = plan.files.iter().filter(|file| blocks(file) > 0).collect();
        files.sort_by_key(|file| (Reverse(blocks(file)), &file.file));
        files.truncate(FILES_MAX);
        files.sort_by(|a, b| a.transfers[0].start_s.total_cmp(&b.transfers[0].start_s));
        let files = files.into_iter().map(|file| FileSpans {
            file: (*paths.get(&*file.file).unwrap_or(&&*file.file)).to_owned(),
            fetched: file
                .transfers
                .iter()
                .map(|transfer| (at(transfer.start_s), at(transfer.end_s)))
                .collect(),
            cached: file
                .cached
                .iter()
                .map(|cached| (at(cached.from_s), at(cached.until_s)))
                .collect(),
        });
        Self {
            from: at(request.window.start_s),
            until: at(request.ends_s()),
            files: files.collect(),
            jobs,
        }
    }
}
