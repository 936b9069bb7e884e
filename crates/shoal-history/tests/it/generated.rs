//! Generated workloads are recovered, with a stated precision.

use proptest::prelude::{ProptestConfig, any, prop_assert, proptest};
use shoal_history::forecast::{Extent, ForecastInput, ForecastJob};
use shoal_history::{Forecast, Moment, Report, Templates, Window, backtest, forecast};

use crate::workload::{DAY_MS, HOUR_MS, MINUTE_MS, Manners, START, day_of, history, hour_of};

/// The forecast for the day after the history.
fn next_day(manners: Manners) -> Forecast {
    let templates = Templates::learn(&history(manners));
    forecast(
        &templates,
        Window::after(Moment::from_ms(START + manners.days * DAY_MS), DAY_MS),
    )
}

fn jobs<'a>(forecast: &'a Forecast, name: &str) -> Vec<&'a ForecastJob> {
    forecast.jobs.iter().filter(|job| job.name == name).collect()
}

fn paths(job: &ForecastJob) -> Vec<&str> {
    job.inputs.iter().map(|input| input.path.as_str()).collect()
}

#[test]
fn tomorrows_jobs_read_tomorrows_paths() {
    // 28 days: the day after is a Monday.
    let manners = Manners {
        days: 28,
        ..Manners::default()
    };
    let forecast = next_day(manners);
    assert_eq!(jobs(&forecast, "refresh").len(), 96);
    let hourly = jobs(&forecast, "clicks_hourly");
    assert_eq!(hourly.len(), 24);
    for (hour, job) in (28 * 24..).zip(&hourly) {
        assert_eq!(
            paths(job),
            [
                hour_of("clicks", hour - 1).as_str(),
                "s3://lake/dim/countries.csv"
            ]
        );
        let clicks = &job.inputs[0];
        assert_eq!(
            (clicks.extent, clicks.objects, clicks.bytes.typical),
            (Extent::Prefix, Some(4), 4 << 30)
        );
        assert_eq!(job.inputs[1].extent, Extent::Object);
        // The data of the hour before is complete when this one begins; a path without a date has no such
        // time.
        let hour_begins = Moment::from_ms(START + hour * HOUR_MS);
        assert_eq!(
            (clicks.whole_at, job.inputs[1].whole_at),
            (Some(hour_begins), None)
        );
    }
    let daily = jobs(&forecast, "orders_daily_*");
    assert_eq!(daily.len(), 1);
    assert_eq!(paths(daily[0]), [day_of("orders", 27)]);
    let off_ms = daily[0]
        .submission
        .at
        .since_ms(Moment::from_ms(START + 28 * DAY_MS + 2 * HOUR_MS));
    assert!((0..3 * MINUTE_MS).contains(&off_ms), "{off_ms}");
    let rate = daily[0].inputs[0].bytes_per_s.unwrap().typical;
    assert!((60 << 20..100 << 20).contains(&rate), "{rate}");
    let weekly = jobs(&forecast, "orders_weekly");
    assert_eq!(weekly.len(), 1, "the day after is a Monday");
    let mut days: Vec<_> = (21..28).map(|day| day_of("orders", day)).collect();
    days.sort();
    let mut read = paths(weekly[0]);
    read.sort_unstable();
    assert_eq!(read, days);
    assert!(forecast.jobs.iter().all(|job| !job.name.starts_with("adhoc")));
    assert!(
        forecast
            .jobs
            .iter()
            .all(|job| job.deadline > job.submission.at && job.probability > 0.7)
    );
}

#[test]
fn the_report_tells_what_was_foreseen_and_why_not() {
    let report = backtest(&history(Manners::default()), DAY_MS).unwrap();
    assert_eq!(
        report.jobs.of,
        report.jobs.foreseen + report.not_foreseen.iter().map(|reason| reason.jobs).sum::<u64>()
    );
    assert!(report.jobs.share() > 0.95, "{}", report.text());
    assert!(report.bytes.share() > 0.95, "{}", report.text());
    let text = report.text();
    for part in [
        "the name is new: adhoc",
        "orders_daily_*",
        "daily at 02:0",
        "hourly at :0",
        "every 15 min",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(
        text.contains("s3://lake/clicks/dt=YYYY-MM-DD/hour=hh/: the hour before"),
        "{text}"
    );
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["not_foreseen"][0]["why"], "new-name");
}

