//! Matches runs to forecast jobs, and measures which part of each run was forecast.
//!
//! A run is foreseen if a job of its name was forecast within ten minutes of its submission, or within twice
//! the forecast's own spread, but never farther off than half a period. Of several jobs, the nearest in time
//! with similar inputs is matched; each job is matched once.

use std::collections::HashMap;
use std::ops::Range;

use super::Why;
use crate::forecast::{Extent, Forecast, ForecastJob};
use crate::moment::MINUTE_MS;
use crate::path::parent;
use crate::recurrence::schedule::RUNS_MIN;
use crate::recurrence::{Templates, features, likeness};
use crate::run::{History, StoredRun};

/// A forecast is right if its error is at most this.
const NEAR_MS: i64 = 10 * MINUTE_MS;
/// Maximum forecast jobs compared with one run.
const CANDIDATES_MAX: usize = 64;
/// A run belongs to a template if it shares at least this fraction of its inputs.
const ALIKE_MIN: f64 = 0.5;

/// The result for one run of the forecast window.
pub(super) struct Outcome {
    /// Name of its job.
    pub(super) name: String,
    /// The template it belongs to.
    pub(super) template: Option<u32>,
    /// The job of the forecast that foresaw the run, or why none did.
    pub(super) cause: Result<usize, Why>,
    /// Submission minus forecast.
    pub(super) submission_error_ms: i64,
    pub(super) bytes: u64,
    pub(super) foreseen_bytes: u64,
    pub(super) inputs: u64,
    pub(super) foreseen_inputs: u64,
    /// Bytes that the run was expected to read.
    pub(super) expected_bytes: u64,
}

impl Outcome {
    pub(super) const fn is_foreseen(&self) -> bool {
        self.cause.is_ok()
    }
}

/// Compares the runs at these indexes with a forecast.
pub(super) fn outcomes(
    history: &History,
    runs: Range<usize>,
    templates: &Templates,
    forecast: &Forecast,
) -> Vec<Outcome> {
    let matching = Matching {
        history,
        known: runs.start,
        templates,
        forecast,
        jobs_of: by_name(forecast.jobs.iter().map(|job| &job.name)),
    };
    let names: Vec<String> = history.runs[runs.clone()]
        .iter()
        .map(|run| templates.names.job(history.names.text(run.name)))
        .collect();
    let matched = matching.matched(&names);
    let of_name = by_name(templates.list.iter().map(|template| &template.name));
    history.runs[runs.clone()]
        .iter()
        .zip(names)
        .enumerate()
        .map(|(number, (run, name))| {
            let templates_of_name = of_name.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
            match matched.get(&number) {
                Some(&job) => matching.foreseen(run, name, job),
                None => matching.not_foreseen(run, name, templates_of_name),
            }
        })
        .collect()
}

/// Returns the positions of each name.
fn by_name<'a>(names: impl Iterator<Item = &'a String>) -> HashMap<&'a str, Vec<usize>> {
    let mut positions: HashMap<&str, Vec<usize>> = HashMap::new();
    for (position, name) in names.enumerate() {
        positions.entry(name).or_default().push(position);
    }
    positions
}

struct Matching<'a> {
    history: &'a History,
    known: usize,
    templates: &'a Templates,
    forecast: &'a Forecast,
    /// Jobs of the forecast by name, ordered by submission.
    jobs_of: HashMap<&'a str, Vec<usize>>,
}

/// A run and a forecast job that may match.
struct Pair {
    cost: f64,
    run: usize,
    job: usize,
}

