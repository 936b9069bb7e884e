//! Measures how predictable a history is: forecasts its last part from the earlier runs, and compares the
//! forecast with the actual runs.

mod matching;
mod text;

use std::collections::BTreeMap;

use serde::Serialize;

use self::matching::{Outcome, outcomes};
use crate::forecast::{Extent, Forecast, ForecastJob, Window, forecast};
use crate::moment::HOUR_MS;
use crate::path::Paths;
use crate::recurrence::Templates;
use crate::recurrence::schedule::Schedule;
use crate::recurrence::words;
use crate::run::History;
use crate::stats::{quantile, sum};

/// Maximum fraction of a history to forecast; the rest is needed for learning.
const SHARE_MAX: f64 = 0.5;
/// How far outside the window a run may be and still match a job forecast for the window.
const MARGIN_MS: i64 = HOUR_MS;
/// Maximum number of jobs in a report.
const JOBS_MAX: usize = 1_000;
/// Maximum number of examples per reason.
const EXAMPLES: usize = 3;

/// A foreseen part of a total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Foreseen {
    /// The foreseen part.
    pub foreseen: u64,
    /// The total.
    pub of: u64,
}

impl Foreseen {
    /// Returns the fraction, from 0 to 1; 0 if the total is 0.
    pub fn share(self) -> f64 {
        if self.of == 0 {
            0.0
        } else {
            self.foreseen as f64 / self.of as f64
        }
    }

    fn add(&mut self, foreseen: u64, of: u64) {
        debug_assert!(foreseen <= of, "no more is foreseen than there was");
        self.foreseen = self.foreseen.saturating_add(foreseen);
        self.of = self.of.saturating_add(of);
    }
}

/// Distribution of absolute errors.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ErrorSpread {
    /// Median.
    pub median: f64,
    /// 90th percentile.
    pub most: f64,
    /// Maximum.
    pub worst: f64,
}

impl ErrorSpread {
    fn from_errors(mut errors: Vec<f64>) -> Option<Self> {
        errors.sort_by(f64::total_cmp);
        Some(Self {
            median: quantile(&errors, 0.5)?,
            most: quantile(&errors, 0.9)?,
            worst: *errors.last()?,
        })
    }
}

/// How predictable a history is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The part of the history from which the templates were learned.
    pub learned: Window,
    /// Number of runs in that part.
    pub learned_runs: u64,
    /// Number of jobs found in them.
    pub learned_jobs: u64,
    /// Number of those jobs with a schedule.
    pub scheduled_jobs: u64,
    /// The forecast part, which was not used for learning.
    pub window: Window,
    /// Runs.
    pub jobs: Foreseen,
    /// Bytes that the runs read.
    pub bytes: Foreseen,
    /// Inputs of the runs: objects, or prefixes where the history names those.
    pub inputs: Foreseen,
    /// Runs that were forecast and did not happen.
    pub did_not_run: u64,
    /// Bytes that were forecast but not read.
    pub not_read_bytes: u64,
    /// Errors of foreseen submissions, in seconds.
    pub submission_error_s: Option<ErrorSpread>,
    /// Relative errors of the bytes that foreseen runs read.
    pub size_error: Option<ErrorSpread>,
    /// Jobs, those with the most foreseen bytes first.
    pub by_job: Vec<JobReport>,
    /// Runs and inputs that were not foreseen, by reason.
    pub not_foreseen: Vec<NotForeseen>,
}

/// How predictable one job is.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobReport {
    /// Its name, with `*` for dates and ids.
    pub name: String,
    /// Its schedule in words.
    pub schedule: String,
    /// Descriptions of its inputs, the largest first.
    pub reads: Vec<String>,
    /// Number of runs that it was learned from.
    pub learned_runs: u64,
    /// Its runs.
    pub jobs: Foreseen,
    /// The bytes of its runs.
    pub bytes: Foreseen,
    /// Runs that were forecast and did not happen.
    pub did_not_run: u64,
    /// Errors of the submission time, in seconds.
    pub submission_error_s: Option<ErrorSpread>,
    /// Errors of the bytes, as a share.
    pub size_error: Option<ErrorSpread>,
}

