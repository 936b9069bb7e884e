//! Tests of routing: layers, homes and newcomers.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use shoal_net::channel::Channel;
use shoal_net::membership::node_id;
use shoal_policy::fingerprint::Placed as _;
use shoal_policy::route::Stop;
use shoal_policy::{BlockId, Layer, VersionId};

use super::{Cooperation, Member, NEWCOMER, State};

fn cooperation(name: &str, topology: &str) -> Cooperation {
    let channel = Channel::new(name, [""], 8);
    Cooperation::new(name, topology, 3, Arc::new(channel))
}

fn member(name: &str, topology: &str, port: u16) -> Member {
    let address = ([127, 0, 0, 1], port).into();
    Member {
        address,
        generation: 1,
        name: name.into(),
        topology: topology.into(),
        s3: address,
        admin: address,
        weight_percent: 100,
        state: State::Serving,
    }
}

/// Two nodes in one cluster, one in another.
fn members() -> Vec<Member> {
    vec![
        member("a1", "dc1/a/1", 1),
        member("a2", "dc1/a/2", 2),
        member("b1", "dc1/b/1", 3),
    ]
}

fn block(number: u32) -> BlockId {
    BlockId {
        version: VersionId([7; 16]),
        index: number,
    }
}

fn layer_here(node: &Cooperation, number: u32) -> Layer {
    node.hierarchy().layer_here(block(number).place())
}

/// A time at which no node of these tests is a newcomer.
fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + NEWCOMER * 2
}

fn names(stops: &[Stop]) -> String {
    let name = |node| {
        ["a1", "a2", "b1"]
            .into_iter()
            .find(|name| node_id(name) == node)
            .unwrap()
    };
    let word = |stop: &Stop| match *stop {
        Stop::Home(node, layer) => format!("{layer} {}", name(node)),
        Stop::FormerHome(node) => format!("former {}", name(node)),
    };
    let words = stops.iter().map(word);
    words.fold("here".into(), |names, word| format!("{names}, {word}"))
}

#[test]
fn a_node_without_members_asks_the_lake() {
    let alone = cooperation("a1", "dc1/a/1");
    assert!(alone.is_alone());
    assert_eq!(names(&alone.route(block(0), Layer::L1, &[])), "here");
    assert_eq!(layer_here(&alone, 0), Layer(3));
}

#[test]
fn failures_of_a_peer_that_left_and_came_back_are_counted_on() {
    let node = cooperation("a1", "dc1/a/1");
    let with = |members: Vec<Member>| node.update(members.into(), now());
    let fails = || node.peers()[0].note_failure();
    let failures = || node.traffic()["a2"].failures;
    with(vec![member("a2", "dc1/a/2", 2)]);
    fails();
    assert_eq!(failures(), 1);
    with(vec![]);
    assert_eq!(failures(), 1, "it has left");
    with(vec![member("a2", "dc1/a/2", 4)]);
    fails();
    assert_eq!(failures(), 2, "it came back at another address");
}

#[test]
fn layers_are_the_nodes_that_share_the_topology() {
    let node = cooperation("a1", "dc1/a/1");
    node.update(members().into(), now());
    let routes: std::collections::BTreeSet<String> = (0..200)
        .map(|number| names(&node.route(block(number), Layer::L1, &[])))
        .collect();
    let ways: Vec<&str> = routes
        .iter()
        .map(|route| route.split(", former").next().unwrap())
        .collect();
    for expected in ["here, L2 a2, L3 b1", "here, L3 b1", "here, L2 a2"] {
        assert!(
            ways.iter().any(|way| way.starts_with(expected)),
            "{expected}: {routes:?}"
        );
    }
    assert!(
        !routes.iter().any(|route| route.contains("L2 b1")),
        "b1 is of another cluster"
    );
}

#[test]
fn all_nodes_find_the_same_home() {
    let nodes: Vec<_> = members()
        .iter()
        .map(|member| cooperation(&member.name, &member.topology))
        .collect();
    for node in &nodes {
        node.update(members().into(), now());
    }
    for number in 0..100 {
        let at_home: Vec<bool> = nodes
            .iter()
            .map(|node| layer_here(node, number) == Layer(3))
            .collect();
        assert_eq!(at_home.iter().filter(|home| **home).count(), 1, "block {number}");
    }
}

