//! Schedules are detected despite jitter, gaps and extra runs.

use proptest::prelude::{Just, ProptestConfig, any, prop, prop_assert, prop_oneof, proptest};
use proptest::strategy::Strategy;

use super::{Rhythm, Schedule, detect};
use crate::moment::{DAY_MS, HOUR_MS, MINUTE_MS, Moment, WEEK_MS};

/// 2026-10-05, a Monday.
const START_MS: i64 = 1_791_158_400_000;

fn moments(mut times_ms: Vec<i64>) -> Vec<Moment> {
    times_ms.sort_unstable();
    times_ms
        .into_iter()
        .map(|ms| Moment::from_ms(START_MS + ms))
        .collect()
}

fn found(times_ms: Vec<i64>, until_ms: i64) -> Option<Schedule> {
    detect(&moments(times_ms), Moment::from_ms(START_MS + until_ms))
}

/// Pseudo-random deviations from 0 to below `width_ms`.
fn jitter(number: i64, width_ms: i64) -> i64 {
    // SplitMix64.
    let mut bits = number
        .cast_unsigned()
        .wrapping_add(1)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits >> 1).cast_signed() % width_ms.max(1)
}

#[test]
fn a_daily_job_is_a_day_with_one_slot() {
    let times = (0..30)
        .map(|day| day * DAY_MS + 2 * HOUR_MS + jitter(day, 5 * MINUTE_MS))
        .collect();
    let schedule = found(times, 30 * DAY_MS).unwrap();
    assert_eq!(
        (schedule.rhythm, schedule.period_ms, schedule.slots.len()),
        (Rhythm::Clock, DAY_MS, 1)
    );
    let slot = &schedule.slots[0];
    assert!(
        (slot.phase_ms - 2 * HOUR_MS - 150_000).abs() < 2 * MINUTE_MS,
        "{slot:?}"
    );
    assert!(
        slot.late_ms - slot.early_ms < 5 * MINUTE_MS && slot.probability > 0.95,
        "{slot:?}"
    );
}

#[test]
fn workdays_are_a_week_with_five_slots() {
    let times = (0..28)
        .filter(|day| day % 7 < 5)
        .map(|day| day * DAY_MS + 6 * HOUR_MS)
        .collect();
    let schedule = found(times, 28 * DAY_MS).unwrap();
    assert_eq!((schedule.period_ms, schedule.slots.len()), (WEEK_MS, 5));
    let due = schedule.due(
        Moment::from_ms(START_MS + 28 * DAY_MS),
        Moment::from_ms(START_MS + 35 * DAY_MS),
        100,
    );
    let days: Vec<_> = due
        .iter()
        .map(|due| due.submission.at.since_ms(Moment::from_ms(START_MS)) / DAY_MS)
        .collect();
    assert_eq!(days, [28, 29, 30, 31, 32]);
}

#[test]
fn several_times_a_day_are_several_slots() {
    let hours = [2, 9, 14];
    let times = (0..20)
        .flat_map(|day| hours.map(|hour| day * DAY_MS + hour * HOUR_MS))
        .collect();
    let schedule = found(times, 20 * DAY_MS).unwrap();
    let phases: Vec<_> = schedule
        .slots
        .iter()
        .map(|slot| slot.phase_ms / HOUR_MS)
        .collect();
    assert_eq!((schedule.period_ms, phases), (DAY_MS, vec![2, 9, 14]));
}

#[test]
fn the_shortest_period_that_explains_the_runs_is_taken() {
    for period_ms in [
        5 * MINUTE_MS,
        15 * MINUTE_MS,
        HOUR_MS,
        2 * HOUR_MS,
        6 * HOUR_MS,
        DAY_MS,
        WEEK_MS,
    ] {
        let runs = (30 * DAY_MS / period_ms).min(600);
        let times = (0..runs)
            .map(|run| run * period_ms + jitter(run, (period_ms / 10).min(HOUR_MS)))
            .collect();
        let schedule = found(times, runs * period_ms).unwrap();
        assert_eq!((schedule.period_ms, schedule.slots.len()), (period_ms, 1));
    }
}

#[test]
fn a_period_that_no_calendar_knows_is_measured() {
    let period_ms = 47 * MINUTE_MS + 13_000;
    let times = (0..600)
        .map(|run| run * period_ms + jitter(run, 2 * MINUTE_MS))
        .collect();
    let schedule = found(times, 600 * period_ms).unwrap();
    assert!(
        (schedule.period_ms - period_ms).abs() < 1_000,
        "{}",
        schedule.period_ms
    );
    let due = schedule.due(
        Moment::from_ms(START_MS + 600 * period_ms),
        Moment::from_ms(START_MS + 601 * period_ms),
        9,
    );
    assert_eq!(due.len(), 1);
    let error_ms = due[0]
        .submission
        .at
        .since_ms(Moment::from_ms(START_MS + 600 * period_ms + MINUTE_MS));
    assert!(error_ms.abs() < 2 * MINUTE_MS, "{error_ms}");
}