/// Runs and inputs that were not foreseen for one reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NotForeseen {
    /// The reason.
    pub why: Why,
    /// Number of runs.
    pub jobs: u64,
    /// Bytes that they read; of foreseen runs, only bytes that were not forecast.
    pub bytes: u64,
    /// Names of the jobs with the most bytes.
    pub examples: Vec<String>,
}

shoal_base::words! {
    /// Why a run or an input was not foreseen.
    #[derive(Serialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Why {
        /// No earlier run has this name.
        NewName = "the name is new",
        /// Earlier runs with this name had other inputs.
        NewInputs = "the name is known, and read other things",
        /// Fewer than three earlier runs.
        TooFew = "fewer than three runs are known",
        /// The runs follow no schedule.
        Irregular = "its runs follow no schedule",
        /// The job has a schedule, but ran at another time.
        OffSchedule = "it ran outside its schedule",
        /// The run was foreseen, but not these inputs.
        OtherInputs = "the run was foreseen, some of its inputs were not",
    }
}

/// Forecasts the last `window_ms` of a history, or its last half if it is shorter than twice that. Returns
/// `None` if the history is empty.
pub fn backtest(history: &History, window_ms: i64) -> Option<Report> {
    let (first, end) = history.span()?;
    let end = end.plus_ms(1);
    let longest_ms = (end.since_ms(first) as f64 * SHARE_MAX) as i64;
    let cut = end.plus_ms(-window_ms.clamp(0, longest_ms));
    backtest_window(history, Window { from: cut, to: end })
}

/// Forecasts a window of a history from the runs before it, like a planner that replans every hour. Returns
/// `None` if the history is empty.
pub fn backtest_window(history: &History, window: Window) -> Option<Report> {
    let (first, _) = history.span()?;
    let templates = Templates::learn_until(history, Paths::new(&history.paths), window.from);
    // A run near an end of the window may have been due outside of it.
    let forecast = forecast(&templates, window.widened(MARGIN_MS));
    let number = |moment| history.runs.partition_point(|run| run.submitted < moment);
    let (known, end) = (number(window.from), number(window.to.max(window.from)));
    let outcomes = outcomes(history, known..end, &templates, &forecast);
    let all = Sums::from_outcomes(outcomes.iter());
    let mut by_template: BTreeMap<u32, Vec<&Outcome>> = BTreeMap::new();
    for outcome in &outcomes {
        if let Some(template) = outcome.template {
            by_template.entry(template).or_default().push(outcome);
        }
    }
    let silent = silent(window, &forecast, &outcomes);
    let mut by_job: Vec<JobReport> = by_template
        .keys()
        .chain(
            silent
                .keys()
                .filter(|template| !by_template.contains_key(template)),
        )
        .map(|&template| {
            let outcomes = by_template.get(&template).map(Vec::as_slice).unwrap_or_default();
            let did_not_run = silent.get(&template).map_or(0, |silent| silent.0);
            job_report(&templates, template, outcomes, did_not_run)
        })
        .collect();
    by_job.sort_by_key(|job| std::cmp::Reverse((job.bytes.foreseen, job.jobs.foreseen, job.bytes.of)));
    by_job.truncate(JOBS_MAX);
    let silent_bytes = sum(silent.values().map(|silent| silent.1));
    let jobs = templates.list.iter();
    let scheduled = jobs.filter(|template| template.schedule.is_some());
    Some(Report {
        learned: Window {
            from: first,
            to: window.from,
        },
        learned_runs: known as u64,
        learned_jobs: templates.list.len() as u64,
        scheduled_jobs: scheduled.count() as u64,
        window,
        jobs: all.jobs,
        bytes: all.bytes,
        inputs: all.inputs,
        did_not_run: silent.values().map(|silent| silent.0).sum(),
        not_read_bytes: silent_bytes.saturating_add(all.not_read_bytes),
        submission_error_s: ErrorSpread::from_errors(all.submission_errors_s),
        size_error: ErrorSpread::from_errors(all.size_errors),
        by_job,
        not_foreseen: not_foreseen(&outcomes),
    })
}

