//! Chooses the living nodes to answer a client with, and gives a reason for each node that is left out.

use std::net::SocketAddr;
use std::sync::Arc;

use shoal_net::words;
use shoal_node::admin::members::MemberState;
use shoal_policy::nearest::{self as policy, Candidate, rank};

use super::client::Client;
use crate::live_nodes::LiveNode;

words! {
    /// The place of a living node in the answer to a client: contained, or left out for a reason.
    pub enum Eligibility {
        /// The answer contains the node.
        Answered = "answered",
        /// The node is as near as those in the answer, but the answer has enough nodes.
        Surplus = "as near, and enough are answered",
        /// Another node is nearer.
        Farther = "farther",
        /// The node is draining, and others are not.
        Draining = "draining",
        /// The address at which clients reach the node is unknown.
        NoAddress = "its S3 address is not known",
    }
}

/// A living node from a client's point of view.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The node.
    pub live: Arc<LiveNode>,
    /// The number of topology levels that the node shares with the client.
    pub shared_levels: usize,
    /// The node's weight in the choice among equally near nodes, 0 to 1.
    pub weight: f64,
    /// The place of the node in the answer.
    pub eligibility: Eligibility,
}

/// All living nodes in the order in which the client should try them; nodes that it should not try come last.
///
/// An answer contains addresses of one distance only: resolvers and clients shuffle them, so with two
/// distances half of the requests would go farther than necessary. The next distance is used only if no
/// nearer node is alive.
pub fn choose(
    client: &Client,
    topology: Option<&str>,
    live: &[Arc<LiveNode>],
    answers: usize,
) -> Vec<Choice> {
    let excluded = exclusion(live);
    let (fit, unfit): (Vec<_>, Vec<_>) = live.iter().partition(|live| excluded(live).is_none());
    let mut choices = by_distance(client, topology, &fit);
    if let Some(nearest) = choices.first().map(|choice| choice.shared_levels) {
        for (position, choice) in choices.iter_mut().enumerate() {
            choice.eligibility = match choice.shared_levels == nearest {
                true if position < answers => Eligibility::Answered,
                true => Eligibility::Surplus,
                false => Eligibility::Farther,
            };
        }
    }
    let unfit = by_distance(client, topology, &unfit).into_iter().map(|choice| {
        let eligibility = excluded(&choice.live).unwrap_or(choice.eligibility);
        Choice {
            eligibility,
            ..choice
        }
    });
    choices.extend(unfit);
    debug_assert_eq!(
        choices.len(),
        live.len(),
        "each living node has one place in the choice"
    );
    debug_assert!(
        choices
            .iter()
            .filter(|choice| choice.eligibility == Eligibility::Answered)
            .count()
            <= answers,
        "an answer has no more nodes than configured"
    );
    choices
}

/// The living nodes to which clients may be directed and which have an address of the family.
pub fn reachable_by(is_of_family: fn(&SocketAddr) -> bool, live: &[Arc<LiveNode>]) -> Vec<Arc<LiveNode>> {
    let excluded = exclusion(live);
    let reachable = |live: &&Arc<LiveNode>| live.address.as_ref().is_some_and(is_of_family);
    let fit = live.iter().filter(|live| excluded(live).is_none());
    fit.filter(reachable).cloned().collect()
}

/// Returns a function that gives the reason for which no client should be directed to a node, if there is
/// one.
fn exclusion(live: &[Arc<LiveNode>]) -> impl Fn(&Arc<LiveNode>) -> Option<Eligibility> {
    let serving = |live: &Arc<LiveNode>| live.member.state == MemberState::Serving;
    let someone_serves = live.iter().any(|live| serving(live) && live.address.is_some());
    move |live| match live.address {
        None => Some(Eligibility::NoAddress),
        Some(_) if someone_serves && !serving(live) => Some(Eligibility::Draining),
        Some(_) => None,
    }
}

