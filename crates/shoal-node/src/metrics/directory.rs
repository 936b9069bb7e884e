//! Requests to the block directory.

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

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

/// Metrics of requests to the directory, and of GWF and coherence, which depend on it.
#[derive(Debug)]
pub struct DirectoryMetrics {
    requests: Family<RequestLabels, Counter>,
    answer_micros: Family<RequestLabel, Counter>,
    answers: Gauge,
    kept: Counter,
    pushes: Family<OutcomeLabel, Counter>,
    age: Gauge,
    average_rank: Gauge,
    coherent_looks: Family<OutcomeLabel, Counter>,
    coherent_waits: Counter,
    coherent_changes: Gauge,
    coherent_attached: Gauge,
}

impl DirectoryMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Self {
        Self {
            requests: registry.metric(
                "directory_requests",
                "Requests to the directory of blocks, by kind (look, report, mark, leave, exchange, token, change, attend) and outcome: answered, silent, or held-back (not sent, because earlier ones were not answered).",
            ),
            answer_micros: registry.metric(
                "directory_answer_microseconds",
                "Time that answers of the directory took, all together.",
            ),
            answers: registry.metric(
                "directory_answers",
                "1 if the directory answered the last time; 0 if it did not, or the node has none.",
            ),
            kept: registry.metric(
                "gwf_kept",
                "Last copies that stayed while room was short, because of what they are worth to all nodes.",
            ),
            pushes: registry.metric(
                "gwf_pushes",
                "Blocks that left this node for one whose blocks are worth less, by outcome: taken, refused, failed, or gone (room was needed at once).",
            ),
            age: registry.metric(
                "gwf_age",
                "The greatest rank of a block that left a node, as far as this node knows.",
            ),
            average_rank: registry.metric("gwf_average_rank", "The average rank of the blocks here."),
            coherent_looks: registry.metric(
                "coherent_looks",
                "Looks of reads at the directory for changes of a coherent object, by outcome: settled, unsettled (it may be changing), silent, or node-absent (a node cannot report its changes).",
            ),
            coherent_waits: registry.metric(
                "coherent_waits",
                "Writes of coherent objects that waited, because the directory could not be told of them.",
            ),
            coherent_changes: registry.metric(
                "coherent_changes",
                "Writes of coherent objects through this node that may still take effect.",
            ),
            coherent_attached: registry.metric(
                "coherent_attached",
                "1 if this node tells the directory of its writes of coherent objects; 0 if it cannot, or has none.",
            ),
        }
    }

    /// Counts requests of this kind with this outcome.
    pub fn requests(&self, request: &'static str, outcome: &'static str, count: u64) {
        let labels = RequestLabels { request, outcome };
        self.requests.get_or_create(&labels).inc_by(count);
    }

    /// Adds the latency of answers to requests of this kind.
    pub fn answered_within(&self, request: &'static str, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.answer_micros
            .get_or_create(&RequestLabel { request })
            .inc_by(micros);
    }

    /// Sets whether the directory answered the most recent request.
    pub fn set_answers(&self, answers: bool) {
        self.answers.set(u64::from(answers));
    }

    /// Counts last copies that were kept.
    pub fn kept(&self, count: u64) {
        self.kept.inc_by(count);
    }

    /// Counts pushes with this outcome.
    pub fn pushes(&self, outcome: &'static str, count: u64) {
        self.pushes.get_or_create(&OutcomeLabel { outcome }).inc_by(count);
    }

    /// Counts token lookups with this outcome.
    pub fn coherent_looks(&self, outcome: &'static str, count: u64) {
        self.coherent_looks
            .get_or_create(&OutcomeLabel { outcome })
            .inc_by(count);
    }

    /// Counts writes of coherent objects that were delayed.
    pub fn coherent_waits(&self, count: u64) {
        self.coherent_waits.inc_by(count);
    }

    /// Sets whether the node is attached to the directory, and the number of pending changes.
    pub fn set_coherent(&self, attached: bool, changes: u64) {
        self.coherent_attached.set(u64::from(attached));
        self.coherent_changes.set(changes);
    }

    /// Sets the age and the average rank.
    pub fn set_ranks(&self, age: u64, average: u64) {
        self.age.set(age);
        self.average_rank.set(average);
    }
}
