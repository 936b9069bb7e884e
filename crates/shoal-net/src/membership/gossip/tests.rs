//! Clusters in virtual time, over a network that loses, delays and partitions.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::{Gossip, Member, State};
use crate::membership::seeds::{GREETING, GREETING_ALONE};

/// Latency of a datagram.
const DELAY: Duration = Duration::from_millis(2);

struct Cluster {
    now: Instant,
    start: Instant,
    nodes: Vec<Gossip>,
    /// Nodes that neither send nor receive.
    dead: BTreeSet<usize>,
    /// Nodes that only reach each other.
    island: BTreeSet<usize>,
    /// Nodes that send but do not receive.
    deaf: BTreeSet<usize>,
    /// Nodes that receive everything but send to no other node.
    mute: BTreeSet<usize>,
    on_the_way: Vec<(Instant, usize, usize, Vec<u8>)>,
    /// All messages sent, and their receivers.
    recorded: Vec<(usize, Vec<u8>)>,
    loss: f64,
    chance: fastrand::Rng,
}

fn member(node: usize) -> Member {
    let address = SocketAddr::from(([10, 0, 0, node as u8], 9200));
    Member {
        name: format!("node-{node:02}"),
        topology: "dc1/a/r1".into(),
        generation: 1,
        weight_percent: 100,
        ..Member::unknown_at(address)
    }
}

impl Cluster {
    /// Nodes that have all greeted the first one.
    fn start(nodes: usize, loss: f64, seed: u64) -> Self {
        let now = crate::time::clock::runtime_instant();
        let mut cluster = Self {
            now,
            start: now,
            nodes: (0..nodes)
                .map(|node| Gossip::new(member(node), seed + node as u64))
                .collect(),
            dead: BTreeSet::new(),
            island: BTreeSet::new(),
            deaf: BTreeSet::new(),
            mute: BTreeSet::new(),
            on_the_way: Vec::new(),
            recorded: Vec::new(),
            loss,
            chance: fastrand::Rng::with_seed(seed),
        };
        for node in 0..nodes {
            cluster.nodes[node].greet(member(0).address, now);
        }
        cluster
    }

    /// Advances time, a millisecond at a time, until `done` or for `at_most`. Returns the time that passed.
    fn pass(&mut self, at_most: Duration, done: impl Fn(&Self) -> bool) -> Option<Duration> {
        let since = self.now;
        while self.now - since < at_most {
            if done(self) {
                return Some(self.now - since);
            }
            self.now += Duration::from_millis(1);
            self.step();
        }
        done(self).then_some(at_most)
    }

    fn step(&mut self) {
        let (due, later) = std::mem::take(&mut self.on_the_way)
            .into_iter()
            .partition(|(at, ..)| *at <= self.now);
        self.on_the_way = later;
        for (_, from, to, message) in due {
            let cut = self.island.contains(&from) != self.island.contains(&to)
                || self.deaf.contains(&to)
                || self.mute.contains(&from);
            if !cut && !self.dead.contains(&to) && self.chance.f64() >= self.loss {
                self.nodes[to].receive(&message, self.now).unwrap();
            }
        }
        for node in 0..self.nodes.len() {
            if self.dead.contains(&node) {
                continue;
            }
            self.nodes[node].act(self.now);
            for (to, message) in self.nodes[node].take_outbox() {
                let SocketAddr::V4(to) = to else { panic!("{to}") };
                let to = usize::from(to.ip().octets()[3]);
                self.recorded.push((to, message.clone()));
                self.on_the_way.push((self.now + DELAY, node, to, message));
            }
        }
    }

    /// Advances time while nodes contact the seeds (the first two nodes), as running nodes do. Returns for
    /// each node the times at which its members changed, and the members at those times.
    fn history(&mut self, length: Duration) -> Vec<Vec<(Duration, Vec<String>)>> {
        let since = self.now;
        let mut history = vec![Vec::new(); self.nodes.len()];
        let mut seen: Vec<_> = (0..self.nodes.len()).map(|node| self.seen_by(node)).collect();
        let mut greet_at: Vec<Instant> = (1..=self.nodes.len())
            .map(|node| since + GREETING.mul_f64(node as f64 / self.nodes.len() as f64))
            .collect();
        while self.now - since < length {
            self.now += Duration::from_millis(1);
            self.step();
            for node in 0..self.nodes.len() {
                let gossip = &mut self.nodes[node];
                if self.now >= greet_at[node] {
                    for seed in [0, 1] {
                        gossip.greet(member(seed).address, self.now);
                    }
                    let alone = gossip.members().len() == 1;
                    greet_at[node] = self.now + if alone { GREETING_ALONE } else { GREETING };
                }
                // Updates that add or remove no member, such as a new generation, do not count.
                if gossip.take_changed() && self.seen_by(node) != seen[node] {
                    seen[node] = self.seen_by(node);
                    history[node].push((self.now - since, seen[node].clone()));
                }
            }
        }
        history
    }

