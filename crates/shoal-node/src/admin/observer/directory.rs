//! The directory of blocks, for the pages of operators.

use serde_json::{Map, Value, json};
use shoal_directory::guard::{Counts, Kind};

use super::Observer;
use crate::directory::EMBEDDED;
use crate::metrics::DirectoryMetrics;

/// Totals that are already in the metrics.
pub(super) type LastReported = [Counts; Kind::ALL.len()];

impl Observer {
    /// Brings the requests to the directory since `before` into the metrics.
    pub(super) fn measure_directory(&self, metrics: &DirectoryMetrics, last_reported: &mut LastReported) {
        let Some(directory) = &self.directory else { return };
        for ((kind, now), before) in directory.counts().into_iter().zip(last_reported) {
            let kind = kind.as_str();
            metrics.requests(kind, "answered", now.answered - before.answered);
            metrics.requests(kind, "silent", now.silent - before.silent);
            metrics.requests(kind, "held-back", now.held_back - before.held_back);
            metrics.answered_within(kind, now.answer_time.saturating_sub(before.answer_time));
            *before = now;
        }
        metrics.set_answers(directory.answers());
    }

    /// Returns the directory for `/status`; `null` for a node without one.
    pub(super) fn directory_page(&self) -> Value {
        let Some(directory) = &self.directory else {
            return Value::Null;
        };
        let is_embedded = self.config.directory_url == EMBEDDED;
        let counts = directory.counts().into_iter();
        let requests: Map<_, _> = counts
            .map(|(kind, counts)| (kind.as_str().into(), page(counts)))
            .collect();
        json!({
            "kind": if is_embedded { EMBEDDED } else { "redis" },
            "answers": directory.answers(),
            "requests": requests,
        })
    }
}

fn page(counts: Counts) -> Value {
    let answered = u32::try_from(counts.answered).unwrap_or(u32::MAX);
    let mean = counts.answer_time.checked_div(answered);
    json!({
        "answered": counts.answered,
        "silent": counts.silent,
        "held-back": counts.held_back,
        "mean_answer_ms": mean.map(|mean| mean.as_secs_f64() * 1e3),
    })
}
