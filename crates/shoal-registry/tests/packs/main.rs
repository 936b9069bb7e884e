//! A model of packed objects: searches all that may happen to two names for what clients must not see.

mod clients;
mod happenings;
mod monitor;
mod planted;
mod rounds;
mod search;
mod state;
#[path = "../model/table.rs"]
mod table;

use planted::Planted;
use search::{Case, Problem, Start, Verdict, explore};
use state::Work::{self, Delete, Get, Large, List, Put, Unpack, Write};

const WORKS: [Work; 7] = [Put, Large, Delete, Write, Get, List, Unpack];
const STARTS: [Start; 4] = [Start::Nothing, Start::Plain, Start::Packed, Start::Dirty];

fn case(operations: &[(Work, usize)], starts: [Start; 2]) -> Case {
    Case {
        operations: operations.to_vec(),
        starts,
        crashes: 0,
        losses: 0,
        rewrites: 0,
        rebuilds: 0,
        planted: None,
    }
}

fn holds(case: &Case) -> usize {
    match explore(case) {
        Verdict::Holds { states } => states,
        Verdict::Fails { problem, steps, .. } => {
            panic!("{case}: {problem:?}\n  {}", steps.join("\n  "))
        }
    }
}

/// Every set of `size` operations on the first name.
fn sets_of(size: usize) -> Vec<Vec<(Work, usize)>> {
    let mut sets = vec![Vec::new()];
    for _ in 0..size {
        let longer = |set: Vec<(Work, usize)>| {
            let last = set.last().map_or(WORKS[0], |(work, _)| *work);
            let works = WORKS.into_iter().filter(move |work| *work >= last);
            works.map(move |work| [&set[..], &[(work, 0)]].concat())
        };
        sets = sets.into_iter().flat_map(longer).collect();
    }
    sets
}

/// Searches every pair of operations on two names that share a pack. One of them may be dirty.
fn search_pairs(first: Start, crashes: u8, losses: u8, rewrites: u8) {
    let mut sum = 0;
    let pairs = WORKS
        .into_iter()
        .flat_map(|first| WORKS.map(|second| [(first, 0), (second, 1)]));
    for operations in pairs {
        sum += holds(&Case {
            crashes,
            losses,
            rewrites,
            ..case(&operations, [first, Start::Packed])
        });
    }
    println!("pairs, {crashes} crashes, {losses} losses, {rewrites} rewrites: {sum} states");
}

/// Searches every set of `size` operations on one name, from each start.
fn search_sets_of(size: usize, crashes: u8, losses: u8, rewrites: u8) {
    let (mut sum, mut most) = (0, 0);
    for operations in sets_of(size) {
        for start in STARTS {
            let states = holds(&Case {
                crashes,
                losses,
                rewrites,
                rebuilds: 1,
                ..case(&operations, [start, Start::Nothing])
            });
            sum += states;
            most = most.max(states);
        }
    }
    println!(
        "sets of {size}, {crashes} crashes, {losses} losses, {rewrites} rewrites: {sum} states, \
         at most {most} in a case"
    );
}

#[test]
fn every_operation_holds_with_two_of_a_crash_a_lost_answer_and_a_rewrite() {
    search_sets_of(1, 1, 1, 0);
    search_sets_of(1, 1, 0, 1);
    search_sets_of(1, 0, 1, 1);
}

#[test]
fn every_set_of_two_operations_holds_with_a_crash_a_lost_answer_or_a_rewrite() {
    search_sets_of(2, 1, 0, 0);
    search_sets_of(2, 0, 1, 0);
    search_sets_of(2, 0, 0, 1);
}

#[test]
fn every_set_of_three_operations_holds() {
    search_sets_of(3, 0, 0, 0);
}

/// Two packers that reserve and commit for two names at a time, and a pack with a member of each.
#[test]
fn operations_on_two_names_hold_with_a_crash_or_a_rewrite() {
    search_pairs(Start::Dirty, 1, 0, 0);
    search_pairs(Start::Packed, 0, 0, 1);
}

/// Takes ten minutes with `SHOAL_MODEL_LARGER=1`, and no time without.
#[test]
fn larger_sets_hold_if_they_are_asked_for() {
    if std::env::var_os("SHOAL_MODEL_LARGER").is_none() {
        return;
    }
    search_sets_of(1, 1, 1, 1);
    search_sets_of(1, 2, 0, 1);
    search_sets_of(2, 1, 0, 1);
    search_sets_of(2, 1, 1, 0);
    search_sets_of(3, 1, 0, 0);
    search_sets_of(3, 0, 1, 0);
    search_pairs(Start::Dirty, 1, 1, 0);
}

