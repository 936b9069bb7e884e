//! The living nodes, according to recent answers of polled nodes. Time is an argument.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use shoal_net::node_id;
use shoal_node::admin::members::{Member, Members};
use shoal_policy::NodeId;

/// A node that no answer has listed for this time counts as gone. At one poll per second that is three missed
/// polls.
pub const SEEN_WINDOW: Duration = Duration::from_secs(3);

/// A living node.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveNode {
    /// The description of the node.
    pub member: Member,
    /// The node's numeric ID, derived from its name.
    pub id: NodeId,
    /// The address at which clients reach the node; `None` if it listens on every address and no specific one
    /// is known.
    pub address: Option<SocketAddr>,
}

/// The answers of polled nodes.
#[derive(Debug, Default)]
pub struct LiveNodes {
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug)]
struct Entry {
    live: Arc<LiveNode>,
    /// When an answer last listed the node.
    seen: Instant,
    /// When the node itself last answered.
    spoke: Option<Instant>,
}

impl LiveNodes {
    /// Applies the answer of a node that was reached at `reached`. A node is authoritative about itself:
    /// while its own answer is recent, the answers of others only keep it alive.
    pub fn receive(&mut self, answer: Members, reached: IpAddr, now: Instant) {
        for member in answer.members {
            let own = member.name == answer.speaker;
            if let Some(entry) = self.entries.get_mut(&member.name)
                && !own
                && entry.spoke.is_some_and(|spoke| counts(spoke, now))
            {
                entry.seen = now;
                continue;
            }
            let live = LiveNode {
                id: node_id(&member.name),
                address: client_address(&member, own.then_some(reached)),
                member,
            };
            let entry = Entry {
                live: Arc::new(live),
                seen: now,
                spoke: own.then_some(now),
            };
            self.entries.insert(entry.live.member.name.clone(), entry);
        }
        self.entries.retain(|_, entry| counts(entry.seen, now));
        debug_assert!(
            self.entries
                .iter()
                .all(|(name, entry)| *name == entry.live.member.name),
            "a node is listed under its own name"
        );
    }

    /// The living nodes, by name.
    pub fn live(&self, now: Instant) -> Vec<Arc<LiveNode>> {
        let living = self.entries.values().filter(|entry| counts(entry.seen, now));
        living.map(|entry| Arc::clone(&entry.live)).collect()
    }
}

fn counts(seen: Instant, now: Instant) -> bool {
    now.saturating_duration_since(seen) <= SEEN_WINDOW
}

