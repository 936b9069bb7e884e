//! Requests to the lake.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::{Gauge, MetricRegistry};
use crate::metrics::histogram::{DurationHistogram, HistogramSnapshot};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    operation: &'static str,
    status: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FailureLabel {
    failure: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabel {
    class: &'static str,
}

/// Counts the lake's answers and failures, and their latency.
#[derive(Debug)]
pub struct LakeMetrics {
    answers: Family<AnswerLabels, Counter>,
    failures: Family<FailureLabel, Counter>,
    first_byte: Family<ClassLabel, DurationHistogram>,
    up: Gauge,
    resumes: Counter,
}

impl LakeMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Self {
        Self {
            answers: registry.metric(
                "lake_answers",
                "Answers of the lake, by status; statuses without a meaning of their own are counted by class.",
            ),
            failures: registry.metric(
                "lake_failures",
                "Requests to the lake without an answer, and answers that broke off.",
            ),
            first_byte: registry.metric(
                "lake_first_byte_seconds",
                "Time from a request to the lake to the head of its answer, including the upload of the body.",
            ),
            up: registry.metric("lake_up", "0 while the lake does not answer."),
            resumes: registry.metric(
                "lake_resumes",
                "Bodies from the lake that broke off and were resumed at that offset.",
            ),
        }
    }

    /// Counts answers of the lake with this status.
    pub fn answered(&self, operation: &'static str, status: &'static str, count: u64) {
        self.answers
            .get_or_create(&AnswerLabels { operation, status })
            .inc_by(count);
    }

    /// Counts failed requests to the lake, and answers that broke off.
    pub fn failed(&self, failure: &'static str, count: u64) {
        self.failures
            .get_or_create(&FailureLabel { failure })
            .inc_by(count);
    }

    /// Adds the latencies to the first byte between two snapshots.
    pub fn first_bytes(&self, class: &'static str, before: &HistogramSnapshot, now: &HistogramSnapshot) {
        self.first_byte
            .get_or_create(&ClassLabel { class })
            .add(before, now);
    }

    /// Counts bodies that were resumed after they broke off.
    pub fn resumed(&self, count: u64) {
        self.resumes.inc_by(count);
    }

    /// Sets whether the latest request was answered.
    pub fn set_up(&self, up: bool) {
        self.up.set(u64::from(up));
    }
}