    /// Returns whether every living node sees exactly `expected`.
    fn all_see(&self, expected: &[usize]) -> bool {
        let expected: Vec<String> = expected.iter().map(|node| member(*node).name).collect();
        self.living().all(|node| self.seen_by(node) == expected)
    }

    fn living(&self) -> impl Iterator<Item = usize> {
        (0..self.nodes.len()).filter(|node| !self.dead.contains(node))
    }

    fn seen_by(&self, node: usize) -> Vec<String> {
        self.nodes[node]
            .members()
            .into_iter()
            .map(|member| member.name)
            .collect()
    }
}

#[test]
fn nodes_that_know_one_other_learn_of_all() {
    for nodes in [2, 3, 10, 40] {
        let everyone: Vec<usize> = (0..nodes).collect();
        let mut cluster = Cluster::start(nodes, 0.0, 1);
        let took = cluster.pass(Duration::from_secs(20), |cluster| cluster.all_see(&everyone));
        assert!(took.is_some(), "{nodes} nodes did not find together");
    }
}

#[test]
fn a_dead_node_is_gone_at_all_nodes_within_five_seconds() {
    for (nodes, seed) in [(3, 1), (3, 2), (10, 3), (40, 4)] {
        let everyone: Vec<usize> = (0..nodes).collect();
        let mut cluster = Cluster::start(nodes, 0.0, seed);
        cluster
            .pass(Duration::from_secs(20), |cluster| cluster.all_see(&everyone))
            .unwrap();
        cluster.dead.insert(1);
        let others: Vec<usize> = everyone.iter().copied().filter(|node| *node != 1).collect();
        let took = cluster.pass(Duration::from_secs(5), |cluster| cluster.all_see(&others));
        assert!(took.is_some(), "{nodes} nodes still believe in the dead one");
    }
}

/// How a node can be cut off in one direction.
#[derive(Clone, Copy, Debug, PartialEq)]
enum HalfDead {
    Deaf,
    Mute,
}

impl HalfDead {
    /// A cluster in which all nodes know each other and `victim` has just become half dead.
    fn strike(self, victim: usize, nodes: usize) -> Cluster {
        let everyone: Vec<usize> = (0..nodes).collect();
        let mut cluster = Cluster::start(nodes, 0.0, 1);
        cluster
            .pass(Duration::from_secs(20), |cluster| cluster.all_see(&everyone))
            .unwrap();
        match self {
            Self::Deaf => cluster.deaf.insert(victim),
            Self::Mute => cluster.mute.insert(victim),
        };
        cluster
    }

    /// How often the members of another node may change, and by when they change for the last time.
    fn changes(self) -> (usize, Duration) {
        match self {
            // The victim leaves.
            Self::Mute => (1, Duration::from_secs(5)),
            // The others still receive from the victim when it declares them dead, from two seconds on and
            // every half second. A node that learns this rejoins at once with a higher generation, but
            // forgets which nodes it has suspected. Each node does so once, because the deaf victim never
            // receives the higher generation.
            Self::Deaf => (1 + 2 * 10, Duration::from_secs(7)),
        }
    }
}

#[test]
fn a_node_that_neither_hears_nor_is_heard_leaves_once_and_stays_away() {
    // A victim may be a seed, which every node contacts.
    for (victim, nodes, minutes) in [(2, 3, 10), (0, 3, 10), (4, 5, 10), (0, 40, 3)] {
        for half_dead in [HalfDead::Deaf, HalfDead::Mute] {
            let history = half_dead
                .strike(victim, nodes)
                .history(Duration::from_mins(minutes));
            let others = (0..nodes).filter(|node| *node != victim);
            let rest: Vec<String> = others.clone().map(|node| member(node).name).collect();
            let name = member(victim).name;
            let (changes_max, settled_by) = half_dead.changes();
            for node in others {
                let case = format!("{half_dead:?} {name} of {nodes}, as node {node} sees it");
                let changes = &history[node];
                let (settled, last) = changes.last().expect(&case);
                assert_eq!(*last, rest, "{case}");
                assert!(*settled < settled_by, "{case}: {settled:?}");
                assert!(changes.len() <= changes_max, "{case}: {} changes", changes.len());
                let mut gone = changes.iter().skip_while(|(_, seen)| seen.contains(&name));
                assert!(
                    gone.all(|(_, seen)| !seen.contains(&name)),
                    "{case}: it came back"
                );
            }
            let (_, last) = history[victim].last().unwrap();
            assert_eq!(*last, [name], "{half_dead:?} among {nodes}: it talks with nobody");
        }
    }
}

