//! Decides when dirty objects are flushed to the lake, and how many at a time (dissertation 4.5.2, "Cleaning
//! Dirty Objects").
//!
//! The dissertation flushes an object when it reaches a fixed lifetime, and keeps an object that is expected
//! to be short-lived for a multiple of the mean lifetime of such objects. Its outlook (6.7) asks for an aging
//! window and a flush rate that adapt to observations. Here, three values adapt:
//!
//! - **The age of normal objects** follows the ages at which objects died before their flush: nine of ten
//!   such objects die before it. An object that has lived longer will probably stay, so waiting any longer
//!   saves no flush. Once the tier is half full the age shrinks, so that young objects alone do not fill the
//!   tier.
//! - **The age of short-lived ones** is five times the mean age at death of their kind, as in the
//!   dissertation.
//! - **The number of flushes at a time** grows by one after each successful round, and is halved when the
//!   lake is overloaded, does not answer, or takes several times as long as before. Clients have priority:
//!   flushes use at most a quarter of the lake's concurrent requests, and run one at a time while clients
//!   wait for the lake. If the tier is nearly full, flushes take priority over clients.
//!
//! The configured ages are upper bounds; a tier that has seen too few deaths uses them unchanged.
//!
//! **Only objects younger than the age are seen to die**, because older objects have been flushed by then.
//! The 90th percentile of the observed ages is therefore always below the age, and an age set to the
//! percentile would shrink step by step to its floor whatever the true lifetimes are. [`HEADROOM`] keeps the
//! age above the percentile, so that it can grow again.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The maximum number of concurrent flushes.
pub const FLUSHES_MAX: usize = 8;

/// The number of recent deaths of each kind from which the age is computed.
const DEATHS: usize = 256;

/// With fewer recent deaths the configured age applies.
const DEATHS_MIN: usize = 32;

/// How long a death counts: the job that caused it may have ended since.
const DEATH_LIFE: Duration = Duration::from_hours(1);

/// The percentage of objects that should die before their flush, which then costs nothing.
const PERCENTILE: usize = 90;

/// The age, as a multiple of that percentile. If ages at death are spread evenly up to the age, then 9/10 of
/// deaths are before 9/10 of the age; any factor over 10/9 lets the age grow back.
const HEADROOM: f64 = 1.5;

/// Normal objects stay this long, if the configured age and the room in the tier allow it.
const AGE_MIN: Duration = Duration::from_secs(5);

/// The age of short-lived objects, as a multiple of their mean age at death.
const SHORT_AGE_MEANS: u32 = 5;

/// Short-lived objects stay this long, if the configured age and the room in the tier allow it.
const SHORT_AGE_MIN: Duration = Duration::from_mins(1);

/// How full the tier is when the age of normal objects begins to shrink.
const HALF_FULL: f64 = 0.5;

/// How full the tier is when normal objects are due at once, and cleaning goes before all else.
const NEARLY_FULL: f64 = 0.9;

/// The minimum time between two halvings of the number of flushes.
const HALVING_PAUSE: Duration = Duration::from_secs(1);

/// Flushes use at most one in this many of the lake's concurrent requests.
const PART_OF_LAKE: usize = 4;

/// The number of recent flushes of similar size whose durations are compared.
const TIMES: usize = 16;

/// The lake is slow when flushes take this many times as long as they did.
const SLOW: f64 = 4.0;

/// Factor by which the best duration of a size class grows with each flush, so that a lake that has become
/// permanently slower stops counting as slow after a few hundred flushes.
const FORGETTING: f64 = 1.01;

/// All objects up to this size take about the same time.
const SMALL_BYTES: u64 = 64 << 10;

/// How long an object is expected to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No shorter than usual.
    Normal,
    /// Briefly, according to its writer or a configured rule.
    Short,
}

/// Upper bounds of the ages at which objects are flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// For normal objects.
    pub age: Duration,
    /// For short-lived objects.
    pub short_age: Duration,
}

/// How full a tier is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// Bytes stored in the tier.
    pub stored_bytes: u64,
    /// Capacity of the tier in bytes.
    pub capacity_bytes: u64,
}