/// The address at which clients reach a node. If a node serves S3 on every address, it is reached at its peer
/// or admin address, or at `reached`.
fn client_address(member: &Member, reached: Option<IpAddr>) -> Option<SocketAddr> {
    let addresses = [Some(member.s3), member.peer, Some(member.admin)];
    let addresses = addresses.into_iter().flatten().map(|address| address.ip());
    addresses
        .chain(reached)
        .map(|ip| ip.to_canonical())
        .find(|ip| !ip.is_unspecified())
        .map(|ip| SocketAddr::new(ip, member.s3.port()))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::IpAddr;
    use std::time::{Duration, Instant};

    use shoal_net::clock;
    use shoal_net::node_id;
    use shoal_node::admin::members::{Member, MemberState, Members};

    use super::{LiveNodes, SEEN_WINDOW, client_address};

    const REACHED: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 99));

    pub(crate) fn member(name: &str, topology: &str, s3: &str) -> Member {
        let s3 = s3.parse().unwrap();
        Member {
            name: name.into(),
            topology: topology.into(),
            s3,
            peer: None,
            admin: s3,
            state: MemberState::Serving,
            load: Some(0.0),
            differs: None,
        }
    }

    fn named(name: &str) -> Member {
        member(name, "dc1/a/r1", "10.0.0.1:9000")
    }

    fn answer_of(speaker: &str, members: &[Member]) -> Members {
        Members {
            speaker: speaker.into(),
            members: members.to_vec(),
        }
    }

    fn names(live_nodes: &LiveNodes, now: Instant) -> Vec<String> {
        let live = live_nodes.live(now);
        live.iter().map(|live| live.member.name.clone()).collect()
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_node_lives_while_someone_has_listed_it_within_the_window() {
        let (mut live_nodes, start) = (LiveNodes::default(), clock::instant());
        assert_eq!(names(&live_nodes, start), [""; 0]);
        live_nodes.receive(answer_of("a1", &[named("a1"), named("a2")]), REACHED, start);
        live_nodes.receive(
            answer_of("b1", &[named("b1"), named("a2")]),
            REACHED,
            start + seconds(2),
        );
        assert_eq!(names(&live_nodes, start + seconds(3)), ["a1", "a2", "b1"]);
        let later = start + SEEN_WINDOW + Duration::from_millis(1);
        assert_eq!(names(&live_nodes, later), ["a2", "b1"]);
        assert_eq!(names(&live_nodes, later + seconds(2)), [""; 0]);
    }

    #[test]
    fn the_dead_are_forgotten() {
        let (mut live_nodes, start) = (LiveNodes::default(), clock::instant());
        for second in 0..100 {
            let name = format!("n{second}");
            live_nodes.receive(
                answer_of(&name, &[named(&name)]),
                REACHED,
                start + seconds(second),
            );
        }
        assert_eq!(live_nodes.entries.len(), 4);
    }

    #[test]
    fn about_itself_a_node_knows_best() {
        let (mut live_nodes, start) = (LiveNodes::default(), clock::instant());
        let draining = Member {
            state: MemberState::Draining,
            load: Some(0.7),
            ..named("a1")
        };
        let state = |live_nodes: &LiveNodes, now| live_nodes.live(now)[0].member.state;
        live_nodes.receive(answer_of("b1", &[named("a1")]), REACHED, start);
        assert_eq!(state(&live_nodes, start), MemberState::Serving);
        live_nodes.receive(answer_of("a1", std::slice::from_ref(&draining)), REACHED, start);
        live_nodes.receive(answer_of("b1", &[named("a1")]), REACHED, start + seconds(2));
        assert_eq!(state(&live_nodes, start + seconds(2)), MemberState::Draining);
        live_nodes.receive(answer_of("b1", &[named("a1")]), REACHED, start + seconds(4));
        assert_eq!(
            state(&live_nodes, start + seconds(4)),
            MemberState::Serving,
            "its answer of four seconds ago no longer counts"
        );
    }

    #[test]
    fn a_node_that_listens_everywhere_is_reached_where_others_reach_it() {
        let everywhere = member("a1", "dc1", "0.0.0.0:9000");
        let with_peer = Member {
            peer: "10.0.0.2:9200".parse().ok(),
            admin: "10.0.0.3:9100".parse().unwrap(),
            ..everywhere.clone()
        };
        let with_admin = Member {
            peer: None,
            ..with_peer.clone()
        };
        let mapped = member("a1", "dc1", "[::ffff:10.0.0.5]:9000");
        let cases = [
            (&named("a1"), Some(REACHED), Some("10.0.0.1:9000")),
            (&with_peer, Some(REACHED), Some("10.0.0.2:9000")),
            (&with_admin, None, Some("10.0.0.3:9000")),
            (&everywhere, Some(REACHED), Some("10.0.0.99:9000")),
            (&everywhere, None, None),
            (&mapped, None, Some("10.0.0.5:9000")),
        ];
        for (member, reached, expected) in cases {
            let expected = expected.map(|address| address.parse().unwrap());
            assert_eq!(client_address(member, reached), expected, "{member:?}");
        }
    }

    #[test]
    fn a_name_has_the_same_number_in_every_release() {
        assert_eq!(node_id("a1").0, 0xf55f_f16f_66f4_3360);
    }
}
