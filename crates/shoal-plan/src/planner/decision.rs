//! The decision of a planner, before it is written as a plan.

use crate::model::Objective;
use crate::schedule::Schedule;
use crate::schedule::augment::Page;

/// The decision about an instance: its schedule and pages, and bounds for any plan.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The objective: the most deadlines also if the link cannot serve every job, and after
    /// [`crate::planner::replan`].
    pub objective: Objective,
    /// The fetches, the cached bytes and the remote reads.
    pub schedule: Schedule,
    /// Pages that are kept beside the plan.
    pub pages: Vec<Page>,
    /// No plan serves more jobs.
    pub planned_at_most: f64,
    /// No plan has a lower peak, if all jobs are planned.
    pub peak_share_at_least: Option<f64>,
}
