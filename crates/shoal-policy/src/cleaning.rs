//! When dirty objects go to the lake, and how many at a time (dissertation 4.5.2, "Cleaning Dirty Objects").
//!
//! The dissertation flushes an object when it reaches a fixed lifetime, and keeps one that is expected to be
//! short-lived for several times as long as such objects live. Its outlook (6.7) asks that the window for
//! aging and the rate follow what is observed. Here, three things do:
//!
//! - **The age of normal objects** follows the ages at which objects died before their flush: nine of ten
//!   such objects die before it. What has lived for longer will probably stay, and waits in vain. From half
//!   full on it shrinks, so that a tier does not run full only because its objects are young.
//! - **The age of short-lived ones** is five times the mean age at death of their kind, as in the
//!   dissertation.
//! - **The number of flushes at a time** grows by one after each round that the lake took, and is halved when
//!   the lake is overloaded or silent.
//!
//! The configured ages are the most that an object waits; a tier without deaths uses them as they are.
//!
//! **Only the deaths of objects younger than the age are seen**, for the others are at the lake by then. The
//! 90th percentile of what is seen is always less than the age, so an age that is set to it falls from step
//! to step down to its floor, whatever the ages at death are. [`HEADROOM`] is what the age keeps beyond the
//! percentile, so that it also grows again.

use std::collections::VecDeque;
use std::time::Duration;

/// The number of flushes at a time is never more than this.
pub const FLUSHES_MAX: usize = 8;

/// The number of deaths that the ages follow, of each kind.
const DEATHS: usize = 256;

/// With fewer deaths the configured age stands.
const DEATHS_MIN: usize = 32;

/// The part of deaths, in percent, before which the flush would be in vain.
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

/// The number of flushes is halved at most once in this time.
const HALVING_PAUSE: Duration = Duration::from_secs(1);

/// How long an object is expected to live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As long as any other.
    Normal,
    /// Not for long: its writer or a rule says so.
    Short,
}

/// The ages at which objects are due, at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// That of normal objects.
    pub age: Duration,
    /// That of short-lived ones.
    pub short_age: Duration,
}

/// How full a tier is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill {
    /// The bytes in its store.
    pub stored_bytes: u64,
    /// The most that may be there.
    pub capacity_bytes: u64,
}

/// The state of the lake that the end of a flush shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlushEnd {
    /// The lake took the object.
    Written,
    /// The lake asked for fewer requests, with 503 or 429, or did not answer.
    Overloaded,
    /// The flush failed for a reason that says nothing about the load of the lake.
    Failed,
}

/// When objects go to the lake, and how many at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The age at which a normal object is due.
    pub age: Duration,
    /// The age at which a short-lived one is due.
    pub short_age: Duration,
    /// The number of flushes at a time.
    pub flushes: usize,
}

/// The facts about one tier.
#[derive(Clone, Debug)]
pub struct Cleaning {
    bounds: Bounds,
    normal: AgesAtDeath,
    short: AgesAtDeath,
    flushes: Flushes,
}

impl Cleaning {
    /// A tier of which nothing is known yet.
    pub fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            normal: AgesAtDeath::default(),
            short: AgesAtDeath::default(),
            flushes: Flushes::default(),
        }
    }

    /// Notes that an object died before its flush, by an overwrite or a removal.
    pub fn died(&mut self, kind: Kind, age: Duration) {
        match kind {
            Kind::Normal => self.normal.add(age),
            Kind::Short => self.short.add(age),
        }
    }

    /// Notes how a flush ended at `now` that took `took`.
    pub fn flushed(&mut self, end: FlushEnd, took: Duration, now: Duration) {
        self.flushes.note(end, took, now);
    }

    /// When objects of the tier go to the lake while it is so full.
    pub fn plan(&self, fill: Fill) -> Plan {
        let Bounds { age, short_age } = self.bounds;
        let full = fill.part();
        let normal = self.normal.percentile();
        let normal = normal.map_or(age, |seen| seen.mul_f64(HEADROOM).max(AGE_MIN).min(age));
        let short = self.short.mean();
        let short = short.map_or(short_age, |seen| {
            (seen * SHORT_AGE_MEANS).max(SHORT_AGE_MIN).min(short_age)
        });
        Plan {
            age: normal.mul_f64(left(full, HALF_FULL, NEARLY_FULL)),
            short_age: short.mul_f64(left(full, NEARLY_FULL, 1.0)),
            flushes: if full > NEARLY_FULL {
                FLUSHES_MAX
            } else {
                self.flushes.at_a_time
            },
        }
    }
}

