//! Tests the network against the definition of fairness, hand-computed cases and queuing theory.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, prop_assert, proptest};
use shoal_base::seeded::Chance;
use shoal_sim::Time;

use super::{ClassId, LinkId, Network, TOLERANCE};

fn secs(seconds: f64) -> Time {
    Time::from_secs_f64(seconds)
}

/// Every flow with the second at which it is done.
fn ends(network: &mut Network<u32>) -> Vec<(u32, f64)> {
    let mut ends = Vec::new();
    while let Some(at) = network.next_end() {
        let flow = network.end_next().unwrap();
        ends.push((flow, (at.as_secs_f64() * 1e6).round() / 1e6));
    }
    ends
}

#[test]
fn flows_of_one_link_share_it_evenly() {
    let mut network = Network::new(0.0);
    let link = network.link(100.0);
    let class = network.class(vec![link]);
    network.start(Time::ZERO, class, 100, 1);
    network.start(Time::ZERO, class, 300, 2);
    // Both at 50/s: the first is done at 2 s, and the second sends its last 200 at 100/s.
    assert_eq!(ends(&mut network), [(1, 2.0), (2, 4.0)]);
    assert_eq!(network.carried_bytes(link), 400);
}

#[test]
fn bandwidth_that_one_flow_cannot_use_goes_to_the_others() {
    let mut network = Network::new(0.0);
    let (wide, narrow) = (network.link(100.0), network.link(20.0));
    let (short, long) = (network.class(vec![wide]), network.class(vec![wide, narrow]));
    network.start(Time::ZERO, short, 800, 1);
    network.start(Time::ZERO, long, 200, 2);
    assert_eq!(ends(&mut network), [(1, 10.0), (2, 10.0)], "80 and 20 of 100");
}

#[test]
fn a_latecomer_takes_its_share_from_then_on() {
    let mut network = Network::new(0.0);
    let link = network.link(100.0);
    let (a, b) = (network.class(vec![link]), network.class(vec![link]));
    network.start(Time::ZERO, a, 200, 1);
    assert_eq!(network.next_end(), Some(secs(2.0)));
    network.start(secs(1.0), b, 100, 2);
    assert_eq!(ends(&mut network), [(1, 3.0), (2, 3.0)]);
}

#[test]
fn a_link_that_narrows_delays_what_is_on_it() {
    let mut network = Network::new(0.0);
    let link = network.link(100.0);
    let class = network.class(vec![link]);
    network.start(Time::ZERO, class, 200, 1);
    network.set_rate(secs(1.0), link, 10.0);
    assert_eq!(ends(&mut network), [(1, 11.0)]);
}

#[test]
fn nothing_is_in_the_way_of_an_empty_path() {
    let mut network = Network::new(0.0);
    let class = network.class(Vec::new());
    network.start(secs(3.0), class, u64::MAX / 2, 1);
    assert_eq!(ends(&mut network), [(1, 3.0)]);
}

/// Poisson arrivals of equal flows on one link are an M/D/1 queue with processor sharing: the mean time in it
/// is the time of a flow alone, divided by 1 − load.
fn mean_time(tolerance: f64, load: f64) -> f64 {
    let (flows, bytes) = (200_000, 100);
    let mut network = Network::new(tolerance);
    let link = network.link(100.0);
    let class = network.class(vec![link]);
    let mut chance = Chance::new(5);
    let (mut arrives, mut sum) = (0.0, 0.0);
    let mut done = 0;
    let mut arrived = Vec::new();
    while done < flows {
        let next = if arrived.len() < flows {
            secs(arrives)
        } else {
            Time::NEVER
        };
        match network.next_end() {
            Some(end) if end <= next => {
                let flow: usize = network.end_next().unwrap();
                sum += end.as_secs_f64() - arrived[flow];
                done += 1;
            }
            _ => {
                network.start(next, class, bytes, arrived.len());
                arrived.push(arrives);
                arrives -= (1.0 - chance.unit()).ln() / load;
            }
        }
    }
    sum / flows as f64
}

#[test]
fn waiting_times_are_those_of_queuing_theory() {
    for load in [0.3, 0.6, 0.8] {
        let (mean, theory) = (mean_time(0.0, load), 1.0 / (1.0 - load));
        assert!(
            (mean / theory - 1.0).abs() < 0.03,
            "load {load}: {mean} against {theory}"
        );
    }
}

/// A closed system of some hundred flows over shared links: the number of flows done, and the mean time of
/// one.
fn closed(tolerance: f64) -> (f64, u64) {
    const FLOWS: u32 = 2_000;
    let mut network = Network::new(tolerance);
    let links: Vec<_> = (0..6).map(|i| network.link(1e6 * f64::from(1 + i))).collect();
    let pairs = links.iter().enumerate();
    let classes: Vec<_> = pairs
        .flat_map(|(i, &a)| links[i + 1..].iter().map(move |&b| vec![a, b]))
        .map(|path| network.class(path))
        .collect();
    let mut chance = Chance::new(9);
    let mut start = |network: &mut Network<u32>, now: Time, flow: u32| {
        let class = classes[chance.below(classes.len() as u64) as usize];
        network.start(now, class, 1_000, flow);
    };
    (0..FLOWS).for_each(|flow| start(&mut network, Time::ZERO, flow));
    let mut last = Time::ZERO;
    for _ in 0..100_000 {
        last = network.next_end().unwrap();
        let flow = network.end_next().unwrap();
        start(&mut network, last, flow);
    }
    (last.as_secs_f64(), network.refreshes())
}

