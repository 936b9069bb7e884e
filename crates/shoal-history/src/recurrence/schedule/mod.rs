//! Detects when a job is submitted: the period of its runs, and the times within it.
//!
//! Submissions are folded by each candidate period: a run at 02:03 of any day is at 02:03 of the period
//! "day". A *slot* is a time within the period at which at least half of the cycles have a run. The period
//! whose slots predict the runs best is chosen; of periods that predict about equally well, the shortest.
//! Therefore one missed or extra run changes nothing, and `0 2,14 * * 1-5` is a week with ten slots.
//!
//! A job that is started some time after its last run has no such slots, but regular gaps: its schedule
//! *drifts*, and is forecast from its last run.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::moment::{DAY_MS, HOUR_MS, MINUTE_MS, Moment, SECOND_MS};
use crate::stats::{median, quantile, sorted};

/// Periods used by people and by cron: minutes, hours and days.
const MINUTES: [i64; 11] = [1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30];
const HOURS: [i64; 7] = [1, 2, 3, 4, 6, 8, 12];
const DAYS: [i64; 4] = [1, 2, 7, 14];

/// Minimum number of runs of a slot.
pub(crate) const RUNS_MIN: usize = 3;
/// Minimum fraction of cycles that have a run in a slot.
const SHARE_MIN: f64 = 0.5;
/// Maximum number of slots of a period: every hour of five days, with a margin.
const SLOTS_MAX: usize = 168;
/// Number of most recent runs from which a schedule is learned.
const LEARNED_MAX: usize = 4_096;
/// Number of most recent runs that a schedule must explain.
const LATEST: usize = 5;
/// Minimum probability of a slot that explains a run.
const USUAL_MIN: f64 = 0.4;
/// A slot is at most one in this many parts of its period wide, and at most [`WIDTH_MS_MAX`].
const WIDTH_SHARE: i64 = 3;
const WIDTH_MS_MAX: i64 = 2 * HOUR_MS;
/// Runs farther than this many interquartile ranges from the slot's centre are outliers.
const TRIM: i64 = 3;
/// Number of most recent hits that determine the time of a slot, and its spread.
const TIMED_BY: usize = 15;
const SPREAD_OF: usize = 30;
/// Periods whose scores differ by less predict equally well.
const TIE: f64 = 0.03;
/// Minimum score of a schedule.
const SCORE_MIN: f64 = 0.6;
/// Minimum score of a period derived from the runs themselves, which is more likely to fit by accident.
const OWN_SCORE_MIN: f64 = 0.8;
/// A derived period within one in this many parts of a calendar period is replaced by that, because jitter
/// can have a slope by accident.
const NEAR_CALENDAR: i64 = 100;
/// Significance of a slot: runs at random times must form it with a probability below e to the power of minus
/// this.
const SURPRISE_MIN: f64 = 10.0;
/// Number of most recent cycles that determine the probability of the next run.
const CHANCE_OF: i64 = 20;
/// A slot has ended after at least this many misses, if their probability is below [`ENDED_BELOW`].
const MISSES_MIN: i64 = 3;
const ENDED_BELOW: f64 = 0.01;
/// A slot has not ended before it has been silent for this many periods, or for a day.
const SILENCE_PERIODS_MIN: i64 = 24;

/// Number of latest runs, all of them an hour off their times in the same direction, that show a change of
/// clocks, and how near to the hour they must be.
const MOVED_MIN: usize = 2;
const MOVED_WITHIN_MS: i64 = 10 * MINUTE_MS;

/// How the times of a schedule depend on each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rhythm {
    /// On the clock: a late run does not delay the next one.
    Clock,
    /// On the last run: each run follows a fixed time after the previous one.
    LastRun,
}

/// The schedule of a job's submissions.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Schedule {
    /// The basis of the times.
    pub rhythm: Rhythm,
    /// The period in milliseconds.
    pub period_ms: i64,
    /// The times within the period, at least one.
    pub slots: Vec<Slot>,
}

/// A time within a period at which a job is submitted.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Slot {
    /// Offset from the start of the period, which is a multiple of the period since 1970.
    pub phase_ms: i64,
    /// 10th percentile of the deviation from that time (0 or negative).
    pub early_ms: i64,
    /// 90th percentile of the deviation from that time.
    pub late_ms: i64,
    /// Probability that a cycle has a run.
    pub probability: f64,
    /// Runs that the slot was learned from.
    #[serde(skip)]
    pub(crate) hits: Vec<Hit>,
}

