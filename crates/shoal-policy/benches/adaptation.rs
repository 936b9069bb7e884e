//! Which latency of L1 misses makes each node's split right for the whole cluster (`partition`), and whether
//! layers that share blocks are better than layers that do not. Mean waits are given relative to the best of
//! eleven fixed splits.

#[path = "cluster/mod.rs"]
mod cluster;

use std::time::Duration;

use cluster::{Membership, Setup, Split, Timing, Workload, below, mean_wait, private, zipf};

const SETUP: Setup = Setup {
    nodes: 8,
    capacity: 1000,
    periods: 60,
    requests_a_period: 20_000,
    lake: Duration::ZERO,
    split: Split::Fixed(0),
    membership: Membership::Disjoint,
};

const WORKLOADS: [(&str, Workload); 8] = [
    ("all read 7,000, uniform", |_, number| below(7000, number)),
    ("all read 8,192, Zipf", |_, number| zipf(13, number)),
    ("all read 32,768, Zipf", |_, number| zipf(15, number)),
    ("each reads its own 1,100, uniform", |node, number| {
        private(node, below(1100, number))
    }),
    ("each reads its own 8,192, Zipf", |node, number| {
        private(node, zipf(13, number))
    }),
    (
        "half 4,000 of all, half its own 4,096, Zipf",
        |node, number| match number / 8 % 2 {
            0 => below(4000, number),
            _ => private(node, zipf(12, number)),
        },
    ),
    (
        "a fifth 16,384 of all, Zipf, the rest its own 400",
        |node, number| match number / 8 % 5 {
            0 => zipf(14, number),
            _ => private(node, below(400, number)),
        },
    ),
    (
        "a third read once, the rest 8,192 of all, Zipf",
        |_, number| match number / 8 % 3 {
            0 => (1 << 60) + number,
            _ => zipf(13, number),
        },
    ),
];

const LAKES: [Duration; 3] = [
    Duration::from_millis(2),
    Duration::from_millis(5),
    Duration::from_millis(20),
];

fn main() {
    println!(
        "{:50} lake   best fixed   | fixed | from half                | from 0 | overlapping",
        ""
    );
    println!(
        "{:50}   ms   ms     at L1 |  half |    hop    every    known |  known | fixed   known",
        ""
    );
    for (name, workload) in WORKLOADS {
        for lake in LAKES {
            compare(name, Setup { lake, ..SETUP }, workload);
        }
    }
}

fn compare(name: &str, setup: Setup, workload: Workload) {
    let half = setup.capacity / 2;
    let run = |membership, split| {
        let setup = Setup {
            split,
            membership,
            ..setup
        };
        mean_wait(setup, workload).as_secs_f64() * 1000.0
    };
    let best_of = |membership| {
        let fixed = (0..=10).map(|tenths| tenths * setup.capacity / 10);
        fixed
            .map(|l1| (run(membership, Split::Fixed(l1)), l1))
            .min_by(|(left, _), (right, _)| left.total_cmp(right))
            .expect("eleven splits were tried")
    };
    let (best, l1) = best_of(Membership::Disjoint);
    let percent = |wait: f64| (wait / best - 1.0) * 100.0;
    let disjoint = |split| percent(run(Membership::Disjoint, split));
    let overlapping = |split| percent(run(Membership::Overlapping, split));
    println!(
        "{name:50} {:4} {best:6.3} {l1:6} | {:+4.0}% | {:+7.1}% {:+7.1}% {:+7.1}% | {:+5.1}% | {:+5.1}% {:+5.1}%",
        setup.lake.as_millis(),
        disjoint(Split::Fixed(half)),
        disjoint(Split::Adapted(half, Timing::Hop)),
        disjoint(Split::Adapted(half, Timing::EveryMiss)),
        disjoint(Split::Adapted(half, Timing::KnownMisses)),
        disjoint(Split::Adapted(0, Timing::KnownMisses)),
        percent(best_of(Membership::Overlapping).0),
        overlapping(Split::Adapted(half, Timing::KnownMisses)),
    );
}
