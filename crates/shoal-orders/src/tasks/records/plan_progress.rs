//! The progress of a plan beside that of other tasks: its jobs, and its deviations.

use serde::{Deserialize, Serialize};
use shoal_plan::execution::{JobStatus, Verdicts};

use super::moment::Moment;

/// The number of jobs, transfers, issues and arrivals that are named.
const JOBS_NAMED: usize = 32;
const TRANSFERS_NAMED: usize = 16;
const ISSUES_NAMED: usize = 16;
const ARRIVALS_NAMED: usize = 32;

/// The number of characters of a name or of a reason that are kept.
const TEXT_CHARS: usize = 256;

/// Jobs by status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobCounts {
    /// Jobs that have not been submitted and have no delay.
    pub waiting: u64,
    /// Jobs that were submitted, with their bytes in the cache.
    pub running: u64,
    /// Jobs that may miss their deadlines.
    pub at_risk: u64,
    /// Jobs that met their deadlines.
    pub met: u64,
    /// Jobs that missed their deadlines.
    pub missed: u64,
    /// Jobs that read nothing by their deadlines.
    pub unread: u64,
    /// Jobs that the plan promises nothing.
    pub unplanned: u64,
}

/// A job that is at risk, has missed its deadline, or has read nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobNote {
    /// The job.
    pub job: String,
    /// How it stands.
    pub status: JobStatus,
    /// When it is submitted.
    pub submit: Moment,
    /// Its deadline.
    pub deadline: Moment,
}

/// A transfer that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferNote {
    /// Its file.
    pub file: String,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes of these that the plan was to fetch by now.
    pub planned_bytes: u64,
    /// Bytes of these that were fetched by now, or were there before.
    pub done_bytes: u64,
    /// Its planned rate.
    pub bytes_per_second: u64,
}

/// A file that is not as planned, or for which a step of the plan failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issue {
    /// The last time that the coordinator noted it.
    pub at: Moment,
    /// The file.
    pub file: String,
    /// The error, in words.
    pub error: String,
}

/// A job that was announced while the plan was in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrivalNote {
    /// The id of its hint.
    pub hint: String,
    /// The job.
    pub job: String,
    /// When it was admitted or refused.
    pub at: Moment,
    /// Why it was refused; `None` if it was admitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The last new plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replanned {
    /// When the coordinator asked for it.
    pub at: Moment,
    /// Why the coordinator asked for it.
    pub why: String,
    /// The maker of the plan: `planner`, `node`, or `nothing` if none could be made.
    pub by: String,
    /// Why the planner did not make it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// The progress of a plan beside that of other tasks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanProgress {
    /// Bytes that the plan was to fetch by now.
    pub planned_bytes: u64,
    /// Its jobs.
    pub jobs: JobCounts,
    /// The first jobs that are at risk, and the last that missed their deadlines or read nothing.
    pub troubled: Vec<JobNote>,
    /// Some transfers that are under way.
    pub transfers: Vec<TransferNote>,
    /// The most recent issues, the latest last.
    pub issues: Vec<Issue>,
    /// The number of new plans.
    pub replans: u64,
    /// The last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replanned: Option<Replanned>,
    /// The last jobs that were announced since the plan came into force, the latest last.
    pub arrivals: Vec<ArrivalNote>,
    /// Of jobs that were admitted since, those that are over.
    #[serde(skip_serializing_if = "JobCounts::are_none")]
    pub arrivals_over: JobCounts,
    /// For the next coordinator.
    #[serde(skip_serializing_if = "is_nothing")]
    pub verdicts: Verdicts,
}

fn is_nothing(verdicts: &Verdicts) -> bool {
    *verdicts == Verdicts::default()
}

impl JobCounts {
    /// Counts jobs.
    pub(in crate::tasks) fn of(statuses: &[JobStatus]) -> Self {
        let count = |wanted| statuses.iter().filter(|status| **status == wanted).count() as u64;
        let [waiting, running, at_risk, met, missed, unread, unplanned] = JobStatus::ALL.map(count);
        Self {
            waiting,
            running,
            at_risk,
            met,
            missed,
            unread,
            unplanned,
        }
    }

    /// Returns those of these jobs that are over.
    pub(in crate::tasks) fn over(self) -> Self {
        Self {
            met: self.met,
            missed: self.missed,
            unread: self.unread,
            ..Self::default()
        }
    }

    /// Returns these jobs and others that are over.
    pub(in crate::tasks) fn plus(self, over: Self) -> Self {
        Self {
            met: self.met + over.met,
            missed: self.missed + over.missed,
            unread: self.unread + over.unread,
            ..self
        }
    }

    fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the number of each status, in the order of [`JobStatus::ALL`].
    pub fn by_status(&self) -> [u64; JobStatus::ALL.len()] {
        [
            self.waiting,
            self.running,
            self.at_risk,
            self.met,
            self.missed,
            self.unread,
            self.unplanned,
        ]
    }
}