/// A run at a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hit {
    pub(crate) run: usize,
    /// When the run was due.
    pub(crate) due: Moment,
}

/// Detects the schedule of sorted submissions. The logs are complete up to `until`. Returns `None` if no
/// period is better than chance, or if the job no longer runs.
///
/// A job that was moved to another time has the schedule of its latest runs: if the schedule of all runs does
/// not explain those, the later half of the runs is tried, and so on. After two runs that are an hour off, as
/// those after a change of clocks, all times move by that hour.
pub(crate) fn detect(times: &[Moment], until: Moment) -> Option<Schedule> {
    debug_assert!(times.is_sorted(), "submissions are in order");
    let mut begin = times.len().saturating_sub(LEARNED_MAX);
    let mut found: Option<Schedule> = None;
    while times.len() - begin >= RUNS_MIN {
        let recent = &times[begin..];
        let schedule = by_clock(recent, until).or_else(|| by_last_run(recent, until));
        let explained = schedule.map(|schedule| {
            let schedule = schedule.alive(begin).moved_by_an_hour(times);
            let latest = times.len() - LATEST.min(recent.len())..times.len();
            (schedule.explains(latest), schedule)
        });
        match explained {
            Some((true, schedule)) => return Some(schedule),
            Some((false, schedule)) => found = found.or(Some(schedule)),
            // If all runs have no schedule, a part of them has one only by accident.
            None if found.is_none() => return None,
            None => {}
        }
        if recent.len() / 2 < LATEST {
            break;
        }
        begin += recent.len() / 2;
    }
    found.filter(|schedule| !schedule.slots.is_empty())
}

impl Schedule {
    /// Returns the schedule without slots that have ended. It was learned from the runs from index `begin`
    /// on.
    fn alive(mut self, begin: usize) -> Self {
        self.slots.retain(|slot| slot.probability > 0.0);
        for slot in &mut self.slots {
            slot.hits.iter_mut().for_each(|hit| hit.run += begin);
        }
        self
    }

    /// Returns the schedule an hour later or earlier, if that is where the latest runs are.
    fn moved_by_an_hour(mut self, times: &[Moment]) -> Self {
        let latest = |shift_ms: i64| {
            let is_there = |&run: &usize| {
                let off_ms = self.nearest(times[run]).map(|(_, due)| times[run].since_ms(due));
                off_ms.is_some_and(|off_ms| (off_ms - shift_ms).abs() <= MOVED_WITHIN_MS)
            };
            (0..times.len()).rev().take_while(is_there).count()
        };
        let moved = [HOUR_MS, -HOUR_MS].map(|shift_ms| (shift_ms, latest(shift_ms)));
        let Some((shift_ms, count)) = moved.into_iter().find(|(_, count)| *count >= MOVED_MIN) else {
            return self;
        };
        for (run, &at) in times.iter().enumerate().skip(times.len() - count) {
            let (slot, due) = self.nearest(at).expect("the run is an hour off a slot");
            let hits = &mut self.slots[slot].hits;
            hits.retain(|hit| hit.run != run);
            hits.push(Hit {
                run,
                due: due.plus_ms(shift_ms),
            });
        }
        for slot in &mut self.slots {
            slot.phase_ms = (slot.phase_ms + shift_ms).rem_euclid(self.period_ms);
        }
        self
    }

    /// Returns the slot and the due time nearest to a moment.
    fn nearest(&self, at: Moment) -> Option<(usize, Moment)> {
        let due = |slot: &Slot| nearest_due(at, slot.phase_ms, self.period_ms);
        let dues = self.slots.iter().map(due).enumerate();
        dues.min_by_key(|(_, due)| at.since_ms(*due).abs())
    }

    /// Returns true if at least half of these runs are at slots that are likely to have runs.
    fn explains(&self, runs: Range<usize>) -> bool {
        let usual = || self.slots.iter().filter(|slot| slot.probability >= USUAL_MIN);
        let is_hit = |run: &usize| usual().any(|slot| slot.hits.iter().any(|hit| hit.run == *run));
        runs.len() <= 2 * runs.clone().filter(is_hit).count()
    }
}

