//! The rate at which a planned job reads from the lake: no less than its plan promises, and no more than it
//! needs.

use super::Execution;
use crate::plan::{JobPlan, Outcome, ReadPlan};

/// The part of the time of a job that its ceiling leaves as a reserve.
const RESERVE: f64 = 0.05;

/// The lowest ceiling in bytes a second. Below it, many concurrent requests of a job would each wait for
/// their next bytes longer than clients do.
const CEILING_MIN: f64 = (1_u64 << 20) as f64;

/// The least part of a job's rate at a node from which it reads nothing, in relation to an equal part.
const IDLE_PART: f64 = 0.25;

/// The rate at which a job reads from the lake the bytes that are not cached for it: `r_j` of section 4.2,
/// for all of its files together.
#[derive(Clone, Debug, PartialEq)]
pub struct Promise {
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// The files, by their positions in the request.
    pub files: Vec<usize>,
    /// The deadline of the job.
    pub until_s: f64,
}

impl Execution {
    /// Returns the promise of the plan in force to a job: its rate from the lake while it runs. `None` if it
    /// reads nothing from the lake by plan.
    pub fn promise(&self, job: usize) -> Option<Promise> {
        let planned = self.plan.jobs.get(job)?;
        let is_promised = planned.outcome == Outcome::Planned && remote(planned).next().is_some();
        is_promised.then(|| Promise {
            bytes_per_second: remote(planned).map(|read| read.remote_bytes_per_second).sum(),
            files: remote(planned)
                .filter_map(|read| self.by_name.get(&read.file).copied())
                .collect(),
            until_s: self.request.jobs[job].deadline_s,
        })
    }

    /// Returns the greatest rate at which a job may read from the lake now, in bytes a second: what is left
    /// by the time that is left, with a twentieth of the job's time as a reserve. The paper's jobs read at
    /// exactly their rate (section 5). `moved_bytes` have come from the lake for it.
    ///
    /// `None` if it may have all there is: in the reserve, once it has read more than planned, or while bytes
    /// are missing that the plan fetches for it.
    pub fn ceiling(&self, job: usize, moved_bytes: u64, now_s: f64) -> Option<f64> {
        let (planned, facts) = (self.plan.jobs.get(job)?, &self.request.jobs[job]);
        let promise = self.promise(job)?;
        if self.lacking(planned).next().is_some() {
            return None;
        }
        let bytes = |read: &ReadPlan| {
            let &file = self.by_name.get(&read.file)?;
            Some((self.files[file].bytes as f64 - read.cached_bytes - read.paged_bytes).max(0.0))
        };
        let left_bytes = remote(planned).filter_map(bytes).sum::<f64>() - moved_bytes as f64;
        let left_s = facts.deadline_s - (facts.deadline_s - facts.submit_s) * RESERVE - now_s;
        let needed = (left_bytes > 0.0 && left_s > 0.0).then(|| left_bytes / left_s)?;
        Some(needed.max(promise.bytes_per_second).max(CEILING_MIN))
    }
}

/// Returns the inputs that a job reads from the lake, in whole or in part.
fn remote(planned: &JobPlan) -> impl Iterator<Item = &ReadPlan> {
    planned
        .reads
        .iter()
        .filter(|read| read.remote_bytes_per_second > 0.0)
}

/// Divides the rate of a job among nodes by the bytes that each has lately fetched for it. A node that has
/// fetched nothing keeps a small part, so that it can begin: all parts together may exceed the rate by a
/// quarter, of which idle nodes use nothing.
pub fn divide(bytes_per_second: f64, lately_bytes: &[u64]) -> Vec<f64> {
    let equal = bytes_per_second / lately_bytes.len().max(1) as f64;
    let all: u64 = lately_bytes.iter().sum();
    let part = |&bytes: &u64| {
        if all == 0 {
            return equal;
        }
        (bytes_per_second * (bytes as f64 / all as f64)).max(equal * IDLE_PART)
    };
    lately_bytes.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::divide;

    #[test]
    fn a_node_that_does_all_of_the_reading_has_all_of_the_rate() {
        for (bytes, parts) in [
            (&[0, 0, 0, 0][..], &[25.0, 25.0, 25.0, 25.0][..]),
            (&[7, 0, 0, 0], &[100.0, 6.25, 6.25, 6.25]),
            (&[30, 10, 0, 0], &[75.0, 25.0, 6.25, 6.25]),
            (&[5], &[100.0]),
            (&[], &[]),
        ] {
            assert_eq!(divide(100.0, bytes), parts, "{bytes:?}");
        }
    }
}