impl PlanProgress {
    /// Notes an issue of a file. An issue with the same error replaces the earlier one.
    pub(in crate::tasks) fn note(&mut self, file: &str, error: &str, at: Moment) {
        let (file, error) = (cut(file), cut(error));
        self.issues
            .retain(|issue| issue.file != file || issue.error != error);
        self.issues.push(Issue { at, file, error });
        let extra = self.issues.len().saturating_sub(ISSUES_NAMED);
        self.issues.drain(..extra);
    }

    /// Notes a job that was admitted or refused. The oldest refusals make room, then the oldest admissions.
    pub(in crate::tasks) fn note_arrival(&mut self, mut note: ArrivalNote) {
        note.job = cut(&note.job);
        note.why = note.why.as_deref().map(cut);
        self.arrivals.retain(|known| known.hint != note.hint);
        self.arrivals.push(note);
        if self.arrivals.len() > ARRIVALS_NAMED {
            self.forget_arrival();
        }
    }

    fn forget_arrival(&mut self) {
        let refused = self.arrivals.iter().position(|note| note.why.is_some());
        self.arrivals.remove(refused.unwrap_or(0));
    }

    /// Sets the jobs that are named: all in trouble, those at risk in the order of their submission.
    pub(in crate::tasks) fn name_jobs(&mut self, mut jobs: Vec<JobNote>) {
        jobs.sort_by_key(|job| (job.status != JobStatus::AtRisk, job.submit));
        let at_risk = jobs.iter().filter(|job| job.status == JobStatus::AtRisk).count();
        if jobs.len() > JOBS_NAMED && at_risk < JOBS_NAMED {
            // The last of those that missed.
            let extra = jobs.len() - JOBS_NAMED;
            jobs.drain(at_risk..at_risk + extra);
        }
        jobs.truncate(JOBS_NAMED);
        for job in &mut jobs {
            job.job = cut(&job.job);
        }
        self.troubled = jobs;
    }

    /// Sets the transfers that are named.
    pub(in crate::tasks) fn name_transfers(&mut self, transfers: impl Iterator<Item = TransferNote>) {
        let named = transfers.take(TRANSFERS_NAMED).map(|mut transfer| {
            transfer.file = cut(&transfer.file);
            transfer
        });
        self.transfers = named.collect();
    }

    /// Makes the record shorter: removes transfers first, then jobs, issues, arrivals, verdicts. Returns true
    /// if there was anything to remove.
    pub(in crate::tasks) fn shorten(&mut self) -> bool {
        if self.transfers.pop().is_some() || self.troubled.pop().is_some() {
            return true;
        }
        if !self.issues.is_empty() {
            self.issues.remove(0);
            return true;
        }
        if !self.arrivals.is_empty() {
            self.forget_arrival();
            return true;
        }
        self.verdicts.halve()
    }
}

/// Returns the beginning of a text: records are small.
pub(in crate::tasks) fn cut(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS) {
        None => text.into(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bulletin::RECORD_BYTES_MAX;
    use crate::tasks::Progress;

    #[test]
    fn a_record_is_bounded_and_names_those_at_risk_first() {
        let at: Moment = "2026-11-24T00:00:00Z".parse().unwrap();
        let note = |number: u64, status| JobNote {
            job: format!("{number}{}", "ä".repeat(300)),
            status,
            submit: at.plus(std::time::Duration::from_secs(number)),
            deadline: at,
        };
        let mut progress = PlanProgress::default();
        let missed = (0..100).map(|number| note(number, JobStatus::Missed));
        progress.name_jobs(
            missed
                .chain((100..110).map(|number| note(number, JobStatus::AtRisk)))
                .collect(),
        );
        assert_eq!(progress.troubled.len(), JOBS_NAMED);
        assert!(
            progress.troubled[..10]
                .iter()
                .all(|job| job.status == JobStatus::AtRisk)
        );
        assert!(
            progress.troubled[31].job.starts_with("99"),
            "the last that missed"
        );
        for number in 0..100 {
            progress.note(&format!("f{number}"), &"x".repeat(1000), at);
            progress.note("same", "again", at);
        }
        assert_eq!(progress.issues.len(), ISSUES_NAMED);
        assert_eq!(
            progress
                .issues
                .iter()
                .filter(|issue| issue.file == "same")
                .count(),
            1
        );
        progress.verdicts.met = (0..400).map(|number| (number * 1_000_000, 7)).collect();
        progress.verdicts.missed = progress.verdicts.met.clone();
        let progress = Progress {
            plan: Some(Box::new(progress)),
            ..Progress::default()
        };
        let body = progress.to_body();
        assert!(body.len() <= RECORD_BYTES_MAX, "{}", body.len());
        let read: Progress = serde_json::from_slice(&body).unwrap();
        assert!(!read.plan.unwrap().verdicts.met.is_empty());
    }
}
