//! Nodes that each divide their room by the requests that they see come close to the best division for all of
//! them.

#[path = "../benches/cluster/mod.rs"]
mod cluster;

use std::time::Duration;

use cluster::{Membership, Setup, Split, Timing, Workload, below, mean_wait, private, zipf};

const SETUP: Setup = Setup {
    nodes: 4,
    capacity: 200,
    periods: 40,
    requests_a_period: 4000,
    lake: Duration::from_millis(5),
    split: Split::Adapted(100, Timing::KnownMisses),
    membership: Membership::Disjoint,
};

#[track_caller]
fn assert_close_to_the_best(workload: Workload) {
    let fixed = (0..=5).map(|fifths| Split::Fixed(SETUP.capacity * fifths / 5));
    let best = fixed
        .map(|split| mean_wait(Setup { split, ..SETUP }, workload))
        .min();
    let best = best.expect("six splits were tried");
    let adapted = mean_wait(SETUP, workload);
    assert!(
        adapted <= best.mul_f64(1.03),
        "{adapted:?}, with the best fixed split {best:?}"
    );
}

fn all_read_the_same(_: u64, number: u64) -> u64 {
    zipf(11, number)
}

fn each_reads_its_own(node: u64, number: u64) -> u64 {
    private(node, below(220, number))
}

fn both(node: u64, number: u64) -> u64 {
    match number / SETUP.nodes % 5 {
        0 => zipf(12, number),
        _ => private(node, below(80, number)),
    }
}

#[test]
fn nodes_that_read_the_same_find_the_best_split() {
    assert_close_to_the_best(all_read_the_same);
}

#[test]
fn nodes_that_read_their_own_find_the_best_split() {
    assert_close_to_the_best(each_reads_its_own);
}

#[test]
fn nodes_that_read_both_find_the_best_split() {
    assert_close_to_the_best(both);
}

fn timed(timing: Timing, workload: Workload) -> Duration {
    let split = Split::Adapted(SETUP.capacity / 2, timing);
    mean_wait(Setup { split, ..SETUP }, workload)
}

#[test]
fn an_l1_miss_costs_the_way_to_the_lake_as_well() {
    let (hop, known) = (
        timed(Timing::Hop, each_reads_its_own),
        timed(Timing::KnownMisses, each_reads_its_own),
    );
    assert!(
        hop > known.mul_f64(1.1),
        "{hop:?} by the hop, {known:?} by the wait"
    );
}

#[test]
fn misses_that_no_size_saves_do_not_count() {
    let (every, known) = (
        timed(Timing::EveryMiss, all_read_the_same),
        timed(Timing::KnownMisses, all_read_the_same),
    );
    assert!(
        every > known.mul_f64(1.01),
        "{every:?} by every miss, {known:?} by those of known blocks"
    );
}

#[test]
fn a_block_that_belongs_to_two_layers_takes_the_room_of_another() {
    let membership = Membership::Overlapping;
    let (overlapping, disjoint) = (
        mean_wait(Setup { membership, ..SETUP }, both),
        mean_wait(SETUP, both),
    );
    assert!(
        overlapping > disjoint,
        "{overlapping:?} overlapping, {disjoint:?} disjoint"
    );
}
