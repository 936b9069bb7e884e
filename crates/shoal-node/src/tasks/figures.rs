//! Counters of the tasks that a node runs.

use super::order::TaskKind;
use super::progress::{ByteCounts, ObjectCounts, TaskState};

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

impl KindTotals {
    /// Adds what has come to these counts since `before`.
    pub(super) fn add(
        &mut self,
        (objects, bytes): (&ObjectCounts, &ByteCounts),
        before: (&ObjectCounts, &ByteCounts),
    ) {
        let objects = of_objects(objects).into_iter().zip(of_objects(before.0));
        for (total, (now, before)) in self.objects.iter_mut().zip(objects) {
            *total += now.saturating_sub(before);
        }
        let bytes = of_bytes(bytes).into_iter().zip(of_bytes(before.1));
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
    use super::{ByteCounts, KindTotals, ObjectCounts};

    #[test]
    fn totals_grow_by_what_a_task_has_done_since_the_last_look() {
        let objects = |done, failed| ObjectCounts {
            done,
            failed,
            ..ObjectCounts::default()
        };
        let bytes = |from_lake, pinned| ByteCounts {
            from_lake,
            pinned,
            ..ByteCounts::default()
        };
        let mut totals = KindTotals::default();
        totals.add((&objects(3, 1), &bytes(30, 0)), (&objects(1, 0), &bytes(5, 0)));
        totals.add((&objects(4, 1), &bytes(30, 8)), (&objects(3, 1), &bytes(30, 0)));
        assert_eq!(totals.objects, [3, 0, 1]);
        assert_eq!(totals.bytes, [25, 0, 0, 8, 0]);
    }
}
