//! Counters of the tasks that a node runs.

use shoal_plan::execution::JobStatus;

use super::order::TaskKind;
use super::plan::PlanProgress;
use super::progress::{ByteCounts, ObjectCounts, Progress, TaskState};

/// Outcome of a task for one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectOutcome {
    /// It is as wanted.
    Done,
    /// It is left alone.
    Skipped,
    /// It failed.
    Failed,
}

/// Where the bytes of a task came from, or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskBytes {
    /// From the lake.
    Lake,
    /// From another node.
    Peer,
    /// They were where they were wanted.
    Cached,
    /// Pinned.
    Pinned,
    /// Removed.
    Removed,
}

/// Totals of the tasks of one kind that a node has run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KindTotals {
    /// Objects, in the order of [`ObjectOutcome::ALL`].
    pub objects: [u64; ObjectOutcome::ALL.len()],
    /// Bytes, in the order of [`TaskBytes::ALL`].
    pub bytes: [u64; TaskBytes::ALL.len()],
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
pub(super) struct Counted {
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

impl ObjectOutcome {
    /// Every outcome.
    pub const ALL: [Self; 3] = [Self::Done, Self::Skipped, Self::Failed];

    /// The word in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
        }
    }
}

impl TaskBytes {
    /// Every kind of bytes.
    pub const ALL: [Self; 5] = [Self::Lake, Self::Peer, Self::Cached, Self::Pinned, Self::Removed];

    /// The word in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lake => "lake",
            Self::Peer => "peer",
            Self::Cached => "cached",
            Self::Pinned => "pinned",
            Self::Removed => "removed",
        }
    }
}

impl Counted {
    /// The counts in the progress of a task.
    pub(super) fn new(progress: &Progress) -> Self {
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
}

impl PlanTotals {
    /// Adds what has come to the counts of a plan since `before`.
    pub(super) fn add(&mut self, now: &Counted, before: &Counted) {
        self.met += now.plan.met.saturating_sub(before.plan.met);
        self.missed += now.plan.missed.saturating_sub(before.plan.missed);
        self.replans += now.plan.replans.saturating_sub(before.plan.replans);
    }
}

impl KindTotals {
    /// Adds what has come to the counts of a task since `before`.
    pub(super) fn add(&mut self, now: &Counted, before: &Counted) {
        let objects = of_objects(&now.objects)
            .into_iter()
            .zip(of_objects(&before.objects));
        for (total, (now, before)) in self.objects.iter_mut().zip(objects) {
            *total += now.saturating_sub(before);
        }
        let bytes = of_bytes(&now.bytes).into_iter().zip(of_bytes(&before.bytes));
        for (total, (now, before)) in self.bytes.iter_mut().zip(bytes) {
            *total += now.saturating_sub(before);
        }
    }
}

fn of_objects(counts: &ObjectCounts) -> [u64; ObjectOutcome::ALL.len()] {
    ObjectOutcome::ALL.map(|outcome| match outcome {
        ObjectOutcome::Done => counts.done,
        ObjectOutcome::Skipped => counts.skipped,
        ObjectOutcome::Failed => counts.failed,
    })
}

fn of_bytes(counts: &ByteCounts) -> [u64; TaskBytes::ALL.len()] {
    TaskBytes::ALL.map(|bytes| match bytes {
        TaskBytes::Lake => counts.from_lake,
        TaskBytes::Peer => counts.from_peers,
        TaskBytes::Cached => counts.cached,
        TaskBytes::Pinned => counts.pinned,
        TaskBytes::Removed => counts.removed,
    })
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
