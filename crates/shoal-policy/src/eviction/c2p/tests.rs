//! Tables of C2P's decisions, and its invariants under events that are lost, late, repeated or lies.

mod recorded;

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, proptest};

use super::{C2p, Clock, Closeness, Completeness, Event, EventKind, Presence, Reading, Rule, Uses, compare};
use crate::NodeId;
use crate::eviction::tests::leaving_order;
use crate::eviction::{Duel, Eviction, Gwf, Lfuda, Lru, S3Fifo, Sieve};
use EventKind::{Add, Delete, Hit, Miss, Replace};

const A: NodeId = NodeId(1);
const B: NodeId = NodeId(2);

type Printed = C2p<u32>;

/// Objects of four blocks: keys 0 to 3, 4 to 7, 8 to 11.
fn holding(completeness: Completeness, keys: &[u32]) -> Printed {
    let mut policy = C2p::above(Box::new(Closeness::default()), completeness);
    for &key in keys {
        policy.insert(key, 1);
        policy.observe(&key, 4);
    }
    policy
}

const fn event(kind: EventKind, key: u32, (held, read): (u64, u64)) -> Event<u32> {
    Event {
        at: Duration::ZERO,
        key,
        kind,
        held,
        read,
        is_urgent: false,
    }
}

/// An event of an otherwise unknown node.
fn receive(policy: &mut Printed, kind: EventKind, key: u32) {
    let bit = 1 << (key % 4);
    let state = if matches!(kind, Replace | Delete) {
        (0, 0)
    } else {
        (bit, bit)
    };
    policy.receive(NodeId(key.into()), &event(kind, key, state));
}

fn forget_all_but(policy: &mut C2p<u32>, kept: &[NodeId]) {
    let kept = kept.iter().copied().collect();
    for group in policy.groups().collect::<Vec<_>>() {
        policy.forget(group, &kept);
    }
}

fn presence(policy: &Printed, key: u32) -> Presence {
    policy.knowledge(&key).unwrap().presence
}

const NONE: Presence = Presence::new(0, 4);
const QUARTER: Presence = Presence::new(1, 4);
const HALF: Presence = Presence::new(2, 4);
const THREE_QUARTERS: Presence = Presence::new(3, 4);
const WHOLE: Presence = Presence::WHOLE;

#[test]
fn a_part_that_another_node_replaced_leaves_here_too() {
    let mut policy = holding(Completeness::Whole, &[0, 4, 8, 9]);
    for key in [5, 10, 11] {
        receive(&mut policy, Replace, key);
    }
    assert_eq!(leaving_order(policy), [8, 9, 4, 0], "a half, three quarters, all");
}

#[test]
fn a_miss_anywhere_makes_an_object_whole_again() {
    let mut policy = holding(Completeness::Whole, &[0, 4]);
    for key in [1, 1, 1, 5] {
        receive(&mut policy, Replace, key);
    }
    receive(&mut policy, Miss, 1);
    assert_eq!(leaving_order(policy), [4, 0]);
}

#[test]
fn replacements_by_this_node_count_as_well() {
    for completeness in [Completeness::Whole, Completeness::Read] {
        let mut policy = holding(completeness, &[0, 4, 5]);
        assert_eq!(policy.evict(&mut |key| *key == 4), Some((4, 1)));
        assert_eq!(leaving_order(policy), [5, 0]);
    }
}

#[test]
fn a_deleted_object_leaves_first() {
    for completeness in [Completeness::Whole, Completeness::Read] {
        let mut policy = holding(completeness, &[0, 4]);
        receive(&mut policy, Replace, 1);
        receive(&mut policy, Delete, 5);
        assert_eq!(leaving_order(policy), [4, 0]);
    }
}

#[test]
fn the_count_stays_between_what_is_held_and_all() {
    let mut policy = holding(Completeness::Whole, &[0, 1, 4]);
    for _ in 0..9 {
        receive(&mut policy, Replace, 2);
        receive(&mut policy, Miss, 5);
    }
    assert_eq!((presence(&policy, 0), presence(&policy, 4)), (HALF, WHOLE));
    receive(&mut policy, Replace, 5);
    assert_eq!(presence(&policy, 4), THREE_QUARTERS);
}

