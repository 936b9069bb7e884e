//! The tiers, for the metrics.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Observer;
use crate::dirty::Swept;
use crate::metrics::{TierFigures, TierMetrics};

impl Observer {
    /// Sets the gauges of each tier, and counts what was swept since `before`. Returns the new totals.
    pub(super) fn measure_tiers(
        &self,
        metrics: &TierMetrics,
        before: &BTreeMap<Arc<str>, Swept>,
    ) -> BTreeMap<Arc<str>, Swept> {
        let mut totals = BTreeMap::new();
        for tier in self.dirty.tiers() {
            let figures = TierFigures {
                age_seconds: tier.pace.age.as_secs(),
                oldest_seconds: tier.oldest.unwrap_or_default().as_secs(),
                parallel: tier.pace.parallel as u64,
                upload_bytes: tier.survey.upload_bytes,
                registry_bytes: tier.registry.map_or(0, |room| room.used_bytes),
                registry_quota_bytes: tier.registry.map_or(0, |room| room.quota_bytes),
            };
            metrics.set(&tier.name, figures);
            let before = before.get(&tier.name).copied().unwrap_or_default();
            let (pieces, bytes) = (tier.swept.pieces - before.pieces, tier.swept.bytes - before.bytes);
            metrics.swept(&tier.name, pieces, bytes);
            totals.insert(tier.name, tier.swept);
        }
        totals
    }
}
