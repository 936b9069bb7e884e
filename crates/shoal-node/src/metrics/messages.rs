//! Counts of messages between nodes.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::MetricRegistry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MessageLabels {
    kind: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabel {
    direction: &'static str,
}

/// Counts messages, batches and their bytes.
#[derive(Debug)]
pub struct MessageMetrics {
    messages: Family<MessageLabels, Counter>,
    batches: Family<OutcomeLabel, Counter>,
    bytes: Family<DirectionLabel, Counter>,
}

impl MessageMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Self {
        Self {
            messages: registry.metric(
                "messages",
                "Messages between nodes, by kind and outcome: sent, overflowed (too many events at once), dropped (the queue of a node was full), lost (the peer did not accept them), received, or malformed.",
            ),
            batches: registry.metric(
                "message_batches",
                "Batches of messages, by outcome: sent, failed, or unsupported (the other node does not support messages); of those received accepted, malformed, non-member (of the cluster), or rate-limited.",
            ),
            bytes: registry.metric(
                "message_bytes",
                "Bytes of batches of messages, without the heads of requests.",
            ),
        }
    }

    /// Counts messages of this kind with this outcome.
    pub fn messages(&self, kind: &'static str, outcome: &'static str, count: u64) {
        let labels = MessageLabels { kind, outcome };
        self.messages.get_or_create(&labels).inc_by(count);
    }

    /// Counts batches with this outcome.
    pub fn batches(&self, outcome: &'static str, count: u64) {
        self.batches
            .get_or_create(&OutcomeLabel { outcome })
            .inc_by(count);
    }

    /// Adds bytes of batches: `sent` or `received`.
    pub fn bytes(&self, direction: &'static str, count: u64) {
        self.bytes
            .get_or_create(&DirectionLabel { direction })
            .inc_by(count);
    }
}
