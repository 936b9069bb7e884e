//! Requests to the directory of blocks.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::{Gauge, MetricRegistry};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    request: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabel {
    request: &'static str,
}

/// What the directory answers, and how fast.
#[derive(Debug)]
pub struct DirectoryMetrics {
    requests: Family<RequestLabels, Counter>,
    answer_micros: Family<RequestLabel, Counter>,
    answers: Gauge,
}

impl DirectoryMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Self {
        Self {
            requests: registry.metric(
                "directory_requests",
                "Requests to the directory of blocks, by kind (look, report, mark) and outcome: answered, silent, or held-back (not sent, because earlier ones were not answered).",
            ),
            answer_micros: registry.metric(
                "directory_answer_microseconds",
                "Time that answers of the directory took, all together.",
            ),
            answers: registry.metric(
                "directory_answers",
                "1 if the directory answered the last time; 0 if it did not, or the node has none.",
            ),
        }
    }

    /// Counts requests of this kind with this outcome.
    pub fn requests(&self, request: &'static str, outcome: &'static str, count: u64) {
        let labels = RequestLabels { request, outcome };
        self.requests.get_or_create(&labels).inc_by(count);
    }

    /// Adds the time that answers to requests of this kind took.
    pub fn answered_within(&self, request: &'static str, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.answer_micros
            .get_or_create(&RequestLabel { request })
            .inc_by(micros);
    }

    /// Sets whether the directory answered the last time.
    pub fn set_answers(&self, answers: bool) {
        self.answers.set(u64::from(answers));
    }
}
