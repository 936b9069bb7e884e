//! Computes which deadlines more link, more cache or more slack would save.

use crate::model::{LinkChange, Request};
use crate::plan::{Outcome, Plan};

/// A change of a request, as factors of its values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Change {
    /// The link, at all times.
    pub bandwidth: f64,
    /// The cache.
    pub cache: f64,
    /// The time from submission to deadline, of every job.
    pub slack: f64,
}

/// The effect of a change on a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Effect {
    /// The plan with the change.
    pub plan: Plan,
    /// Jobs that are planned with it and not without.
    pub saved: Vec<String>,
    /// Jobs that are planned without it and not with it.
    pub lost: Vec<String>,
}

impl Default for Change {
    fn default() -> Self {
        Self {
            bandwidth: 1.0,
            cache: 1.0,
            slack: 1.0,
        }
    }
}

impl Change {
    /// Returns the request with the change. [`Request::check`] refuses it unless bandwidth and slack are
    /// positive; a negative cache counts as none.
    #[expect(clippy::cast_sign_loss, reason = "a negative capacity becomes 0")]
    pub fn apply(&self, request: &Request) -> Request {
        let mut changed = request.clone();
        changed.link.bytes_per_second *= self.bandwidth;
        let wider = |change: &LinkChange| LinkChange {
            bytes_per_second: change.bytes_per_second * self.bandwidth,
            ..*change
        };
        changed.link.changes = request.link.changes.iter().map(wider).collect();
        changed.cache.capacity_bytes = (request.cache.capacity_bytes as f64 * self.cache).max(0.0) as u64;
        for job in &mut changed.jobs {
            job.deadline_s = job.submit_s + (job.deadline_s - job.submit_s) * self.slack;
        }
        changed
    }
}

impl Effect {
    /// Compares two plans of the same jobs: without the change, and with it.
    pub fn between(without: &Plan, with: Plan) -> Self {
        let named = |saved: bool| {
            let is_planned = |outcome: &Outcome| *outcome == Outcome::Planned;
            let pairs = without.jobs.iter().zip(&with.jobs);
            pairs
                .filter(move |(before, after)| {
                    (is_planned(&before.outcome), is_planned(&after.outcome)) == (!saved, saved)
                })
                .map(|(before, _)| before.job.clone())
                .collect()
        };
        let (saved, lost) = (named(true), named(false));
        Self {
            saved,
            lost,
            plan: with,
        }
    }
}
