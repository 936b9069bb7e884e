//! What each identity has in flight, waits for and was refused. Its access key is the label; strangers share one.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::{Gauge, Names};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct IdentityLabel {
    identity: String,
}

/// What is counted of each identity.
#[derive(Debug)]
pub struct PayerMetrics {
    in_flight: Family<IdentityLabel, Gauge>,
    waiting: Family<IdentityLabel, Gauge>,
    slowed: Family<IdentityLabel, Counter>,
    lake_level: Gauge,
}

impl PayerMetrics {
    pub(super) fn new(names: &mut Names) -> Self {
        Self {
            in_flight: names.metric(
                "identity_requests_in_flight",
                "Requests of an identity being answered.",
            ),
            waiting: names.metric(
                "lake_waiting_requests",
                "Requests of an identity that wait for their turn at the lake.",
            ),
            slowed: names.metric(
                "slowed_requests",
                "Requests of an identity that were answered 503 SlowDown: it had too many in flight.",
            ),
            lake_level: names.metric(
                "lake_turns",
                "Requests that may be at the lake at a time, as the node has found out.",
            ),
        }
    }

    /// What an identity has in flight and waits for; `slowed` has grown by so much.
    pub fn of(&self, identity: &str, in_flight: usize, waiting: usize, slowed: u64) {
        let label = IdentityLabel {
            identity: identity.into(),
        };
        self.in_flight.get_or_create(&label).set(in_flight as u64);
        self.waiting.get_or_create(&label).set(waiting as u64);
        self.slowed.get_or_create(&label).inc_by(slowed);
    }

    /// How many requests may be at the lake at a time.
    pub fn set_lake_turns(&self, turns: usize) {
        self.lake_level.set(turns as u64);
    }
}
