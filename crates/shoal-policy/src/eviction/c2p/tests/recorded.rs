//! The events that a node records for others.

use std::time::Duration;

use super::{A, Printed, event, holding};
use crate::eviction::Eviction as _;
use crate::eviction::c2p::Completeness;
use crate::eviction::c2p::EventKind::{Add, Delete, Hit, Miss, Replace};

#[test]
fn events_are_taken_in_their_order_with_what_the_node_has_by_then() {
    let mut policy = holding(Completeness::Read, &[0, 1, 4]);
    policy.added(&4);
    policy.evict(&mut |key| *key == 1);
    policy.deleted(&4);
    let sent = |policy: &mut Printed| -> Vec<_> {
        let events = policy.take_events().into_iter();
        events
            .map(|event| (event.kind, event.key, event.held, event.read))
            .collect()
    };
    let expected = [
        (Miss, 0, 0b1, 0b11),
        (Miss, 1, 0b1, 0b11),
        (Add, 4, 0b1, 0b1),
        (Replace, 1, 0b1, 0b11),
        (Delete, 4, 0b1, 0b1),
    ];
    assert_eq!(sent(&mut policy), expected);
    assert_eq!(sent(&mut policy), []);
}

#[test]
fn only_the_first_block_that_leaves_a_complete_group_is_urgent() {
    for completeness in [Completeness::Whole, Completeness::Read] {
        let mut policy = holding(completeness, &[0, 1, 4, 8]);
        // Another node holds key 4, too.
        policy.receive(A, &event(Miss, 4, (0b1, 0b1)));
        policy.take_events();
        let mut is_urgent = |key| {
            policy.evict(&mut |other| *other == key).unwrap();
            let has_urgent = policy.has_urgent();
            let [sent] = policy.take_events()[..] else {
                panic!("an eviction is one event");
            };
            assert_eq!((sent.kind, sent.is_urgent), (Replace, has_urgent));
            sent.is_urgent
        };
        assert_eq!([0, 1, 8].map(&mut is_urgent), [true, false, true]);
        let is_copy = completeness == Completeness::Read;
        assert_eq!(
            is_urgent(4),
            !is_copy,
            "a block that another node holds is not missing"
        );
        policy.insert(0, 1);
        assert!(!policy.has_urgent(), "only an eviction is urgent");
        policy.evict(&mut |other| *other == 0).unwrap();
        policy.insert(0, 1);
        assert!(policy.has_urgent(), "until its event is taken");
    }
}

#[test]
fn a_hit_is_told_when_it_is_news_and_now_and_then() {
    let mut policy = holding(Completeness::Read, &[0, 1]);
    policy.take_events();
    let mut sent = |secs, key| {
        policy.advance(Duration::from_secs(secs));
        policy.touch(&key);
        let events = policy.take_events();
        events.into_iter().map(|event| event.kind).collect::<Vec<_>>()
    };
    assert_eq!(sent(1, 0), [], "the miss said so");
    assert_eq!(sent(29, 1), []);
    assert_eq!(sent(30, 0), [Hit]);
    assert_eq!(sent(31, 1), [], "sent with the other");
    assert_eq!(sent(60, 1), [Hit]);
    assert_eq!(sent(125, 0), [Hit]);
    assert_eq!(sent(126, 1), []);
}

#[test]
fn events_that_nobody_takes_are_bounded() {
    let mut policy = holding(Completeness::Read, &[]);
    for key in 0..5_000 {
        policy.insert(4 * key, 1);
    }
    assert_eq!(policy.lost(), 5_000 - 4_096);
    assert_eq!(policy.take_events().len(), 4_096);
}

#[test]
fn a_group_whose_event_was_lost_is_told_with_its_next_hit() {
    let mut policy = holding(Completeness::Read, &[0]);
    for key in 1..=4_096 {
        policy.insert(4 * key, 1);
    }
    assert_eq!(policy.lost(), 1, "the miss of 0");
    policy.take_events();
    policy.touch(&0);
    let sent = policy.take_events();
    assert_eq!(
        sent.iter()
            .map(|event| (event.kind, event.key))
            .collect::<Vec<_>>(),
        [(Hit, 0)]
    );
}
