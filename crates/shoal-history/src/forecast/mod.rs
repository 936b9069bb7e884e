//! Forecasts the jobs of a window: the input of a planner.

mod text;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
pub use shoal_base::forecast::{DeadlineRule, Extent};

use crate::moment::Moment;
use crate::path::{MARK, PathDate, Paths, written};
use crate::recurrence::inputs::{DATES_LISTED_MAX, InputModel, Place, RangeBegin, month_begin};
use crate::recurrence::schedule::Due;
pub use crate::recurrence::schedule::Submission;
use crate::recurrence::{SlotModel, Template, Templates};
use crate::stats::{Spread, sum};

/// Maximum number of jobs in a forecast. A longer one is truncated, and states until when it is complete.
const JOBS_MAX: usize = 200_000;

/// The time span of a forecast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Start, inclusive.
    pub from: Moment,
    /// End, exclusive.
    pub to: Moment,
}

impl Window {
    /// Returns the window of this length that starts at `from`.
    pub fn after(from: Moment, length_ms: i64) -> Self {
        Self {
            from,
            to: from.plus_ms(length_ms),
        }
    }

    /// Returns the window extended by `ms` at both ends.
    pub(crate) fn widened(self, ms: i64) -> Self {
        Self {
            from: self.from.plus_ms(-ms),
            to: self.to.plus_ms(ms),
        }
    }
}

/// The jobs expected to be submitted in a window, ordered by submission.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forecast {
    /// The window.
    pub window: Window,
    /// Every job until here is listed: the end of the window unless the forecast was truncated.
    pub complete_until: Moment,
    /// The jobs.
    pub jobs: Vec<ForecastJob>,
}

/// One expected job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForecastJob {
    /// The name of the job, with `*` for dates and ids.
    pub name: String,
    /// Id of its template, the same for all runs of one job in a forecast.
    pub template: u32,
    /// When it is submitted.
    pub submission: Submission,
    /// Probability that it is submitted at all.
    pub probability: f64,
    /// How long it runs.
    pub duration_ms: Option<Spread>,
    /// When it must have finished.
    pub deadline: Moment,
    /// Origin of the deadline.
    pub deadline_rule: DeadlineRule,
    /// Its inputs, the largest first.
    pub inputs: Vec<ForecastInput>,
}

impl ForecastJob {
    /// Returns the bytes that it is expected to read.
    pub(crate) fn bytes(&self) -> u64 {
        sum(self.inputs.iter().map(|input| input.bytes.typical))
    }
}

/// An input that a job is expected to read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForecastInput {
    /// `s3://bucket/key` of an object, or a prefix with a trailing slash. Jobs with the same input have equal
    /// paths.
    pub path: String,
    /// The object, all of the prefix, or an unknown part of it.
    pub extent: Extent,
    /// Bytes of it that the job reads.
    pub bytes: Spread,
    /// Number of objects below the prefix, if the history lists objects.
    pub objects: Option<u64>,
    /// Rate at which the job reads it.
    pub bytes_per_s: Option<Spread>,
    /// Probability that a run of the job reads it.
    pub probability: f64,
    /// For a path with dates: the end of the period that they name, in UTC, before which the data is probably
    /// incomplete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub whole_at: Option<Moment>,
}

/// Forecasts the jobs of a window.
pub fn forecast(templates: &Templates, window: Window) -> Forecast {
    let mut due: Vec<(usize, Due)> = Vec::new();
    for (number, template) in templates.list.iter().enumerate() {
        if let Some(schedule) = &template.schedule {
            let of = schedule.due(window.from, window.to, JOBS_MAX + 1);
            due.extend(of.into_iter().map(|due| (number, due)));
            keep_first(&mut due);
        }
    }
    due.sort_by_key(|(number, due)| (due.submission.at, *number));
    let complete_until = due.get(JOBS_MAX).map_or(window.to, |(_, due)| due.submission.at);
    due.truncate(JOBS_MAX);
    let jobs = due
        .into_iter()
        .map(|(number, due)| templates.job(number, due))
        .collect();
    Forecast {
        window,
        complete_until,
        jobs,
    }
}

