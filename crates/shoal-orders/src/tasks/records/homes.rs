//! The node that runs a task: the home of its id among the living nodes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use shoal_cache::cooperation::Cooperation;
use shoal_net::clock;
use shoal_net::membership::{Members, State};
use shoal_policy::NodeId;
use shoal_policy::fingerprint::Fingerprint;
use shoal_policy::ring::{ORDINARY_WEIGHT, Ring};

/// How long a node that has just started and knows no other waits for one: other nodes are greeted, or greet
/// it, within this time.
const ALONE: Duration = Duration::from_secs(20);

/// The ring of the nodes that run tasks.
#[derive(Debug, Default)]
pub struct Homes {
    members: Members,
    ring: Option<Ring>,
    /// The digest of the nodes, and since when it has been the same.
    same_since: Option<(u64, Instant)>,
    /// Since when other nodes are looked for.
    began: Option<Instant>,
    /// Whether another node was there since the start.
    has_met: bool,
}

impl Homes {
    /// A digest of the nodes that are there, and how long they have been the same.
    pub fn members(&mut self, cooperation: &Cooperation) -> (u64, Duration) {
        let members = cooperation.members();
        let serving = members.iter().filter(|member| member.state == State::Serving);
        let digest = serving.fold(0, |digest, member| {
            digest ^ Fingerprint::of_number(member.id().0).0
        });
        let now = clock::instant();
        match self.same_since {
            Some((same, since)) if same == digest => (digest, now.saturating_duration_since(since)),
            _ => {
                self.same_since = Some((digest, now));
                (digest, Duration::ZERO)
            }
        }
    }

    /// Whether this node may know the other nodes. One that has just started seems to be alone, and would
    /// carry out the tasks of all without asking any.
    pub fn may_know_all(&mut self, cooperation: &Cooperation) -> bool {
        let now = clock::instant();
        let began = *self.began.get_or_insert(now);
        let caches_alone = cooperation.hierarchy().layers.is_empty();
        self.has_met |= caches_alone || !cooperation.is_alone();
        self.has_met || now.saturating_duration_since(began) >= ALONE
    }

    /// Whether this node is the home of a task, or would be if the home was gone.
    pub fn may_run(&mut self, cooperation: &Cooperation, id: u128) -> bool {
        let (me, home) = (cooperation.me(), self.of(cooperation, id));
        let ring = self.ring.as_ref();
        let next = ring.and_then(|ring| ring.home_among(place(id), |node| node != home));
        home == me || next == Some(me)
    }

    /// The home of a task. Nodes that have heard different news may disagree for a moment.
    pub fn of(&mut self, cooperation: &Cooperation, id: u128) -> NodeId {
        let members = cooperation.members();
        let ring = match &self.ring {
            Some(ring) if Arc::ptr_eq(&members, &self.members) => ring,
            _ => {
                self.members = members;
                self.ring.insert(ring_of(&self.members))
            }
        };
        ring.home(place(id)).unwrap_or_else(|| cooperation.me())
    }
}

/// A node that is about to leave runs no task.
fn ring_of(members: &Members) -> Ring {
    let serving = members.iter().filter(|member| member.state == State::Serving);
    Ring::new(serving.map(|member| (member.id(), ORDINARY_WEIGHT)).collect())
}

/// The place of a task on the ring: its id, whose last bits are random.
fn place(id: u128) -> Fingerprint {
    Fingerprint::of_number(id as u64 ^ (id >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::{Cooperation, Homes, NodeId, ORDINARY_WEIGHT, Ring, place};
    use shoal_cache::peer::PeerConnector;
    use shoal_net::channel::Channel;

    #[test]
    fn a_node_that_has_met_no_other_waits_unless_it_caches_alone() {
        for (layers, may_begin) in [(1, true), (2, false)] {
            let channel = Channel::new("n0", [""], 8);
            let peers = PeerConnector::new(Arc::new(channel));
            let cooperation = Cooperation::new("n0", "dc1/a", layers, peers);
            assert_eq!(Homes::default().may_know_all(&cooperation), may_begin, "{layers}");
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