#[test]
fn the_tolerance_saves_work_and_costs_little() {
    let ((exact, often), (near, seldom)) = (closed(0.0), closed(TOLERANCE));
    assert!((near / exact - 1.0).abs() < 0.01, "{near} s against {exact} s");
    assert!(seldom * 5 < often, "{seldom} computations against {often}");
}

type Layout = (Vec<u32>, Vec<(Vec<bool>, u32)>);

/// Capacities, and classes as the links they use and the flows they have.
fn layout() -> impl Strategy<Value = Layout> {
    (1..6_usize).prop_flat_map(|links| {
        let class = (vec(proptest::bool::ANY, links), 0..4_u32);
        (vec(1..1000_u32, links), vec(class, 1..8))
    })
}

/// A class, the positions of its links, and the number of its flows.
type Built = (ClassId, Vec<usize>, u32);

fn build((capacities, classes): &Layout) -> (Network<u32>, Vec<LinkId>, Vec<Built>) {
    let mut network = Network::new(0.0);
    let links: Vec<_> = capacities
        .iter()
        .map(|&capacity| network.link(f64::from(capacity)))
        .collect();
    let mut built = Vec::new();
    for (uses, flows) in classes {
        // A flow that uses no link is not limited, so it does not test fairness.
        let path: Vec<usize> = (0..links.len()).filter(|&link| uses[link] || link == 0).collect();
        let class = network.class(path.iter().map(|&link| links[link]).collect());
        (0..*flows).for_each(|flow| network.start(Time::ZERO, class, 1000, flow));
        built.push((class, path, *flows));
    }
    network.next_end();
    (network, links, built)
}

/// Progressive filling flow by flow: all rates rise in tiny steps until a link on the path is full.
fn filled_drop_by_drop((capacities, classes): &Layout) -> Vec<f64> {
    const STEPS: u32 = 20_000;
    let paths: Vec<Vec<usize>> = classes
        .iter()
        .map(|(uses, _)| {
            (0..capacities.len())
                .filter(|&link| uses[link] || link == 0)
                .collect()
        })
        .collect();
    let most = f64::from(*capacities.iter().max().expect("there is a link"));
    let drop = most / f64::from(STEPS);
    let mut rates = vec![0.0; classes.len()];
    let mut rising: Vec<bool> = classes.iter().map(|(_, flows)| *flows > 0).collect();
    for _ in 0..=STEPS {
        let load = |link: usize, rates: &[f64]| -> f64 {
            (0..classes.len())
                .filter(|&class| paths[class].contains(&link))
                .map(|class| rates[class] * f64::from(classes[class].1))
                .sum()
        };
        for class in 0..classes.len() {
            rates[class] += if rising[class] { drop } else { 0.0 };
        }
        let full: Vec<bool> = (0..capacities.len())
            .map(|link| load(link, &rates) >= f64::from(capacities[link]))
            .collect();
        for class in 0..classes.len() {
            rising[class] &= !paths[class].iter().any(|&link| full[link]);
        }
    }
    rates
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Rates are max-min fair exactly when no link carries more than its capacity and every flow has a full
    /// link on which no flow is faster.
    #[test]
    fn rates_are_max_min_fair(layout in layout()) {
        let (network, _, classes) = build(&layout);
        let rate = |class: ClassId| network.classes[class.0 as usize].rate;
        let load = |link: usize| -> f64 {
            let on_link = classes.iter().filter(|(_, path, flows)| *flows > 0 && path.contains(&link));
            on_link.map(|(class, _, flows)| rate(*class) * f64::from(*flows)).sum()
        };
        for (link, &capacity) in layout.0.iter().enumerate() {
            prop_assert!(load(link) <= f64::from(capacity) * (1.0 + 1e-9), "link {link} carries {}", load(link));
        }
        for (class, path, _) in classes.iter().filter(|(_, _, flows)| *flows > 0) {
            let bottleneck = path.iter().any(|&link| {
                let full = load(link) >= f64::from(layout.0[link]) * (1.0 - 1e-9);
                let others = classes.iter().filter(|(_, path, flows)| *flows > 0 && path.contains(&link));
                full && others.into_iter().all(|(other, _, _)| rate(*other) <= rate(*class) * (1.0 + 1e-9))
            });
            prop_assert!(bottleneck, "{class:?} could have more");
        }
    }

    #[test]
    fn rates_are_those_of_filling_drop_by_drop(layout in layout()) {
        let (network, _, classes) = build(&layout);
        let naive = filled_drop_by_drop(&layout);
        let most = f64::from(*layout.0.iter().max().unwrap());
        // A step too far on one link is compensated on the next by the same amount.
        let error = most / 20_000.0 * 8.0;
        for ((class, _, flows), naive) in classes.iter().zip(naive) {
            let rate = network.classes[class.0 as usize].rate;
            prop_assert!(*flows == 0 || (rate - naive).abs() <= error.max(naive * 0.01), "{rate} against {naive}");
        }
    }

    #[test]
    fn every_byte_arrives_on_every_link_of_its_way(layout in layout()) {
        let (mut network, links, classes) = build(&layout);
        let mut last = Time::ZERO;
        while let Some(end) = network.next_end() {
            prop_assert!(end >= last, "time goes on");
            last = end;
            network.end_next().unwrap();
        }
        for (link, &id) in links.iter().enumerate() {
            let on_link = classes.iter().filter(|(_, path, _)| path.contains(&link));
            let bytes: u64 = on_link.map(|(_, _, flows)| u64::from(*flows) * 1000).sum();
            prop_assert!(network.carried_bytes(id) == bytes);
        }
        prop_assert!(last - Time::ZERO < Duration::from_secs(100_000));
    }
}
