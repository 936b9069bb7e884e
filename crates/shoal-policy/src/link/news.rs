//! The demands that nodes broadcast to each other, and the share of bandwidth that follows.
//!
//! Each node computes its own share from the demands that it has received, by [`shares()`]. Demands arrive at
//! different times at different nodes. So that the shares still add up to the bandwidth, a node **rises late
//! and falls at once**: its own demand counts as the minimum of those it has sent within [`RISES_AFTER`]. If
//! every message arrives within this time, every node has received at least the demand that the sender itself
//! uses. A share never rises with another node's demand, so the sum of all shares never exceeds the
//! bandwidth.
//!
//! If messages are lost or late, the following bounds hold:
//!
//! - A lost message is replaced by the next one within a second. Until then the node that missed it may use
//!   the difference, for at most [`FORGOTTEN_AFTER`].
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
pub(super) const RISES_AFTER: Duration = Duration::from_millis(300);

/// How long a received demand stays valid.
pub(super) const FORGOTTEN_AFTER: Duration = Duration::from_secs(5);

/// How often each node broadcasts its demand.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Minimum time between two messages. An increased demand is otherwise sent at once.
const TOLD_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// An increase of less than the bandwidth divided by this can wait.
const RISE_PART: u64 = 200;

/// The demands of the nodes that share a bandwidth in one direction, as one of them knows them.
#[derive(Clone, Debug)]
pub struct News {
    me: NodeId,
    bandwidth: u64,
    /// The demands that this node sent, with their times, latest last.
    told: VecDeque<(Duration, Demand)>,
    /// The other nodes with their latest messages.
    others: BTreeMap<NodeId, Option<Heard>>,
}

/// A demand received from another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Orders the messages of one node.
    pub sequence: u64,
    /// The sender's demand.
    pub demand: Demand,
    /// When it was received.
    pub at: Duration,
}

impl News {
    /// Creates the state of node `me`, without other nodes.
    pub fn new(me: NodeId, bandwidth: u64) -> Self {
        Self {
            me,
            bandwidth,
            told: VecDeque::new(),
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
    pub fn hear(&mut self, node: NodeId, heard: Heard) -> bool {
        let Some(known) = self.others.get_mut(&node) else {
            return false;
        };
        let is_new = known.is_none_or(|known| known.sequence < heard.sequence);
        if is_new {
            *known = Some(heard);
        }
        is_new
    }

    /// Returns true if this node should broadcast `demand` now: its last message is a second old, or the
    /// demand has increased.
    pub fn should_tell(&self, demand: &Demand, now: Duration) -> bool {
        let Some((at, told)) = self.told.back() else {
            return true;
        };
        let age = now.saturating_sub(*at);
        age >= TOLD_EVERY || age >= TOLD_AGAIN_AFTER && demand.exceeds(told, self.bandwidth / RISE_PART)
    }

    /// Records that this node broadcasts its demand at `now`.
    pub fn tell(&mut self, demand: Demand, now: Duration) {
        // The last message before the window counts until the window has passed over the next one.
        while self
            .told
            .get(1)
            .is_some_and(|(next, _)| now.saturating_sub(*next) >= RISES_AFTER)
        {
            self.told.pop_front();
        }
        self.told.push_back((now, demand));
    }

    /// Computes the share of this node at `now`, in bytes per second, while its demand is `demand`.
    pub fn share(&self, demand: &Demand, now: Duration) -> u64 {
        let is_believed = |heard: &&Heard| now.saturating_sub(heard.at) < FORGOTTEN_AFTER;
        let heard = self.others.values().flatten().filter(is_believed);
        let demands: Vec<Demand> = std::iter::once(self.own(demand, now))
            .chain(heard.map(|heard| heard.demand))
            .collect();
        let unheard = (self.nodes() - demands.len()) as u64;
        let rest = self.bandwidth - self.equal_part() * unheard;
        shares(rest, &demands)[0]
    }

    /// The effective demand of this node: the minimum that other nodes may have received.
    fn own(&self, demand: &Demand, now: Duration) -> Demand {
        let before = self
            .told
            .iter()
            .rposition(|(at, _)| now.saturating_sub(*at) >= RISES_AFTER);
        let Some(before) = before else {
            // The others may not have received any demand yet.
            return Demand::default();
        };
        let told = self.told.range(before..);
        told.fold(*demand, |least, (_, told)| least.least(told))
    }
}

#[cfg(test)]
mod tests;