/// Drops the latest jobs once there are twice as many as a forecast may have.
fn keep_first(due: &mut Vec<(usize, Due)>) {
    if due.len() > 2 * JOBS_MAX {
        due.sort_by_key(|(number, due)| (due.submission.at, *number));
        due.truncate(JOBS_MAX + 1);
    }
}

impl Templates {
    fn job(&self, number: usize, due: Due) -> ForecastJob {
        let Template {
            name,
            schedule,
            slots,
            ..
        } = &self.list[number];
        let SlotModel {
            inputs,
            duration_ms,
            deadline,
        } = &slots[due.slot];
        let probability = schedule
            .as_ref()
            .map_or(0.0, |schedule| schedule.slots[due.slot].probability);
        ForecastJob {
            name: name.clone(),
            template: number as u32,
            submission: due.submission,
            probability,
            duration_ms: *duration_ms,
            deadline: due.submission.at.plus_ms(deadline.after_ms),
            deadline_rule: deadline.rule,
            inputs: once(
                inputs
                    .iter()
                    .flat_map(|input| resolved(input, due.submission.at, &self.paths)),
            ),
        }
    }
}

/// Returns each path once, with the larger size, the largest first: two inputs may resolve to one path.
fn once(inputs: impl Iterator<Item = ForecastInput>) -> Vec<ForecastInput> {
    let mut by_path: BTreeMap<String, ForecastInput> = BTreeMap::new();
    for input in inputs {
        let known = by_path.get(&input.path).map_or(0, |known| known.bytes.typical);
        if known <= input.bytes.typical {
            by_path.insert(input.path.clone(), input);
        }
    }
    let mut inputs: Vec<ForecastInput> = by_path.into_values().collect();
    inputs.sort_by_key(|input| Reverse(input.bytes.typical));
    inputs
}

/// Resolves an input of the run due at `due` to paths.
fn resolved(input: &InputModel, due: Moment, paths: &Paths) -> Vec<ForecastInput> {
    let at = |path: String, dates: u64, whole_at: Option<Moment>| ForecastInput {
        path,
        extent: input.extent,
        bytes: input.bytes.times(dates),
        objects: input.objects.map(|objects| objects.saturating_mul(dates)),
        bytes_per_s: input.bytes_per_s,
        probability: input.share,
        whole_at,
    };
    match input.place {
        Place::Fixed(path) => vec![at(paths.text(path).to_owned(), 1, None)],
        Place::Dated { shape, offsets } => {
            let dates: Vec<_> = offsets
                .iter()
                .flatten()
                .map(|offset| PathDate {
                    grain: offset.grain,
                    count: offset.grain.count(due).saturating_add(offset.units),
                })
                .collect();
            // `2026/11/dt=2026-11-20` is complete after that day.
            let whole_at = dates.iter().map(|date| end(*date)).min();
            let path = written(paths.shape_text(shape), &dates, input.padding);
            vec![at(path, 1, whole_at)]
        }
        Place::Range {
            shape,
            grain,
            begin,
            last,
        } => {
            let last = grain.count(due).saturating_add(last);
            let first = match begin {
                RangeBegin::At(first) => first,
                RangeBegin::Month => month_begin(grain, last),
            };
            let shape = paths.shape_text(shape);
            let date = |count| PathDate { grain, count };
            let whole_at = |count| Some(end(date(count)));
            if usize::try_from(last - first).is_ok_and(|more| more >= DATES_LISTED_MAX) {
                // The prefix that contains all dates.
                let before = shape.split(MARK).next().unwrap_or_default();
                let prefix = before.rfind('/').map(|slash| before[..=slash].to_owned());
                let input = prefix.map(|prefix| ForecastInput {
                    extent: Extent::Prefix,
                    ..at(prefix, first.abs_diff(last) + 1, whole_at(last))
                });
                return input.into_iter().collect();
            }
            let path = |count| written(shape, &[date(count)], input.padding);
            (first..=last)
                .map(|count| at(path(count), 1, whole_at(count)))
                .collect()
        }
    }
}

/// Returns the end of the period that a date names.
fn end(date: PathDate) -> Moment {
    date.grain.begin(date.count.saturating_add(1))
}
