//! The advice for small traces.

use std::num::NonZeroU64;

use shoal_policy::Found;
use shoal_policy::fingerprint::Fingerprint;

use super::{Advice, AdviceRequest, Choice, LAKE_COST, Mode, WholeChoice};
use crate::block::Granularity;
use crate::chance::{Chance, Zipf};
use crate::clock::Time;
use crate::trace::{Access, Accesses, Operation, TraceError};
use crate::units::Capacity;

/// Half of the reads go to ten objects, half to a thousand others; two clients.
#[expect(clippy::unnecessary_wraps, reason = "it stands for a trace that is opened")]
fn trace() -> Result<Accesses, TraceError> {
    let (law, mut chance) = (Zipf::new(1000, 0.0), Chance::new(1));
    let access = move |number: u32| {
        let hot = chance.happens(0.5);
        Ok(Access {
            at: Time::ZERO,
            client: number % 2,
            object: if hot {
                law.draw(&mut chance) % 10
            } else {
                10 + law.draw(&mut chance)
            },
            object_bytes: 100,
            offset_bytes: 0,
            bytes: 100,
            operation: Operation::Read,
        })
    };
    Ok(Box::new((0..50_000).map(access)))
}

fn request(capacity: Option<Capacity>) -> AdviceRequest {
    AdviceRequest {
        granularity: Granularity::Objects,
        capacity,
        nodes: 2,
        lake_cost: LAKE_COST,
        threads: 2,
    }
}

