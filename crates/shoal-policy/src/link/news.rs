//! The demands that nodes tell each other, and the share that follows.
//!
//! Each node computes its own share from the demands that it knows, by [`shares()`]. Nodes know them at
//! different times. So that their shares add up to the bandwidth nevertheless, a node **rises late and falls
//! at once**: its own demand counts as the least that it has told within [`RISES_AFTER`]. If every message
//! arrives within this time, each node knows at least the part of a demand that its node uses, and a share
//! does not rise with another's demand, so all shares together never exceed the bandwidth.
//!
//! Beyond it they are bounded as follows:
//!
//! - A message that is lost is told again each second. Until then the node that missed it may use the
//!   difference, at most for [`FORGOTTEN_AFTER`].
//! - A node that was not heard of for that long keeps `bandwidth / nodes`, and the others divide the rest. A
//!   node that hears of no other has `bandwidth / nodes` itself.
//! - A node that joins uses at most its equal part until the others know of it. A node that dies keeps its
//!   share until the others know that.
//! - A demand counts up to the bandwidth, even if a node tells more.
//! - A cluster that is cut in two is two clusters, and each uses the bandwidth.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::{Demand, shares};
use crate::NodeId;

/// A rise of a node's demand counts so long after the others were told.
pub(super) const RISES_AFTER: Duration = Duration::from_millis(300);

/// A demand that was not told again for so long is no longer believed.
pub(super) const FORGOTTEN_AFTER: Duration = Duration::from_secs(5);

/// Demands are told so often.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// A demand that has risen is told at once, but not within this time after the last message.
const TOLD_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// A rise of less than this part of the bandwidth can wait.
const RISE_PART: u64 = 200;

/// The demands of the nodes that share a bandwidth in one direction, as one of them knows them.
#[derive(Clone, Debug)]
pub struct News {
    me: NodeId,
    bandwidth: u64,
    /// The demands that this node told, and their times; the latest is last.
    told: VecDeque<(Duration, Demand)>,
    /// The other nodes, and their latest messages.
    others: BTreeMap<NodeId, Option<Heard>>,
}

/// A message in which another node tells its demand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// Orders the messages of one node.
    pub sequence: u64,
    /// Its demand.
    pub demand: Demand,
    /// When it was heard.
    pub at: Duration,
}

impl News {
    /// The node `me`, which knows no other yet.
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

    /// The equal part of one node, in bytes a second.
    pub fn equal_part(&self) -> u64 {
        self.bandwidth / self.nodes() as u64
    }

    /// Changes the bandwidth that the nodes share.
    pub fn set_bandwidth(&mut self, bandwidth: u64) {
        self.bandwidth = bandwidth;
    }

    /// Takes over the living nodes. The demands of others are forgotten.
    pub fn set_nodes(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        let mut known = std::mem::take(&mut self.others);
        let others = nodes.into_iter().filter(|node| *node != self.me);
        self.others = others.map(|node| (node, known.remove(&node).flatten())).collect();
    }

    /// Takes in a message. Returns whether it counts: its sender is a living node, and it is not older than
    /// one that was heard before.
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

    /// Whether this node should tell the others now that its demand is `demand`: it was not told for a
    /// second, or has risen.
    pub fn should_tell(&self, demand: &Demand, now: Duration) -> bool {
        let Some((at, told)) = self.told.back() else {
            return true;
        };
        let age = now.saturating_sub(*at);
        age >= TOLD_EVERY || age >= TOLD_AGAIN_AFTER && demand.exceeds(told, self.bandwidth / RISE_PART)
    }

    /// Notes that this node tells the others its demand at `now`.
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

    /// The share of this node at `now`, in bytes a second, while its demand is `demand`.
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

    /// The demand of this node that counts: the least that the others may know of.
    fn own(&self, demand: &Demand, now: Duration) -> Demand {
        let before = self
            .told
            .iter()
            .rposition(|(at, _)| now.saturating_sub(*at) >= RISES_AFTER);
        let Some(before) = before else {
            // The others may not have heard of any demand.
            return Demand::default();
        };
        let told = self.told.range(before..);
        told.fold(*demand, |least, (_, told)| least.least(told))
    }
}

#[cfg(test)]
mod tests;
