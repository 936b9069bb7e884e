//! Tasks and pins, for the pages of operators.

use serde_json::{Map, Value, json};

use super::Observer;
use crate::metrics::TaskMetrics;
use crate::tasks::{ObjectOutcome, TaskBytes, TaskKind, TaskState, Totals};

impl Observer {
    /// Brings what tasks did since `before` into the metrics. Returns the totals.
    pub(super) fn measure_tasks(&self, metrics: &TaskMetrics, before: &Totals) -> Totals {
        let figures = self.tasks.figures();
        for (state, tasks) in TaskState::ALL.into_iter().zip(figures.states) {
            metrics.set_tasks(state.as_str(), tasks);
        }
        metrics.set_running(figures.at_risk, figures.running_here);
        metrics.set_records(figures.records, figures.record_bytes);
        let totals = figures.totals.iter().zip(before);
        for (kind, (now, before)) in TaskKind::ALL.into_iter().map(TaskKind::as_str).zip(totals) {
            for (place, outcome) in ObjectOutcome::ALL.into_iter().enumerate() {
                metrics.objects(kind, outcome.as_str(), now.objects[place] - before.objects[place]);
            }
            for (place, bytes) in TaskBytes::ALL.into_iter().enumerate() {
                metrics.bytes(kind, bytes.as_str(), now.bytes[place] - before.bytes[place]);
            }
            for (place, state) in TaskState::ALL.into_iter().enumerate() {
                metrics.ended(kind, state.as_str(), now.ended[place] - before.ended[place]);
            }
        }
        let pins = self.store.counters().pins;
        metrics.set_pinned(pins.objects, pins.bytes, pins.bytes_max);
        figures.totals
    }

    /// Returns the tasks for `/status`.
    pub(super) fn tasks_page(&self) -> Value {
        let figures = self.tasks.figures();
        let states = TaskState::ALL.into_iter().zip(figures.states);
        let mut page: Map<_, _> = states
            .map(|(state, tasks)| (state.as_str().to_owned(), json!(tasks)))
            .collect();
        page.insert("at_risk".into(), json!(figures.at_risk));
        page.insert("running_here".into(), json!(figures.running_here));
        page.insert("records".into(), json!(figures.records));
        page.insert("record_bytes".into(), json!(figures.record_bytes));
        Value::Object(page)
    }
}
