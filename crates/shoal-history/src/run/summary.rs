//! Summarizes a history.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use shoal_base::amount::{counted, human_bytes};

use crate::moment::Moment;
use crate::run::{History, Passed, StoredRun};
use crate::stats::sum;

/// Summary of a history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Number of runs.
    pub runs: u64,
    /// Number of different names.
    pub names: u64,
    /// Bytes that the runs read.
    pub bytes: u64,
    /// Number of inputs of the runs, each counted once per run.
    pub inputs: u64,
    /// Number of different paths among them.
    pub paths: u64,
    /// The first submission; `None` without runs.
    pub from: Option<Moment>,
    /// End of the period that the logs cover.
    pub to: Option<Moment>,
    /// Input that was skipped while reading, with counts.
    pub passed: BTreeMap<Passed, u64>,
}

impl Summary {
    /// Summarizes a history.
    pub fn new(history: &History) -> Self {
        let span = history.span();
        Self {
            runs: history.len() as u64,
            names: history.names.len() as u64,
            bytes: sum(history.runs.iter().map(StoredRun::input_bytes)),
            inputs: history.runs.iter().map(|run| run.inputs.len() as u64).sum(),
            paths: history.input_paths() as u64,
            from: span.map(|(from, _)| from),
            to: span.map(|(_, to)| to),
            passed: history.passed().collect(),
        }
    }

    /// Formats the summary as text.
    pub fn text(&self) -> String {
        let mut text = format!(
            "The history has {} with {}: {} in {} of {}",
            counted(self.runs, "run"),
            counted(self.names, "different name"),
            human_bytes(self.bytes),
            counted(self.inputs, "input"),
            counted(self.paths, "different path")
        );
        if let (Some(from), Some(to)) = (self.from, self.to) {
            let _ = write!(text, ", from {} to {} (UTC)", from.to_minute(), to.to_minute());
        }
        text.push_str(".\n");
        for (reason, count) in &self.passed {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "Passed over: {count} {}.", reason.as_str());
        }
        text
    }
}
