//! Deviations from a plan, and the request for a new plan.

use std::collections::HashSet;

use thiserror::Error;

use super::{Execution, Transfer};
use crate::model::{File, Held, Job, Link, LinkChange, Promise, Request};
use crate::plan::{JobPlan, Outcome};

/// A deviation from a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deviation {
    /// The file, by its position in the request.
    pub file: usize,
    /// The difference.
    pub difference: Difference,
}

/// A difference between a file and its plan.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum Difference {
    /// The lake does not have it.
    #[error("the lake does not have it")]
    Missing,
    /// The lake now has it, and no open transfer fetches it.
    #[error("the lake has it by now")]
    Found,
    /// It has another size.
    #[error("it has {bytes} bytes, and {planned_bytes} were planned")]
    Resized {
        /// The size that was planned.
        planned_bytes: u64,
        /// Its size.
        bytes: u64,
    },
    /// The cache holds less of it than the request assumes.
    #[error("the cache holds only {bytes} bytes of it")]
    NotHeld {
        /// The bytes of it that the cache holds.
        bytes: u64,
    },
    /// A transfer of it is more than a slot behind.
    #[error("its transfer is more than a slot behind; {bytes} bytes are left")]
    Behind {
        /// The bytes that are left to fetch.
        bytes: u64,
    },
}

impl Execution {
    /// Advances the time; to be called about once a second. Measures the rate of the link in each slot.
    pub fn tick(&mut self, now_s: f64) {
        let slot_s = self.request.window.slot_s;
        if self.link.end_slot(now_s, slot_s) && behind(self, now_s).is_none() {
            self.link.recover();
        }
    }

    /// Returns the reason for a new plan, if one is needed: the lake or the cache differs from the plan, or a
    /// transfer is behind by more than the bytes of a slot. `None` within a slot of the last plan.
    pub fn deviation(&self, now_s: f64) -> Option<Deviation> {
        if now_s < self.replanned_s + self.request.window.slot_s {
            return None;
        }
        self.surprise.or_else(|| behind(self, now_s))
    }

    /// Returns the request for a new plan, from now on. `None` if no job is left that a plan could help.
    ///
    /// Submitted jobs that lack nothing keep their files and their share of the link until their deadlines.
    /// Those that lack bytes count as submitted now. A file that the lake does not have counts as available
    /// at its next retry. A link that moved less than planned in the last slot is scaled down accordingly.
    pub fn request_from(&mut self, now_s: f64, why: Deviation) -> Option<Request> {
        if let Difference::Behind { .. } = why.difference {
            let lately = self.link.lately(now_s, self.request.window.slot_s);
            let from_s = now_s - lately.seconds;
            let planned =
                |transfer: &Transfer| transfer.expected_bytes(now_s) - transfer.expected_bytes(from_s);
            let planned = self.transfers.list.iter().map(planned).sum();
            self.link.scale(lately.bytes, planned);
        }
        self.rest(now_s)
    }
}

/// Returns the first transfer that is behind, if any.
fn behind(execution: &Execution, now_s: f64) -> Option<Deviation> {
    let open = execution.transfers.open();
    let mut begun = open.take_while(|transfer| transfer.start_s <= now_s);
    let is_behind = |transfer: &&Transfer| {
        let file = &execution.files[transfer.file];
        // A plan that started late does not make its transfers late.
        let since_s = transfer.start_s.max(execution.began_s);
        let due_s = now_s - execution.request.window.slot_s;
        let expected = (due_s.min(transfer.end_s + since_s - transfer.start_s) - since_s).max(0.0)
            * transfer.bytes_per_second;
        let slack = file.block_bytes as f64;
        transfer.is_open()
            && file.missing.is_none()
            && due_s > since_s
            && (transfer.done_bytes as f64) + slack < expected.min(transfer.bytes as f64)
    };
    let transfer = begun.find(is_behind)?;
    let bytes = transfer.left_bytes();
    Some(Deviation {
        file: transfer.file,
        difference: Difference::Behind { bytes },
    })
}

impl Execution {
    /// Returns the request for the rest of the plan from `now_s` on; `None` if no job is open.
    fn rest(&self, now_s: f64) -> Option<Request> {
        let jobs = self.open_jobs(now_s);
        if jobs.is_empty() {
            return None;
        }
        let used: HashSet<&str> = jobs
            .iter()
            .flat_map(|job| job.inputs.iter().map(String::as_str))
            .collect();
        let slot_s = self.request.window.slot_s;
        let files = self.files_now(now_s).zip(&self.files);
        let is_wanted = |file: &File, have: u64| have > 0 || used.contains(file.name.as_str());
        let files = files.filter(|(file, known)| is_wanted(file, known.have_bytes));
        let files = files.map(|(file, _)| file).collect();
        drop(used);
        let mut request = Request {
            files,
            jobs,
            ..self.request.clone()
        };
        request.window.start_s = now_s;
        request.window.end_s = request.window.end_s.max(now_s + slot_s);
        request.cache.hold(self.held(now_s));
        request.link = self.link_left(now_s);
        Some(request)
    }

