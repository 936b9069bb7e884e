//! How much room each layer gets, in cases that can be worked out.

use std::time::Duration;

use proptest::prelude::{any, prop_assert, prop_assert_eq};
use proptest::{collection, proptest};

use super::{Demand, MissLatency, Pace, Partition, adapt, waiting};
use crate::Layer;
use crate::fingerprint::{Fingerprint, mix};
use crate::mrc::{MissCurve, Reach, ReuseDistances};

const CAPACITY_BYTES: u64 = 1_000_000;

fn demand(curve: &MissCurve, miss_millis: u64, size_bytes: u64) -> Demand<'_> {
    Demand {
        curve,
        miss_latency: Duration::from_millis(miss_millis),
        size_bytes,
    }
}

/// A curve of `accesses` that are spread evenly over blocks that together take `set_bytes`.
fn uniform(accesses: f64, set_bytes: u64) -> MissCurve {
    MissCurve::from_fn(CAPACITY_BYTES, accesses, |size_bytes| {
        1.0 - size_bytes.min(set_bytes) as f64 / set_bytes as f64
    })
}

/// A loop over `set_bytes`: everything misses until all of it fits.
fn looping(accesses: f64, set_bytes: u64) -> MissCurve {
    MissCurve::from_fn(CAPACITY_BYTES, accesses, |size_bytes| {
        f64::from(u8::from(size_bytes < set_bytes))
    })
}

#[test]
fn a_node_learns_from_its_requests_which_layer_needs_room() {
    let reach = Reach::of_full_blocks(1000, 1);
    let mut partition = Partition::even(
        1001,
        vec![ReuseDistances::exact(reach), ReuseDistances::exact(reach)],
    );
    assert_eq!(
        (partition.size_bytes(Layer::L1), partition.size_bytes(Layer::L2)),
        (501, 500)
    );
    for time in 0..9000 {
        // L1 gets requests for 800 blocks in turn, L2 for blocks that are never requested again.
        let known = partition.requested(Layer::L1, Fingerprint::of_number(time % 800), 1);
        assert_eq!(known, time >= 800);
        if known {
            partition.missed(Layer::L1, Duration::from_millis(1));
        }
        assert!(!partition.requested(Layer::L2, Fingerprint::of_number(1000 + time), 1));
        if time % 1000 == 999 {
            partition.adapt(Pace::published(1001), &[Duration::ZERO; 2]);
        }
    }
    assert_eq!(
        (partition.size_bytes(Layer::L1), partition.size_bytes(Layer::L2)),
        (800, 201),
        "600 blocks of a loop of 800 are of no use, but 800 are"
    );
    for time in 0..30_000 {
        if partition.requested(Layer::L2, Fingerprint::of_number(mix(time) % 900), 1) {
            partition.missed(Layer::L2, Duration::from_millis(1));
        }
        if time % 1000 == 999 {
            partition.adapt(Pace::published(1001), &[Duration::ZERO; 2]);
        }
    }
    assert_eq!(
        (partition.size_bytes(Layer::L1), partition.size_bytes(Layer::L2)),
        (101, 900)
    );
}

#[test]
fn room_goes_where_requests_wait_longest_and_no_further_than_the_limit() {
    let (local, shared) = (
        uniform(1000.0, 2 * CAPACITY_BYTES),
        uniform(1000.0, 2 * CAPACITY_BYTES),
    );
    let layers = |miss_millis| [demand(&local, miss_millis, 500_000), demand(&shared, 10, 500_000)];
    assert_eq!(
        adapt(&layers(2), Pace::published(CAPACITY_BYTES).limit_bytes),
        [450_000, 550_000]
    );
    assert_eq!(
        adapt(&layers(50), Pace::published(CAPACITY_BYTES).limit_bytes),
        [550_000, 450_000]
    );
    assert_eq!(adapt(&layers(50), CAPACITY_BYTES), [1_000_000, 0]);
}

#[test]
fn latencies_are_a_moving_average_that_outlasts_a_period_without_misses() {
    let mut latency = MissLatency::default();
    let mean = |latency: &MissLatency| latency.mean(Duration::ZERO);
    assert_eq!(mean(&latency), Duration::ZERO);
    (0..6).for_each(|_| latency.record(Duration::from_millis(10)));
    latency.decay(0.5);
    (0..3).for_each(|_| latency.record(Duration::from_millis(30)));
    assert_eq!(mean(&latency), Duration::from_millis(20));
    (0..5000).for_each(|_| latency.decay(0.5));
    assert_eq!(mean(&latency), Duration::from_millis(20));
    latency.decay(0.0);
    assert_eq!(mean(&latency), Duration::from_millis(20), "the last of it stays");
    (0..100).for_each(|_| latency.record(Duration::from_secs(1)));
    (0..9).for_each(|_| latency.decay(1.0));
    assert!(
        mean(&latency) > Duration::from_millis(990),
        "nothing is forgotten"
    );
}

