//! How the cleaner of each tier is doing.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;

use super::{Gauge, MetricRegistry};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TierLabel {
    tier: String,
}

/// The cleaner of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierFigures {
    /// The age at which objects are due.
    pub age_seconds: u64,
    /// The age of the oldest dirty object that is not short-lived.
    pub oldest_seconds: u64,
    /// The number of flushes at a time.
    pub parallel: u64,
}

/// Figures on tiers.
#[derive(Debug)]
pub struct TierMetrics {
    age: Family<TierLabel, Gauge>,
    oldest: Family<TierLabel, Gauge>,
    parallel: Family<TierLabel, Gauge>,
}

impl TierMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Self {
        Self {
            age: registry.metric(
                "tier_age_seconds",
                "Age at which objects go from the tier to the lake.",
            ),
            oldest: registry.metric(
                "tier_oldest_seconds",
                "Age of the oldest dirty object of this node that is not short-lived.",
            ),
            parallel: registry.metric(
                "tier_flushes_parallel",
                "Objects that this node brings from the tier to the lake at a time, at most.",
            ),
        }
    }

    /// Sets the figures of a tier.
    pub fn set(&self, tier: &str, figures: TierFigures) {
        let label = TierLabel { tier: tier.into() };
        self.age.get_or_create(&label).set(figures.age_seconds);
        self.oldest.get_or_create(&label).set(figures.oldest_seconds);
        self.parallel.get_or_create(&label).set(figures.parallel);
    }
}
