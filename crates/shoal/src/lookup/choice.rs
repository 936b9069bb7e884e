//! Chooses the living nodes that an asker gets, and gives the reason why it does not get the others.

use std::net::SocketAddr;
use std::sync::Arc;

use shoal_policy::nearest::{Candidate, Client, rank};

use super::client::Asker;
use super::live_nodes::Live;
use super::places::Location;
use crate::admin::members::MemberState;

/// The kind of addresses that are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// A records.
    V4,
    /// AAAA records.
    V6,
}

/// How a living node stands with an asker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The answer contains the node.
    Answered,
    /// The node is as near as those in the answer, which are enough.
    Surplus,
    /// Another node is nearer.
    Farther,
    /// The node leaves, and others do not.
    Draining,
    /// The address at which clients reach the node is unknown.
    NoAddress,
}

/// A living node from an asker's point of view.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The node.
    pub live: Arc<Live>,
    /// The number of topology levels that the node shares with the asker.
    pub shared_levels: usize,
    /// The node's part in the choice among equally near nodes, 0 to 1.
    pub weight: f64,
    /// Whether the answer contains the node, and why.
    pub standing: Standing,
}

impl Family {
    fn has(self, address: SocketAddr) -> bool {
        address.is_ipv4() == (self == Self::V4)
    }
}

impl Standing {
    /// The reason in words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Surplus => "as near, and enough are answered",
            Self::Farther => "farther",
            Self::Draining => "draining",
            Self::NoAddress => "its S3 address is not known",
        }
    }
}

/// All living nodes in the order in which the asker should try them; nodes that it should not try come last.
///
/// An answer contains addresses of one distance only: resolvers and clients shuffle them, and half of the
/// requests would go farther than they need. The next distance is used only if no nearer node is alive.
pub fn choose(asker: &Asker, location: Location<'_>, live: &[Arc<Live>], answers: usize) -> Vec<Choice> {
    let excluded = exclusion(live);
    let (fit, unfit): (Vec<_>, Vec<_>) = live.iter().partition(|live| excluded(live).is_none());
    let mut choices = by_distance(asker, location, &fit);
    if let Some(nearest) = choices.first().map(|choice| choice.shared_levels) {
        for (position, choice) in choices.iter_mut().enumerate() {
            choice.standing = match choice.shared_levels == nearest {
                true if position < answers => Standing::Answered,
                true => Standing::Surplus,
                false => Standing::Farther,
            };
        }
    }
    let unfit = by_distance(asker, location, &unfit).into_iter().map(|choice| {
        let standing = excluded(&choice.live).unwrap_or(choice.standing);
        Choice { standing, ..choice }
    });
    choices.extend(unfit);
    choices
}

/// The living nodes that clients may be sent to and that have addresses of the family.
pub fn reachable_by(family: Family, live: &[Arc<Live>]) -> Vec<Arc<Live>> {
    let excluded = exclusion(live);
    let reachable = |live: &&Arc<Live>| live.address.is_some_and(|address| family.has(address));
    live.iter()
        .filter(|live| excluded(live).is_none())
        .filter(reachable)
        .cloned()
        .collect()
}

/// Returns a function that gives the reason why no client should be sent to a node, if there is one.
fn exclusion(live: &[Arc<Live>]) -> impl Fn(&Arc<Live>) -> Option<Standing> {
    let serving = |live: &Arc<Live>| live.member.state == MemberState::Serving;
    let someone_serves = live.iter().any(|live| serving(live) && live.address.is_some());
    move |live| match live.address {
        None => Some(Standing::NoAddress),
        Some(_) if someone_serves && !serving(live) => Some(Standing::Draining),
        Some(_) => None,
    }
}

