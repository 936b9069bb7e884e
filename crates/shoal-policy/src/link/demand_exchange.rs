//! The demands that nodes broadcast to each other, and the share of bandwidth that follows.
//!
//! Each node computes its own share from the demands that it has received, by [`shares()`]. Demands arrive at
//! different times at different nodes. So that the shares still add up to the bandwidth, a node **rises late
//! and falls at once**: its own demand counts as the minimum of those it has sent within [`RISE_DELAY`]. If
//! every message arrives within this time, every node has received at least the demand that the sender itself
//! uses. A share never rises with another node's demand, so the sum of all shares never exceeds the
//! bandwidth.
//!
//! If messages are lost or late, the following bounds hold:
//!
//! - A lost message is replaced by the next one within a second. Until then the node that missed it may use
//!   the difference, for at most [`DEMAND_LIFE`].
//! - If no message arrives from a node for that long, `bandwidth / nodes` is set aside for it, and the others
//!   divide the rest. A node that receives no messages uses `bandwidth / nodes` itself.
//! - A node that joins uses at most its equal part until the others know of it. The share of a node that dies
//!   stays unused until the others know that.
//! - A demand is capped at the bandwidth, even if a node sends more.
//! - A partitioned cluster is two clusters, each of which uses the whole bandwidth.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{Demand, shares};
use crate::NodeId;

/// Delay before an increase of a node's own demand takes effect, so that the other nodes receive it first.
pub(super) const RISE_DELAY: Duration = Duration::from_millis(300);

/// How long a received demand stays valid.
pub(super) const DEMAND_LIFE: Duration = Duration::from_secs(5);

/// How often each node broadcasts its demand.
const BROADCAST_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum time between two messages. An increased demand is otherwise sent at once.
const BROADCAST_PAUSE_MIN: Duration = Duration::from_millis(100);

/// An increase of less than the bandwidth divided by this can wait.
const RISE_FRACTION: u64 = 200;

/// The demands of the nodes that share a bandwidth in one direction, as one of them knows them.
#[derive(Clone, Debug)]
pub struct DemandExchange {
    me: NodeId,
    bandwidth: u64,
    /// The demands that this node sent, with their times, latest last.
    sent: VecDeque<(Duration, Demand)>,
    /// The other nodes with their latest messages.
    others: BTreeMap<NodeId, Option<ReceivedDemand>>,
}

/// A demand received from another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedDemand {
    /// Orders the messages of one node.
    pub sequence: u64,
    /// The sender's demand.
    pub demand: Demand,
    /// When it was received.
    pub at: Duration,
}

impl DemandExchange {
    /// Creates the state of node `me`, without other nodes.
    pub fn new(me: NodeId, bandwidth: u64) -> Self {
        Self {
            me,
            bandwidth,
            sent: VecDeque::new(),
            others: BTreeMap::new(),
        }
    }

    /// The number of nodes that share the bandwidth, this one included.
    pub fn nodes(&self) -> usize {
        self.others.len() + 1
    }

    /// The equal part of one node, in bytes per second.
    pub fn equal_part(&self) -> u64 {
        self.bandwidth / self.nodes() as u64
    }

    /// Changes the bandwidth that the nodes share.
    pub fn set_bandwidth(&mut self, bandwidth: u64) {
        self.bandwidth = bandwidth;
    }

    /// Replaces the set of living nodes. The demands of nodes outside it are forgotten.
    pub fn set_nodes(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        let mut known = std::mem::take(&mut self.others);
        let others = nodes.into_iter().filter(|node| *node != self.me);
        self.others = others.map(|node| (node, known.remove(&node).flatten())).collect();
    }

    /// Stores a received message. Returns true if it was accepted: its sender is a living node, and it is
    /// newer than the stored one.
    pub fn receive(&mut self, node: NodeId, received: ReceivedDemand) -> bool {
        let Some(known) = self.others.get_mut(&node) else {
            return false;
        };
        let is_new = known.is_none_or(|known| known.sequence < received.sequence);
        if is_new {
            *known = Some(received);
        }
        is_new
    }

    /// Returns true if this node should broadcast `demand` now: its last message is a second old, or the
    /// demand has increased.
    pub fn should_send(&self, demand: &Demand, now: Duration) -> bool {
        let Some((at, sent)) = self.sent.back() else {
            return true;
        };
        let age = now.saturating_sub(*at);
        age >= BROADCAST_INTERVAL
            || age >= BROADCAST_PAUSE_MIN && demand.exceeds(sent, self.bandwidth / RISE_FRACTION)
    }

    /// Records that this node broadcasts its demand at `now`.
    pub fn record_sent(&mut self, demand: Demand, now: Duration) {
        // The last message before the window counts until the window has passed over the next one.
        while self
            .sent
            .get(1)
            .is_some_and(|(next, _)| now.saturating_sub(*next) >= RISE_DELAY)
        {
            self.sent.pop_front();
        }
        self.sent.push_back((now, demand));
    }

    /// Computes the share of this node at `now`, in bytes per second, while its demand is `demand`.
    pub fn share(&self, demand: &Demand, now: Duration) -> u64 {
        let is_valid = |received: &&ReceivedDemand| now.saturating_sub(received.at) < DEMAND_LIFE;
        let received = self.others.values().flatten().filter(is_valid);
        let demands: Vec<Demand> = std::iter::once(self.own(demand, now))
            .chain(received.map(|received| received.demand))
            .collect();
        debug_assert!(demands.len() <= self.nodes(), "each node has one demand");
        let silent = (self.nodes() - demands.len()) as u64;
        let rest = self.bandwidth - self.equal_part() * silent;
        shares(rest, &demands)[0]
    }

    /// The effective demand of this node: the minimum that other nodes may have received.
    fn own(&self, demand: &Demand, now: Duration) -> Demand {
        let before = self
            .sent
            .iter()
            .rposition(|(at, _)| now.saturating_sub(*at) >= RISE_DELAY);
        let Some(before) = before else {
            // The others may not have received any demand yet.
            return Demand::default();
        };
        let sent = self.sent.range(before..);
        sent.fold(*demand, |least, (_, sent)| least.least(sent))
    }
}

#[cfg(test)]
mod tests;
