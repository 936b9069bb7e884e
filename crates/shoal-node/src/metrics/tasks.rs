//! Tasks of operators, and what is pinned for them.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::{Gauge, MetricRegistry};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EndLabels {
    kind: &'static str,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectLabels {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByteLabels {
    kind: &'static str,
    source: &'static str,
}

/// Tasks and pins.
#[derive(Debug)]
pub struct TaskMetrics {
    tasks: Family<StateLabel, Gauge>,
    at_risk: Gauge,
    running_here: Gauge,
    ended: Family<EndLabels, Counter>,
    objects: Family<ObjectLabels, Counter>,
    bytes: Family<ByteLabels, Counter>,
    records: Gauge,
    record_bytes: Gauge,
    pinned_objects: Gauge,
    pinned_bytes: Gauge,
    pinned_bytes_max: Gauge,
}

impl TaskMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Self {
        Self {
            tasks: registry.metric(
                "tasks",
                "Tasks of the cluster that are remembered, by state. Each node shows all of them.",
            ),
            at_risk: registry.metric(
                "tasks_at_risk",
                "Tasks of the cluster that may miss their deadline.",
            ),
            running_here: registry.metric("tasks_running_here", "Tasks that this node runs."),
            ended: registry.metric(
                "tasks_ended",
                "Tasks that ended on this node, by kind and state.",
            ),
            objects: registry.metric(
                "task_objects",
                "Objects of tasks that this node ran, by kind and outcome.",
            ),
            bytes: registry.metric(
                "task_bytes",
                "Bytes of tasks that this node ran, by kind, and by where they came from (lake, peer, cached) or what became of them (pinned, removed).",
            ),
            records: registry.metric("records", "Small records that all nodes know, as far as this node has them."),
            record_bytes: registry.metric("record_bytes", "Bytes of these records."),
            pinned_objects: registry.metric("pinned_objects", "Objects that are pinned on this node."),
            pinned_bytes: registry.metric("pinned_bytes", "Bytes of pinned blocks on this node's disk."),
            pinned_bytes_max: registry.metric(
                "pinned_bytes_max",
                "The most bytes that pinned blocks may take on this node's disk.",
            ),
        }
    }

    /// Sets the tasks of the cluster in a state.
    pub fn set_tasks(&self, state: &'static str, tasks: u64) {
        self.tasks.get_or_create(&StateLabel { state }).set(tasks);
    }

    /// Sets the tasks of the cluster that may miss their deadline, and those that run here.
    pub fn set_running(&self, at_risk: u64, here: u64) {
        self.at_risk.set(at_risk);
        self.running_here.set(here);
    }

    /// Counts tasks of a kind that ended here in a state.
    pub fn ended(&self, kind: &'static str, state: &'static str, tasks: u64) {
        if tasks > 0 {
            self.ended.get_or_create(&EndLabels { kind, state }).inc_by(tasks);
        }
    }

    /// Counts objects of tasks of a kind with this outcome.
    pub fn objects(&self, kind: &'static str, outcome: &'static str, objects: u64) {
        if objects > 0 {
            self.objects
                .get_or_create(&ObjectLabels { kind, outcome })
                .inc_by(objects);
        }
    }

    /// Counts bytes of tasks of a kind.
    pub fn bytes(&self, kind: &'static str, source: &'static str, bytes: u64) {
        if bytes > 0 {
            self.bytes
                .get_or_create(&ByteLabels { kind, source })
                .inc_by(bytes);
        }
    }

    /// Sets the records of all nodes.
    pub fn set_records(&self, records: u64, bytes: u64) {
        self.records.set(records);
        self.record_bytes.set(bytes);
    }

    /// Sets what is pinned here, and the most that may be.
    pub fn set_pinned(&self, objects: u64, bytes: u64, bytes_max: u64) {
        self.pinned_objects.set(objects);
        self.pinned_bytes.set(bytes);
        self.pinned_bytes_max.set(bytes_max);
    }
}