#[test]
fn a_half_dead_node_is_taken_back_within_seconds() {
    for (victim, nodes) in [(1, 3), (2, 3), (1, 5), (4, 5), (0, 40)] {
        for half_dead in [HalfDead::Deaf, HalfDead::Mute] {
            let case = format!("{half_dead:?} node {victim} of {nodes}");
            let name = member(victim).name;
            let mut cluster = half_dead.strike(victim, nodes);
            cluster.history(Duration::from_mins(1));
            let missed = |node| node == victim || !cluster.seen_by(node).contains(&name);
            assert!((0..nodes).all(missed), "{case}");
            cluster.deaf.clear();
            cluster.mute.clear();
            let history = cluster.history(Duration::from_secs(30));
            let everyone: Vec<usize> = (0..nodes).collect();
            assert!(cluster.all_see(&everyone), "{case}");
            for other in everyone.into_iter().filter(|node| *node != victim) {
                let with_it = history[other]
                    .iter()
                    .rev()
                    .take_while(|(_, seen)| seen.contains(&name));
                let (back, _) = with_it.last().expect(&case);
                assert!(*back < Duration::from_secs(5), "{case}: {back:?}");
            }
        }
    }
}

#[test]
fn a_node_declared_dead_rejoins_by_itself() {
    let mut cluster = Cluster::start(4, 0.0, 5);
    cluster
        .pass(Duration::from_secs(20), |cluster| cluster.all_see(&[0, 1, 2, 3]))
        .unwrap();
    cluster.dead.insert(2);
    cluster
        .pass(Duration::from_secs(5), |cluster| cluster.all_see(&[0, 1, 3]))
        .unwrap();
    cluster.dead.remove(&2);
    let took = cluster.pass(Duration::from_secs(10), |cluster| cluster.all_see(&[0, 1, 2, 3]));
    assert!(took.is_some());
}

#[test]
fn lost_datagrams_declare_no_node_dead() {
    let mut cluster = Cluster::start(8, 0.03, 6);
    let everyone: Vec<usize> = (0..8).collect();
    cluster
        .pass(Duration::from_secs(20), |cluster| cluster.all_see(&everyone))
        .unwrap();
    let lost_one = cluster.pass(Duration::from_mins(2), |cluster| !cluster.all_see(&everyone));
    assert_eq!(lost_one, None);
    assert!(cluster.now - cluster.start >= Duration::from_mins(2));
}

#[test]
fn two_halves_of_a_cluster_find_together_again() {
    let mut cluster = Cluster::start(6, 0.0, 7);
    cluster
        .pass(Duration::from_secs(20), |cluster| {
            cluster.all_see(&[0, 1, 2, 3, 4, 5])
        })
        .unwrap();
    cluster.island = BTreeSet::from([3, 4, 5]);
    let apart = |cluster: &Cluster| {
        (0..3).all(|node| cluster.seen_by(node).len() == 3)
            && (3..6).all(|node| cluster.seen_by(node).len() == 3)
    };
    cluster.pass(Duration::from_secs(15), apart).unwrap();
    cluster.island.clear();
    let took = cluster.pass(Duration::from_secs(30), |cluster| {
        cluster.all_see(&[0, 1, 2, 3, 4, 5])
    });
    assert!(took.is_some());
}

#[test]
fn a_node_that_leaves_is_gone_at_once_and_a_draining_node_stays() {
    let mut cluster = Cluster::start(3, 0.0, 8);
    cluster
        .pass(Duration::from_secs(20), |cluster| cluster.all_see(&[0, 1, 2]))
        .unwrap();
    let now = cluster.now;
    cluster.nodes[1].declare(State::Draining, SystemTime::UNIX_EPOCH, now);
    let drains = |cluster: &Cluster| {
        let seen = cluster.nodes[2].members();
        seen.len() == 3 && seen[1].state == State::Draining
    };
    cluster.pass(Duration::from_secs(3), drains).unwrap();
    assert!(cluster.nodes[1].take_changed());
    let now = cluster.now;
    cluster.nodes[1].leave(now);
    cluster.step();
    cluster.dead.insert(1);
    let took = cluster.pass(Duration::from_secs(1), |cluster| cluster.all_see(&[0, 2]));
    assert!(took.is_some());
}