/// The load of the lake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// The limit of concurrent requests to the lake.
    pub requests_max: usize,
    /// True if client requests are queued for the lake.
    pub clients_wait: bool,
}

/// A flush that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushed {
    /// How it ended.
    pub end: FlushEnd,
    /// The size of the object.
    pub size_bytes: u64,
    /// How long it took.
    pub took: Duration,
    /// When it ended.
    pub now: Duration,
}

/// The outcome of a flush, as far as it shows the state of the lake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushEnd {
    /// The lake took the object.
    Written,
    /// The lake asked for fewer requests, with 503 or 429, or did not answer.
    Overloaded,
    /// The flush failed for a reason unrelated to the load of the lake.
    Failed,
}

/// When objects are flushed to the lake, and how many at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The age at which a normal object is due.
    pub age: Duration,
    /// The age at which a short-lived one is due.
    pub short_age: Duration,
    /// The number of flushes at a time.
    pub flushes: usize,
}

/// The observed deaths and flushes of one tier.
#[derive(Clone, Debug)]
pub struct Cleaning {
    bounds: Bounds,
    normal: AgesAtDeath,
    short: AgesAtDeath,
    flushes: Flushes,
}

impl Cleaning {
    /// Creates the state of a tier without observations.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            normal: AgesAtDeath::default(),
            short: AgesAtDeath::default(),
            flushes: Flushes::default(),
        }
    }

    /// Records that an object was overwritten or deleted at `now`, before its flush.
    pub fn died(&mut self, kind: Kind, age: Duration, now: Duration) {
        match kind {
            Kind::Normal => self.normal.add(age, now),
            Kind::Short => self.short.add(age, now),
        }
    }

    /// Records the outcome of a flush.
    pub fn flushed(&mut self, flushed: Flushed) {
        self.flushes.note(flushed);
    }

    /// Computes the flush ages and the number of flushes at `now`, from the fill of the tier and the load of
    /// the lake.
    pub fn plan(&self, fill: Fill, load: Load, now: Duration) -> Plan {
        let Bounds { age, short_age } = self.bounds;
        let full = fill.part();
        debug_assert!(
            (1..=FLUSHES_MAX).contains(&self.flushes.at_a_time),
            "some flush may go"
        );
        let normal = self.normal.percentile(now);
        let normal = normal.map_or(age, |seen| seen.mul_f64(HEADROOM).max(AGE_MIN).min(age));
        let short = self.short.mean(now);
        let short = short.map_or(short_age, |seen| {
            (seen * SHORT_AGE_MEANS).max(SHORT_AGE_MIN).min(short_age)
        });
        Plan {
            age: normal.mul_f64(left(full, HALF_FULL, NEARLY_FULL)),
            short_age: short.mul_f64(left(full, NEARLY_FULL, 1.0)),
            flushes: if fill.is_urgent() {
                FLUSHES_MAX
            } else if load.clients_wait {
                1
            } else {
                let part = (load.requests_max / PART_OF_LAKE).max(1);
                self.flushes.at_a_time.min(part)
            },
        }
    }
}

impl Fill {
    /// Returns true if the tier is so full that flushes take priority over clients.
    pub fn is_urgent(self) -> bool {
        self.part() > NEARLY_FULL
    }

    /// The fraction of the capacity in use.
    fn part(self) -> f64 {
        // A capacity of 0 counts as full.
        self.stored_bytes as f64 / self.capacity_bytes.max(1) as f64
    }
}

/// Falls linearly from 1 at `from` to 0 at `to`.
fn left(full: f64, from: f64, to: f64) -> f64 {
    ((to - full) / (to - from)).clamp(0.0, 1.0)
}

/// The latest deaths, each with its time and the age of the object.
#[derive(Clone, Debug, Default)]
struct AgesAtDeath(VecDeque<(Duration, Duration)>);

impl AgesAtDeath {
    fn add(&mut self, age: Duration, now: Duration) {
        if self.0.len() == DEATHS {
            self.0.pop_front();
        }
        self.0.push_back((now, age));
    }

