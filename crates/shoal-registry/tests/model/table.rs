//! A hash table that hashes fast and alike in each run, and the steps of a search that fills one.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;

/// A hash table.
pub(crate) type Table<K, V> = HashMap<K, V, FixedState>;

/// The hash that identifies states. Two states share one in a search of ten million with a
/// probability of 1 in 300,000.
pub(crate) fn fingerprint(value: &impl Hash) -> u64 {
    FixedState::with_seed(13).hash_one(value)
}

/// Returns the steps that lead from `start` to the state with the fingerprint `last`, as text. `parents` has
/// the fingerprint of the state before each one, 0 for the start. `next` returns the states that may follow
/// one, each with the step to it as text.
pub(crate) fn story<S: Display + Hash>(
    start: S,
    last: u64,
    parents: &Table<u64, u64>,
    mut next: impl FnMut(&S) -> Vec<(String, S)>,
) -> Vec<String> {
    let mut prints = vec![last];
    while let Some(&parent) = prints.last().and_then(|print| parents.get(print))
        && parent != 0
    {
        prints.push(parent);
    }
    let mut steps = vec![format!("at the start: {start}")];
    let mut state = start;
    for print in prints.into_iter().rev().skip(1) {
        let (step, after) = next(&state)
            .into_iter()
            .find(|(_, after)| fingerprint(after) == print)
            .expect("the search took this step");
        steps.push(format!("{step} => {after}"));
        state = after;
    }
    steps
}