/// Returns the time of this phase that is nearest to a moment.
fn nearest_due(at: Moment, phase_ms: i64, period_ms: i64) -> Moment {
    let cycle = (at.ms() - phase_ms + period_ms / 2).div_euclid(period_ms);
    Moment::from_ms(cycle.saturating_mul(period_ms).saturating_add(phase_ms))
}

fn by_clock(times: &[Moment], until: Moment) -> Option<Schedule> {
    let span_ms = times[times.len() - 1].since_ms(times[0]);
    let periods_ms = MINUTES
        .map(|minutes| minutes * MINUTE_MS)
        .into_iter()
        .chain(HOURS.map(|hours| hours * HOUR_MS))
        .chain(DAYS.map(|days| days * DAY_MS));
    let of_calendar = periods_ms
        // Three runs span two periods, or a little less if the first one was late.
        .filter(|period_ms| span_ms >= period_ms * 19 / 10 && typical_gap_allows(times, *period_ms))
        .map(|period_ms| Fold::new(times, period_ms))
        .collect::<Vec<_>>();
    let best_of_calendar = of_calendar.iter().map(|fold| fold.score).fold(0.0, f64::max);
    let is_calendars = |period_ms: i64| {
        let near = |fold: &Fold| (fold.period_ms - period_ms).abs() * NEAR_CALENDAR <= fold.period_ms;
        of_calendar
            .iter()
            .any(|fold| near(fold) && fold.score >= SCORE_MIN)
    };
    let own = own_period(times)
        .filter(|&period_ms| !is_calendars(period_ms))
        .map(|period_ms| Fold::new(times, period_ms))
        .filter(|own| own.score >= OWN_SCORE_MIN && own.score > best_of_calendar + TIE);
    let folds = own.map_or(of_calendar, |own| vec![own]);
    let best = folds
        .iter()
        .max_by(|a, b| a.score.total_cmp(&b.score).then(b.period_ms.cmp(&a.period_ms)))?;
    // The more slots a longer period needs, the more of them fit by accident.
    let margin = |fold: &Fold| TIE * (1.0 + best.slots.len() as f64 / fold.slots.len().max(1) as f64).log2();
    let is_as_good = |fold: &&Fold| fold.score >= SCORE_MIN && fold.score >= best.score - margin(fold);
    let fold = folds.iter().find(is_as_good)?;
    Some(Schedule {
        rhythm: Rhythm::Clock,
        period_ms: fold.period_ms,
        slots: fold
            .slots
            .iter()
            .map(|slot| slot.to_slot(times, fold.period_ms, until))
            .collect(),
    })
}

/// Excludes periods far shorter than the gaps, most of whose cycles would be empty.
fn typical_gap_allows(times: &[Moment], period_ms: i64) -> bool {
    let span_ms = times[times.len() - 1].since_ms(times[0]);
    let mean_gap_ms = span_ms as f64 / (times.len() - 1) as f64;
    // The busiest half of a history may have gaps below the mean.
    period_ms as f64 >= mean_gap_ms / 4.0
}

/// The submissions, folded by a period.
struct Fold {
    period_ms: i64,
    slots: Vec<FoundSlot>,
    /// How well the slots predict the runs, from 0 to 1: the harmonic mean of the fraction of runs that are
    /// at a slot and the fraction of cycles that have a run.
    score: f64,
}

struct FoundSlot {
    /// Median time of the hits within the period; may lie slightly outside if the slot spans the end of the
    /// period.
    phase_ms: i64,
    /// Deviations of the hits from the phase, sorted.
    deviations_ms: Vec<i64>,
    hits: Vec<Hit>,
}