#[test]
fn jitter_that_grows_by_accident_makes_no_period_of_its_own() {
    let times = (0..20)
        .map(|day| day * DAY_MS + 2 * HOUR_MS + day * 9_000)
        .collect();
    let schedule = found(times, 20 * DAY_MS).unwrap();
    assert_eq!((schedule.period_ms, schedule.slots.len()), (DAY_MS, 1));
    // A job that runs every day and 20 minutes does drift, which shows over a month.
    let drifting = DAY_MS + 20 * MINUTE_MS;
    let schedule = found((0..40).map(|run| run * drifting).collect(), 40 * drifting).unwrap();
    assert_eq!(schedule.period_ms, drifting);
}

#[test]
fn a_job_that_follows_its_last_run_drifts() {
    let mut at_ms = 0;
    let times: Vec<_> = (0..400)
        .map(|run| {
            at_ms += 50 * MINUTE_MS + jitter(run, 15 * MINUTE_MS);
            at_ms
        })
        .collect();
    let schedule = found(times, at_ms + MINUTE_MS).unwrap();
    assert_eq!((schedule.rhythm, schedule.slots.len()), (Rhythm::LastRun, 1));
    let last = Moment::from_ms(START_MS + at_ms);
    let due = schedule.due(last.plus_ms(1), last.plus_ms(5 * HOUR_MS), 100);
    assert!((4..7).contains(&due.len()), "{due:?}");
    let width = |number: usize| due[number].submission.late.since_ms(due[number].submission.early);
    assert!(width(3) > width(0), "later runs are less certain");
}

#[test]
fn a_job_that_has_ended_is_not_forecast() {
    let times: Vec<_> = (0..20).map(|day| day * DAY_MS).collect();
    assert!(found(times.clone(), 20 * DAY_MS).is_some());
    let after_a_miss = found(times.clone(), 21 * DAY_MS + HOUR_MS).unwrap();
    assert!(after_a_miss.slots[0].probability < 0.97, "{after_a_miss:?}");
    assert!(found(times, 26 * DAY_MS).is_none());
}

#[test]
fn a_job_that_was_moved_runs_at_its_new_time() {
    // The end of daylight saving, ten days ago, moved a job by an hour.
    let at_ms = |day: i64| day * DAY_MS + if day < 20 { 2 } else { 3 } * HOUR_MS + jitter(day, 4 * MINUTE_MS);
    let schedule = found((0..30).map(at_ms).collect(), 30 * DAY_MS).unwrap();
    let due = schedule.due(
        Moment::from_ms(START_MS + 30 * DAY_MS),
        Moment::from_ms(START_MS + 31 * DAY_MS),
        9,
    );
    let hours: Vec<_> = due
        .iter()
        .map(|due| due.submission.at.ms().rem_euclid(DAY_MS) / HOUR_MS)
        .collect();
    assert_eq!(hours, [3]);
    // Hourly for a month, and daily for the last week.
    let hourly = (0..240).map(|hour| hour * HOUR_MS);
    let daily = (10..20).map(|day| day * DAY_MS);
    let schedule = found(hourly.chain(daily).collect(), 20 * DAY_MS).unwrap();
    assert_eq!((schedule.period_ms, schedule.slots.len()), (DAY_MS, 1));
}

#[test]
fn a_change_of_clocks_moves_a_job_from_its_second_run_on() {
    let daily = |day: i64| Some(day * DAY_MS + HOUR_MS / 2 + jitter(day, 5 * MINUTE_MS));
    let workdays = |day: i64| daily(day).filter(|_| day % 7 < 5);
    for (job, name) in [
        (&daily as &dyn Fn(i64) -> Option<i64>, "daily"),
        (&workdays, "workdays"),
    ] {
        for shift_ms in [HOUR_MS, -HOUR_MS] {
            for days_after in 0..28 {
                let times = (0..35 + days_after).filter_map(|day| {
                    let moved = if day < 35 { 0 } else { shift_ms };
                    Some(job(day)? + moved)
                });
                let until_ms = (35 + days_after) * DAY_MS - 2 * HOUR_MS;
                let schedule = found(times.collect(), until_ms).unwrap();
                let until = Moment::from_ms(START_MS + until_ms);
                let due = schedule.due(until, until.plus_ms(7 * DAY_MS), 100);
                let expected = if days_after < 2 { 0 } else { shift_ms };
                for due in due {
                    let since_ms = due.submission.at.since_ms(Moment::from_ms(START_MS)) - expected;
                    let off_ms = (since_ms - HOUR_MS / 2).rem_euclid(DAY_MS);
                    let off_ms = off_ms.min(DAY_MS - off_ms);
                    assert!(
                        off_ms <= 5 * MINUTE_MS,
                        "{name}, {days_after} days after {shift_ms}: {off_ms} off"
                    );
                }
            }
        }
    }
}