    /// The ages that still count; `None` if there are too few.
    fn ages(&self, now: Duration) -> Option<Vec<Duration>> {
        let lasting = self
            .0
            .iter()
            .filter(|(at, _)| now.saturating_sub(*at) < DEATH_LIFE);
        let ages: Vec<Duration> = lasting.map(|(_, age)| *age).collect();
        (ages.len() >= DEATHS_MIN).then_some(ages)
    }

    /// The age before which [`PERCENTILE`] of them died.
    fn percentile(&self, now: Duration) -> Option<Duration> {
        let mut ages = self.ages(now)?;
        let rank = (ages.len() * PERCENTILE).div_ceil(100);
        Some(*ages.select_nth_unstable(rank - 1).1)
    }

    /// Their mean.
    fn mean(&self, now: Duration) -> Option<Duration> {
        let ages = self.ages(now)?;
        let number = u32::try_from(ages.len()).expect("the number of deaths is bounded");
        Some(ages.iter().sum::<Duration>() / number)
    }
}

/// The number of flushes at a time: additive increase, multiplicative decrease.
#[derive(Clone, Debug)]
struct Flushes {
    at_a_time: usize,
    /// Successful flushes in this round.
    taken: usize,
    halved_at: Option<Duration>,
    times: BTreeMap<u32, Times>,
}

impl Default for Flushes {
    fn default() -> Self {
        Self {
            at_a_time: FLUSHES_MAX,
            taken: 0,
            halved_at: None,
            times: BTreeMap::new(),
        }
    }
}

impl Flushes {
    fn note(&mut self, flushed: Flushed) {
        let Flushed { end, took, now, .. } = flushed;
        // A flush that began before the number was halved is no evidence about the new number.
        let began = now.saturating_sub(took);
        if self.halved_at.is_some_and(|halved_at| began < halved_at) {
            return;
        }
        match end {
            FlushEnd::Written if self.are_slow(flushed) => self.halve(now),
            FlushEnd::Written => {
                self.taken += 1;
                if self.taken >= self.at_a_time {
                    self.taken = 0;
                    self.at_a_time = (self.at_a_time + 1).min(FLUSHES_MAX);
                }
            }
            FlushEnd::Overloaded => self.halve(now),
            FlushEnd::Failed => {}
        }
    }

    fn halve(&mut self, now: Duration) {
        let is_soon = |halved_at: Duration| now.saturating_sub(halved_at) < HALVING_PAUSE;
        if !self.halved_at.is_some_and(is_soon) {
            self.taken = 0;
            self.at_a_time = (self.at_a_time / 2).max(1);
            self.halved_at = Some(now);
        }
    }

    /// Returns true if recent flushes of similar size took much longer than earlier ones.
    fn are_slow(&mut self, Flushed { size_bytes, took, .. }: Flushed) -> bool {
        // Sizes in one class differ by less than a factor of four.
        let size = size_bytes.max(SMALL_BYTES).ilog2() / 2;
        self.times.entry(size).or_default().are_slow_with(took)
    }
}

/// The times of flushes of about the same size.
#[derive(Clone, Debug, Default)]
struct Times {
    latest: VecDeque<Duration>,
    best: Option<Duration>,
}

impl Times {
    /// Returns true if most of the latest flushes, including this one, took [`SLOW`] times the best duration.
    /// The window then restarts, so the next verdict takes [`TIMES`] more flushes.
    fn are_slow_with(&mut self, took: Duration) -> bool {
        self.latest.push_back(took);
        if self.latest.len() < TIMES {
            return false;
        }
        let mut times: Vec<Duration> = self.latest.iter().copied().collect();
        let median = *times.select_nth_unstable(TIMES / 2).1;
        self.latest.pop_front();
        let best = self
            .best
            .map_or(median, |best| best.mul_f64(FORGETTING).min(median));
        self.best = Some(best);
        let are_slow = median > best.mul_f64(SLOW);
        if are_slow {
            self.latest.clear();
        }
        are_slow
    }
}

#[cfg(test)]
mod tests;