/// Searches a case without the rule `planted`, and expects to find a wrong state.
fn find(planted: Planted, case: Case) -> Problem {
    let case = Case {
        planted: Some(planted),
        ..case
    };
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

fn one(operations: &[Work], start: Start) -> Case {
    let operations: Vec<_> = operations.iter().map(|work| (*work, 0)).collect();
    case(&operations, [start, Start::Nothing])
}

#[test]
fn the_model_finds_entries_that_leave_before_the_map_is_readable() {
    let problem = find(Planted::LeavesBeforeTheMap, one(&[], Start::Dirty));
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_map_that_names_a_pack_whose_put_is_uncertain() {
    let case = one(&[], Start::Dirty);
    let problem = find(Planted::TakesThePackForCertain, Case { losses: 1, ..case });
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_reader_that_answers_by_an_old_map() {
    let problem = find(Planted::ReadsByAnOldMap, one(&[Put, Get], Start::Nothing));
    assert_eq!(problem, Problem::NoOrder);
}

#[test]
fn the_model_finds_an_entry_that_leaves_before_every_node_has_the_map() {
    let problem = find(Planted::RemovesAnEntryTooEarly, one(&[Put, Get], Start::Nothing));
    assert_eq!(problem, Problem::NoOrder);
}

#[test]
fn the_model_finds_a_pack_that_is_removed_while_a_reader_has_found_it() {
    for planted in [Planted::RemovesAPackAtOnce, Planted::RemovesAMappedPack] {
        let case = one(&[Get], Start::Packed);
        let problem = find(planted, Case { rewrites: 1, ..case });
        assert_eq!(problem, Problem::PackGone);
    }
}

#[test]
fn the_model_finds_a_pack_that_is_removed_before_the_root_names_the_new_one() {
    let case = one(&[], Start::Packed);
    let problem = find(Planted::RemovesAPackBeforeTheCommit, Case { rewrites: 1, ..case });
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_second_packer_that_overwrites_the_root() {
    let case = case(&[(Put, 0), (Put, 1)], [Start::Nothing; 2]);
    let problem = find(Planted::OverwritesTheRoot, case);
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_delete_without_a_tombstone() {
    let problem = find(Planted::LeavesNoTombstone, one(&[Delete], Start::Packed));
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_removal_that_leaves_the_name_in_the_map() {
    let problem = find(Planted::RemovedButMapped, one(&[Delete], Start::Packed));
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_an_overwrite_that_leaves_the_name_in_the_map() {
    let problem = find(Planted::OverwrittenButMapped, one(&[Large], Start::Packed));
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_write_through_over_a_packed_object() {
    let problem = find(
        Planted::WritesThroughOverPacked,
        one(&[Put, Write, Get], Start::Nothing),
    );
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_removal_by_an_old_map() {
    let problem = find(Planted::ChangesByAnOldMap, one(&[Put, Delete], Start::Nothing));
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_rebuild_that_brings_a_removed_object_back() {
    let case = one(&[Delete], Start::Packed);
    let problem = find(Planted::RebuildsFromPacks, Case { rebuilds: 1, ..case });
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_reservation_that_is_released_without_a_look_at_the_lake() {
    let case = one(&[Put, Delete], Start::Nothing);
    let case = Case {
        crashes: 1,
        rebuilds: 1,
        ..case
    };
    assert_eq!(find(Planted::ReleasesWithoutLooking, case), Problem::WrongRead);
}

#[test]
fn the_model_finds_an_unpacking_that_overwrites_a_newer_object() {
    let problem = find(Planted::UnpacksWithoutBusy, one(&[Large, Unpack], Start::Packed));
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_rewrite_that_commits_an_old_map() {
    let case = one(&[Delete], Start::Packed);
    let problem = find(Planted::RewritesAnOldMap, Case { rewrites: 1, ..case });
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_changes_that_are_given_up_before_their_reservation_is_resolved() {
    let case = one(&[Put, Delete], Start::Nothing);
    let problem = find(Planted::GivesUpBeforeItResolves, Case { crashes: 1, ..case });
    assert_eq!(problem, Problem::WrongRead);
}

#[test]
fn the_model_finds_a_reservation_that_is_resolved_before_fence() {
    let case = one(&[Put, Delete], Start::Nothing);
    let case = Case {
        crashes: 1,
        rebuilds: 1,
        ..case
    };
    assert_eq!(find(Planted::ResolvesWithoutFence, case), Problem::WrongRead);
}

#[test]
fn the_model_finds_a_list_that_reads_the_map_before_the_entries() {
    let problem = find(Planted::ListsTheMapFirst, one(&[List], Start::Dirty));
    assert_eq!(problem, Problem::NoOrder);
}

#[test]
fn the_model_finds_packing_that_removes_the_plain_object() {
    let problem = find(Planted::RemovesWhatItPacks, one(&[Put, List], Start::Plain));
    assert_eq!(problem, Problem::NoOrder);
}
