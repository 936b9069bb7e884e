//! The node that runs a task: the home of its id among the living nodes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shoal_cache::cooperation::Cooperation;
use shoal_net::clock;
use shoal_net::membership::{Member, Members, State};
use shoal_policy::NodeId;
use shoal_policy::fingerprint::Fingerprint;
use shoal_policy::ring::{ORDINARY_WEIGHT, Ring};

/// The time for which a node that has just started and has met no other waits for one: nodes greet each other
/// within it.
const ALONE: Duration = Duration::from_secs(20);

/// The nodes that run tasks.
pub(in crate::tasks) struct Homes {
    cooperation: Arc<Cooperation>,
    /// The start of the search for other nodes.
    began: Instant,
    seen: Mutex<Seen>,
}

/// The nodes that this node has seen.
#[derive(Default)]
struct Seen {
    /// The members, and the ring of those that run tasks.
    ring: Option<(Members, Ring)>,
    /// The digest of the nodes, and since when it has been the same.
    same_since: Option<(u64, Instant)>,
    /// True if another node was a member at any time.
    has_met: bool,
}

impl Homes {
    /// Finds homes among the nodes of `cooperation`.
    pub(in crate::tasks) fn new(cooperation: &Arc<Cooperation>) -> Self {
        Self {
            cooperation: Arc::clone(cooperation),
            began: clock::instant(),
            seen: Mutex::default(),
        }
    }

    /// Returns the nodes that carry out orders together.
    pub(in crate::tasks) fn cooperation(&self) -> &Cooperation {
        &self.cooperation
    }

    /// Returns a digest of the nodes that run tasks, and how long they have been the same.
    pub(in crate::tasks) fn members(&self) -> (u64, Duration) {
        let members = self.cooperation.members();
        let digest = serving(&members).fold(0, |digest, node| digest ^ Fingerprint::of_number(node.0).0);
        let (now, mut seen) = (clock::instant(), self.seen.lock());
        let since = seen.same_since.filter(|(same, _)| *same == digest);
        let (_, since) = *seen.same_since.insert(since.unwrap_or((digest, now)));
        (digest, now.saturating_duration_since(since))
    }

    /// Returns true if this node has met other nodes, or is likely to be alone. A node that has just started
    /// would otherwise carry out the tasks of all without asking any.
    pub(in crate::tasks) fn may_know_all(&self) -> bool {
        let caches_alone = self.cooperation.hierarchy().layers.is_empty();
        let mut seen = self.seen.lock();
        seen.has_met |= caches_alone || !self.cooperation.is_alone();
        seen.has_met || clock::instant().saturating_duration_since(self.began) >= ALONE
    }

    /// Returns true if this node is the home of a task. Nodes that have received different news may disagree
    /// for a moment.
    pub(in crate::tasks) fn is_mine(&self, id: u128) -> bool {
        self.home(id) == self.cooperation.me
    }

    /// Returns true if this node is the home of a task, or would be if the home was gone.
    pub(in crate::tasks) fn may_run(&self, id: u128) -> bool {
        let (me, home) = (self.cooperation.me, self.home(id));
        home == me || self.home_among(id, |node| node != home) == Some(me)
    }

    fn home(&self, id: u128) -> NodeId {
        let home = self.home_among(id, |_| true);
        home.unwrap_or_else(|| self.cooperation.me)
    }

    fn home_among(&self, id: u128, may_be: impl Fn(NodeId) -> bool) -> Option<NodeId> {
        let (members, mut seen) = (self.cooperation.members(), self.seen.lock());
        if !matches!(&seen.ring, Some((known, _)) if Arc::ptr_eq(known, &members)) {
            let ring = Ring::new(serving(&members).map(|node| (node, ORDINARY_WEIGHT)).collect());
            seen.ring = Some((members, ring));
        }
        seen.ring.as_ref()?.1.home_among(place(id), may_be)
    }
}

/// Returns the nodes that run tasks: one that is about to leave runs none.
fn serving(members: &Members) -> impl Iterator<Item = NodeId> {
    let serving = members.iter().filter(|member| member.state == State::Serving);
    serving.map(Member::id)
}

/// Returns the place of a task on the ring: its id, whose last bits are random.
fn place(id: u128) -> Fingerprint {
    Fingerprint::of_number(id as u64 ^ (id >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::{Cooperation, Homes, NodeId, ORDINARY_WEIGHT, Ring, place};
    use shoal_net::channel::Channel;

    #[test]
    fn a_node_that_has_met_no_other_waits_unless_it_caches_alone() {
        for (layers, may_begin) in [(1, true), (2, false)] {
            let channel = Channel::new("n0", [""], 8);
            let cooperation = Cooperation::new("n0", "dc1/a", layers, Arc::new(channel));
            let homes = Homes::new(&Arc::new(cooperation));
            assert_eq!(homes.may_know_all(), may_begin, "{layers}");
        }
    }

    #[test]
    fn tasks_are_spread_over_the_nodes() {
        let ring = Ring::new((0..4).map(|node| (NodeId(node), ORDINARY_WEIGHT)).collect());
        let mut tasks = BTreeMap::<_, u32>::new();
        for id in 0..4_000_u128 {
            *tasks.entry(ring.home(place(id << 40 | id)).unwrap()).or_default() += 1;
        }
        assert!(
            tasks.len() == 4 && tasks.values().all(|count| *count > 700),
            "{tasks:?}"
        );
    }
}
