//! Selects the runs from which inputs are learned, within a memory limit.

use std::collections::{BTreeMap, HashMap};

use super::{Item, OBJECTS_MAX, Occurrence, are_many, is_of_a_date};
use crate::path::{PathId, Paths};
use crate::recurrence::schedule::RUNS_MIN;
use crate::run::StoredInput;

/// Number of runs selected: the latest ones, and some of the older ones.
const LATEST: usize = 40;
const OLDER: usize = 20;
/// Maximum number of inputs of all those runs.
const ITEMS_MAX: usize = 400_000;
/// Maximum number of inputs of one run. Of a run with more, prefixes replace objects.
const RUN_ITEMS_MAX: usize = ITEMS_MAX / RUNS_MIN;

/// Returns the latest runs, and some of all the others, because a job that runs every minute shows only over
/// days which dates move. Limits the inputs to [`ITEMS_MAX`], but keeps as many runs as a job needs.
pub(super) fn sample<'history>(occurrences: &[Occurrence<'history>]) -> Vec<Occurrence<'history>> {
    let (older, latest) = occurrences.split_at(occurrences.len().saturating_sub(LATEST));
    let step = older.len().div_ceil(OLDER).max(1);
    let mut left = ITEMS_MAX;
    let mut fits = |(number, occurrence): &(usize, &Occurrence<'_>)| {
        let items = occurrence.run.inputs.len();
        left = left.saturating_sub(items);
        left > 0 || *number < RUNS_MIN
    };
    let mut sample: Vec<_> = latest
        .iter()
        .rev()
        .chain(older.iter().rev().step_by(step))
        .enumerate()
        .take_while(|occurrence| fits(occurrence))
        .map(|(_, occurrence)| *occurrence)
        .collect();
    sample.reverse();
    sample
}

/// Returns the inputs of some runs. In runs with too many inputs, prefixes replace objects.
pub(super) fn items(occurrences: &[Occurrence<'_>], paths: &Paths) -> Vec<Item> {
    let is_large = |of: &Occurrence<'_>| of.run.inputs.len() > RUN_ITEMS_MAX;
    let are_large = occurrences.iter().any(is_large);
    let item = |occurrence: usize, input: &StoredInput| Item {
        occurrence,
        path: input.path,
        at: Some(input.path),
        bytes: input.bytes,
        bytes_per_s: input.bytes_per_s,
        explained_by: None,
    };
    let mut items = Vec::new();
    for (occurrence, of) in occurrences.iter().enumerate() {
        if are_large {
            let inputs = in_prefixes(&of.run.inputs, paths);
            items.extend(inputs.iter().map(|input| item(occurrence, input)));
        } else {
            items.extend(of.run.inputs.iter().map(|input| item(occurrence, input)));
        }
    }
    items
}

/// Summarizes the inputs of a run that has too many: prefixes replace their objects where there are many, and
/// only the largest inputs are kept.
fn in_prefixes(inputs: &[StoredInput], paths: &Paths) -> Vec<StoredInput> {
    // Number of inputs below each prefix, and how many of them have a date.
    let mut of_prefix: HashMap<PathId, (usize, usize)> = HashMap::new();
    for input in inputs {
        if let Some(prefix) = paths[input.path].parent {
            let (all, of_dates) = of_prefix.entry(prefix).or_default();
            *all += 1;
            *of_dates += usize::from(is_of_a_date(paths, input.path));
        }
    }
    let is_crowd = |prefix: &PathId| {
        let (all, of_dates) = of_prefix[prefix];
        all > OBJECTS_MAX && !are_many(of_dates, all)
    };
    let mut bytes_of: BTreeMap<PathId, (u64, u64)> = BTreeMap::new();
    for input in inputs {
        let path = paths[input.path].parent.filter(is_crowd).unwrap_or(input.path);
        let (bytes, bytes_per_s) = bytes_of.entry(path).or_default();
        *bytes = bytes.saturating_add(input.bytes);
        *bytes_per_s = bytes_per_s.saturating_add(input.bytes_per_s);
    }
    let mut inputs: Vec<StoredInput> = bytes_of
        .into_iter()
        .map(|(path, (bytes, bytes_per_s))| StoredInput {
            path,
            bytes,
            bytes_per_s,
        })
        .collect();
    inputs.sort_by_key(|input| (std::cmp::Reverse(input.bytes), input.path));
    inputs.truncate(RUN_ITEMS_MAX);
    inputs
}