#[test]
fn advice_follows_from_the_trace() {
    let advice = request(Some(Capacity::Bytes(10_000)))
        .ask(&trace, &mut |_| ())
        .unwrap();
    assert_eq!(
        (advice.working_set.blocks, advice.working_set.bytes),
        (1010, 101_000)
    );
    let lru = |bytes: u64| {
        let mut rows = advice.policies.iter();
        rows.find(|row| row.policy.to_string() == "lru" && row.capacity_bytes == bytes)
            .unwrap()
            .miss_ratio
    };
    assert!(lru(5_000) > lru(10_000) && lru(10_000) > lru(20_000));
    let on_curve = advice.curve.iter().find(|(size, _)| *size >= 10_000).unwrap();
    assert!(
        (on_curve.1 - lru(10_000)).abs() < 0.02,
        "{on_curve:?} and {}",
        lru(10_000)
    );
    assert_eq!(advice.splits.len(), 5);
    let text = advice.text();
    for part in [
        "98.6 KiB",
        "half of it",
        "twice as much",
        "read least from the lake at this size, within 0.5 points",
        "follows `duel` by default",
        "by 2 clients",
        "L1",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(advice.plot().svg().contains("GiB"));
}

#[test]
fn a_trace_of_fewer_clients_than_nodes_says_little_about_nodes() {
    let says_little = |nodes| {
        let request = AdviceRequest {
            nodes,
            ..request(Some(Capacity::Bytes(10_000)))
        };
        let text = request.ask(&trace, &mut |_| ()).unwrap().text();
        text.contains("this says little about nodes")
    };
    assert!(says_little(4) && !says_little(2));
}

#[test]
fn advice_names_the_best_policy_and_shows_the_default_beside_it() {
    // A scan over and over, a little larger than the cache: a policy that evicts the least recently used
    // block never hits.
    let access = |number: u32| Access {
        at: Time::ZERO,
        client: 0,
        object: number % 60,
        object_bytes: 100,
        offset_bytes: 0,
        bytes: 100,
        operation: Operation::Read,
    };
    let open = || Ok(Box::new((0..6_000).map(access).map(Ok)) as Accesses);
    let mut advice = request(Some(Capacity::Bytes(5_000)))
        .ask(&open, &mut |_| ())
        .unwrap();
    let [mut best, mut followed] = ["lfu", "duel"].map(|name| {
        let mut rows = advice.policies.iter();
        rows.find(|row| row.policy.to_string() == name).unwrap().clone()
    });
    (best.byte_miss_ratio, followed.byte_miss_ratio) = (0.20, 0.25);
    (best.capacity_bytes, followed.capacity_bytes) = (5_000, 5_000);
    advice.policies = vec![followed, best];
    let text = advice.text();
    assert!(text.contains("Of the policies, `lfu` reads least"), "{text}");
    assert!(
        text.contains("`duel` by default, which misses 5.0 points more of the bytes than `lfu`"),
        "{text}"
    );
}

#[test]
fn without_a_size_the_least_that_is_good_enough_is_told() {
    let advice = request(None).ask(&trace, &mut |_| ()).unwrap();
    assert!(
        (90_000..=101_000).contains(&advice.capacity_bytes),
        "{}",
        advice.capacity_bytes
    );
    assert!(advice.text().contains("the least that misses hardly more"));
}

/// Four clients, one for each node, of which each reads all of its objects in turn, `rounds` times. `object`
/// names the object for a client and a position below `objects`.
fn in_turn(
    objects: u32,
    rounds: u32,
    object: impl Fn(u32, u32) -> u32 + Copy + 'static,
    node_bytes: u64,
) -> Advice {
    let access = move |number: u32| {
        let (client, position) = (number % 4, number / 4);
        Access {
            at: Time(u64::from(number)),
            client,
            object: object(client, position),
            object_bytes: 100,
            offset_bytes: 0,
            bytes: 100,
            operation: Operation::Read,
        }
    };
    let reads = objects * rounds * 4;
    let open = move || Ok(Box::new((0..reads).map(access).map(Ok)) as Accesses);
    let request = AdviceRequest {
        nodes: 4,
        ..request(Some(Capacity::Bytes(4 * node_bytes)))
    };
    request.ask(&open, &mut |_| ()).unwrap()
}

#[test]
fn clients_that_read_their_own_objects_speak_for_a_directory() {
    // Forty objects for each client, and room for fifty on its node. In a hierarchy three of four of them are
    // at home on other nodes.
    let advice = in_turn(40, 20, |client, position| client * 40 + position % 40, 5_000);
    let Some(Choice::Clear { mode, cheaper_by }) = advice.choice else {
        panic!("{:?}", advice.modes)
    };
    assert_eq!(mode, Mode::Directory);
    assert!((0.05..1.0).contains(&cheaper_by), "{cheaper_by}");
    let [hierarchy, directory, _] = advice.modes.as_slice() else {
        panic!("{:?}", advice.modes)
    };
    assert_eq!(
        (directory.sources.lake.requests, directory.between_nodes.requests),
        (160, 0)
    );
    assert!(hierarchy.between_nodes.requests > 0);
    let text = advice.text();
    assert!(
        text.contains("Choose `mode = \"directory\"` below [cooperation]: it costs"),
        "{text}"
    );
    assert!(text.contains("more local hits"), "{text}");
}

#[test]
fn with_little_room_for_what_all_read_copies_cost_more_than_homes_unless_last_copies_outlive_others() {
    // Any of a hundred objects, and room for forty on each of four nodes: homes hold nearly all of them once,
    // and readers any forty, some of them four times.
    let any = |client, position| {
        let Fingerprint(number) = Fingerprint::of_number(u64::from(client) << 32 | u64::from(position));
        (number % 100) as u32
    };
    let advice = in_turn(100, 20, any, 4_000);
    let Some(Choice::Clear { mode, .. }) = advice.choice else {
        panic!("{:?}", advice.modes)
    };
    assert_eq!(mode, Mode::Directory, "{}", advice.text());
    let [hierarchy, directory, duel] = advice.modes.as_slice() else {
        panic!("{:?}", advice.modes)
    };
    assert!(directory.cost < hierarchy.cost && hierarchy.cost < duel.cost);
    assert!(advice.text().contains("less from the lake"), "{}", advice.text());
}

#[test]
fn with_room_for_everything_everywhere_no_mode_is_better() {
    let advice = in_turn(50, 20, |_, position| position % 50, 100_000);
    assert_eq!(advice.choice, Some(Choice::Tie), "{:?}", advice.modes);
    let text = advice.text();
    assert!(text.contains("too close to choose by"), "{text}");
    assert!(!text.contains("Choose `mode"), "{text}");
}

#[test]
fn a_single_node_has_no_mode_to_choose() {
    let single = AdviceRequest {
        nodes: 1,
        ..request(None)
    };
    let advice = single.ask(&trace, &mut |_| ()).unwrap();
    assert_eq!((advice.modes.len(), advice.choice), (0, None));
    assert!(!advice.text().contains("directory"), "{}", advice.text());
}

/// Reads of objects of several blocks by Zipf's law, ten a second: all of each, or of its first block only.
fn of_several_blocks(wanted_blocks: u64) -> Advice {
    let open = move || {
        let (law, mut chance) = (Zipf::new(200, 0.9), Chance::new(3));
        let access = move |number: u32| {
            Ok(Access {
                at: Time(u64::from(number) * 100_000_000),
                client: number % 4,
                object: law.draw(&mut chance),
                object_bytes: 160,
                offset_bytes: 0,
                bytes: wanted_blocks * 10,
                operation: Operation::Read,
            })
        };
        Ok(Box::new((0..10_000).map(access)) as Accesses)
    };
    let request = AdviceRequest {
        granularity: Granularity::Blocks(NonZeroU64::new(10).unwrap()),
        nodes: 4,
        ..request(Some(Capacity::Bytes(8_000)))
    };
    request.ask(&open, &mut |_| ()).unwrap()
}

#[test]
fn readers_of_whole_objects_speak_for_c2p() {
    let advice = of_several_blocks(16);
    let [alone, above] = advice.whole_objects.unwrap();
    assert_eq!((alone.reads(), above.reads()), (10_000, 10_000));
    assert!(above.share(Found::Complete) > alone.share(Found::Complete) + 0.01);
    assert!(above.share(Found::Partial) < alone.share(Found::Partial) / 2.0);
    assert_eq!(advice.whole_choice, Some(WholeChoice::Take), "{}", advice.text());
    let text = advice.text();
    assert!(text.contains("10000 reads want several blocks"), "{text}");
    assert!(
        text.contains("Choose `policy = \"c2p+duel\"` below [store]:"),
        "{text}"
    );
}

#[test]
fn readers_of_single_blocks_do_not_care_for_whole_objects() {
    let advice = of_several_blocks(1);
    assert_eq!(advice.whole_choice, Some(WholeChoice::NoneWanted));
    assert!(!advice.text().contains("c2p"), "{}", advice.text());
}
