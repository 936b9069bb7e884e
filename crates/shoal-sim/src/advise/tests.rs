//! The advice for small traces.

use super::{AdviceRequest, LAKE_COST};
use crate::block::Granularity;
use crate::chance::{Chance, Zipf};
use crate::clock::Time;
use crate::cluster::{Hierarchy, Split};
use crate::policy::PolicyName;
use crate::report::Sources;
use crate::simulation::{ClientSettings, LinkSettings, Setup, run};
use crate::trace::{Access, Accesses, Job, Operation, TraceError};
use crate::units::Capacity;
use crate::workload::{Assign, Workload};

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

/// Reads, and some writes, of objects of several blocks by `clients`, each long after the previous one.
fn apart(clients: u32) -> Vec<Access> {
    let (law, mut chance) = (Zipf::new(60, 0.8), Chance::new(7));
    let access = |number: u32| {
        let object = law.draw(&mut chance);
        let object_bytes = 100 + u64::from(object % 5) * 90;
        Access {
            at: Time(u64::from(number) * 1_000_000_000),
            client: chance.below(u64::from(clients)) as u32,
            object,
            object_bytes,
            offset_bytes: 0,
            bytes: object_bytes,
            operation: if chance.happens(0.02) {
                Operation::Write
            } else {
                Operation::Read
            },
        }
    };
    (0..5_000).map(access).collect()
}

/// The result of the full simulator: the same requests, nodes and split, on links that never limit.
fn simulated(accesses: &[Access], nodes: u32, node_bytes: u64, l1_share: f64) -> Sources {
    let granularity = Granularity::blocks(100);
    let jobs = accesses.iter().map(|access| Ok(Job::of_access(*access)));
    let mut workload = Workload::recorded(jobs, granularity).unwrap();
    Assign::Recorded.apply(&mut workload, nodes, 4, &mut Chance::new(1));
    let setup = Setup {
        nodes: nodes as usize,
        links: LinkSettings::default(),
        changes: Vec::new(),
        moves: Vec::new(),
        clients: ClientSettings {
            per_node: 4,
            requests: 1,
            jobs: None,
        },
        granularity,
        tolerance: 0.0,
        warmup: 0.0,
        sample: None,
    };
    let split = Split::Fixed(l1_share);
    let mut cluster = Hierarchy::new(nodes as usize, node_bytes, 100, split, PolicyName::LRU);
    run(&setup, &workload, &mut cluster).sources
}

#[test]
fn advice_for_several_nodes_is_what_the_simulator_finds_on_them() {
    for clients in [1, 4, 7] {
        let accesses = apart(clients);
        let open = || Ok(Box::new(apart(clients).into_iter().map(Ok)) as Accesses);
        let request = AdviceRequest {
            granularity: Granularity::blocks(100),
            nodes: 4,
            ..request(Some(Capacity::Bytes(6_000)))
        };
        let advice = request.ask(&open, &mut |_| ()).unwrap();
        for split in &advice.splits {
            let simulated = simulated(&accesses, 4, 1_500, split.l1_share);
            assert_eq!(split.sources.lake.bytes, simulated.lake.bytes, "{split:?}");
            assert_eq!(split.sources, simulated, "{clients} clients");
        }
        let says_little = advice.text().contains("this says little about nodes");
        assert_eq!(says_little, clients == 1, "{}", advice.text());
    }
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