#[test]
fn a_newcomer_asks_the_previous_home_for_a_while() {
    let node = cooperation("a2", "dc1/a/2");
    let mut known = members();
    known[1].generation = now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as u64;
    let asks_former = |node: &Cooperation| {
        (0..200).any(|number| names(&node.route(block(number), Layer::L1, &[])).contains("former"))
    };
    for (age, expected) in [
        (Duration::ZERO, true),
        (NEWCOMER.mul_f64(0.99), true),
        (NEWCOMER, false),
    ] {
        node.update(known.clone().into(), now() + age);
        assert_eq!(asks_former(&node), expected, "{age:?}");
    }
}

#[test]
fn in_a_cluster_of_newcomers_the_latest_asks_the_others() {
    let mut known = members();
    known[2].generation += 1;
    let asks_former = |name: &str, topology: &str| {
        let node = cooperation(name, topology);
        node.update(known.clone().into(), SystemTime::UNIX_EPOCH);
        let route = |number| names(&node.route(block(number), Layer::L1, &[]));
        (0..200).any(|number| route(number).contains("former"))
    };
    assert!(asks_former("b1", "dc1/b/1"));
    assert!(!asks_former("a1", "dc1/a/1"));
}

#[test]
fn a_node_that_failed_is_not_asked_again() {
    let node = cooperation("b1", "dc1/b/1");
    node.update(members().into(), now());
    for number in 0..50 {
        let tried = [node_id("a1")];
        let route = names(&node.route(block(number), Layer::L1, &tried));
        assert!(!route.contains("a1"), "{route}");
        let neither = [node_id("a1"), node_id("a2")];
        assert_eq!(names(&node.route(block(number), Layer::L1, &neither)), "here");
    }
}

#[test]
fn a_draining_node_is_home_to_nothing() {
    let mut draining = members();
    draining[1].state = State::Draining;
    let node = cooperation("a1", "dc1/a/1");
    node.update(members().into(), now());
    node.update(draining.into(), now());
    for number in 0..200 {
        let route = names(&node.route(block(number), Layer::L1, &[]));
        assert!(!route.contains("L2 a2") && !route.contains("L3 a2"), "{route}");
    }
    let gives_away =
        (0..200).any(|number| names(&node.route(block(number), Layer::L1, &[])).contains("former a2"));
    assert!(gives_away);
}

#[test]
fn a_heavier_node_is_home_to_more() {
    let mut uneven = members();
    uneven[0].weight_percent = 300;
    let node = cooperation("b1", "dc1/b/1");
    node.update(uneven.into(), now());
    let at = |name: &str| {
        let home = format!("L3 {name}");
        (0..1_000)
            .filter(|number| names(&node.route(block(*number), Layer::L1, &[])).contains(&home))
            .count()
    };
    assert!(at("a1") > 2 * at("a2"), "{} and {}", at("a1"), at("a2"));
}

#[test]
fn the_nearest_holder_shares_most_of_the_topology_and_can_be_asked() {
    let node = cooperation("a1", "dc1/a/1");
    node.update(members().into(), now());
    let [here, near, far, gone] = ["a1", "a2", "b1", "left"].map(node_id);
    assert_eq!(node.nearest(&[far, near, gone], &[]), Some(near));
    assert_eq!(node.nearest(&[far, near, gone], &[near]), Some(far));
    assert_eq!(node.nearest(&[gone, here], &[]), None);
    let non_members: Vec<_> = node.non_members(&[here, near, gone, far]).collect();
    assert_eq!(non_members, [gone]);
}

#[test]
fn a_node_that_leaves_or_has_left_keeps_no_blocks_of_others() {
    let mut members = members();
    members[2].state = State::Draining;
    let node = cooperation("a1", "dc1/a/1");
    node.update(members.into(), now());
    let keeps = ["a1", "a2", "b1", "left"].map(|name| node.can_keep_blocks(node_id(name)));
    assert_eq!(keeps, [false, true, false, false]);
}

#[test]
fn peers_are_kept_while_they_stay_where_they_are() {
    let node = cooperation("a1", "dc1/a/1");
    node.update(members().into(), now());
    let before = node.peer(node_id("a2")).unwrap();
    node.update(members().into(), now());
    assert!(Arc::ptr_eq(&before, &node.peer(node_id("a2")).unwrap()));
    let mut moved = members();
    moved[1].address.set_port(9);
    node.update(moved.into(), now());
    assert!(!Arc::ptr_eq(&before, &node.peer(node_id("a2")).unwrap()));
    assert!(node.peer(node_id("a1")).is_none(), "nobody asks itself");
}