#[test]
fn presence_comes_before_use() {
    let mut policy = holding(Completeness::Whole, &[0, 4]);
    receive(&mut policy, Replace, 5);
    policy.advance(Duration::from_secs(100));
    policy.touch(&4);
    policy.touch(&4);
    assert_eq!(leaving_order(policy), [4, 0]);
}

/// Events of node A about blocks 0 to 3, of which block 0 is here; and the completeness of the object after
/// them.
#[test]
fn blocks_count_that_readers_used_and_that_some_node_holds() {
    let table: [(&[Event<u32>], Presence); 7] = [
        (&[], WHOLE),
        // Readers use half of the object, and all of that half is cached.
        (&[event(Miss, 1, (0b10, 0b10))], WHOLE),
        // Blocks that no reader used do not count, whether they are there or not.
        (&[event(Add, 1, (0b1110, 0))], WHOLE),
        (
            &[event(Add, 1, (0b1110, 0)), event(Replace, 1, (0b1100, 0))],
            WHOLE,
        ),
        // Blocks that a reader used and that left count as missing.
        (
            &[event(Miss, 1, (0b10, 0b10)), event(Replace, 1, (0, 0b10))],
            HALF,
        ),
        (&[event(Hit, 1, (0b110, 0b1110))], THREE_QUARTERS),
        (&[event(Hit, 1, (0b110, 0b1110)), event(Delete, 1, (0, 0))], NONE),
    ];
    for (events, expected) in table {
        let mut policy = holding(Completeness::Read, &[0]);
        for event in events {
            policy.receive(A, event);
        }
        assert_eq!(presence(&policy, 0), expected, "{events:?}");
    }
}

#[test]
fn a_block_that_several_nodes_hold_counts_once_and_until_the_last_of_them_gives_it_up() {
    let mut policy = holding(Completeness::Read, &[0]);
    for node in [A, B] {
        policy.receive(node, &event(Miss, 1, (0b10, 0b10)));
    }
    policy.receive(A, &event(Replace, 1, (0, 0b10)));
    assert_eq!(presence(&policy, 0), WHOLE);
    forget_all_but(&mut policy, &[A]);
    assert_eq!(presence(&policy, 0), HALF, "a dead node holds nothing");
}

#[test]
fn a_part_that_readers_no_longer_use_stops_counting_after_two_minutes_of_use() {
    for (minutes_of_use, expected) in [(0, QUARTER), (1, QUARTER), (2, WHOLE)] {
        let mut policy = holding(Completeness::Read, &[0]);
        policy.receive(A, &event(Miss, 1, (0b1110, 0b1110)));
        // An hour without any use does not show which part is wanted.
        for minute in 0..minutes_of_use {
            policy.advance(Duration::from_mins(60 + minute));
            policy.touch(&0);
        }
        policy.receive(A, &event(Replace, 1, (0, 0)));
        assert_eq!(presence(&policy, 0), expected, "{minutes_of_use}");
    }
}

#[test]
fn a_reader_brings_what_is_missing_until_it_leaves_again() {
    for (kind, there) in [(Miss, WHOLE), (Add, WHOLE), (Hit, HALF)] {
        let mut policy = holding(Completeness::Read, &[0]);
        policy.receive(A, &event(Miss, 1, (0b10, 0b10)));
        policy.receive(A, &event(Replace, 1, (0, 0b10)));
        policy.receive(B, &event(kind, 0, (0b1, 0b1)));
        assert_eq!(presence(&policy, 0), there, "{kind:?} elsewhere");
        policy.touch(&0);
        assert_eq!(presence(&policy, 0), WHOLE, "a hit here");
        policy.receive(A, &event(Replace, 1, (0, 0b10)));
        assert_eq!(presence(&policy, 0), HALF);
    }
}

#[test]
fn what_was_lost_is_learned_with_the_next_event_and_what_is_late_is_ignored() {
    let mut policy = holding(Completeness::Read, &[0]);
    let at = |secs, event| Event {
        at: Duration::from_secs(secs),
        ..event
    };
    // Misses of 1 and 2 were lost; the hit of 3 reports all three.
    policy.receive(A, &at(5, event(Hit, 3, (0b1110, 0b1110))));
    assert_eq!(presence(&policy, 0), WHOLE);
    policy.receive(A, &at(9, event(Replace, 1, (0b1100, 0b1110))));
    for _ in 0..2 {
        policy.receive(A, &at(7, event(Hit, 1, (0b1110, 0b1110))));
    }
    assert_eq!(presence(&policy, 0), THREE_QUARTERS);
}