#[test]
fn misses_without_an_answer_count_their_wait_too() {
    let mut latency = MissLatency::default();
    assert_eq!(latency.mean(Duration::from_secs(30)), Duration::from_secs(30));
    (0..6).for_each(|_| latency.record(Duration::from_secs(1)));
    assert_eq!(latency.mean(Duration::from_secs(30)), Duration::from_secs(6));
    assert_eq!(
        latency.mean(Duration::ZERO),
        Duration::from_secs(1),
        "they are over"
    );
}

#[test]
fn a_link_that_lets_nothing_pass_draws_room_to_the_layer_before_it() {
    let reach = Reach::of_full_blocks(1000, 1);
    let grown = |unanswered| {
        let distances = (0..2).map(|_| ReuseDistances::exact(reach));
        let mut partition = Partition::even(1000, distances.collect());
        for time in 0..6000 {
            for (layer, blocks) in [(Layer::L1, 2000), (Layer::L2, 900)] {
                if partition.requested(layer, Fingerprint::of_number(mix(time) % blocks), 1) {
                    partition.missed(layer, Duration::from_millis(1));
                }
            }
        }
        partition.adapt(Pace::published(1000), &[unanswered, Duration::ZERO]);
        partition.size_bytes(Layer::L1) > 500
    };
    assert!(!grown(Duration::ZERO), "L2 is asked for less, again and again");
    assert!(grown(Duration::from_secs(30)));
}

#[test]
fn a_busy_layer_outweighs_a_slow_one() {
    let (local, shared) = (
        uniform(9000.0, 2 * CAPACITY_BYTES),
        uniform(1000.0, 2 * CAPACITY_BYTES),
    );
    let layers = [demand(&local, 2, 500_000), demand(&shared, 10, 500_000)];
    assert_eq!(adapt(&layers, 50_000), [550_000, 450_000]);
}

#[test]
fn a_move_that_gains_nothing_is_not_made() {
    let idle = uniform(0.0, CAPACITY_BYTES);
    let layers = [demand(&idle, 0, 300_000), demand(&idle, 0, 700_000)];
    assert_eq!(adapt(&layers, CAPACITY_BYTES), [300_000, 700_000]);
    let even = uniform(1000.0, 2 * CAPACITY_BYTES);
    let layers = [demand(&even, 3, 300_000), demand(&even, 3, 700_000)];
    assert_eq!(adapt(&layers, CAPACITY_BYTES), [300_000, 700_000], "equal slopes");
}

#[test]
fn a_loop_gets_all_the_room_it_needs_or_none_however_far_that_is() {
    let (local, shared) = (looping(1000.0, 600_000), uniform(100.0, CAPACITY_BYTES));
    let adapted = |l1_bytes| {
        let layers = [
            demand(&local, 1, l1_bytes),
            demand(&shared, 1, CAPACITY_BYTES - l1_bytes),
        ];
        adapt(&layers, 50_000)
    };
    assert_eq!(adapted(500_000), [550_000, 450_000]);
    assert_eq!(adapted(550_000), [600_000, 400_000]);
    assert_eq!(adapted(600_000), [600_000, 400_000]);
    let (local, shared) = (looping(90.0, 600_000), uniform(100.0, CAPACITY_BYTES));
    let layers = [demand(&local, 1, 500_000), demand(&shared, 1, 500_000)];
    assert_eq!(adapt(&layers, 50_000)[0], 550_000, "90 saved cost 60");
    let local = looping(50.0, 600_000);
    let layers = [demand(&local, 1, 500_000), demand(&shared, 1, 500_000)];
    assert_eq!(adapt(&layers, 50_000)[0], 450_000, "50 saved would cost 60");
}

#[test]
fn of_equally_good_sizes_the_nearest_are_taken() {
    let (local, idle) = (looping(1000.0, 600_000), uniform(0.0, CAPACITY_BYTES));
    let layers = [demand(&local, 1, 100_000), demand(&idle, 1, 900_000)];
    assert_eq!(adapt(&layers, CAPACITY_BYTES), [600_000, 400_000]);
}

