//! The conditions of a node, as gauges for alerts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::{Gauge, MetricRegistry, ReasonLabel};
use crate::conditions::{Condition, ConditionName};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ConditionLabel {
    condition: &'static str,
}

/// Conditions that hold, and the events that lead to them.
#[derive(Debug)]
pub struct ConditionMetrics {
    conditions: Family<ConditionLabel, Gauge>,
    account_refusals: Family<ReasonLabel, Counter>,
    unheard: Family<ReasonLabel, Counter>,
}

impl ConditionMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Self {
        Self {
            conditions: registry.metric(
                "condition",
                "Instances of a condition that needs an operator; 0 while it does not hold.",
            ),
            account_refusals: registry.metric(
                "lake_account_refusals",
                "Requests that the lake refused because of the account that signed them.",
            ),
            unheard: registry.metric(
                "gossip_rejected",
                "Datagrams of other nodes that this node rejected, by reason.",
            ),
        }
    }

    /// Sets the conditions that currently hold.
    pub fn set(&self, holding: &[Condition]) {
        for name in ConditionName::ALL {
            let condition = name.as_str();
            let count = holding.iter().filter(|held| held.condition == condition).count();
            let label = ConditionLabel { condition };
            self.conditions.get_or_create(&label).set(count as u64);
        }
    }

    /// Counts requests refused because of their account.
    pub fn account_refused(&self, reason: &'static str, count: u64) {
        self.account_refusals
            .get_or_create(&ReasonLabel { reason })
            .inc_by(count);
    }

    /// Counts rejected datagrams.
    pub fn unheard(&self, reason: &'static str, count: u64) {
        self.unheard.get_or_create(&ReasonLabel { reason }).inc_by(count);
    }
}
