//! The plans of the cleaner after deaths and flushes.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_oneof, proptest};

use super::{
    Bounds, Cleaning, DEATHS, DEATHS_MIN, FLUSHES_MAX, Fill, FlushEnd, Flushed, Kind, Load, Plan, TIMES,
};

const BOUNDS: Bounds = Bounds {
    age: secs(60),
    short_age: secs(600),
};
const EMPTY: Fill = full(0);
const IDLE: Load = Load {
    requests_max: 32,
    clients_wait: false,
};

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
    ages.for_each(|age| cleaning.died(kind, age, secs(0)));
    cleaning
}

/// Returns true if two ages differ by less than a rounding error.
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
        assert_eq!(cleaning.plan(EMPTY, IDLE, secs(0)), expected);
    }
}

#[test]
fn objects_stay_until_nine_of_ten_that_die_are_dead_and_half_as_long_again() {
    let ages = (1..=100).map(|number| Duration::from_millis(number * 200));
    let plan = after_deaths(Kind::Normal, ages).plan(EMPTY, IDLE, secs(0));
    assert!(close(plan.age, secs(27)), "{plan:?}");
    assert_eq!(plan.short_age, BOUNDS.short_age, "no short-lived one died");
}

#[test]
fn objects_stay_five_seconds_at_least_and_the_configured_age_at_most() {
    for (age, expected) in [(0, 5), (1, 5), (20, 30), (59, 60), (600, 60)] {
        let plan =
            after_deaths(Kind::Normal, std::iter::repeat_n(secs(age), DEATHS)).plan(EMPTY, IDLE, secs(0));
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
        (0..DEATHS).for_each(|_| cleaning.died(kind, Duration::ZERO, secs(0)));
    }
    let plan = cleaning.plan(EMPTY, IDLE, secs(0));
    assert_eq!((plan.age, plan.short_age), (secs(1), secs(2)));
}

#[test]
fn short_lived_objects_stay_five_times_as_long_as_they_live() {
    for (age, expected) in [(0, 60), (12, 60), (20, 100), (120, 600), (599, 600)] {
        let half = std::iter::repeat_n(secs(age), 50);
        // The mean counts, and not the age of most objects.
        let ages = half.clone().chain(half.map(|age| age * 2)).map(|age| age * 2 / 3);
        let plan = after_deaths(Kind::Short, ages).plan(EMPTY, IDLE, secs(0));
        assert!(close(plan.short_age, secs(expected)), "{age} s: {plan:?}");
        assert_eq!(plan.age, BOUNDS.age, "no normal one died");
    }
}

#[test]
fn deaths_of_an_hour_ago_do_not_count() {
    let cleaning = after_deaths(Kind::Normal, std::iter::repeat_n(secs(4), DEATHS));
    for (now, age) in [(0, secs(6)), (3_599, secs(6)), (3_600, BOUNDS.age)] {
        let plan = cleaning.plan(EMPTY, IDLE, secs(now));
        assert!(close(plan.age, age), "after {now} s: {plan:?}");
    }
}

#[test]
fn only_the_latest_deaths_count() {
    let ages = std::iter::repeat_n(secs(50), 1000);
    let mut cleaning = after_deaths(Kind::Normal, ages);
    assert_eq!(cleaning.plan(EMPTY, IDLE, secs(0)).age, BOUNDS.age);
    (0..DEATHS).for_each(|_| cleaning.died(Kind::Normal, secs(4), secs(0)));
    assert!(close(cleaning.plan(EMPTY, IDLE, secs(0)).age, secs(6)));
}

/// Objects die at any age up to 50 s. The cleaner sees only those that die before their flush.
#[test]
fn an_age_that_follows_the_deaths_before_it_does_not_fall_to_its_floor() {
    let mut cleaning = after_deaths(Kind::Normal, std::iter::repeat_n(secs(1), DEATHS));
    assert!(close(cleaning.plan(EMPTY, IDLE, secs(0)).age, secs(5)));
    for number in 0..100_000_u64 {
        let age = Duration::from_millis(number * 7919 % 50_000);
        if age < cleaning.plan(EMPTY, IDLE, secs(0)).age {
            cleaning.died(Kind::Normal, age, secs(0));
        }
    }
    assert!(
        cleaning.plan(EMPTY, IDLE, secs(0)).age > secs(55),
        "{:?}",
        cleaning.plan(EMPTY, IDLE, secs(0))
    );
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
        let plan = cleaning.plan(full(percent), IDLE, secs(0));
        let is_as_told = close(plan.age, secs(age)) && close(plan.short_age, secs(short_age));
        assert!(is_as_told, "{percent}% full: {plan:?}");
    }
}

fn flushed(end: FlushEnd, took: Duration) -> Flushed {
    Flushed {
        end,
        size_bytes: 1 << 20,
        took,
        now: Duration::ZERO,
    }
}