#[test]
fn one_late_run_moves_no_job() {
    let times = (0..30).map(|day| day * DAY_MS + 2 * HOUR_MS + if day == 29 { HOUR_MS } else { 0 });
    let schedule = found(times.collect(), 30 * DAY_MS).unwrap();
    assert_eq!(schedule.slots[0].phase_ms, 2 * HOUR_MS);
}

#[test]
fn an_outage_of_some_hours_ends_no_job() {
    let times: Vec<_> = (0..200).map(|run| run * HOUR_MS).collect();
    let after = found(times.clone(), 199 * HOUR_MS + 6 * HOUR_MS).unwrap();
    assert!((0.5..0.9).contains(&after.slots[0].probability), "{after:?}");
    assert!(found(times, 199 * HOUR_MS + 30 * HOUR_MS).is_none());
}

#[test]
fn runs_at_random_times_have_no_schedule() {
    for seed in 1..20 {
        for runs in [3, 10, 40, 400, 3_000] {
            let times = (0..runs)
                .map(|run| jitter(run + seed * 1_000_000, 30 * DAY_MS))
                .collect();
            let schedule = found(times, 30 * DAY_MS);
            assert!(schedule.is_none(), "{runs} runs, seed {seed}: {schedule:?}");
        }
    }
}

#[test]
fn two_runs_or_none_have_no_schedule() {
    assert!(found(vec![], DAY_MS).is_none());
    assert!(found(vec![0, DAY_MS], 2 * DAY_MS).is_none());
    assert!(found(vec![5; 10], DAY_MS).is_none(), "all at one moment");
}

fn period() -> impl Strategy<Value = i64> {
    prop_oneof![
        Just(15 * MINUTE_MS),
        Just(HOUR_MS),
        Just(6 * HOUR_MS),
        Just(DAY_MS),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn schedules_are_recovered_despite_jitter_misses_and_extra_runs(
        period_ms in period(),
        phase in 0.0..1.0_f64,
        jitters in prop::collection::vec(0.0..1.0_f64, 60),
        missed in prop::collection::btree_set(1..59_i64, 0..12),
        extra in prop::collection::vec(0.0..1.0_f64, 0..6),
    ) {
        let phase_ms = (phase * period_ms as f64) as i64;
        // Up to a sixth of the period, and up to half an hour; up to one run in five is missed.
        let width_ms = (period_ms / 6).min(30 * MINUTE_MS) as f64;
        let mut times: Vec<i64> = (0..60)
            .filter(|run| !missed.contains(run))
            .map(|run| run * period_ms + phase_ms + (jitters[usize::try_from(run).unwrap()] * width_ms) as i64)
            .collect();
        times.extend(extra.iter().map(|at| (at * 60.0 * period_ms as f64) as i64));
        let schedule = found(times, 60 * period_ms);
        prop_assert!(schedule.is_some());
        let schedule = schedule.unwrap();
        prop_assert!(schedule.period_ms == period_ms, "{} for {}", schedule.period_ms, period_ms);
        prop_assert!(schedule.slots.len() == 1, "{:?}", schedule.slots.len());
        let offset_ms = (START_MS + phase_ms + width_ms as i64 / 2 - schedule.slots[0].phase_ms).rem_euclid(period_ms);
        let error_ms = offset_ms.min(period_ms - offset_ms);
        prop_assert!(error_ms as f64 <= width_ms / 2.0 + 1.0, "off by {} ms", error_ms);
    }

    #[test]
    fn any_submissions_have_a_schedule_or_none(
        times in prop::collection::vec(any::<u32>(), 0..200),
        until in any::<u32>(),
    ) {
        let mut times: Vec<Moment> = times.into_iter().map(|ms| Moment::from_ms(i64::from(ms) * 100)).collect();
        times.sort_unstable();
        if let Some(schedule) = detect(&times, Moment::from_ms(i64::from(until) * 100)) {
            prop_assert!(schedule.period_ms > 0 && !schedule.slots.is_empty());
            for slot in &schedule.slots {
                prop_assert!((0..schedule.period_ms).contains(&slot.phase_ms));
                prop_assert!(slot.probability > 0.0 && slot.probability <= 1.0);
                prop_assert!(slot.early_ms <= 0 && slot.late_ms >= 0);
                prop_assert!(slot.hits.iter().all(|hit| hit.run < times.len()));
            }
        }
    }
}