#[test]
fn every_layer_goes_its_part_of_the_way() {
    let curves = [
        uniform(1.0, CAPACITY_BYTES),
        looping(9.0, 470_001),
        looping(9.0, 430_001),
    ];
    let sizes = [800_001, 170_001, 29_998];
    let layers = || {
        curves
            .iter()
            .zip(sizes)
            .map(|(curve, bytes)| demand(curve, 1, bytes))
    };
    assert_eq!(
        adapt(&layers().collect::<Vec<_>>(), CAPACITY_BYTES),
        [97_001, 471_001, 431_998]
    );
    let next = adapt(&layers().collect::<Vec<_>>(), 50_000);
    assert_eq!(next, [750_001, 191_410, 58_589]);
}

#[test]
fn the_predicted_sizes_are_the_candidates_and_not_the_present_ones() {
    // As printed, Algorithm 2 gives each candidate the cost of the present sizes and takes the first.
    let (local, shared) = (uniform(1000.0, CAPACITY_BYTES), uniform(10.0, CAPACITY_BYTES));
    let layers = [demand(&local, 1, 500_000), demand(&shared, 1, 500_000)];
    assert_eq!(adapt(&layers, 50_000), [550_000, 450_000]);
}

#[test]
fn a_node_without_room_and_a_layer_without_rival_stay_as_they_are() {
    let curve = uniform(1000.0, CAPACITY_BYTES);
    assert_eq!(adapt(&[demand(&curve, 1, 0), demand(&curve, 1, 0)], 0), [0, 0]);
    assert_eq!(adapt(&[demand(&curve, 1, 700)], 700), [700]);
    assert!(adapt(&[], 0).is_empty());
}

/// Falls by random amounts at random places: convex where the falls are sorted.
fn random_curve(seed: u64, convex: bool, capacity_bytes: u64) -> MissCurve {
    let mut falls: Vec<u64> = (0..1000).map(|place| mix(seed ^ mix(place)) % 1000).collect();
    // Long flat stretches and cliffs, on which a local search gets stuck.
    falls
        .iter_mut()
        .filter(|fall| **fall < 900)
        .for_each(|fall| *fall /= 100);
    if convex {
        falls.sort_unstable_by(|left, right| right.cmp(left));
    }
    let total: u64 = falls.iter().sum();
    MissCurve::from_fn(capacity_bytes, total as f64, |size_bytes| {
        let places = (size_bytes * 1000 / capacity_bytes) as usize;
        1.0 - falls[..places].iter().sum::<u64>() as f64 / total as f64
    })
}

/// The least waiting over all combinations of the remaining sizes, by trying each.
fn exhaustive(layers: &[Demand], sizes: &mut Vec<u64>, left_bytes: u64) -> f64 {
    if sizes.len() + 1 == layers.len() {
        sizes.push(left_bytes);
        let waited = waiting(layers, sizes);
        sizes.pop();
        return waited;
    }
    let all = (0..=left_bytes).map(|size_bytes| {
        sizes.push(size_bytes);
        let least = exhaustive(layers, sizes, left_bytes - size_bytes);
        sizes.pop();
        least
    });
    all.fold(f64::INFINITY, f64::min)
}

proptest! {
    #![proptest_config(proptest::test_runner::Config { failure_persistence: None, cases: 64, ..Default::default() })]

    #[test]
    fn no_combination_is_better_than_where_the_steps_lead(
        seeds in collection::vec((any::<u64>(), any::<bool>(), 1..100_u64, 0..10_u64), 2..=4),
        limit_bytes in 1..12_u64,
    ) {
        let capacity_bytes: u64 = seeds.iter().map(|&(_, _, _, size_bytes)| size_bytes).sum();
        let curve = |&(seed, convex, _, _): &_| random_curve(seed, convex, capacity_bytes.max(1));
        let curves: Vec<MissCurve> = seeds.iter().map(curve).collect();
        let mut sizes: Vec<u64> = seeds.iter().map(|&(_, _, _, size_bytes)| size_bytes).collect();
        let layers = |sizes: &[u64]| -> Vec<Demand<'_>> {
            let layers = curves.iter().zip(&seeds).zip(sizes);
            layers.map(|((curve, seed), &size_bytes)| demand(curve, seed.2, size_bytes)).collect()
        };
        for _ in 0..=capacity_bytes {
            let next = adapt(&layers(&sizes), limit_bytes);
            prop_assert_eq!(next.iter().sum::<u64>(), capacity_bytes);
            for (before, after) in sizes.iter().zip(&next) {
                prop_assert!(before.abs_diff(*after) <= limit_bytes);
            }
            sizes = next;
        }
        let now = layers(&sizes);
        let (found, best) = (waiting(&now, &sizes), exhaustive(&now, &mut Vec::new(), capacity_bytes));
        prop_assert!(found <= best * (1.0 + 2e-9), "{found} instead of {best}");
    }
}
