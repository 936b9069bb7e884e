//! Counts of reloads of the configuration.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::{Gauge, MetricRegistry};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

/// Results of reloads, and when the configuration in force was read.
#[derive(Debug)]
pub struct ReloadMetrics {
    reloads: Family<ResultLabel, Counter>,
    ok: Gauge,
    time: Gauge,
}

impl ReloadMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Self {
        Self {
            reloads: registry.metric(
                "config_reloads",
                "Reloads of the configuration, by outcome: ok, or failed (the old one stays in force).",
            ),
            ok: registry.metric(
                "config_reload_ok",
                "0 if the latest reload failed, so that the configuration in force differs from the files.",
            ),
            time: registry.metric(
                "config_reload_timestamp_seconds",
                "Time at which the configuration in force was read.",
            ),
        }
    }

    /// Counts reloads with this result.
    pub fn ended(&self, result: &'static str, count: u64) {
        self.reloads.get_or_create(&ResultLabel { result }).inc_by(count);
    }

    /// Sets whether the latest reload succeeded, and when the configuration in force was read, in seconds
    /// since 1970.
    pub fn set_latest(&self, ok: bool, unix_seconds: u64) {
        self.ok.set(u64::from(ok));
        self.time.set(unix_seconds);
    }
}