/// Runs flushes that end at these times, in milliseconds, each after 10 ms.
fn flushes(cleaning: &mut Cleaning, end: FlushEnd, at_ms: impl IntoIterator<Item = u64>) -> usize {
    for now in at_ms {
        cleaning.flushed(Flushed {
            now: Duration::from_millis(now),
            ..flushed(end, Duration::from_millis(10))
        });
    }
    cleaning.plan(EMPTY, IDLE, secs(0)).flushes
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
        let late = Flushed {
            now: secs(now),
            ..flushed(end, secs(now))
        };
        (0..10).for_each(|_| cleaning.flushed(late));
        assert_eq!(cleaning.plan(EMPTY, IDLE, secs(0)).flushes, 4, "{end:?}");
    }
}

#[test]
fn a_tier_that_is_nearly_full_is_cleaned_before_all_else() {
    let mut cleaning = Cleaning::new(BOUNDS);
    flushes(&mut cleaning, FlushEnd::Overloaded, [1_000]);
    let busy = Load {
        requests_max: 4,
        clients_wait: true,
    };
    for (percent, load, expected) in [
        (90, IDLE, 4),
        (90, busy, 1),
        (91, IDLE, FLUSHES_MAX),
        (91, busy, FLUSHES_MAX),
    ] {
        let plan = cleaning.plan(full(percent), load, secs(0));
        assert_eq!(plan.flushes, expected, "{percent}% full, {load:?}");
    }
}

#[test]
fn flushes_take_a_quarter_of_the_lake_and_go_one_by_one_while_clients_wait() {
    let cleaning = Cleaning::new(BOUNDS);
    for (requests_max, clients_wait, expected) in [
        (512, false, FLUSHES_MAX),
        (32, false, 8),
        (17, false, 4),
        (1, false, 1),
        (512, true, 1),
    ] {
        let load = Load {
            requests_max,
            clients_wait,
        };
        assert_eq!(cleaning.plan(EMPTY, load, secs(0)).flushes, expected, "{load:?}");
    }
}

/// Ends flushes of these sizes one second after the other, each after the same time.
fn after(cleaning: &mut Cleaning, began_s: u64, took: Duration, sizes: &[u64]) -> usize {
    for (size_bytes, now) in sizes.iter().zip(began_s..) {
        cleaning.flushed(Flushed {
            size_bytes: *size_bytes,
            now: secs(now),
            ..flushed(FlushEnd::Written, took)
        });
    }
    cleaning.plan(EMPTY, IDLE, secs(0)).flushes
}

#[test]
fn a_lake_that_becomes_slow_gets_half_as_many_flushes() {
    let mut cleaning = Cleaning::new(BOUNDS);
    let (fast, slow) = (Duration::from_millis(10), Duration::from_millis(50));
    let sizes = [1 << 20; 200];
    assert_eq!(after(&mut cleaning, 100, fast, &sizes[..TIMES]), FLUSHES_MAX);
    // A few that are slow say nothing.
    assert_eq!(
        after(&mut cleaning, 200, slow, &sizes[..TIMES / 2 - 1]),
        FLUSHES_MAX
    );
    assert_eq!(after(&mut cleaning, 300, slow, &sizes[..1]), FLUSHES_MAX / 2);
    // A lake that stays so slow is not slow any more.
    after(&mut cleaning, 1_000, slow, &sizes);
    assert_eq!(after(&mut cleaning, 2_000, slow, &sizes), FLUSHES_MAX);
}

#[test]
fn larger_objects_do_not_make_a_lake_slow() {
    let mut cleaning = Cleaning::new(BOUNDS);
    for (round, took_ms) in [(0, 10), (1, 1_000), (2, 10), (3, 1_000)] {
        let sizes = [[1 << 10, 100 << 20][round as usize % 2]; 2 * TIMES];
        let took = Duration::from_millis(took_ms);
        let flushes = after(&mut cleaning, 100 * (round + 1), took, &sizes);
        assert_eq!(flushes, FLUSHES_MAX, "round {round}");
    }
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
                Event::Died(true, age) => cleaning.died(Kind::Short, Duration::from_millis(age), secs(0)),
                Event::Died(false, age) => cleaning.died(Kind::Normal, Duration::from_millis(age), secs(0)),
                Event::Flushed(end, took, pause) => {
                    let ends = [FlushEnd::Written, FlushEnd::Overloaded, FlushEnd::Failed];
                    now += pause;
                    let [took, now] = [took, now].map(Duration::from_millis);
                    let end = ends[usize::from(end) % 3];
                    cleaning.flushed(Flushed { now, ..flushed(end, took) });
                }
            }
        }
        let plan = cleaning.plan(EMPTY, IDLE, secs(0));
        assert!(plan.age >= age.min(super::AGE_MIN));
        assert!(plan.short_age >= short_age.min(super::SHORT_AGE_MIN));
        for (stored_bytes, capacity_bytes) in fills {
            let fuller = cleaning.plan(Fill { stored_bytes, capacity_bytes }, IDLE, secs(0));
            assert!(fuller.age <= plan.age && plan.age <= age);
            assert!(fuller.short_age <= plan.short_age && plan.short_age <= short_age);
            assert!((plan.flushes..=FLUSHES_MAX).contains(&fuller.flushes) && plan.flushes > 0);
        }
    }
}
