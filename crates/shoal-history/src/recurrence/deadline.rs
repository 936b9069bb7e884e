//! Infers the deadline of a run.
//!
//! Objectives are inferred from past runs as in Morpheus (OSDI 2016), in this order:
//!
//! 1. *Given*: the history has deadlines; the job keeps its usual one, relative to its submission.
//! 2. *Consumer*: other jobs read the outputs of the job; it has to be done before the first of them starts.
//!    One in ten consumers may start earlier than that. The job gets at least its median run time.
//! 3. *Run times*: 19 of 20 runs took no longer than this, and the job gets at least a fifth more than the
//!    median.

use std::collections::HashMap;

use shoal_base::forecast::DeadlineRule;

use crate::moment::{DAY_MS, HOUR_MS, Moment};
use crate::path::{PathId, Paths};
use crate::run::{History, StoredRun};
use crate::stats::quantile;

/// Percentile of the run time that the deadline allows.
const RUN_TIME_SHARE: f64 = 0.95;
/// Minimum deadline as a multiple of the median run time.
const SLACK: f64 = 1.2;
/// Fraction of consumers that start earlier than the deadline.
const CONSUMER_SHARE: f64 = 0.1;
/// Maximum age of an output when a consumer reads it.
const CONSUMED_WITHIN_MS: i64 = 7 * DAY_MS;
/// Deadline of a job without a completed run.
const WITHOUT_END_MS: i64 = HOUR_MS;

/// A deadline, relative to the submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadline {
    pub(crate) after_ms: i64,
    pub(crate) rule: DeadlineRule,
}

/// The first submission that needed the outputs of each run, by the run's index.
pub(crate) type Consumers = HashMap<usize, Moment>;

/// Finds the consumers of all runs with outputs.
pub(crate) fn consumers(history: &History, paths: &Paths, runs: &[usize]) -> Consumers {
    let mut writers: HashMap<PathId, usize> = HashMap::new();
    let mut consumers = Consumers::new();
    if runs.iter().all(|&run| history.runs[run].outputs.is_empty()) {
        return consumers;
    }
    // Runs are ordered by submission, so the last writer of a path is the one submitted last.
    for &number in runs {
        let run = &history.runs[number];
        for input in &run.inputs {
            for path in spellings(paths, input.path) {
                let Some(&writer) = writers.get(&path) else {
                    continue;
                };
                let since_ms = history.runs[writer]
                    .ended
                    .map(|ended| run.submitted.since_ms(ended));
                if writer != number && since_ms.is_some_and(|ms| (0..CONSUMED_WITHIN_MS).contains(&ms)) {
                    consumers.entry(writer).or_insert(run.submitted);
                }
            }
        }
        for &output in &run.outputs {
            writers.insert(output, number);
        }
    }
    consumers
}

/// Returns the path and its enclosing prefixes, each also without its trailing slash, because writers name a
/// table either way.
fn spellings(paths: &Paths, path: PathId) -> Vec<PathId> {
    let mut all = Vec::new();
    let mut at = Some(path);
    while let Some(path) = at {
        all.push(path);
        all.extend(
            paths
                .text(path)
                .strip_suffix('/')
                .and_then(|text| paths.find(text)),
        );
        at = paths.parent(path);
    }
    all
}

/// Infers the deadline of a job's next run.
pub(crate) fn deadline<'history>(
    runs: impl Iterator<Item = (usize, &'history StoredRun)> + Clone,
    consumers: &Consumers,
) -> Deadline {
    let sorted = |values: Vec<i64>| {
        let mut values = values;
        values.sort_unstable();
        values
    };
    let count = runs.clone().count();
    let is_usual = |values: &[i64]| !values.is_empty() && values.len() * 2 >= count;
    let given = sorted(
        runs.clone()
            .filter_map(|(_, run)| run.deadline.map(|deadline| deadline.since_ms(run.submitted)))
            .collect(),
    );
    if is_usual(&given)
        && let Some(after_ms) = quantile(&given, 0.5)
    {
        return Deadline {
            after_ms,
            rule: DeadlineRule::Given,
        };
    }
    let run_times = sorted(runs.clone().filter_map(|(_, run)| run.duration_ms()).collect());
    let usual_ms = quantile(&run_times, 0.5).unwrap_or(0);
    let consumed = sorted(
        runs.filter_map(|(number, run)| consumers.get(&number).map(|at| at.since_ms(run.submitted)))
            .collect(),
    );
    if is_usual(&consumed)
        && let Some(after_ms) = quantile(&consumed, CONSUMER_SHARE)
    {
        return Deadline {
            after_ms: after_ms.max(usual_ms).max(1),
            rule: DeadlineRule::Consumer,
        };
    }
    match quantile(&run_times, RUN_TIME_SHARE) {
        Some(long_ms) => Deadline {
            after_ms: long_ms.max((usual_ms as f64 * SLACK) as i64).max(1),
            rule: DeadlineRule::RunTimes,
        },
        None => Deadline {
            after_ms: WITHOUT_END_MS,
            rule: DeadlineRule::Unknown,
        },
    }
}