impl Fold {
    fn new(times: &[Moment], period_ms: i64) -> Self {
        let (first, last) = (times[0], times[times.len() - 1]);
        let span_ms = last.since_ms(first).max(1);
        let width_ms = (period_ms / WIDTH_SHARE).min(WIDTH_MS_MAX);
        let mut phases: Vec<(i64, usize)> = times
            .iter()
            .enumerate()
            .map(|(run, at)| (at.ms().rem_euclid(period_ms), run))
            .collect();
        phases.sort_unstable();
        let rate = times.len() as f64 / span_ms as f64;
        let (mut slots, mut hits, mut cycles) = (Vec::new(), 0, 0);
        for _ in 0..SLOTS_MAX {
            let taken = densest(&phases, period_ms, width_ms);
            if taken.len() < RUNS_MIN {
                break;
            }
            let window: Vec<_> = taken.iter().map(|&at| phases[at]).collect();
            let mut is_taken = vec![false; phases.len()];
            for &at in &taken {
                is_taken[at] = true;
            }
            let mut keep = is_taken.iter().map(|taken| !taken);
            phases.retain(|_| keep.next().expect("one mark a phase"));
            let slot = FoundSlot::from_window(times, &window, period_ms);
            let expected = cycles_between(first, last, &slot, period_ms);
            if slot.hits.len() >= RUNS_MIN
                && slot.is_no_chance(expected, rate)
                && slot.share(expected) >= SHARE_MIN
            {
                hits += slot.hits.len();
                cycles += expected;
                slots.push(slot);
            }
        }
        let recall = hits as f64 / times.len() as f64;
        let precision = hits as f64 / cycles.max(1) as f64;
        let score = if hits == 0 {
            0.0
        } else {
            2.0 * recall * precision / (recall + precision)
        };
        slots.sort_by_key(|slot| slot.phase_ms.rem_euclid(period_ms));
        Self {
            period_ms,
            slots,
            score,
        }
    }
}

/// Counts the cycles of a slot between the first and the last run, allowing for the slot's jitter.
fn cycles_between(first: Moment, last: Moment, slot: &FoundSlot, period_ms: i64) -> usize {
    let (earliest_ms, latest_ms) = slot.jitter_ms();
    // The first cycle whose slot ends no earlier than the first run, and the last cycle whose slot begins no
    // later than the last run.
    let begin = -(slot.phase_ms + latest_ms - first.ms()).div_euclid(period_ms);
    let end = (last.ms() - slot.phase_ms - earliest_ms).div_euclid(period_ms);
    slot.hits.len().max(usize::try_from(end - begin + 1).unwrap_or(0))
}

/// Returns the indexes of the largest set of phases within `width_ms` of each other, on the circle of the
/// period.
fn densest(phases: &[(i64, usize)], period_ms: i64, width_ms: i64) -> Vec<usize> {
    let count = phases.len();
    let phase = |at: usize| phases[at % count].0 + if at >= count { period_ms } else { 0 };
    let (mut best, mut end) = (0..0, 0);
    for start in 0..count {
        end = end.max(start);
        while end < start + count && phase(end) - phase(start) <= width_ms {
            end += 1;
        }
        let is_denser = end - start > best.len()
            || end - start == best.len()
                && phase(end - 1) - phase(start) < phase(best.end - 1) - phase(best.start);
        if is_denser {
            best = start..end;
        }
    }
    best.map(|at| at % count).collect()
}

impl FoundSlot {
    fn from_window(times: &[Moment], window: &[(i64, usize)], period_ms: i64) -> Self {
        // The window may span the end of the period, so phases are relative to its first one.
        let base_ms = window[0].0;
        let relative = |phase_ms: i64| (phase_ms - base_ms).rem_euclid(period_ms);
        let middle_ms = median(window.iter().map(|&(phase_ms, _)| relative(phase_ms))).unwrap_or(0);
        let phase_ms = (base_ms + middle_ms).rem_euclid(period_ms);
        let mut hits: Vec<Hit> = window
            .iter()
            .map(|&(_, run)| Hit {
                run,
                due: nearest_due(times[run], phase_ms, period_ms),
            })
            .collect();
        // Of two runs in one cycle, the one nearer to the due time counts.
        let deviation_ms = |hit: &Hit| times[hit.run].since_ms(hit.due);
        hits.sort_unstable_by_key(|hit| (hit.due, deviation_ms(hit).abs(), hit.run));
        hits.dedup_by_key(|hit| hit.due);
        // An extra run that falls into the window is far from the others.
        let all_ms = sorted(hits.iter().map(deviation_ms));
        let at = |share| quantile(&all_ms, share).unwrap_or(0);
        let reach_ms = (TRIM * (at(0.75) - at(0.25))).max(period_ms / 100);
        hits.retain(|hit| deviation_ms(hit).abs() <= reach_ms);
        let deviations_ms = sorted(hits.iter().map(deviation_ms));
        Self {
            phase_ms,
            deviations_ms,
            hits,
        }
    }