fn by_distance(asker: &Asker, location: Location<'_>, live: &[&Arc<Live>]) -> Vec<Choice> {
    let client = Client {
        topology: location.topology,
        key: asker.key(),
    };
    let candidates: Vec<_> = live
        .iter()
        .map(|live| Candidate {
            node: live.id,
            topology: &live.member.topology,
            // Nothing is known against a node that was not asked itself.
            load: live.member.load.unwrap_or(0.0),
        })
        .collect();
    let ranked = rank(client, &candidates).into_iter();
    ranked
        .map(|ranked| Choice {
            live: Arc::clone(live[ranked.index]),
            shared_levels: ranked.shared_levels,
            weight: ranked.weight,
            standing: Standing::Farther,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::live_nodes::tests::member;
    use super::{Choice, Family, Standing, choose, reachable_by};
    use crate::admin::members::{Member, MemberState, Members};
    use crate::clock;
    use crate::lookup::client::Asker;
    use crate::lookup::live_nodes::{Live, Roster};
    use crate::lookup::places::Location;

    const HERE: Location<'_> = Location {
        topology: Some("dc1/a/r1"),
        network: None,
    };

    fn live(members: Vec<Member>) -> Vec<Arc<Live>> {
        let (mut roster, now) = (Roster::default(), clock::instant());
        let speaker = String::from("somebody else");
        roster.hear(Members { speaker, members }, [10, 0, 0, 9].into(), now);
        roster.live(now)
    }

    fn four() -> Vec<Member> {
        vec![
            member("a1", "dc1/a/r1", "10.0.0.1:9000"),
            member("a2", "dc1/a/r1", "10.0.0.2:9000"),
            member("a3", "dc1/a/r2", "10.0.0.3:9000"),
            member("b1", "dc1/b/r1", "10.0.0.4:9000"),
        ]
    }

    fn standings(members: Vec<Member>, answers: usize) -> Vec<(String, Standing)> {
        let asker = Asker::of([10, 1, 0, 1].into(), None, &[]).unwrap();
        let choices = choose(&asker, HERE, &live(members), answers);
        let mut standings: Vec<_> = choices.iter().map(summary).collect();
        standings.sort_by(|a, b| a.0.cmp(&b.0));
        standings
    }

    fn summary(choice: &Choice) -> (String, Standing) {
        (choice.live.member.name.clone(), choice.standing)
    }

    fn standing_of(members: Vec<Member>, answers: usize) -> [Standing; 4] {
        let standings = standings(members, answers);
        standings
            .iter()
            .map(|(_, standing)| *standing)
            .collect::<Vec<_>>()
            .try_into()
            .unwrap()
    }

    #[test]
    fn only_the_nearest_are_answered_and_as_many_as_asked_for() {
        use Standing::{Answered, Farther, Surplus};
        assert_eq!(standing_of(four(), 2), [Answered, Answered, Farther, Farther]);
        assert_eq!(standing_of(four(), 9), [Answered, Answered, Farther, Farther]);
        let one = standing_of(four(), 1);
        assert!(
            one[..2].contains(&Answered) && one[..2].contains(&Surplus),
            "{one:?}"
        );
    }

    #[test]
    fn the_second_nearest_is_answered_when_the_nearest_are_gone() {
        let left = four().split_off(2);
        let expected = [
            ("a3".into(), Standing::Answered),
            ("b1".into(), Standing::Farther),
        ];
        assert_eq!(standings(left, 2), expected);
    }

    #[test]
    fn a_draining_node_is_answered_only_when_nothing_else_lives() {
        let mut members = four();
        members[0].state = MemberState::Draining;
        members[1].state = MemberState::Draining;
        let standing = standing_of(members.clone(), 1);
        assert_eq!(
            standing,
            [
                Standing::Draining,
                Standing::Draining,
                Standing::Answered,
                Standing::Farther
            ]
        );
        for member in &mut members {
            member.state = MemberState::Draining;
        }
        assert!(standing_of(members, 1)[..2].contains(&Standing::Answered));
    }

    #[test]
    fn a_node_without_a_known_address_is_not_answered_and_counts_for_nothing() {
        let mut members = four();
        (members[0].s3, members[0].admin) =
            ("0.0.0.0:9000".parse().unwrap(), "0.0.0.0:9100".parse().unwrap());
        for member in &mut members[1..] {
            member.state = MemberState::Draining;
        }
        let standing = standing_of(members, 1);
        assert_eq!(standing[0], Standing::NoAddress);
        assert_eq!(standing[1], Standing::Answered);
    }

    #[test]
    fn each_family_has_its_own_nearest() {
        let mut members = four();
        members[0].s3 = "[fd00::1]:9000".parse().unwrap();
        let live = live(members);
        let names = |family| -> Vec<String> {
            let reachable = reachable_by(family, &live);
            reachable.iter().map(|live| live.member.name.clone()).collect()
        };
        assert_eq!(names(Family::V6), ["a1"]);
        assert_eq!(names(Family::V4), ["a2", "a3", "b1"]);
    }

    #[test]
    fn a_family_whose_nodes_all_leave_has_none_while_the_other_serves() {
        let mut members = four();
        members[0].s3 = "[fd00::1]:9000".parse().unwrap();
        members[0].state = MemberState::Draining;
        assert_eq!(reachable_by(Family::V6, &live(members)), []);
    }
}