#[test]
fn a_directory_tells_of_all_other_nodes_at_once_and_of_some_blocks_at_a_time() {
    let mut policy = holding(Completeness::Read, &[0, 1, 2]);
    policy.learn(&0, 0b11, 0b11);
    policy.learn(&0, 0b1100, 0b1000);
    for key in [0, 2] {
        assert_eq!(policy.remove(&key), Some(1));
    }
    assert_eq!(
        presence(&policy, 1),
        Presence::new(2, 3),
        "0 is elsewhere, 2 is gone"
    );
    policy.learn(&0, 0b11, 0b10);
    assert_eq!(presence(&policy, 1), Presence::new(1, 3));
}

#[test]
fn what_is_known_of_an_object_survives_the_last_block_here_for_a_while() {
    let mut policy = holding(Completeness::Read, &[0, 4]);
    policy.receive(A, &event(Hit, 1, (0b110, 0b1110)));
    policy.receive(A, &event(Hit, 9, (0b110, 0b1110)));
    assert_eq!(policy.evict(&mut |key| *key == 0), Some((0, 1)));
    policy.insert(0, 1);
    policy.insert(8, 1);
    for key in [0, 8] {
        let known = policy.knowledge(&key).unwrap();
        assert_eq!(
            (known.read, known.here, known.others),
            (0b1111, 0b1, vec![(A, 0b110)])
        );
    }
    policy.receive(A, &event(Replace, 9, (0b100, 0b1110)));
    assert_eq!(presence(&policy, 8), HALF);
}

#[test]
fn large_objects_are_judged_in_groups() {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    struct Part(u32);
    impl crate::PartOf for Part {
        type Whole = ();
        fn whole(&self) {}
        fn index(&self) -> u32 {
            self.0
        }
    }
    let mut policy = C2p::above(Box::new(Lru::default()), Completeness::Whole);
    for index in [0, 64, 129] {
        policy.insert(Part(index), 1);
        policy.observe(&Part(index), 130);
    }
    let gone = Event {
        at: Duration::ZERO,
        key: Part(128),
        kind: Replace,
        held: 0,
        read: 0,
        is_urgent: false,
    };
    policy.receive(A, &gone);
    let known = [0, 64, 129].map(|index| policy.knowledge(&Part(index)).unwrap().presence);
    assert_eq!(known, [WHOLE, WHOLE, HALF]);
}

/// The two blocks of incomplete objects, 0 and 4, come before the complete 8; `0` is used last and most.
#[test]
fn the_policy_below_decides_among_the_least_complete() {
    fn order(below: impl Eviction<u32> + Send + 'static) -> Vec<u32> {
        let mut policy = C2p::above(Box::new(below), Completeness::Whole);
        for key in [0, 4, 8] {
            policy.insert(key, 1);
            policy.observe(&key, 4);
        }
        for _ in 0..2 {
            policy.touch(&0);
        }
        policy.advance(Duration::from_secs(1));
        policy.touch(&4);
        for key in [1, 5] {
            policy.receive(A, &event(Replace, key, (0, 0)));
        }
        leaving_order(policy)
    }
    let by_number = [4, 0, 8];
    assert_eq!(order(Lru::default()), [0, 4, 8]);
    assert_eq!(order(Duel::default()), [0, 4, 8], "it begins as LRU");
    assert_eq!(order(Sieve::default()), [0, 4, 8], "both are used");
    assert_eq!(order(Lfuda::default()), by_number);
    assert_eq!(order(S3Fifo::default()), by_number);
    assert_eq!(order(Gwf::default()), by_number);
    assert_eq!(order(Closeness::default()), by_number);
    let rule = Rule {
        clock: Clock::Wall,
        ..Rule::default()
    };
    assert_eq!(order(Closeness::new(rule)), [0, 4, 8], "all uses are close");
}

