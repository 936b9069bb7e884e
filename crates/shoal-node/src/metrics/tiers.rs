//! The cleaner of each tier, and what its sweep has deleted.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::{Gauge, MetricRegistry};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TierLabel {
    tier: String,
}

/// The cleaner of one tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierFigures {
    /// Age at which objects are flushed, in seconds.
    pub age_seconds: u64,
    /// Age of the oldest dirty object that is not short-lived, in seconds.
    pub oldest_seconds: u64,
    /// Number of concurrent flushes.
    pub parallel: u64,
    /// Bytes of unfinished uploads.
    pub upload_bytes: u64,
    /// The bytes that the registry uses.
    pub registry_bytes: u64,
    /// Maximum bytes that the registry may use.
    pub registry_quota_bytes: u64,
}

/// Figures on tiers.
#[derive(Debug)]
pub struct TierMetrics {
    age: Family<TierLabel, Gauge>,
    oldest: Family<TierLabel, Gauge>,
    parallel: Family<TierLabel, Gauge>,
    upload_bytes: Family<TierLabel, Gauge>,
    registry_bytes: Family<TierLabel, Gauge>,
    registry_quota_bytes: Family<TierLabel, Gauge>,
    swept_pieces: Family<TierLabel, Counter>,
    swept_bytes: Family<TierLabel, Counter>,
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
            upload_bytes: registry.metric(
                "tier_upload_bytes",
                "Bytes in the tier of uploads that have not ended, of all nodes.",
            ),
            registry_bytes: registry.metric(
                "tier_registry_bytes",
                "Bytes that the registry of the tier uses, as it says.",
            ),
            registry_quota_bytes: registry.metric(
                "tier_registry_quota_bytes",
                "Bytes that the registry of the tier may use.",
            ),
            swept_pieces: registry.metric(
                "tier_swept_pieces",
                "Pieces of the tier's store that nothing named and that this node removed.",
            ),
            swept_bytes: registry.metric(
                "tier_swept_bytes",
                "Bytes of the pieces that nothing named and that this node removed.",
            ),
        }
    }

    /// Sets the figures of a tier.
    pub fn set(&self, tier: &str, figures: TierFigures) {
        let label = TierLabel { tier: tier.into() };
        self.age.get_or_create(&label).set(figures.age_seconds);
        self.oldest.get_or_create(&label).set(figures.oldest_seconds);
        self.parallel.get_or_create(&label).set(figures.parallel);
        self.upload_bytes.get_or_create(&label).set(figures.upload_bytes);
        self.registry_bytes
            .get_or_create(&label)
            .set(figures.registry_bytes);
        self.registry_quota_bytes
            .get_or_create(&label)
            .set(figures.registry_quota_bytes);
    }

    /// Counts the pieces that a sweep of a tier has deleted, and their bytes.
    pub fn swept(&self, tier: &str, pieces: u64, bytes: u64) {
        let label = TierLabel { tier: tier.into() };
        self.swept_pieces.get_or_create(&label).inc_by(pieces);
        self.swept_bytes.get_or_create(&label).inc_by(bytes);
    }
}
