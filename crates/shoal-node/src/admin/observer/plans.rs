//! The plan, for the pages of operators.

use serde_json::{Map, Value, json};
use shoal_plan::execution::JobStatus;

use super::Observer;
use crate::metrics::PlanMetrics;
use crate::tasks::PlanTotals;

impl Observer {
    /// Brings what was done for plans since `before` into the metrics. Returns the totals.
    pub(super) fn measure_plans(&self, metrics: &PlanMetrics, before: &PlanTotals) -> PlanTotals {
        let figures = self.tasks.plan_figures();
        metrics.set_in_force(figures.in_force, figures.carried_here);
        for (status, jobs) in JobStatus::ALL.into_iter().zip(figures.jobs) {
            metrics.set_jobs(status.as_str(), jobs);
        }
        for (of, bytes) in ["total", "planned", "done"].into_iter().zip(figures.bytes) {
            metrics.set_bytes(of, bytes);
        }
        let now = figures.totals;
        metrics.deadlines("met", now.met - before.met);
        metrics.deadlines("missed", now.missed - before.missed);
        metrics.replanned(now.replans - before.replans);
        now
    }

    /// Returns the plan for `/status`; `null` if none is in force.
    pub(super) fn plan_page(&self) -> Value {
        let figures = self.tasks.plan_figures();
        if !figures.in_force {
            return Value::Null;
        }
        let jobs = JobStatus::ALL.into_iter().zip(figures.jobs);
        let jobs: Map<_, _> = jobs
            .map(|(status, jobs)| (status.as_str().replace('-', "_"), json!(jobs)))
            .collect();
        let [total, planned, done] = figures.bytes;
        json!({
            "carried_here": figures.carried_here,
            "jobs": jobs,
            "bytes": { "total": total, "planned": planned, "done": done },
        })
    }
}
