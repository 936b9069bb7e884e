//! Requests of each identity: in flight, waiting, refused. The label is the access key; anonymous callers
//! share one label.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::{Gauge, MetricRegistry};
use crate::fair::in_flight::PayerUsage;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct IdentityLabel {
    identity: String,
}

/// Counts of each identity's requests.
#[derive(Debug)]
pub struct PayerMetrics {
    in_flight: Family<IdentityLabel, Gauge>,
    waiting: Family<IdentityLabel, Gauge>,
    waiting_for_lake: Family<IdentityLabel, Gauge>,
    slowed: Family<IdentityLabel, Counter>,
    lake_level: Gauge,
}

impl PayerMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Self {
        Self {
            in_flight: registry.metric(
                "identity_requests_in_flight",
                "Requests of an identity in progress.",
            ),
            waiting: registry.metric(
                "waiting_requests",
                "Requests of an identity that wait to be admitted.",
            ),
            waiting_for_lake: registry.metric(
                "lake_waiting_requests",
                "Requests of an identity that wait for their turn at the lake.",
            ),
            slowed: registry.metric(
                "slowed_requests",
                "Requests of an identity answered 503 SlowDown: too many were in flight or waiting.",
            ),
            lake_level: registry.metric(
                "lake_turns",
                "Concurrent requests to the lake that the node allows, adapted to the lake.",
            ),
        }
    }

    /// Sets the current requests of an identity, and adds `slowed` to its refusals.
    pub fn of(&self, payer: &PayerUsage, waiting_for_lake: usize, slowed: u64) {
        let label = IdentityLabel {
            identity: payer.name.clone(),
        };
        self.in_flight.get_or_create(&label).set(payer.in_flight as u64);
        self.waiting.get_or_create(&label).set(payer.waiting as u64);
        self.waiting_for_lake
            .get_or_create(&label)
            .set(waiting_for_lake as u64);
        self.slowed.get_or_create(&label).inc_by(slowed);
    }

    /// Sets the limit of concurrent requests to the lake.
    pub fn set_lake_turns(&self, turns: usize) {
        self.lake_level.set(turns as u64);
    }
}
