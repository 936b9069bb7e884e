//! The plan, for the pages of operators.

use serde_json::{Map, Value, json};
use shoal_plan::course::Standing;

use super::Observer;

impl Observer {
    /// Returns the plan for `/status`; `null` if none is in force.
    pub(super) fn plan_page(&self) -> Value {
        let figures = self.plans.figures();
        if !figures.in_force {
            return Value::Null;
        }
        let jobs = Standing::ALL.into_iter().zip(figures.jobs);
        let jobs: Map<_, _> = jobs
            .map(|(standing, jobs)| (standing.as_str().replace('-', "_"), json!(jobs)))
            .collect();
        let [total, planned, done] = figures.bytes;
        json!({
            "carried_here": figures.carried_here,
            "jobs": jobs,
            "bytes": { "total": total, "planned": planned, "done": done },
        })
    }
}
