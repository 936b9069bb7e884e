//! Counters of the tasks that a node runs.

use shoal_plan::execution::JobStatus;

use crate::tasks::records::order::TaskKind;
use crate::tasks::records::plan_progress::PlanProgress;
use crate::tasks::records::progress::{ByteCounts, ObjectCounts, Progress, TaskState};

/// Totals of the tasks of one kind that a node has run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindTotals {
    /// Objects, in the order of [`KindTotals::OBJECTS`].
    pub objects: [u64; Self::OBJECTS.len()],
    /// Bytes, in the order of [`KindTotals::BYTES`].
    pub bytes: [u64; Self::BYTES.len()],
    /// Tasks that ended here, in the order of [`TaskState::ALL`].
    pub ended: [u64; TaskState::ALL.len()],
}

/// Totals of the tasks that a node has run, in the order of [`TaskKind::ALL`].
pub type Totals = [KindTotals; TaskKind::ALL.len()];

/// Totals of the plans that a node has carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanTotals {
    /// Jobs that met their deadlines.
    pub met: u64,
    /// Jobs that missed them.
    pub missed: u64,
    /// New plans.
    pub replans: u64,
}

/// State of the plan in force, and the counters of one node, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanFigures {
    /// Whether a plan is in force.
    pub in_force: bool,
    /// Whether this node carries it out.
    pub carried_here: bool,
    /// Its jobs, in the order of [`JobStatus::ALL`].
    pub jobs: [u64; JobStatus::ALL.len()],
    /// Bytes that it fetches in total, that it was to fetch by now, and that were fetched by now or were
    /// there before.
    pub bytes: [u64; 3],
    /// Counters of the plans that this node has carried out.
    pub totals: PlanTotals,
}

/// Counts of one task that the totals of the node include.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::tasks) struct Counted {
    objects: ObjectCounts,
    bytes: ByteCounts,
    plan: PlanTotals,
}

/// States of the cluster's tasks, and the counters of one node, for metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskFigures {
    /// All tasks of the cluster that are remembered, in the order of [`TaskState::ALL`].
    pub states: [u64; TaskState::ALL.len()],
    /// Those that may miss their deadline.
    pub at_risk: u64,
    /// Those that this node runs.
    pub running_here: u64,
    /// Totals of the tasks that this node has run.
    pub totals: Totals,
    /// Records of all nodes here.
    pub records: u64,
    /// Their bytes.
    pub record_bytes: u64,
}

impl KindTotals {
    /// The words in metrics for what became of objects: as wanted, left alone, failed.
    pub const OBJECTS: [&str; 3] = ["done", "skipped", "failed"];

    /// The words in metrics for where bytes came from, or what became of them. Cached ones were where they
    /// were wanted.
    pub const BYTES: [&str; 5] = ["lake", "peer", "cached", "pinned", "removed"];

    /// Adds what has come to the counts of a task since `before`.
    pub(in crate::tasks) fn add(&mut self, now: &Counted, before: &Counted) {
        add(&mut self.objects, now.of_objects(), before.of_objects());
        add(&mut self.bytes, now.of_bytes(), before.of_bytes());
    }
}

fn add<const N: usize>(totals: &mut [u64; N], now: [u64; N], before: [u64; N]) {
    for (total, (now, before)) in totals.iter_mut().zip(now.into_iter().zip(before)) {
        *total += now.saturating_sub(before);
    }
}

impl Counted {
    /// The counts in the progress of a task.
    pub(in crate::tasks) fn new(progress: &Progress) -> Self {
        let plan = progress.plan.as_deref();
        let count = |of: fn(&PlanProgress) -> u64| plan.map(of).unwrap_or_default();
        Self {
            objects: progress.tally.objects,
            bytes: progress.tally.bytes,
            plan: PlanTotals {
                met: count(|plan| plan.jobs.met),
                missed: count(|plan| plan.jobs.missed),
                replans: count(|plan| plan.replans),
            },
        }
    }

    fn of_objects(&self) -> [u64; KindTotals::OBJECTS.len()] {
        let ObjectCounts {
            done,
            skipped,
            failed,
            ..
        } = self.objects;
        [done, skipped, failed]
    }

    fn of_bytes(&self) -> [u64; KindTotals::BYTES.len()] {
        let bytes = &self.bytes;
        [
            bytes.from_lake,
            bytes.from_peers,
            bytes.cached,
            bytes.pinned,
            bytes.removed,
        ]
    }
}

impl PlanTotals {
    /// Adds what has come to the counts of a plan since `before`.
    pub(in crate::tasks) fn add(&mut self, now: &Counted, before: &Counted) {
        self.met += now.plan.met.saturating_sub(before.plan.met);
        self.missed += now.plan.missed.saturating_sub(before.plan.missed);
        self.replans += now.plan.replans.saturating_sub(before.plan.replans);
    }
}

#[cfg(test)]
mod tests {
    use super::{ByteCounts, Counted, KindTotals, ObjectCounts, PlanTotals};

    #[test]
    fn totals_grow_by_what_a_task_has_done_since_the_last_look() {
        let counted = |done, failed, from_lake, pinned| Counted {
            objects: ObjectCounts {
                done,
                failed,
                ..ObjectCounts::default()
            },
            bytes: ByteCounts {
                from_lake,
                pinned,
                ..ByteCounts::default()
            },
            plan: PlanTotals {
                met: done,
                ..PlanTotals::default()
            },
        };
        let (mut totals, mut plans) = (KindTotals::default(), PlanTotals::default());
        let looks = [counted(1, 0, 5, 0), counted(3, 1, 30, 0), counted(4, 1, 30, 8)];
        for look in looks.windows(2) {
            totals.add(&look[1], &look[0]);
            plans.add(&look[1], &look[0]);
        }
        assert_eq!(totals.objects, [3, 0, 1]);
        assert_eq!(totals.bytes, [25, 0, 0, 8, 0]);
        assert_eq!((plans.met, plans.missed), (3, 0));
    }
}