fn by_distance(client: &Client, topology: Option<&str>, live: &[&Arc<LiveNode>]) -> Vec<Choice> {
    let client = policy::Client {
        topology,
        key: client.key(),
    };
    let candidates: Vec<_> = live
        .iter()
        .map(|live| Candidate {
            node: live.id,
            topology: &live.member.topology,
            // A node that was not polled itself has an unknown load, which counts as none.
            load: live.member.load.unwrap_or(0.0),
        })
        .collect();
    let ranked = rank(client, &candidates).into_iter();
    ranked
        .map(|ranked| Choice {
            live: Arc::clone(live[ranked.index]),
            shared_levels: ranked.shared_levels,
            weight: ranked.weight,
            eligibility: Eligibility::Farther,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use shoal_net::clock;
    use shoal_node::admin::members::{Member, MemberState, Members};

    use super::{Choice, Eligibility, choose, reachable_by};
    use crate::answer::client::Client;
    use crate::live_nodes::tests::member;
    use crate::live_nodes::{LiveNode, LiveNodes};

    const HERE: Option<&str> = Some("dc1/a/r1");

    fn live(members: Vec<Member>) -> Vec<Arc<LiveNode>> {
        let (mut live_nodes, now) = (LiveNodes::default(), clock::instant());
        let speaker = String::from("somebody else");
        live_nodes.receive(Members { speaker, members }, [10, 0, 0, 9].into(), now);
        live_nodes.live(now)
    }

    fn four() -> Vec<Member> {
        vec![
            member("a1", "dc1/a/r1", "10.0.0.1:9000"),
            member("a2", "dc1/a/r1", "10.0.0.2:9000"),
            member("a3", "dc1/a/r2", "10.0.0.3:9000"),
            member("b1", "dc1/b/r1", "10.0.0.4:9000"),
        ]
    }

    fn eligibilities(members: Vec<Member>, answers: usize) -> Vec<(String, Eligibility)> {
        let client = Client::new([10, 1, 0, 1].into(), None, &[]).unwrap();
        let choices = choose(&client, HERE, &live(members), answers);
        let mut standings: Vec<_> = choices.iter().map(summary).collect();
        standings.sort_by(|a, b| a.0.cmp(&b.0));
        standings
    }

    fn summary(choice: &Choice) -> (String, Eligibility) {
        (choice.live.member.name.clone(), choice.eligibility)
    }

    fn eligibility_of(members: Vec<Member>, answers: usize) -> [Eligibility; 4] {
        let standings = eligibilities(members, answers);
        standings
            .iter()
            .map(|(_, eligibility)| *eligibility)
            .collect::<Vec<_>>()
            .try_into()
            .unwrap()
    }

    #[test]
    fn only_the_nearest_are_answered_and_as_many_as_asked_for() {
        use Eligibility::{Answered, Farther, Surplus};
        assert_eq!(eligibility_of(four(), 2), [Answered, Answered, Farther, Farther]);
        assert_eq!(eligibility_of(four(), 9), [Answered, Answered, Farther, Farther]);
        let one = eligibility_of(four(), 1);
        assert!(
            one[..2].contains(&Answered) && one[..2].contains(&Surplus),
            "{one:?}"
        );
    }

    #[test]
    fn the_second_nearest_is_answered_when_the_nearest_are_gone() {
        let left = four().split_off(2);
        let expected = [
            ("a3".into(), Eligibility::Answered),
            ("b1".into(), Eligibility::Farther),
        ];
        assert_eq!(eligibilities(left, 2), expected);
    }

    #[test]
    fn a_draining_node_is_answered_only_when_nothing_else_lives() {
        let mut members = four();
        members[0].state = MemberState::Draining;
        members[1].state = MemberState::Draining;
        let eligibility = eligibility_of(members.clone(), 1);
        assert_eq!(
            eligibility,
            [
                Eligibility::Draining,
                Eligibility::Draining,
                Eligibility::Answered,
                Eligibility::Farther
            ]
        );
        for member in &mut members {
            member.state = MemberState::Draining;
        }
        assert!(eligibility_of(members, 1)[..2].contains(&Eligibility::Answered));
    }

    #[test]
    fn a_node_without_a_known_address_is_not_answered_and_counts_for_nothing() {
        let mut members = four();
        (members[0].s3, members[0].admin) =
            ("0.0.0.0:9000".parse().unwrap(), "0.0.0.0:9100".parse().unwrap());
        for member in &mut members[1..] {
            member.state = MemberState::Draining;
        }
        let eligibility = eligibility_of(members, 1);
        assert_eq!(eligibility[0], Eligibility::NoAddress);
        assert_eq!(eligibility[1], Eligibility::Answered);
    }

    #[test]
    fn each_family_has_its_own_nearest() {
        let mut members = four();
        members[0].s3 = "[fd00::1]:9000".parse().unwrap();
        let live = live(members);
        let names = |family: fn(&SocketAddr) -> bool| -> Vec<String> {
            let reachable = reachable_by(family, &live);
            reachable.iter().map(|live| live.member.name.clone()).collect()
        };
        assert_eq!(names(SocketAddr::is_ipv6), ["a1"]);
        assert_eq!(names(SocketAddr::is_ipv4), ["a2", "a3", "b1"]);
    }

    #[test]
    fn a_family_whose_nodes_all_leave_has_none_while_the_other_serves() {
        let mut members = four();
        members[0].s3 = "[fd00::1]:9000".parse().unwrap();
        members[0].state = MemberState::Draining;
        assert_eq!(reachable_by(SocketAddr::is_ipv6, &live(members)), []);
    }
}
