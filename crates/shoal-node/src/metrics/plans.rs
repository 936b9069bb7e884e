//! The plan of the cluster.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::{Gauge, MetricRegistry};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabel {
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ExtentLabel {
    of: &'static str,
}

/// The plan of the cluster.
#[derive(Debug)]
pub struct PlanMetrics {
    in_force: Gauge,
    carried_here: Gauge,
    jobs: Family<StatusLabel, Gauge>,
    bytes: Family<ExtentLabel, Gauge>,
    deadlines: Family<OutcomeLabel, Counter>,
    replans: Counter,
}

impl PlanMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Self {
        Self {
            in_force: registry.metric("plan_in_force", "1 if the cluster has a plan in force."),
            carried_here: registry.metric("plan_carried_here", "1 if this node carries it out."),
            jobs: registry.metric(
                "plan_jobs",
                "Jobs of the plan in force by how they stand (waiting, at-risk, met, missed, unplanned). Each node shows all of them.",
            ),
            bytes: registry.metric(
                "plan_bytes",
                "Bytes of the plan in force: all that it fetches (total), what it was to have fetched by now (planned), what is here (done).",
            ),
            deadlines: registry.metric(
                "plan_deadlines",
                "Deadlines of plans while this node carried them out, by outcome.",
            ),
            replans: registry.metric("plan_replans", "New plans that this node made because the world was not as planned."),
        }
    }

    /// Sets whether there is a plan, and whether this node carries it out.
    pub fn set_in_force(&self, in_force: bool, carried_here: bool) {
        self.in_force.set(u64::from(in_force));
        self.carried_here.set(u64::from(carried_here));
    }

    /// Sets the jobs that stand like this.
    pub fn set_jobs(&self, status: &'static str, jobs: u64) {
        self.jobs.get_or_create(&StatusLabel { status }).set(jobs);
    }

    /// Sets bytes of the plan.
    pub fn set_bytes(&self, of: &'static str, bytes: u64) {
        self.bytes.get_or_create(&ExtentLabel { of }).set(bytes);
    }

    /// Counts deadlines that were met or missed.
    pub fn deadlines(&self, outcome: &'static str, jobs: u64) {
        self.deadlines
            .get_or_create(&OutcomeLabel { outcome })
            .inc_by(jobs);
    }

    /// Counts new plans.
    pub fn replanned(&self, plans: u64) {
        self.replans.inc_by(plans);
    }
}