#[test]
fn garbage_is_refused_and_changes_nothing() {
    let mut cluster = Cluster::start(2, 0.0, 9);
    cluster
        .pass(Duration::from_secs(20), |cluster| cluster.all_see(&[0, 1]))
        .unwrap();
    let now = cluster.now;
    for length in 0..200 {
        let garbage: Vec<u8> = (0..length).map(|_| cluster.chance.u8(..)).collect();
        // Rejected or ignored, but never accepted.
        let _ = cluster.nodes[0].receive(&garbage, now);
    }
    assert!(cluster.all_see(&[0, 1]));
}

#[test]
fn all_nodes_hear_that_a_node_drains_and_that_it_serves_again() {
    let mut cluster = Cluster::start(5, 0.0, 8);
    let everyone = [0, 1, 2, 3, 4];
    cluster
        .pass(Duration::from_secs(20), |cluster| cluster.all_see(&everyone))
        .unwrap();
    let later = SystemTime::UNIX_EPOCH + Duration::from_secs(3);
    for (state, generation) in [(State::Draining, 2), (State::Serving, 3_000)] {
        let now = cluster.now;
        cluster.nodes[2].declare(state, later, now);
        let received = |cluster: &Cluster| {
            cluster.all_see(&everyone)
                && cluster.living().all(|node| {
                    let drainer = &cluster.nodes[node].members()[2];
                    (drainer.state, drainer.generation) == (state, generation)
                })
        };
        assert!(
            cluster.pass(Duration::from_secs(5), received).is_some(),
            "{state:?}"
        );
    }
}

impl Cluster {
    /// A cluster of four nodes that all see each other and have a past: one drained and serves again, one
    /// died and was started again, one left and was started again.
    fn with_a_past(seed: u64) -> Self {
        let mut cluster = Self::start(4, 0.0, seed);
        let everyone = [0, 1, 2, 3];
        let second = Duration::from_secs(1);
        cluster
            .pass(20 * second, |cluster| cluster.all_see(&everyone))
            .unwrap();
        cluster.declare(0, State::Draining, 2);
        cluster.pass(3 * second, |_| false);
        cluster.declare(0, State::Serving, 3);
        cluster.dead.insert(1);
        cluster
            .pass(10 * second, |cluster| cluster.all_see(&[0, 2, 3]))
            .unwrap();
        cluster.starts_again(1, 5_000);
        cluster
            .pass(20 * second, |cluster| cluster.all_see(&everyone))
            .unwrap();
        let now = cluster.now;
        cluster.nodes[2].leave(now);
        cluster.step();
        cluster.dead.insert(2);
        cluster
            .pass(10 * second, |cluster| cluster.all_see(&[0, 1, 3]))
            .unwrap();
        cluster.starts_again(2, 9_000);
        cluster
            .pass(20 * second, |cluster| cluster.all_see(&everyone))
            .unwrap();
        cluster.pass(10 * second, |_| false);
        cluster
    }

    fn declare(&mut self, node: usize, state: State, seconds: u64) {
        let today = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let now = self.now;
        self.nodes[node].declare(state, today, now);
    }

    fn starts_again(&mut self, node: usize, generation: u64) {
        let me = Member {
            generation,
            ..member(node)
        };
        self.nodes[node] = Gossip::new(me, generation);
        self.nodes[node].greet(member(0).address, self.now);
        self.dead.remove(&node);
    }
}

#[test]
fn a_replayed_datagram_removes_no_node() {
    for (seed, misled) in [(1, false), (2, true), (3, false), (4, true)] {
        let mut cluster = Cluster::with_a_past(seed);
        let everyone = [0, 1, 2, 3];
        let mut tape = std::mem::take(&mut cluster.recorded);
        cluster.chance.shuffle(&mut tape);
        for (to, message) in tape {
            // To the original receiver, or to any node.
            let to = if misled { cluster.chance.usize(..4) } else { to };
            let _ = cluster.nodes[to].receive(&message, cluster.now);
            cluster.now += Duration::from_millis(1);
            cluster.step();
            assert!(cluster.all_see(&everyone), "a node was put out (seed {seed})");
        }
        cluster.pass(Duration::from_secs(20), |_| false);
        assert!(cluster.all_see(&everyone));
        let serves = |node: &Gossip| node.members().iter().all(|member| member.state == State::Serving);
        assert!(
            cluster.nodes.iter().all(serves),
            "no former state is back (seed {seed})"
        );
    }
}