impl Fill {
    /// The part of the capacity that is in use.
    fn part(self) -> f64 {
        // Without a capacity there is no room.
        self.stored_bytes as f64 / self.capacity_bytes.max(1) as f64
    }
}

/// 1 up to `from`, 0 from `to` on, and linear in between.
fn left(full: f64, from: f64, to: f64) -> f64 {
    ((to - full) / (to - from)).clamp(0.0, 1.0)
}

/// The latest ages at death.
#[derive(Clone, Debug, Default)]
struct AgesAtDeath(VecDeque<Duration>);

impl AgesAtDeath {
    fn add(&mut self, age: Duration) {
        if self.0.len() == DEATHS {
            self.0.pop_front();
        }
        self.0.push_back(age);
    }

    /// The age before which [`PERCENTILE`] of them died; `None` if there are too few.
    fn percentile(&self) -> Option<Duration> {
        let mut ages: Vec<Duration> = self.0.iter().copied().collect();
        let rank = (ages.len() * PERCENTILE).div_ceil(100);
        (ages.len() >= DEATHS_MIN).then(|| *ages.select_nth_unstable(rank - 1).1)
    }

    /// Their mean; `None` if there are too few.
    fn mean(&self) -> Option<Duration> {
        let number = u32::try_from(self.0.len()).expect("the number of deaths is bounded");
        (self.0.len() >= DEATHS_MIN).then(|| self.0.iter().sum::<Duration>() / number)
    }
}

/// The number of flushes at a time: additive increase, multiplicative decrease.
#[derive(Clone, Debug)]
struct Flushes {
    at_a_time: usize,
    /// The flushes of this round that the lake took.
    taken: usize,
    halved_at: Option<Duration>,
}

impl Default for Flushes {
    fn default() -> Self {
        Self {
            at_a_time: FLUSHES_MAX,
            taken: 0,
            halved_at: None,
        }
    }
}

