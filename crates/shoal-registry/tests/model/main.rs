//! A model of the protocol of one name: searches all that may happen for what clients must not see.
//!
//! Three nodes, each with a flusher, serve the operations of clients on one name. Nodes crash, or freeze
//! until their session has ended. Commits and requests to the lake are answered, lost, late, or carried out
//! without an answer. The changes of the entry are the functions of `entry.rs`.
//! `docs/explanation/tier-protocol.md` describes the protocol and the results of the search.

mod changes;
mod happenings;
mod monitor;
mod planted;
mod protocol;
mod search;
mod state;
mod table;

use std::fmt::Debug;
use std::str::FromStr;

use planted::Planted;
use search::{Case, Problem, Start, Verdict, explore, sets_of, wander};
use state::Work::{self, Create, Delete, Get, Put, Remove, Replace, Write};

const STARTS: [Start; 4] = [Start::Nothing, Start::Clean, Start::Dirty, Start::Removed];

/// A number from the environment.
fn setting<T: FromStr<Err: Debug>>(name: &str) -> Option<T> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().expect("the setting is a number"))
}

/// Searches every set of `size` operations completely, or of as many as `SHOAL_MODEL_SETS` allows. A
/// tombstone at the start is what a set with one operation more leads to, so the largest searches do without.
fn search_sets_of(size: usize, crashes: u8, losses: u8, separate_reads: bool) {
    let is_large = size == 4 || size == 3 && separate_reads;
    let starts = if is_large { &STARTS[..3] } else { &STARTS };
    let size = size.min(setting("SHOAL_MODEL_SETS").unwrap_or(usize::MAX));
    let (mut sum, mut most) = (0, 0);
    for operations in sets_of(size) {
        for &start in starts {
            let mut case = Case::new(&operations, start, crashes, losses);
            case.separate_reads = separate_reads;
            match explore(&case) {
                Verdict::Holds { states } => {
                    sum += states;
                    most = most.max(states);
                }
                Verdict::Fails { problem, steps, .. } => {
                    panic!("{case}: {problem:?}\n  {}", steps.join("\n  "))
                }
            }
        }
    }
    println!("sets of {size}, {crashes} crashes, {losses} losses: {sum} states, at most {most} in a case");
}

#[test]
fn every_set_of_three_operations_holds_with_a_crash_and_a_lost_answer() {
    search_sets_of(3, 1, 1, false);
}

#[test]
fn every_set_of_two_operations_holds_with_two_crashes_and_a_lost_answer() {
    search_sets_of(2, 2, 1, false);
}

#[test]
fn every_set_of_two_operations_holds_with_a_crash_and_two_lost_answers() {
    search_sets_of(2, 1, 2, false);
}

#[test]
fn every_set_of_four_operations_holds_with_a_crash_or_a_lost_answer() {
    search_sets_of(4, 1, 0, false);
    search_sets_of(4, 0, 1, false);
}

#[test]
fn every_set_of_three_operations_holds_if_reading_and_committing_are_separate_steps() {
    search_sets_of(3, 0, 0, true);
}

#[test]
fn every_operation_holds_with_a_crash_or_a_lost_answer_if_reading_and_committing_are_separate_steps() {
    search_sets_of(1, 1, 0, true);
    search_sets_of(1, 0, 1, true);
}

/// Takes a quarter of an hour with `SHOAL_MODEL_LARGER=1`, and no time without.
#[test]
fn larger_sets_hold_if_they_are_asked_for() {
    if std::env::var_os("SHOAL_MODEL_LARGER").is_none() {
        return;
    }
    search_sets_of(2, 2, 2, false);
    search_sets_of(3, 2, 1, false);
    search_sets_of(3, 1, 2, false);
}

/// `SHOAL_MODEL_SCHEDULES` schedules from the seed `SHOAL_MODEL_SEED` on.
#[test]
fn random_schedules_hold() {
    let seed: u64 = setting("SHOAL_MODEL_SEED").unwrap_or(1);
    let schedules = setting("SHOAL_MODEL_SCHEDULES").unwrap_or(200);
    println!("{schedules} schedules from seed {seed} on");
    for seed in seed..seed + schedules {
        if let Err((problem, steps)) = wander(seed, 5_000) {
            panic!("seed {seed}: {problem:?}\n  {}", steps.join("\n  "));
        }
    }
}

/// Searches a case without the rule `planted`, and expects to find a wrong state.
fn find(planted: Planted, operations: &[Work], start: Start, crashes: u8, losses: u8) -> Problem {
    let mut case = Case::new(operations, start, crashes, losses);
    case.planted = Some(planted);
    case.separate_reads = planted == Planted::NoCondition;
    match explore(&case) {
        Verdict::Holds { states } => panic!("{planted:?} is not found among {states} states: {case}"),
        Verdict::Fails {
            problem,
            states,
            steps,
        } => {
            println!(
                "{planted:?}: {problem:?}, {} steps, {states} states",
                steps.len() - 1
            );
            println!("{case}\n  {}", steps.join("\n  "));
            problem
        }
    }
}

