//! Counts requests between nodes and their results.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::{Gauge, MetricRegistry};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PeerLabel {
    peer: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

/// Counts of requests between nodes.
#[derive(Debug)]
pub struct PeerMetrics {
    hops: Family<ResultLabel, Counter>,
    answers: Family<ResultLabel, Counter>,
    mistrusted: Family<ReasonLabel, Counter>,
    requests: Family<PeerLabel, Counter>,
    failures: Family<PeerLabel, Counter>,
    bytes: Family<PeerLabel, Counter>,
    reachable: Family<PeerLabel, Gauge>,
}

/// Requests to one peer, and bytes received from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerTraffic {
    /// Requests sent to it.
    pub requests: u64,
    /// Requests without a complete answer.
    pub failures: u64,
    /// Bytes received from it.
    pub bytes: u64,
}

impl PeerMetrics {
    pub(super) fn new(registry: &mut MetricRegistry) -> Self {
        Self {
            hops: registry.metric("hops", "Requests for blocks to other nodes, by outcome."),
            answers: registry.metric("peer_answers", "Requests of other nodes, by outcome."),
            mistrusted: registry.metric(
                "peer_mistrusted",
                "Connections from and to other nodes that failed authentication.",
            ),
            requests: registry.metric("peer_requests", "Requests to another node."),
            failures: registry.metric(
                "peer_failures",
                "Requests to another node without a complete answer.",
            ),
            bytes: registry.metric("peer_bytes", "Bytes of blocks received from another node."),
            reachable: registry.metric(
                "peer_reachable",
                "1 while this node sends requests to another node, 0 while it avoids that node after failures.",
            ),
        }
    }

    /// Counts completed requests to other nodes.
    pub fn hops(&self, result: &'static str, count: u64) {
        self.hops.get_or_create(&ResultLabel { result }).inc_by(count);
    }

    /// Counts answered requests of other nodes.
    pub fn answered(&self, result: &'static str, count: u64) {
        self.answers.get_or_create(&ResultLabel { result }).inc_by(count);
    }

    /// Counts connections whose peer failed to authenticate.
    pub fn mistrusted(&self, reason: &'static str, count: u64) {
        self.mistrusted
            .get_or_create(&ReasonLabel { reason })
            .inc_by(count);
    }

    /// Adds requests to a peer, and bytes from it.
    pub fn asked(&self, peer: &str, more: PeerTraffic) {
        let label = PeerLabel { peer: peer.into() };
        self.requests.get_or_create(&label).inc_by(more.requests);
        self.failures.get_or_create(&label).inc_by(more.failures);
        self.bytes.get_or_create(&label).inc_by(more.bytes);
    }

    /// Sets the current peers, and whether each of them is reachable.
    pub fn set_reachable<'a>(&self, peers: impl IntoIterator<Item = (&'a str, bool)>) {
        // Removes peers that have left.
        self.reachable.clear();
        for (peer, is_reachable) in peers {
            let label = PeerLabel { peer: peer.into() };
            self.reachable.get_or_create(&label).set(u64::from(is_reachable));
        }
    }
}
