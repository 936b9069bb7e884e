//! The status of jobs: whether they have the bytes that the plan promises, and whether they have read them.

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
        /// Submitted, with all bytes that the plan fetches for it in the cache.
        Running = "running",
        /// Its bytes cannot all be cached by its submission, or it was submitted without them.
        AtRisk = "at-risk",
        /// It read its inputs by its deadline.
        Met = "met",
        /// It did not read all of its inputs by its deadline, or they were not there to be read.
        Missed = "missed",
        /// Its inputs were there, and nothing of them was read by its deadline.
        Unread = "unread",
        /// The plan promises it nothing.
        Unplanned = "unplanned",
    }
}

impl JobStatus {
    /// Returns true if the status does not change any more.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Met | Self::Missed | Self::Unread)
    }
}

/// The time after a deadline for which its coordinator waits for the counts of what was read by then.
const PATIENCE_S: f64 = 15.0;

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
    /// Jobs that read nothing.
    pub unread: Vec<(u32, u32)>,
}

impl Verdicts {
    /// Returns the verdict on each of `jobs` jobs.
    pub fn by_job(&self, jobs: usize) -> Vec<Option<JobStatus>> {
        let mut verdicts = vec![None; jobs];
        for (runs, verdict) in [
            (&self.met, JobStatus::Met),
            (&self.missed, JobStatus::Missed),
            (&self.unread, JobStatus::Unread),
        ] {
            for &(first, count) in runs {
                let (first, count) = (first as usize, count as usize);
                let of_run = verdicts.iter_mut().skip(first).take(count);
                of_run.for_each(|known| *known = Some(verdict));
            }
        }
        verdicts
    }

    /// Leaves out the second half of each list, for a record that is too long. Returns true if there was any.
    pub fn halve(&mut self) -> bool {
        let lists = [&mut self.met, &mut self.missed, &mut self.unread];
        let is_left = lists.iter().any(|list| !list.is_empty());
        for list in lists {
            list.truncate(list.len() / 2);
        }
        is_left
    }

    fn from(verdicts: &[Option<JobStatus>]) -> Self {
        let runs = |wanted: JobStatus| {
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
            met: runs(JobStatus::Met),
            missed: runs(JobStatus::Missed),
            unread: runs(JobStatus::Unread),
        }
    }
}

/// The reads of a job, as far as they are known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadState {
    /// Bytes that it has read of its inputs.
    bytes: u64,
    /// The time up to which its reads are counted.
    counted_s: f64,
    /// True once all bytes that the plan fetches for it were cached at or after its submission.
    pub(super) is_served: bool,
}

impl Execution {
    /// Records what a job had read of its inputs by a time.
    pub fn has_read(&mut self, job: usize, bytes: u64, by_s: f64) {
        let read = &mut self.reads[job];
        read.bytes = read.bytes.max(bytes);
        read.counted_s = read.counted_s.max(by_s);
    }

    /// Returns the status of each job, in the order of the request.
    pub fn judge(&mut self, now_s: f64) -> Vec<JobStatus> {
        let present = Present::new(self, now_s);
        let jobs = self.request.jobs.iter().zip(&self.plan.jobs);
        let jobs = jobs.zip(self.verdicts.iter().zip(&self.reads));
        let statuses: Vec<JobStatus> = jobs
            .map(|((job, planned), (verdict, read))| {
                verdict.unwrap_or_else(|| present.status(job, planned, read))
            })
            .collect();
        let known = self.verdicts.iter_mut().zip(&mut self.reads);
        for ((verdict, read), status) in known.zip(&statuses) {
            if status.is_final() {
                *verdict = Some(*status);
            }
            read.is_served |= matches!(status, JobStatus::Running | JobStatus::Met);
        }
        statuses
    }

    /// Returns the files of which bytes that the plan fetches for a job are not cached, each with the number
    /// of bytes that the job needs.
    pub(super) fn lacking(&self, planned: &JobPlan) -> impl Iterator<Item = (usize, u64)> {
        let needed = planned.reads.iter().filter_map(move |read| {
            let &file = self.by_name.get(&read.file)?;
            Some((file, self.files[file].needed_bytes(read.cached_bytes)))
        });
        needed.filter(move |&(file, needed)| self.files[file].have_bytes < needed)
    }

    /// Returns true if each job has a final status, or none at all.
    pub(super) fn is_judged(&self, now_s: f64) -> bool {
        let jobs = self.request.jobs.iter().zip(&self.verdicts);
        let mut open = jobs.filter(|(job, verdict)| verdict.is_none() && self.promised.contains(&job.name));
        open.all(|(job, _)| now_s >= job.deadline_s + PATIENCE_S)
    }

    /// Returns the jobs of the document with a final status, for the next coordinator.
    pub fn verdicts(&self) -> Verdicts {
        Verdicts::from(&self.verdicts[..self.document_jobs])
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
    fn status(&self, job: &Job, planned: &JobPlan, read: &ReadState) -> JobStatus {
        let (is_submitted, is_over) = (self.now_s >= job.submit_s, self.now_s >= job.deadline_s);
        let is_planned = planned.outcome == Outcome::Planned;
        if !is_planned && !self.execution.promised.contains(&job.name) {
            return JobStatus::Unplanned;
        }
        if read.bytes > 0 && read.bytes >= self.read_by_all(job) {
            return JobStatus::Met;
        }
        // A new plan may have left it out.
        let lacks = !is_planned || self.misses(job) || self.execution.lacking(planned).next().is_some();
        if is_over {
            let is_counted = read.counted_s >= job.deadline_s || self.now_s >= job.deadline_s + PATIENCE_S;
            return match (is_counted, lacks) {
                (false, true) => JobStatus::AtRisk,
                (false, false) => JobStatus::Running,
                (true, false) if read.bytes == 0 => JobStatus::Unread,
                (true, _) => JobStatus::Missed,
            };
        }
        let will_lack = || !is_planned || self.misses(job) || self.will_lack(planned, job.submit_s);
        match (is_submitted, lacks) {
            (true, true) => JobStatus::AtRisk,
            (true, false) => JobStatus::Running,
            (false, true) if will_lack() => JobStatus::AtRisk,
            (false, _) => JobStatus::Waiting,
        }
    }

    /// Returns the bytes that a job reads at least: of each input what each of its runs has read.
    fn read_by_all(&self, job: &Job) -> u64 {
        let inputs = job
            .inputs
            .iter()
            .filter_map(|name| self.execution.by_name.get(name));
        let files = inputs.map(|file| &self.execution.files[*file]);
        files
            .map(|file| (*file.expected_bytes.start()).min(file.bytes))
            .sum()
    }

    /// Returns true if the lake does not have an input of a job.
    fn misses(&self, job: &Job) -> bool {
        let mut inputs = job
            .inputs
            .iter()
            .filter_map(|name| self.execution.by_name.get(name));
        inputs.any(|file| self.execution.files[*file].missing.is_some())
    }

    /// Returns true if bytes will be missing when a job is submitted, if all transfers continue at the
    /// planned rates.
    fn will_lack(&self, planned: &JobPlan, submit_s: f64) -> bool {
        self.execution.lacking(planned).any(|(file, needed)| {
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