    /// Returns the least and the greatest deviation of the hits.
    fn jitter_ms(&self) -> (i64, i64) {
        let end = |deviation_ms: Option<&i64>| deviation_ms.copied().unwrap_or(0);
        (end(self.deviations_ms.first()), end(self.deviations_ms.last()))
    }

    fn share(&self, cycles: usize) -> f64 {
        self.hits.len() as f64 / cycles.max(1) as f64
    }

    /// Returns true if this number of hits in `cycles` is no accident for a job that runs at this rate (runs
    /// per millisecond) independently of the clock, by Chernoff's bound on the binomial distribution. Runs
    /// with equal gaps hit a window more often than runs at random times, so the probability of a hit is that
    /// of equal gaps.
    fn is_no_chance(&self, cycles: usize, rate: f64) -> bool {
        let (earliest_ms, latest_ms) = self.jitter_ms();
        let width_ms = (latest_ms - earliest_ms).max(SECOND_MS) as f64;
        let by_chance = rate * width_ms;
        let share = self.share(cycles).min(1.0);
        share > by_chance && cycles as f64 * divergence(share, by_chance) >= SURPRISE_MIN
    }

    /// Returns the slot at the time of its latest hits, because a job moved by an hour is still in it.
    fn to_slot(&self, times: &[Moment], period_ms: i64, until: Moment) -> Slot {
        let latest = |count: usize| &self.hits[self.hits.len().saturating_sub(count)..];
        let deviation_ms = |hit: &Hit| times[hit.run].since_ms(hit.due);
        let shift_ms = median(latest(TIMED_BY).iter().map(deviation_ms)).unwrap_or(0);
        let deviations_ms = sorted(latest(SPREAD_OF).iter().map(|hit| deviation_ms(hit) - shift_ms));
        let moved = |hit: &Hit| Hit {
            due: hit.due.plus_ms(shift_ms),
            ..*hit
        };
        Slot {
            phase_ms: (self.phase_ms + shift_ms).rem_euclid(period_ms),
            early_ms: quantile(&deviations_ms, 0.1).unwrap_or(0).min(0),
            late_ms: quantile(&deviations_ms, 0.9).unwrap_or(0).max(0),
            probability: self.probability(period_ms, until),
            hits: self.hits.iter().map(moved).collect(),
        }
    }

    /// Returns the probability of the next run, from the last complete cycles. 0 if the slot has ended.
    fn probability(&self, period_ms: i64, until: Moment) -> f64 {
        let (Some(first), Some(last)) = (self.hits.first(), self.hits.last()) else {
            return 0.0;
        };
        let (_, late_ms) = self.jitter_ms();
        let missed = (until.since_ms(last.due) - late_ms).max(0) / period_ms;
        let begin = last
            .due
            .plus_ms((missed - CHANCE_OF + 1).saturating_mul(period_ms))
            .max(first.due);
        let cycles = last.due.since_ms(begin).max(0) / period_ms + 1 + missed;
        let hits = self.hits.iter().filter(|hit| hit.due >= begin).count() as f64;
        // The probability before the misses.
        let before = (self.hits.len() as f64 + 0.5) / (last.due.since_ms(first.due) / period_ms + 2) as f64;
        let is_likely = (1.0 - before).powi(i32::try_from(missed).unwrap_or(i32::MAX)) >= ENDED_BELOW;
        // All jobs of a cluster are silent while it is down.
        if missed >= MISSES_MIN
            && !is_likely
            && until.since_ms(last.due) > DAY_MS.min(SILENCE_PERIODS_MIN * period_ms)
        {
            return 0.0;
        }
        ((hits + 0.5) / (cycles as f64 + 1.0)).min(1.0)
    }
}

/// Returns the Kullback-Leibler divergence between two Bernoulli distributions, in nats.
fn divergence(share: f64, by_chance: f64) -> f64 {
    let term = |p: f64, q: f64| if p > 0.0 { p * (p / q.max(1e-12)).ln() } else { 0.0 };
    term(share, by_chance) + term(1.0 - share, 1.0 - by_chance)
}