impl Flushes {
    fn note(&mut self, end: FlushEnd, took: Duration, now: Duration) {
        // A flush that began before the number was halved says nothing about the number since.
        let began = now.saturating_sub(took);
        if self.halved_at.is_some_and(|halved_at| began < halved_at) {
            return;
        }
        match end {
            FlushEnd::Written => {
                self.taken += 1;
                if self.taken >= self.at_a_time {
                    self.taken = 0;
                    self.at_a_time = (self.at_a_time + 1).min(FLUSHES_MAX);
                }
            }
            FlushEnd::Overloaded => {
                let is_soon = |halved_at: Duration| now.saturating_sub(halved_at) < HALVING_PAUSE;
                if !self.halved_at.is_some_and(is_soon) {
                    self.taken = 0;
                    self.at_a_time = (self.at_a_time / 2).max(1);
                    self.halved_at = Some(now);
                }
            }
            FlushEnd::Failed => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::collection::vec;
    use proptest::prelude::{Strategy, any, prop_oneof, proptest};

    use super::{Bounds, Cleaning, DEATHS, DEATHS_MIN, FLUSHES_MAX, Fill, FlushEnd, Kind, Plan};

    const BOUNDS: Bounds = Bounds {
        age: secs(60),
        short_age: secs(600),
    };
    const EMPTY: Fill = full(0);

    const fn secs(number: u64) -> Duration {
        Duration::from_secs(number)
    }

    const fn full(percent: u64) -> Fill {
        Fill {
            stored_bytes: percent,
            capacity_bytes: 100,
        }
    }

    /// A tier in which this many objects died at each of these ages.
    fn after_deaths(kind: Kind, ages: impl Iterator<Item = Duration> + Clone) -> Cleaning {
        let mut cleaning = Cleaning::new(BOUNDS);
        ages.for_each(|age| cleaning.died(kind, age));
        cleaning
    }

    /// Whether two ages differ by less than a rounding error.
    fn close(left: Duration, right: Duration) -> bool {
        left.abs_diff(right) < Duration::from_micros(1)
    }

    #[test]
    fn without_deaths_the_configured_ages_stand() {
        let few = after_deaths(Kind::Normal, (1..DEATHS_MIN).map(|_| secs(1)));
        for cleaning in [Cleaning::new(BOUNDS), few] {
            let expected = Plan {
                age: BOUNDS.age,
                short_age: BOUNDS.short_age,
                flushes: FLUSHES_MAX,
            };
            assert_eq!(cleaning.plan(EMPTY), expected);
        }
    }

    #[test]
    fn objects_stay_until_nine_of_ten_that_die_are_dead_and_half_as_long_again() {
        let ages = (1..=100).map(|number| Duration::from_millis(number * 200));
        let plan = after_deaths(Kind::Normal, ages).plan(EMPTY);
        assert!(close(plan.age, secs(27)), "{plan:?}");
        assert_eq!(plan.short_age, BOUNDS.short_age, "no short-lived one died");
    }

    #[test]
    fn objects_stay_five_seconds_at_least_and_the_configured_age_at_most() {
        for (age, expected) in [(0, 5), (1, 5), (20, 30), (59, 60), (600, 60)] {
            let plan = after_deaths(Kind::Normal, std::iter::repeat_n(secs(age), DEATHS)).plan(EMPTY);
            assert!(close(plan.age, secs(expected)), "{age} s: {plan:?}");
        }
    }

    #[test]
    fn a_configured_age_that_is_shorter_is_used_as_it_is() {
        let second = Bounds {
            age: secs(1),
            short_age: secs(2),
        };
        let mut cleaning = Cleaning::new(second);
        for kind in [Kind::Normal, Kind::Short] {
            (0..DEATHS).for_each(|_| cleaning.died(kind, Duration::ZERO));
        }
        let plan = cleaning.plan(EMPTY);
        assert_eq!((plan.age, plan.short_age), (secs(1), secs(2)));
    }

    #[test]
    fn short_lived_objects_stay_five_times_as_long_as_they_live() {
        for (age, expected) in [(0, 60), (12, 60), (20, 100), (120, 600), (599, 600)] {
            let half = std::iter::repeat_n(secs(age), 50);
            // The mean counts, and not what most do.
            let ages = half.clone().chain(half.map(|age| age * 2)).map(|age| age * 2 / 3);
            let plan = after_deaths(Kind::Short, ages).plan(EMPTY);
            assert!(close(plan.short_age, secs(expected)), "{age} s: {plan:?}");
            assert_eq!(plan.age, BOUNDS.age, "no normal one died");
        }
    }

    #[test]
    fn only_the_latest_deaths_count() {
        let ages = std::iter::repeat_n(secs(50), 1000);
        let mut cleaning = after_deaths(Kind::Normal, ages);
        assert_eq!(cleaning.plan(EMPTY).age, BOUNDS.age);
        (0..DEATHS).for_each(|_| cleaning.died(Kind::Normal, secs(4)));
        assert!(close(cleaning.plan(EMPTY).age, secs(6)));
    }

    /// Objects die at any age up to 50 s. The cleaner sees only those that die before their flush.
    #[test]
    fn an_age_that_follows_the_deaths_before_it_does_not_fall_to_its_floor() {
        let mut cleaning = after_deaths(Kind::Normal, std::iter::repeat_n(secs(1), DEATHS));
        assert!(close(cleaning.plan(EMPTY).age, secs(5)));
        for number in 0..100_000_u64 {
            let age = Duration::from_millis(number * 7919 % 50_000);
            if age < cleaning.plan(EMPTY).age {
                cleaning.died(Kind::Normal, age);
            }
        }
        assert!(cleaning.plan(EMPTY).age > secs(55), "{:?}", cleaning.plan(EMPTY));
    }

    #[test]
    fn a_tier_that_fills_up_is_cleaned_sooner() {
        let cleaning = Cleaning::new(BOUNDS);
        let table = [
            (50, 60, 600),
            (60, 45, 600),
            (70, 30, 600),
            (90, 0, 600),
            (95, 0, 300),
            (100, 0, 0),
            (120, 0, 0),
        ];
        for (percent, age, short_age) in table {
            let plan = cleaning.plan(full(percent));
            let is_as_told = close(plan.age, secs(age)) && close(plan.short_age, secs(short_age));
            assert!(is_as_told, "{percent}% full: {plan:?}");
        }
    }

    /// Runs flushes that end at these times, in milliseconds, each after 10 ms.
    fn flushes(cleaning: &mut Cleaning, end: FlushEnd, at_ms: impl IntoIterator<Item = u64>) -> usize {
        for now in at_ms {
            cleaning.flushed(end, Duration::from_millis(10), Duration::from_millis(now));
        }
        cleaning.plan(EMPTY).flushes
    }

    #[test]
    fn an_overloaded_lake_gets_half_as_many_flushes_at_most_once_a_second() {
        let mut cleaning = Cleaning::new(BOUNDS);
        let overloaded = FlushEnd::Overloaded;
        assert_eq!(flushes(&mut cleaning, overloaded, [100]), 4);
        assert_eq!(flushes(&mut cleaning, overloaded, [200, 500, 1_099]), 4);
        assert_eq!(flushes(&mut cleaning, overloaded, [1_100]), 2);
        assert_eq!(flushes(&mut cleaning, overloaded, [3_000, 5_000, 7_000]), 1);
    }

    #[test]
    fn a_lake_that_takes_a_round_gets_one_flush_more() {
        let mut cleaning = Cleaning::new(BOUNDS);
        assert_eq!(flushes(&mut cleaning, FlushEnd::Overloaded, [1_000, 3_000]), 2);
        assert_eq!(flushes(&mut cleaning, FlushEnd::Written, [4_000]), 2);
        assert_eq!(flushes(&mut cleaning, FlushEnd::Written, [4_001]), 3);
        assert_eq!(flushes(&mut cleaning, FlushEnd::Failed, 5_000..6_000), 3);
        assert_eq!(flushes(&mut cleaning, FlushEnd::Written, 6_000..6_003), 4);
        assert_eq!(
            flushes(&mut cleaning, FlushEnd::Written, 7_000..7_100),
            FLUSHES_MAX
        );
    }

    #[test]
    fn a_flush_that_began_before_the_number_was_halved_does_not_count() {
        let mut cleaning = Cleaning::new(BOUNDS);
        assert_eq!(flushes(&mut cleaning, FlushEnd::Overloaded, [1_000]), 4);
        for (end, now) in [(FlushEnd::Overloaded, 10), (FlushEnd::Written, 20)] {
            (0..10).for_each(|_| cleaning.flushed(end, secs(now), secs(now)));
            assert_eq!(cleaning.plan(EMPTY).flushes, 4, "{end:?}");
        }
    }

    #[test]
    fn a_tier_that_is_nearly_full_is_cleaned_before_all_else() {
        let mut cleaning = Cleaning::new(BOUNDS);
        flushes(&mut cleaning, FlushEnd::Overloaded, [1_000]);
        assert_eq!(cleaning.plan(full(90)).flushes, 4);
        assert_eq!(cleaning.plan(full(91)).flushes, FLUSHES_MAX);
    }

    #[derive(Clone, Debug)]
    enum Event {
        Died(bool, u64),
        Flushed(u8, u64, u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            (any::<bool>(), 0_u64..10_000_000).prop_map(|(short, age)| Event::Died(short, age)),
            (any::<u8>(), any::<u32>(), 0_u64..3_000).prop_map(|(end, took, pause)| Event::Flushed(
                end,
                took.into(),
                pause
            )),
        ]
    }

    proptest! {
        #[test]
        fn a_plan_keeps_its_bounds_whatever_happens(
            age in 0_u64..1_000_000,
            short_age in 0_u64..10_000_000,
            events in vec(event(), 0..400),
            fills in vec((any::<u64>(), any::<u64>()), 1..4),
        ) {
            let [age, short_age] = [age, short_age].map(Duration::from_millis);
            let mut cleaning = Cleaning::new(Bounds { age, short_age });
            let mut now = 0;
            for event in events {
                match event {
                    Event::Died(true, age) => cleaning.died(Kind::Short, Duration::from_millis(age)),
                    Event::Died(false, age) => cleaning.died(Kind::Normal, Duration::from_millis(age)),
                    Event::Flushed(end, took, pause) => {
                        let ends = [FlushEnd::Written, FlushEnd::Overloaded, FlushEnd::Failed];
                        now += pause;
                        let [took, now] = [took, now].map(Duration::from_millis);
                        cleaning.flushed(ends[usize::from(end) % 3], took, now);
                    }
                }
            }
            let plan = cleaning.plan(EMPTY);
            assert!(plan.age >= age.min(super::AGE_MIN));
            assert!(plan.short_age >= short_age.min(super::SHORT_AGE_MIN));
            for (stored_bytes, capacity_bytes) in fills {
                let fuller = cleaning.plan(Fill { stored_bytes, capacity_bytes });
                assert!(fuller.age <= plan.age && plan.age <= age);
                assert!(fuller.short_age <= plan.short_age && plan.short_age <= short_age);
                assert!((plan.flushes..=FLUSHES_MAX).contains(&fuller.flushes) && plan.flushes > 0);
            }
        }
    }
}
