//! The contents of a history, in numbers and in words.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use shoal_base::amount::{counted, human_bytes};

use crate::moment::Moment;
use crate::run::{History, Passed};

/// The contents of a history.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Runs.
    pub runs: u64,
    /// Different names.
    pub names: u64,
    /// Bytes that the runs read.
    pub bytes: u64,
    /// Inputs of the runs, each counted once per run.
    pub inputs: u64,
    /// Different paths among them.
    pub paths: u64,
    /// The first submission; none without a run.
    pub from: Option<Moment>,
    /// The last moment that the logs tell of.
    pub to: Option<Moment>,
    /// The parts that were passed over while reading, and how often.
    pub passed: BTreeMap<Passed, u64>,
}

impl Summary {
    /// Sums a history up.
    pub fn of(history: &History) -> Self {
        let span = history.span();
        Self {
            runs: history.len() as u64,
            names: history.names.len() as u64,
            bytes: history
                .runs
                .iter()
                .fold(0, |sum, run| sum.saturating_add(run.input_bytes())),
            inputs: history.runs.iter().map(|run| run.inputs.len() as u64).sum(),
            paths: history.input_paths() as u64,
            from: span.map(|(from, _)| from),
            to: span.map(|(_, to)| to),
            passed: history.passed().collect(),
        }
    }

    /// The summary in plain words.
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
