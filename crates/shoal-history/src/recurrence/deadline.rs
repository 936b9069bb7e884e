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
use crate::stats::{quantile, sorted};

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
        at = paths[path].parent;
    }
    all
}

/// Infers the deadline of a job's next run.
pub(crate) fn deadline<'history>(
    runs: impl Iterator<Item = (usize, &'history StoredRun)> + Clone,
    consumers: &Consumers,
) -> Deadline {
    let deadline = |after_ms, rule| Deadline { after_ms, rule };
    let count = runs.clone().count();
    let are_usual = |values: &Vec<i64>| values.len() * 2 >= count;
    let given = runs
        .clone()
        .filter_map(|(_, run)| Some(run.deadline?.since_ms(run.submitted)));
    let given = Some(sorted(given)).filter(are_usual);
    if let Some(after_ms) = given.and_then(|values| quantile(&values, 0.5)) {
        return deadline(after_ms, DeadlineRule::Given);
    }
    let run_times = sorted(runs.clone().filter_map(|(_, run)| run.duration_ms()));
    let usual_ms = quantile(&run_times, 0.5).unwrap_or(0);
    let consumed = runs.filter_map(|(number, run)| Some(consumers.get(&number)?.since_ms(run.submitted)));
    let consumed = Some(sorted(consumed)).filter(are_usual);
    if let Some(after_ms) = consumed.and_then(|values| quantile(&values, CONSUMER_SHARE)) {
        return deadline(after_ms.max(usual_ms).max(1), DeadlineRule::Consumer);
    }
    match quantile(&run_times, RUN_TIME_SHARE) {
        Some(long_ms) => {
            let after_ms = long_ms.max((usual_ms as f64 * SLACK) as i64).max(1);
            deadline(after_ms, DeadlineRule::RunTimes)
        }
        None => deadline(WITHOUT_END_MS, DeadlineRule::Unknown),
    }
}
