//! Requests between nodes, for the metrics.

use std::collections::HashMap;

use super::Observer;
use crate::block_server::ServeOutcome;
use crate::channel::AuthFailure;
use crate::fetch::HopOutcome;
use crate::metrics::{PeerMetrics, PeerTraffic};
use crate::peer::Peer;

/// Totals already added to the metrics.
#[derive(Debug, Default)]
pub(super) struct LastReported {
    hops: [u64; HopOutcome::ALL.len()],
    answers: [u64; ServeOutcome::ALL.len()],
    mistrusted: [u64; AuthFailure::ALL.len()],
    traffic: HashMap<String, PeerTraffic>,
}

impl Observer {
    pub(super) fn measure_peers(&self, metrics: &PeerMetrics, last_reported: &mut LastReported) {
        for ((end, total), before) in self.fetcher.hops().into_iter().zip(&mut last_reported.hops) {
            metrics.hops(end.as_str(), total - *before);
            *before = total;
        }
        for ((outcome, total), before) in self
            .block_server
            .counts()
            .into_iter()
            .zip(&mut last_reported.answers)
        {
            metrics.answered(outcome.as_str(), total - *before);
            *before = total;
        }
        let mistrusted = self.cooperation.channel().auth_failures().counts();
        for ((reason, total), before) in mistrusted.into_iter().zip(&mut last_reported.mistrusted) {
            metrics.mistrusted(reason.as_str(), total - *before);
            *before = total;
        }
        let peers = self.cooperation.peers();
        metrics.set_reachable(peers.iter().map(|peer| (peer.name(), peer.is_reachable())));
        for peer in &peers {
            let before = last_reported.traffic.entry(peer.name().into()).or_default();
            let now = traffic(peer);
            metrics.asked(peer.name(), since(*before, now));
            *before = now;
        }
    }
}

fn traffic(peer: &Peer) -> PeerTraffic {
    let (requests, failures) = peer.counts();
    PeerTraffic {
        requests,
        failures,
        bytes: peer.bytes_received(),
    }
}

/// Returns the increase since `before`, or all of `now` for a peer that left and returned, because its
/// counters restarted at zero.
fn since(before: PeerTraffic, now: PeerTraffic) -> PeerTraffic {
    if now.requests < before.requests {
        return now;
    }
    PeerTraffic {
        requests: now.requests - before.requests,
        failures: now.failures.saturating_sub(before.failures),
        bytes: now.bytes.saturating_sub(before.bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::{PeerTraffic, since};

    fn traffic(requests: u64, failures: u64, bytes: u64) -> PeerTraffic {
        PeerTraffic {
            requests,
            failures,
            bytes,
        }
    }

    #[test]
    fn traffic_of_a_peer_that_came_back_counts_from_nothing() {
        let before = traffic(10, 2, 300);
        assert_eq!(since(before, traffic(13, 2, 400)), traffic(3, 0, 100));
        assert_eq!(since(before, traffic(4, 1, 500)), traffic(4, 1, 500));
    }
}