#[test]
fn sizes_that_grow_are_followed() {
    let manners = Manners {
        missed: 0.0,
        ..Manners::default()
    };
    let report = backtest(&history(manners), DAY_MS).unwrap();
    let of = |report: &Report, name: &str| {
        report
            .by_job
            .iter()
            .find(|job| job.name == name)
            .cloned()
            .unwrap()
    };
    let orders = of(&report, "orders_daily_*");
    assert!(orders.size_error.unwrap().median < 0.03, "{orders:?}");
}

#[test]
fn a_forecast_survives_json() {
    let forecast = next_day(Manners {
        days: 7,
        ..Manners::default()
    });
    let text = serde_json::to_string(&forecast).unwrap();
    assert!(
        text.contains("\"extent\":\"prefix\"") && text.contains("\"deadline_rule\":\"run-times\""),
        "{text}"
    );
    let read: Forecast = serde_json::from_str(&text).unwrap();
    assert_eq!(read, forecast);
}

#[test]
fn nothing_is_learned_from_nothing() {
    let empty = shoal_history::read::Reader::default().finish().unwrap();
    assert!(backtest(&empty, DAY_MS).is_none());
    let window = Window::after(Moment::from_ms(0), i64::MAX);
    assert!(forecast(&Templates::learn(&empty), window).jobs.is_empty());
    let one_day = history(Manners {
        days: 1,
        ..Manners::default()
    });
    assert!(backtest(&one_day, 7 * DAY_MS).is_some_and(|report| report.learned_runs > 0));
}

/// Returns true for inputs of recurring jobs; fetching any other input would be a waste.
fn is_sensible(input: &ForecastInput) -> bool {
    [
        "s3://lake/clicks/dt=",
        "s3://lake/orders/dt=",
        "s3://lake/dim/",
        "s3://lake/state/",
    ]
    .iter()
    .any(|begin| input.path.starts_with(begin))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn recurring_workloads_are_recovered(
        jitter_ms in 1..5 * MINUTE_MS,
        missed in 0.0..0.15_f64,
        ad_hoc_a_day in 0..10_i64,
        seed in any::<u64>(),
    ) {
        let manners = Manners { days: 21, jitter_ms, missed, ad_hoc_a_day, seed };
        let forecast = next_day(manners);
        let counts: Vec<_> = ["refresh", "clicks_hourly", "orders_daily_*"].iter().map(|name| jobs(&forecast, name).len()).collect();
        prop_assert!(counts == [96, 24, 1], "{counts:?}");
        for job in &forecast.jobs {
            prop_assert!(job.inputs.iter().all(is_sensible), "{job:?}");
        }
        let daily = jobs(&forecast, "orders_daily_*")[0];
        prop_assert!(paths(daily) == [day_of("orders", 20)], "{daily:?}");
        // Within the jitter.
        let off_ms = daily.submission.at.since_ms(Moment::from_ms(START + 21 * DAY_MS + 2 * HOUR_MS)) - jitter_ms / 2;
        prop_assert!(off_ms.abs() <= jitter_ms / 2 + 1, "off by {off_ms} of {jitter_ms}");
        let report = backtest(&history(manners), DAY_MS).unwrap();
        let recurring = report.jobs.of as f64 - ad_hoc_a_day as f64;
        prop_assert!(report.jobs.foreseen as f64 >= recurring * 0.97 - 1.0, "{}", report.text());
        if let Some(error) = report.submission_error_s {
            prop_assert!(error.worst <= jitter_ms as f64 / 1e3 + 1.0, "{}", report.text());
        }
    }
}