#[test]
fn the_model_finds_a_flush_without_busy() {
    let problem = find(Planted::FlushWithoutBusy, &[Delete], Start::Dirty, 0, 0);
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_change_that_is_given_up_before_fence() {
    let problem = find(Planted::GivesUpWithoutFence, &[Delete], Start::Dirty, 0, 1);
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_an_adoption_before_fence() {
    let problem = find(Planted::AdoptsWithoutFence, &[Delete], Start::Dirty, 1, 0);
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_an_adoption_from_a_living_owner() {
    let problem = find(Planted::AdoptsFromTheLiving, &[Delete], Start::Dirty, 0, 0);
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_404_without_a_second_look() {
    let problem = find(Planted::NoSecondLook, &[Put, Get, Delete], Start::Clean, 0, 0);
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_an_entry_that_is_removed_while_a_get_relies_on_its_absence() {
    let problem = find(Planted::RemovedDuringGet, &[Put, Get, Delete], Start::Clean, 1, 0);
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_an_entry_that_is_removed_while_a_commit_relies_on_its_absence() {
    let problem = find(Planted::RemovedDuringCommit, &[Put, Delete], Start::Nothing, 0, 1);
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_an_operation_that_leaves_while_its_change_may_begin() {
    let problem = find(Planted::LeavesItsChange, &[Delete], Start::Clean, 0, 1);
    assert_eq!(problem, Problem::Stuck);
}

#[test]
fn the_model_finds_a_change_whose_end_removes_a_newer_object() {
    // It is the end of a flush. A DELETE that has not been answered may come after the newer PUT.
    let problem = find(Planted::DoneRemovesNewer, &[Put], Start::Dirty, 0, 0);
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_put_that_is_repeated_without_a_look() {
    let problem = find(
        Planted::RetryWithoutLooking,
        &[Put, Delete, Get],
        Start::Clean,
        0,
        1,
    );
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_commit_without_a_condition() {
    let problem = find(Planted::NoCondition, &[Put], Start::Dirty, 0, 0);
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_woken_node_that_sends_after_its_session() {
    let problem = find(Planted::SendsAfterItsSession, &[Delete], Start::Dirty, 1, 0);
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_permission_that_is_asked_above_a_buffer() {
    let problem = find(Planted::AsksAboveABuffer, &[Delete], Start::Dirty, 1, 0);
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_an_entry_that_leaves_before_the_lake_has_the_object() {
    for start in [Start::Dirty, Start::Removed] {
        let problem = find(Planted::RemovedBeforeLake, &[], start, 0, 0);
        assert_eq!(problem, Problem::WrongRead);
    }
}

#[test]
fn the_model_finds_a_get_that_asks_the_lake_first() {
    let problem = find(Planted::LakeFirst, &[Get], Start::Dirty, 0, 0);
    assert_eq!(problem, Problem::NoOrder);
}

#[test]
fn the_model_finds_a_condition_that_is_checked_before_the_dirty_object_is_flushed() {
    let problem = find(Planted::ConditionWithoutFlush, &[Replace], Start::Dirty, 0, 0);
    assert_eq!(problem, Problem::NoOrder);
    let problem = find(
        Planted::ConditionWithoutFlush,
        &[Remove, Create],
        Start::Clean,
        0,
        0,
    );
    assert_eq!(problem, Problem::NoOrder);
    let problem = find(
        Planted::ConditionWithoutFlush,
        &[Put, Create],
        Start::Nothing,
        0,
        0,
    );
    assert_eq!(problem, Problem::NoOrder);
}

#[test]
fn the_model_finds_a_write_through_that_begins_before_the_dirty_object_is_flushed() {
    let problem = find(
        Planted::WriteWithoutFlush,
        &[Put, Get, Write],
        Start::Nothing,
        0,
        0,
    );
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_commit_that_is_repeated_in_another_life() {
    let problem = find(Planted::RetriesInAnotherLife, &[Delete], Start::Dirty, 1, 2);
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_delete_that_trusts_another_node() {
    let problem = find(Planted::TrustsOthers, &[Delete], Start::Dirty, 1, 0);
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_delete_that_takes_an_empty_entry_for_its_own_work() {
    let problem = find(Planted::TrustsTheEntry, &[Delete], Start::Dirty, 1, 0);
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_takeover_that_clears_changes_of_the_life_before_at_once() {
    let problem = find(Planted::AdoptsAtTakeover, &[Delete], Start::Dirty, 1, 0);
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_refused_change_that_removes_an_entry_that_was_there_before() {
    let problem = find(
        Planted::LeavesNothingOfAnEntry,
        &[Put, Get, Delete, Create],
        Start::Clean,
        1,
        0,
    );
    assert_eq!(problem, Problem::NoOrder);
}

#[test]
fn the_model_finds_a_delete_that_answers_before_its_tombstone_is_committed() {
    let problem = find(Planted::AnswersBeforeTheTombstone, &[Remove], Start::Clean, 0, 0);
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_get_that_asks_the_lake_behind_a_tombstone() {
    let problem = find(Planted::AsksTheLakeBehindATombstone, &[Get], Start::Removed, 0, 0);
    assert_eq!(problem, Problem::NoOrder);
}

#[test]
fn the_model_finds_a_tombstone_that_is_dropped_because_the_lake_refuses_it() {
    let problem = find(Planted::DropsARefusedTombstone, &[], Start::Removed, 0, 1);
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_put_whose_object_a_late_removal_takes_from_the_lake() {
    let problem = find(Planted::OverwritesARemoval, &[Put], Start::Removed, 0, 1);
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_delete_that_leaves_an_older_object_at_the_lake() {
    let problem = find(Planted::ForgetsTheYoung, &[Remove], Start::Dirty, 0, 0);
    assert_eq!(problem, Problem::WrongRead);
}
