//! A model of the receipts of one name: searches all that may happen for a moment at which a lost registry
//! would be recovered wrongly.
//!
//! Clients write and remove the name, by way of a tier or at the lake, with ids that do not follow the order
//! of their operations, as the clocks of nodes differ. A flusher brings what is dirty to the lake. Nodes
//! crash at each step, commits are lost or late, and the registry is lost once and recovered. The changes of
//! entries and their receipts are the functions of the registry.

mod protocol;
mod search;

use search::{Verdict, explore};

use Work::{Put, Remove, Through};
use protocol::{Case, Planted, Work};

/// Searches each of these cases completely.
fn hold(cases: &[&[Work]]) {
    for works in cases {
        match explore(&Case::new(works)) {
            Verdict::Holds { states } => println!("{works:?}: {states} states"),
            Verdict::Fails { steps } => panic!("{works:?}:\n  {}", steps.join("\n  ")),
        }
    }
}

#[test]
fn a_recovered_registry_means_what_the_lost_one_did() {
    hold(&[
        &[Put, Put, Put],
        &[Put, Put, Remove],
        &[Put, Put, Through],
        &[Put, Remove, Through],
        &[Put, Remove, Remove],
    ]);
}

/// Leaves a rule out, and expects the search to find a moment at which the registry would be recovered
/// wrongly.
fn find(planted: Planted, works: &[Work]) {
    let case = Case {
        planted: Some(planted),
        ..Case::new(works)
    };
    match explore(&case) {
        Verdict::Holds { states } => panic!("{planted:?} is not found among {states} states"),
        Verdict::Fails { steps } => println!("{planted:?}, {} steps:\n  {}", steps.len(), steps.join("\n  ")),
    }
}

#[test]
fn each_rule_is_needed() {
    find(Planted::CommitsFirst, &[Put]);
    find(Planted::RemovesBeforeTheLake, &[Put]);
    find(Planted::RemovesAfterTheEnd, &[Put, Through]);
    find(Planted::RemovesTheNewestFirst, &[Put, Put]);
    find(Planted::LeavesReplaced, &[Put, Put]);
    find(Planted::IgnoresTheOrderOfIds, &[Put, Put]);
    find(Planted::NoReceiptOfTombstones, &[Put, Remove]);
    find(Planted::SweepsWithoutFence, &[Put]);
    find(Planted::RemovesTheUnknown, &[Put]);
    find(Planted::PrunesTheCurrent, &[Put, Put, Put]);
    find(Planted::ListsTheNewestOnly, &[Put, Put]);
}