/// Returns the number and the bytes of forecast runs that did not happen, by template.
fn silent(window: Window, forecast: &Forecast, outcomes: &[Outcome]) -> BTreeMap<u32, (u64, u64)> {
    let mut ran = vec![false; forecast.jobs.len()];
    for outcome in outcomes {
        if let Ok(job) = outcome.cause {
            ran[job] = true;
        }
    }
    let mut silent: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let is_due = |job: &ForecastJob| (window.from..window.to).contains(&job.submission.at);
    for (job, _) in forecast
        .jobs
        .iter()
        .zip(ran)
        .filter(|(job, ran)| !ran && is_due(job))
    {
        let inputs = job.inputs.iter();
        let wanted = inputs.filter(|input| input.extent != Extent::PartOfPrefix);
        let bytes = sum(wanted.map(|input| input.bytes.typical));
        let of = silent.entry(job.template).or_default();
        *of = (of.0 + 1, of.1.saturating_add(bytes));
    }
    silent
}

/// Sums over outcomes.
#[derive(Default)]
struct Sums {
    jobs: Foreseen,
    bytes: Foreseen,
    inputs: Foreseen,
    not_read_bytes: u64,
    submission_errors_s: Vec<f64>,
    size_errors: Vec<f64>,
}

impl Sums {
    fn from_outcomes<'a>(outcomes: impl Iterator<Item = &'a Outcome>) -> Self {
        let mut sums = Self::default();
        for outcome in outcomes {
            sums.jobs.add(u64::from(outcome.is_foreseen()), 1);
            sums.bytes.add(outcome.foreseen_bytes, outcome.bytes);
            sums.inputs.add(outcome.foreseen_inputs, outcome.inputs);
            if outcome.is_foreseen() {
                sums.submission_errors_s
                    .push(outcome.submission_error_ms.abs() as f64 / 1e3);
                sums.not_read_bytes = sums
                    .not_read_bytes
                    .saturating_add(outcome.expected_bytes.saturating_sub(outcome.bytes));
                if outcome.bytes > 0 {
                    let error = outcome.expected_bytes.abs_diff(outcome.bytes);
                    sums.size_errors.push(error as f64 / outcome.bytes as f64);
                }
            }
        }
        sums
    }
}

fn job_report(templates: &Templates, number: u32, outcomes: &[&Outcome], did_not_run: u64) -> JobReport {
    let template = &templates.list[number as usize];
    let sums = Sums::from_outcomes(outcomes.iter().copied());
    let reads = template.slots.first().map(|slot| {
        let words = slot
            .inputs
            .iter()
            .map(|input| words::input(input, &templates.paths));
        words.take(EXAMPLES).collect()
    });
    JobReport {
        name: template.name.clone(),
        schedule: template
            .schedule
            .as_ref()
            .map_or("none".to_owned(), Schedule::to_string),
        reads: reads.unwrap_or_default(),
        learned_runs: template.runs as u64,
        jobs: sums.jobs,
        bytes: sums.bytes,
        did_not_run,
        submission_error_s: ErrorSpread::from_errors(sums.submission_errors_s),
        size_error: ErrorSpread::from_errors(sums.size_errors),
    }
}

fn not_foreseen(outcomes: &[Outcome]) -> Vec<NotForeseen> {
    let mut reasons: BTreeMap<Why, (u64, u64, BTreeMap<&str, u64>)> = BTreeMap::new();
    for outcome in outcomes {
        let (why, bytes) = match outcome.cause {
            Err(why) => (why, outcome.bytes),
            Ok(_) if outcome.foreseen_inputs < outcome.inputs => (
                Why::OtherInputs,
                outcome.bytes.saturating_sub(outcome.foreseen_bytes),
            ),
            Ok(_) => continue,
        };
        let (jobs, sum, names) = reasons.entry(why).or_default();
        (*jobs, *sum) = (*jobs + 1, sum.saturating_add(bytes));
        let of_name = names.entry(&outcome.name).or_default();
        *of_name = of_name.saturating_add(bytes);
    }
    let mut list: Vec<NotForeseen> = reasons
        .into_iter()
        .map(|(why, (jobs, bytes, names))| {
            let mut names: Vec<_> = names.into_iter().collect();
            names.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
            let examples = names.into_iter().take(EXAMPLES).map(|(name, _)| name.to_owned());
            NotForeseen {
                why,
                jobs,
                bytes,
                examples: examples.collect(),
            }
        })
        .collect();
    list.sort_by_key(|reason| std::cmp::Reverse((reason.bytes, reason.jobs)));
    list
}