    /// Returns the files of the request as they are known now. One that the lake does not have counts as
    /// available when it is asked for again.
    pub(super) fn files_now(&self, now_s: f64) -> impl Iterator<Item = File> {
        let slot_s = self.request.window.slot_s;
        let files = self.request.files.iter().zip(&self.files);
        files.map(move |(file, known)| {
            let again_s = known.missing.map(|(_, again_s)| {
                if again_s.is_finite() {
                    again_s
                } else {
                    now_s + slot_s
                }
            });
            let available_s = file.available_s.into_iter().chain(again_s).reduce(f64::max);
            File {
                name: file.name.clone(),
                bytes: known.bytes,
                available_s: available_s.filter(|available_s| *available_s > now_s),
                block_bytes: known.block_bytes,
            }
        })
    }

    /// Returns the jobs that still need bytes.
    fn open_jobs(&self, now_s: f64) -> Vec<Job> {
        let jobs = self.request.jobs.iter().zip(&self.verdicts).zip(&self.reads);
        let open = jobs.filter(|((job, verdict), read)| {
            verdict.is_none() && !read.is_served && job.deadline_s > now_s + 1e-3
        });
        open.map(|((job, _), _)| Job {
            submit_s: job.submit_s.max(now_s),
            ..job.clone()
        })
        .collect()
    }

    /// Returns running jobs with all their bytes.
    fn served(&self, now_s: f64) -> impl Iterator<Item = (&Job, &JobPlan)> {
        let jobs = self.request.jobs.iter().zip(&self.plan.jobs);
        let jobs = jobs.zip(&self.reads);
        let served = jobs.filter(move |((job, _), read)| read.is_served && job.deadline_s > now_s);
        served.map(|(pair, _)| pair)
    }

    pub(super) fn held(&self, now_s: f64) -> Vec<Held> {
        let mut pinned = vec![None::<f64>; self.files.len()];
        for (job, planned) in self.served(now_s) {
            for file in planned
                .reads
                .iter()
                .filter_map(|read| self.by_name.get(&read.file))
            {
                let until_s = pinned[*file].get_or_insert(job.deadline_s);
                *until_s = until_s.max(job.deadline_s);
            }
        }
        let mut held: Vec<Held> = Vec::new();
        let mut left = self.request.cache.capacity_bytes;
        let order = |pinned: &Option<f64>| pinned.is_none();
        let mut files: Vec<usize> = (0..self.files.len())
            .filter(|file| self.files[*file].have_bytes > 0)
            .collect();
        files.sort_by_key(|file| (order(&pinned[*file]), *file));
        for file in files {
            let bytes = self.files[file].have_bytes.min(self.files[file].bytes);
            // A file that does not fit into the remaining room is not kept.
            let Some(rest) = left.checked_sub(bytes) else {
                continue;
            };
            left = rest;
            held.push(Held {
                file: self.request.files[file].name.clone(),
                bytes,
                pinned_until_s: pinned[file],
            });
        }
        held
    }

    /// Returns the link as it is now, without the reads of jobs that have begun.
    fn link_left(&self, now_s: f64) -> Link {
        let mut link = self.link_now(now_s);
        let reads = self
            .served(now_s)
            .filter(|(_, planned)| planned.outcome == Outcome::Planned);
        let reads = reads.map(|(job, planned)| Promise {
            start_s: now_s,
            end_s: job.deadline_s,
            bytes_per_second: planned
                .reads
                .iter()
                .map(|read| read.remote_bytes_per_second)
                .sum(),
        });
        let reads = reads.filter(|promise| promise.bytes_per_second > 0.0);
        link.promised.extend(reads);
        link
    }

    /// Returns the link as it is now, without what was promised to others from the start.
    pub(super) fn link_now(&self, now_s: f64) -> Link {
        let (link, share) = (&self.request.link, self.link.share);
        let later = link.changes.iter().filter(|change| change.at_s > now_s);
        let changes = later.map(|change| LinkChange {
            at_s: change.at_s,
            bytes_per_second: change.bytes_per_second * share,
        });
        let promised = link.promised.iter().filter(|promise| promise.end_s > now_s);
        let promised = promised.map(|promise| Promise {
            start_s: promise.start_s.max(now_s),
            ..*promise
        });
        Link {
            bytes_per_second: link.rate_at(now_s) * share,
            changes: changes.collect(),
            promised: promised.collect(),
        }
    }
}
