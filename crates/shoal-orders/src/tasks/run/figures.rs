//! Counters of the tasks that a node runs.

use serde::{Deserialize, Serialize};
use shoal_base::words::WordCounts;
use shoal_plan::execution::JobStatus;

use crate::tasks::records::order::TaskKind;
use crate::tasks::records::progress::{Progress, TaskState};

/// Totals of the tasks of one kind that a node has run, or the counts of one of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindTotals {
    /// Objects, in the order of [`KindTotals::OBJECTS`].
    pub objects: [u64; Self::OBJECTS.len()],
    /// Bytes, in the order of [`KindTotals::BYTES`].
    pub bytes: [u64; Self::BYTES.len()],
    /// Of plans: jobs that met their deadlines, jobs that missed them, jobs that read nothing, and new plans.
    pub plan: [u64; 4],
    /// Tasks that ended here, in the order of [`TaskState::ALL`].
    pub ended: [u64; TaskState::ALL.len()],
}

/// State of the plan in force, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanFigures {
    /// True if a plan is in force.
    pub in_force: bool,
    /// True if this node carries it out.
    pub carried_here: bool,
    /// Its jobs, in the order of [`JobStatus::ALL`].
    pub jobs: [u64; JobStatus::ALL.len()],
    /// Bytes that it fetches in total, that it was to fetch by now, and that were fetched by now or were
    /// there before.
    pub bytes: [u64; 3],
}

/// States of the cluster's tasks, and the counters of one node, for `/status` and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskFigures {
    /// All tasks of the cluster that are remembered, by state.
    #[serde(flatten)]
    pub states: WordCounts,
    /// Tasks that may miss their deadline.
    pub at_risk: u64,
    /// Tasks that this node runs.
    pub running_here: u64,
    /// Totals of the tasks that this node has run, in the order of [`TaskKind::ALL`]; only in metrics.
    #[serde(skip)]
    pub totals: [KindTotals; TaskKind::ALL.len()],
    /// Records of all nodes here.
    pub records: u64,
    /// Their bytes.
    pub record_bytes: u64,
}

impl TaskFigures {
    /// Returns the number of tasks in a state.
    pub fn in_state(&self, state: TaskState) -> u64 {
        self.states.get(state.as_str()).copied().unwrap_or_default()
    }
}

impl KindTotals {
    /// The words in metrics for what became of objects: as wanted, left alone, failed.
    pub const OBJECTS: [&str; 3] = ["done", "skipped", "failed"];

    /// The words in metrics for where bytes came from, or what became of them. Cached ones were where they
    /// were wanted.
    pub const BYTES: [&str; 5] = ["lake", "peer", "cached", "pinned", "removed"];

    /// Returns the counts in the progress of a task.
    pub(in crate::tasks) fn of(progress: &Progress) -> Self {
        let (objects, bytes) = (&progress.tally.objects, &progress.tally.bytes);
        let plan = progress.plan.as_deref();
        Self {
            objects: [objects.done, objects.skipped, objects.failed],
            bytes: [
                bytes.from_lake,
                bytes.from_peers,
                bytes.cached,
                bytes.pinned,
                bytes.removed,
            ],
            plan: plan.map_or([0; 4], |plan| {
                let jobs = &plan.jobs;
                [jobs.met, jobs.missed, jobs.unread, plan.replans]
            }),
            ended: Default::default(),
        }
    }

    /// Adds the counts of a task that are new since `before`.
    pub(in crate::tasks) fn add(&mut self, now: &Self, before: &Self) {
        add(&mut self.objects, now.objects, before.objects);
        add(&mut self.bytes, now.bytes, before.bytes);
        add(&mut self.plan, now.plan, before.plan);
    }
}

fn add<const N: usize>(totals: &mut [u64; N], now: [u64; N], before: [u64; N]) {
    for (total, (now, before)) in totals.iter_mut().zip(now.into_iter().zip(before)) {
        *total += now.saturating_sub(before);
    }
}

#[cfg(test)]
mod tests {
    use super::{KindTotals, TaskKind};

    #[test]
    fn totals_grow_by_the_new_counts_of_a_task() {
        let counted = |done, failed, from_lake, pinned| KindTotals {
            objects: [done, 0, failed],
            bytes: [from_lake, 0, 0, pinned, 0],
            plan: [done, 0, 0, 0],
            ..KindTotals::default()
        };
        let mut pins = KindTotals::default();
        let looks = [counted(1, 0, 5, 0), counted(3, 1, 30, 0), counted(4, 1, 30, 8)];
        for look in looks.windows(2) {
            pins.add(&look[1], &look[0]);
        }
        assert_eq!(pins.objects, [3, 0, 1]);
        assert_eq!(pins.bytes, [25, 0, 0, 8, 0]);
        assert_eq!(pins.plan, [3, 0, 0, 0]);
    }

    #[test]
    fn totals_are_in_the_order_of_kinds_and_states() {
        use crate::tasks::TaskState;
        assert!(
            TaskKind::ALL
                .into_iter()
                .enumerate()
                .all(|(place, kind)| kind as usize == place)
        );
        assert!(
            TaskState::ALL
                .into_iter()
                .enumerate()
                .all(|(place, state)| state as usize == place)
        );
    }
}