#[test]
fn where_all_objects_are_complete_the_policy_below_is_alone() {
    let (mut policy, mut alone) = (
        C2p::above(Box::new(S3Fifo::default()), Completeness::Read),
        S3Fifo::default(),
    );
    let keys = (0..4_000u32).map(|n| 4 * (n * n % 97));
    for key in keys {
        let fills = |policy: &mut dyn Eviction<u32>| {
            if policy.contains(&key) {
                policy.touch(&key);
                return None;
            }
            policy.insert(key, 1);
            (policy.len() > 20).then(|| policy.evict(&mut |_| true))
        };
        assert_eq!(fills(&mut policy), fills(&mut alone));
    }
}

#[test]
fn a_miss_elsewhere_names_the_blocks_that_are_read_whole_and_not_here() {
    let policy = holding(Completeness::Whole, &[0]);
    assert_eq!(policy.missing(&event(Miss, 1, (0b10, 0b10)), 4), 0b1110);
    assert_eq!(policy.missing(&event(Hit, 1, (0b10, 0b10)), 4), 0);
    assert_eq!(
        policy.missing(&event(Miss, 40, (0b10, 0b10)), 4),
        0,
        "nothing is known of it"
    );
}

#[test]
fn where_parts_are_read_what_a_nearly_complete_object_lacks_is_named_while_it_is_used() {
    // Events of A about blocks 0 to 3, of which block 0 is here; and the missing blocks that they name.
    let table = [
        (Hit, (0b110, 0b1110), 0b1000),
        (Miss, (0b110, 0b1110), 0b1000),
        (Replace, (0b110, 0b1110), 0),
        (Hit, (0b10, 0b1110), 0),
        (Hit, (0b10, 0b10), 0),
    ];
    for (kind, state, expected) in table {
        let mut policy = holding(Completeness::Read, &[0]);
        let event = event(kind, 1, state);
        policy.receive(A, &event);
        assert_eq!(policy.missing(&event, 4), expected, "{event:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A node holds one block of each object, and no two are used at the same time.
    #[test]
    fn victims_are_those_of_the_papers_comparator(
        steps in vec((0..5u8, 0..10u32), 0..200), is_printed in any::<bool>(), affinity_secs in 0..100u64
    ) {
        let affinity = Duration::from_secs(affinity_secs);
        let rule = Rule {
            reading: if is_printed { Reading::Printed } else { Reading::Inverted },
            affinity,
            clock: Clock::Wall,
        };
        let mut policy = C2p::above(Box::new(Closeness::new(rule)), Completeness::Whole);
        // (key, blocks of the object that are present, uses), least recently used first.
        let mut model: Vec<(u32, u32, Uses)> = Vec::new();
        for (second, (step, object)) in (0..).zip(steps) {
            let (key, now) = (4 * object, Duration::from_secs(7 * second));
            policy.advance(now);
            let place = model.iter().position(|&(other, ..)| other == key);
            match (step, place) {
                (0 | 1, None) => {
                    policy.insert(key, 1);
                    policy.observe(&key, 4);
                    model.push((key, 4, Uses::first(now)));
                }
                (0 | 1, Some(place)) => {
                    policy.touch(&key);
                    let (_, present, uses) = model.remove(place);
                    model.push((key, present, uses.again(now)));
                }
                (2, _) => {
                    receive(&mut policy, Replace, key + 1);
                    place.inspect(|&place| model[place].1 = 1.max(model[place].1 - 1));
                }
                (3, _) => {
                    receive(&mut policy, Miss, key + 1);
                    place.inspect(|&place| model[place].1 = 4);
                }
                _ => {
                    let least = model.iter().map(|&(_, present, _)| present).min();
                    let victim = model
                        .iter()
                        .filter(|&&(_, present, _)| Some(present) == least)
                        .min_by(|a, b| compare(a.2, b.2, affinity, rule.reading, now))
                        .map(|&(key, ..)| key);
                    assert_eq!(policy.evict(&mut |_| true).map(|(key, _)| key), victim);
                    model.retain(|&(key, ..)| Some(key) != victim);
                }
            }
        }
    }

    /// Three nodes hold blocks of the same objects. Events between them are lost, repeated or late, and a
    /// fourth node makes events up. Each node knows its own blocks all the time. Once every state was sent
    /// again and no event was lost, all nodes agree about every object.
    #[test]
    fn nodes_agree_after_a_quiet_moment_whatever_happened_to_their_events(
        steps in vec((0..8u8, 0..3usize, 0..12u32, any::<u64>()), 0..200)
    ) {
        let mut nodes = [(); 3].map(|()| C2p::above(Box::new(Lru::default()), Completeness::Read));
        let mut on_the_way: Vec<(usize, Event<u32>)> = Vec::new();
        let mut now = Duration::ZERO;
        for (step, node, key, random) in steps {
            now += Duration::from_secs(3);
            nodes[node].advance(now);
            match step {
                0 | 1 if key as usize % 3 != node => {}
                0 | 1 if nodes[node].contains(&key) => nodes[node].touch(&key),
                0 | 1 => {
                    nodes[node].insert(key, 1);
                    nodes[node].observe(&key, 4);
                }
                2 => _ = nodes[node].evict(&mut |_| true),
                3 => _ = nodes[node].remove(&key),
                4 => {
                    let events = nodes[node].take_events();
                    on_the_way.extend(events.into_iter().map(|event| (node, event)));
                }
                // One arrives, maybe an old one, maybe not for the last time; others never do.
                5 | 6 if !on_the_way.is_empty() => {
                    let place = random as usize % on_the_way.len();
                    let (from, event) = on_the_way[place];
                    nodes[node].receive(NodeId(from as u64), &event);
                    if random % 3 == 0 {
                        on_the_way.remove(place);
                    }
                }
                _ => {
                    let kind = EventKind::ALL[random as usize % 5];
                    let at = Duration::from_secs(random % 1_000);
                    let lie = Event { at, ..event(kind, key, (random, random.rotate_left(7))) };
                    nodes[node].receive(NodeId(99), &lie);
                }
            }
            for node in &nodes {
                let held = (0..12u32).filter(|key| node.contains(key)).count();
                assert_eq!(node.len(), held);
                assert!(node.knowledge(&key).is_none_or(|known| known.presence <= Presence::WHOLE));
            }
        }
        // The liar is found out, and readers go on: after two epochs only the blocks that they use count.
        for round in 0..4 {
            now += Duration::from_mins(1);
            let mut sent = Vec::new();
            for (place, node) in nodes.iter_mut().enumerate() {
                node.advance(now);
                forget_all_but(node, &[0, 1, 2].map(NodeId));
                for key in 0..12 {
                    node.touch(&key);
                }
                sent.extend(node.take_events().into_iter().map(|event| (place, event)));
            }
            for (from, event) in sent {
                for (place, node) in nodes.iter_mut().enumerate() {
                    if place != from {
                        node.receive(NodeId(from as u64), &event);
                    }
                }
            }
            if round < 3 {
                continue;
            }
            for key in 0..12 {
                let known = nodes.iter().filter(|node| node.contains(&key));
                let known = known.map(|node| node.knowledge(&key).map(|known| known.presence));
                let known: Vec<_> = known.collect();
                assert!(known.iter().all(|presence| *presence == Some(Presence::WHOLE)), "{key}: {known:?}");
            }
        }
    }
}

#[test]
fn a_block_that_is_set_aside_is_here_for_its_object_and_is_never_a_victim() {
    let mut policy = holding(Completeness::Whole, &[0, 1, 2, 3]);
    policy.take_events();
    for key in [0, 1, 2] {
        assert_eq!(policy.set_aside(&key), Some(1));
    }
    assert_eq!(presence(&policy, 3), WHOLE);
    policy.advance(Duration::from_mins(2));
    policy.touch(&0);
    let sent = |policy: &mut Printed| {
        let events = policy.take_events();
        events
            .iter()
            .map(|event| (event.kind, event.key))
            .collect::<Vec<_>>()
    };
    assert_eq!(sent(&mut policy), [(Hit, 0)]);

    policy.take_back(0, 1);
    policy.left_aside(&1);
    assert_eq!(sent(&mut policy), [(Replace, 1)]);
    assert_eq!(presence(&policy, 0), THREE_QUARTERS);
    let victims = std::iter::from_fn(|| policy.evict(&mut |_| true).map(|(key, _)| key));
    let victims: std::collections::BTreeSet<_> = victims.collect();
    assert_eq!(victims, [0, 3].into());
}
