//! Sets of dates that grow from run to run.

use std::collections::{BTreeMap, BTreeSet};

use super::RangeBegin;
use crate::path::Grain;

/// Fraction of runs that must agree on the ends of a range.
const AGREE_MIN: f64 = 0.7;
/// Fraction of the dates between the ends that a run must have read.
const FILLED_MIN: f64 = 0.8;
/// Minimum average number of dates per run, because one date is not a range.
const DATES_MIN: f64 = 1.5;

/// Finds the rule for the first and the last date of the runs. Each run has the number of its due time and
/// the numbers of its dates. Returns `None` if the sets do not grow; then each date recurs by itself, or none
/// does.
pub(super) fn ranges(grain: Grain, runs: &[(i64, &BTreeSet<i64>)]) -> Option<(RangeBegin, i64)> {
    let dates: usize = runs.iter().map(|(_, dates)| dates.len()).sum();
    if (dates as f64) < runs.len() as f64 * DATES_MIN {
        return None;
    }
    let ends: Vec<(i64, i64, i64)> = runs
        .iter()
        .filter_map(|(due, dates)| Some((*due, *dates.first()?, *dates.last()?)))
        .collect();
    let filled = runs
        .iter()
        .zip(&ends)
        .filter(|((_, dates), (_, first, last))| dates.len() as f64 >= (last - first + 1) as f64 * FILLED_MIN)
        .count();
    let last = agreed(ends.iter().map(|(due, _, last)| last - due))?;
    let moves = |value: Option<i64>| value.is_none();
    let is_fixed = |(due, first, _): &(i64, i64, i64)| first - due;
    if (filled as f64) < runs.len() as f64 * AGREE_MIN || !moves(agreed(ends.iter().map(is_fixed))) {
        return None;
    }
    if let Some(first) = agreed(ends.iter().map(|(_, first, _)| *first)) {
        return Some((RangeBegin::At(first), last));
    }
    let begins_month = |&(_, first, last): &(i64, i64, i64)| first == month_begin(grain, last);
    let of_month = ends.iter().filter(|ends| begins_month(ends)).count();
    (of_month as f64 >= runs.len() as f64 * AGREE_MIN).then_some((RangeBegin::Month, last))
}

/// Returns the first unit of the month that contains a unit.
pub(crate) fn month_begin(grain: Grain, count: i64) -> i64 {
    grain.count(Grain::Month.begin(Grain::Month.count(grain.begin(count))))
}

/// Returns the most frequent value, if it is frequent enough.
fn agreed(values: impl Iterator<Item = i64>) -> Option<i64> {
    let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
    let mut all = 0;
    for value in values {
        *counts.entry(value).or_default() += 1;
        all += 1;
    }
    let (value, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    (count as f64 >= f64::from(all) * AGREE_MIN).then_some(value)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{RangeBegin, ranges};
    use crate::path::Grain;

    fn found(runs: &[(i64, std::ops::RangeInclusive<i64>)]) -> Option<(RangeBegin, i64)> {
        let sets: Vec<(i64, BTreeSet<i64>)> = runs
            .iter()
            .map(|(due, dates)| (*due, dates.clone().collect()))
            .collect();
        let runs: Vec<_> = sets.iter().map(|(due, dates)| (*due, dates)).collect();
        ranges(Grain::Day, &runs)
    }

    #[test]
    fn all_dates_up_to_yesterday_are_a_range() {
        let runs: Vec<_> = (20_020..20_030).map(|due| (due, 20_000..=due - 1)).collect();
        assert_eq!(found(&runs), Some((RangeBegin::At(20_000), -1)));
    }

    #[test]
    fn a_month_to_date_is_a_range() {
        // 2026-11-01 is day 20,758.
        let november = (20_761..20_780).map(|due| (due, 20_758..=due - 1));
        let december = (20_790..20_800).map(|due| (due, 20_788..=due - 1));
        let runs: Vec<_> = november.chain(december).collect();
        assert_eq!(found(&runs), Some((RangeBegin::Month, -1)));
    }

    #[test]
    fn a_window_that_moves_is_no_range() {
        let runs: Vec<_> = (20_020..20_030).map(|due| (due, due - 7..=due - 1)).collect();
        assert_eq!(found(&runs), None);
        let single: Vec<_> = (20_020..20_030).map(|due| (due, due - 1..=due - 1)).collect();
        assert_eq!(found(&single), None);
    }
}
