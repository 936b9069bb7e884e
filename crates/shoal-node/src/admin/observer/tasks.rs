//! Tasks and pins, for the pages of operators.

use serde_json::{Map, Value, json};

use super::Observer;
use crate::tasks::TaskState;

impl Observer {
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