/// Returns a period outside the calendar, such as 45 minutes: the median gap, refined over longer and longer
/// stretches.
fn own_period(times: &[Moment]) -> Option<i64> {
    let gaps = times
        .windows(2)
        .map(|pair| pair[1].since_ms(pair[0]))
        .filter(|&gap_ms| gap_ms > 0);
    let mut period_ms = median(gaps)? as f64;
    let mut length = 4.min(times.len());
    loop {
        let slopes = times[length / 2..length].iter().filter_map(|at| {
            let since_ms = at.since_ms(times[0]) as f64;
            let cycles = (since_ms / period_ms).round();
            (cycles > 0.0).then(|| (since_ms / cycles * 1e3) as i64)
        });
        period_ms = median(slopes)? as f64 / 1e3;
        if length == times.len() {
            break;
        }
        length = (length * 2).min(times.len());
    }
    let rounded = period_ms.round() as i64;
    let span_ms = times[times.len() - 1].since_ms(times[0]);
    (rounded >= SECOND_MS && span_ms >= 2 * rounded).then_some(rounded)
}

/// Detects regular gaps between runs that do not follow the clock.
fn by_last_run(times: &[Moment], until: Moment) -> Option<Schedule> {
    let gaps_ms = sorted(times.windows(2).map(|pair| pair[1].since_ms(pair[0])));
    let period_ms = quantile(&gaps_ms, 0.5).filter(|&gap_ms| gap_ms >= SECOND_MS)?;
    let near = gaps_ms
        .iter()
        .filter(|&&gap_ms| (gap_ms - period_ms).abs() <= period_ms / 4)
        .count();
    let share = near as f64 / gaps_ms.len() as f64;
    let last = *times.last()?;
    // Two gaps could be equal by accident, and a job that has been silent for long has ended.
    if gaps_ms.len() < 2 * RUNS_MIN || share < 0.7 || until.since_ms(last) > 4 * period_ms {
        return None;
    }
    let deviation = |share| quantile(&gaps_ms, share).unwrap_or(period_ms) - period_ms;
    Some(Schedule {
        rhythm: Rhythm::LastRun,
        period_ms,
        slots: vec![Slot {
            phase_ms: last.ms().rem_euclid(period_ms),
            early_ms: deviation(0.1).min(0),
            late_ms: deviation(0.9).max(0),
            probability: share,
            hits: times
                .iter()
                .enumerate()
                .map(|(run, &due)| Hit { run, due })
                .collect(),
        }],
    })
}

/// When a job is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// The expected time.
    pub at: Moment,
    /// 10th percentile.
    pub early: Moment,
    /// 90th percentile.
    pub late: Moment,
}

/// A run that is due.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Due {
    /// Index of its slot.
    pub(crate) slot: usize,
    pub(crate) submission: Submission,
}

impl Schedule {
    /// Returns the due times from `from` to before `to` in order, at most `max`.
    pub(crate) fn due(&self, from: Moment, to: Moment, max: usize) -> Vec<Due> {
        assert!(self.period_ms > 0, "a schedule has a period");
        let mut due = Vec::new();
        for (number, slot) in self.slots.iter().enumerate() {
            let mut cycle = (from.ms() - slot.phase_ms).div_euclid(self.period_ms);
            while due.len() < max {
                let at = Moment::from_ms(cycle.saturating_mul(self.period_ms).saturating_add(slot.phase_ms));
                if at >= to {
                    break;
                }
                cycle += 1;
                if at < from {
                    continue;
                }
                let (early_ms, late_ms) = self.spread_at(slot, at);
                due.push(Due {
                    slot: number,
                    submission: Submission {
                        at,
                        early: at.plus_ms(early_ms),
                        late: at.plus_ms(late_ms),
                    },
                });
            }
        }
        due.sort_by_key(|due| (due.submission.at, due.slot));
        due
    }

    /// Returns how much earlier and later than `at` a run may come. The uncertainty of a drifting schedule
    /// grows with the square root of the number of runs.
    fn spread_at(&self, slot: &Slot, at: Moment) -> (i64, i64) {
        let last = slot.hits.last().map_or(at, |hit| hit.due);
        if self.rhythm == Rhythm::Clock {
            return (slot.early_ms, slot.late_ms);
        }
        let runs = (at.since_ms(last) as f64 / self.period_ms as f64).max(1.0);
        let grown =
            |ms: i64| ((ms as f64 * runs.sqrt()) as i64).clamp(-self.period_ms / 2, self.period_ms / 2);
        (grown(slot.early_ms), grown(slot.late_ms))
    }
}

#[cfg(test)]
mod tests;