impl Matching<'_> {
    /// Matches runs to forecast jobs; keys are the indexes of the runs, starting at `known`.
    fn matched(&self, names: &[String]) -> HashMap<usize, usize> {
        let mut pairs: Vec<Pair> = names
            .iter()
            .enumerate()
            .flat_map(|(number, name)| self.candidates(number, name))
            .collect();
        pairs.sort_by(|a, b| {
            a.cost
                .total_cmp(&b.cost)
                .then((a.run, a.job).cmp(&(b.run, b.job)))
        });
        let (mut of_run, mut taken) = (HashMap::new(), vec![false; self.forecast.jobs.len()]);
        for Pair { run, job, .. } in pairs {
            if !taken[job] && !of_run.contains_key(&run) {
                taken[job] = true;
                of_run.insert(run, job);
            }
        }
        of_run
    }

    fn candidates(&self, number: usize, name: &str) -> Vec<Pair> {
        let run = &self.history.runs[self.known + number];
        let Some(jobs) = self.jobs_of.get(name) else {
            return Vec::new();
        };
        let read = features(run, &self.templates.paths);
        let job = |at: &usize| &self.forecast.jobs[jobs[*at]];
        let next = jobs.partition_point(|&job| self.forecast.jobs[job].submission.at < run.submitted);
        // The jobs around the run.
        let around = (next.saturating_sub(CANDIDATES_MAX / 2)..jobs.len()).take(CANDIDATES_MAX);
        around
            .filter_map(|at| {
                let off_ms = run.submitted.since_ms(job(&at).submission.at).abs();
                let reach_ms = self.reach_ms(job(&at));
                let template = &self.templates.list[job(&at).template as usize];
                let likeness = likeness(&read, &template.features);
                let cost = off_ms as f64 / reach_ms as f64 + (1.0 - likeness);
                (off_ms <= reach_ms).then_some(Pair {
                    cost,
                    run: number,
                    job: jobs[at],
                })
            })
            .collect()
    }

    /// Returns the maximum error at which a job of the forecast matches a run.
    fn reach_ms(&self, job: &ForecastJob) -> i64 {
        let schedule = self.templates.list[job.template as usize].schedule.as_ref();
        let half_ms = schedule.map_or(NEAR_MS, |schedule| schedule.period_ms / 2);
        let submission = &job.submission;
        let early_ms = submission.at.since_ms(submission.early);
        let late_ms = submission.late.since_ms(submission.at);
        (2 * early_ms.max(late_ms)).max(NEAR_MS).min(half_ms).max(1)
    }

    fn foreseen(&self, run: &StoredRun, name: String, number: usize) -> Outcome {
        let job = &self.forecast.jobs[number];
        let expected: HashMap<&str, Extent> = job
            .inputs
            .iter()
            .map(|input| (input.path.as_str(), input.extent))
            .collect();
        let (mut foreseen_bytes, mut foreseen_inputs) = (0_u64, 0);
        for input in &run.inputs {
            if is_expected(self.history.paths.text(input.path), &expected) {
                foreseen_bytes = foreseen_bytes.saturating_add(input.bytes);
                foreseen_inputs += 1;
            }
        }
        Outcome {
            template: Some(job.template),
            cause: Ok(number),
            submission_error_ms: run.submitted.since_ms(job.submission.at),
            foreseen_bytes,
            foreseen_inputs,
            expected_bytes: job.bytes(),
            ..outcome(run, name)
        }
    }

    fn not_foreseen(&self, run: &StoredRun, name: String, of_name: &[usize]) -> Outcome {
        let read = features(run, &self.templates.paths);
        let like = |number: usize| likeness(&read, &self.templates.list[number].features);
        let best = of_name
            .iter()
            .copied()
            .max_by(|&a, &b| like(a).total_cmp(&like(b)));
        let (template, why) = match best {
            None => (None, Why::NewName),
            Some(best) if of_name.len() > 1 && like(best) < ALIKE_MIN => (None, Why::NewInputs),
            Some(best) => {
                let template = &self.templates.list[best];
                let why = match template.schedule {
                    Some(_) => Why::OffSchedule,
                    None if template.runs < RUNS_MIN => Why::TooFew,
                    None => Why::Irregular,
                };
                (Some(best as u32), why)
            }
        };
        Outcome {
            template,
            cause: Err(why),
            ..outcome(run, name)
        }
    }
}

fn outcome(run: &StoredRun, name: String) -> Outcome {
    Outcome {
        name,
        template: None,
        cause: Err(Why::NewName),
        submission_error_ms: 0,
        bytes: run.input_bytes(),
        foreseen_bytes: 0,
        inputs: run.inputs.len() as u64,
        foreseen_inputs: 0,
        expected_bytes: 0,
    }
}

/// Returns true if a path was forecast: by name, or below a prefix that is read completely.
fn is_expected(path: &str, expected: &HashMap<&str, Extent>) -> bool {
    let whole = |path: &str| {
        expected
            .get(path)
            .is_some_and(|extent| *extent != Extent::PartOfPrefix)
    };
    if whole(path) || !path.ends_with('/') && whole(&format!("{path}/")) {
        return true;
    }
    std::iter::successors(parent(path), |path| parent(path)).any(whole)
}
