//! Deviations from a plan, and the request for a new plan.

use std::collections::HashSet;

use thiserror::Error;

use super::{Execution, Transfer};
use crate::model::{File, Held, Job, LinkChange, Promise, Request};
use crate::plan::Outcome;

/// A deviation from a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Deviation {
    /// The file, by its position in the request.
    pub file: usize,
    /// What is not as planned.
    pub difference: Difference,
}

/// What is not as planned about a file.
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
        Rest {
            execution: self,
            now_s,
        }
        .request()
    }
}

/// Returns the first transfer that is behind, if any.
fn behind(execution: &Execution, now_s: f64) -> Option<Deviation> {
    let open = execution.transfers.open().iter();
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

/// The rest of a plan from a time on.
struct Rest<'a> {
    execution: &'a Execution,
    now_s: f64,
}

impl Rest<'_> {
    /// Returns the request for a plan of it. `None` if there is no job.
    fn request(&self) -> Option<Request> {
        let Self { execution, now_s } = *self;
        let jobs = self.jobs();
        if jobs.is_empty() {
            return None;
        }
        let used: HashSet<&str> = jobs
            .iter()
            .flat_map(|job| job.inputs.iter().map(String::as_str))
            .collect();
        let slot_s = execution.request.window.slot_s;
        let files = execution.request.files.iter().zip(&execution.files);
        let is_wanted = |file: &File, have: u64| have > 0 || used.contains(file.name.as_str());
        let files = files
            .filter(|(file, known)| is_wanted(file, known.have_bytes))
            .map(|(file, known)| {
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
            });
        let mut request = Request {
            files: files.collect(),
            jobs,
            ..execution.request.clone()
        };
        request.window.start_s = now_s;
        request.window.end_s = request.window.end_s.max(now_s + slot_s);
        request.cache.held = self.held();
        self.link(&mut request);
        Some(request)
    }

    /// Returns the jobs that still need bytes.
    fn jobs(&self) -> Vec<Job> {
        let Self { execution, now_s } = *self;
        let jobs = execution.request.jobs.iter().zip(&execution.verdicts);
        let open = jobs.filter(|(job, verdict)| verdict.is_none() && job.deadline_s > now_s + 1e-3);
        open.map(|(job, _)| Job {
            submit_s: job.submit_s.max(now_s),
            ..job.clone()
        })
        .collect()
    }

    /// Returns running jobs with all their bytes.
    fn served(&self) -> impl Iterator<Item = (&Job, &crate::plan::JobPlan)> {
        let Self { execution, now_s } = *self;
        let jobs = execution
            .request
            .jobs
            .iter()
            .zip(&execution.plan.jobs)
            .zip(&execution.verdicts);
        let served =
            jobs.filter(move |((job, _), verdict)| **verdict == Some(true) && job.deadline_s > now_s);
        served.map(|(pair, _)| pair)
    }

    fn held(&self) -> Vec<Held> {
        let execution = self.execution;
        let mut pinned = vec![None::<f64>; execution.files.len()];
        for (job, planned) in self.served() {
            for file in planned
                .reads
                .iter()
                .filter_map(|read| execution.by_name.get(&read.file))
            {
                let until_s = pinned[*file].get_or_insert(job.deadline_s);
                *until_s = until_s.max(job.deadline_s);
            }
        }
        let mut held: Vec<Held> = Vec::new();
        let mut left = execution.request.cache.capacity_bytes;
        let order = |pinned: &Option<f64>| pinned.is_none();
        let mut files: Vec<usize> = (0..execution.files.len())
            .filter(|file| execution.files[*file].have_bytes > 0)
            .collect();
        files.sort_by_key(|file| (order(&pinned[*file]), *file));
        for file in files {
            let bytes = execution.files[file].have_bytes.min(execution.files[file].bytes);
            // A file that does not fit into the remaining room is not kept.
            let Some(rest) = left.checked_sub(bytes) else {
                continue;
            };
            left = rest;
            held.push(Held {
                file: execution.request.files[file].name.clone(),
                bytes,
                pinned_until_s: pinned[file],
            });
        }
        held
    }

    fn link(&self, request: &mut Request) {
        let Self { execution, now_s } = *self;
        let link = &execution.request.link;
        request.link.bytes_per_second = link.rate_at(now_s) * execution.link.share;
        let later = link.changes.iter().filter(|change| change.at_s > now_s);
        request.link.changes = later
            .map(|change| LinkChange {
                at_s: change.at_s,
                bytes_per_second: change.bytes_per_second * execution.link.share,
            })
            .collect();
        let promised = link.promised.iter().filter(|promise| promise.end_s > now_s);
        let promised = promised.map(|promise| Promise {
            start_s: promise.start_s.max(now_s),
            ..*promise
        });
        let reads = self
            .served()
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
        let all = promised.chain(reads.filter(|promise| promise.bytes_per_second > 0.0));
        request.link.promised = all.collect();
    }
}
