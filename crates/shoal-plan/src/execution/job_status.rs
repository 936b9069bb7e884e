//! The status of jobs: whether they have the bytes that the plan promises.

use serde::{Deserialize, Serialize};
use shoal_base::words;

use super::{Execution, FileState, Transfer};
use crate::model::Job;
use crate::plan::{JobPlan, Outcome};

words! {
    /// The status of a job.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum JobStatus {
        /// Not submitted, and its transfers are on time.
        Waiting = "waiting",
        /// Its bytes cannot all be cached by its submission, or it was submitted without them.
        AtRisk = "at-risk",
        /// All bytes that the plan fetches for it were cached between its submission and its deadline.
        Met = "met",
        /// They were not cached by its deadline.
        Missed = "missed",
        /// The plan promises it nothing.
        Unplanned = "unplanned",
    }
}

/// Maximum number of runs in [`Verdicts`].
const RUNS_MAX: usize = 400;

/// Jobs with a final status, as runs of positions in the request: each the first position and the number of
/// jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Verdicts {
    /// Jobs that met their deadlines.
    pub met: Vec<(u32, u32)>,
    /// Jobs that missed them.
    pub missed: Vec<(u32, u32)>,
}

impl Verdicts {
    /// Returns the verdict on each of `jobs` jobs.
    pub(super) fn by_job(&self, jobs: usize) -> Vec<Option<bool>> {
        let mut verdicts = vec![None; jobs];
        for (runs, verdict) in [(&self.met, true), (&self.missed, false)] {
            for &(first, count) in runs {
                let (first, count) = (first as usize, count as usize);
                let of_run = verdicts.iter_mut().skip(first).take(count);
                of_run.for_each(|known| *known = Some(verdict));
            }
        }
        verdicts
    }

    fn from(verdicts: &[Option<bool>]) -> Self {
        let runs = |wanted: bool| {
            let mut runs: Vec<(u32, u32)> = Vec::new();
            for (number, verdict) in (0_u32..).zip(verdicts) {
                if *verdict != Some(wanted) {
                    continue;
                }
                let is_full = runs.len() >= RUNS_MAX;
                match runs.last_mut() {
                    Some((first, count)) if *first + *count == number => *count += 1,
                    _ if is_full => break,
                    _ => runs.push((number, 1)),
                }
            }
            runs
        };
        Self {
            met: runs(true),
            missed: runs(false),
        }
    }
}

impl Execution {
    /// Returns the status of each job, in the order of the request. [`Met`](JobStatus::Met) and
    /// [`Missed`](JobStatus::Missed) are final.
    pub fn judge(&mut self, now_s: f64) -> Vec<JobStatus> {
        let present = Present::new(self, now_s);
        let jobs = self.request.jobs.iter().zip(&self.plan.jobs).zip(&self.verdicts);
        let statuses: Vec<JobStatus> = jobs
            .map(|((job, planned), verdict)| match verdict {
                Some(true) => JobStatus::Met,
                Some(false) => JobStatus::Missed,
                None => present.status(job, planned),
            })
            .collect();
        for (verdict, status) in self.verdicts.iter_mut().zip(&statuses) {
            match status {
                JobStatus::Met => *verdict = Some(true),
                JobStatus::Missed => *verdict = Some(false),
                _ => {}
            }
        }
        statuses
    }

    /// Returns the jobs with a final status, for the next coordinator.
    pub fn verdicts(&self) -> Verdicts {
        Verdicts::from(&self.verdicts)
    }
}

/// The bytes that are cached now, and those that are on their way.
struct Present<'a> {
    execution: &'a Execution,
    now_s: f64,
    /// The open transfers of each file.
    open: Vec<Vec<&'a Transfer>>,
}

impl<'a> Present<'a> {
    fn new(execution: &'a Execution, now_s: f64) -> Self {
        let mut open: Vec<Vec<&Transfer>> = vec![Vec::new(); execution.files.len()];
        for transfer in execution
            .transfers
            .list
            .iter()
            .filter(|transfer| transfer.is_open())
        {
            open[transfer.file].push(transfer);
        }
        Self {
            execution,
            now_s,
            open,
        }
    }

    /// Returns the status of a job without a final one.
    fn status(&self, job: &Job, planned: &JobPlan) -> JobStatus {
        let (is_submitted, is_over) = (self.now_s >= job.submit_s, self.now_s >= job.deadline_s);
        let is_planned = planned.outcome == Outcome::Planned;
        if !is_planned && !self.execution.promised.contains(&job.name) {
            return JobStatus::Unplanned;
        }
        // A new plan may have left it out.
        let lacks = !is_planned || self.misses(job) || self.lacking(planned).next().is_some();
        let will_lack = || !is_planned || self.misses(job) || self.will_lack(planned, job.submit_s);
        if !lacks {
            return if is_submitted {
                JobStatus::Met
            } else {
                JobStatus::Waiting
            };
        }
        if is_over {
            JobStatus::Missed
        } else if is_submitted || will_lack() {
            JobStatus::AtRisk
        } else {
            JobStatus::Waiting
        }
    }

    /// Returns true if the lake does not have an input of a job.
    fn misses(&self, job: &Job) -> bool {
        let mut inputs = job
            .inputs
            .iter()
            .filter_map(|name| self.execution.by_name.get(name));
        inputs.any(|file| self.execution.files[*file].missing.is_some())
    }

    /// Returns the files of which bytes that the plan fetches for a job are not cached, each with the number
    /// of bytes that the job needs.
    fn lacking(&self, planned: &JobPlan) -> impl Iterator<Item = (usize, u64)> {
        let needed = planned.reads.iter().filter_map(move |read| {
            let &file = self.execution.by_name.get(&read.file)?;
            Some((file, self.execution.files[file].needed_bytes(read.cached_bytes)))
        });
        needed.filter(move |&(file, needed)| self.execution.files[file].have_bytes < needed)
    }

    /// Returns true if bytes will be missing when a job is submitted, if all transfers continue at the
    /// planned rates.
    fn will_lack(&self, planned: &JobPlan, submit_s: f64) -> bool {
        self.lacking(planned).any(|(file, needed)| {
            let coming = self.open[file]
                .iter()
                .filter(|transfer| transfer.first_byte < needed);
            let bytes: u64 = coming.clone().map(|transfer| transfer.left_bytes()).sum();
            // A transfer that keeps its planned end is in time: if it ends later, it also fetches for later
            // jobs.
            let is_late = |transfer: &Transfer| {
                transfer.expected_end_s(self.now_s) > submit_s.max(transfer.end_s) + 1e-3
            };
            self.execution.files[file].have_bytes + bytes < needed
                || coming.clone().any(|transfer| is_late(transfer))
        })
    }
}

impl FileState {
    /// Returns the whole blocks in the bytes that are to be cached of the file.
    fn needed_bytes(&self, cached_bytes: f64) -> u64 {
        let (bytes, block) = (self.bytes.min(self.planned_bytes), self.block_bytes);
        if cached_bytes >= self.planned_bytes as f64 * (1.0 - 1e-6) {
            return bytes;
        }
        #[expect(clippy::cast_sign_loss, reason = "a plan has no negative bytes")]
        let blocks = (cached_bytes / block as f64 + 1e-6).floor().max(0.0) as u64;
        blocks.saturating_mul(block).min(bytes)
    }
}
