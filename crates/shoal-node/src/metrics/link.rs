//! Transfers on a metered link, by direction and class.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::{Gauge, MetricRegistry};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TransferLabels {
    direction: &'static str,
    class: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DirectionLabel {
    direction: &'static str,
}

/// Counts of transfers on the link to the lake.
#[derive(Debug)]
pub struct LinkMetrics {
    bytes: Family<TransferLabels, Counter>,
    promised: Counter,
    waits: Family<TransferLabels, Counter>,
    wait_seconds: Family<TransferLabels, Counter<f64, std::sync::atomic::AtomicU64>>,
    waiting: Family<TransferLabels, Gauge>,
    rate: Family<TransferLabels, Gauge>,
    share: Family<DirectionLabel, Gauge>,
    bandwidth: Gauge,
}

/// Transfers of one class: counts since the last report, and the current state.
#[derive(Clone, Copy, Debug)]
pub struct TransferFigures {
    /// Bytes moved since the last report.
    pub bytes: u64,
    /// Waits since the last report.
    pub waits: u64,
    /// Total time of those waits.
    pub waited: Duration,
    /// Transfers that are waiting.
    pub waiting: u64,
    /// Recent rate, in bytes a second.
    pub rate: u64,
}

impl LinkMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Self {
        Self {
            bytes: registry.metric(
                "link_bytes",
                "Bytes of bodies over the metered link to the lake, by direction and class.",
            ),
            promised: registry.metric(
                "link_promised_bytes",
                "Bytes from the lake that clients got by the promise of a plan, before other clients.",
            ),
            waits: registry.metric("link_waits", "Times that a transfer waited for room on the link."),
            wait_seconds: registry.metric(
                "link_wait_seconds",
                "Time that transfers waited for room on the link.",
            ),
            waiting: registry.metric("link_waiting", "Transfers that wait for room on the link."),
            rate: registry.metric(
                "link_rate_bytes_per_second",
                "Bytes a second over the link, averaged over about a second.",
            ),
            share: registry.metric(
                "link_share_bytes_per_second",
                "Bytes a second that this node may move over the link now.",
            ),
            bandwidth: registry.metric(
                "link_bandwidth_bytes_per_second",
                "Bandwidth of the link in each direction, in bytes a second, as configured.",
            ),
        }
    }

    /// Sets the bandwidth of the link.
    pub fn set_bandwidth(&self, bytes_per_second: u64) {
        self.bandwidth.set(bytes_per_second);
    }

    /// Sets this node's share of a direction.
    pub fn set_share(&self, direction: &'static str, bytes_per_second: u64) {
        self.share
            .get_or_create(&DirectionLabel { direction })
            .set(bytes_per_second);
    }

    /// Counts bytes sent to clients under a plan's promise.
    pub fn promised(&self, bytes: u64) {
        self.promised.inc_by(bytes);
    }

    /// Records the transfers of a class.
    pub fn transfers(&self, direction: &'static str, class: &'static str, figures: TransferFigures) {
        let labels = TransferLabels { direction, class };
        self.bytes.get_or_create(&labels).inc_by(figures.bytes);
        self.waits.get_or_create(&labels).inc_by(figures.waits);
        self.wait_seconds
            .get_or_create(&labels)
            .inc_by(figures.waited.as_secs_f64());
        self.waiting.get_or_create(&labels).set(figures.waiting);
        self.rate.get_or_create(&labels).set(figures.rate);
    }
}
