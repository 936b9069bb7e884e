//! Inputs of all kinds, read by a job over twenty days, and the forecast for the next day.

use shoal_history::forecast::{DeadlineRule, Extent, ForecastJob};
use shoal_history::read::Reader;
use shoal_history::{Input, Moment, Run, Templates, Window, forecast};

use crate::workload::{DAY_MS, HOUR_MS, MINUTE_MS, START};

const DAYS: i64 = 20;

fn day(number: i64) -> String {
    Moment::from_ms(START + number * DAY_MS).to_string()[..10].to_owned()
}

/// The next run of a job that read these paths on each of twenty days, a thousand bytes of each.
fn next(paths: impl Fn(i64) -> Vec<String>) -> ForecastJob {
    let mut runs = runs(DAYS, DAY_MS, paths);
    assert_eq!(runs.len(), 1, "{runs:?}");
    runs.remove(0)
}

/// Returns the runs forecast for the day after a job has run `periods` times, once per period.
fn runs(periods: i64, period_ms: i64, paths: impl Fn(i64) -> Vec<String>) -> Vec<ForecastJob> {
    let run = |number: i64| {
        let submitted = Moment::from_ms(START + number * period_ms + MINUTE_MS);
        Run {
            name: "etl".to_owned(),
            submitted,
            ended: Some(submitted.plus_ms(10 * 1_000)),
            inputs: paths(number)
                .into_iter()
                .map(|path| Input {
                    path,
                    bytes: Some(1_000),
                    bytes_per_s: None,
                })
                .collect(),
            ..Run::default()
        }
    };
    next_day((0..periods).map(run), START + periods * period_ms)
}

fn next_day(runs: impl Iterator<Item = Run>, from_ms: i64) -> Vec<ForecastJob> {
    let mut reader = Reader::default();
    for run in runs {
        reader.run("h", &run).expect("this is no large history");
    }
    let templates = Templates::learn(&reader.finish().expect("this is no large history"));
    forecast(&templates, Window::after(Moment::from_ms(from_ms), DAY_MS)).jobs
}

fn paths(job: &ForecastJob) -> Vec<String> {
    let mut paths: Vec<String> = job.inputs.iter().map(|input| input.path.clone()).collect();
    paths.sort();
    paths
}

#[test]
fn dates_of_every_spelling_move_along() {
    let compact = |day: &str| day.replace('-', "");
    let job = next(|number| {
        let (today, before) = (day(number), day(number - 1));
        vec![
            format!("s3://b/a/dt={before}/x.csv"),
            format!("s3://b/b/{}.csv", compact(&today)),
            format!("s3://b/c/{}/x.csv", before.replace('-', "/")),
            format!("s3://b/d/day={}/x.csv", (START / DAY_MS) + number),
            format!(
                "s3://b/e/year={}/month={}/x.csv",
                &today[..4],
                today[5..7].trim_start_matches('0')
            ),
            format!("s3://b/f/snapshot={today}/dt={before}/x.csv"),
        ]
    });
    let (today, before) = (day(DAYS), day(DAYS - 1));
    assert_eq!(
        paths(&job),
        [
            format!("s3://b/a/dt={before}/x.csv"),
            format!("s3://b/b/{}.csv", compact(&today)),
            format!("s3://b/c/{}/x.csv", before.replace('-', "/")),
            format!("s3://b/d/day={}/x.csv", (START / DAY_MS) + DAYS),
            format!(
                "s3://b/e/year={}/month={}/x.csv",
                &today[..4],
                today[5..7].trim_start_matches('0')
            ),
            format!("s3://b/f/snapshot={today}/dt={before}/x.csv"),
        ]
    );
    assert!(
        job.inputs
            .iter()
            .all(|input| input.extent == Extent::Object && input.bytes.typical == 1_000)
    );
}

#[test]
fn a_date_that_stays_is_no_date() {
    let job = next(|_| vec!["s3://b/dim/v=2026-10-01/x.csv".to_owned()]);
    assert_eq!(paths(&job), ["s3://b/dim/v=2026-10-01/x.csv"]);
    // A job that runs every minute reads the same inputs for hours; its moving inputs show only over days.
    let hourly = runs(5 * 24, HOUR_MS, |hour| {
        vec![
            format!("s3://b/model/v={}/x", day(0)),
            format!("s3://b/today/dt={}/x", day(hour / 24)),
        ]
    });
    assert_eq!(hourly.len(), 24);
    assert_eq!(
        paths(&hourly[0]),
        [
            format!("s3://b/model/v={}/x", day(0)),
            format!("s3://b/today/dt={}/x", day(5))
        ]
    );
}

#[test]
fn the_last_seven_days_are_a_window_that_moves() {
    let job = next(|number| {
        (number - 7..number)
            .map(|back| format!("s3://b/t/dt={}/", day(back)))
            .collect()
    });
    let expected: Vec<String> = (DAYS - 7..DAYS)
        .map(|back| format!("s3://b/t/dt={}/", day(back)))
        .collect();
    assert_eq!(paths(&job), expected);
    assert!(job.inputs.iter().all(|input| input.extent == Extent::Prefix));
}

#[test]
fn a_window_longer_than_the_history_is_its_dated_paths() {
    let window = |number: i64| -> Vec<String> {
        (number - 60..number)
            .map(|back| format!("s3://b/t/dt={}/", day(back)))
            .collect()
    };
    let job = next(window);
    assert_eq!(paths(&job), window(DAYS));
    for input in &job.inputs {
        assert_eq!((input.extent, input.bytes.typical), (Extent::Prefix, 1_000));
        assert!(input.probability > 0.9 && input.whole_at.is_some(), "{input:?}");
    }
}

#[test]
fn a_window_of_more_dates_than_are_listed_is_a_part_of_its_prefix() {
    let days = |number: i64| (number - 400..number).map(|back| format!("s3://b/t/dt={}/", day(back)));
    let of_prefixes = next(|number| days(number).collect());
    let of_objects = next(|number| {
        let part = format!(
            "part-00000-{:08x}-1111-2222-3333-444455556666.parquet",
            number * 7_919
        );
        days(number).map(|day| format!("{day}{part}")).collect()
    });
    for job in [of_prefixes, of_objects] {
        assert_eq!(paths(&job), ["s3://b/t/"]);
        let input = &job.inputs[0];
        assert_eq!(
            (input.extent, input.bytes.typical),
            (Extent::PartOfPrefix, 400_000)
        );
    }
}

#[test]
fn a_folder_of_more_dated_objects_than_are_listed_is_a_prefix() {
    let minutes = |number: i64| -> Vec<String> {
        let time = |minute: i64| {
            format!(
                "{}{:02}{:02}",
                day(number).replace('-', ""),
                minute / 60,
                minute % 60
            )
        };
        (0..24 * 60)
            .map(|minute| format!("s3://b/logs/dt={}/{}.gz", day(number), time(minute)))
            .collect()
    };
    let job = next(|number| minutes(number - 1));
    assert_eq!(paths(&job), [format!("s3://b/logs/dt={}/", day(DAYS - 1))]);
    assert_eq!(job.inputs[0].extent, Extent::Prefix);
}

#[test]
fn a_time_of_writing_in_the_names_of_objects_is_no_date_of_a_table() {
    // As Trino names files.
    let job = next(|number| {
        (0..50)
            .map(|file| {
                let second = (number * 31 + file * 7) % 60;
                let date = day(number).replace('-', "");
                let id = format!("{file:05}_{number:08x}-1111-2222-3333-444455556666");
                format!("s3://b/dim/{date}_0101{second:02}_00012_{id}")
            })
            .collect()
    });
    assert_eq!(paths(&job), ["s3://b/dim/"]);
    assert_eq!(
        (job.inputs[0].extent, job.inputs[0].objects),
        (Extent::Prefix, Some(50))
    );
}

#[test]
fn each_kind_of_field_keeps_its_digits() {
    let number = |text: &str| text.trim_start_matches('0').to_owned();
    let spelled = |hour: i64| {
        let date = day(hour.div_euclid(24));
        let (year, month, day) = (&date[..4], &date[5..7], &date[8..]);
        let of_day = hour.rem_euclid(24);
        vec![
            format!("s3://b/a/dt={date}/hour={of_day}/x"),
            format!("s3://b/b/dt={date}/hour={of_day:02}/x"),
            format!("s3://b/c/year={year}/month={month}/day={day}/hour={of_day}/x"),
            format!(
                "s3://b/d/year={year}/month={}/day={}/hour={of_day:02}/x",
                number(month),
                number(day)
            ),
            format!(
                "s3://b/e/year={year}/month={}/day={}/hour={of_day}/x",
                number(month),
                number(day)
            ),
        ]
    };
    // From the fifth of October to the end of the month; the next day is the first of November.
    let jobs = runs(27 * 24, HOUR_MS, |hour| spelled(hour - 1));
    assert_eq!(jobs.len(), 24);
    for (hour, job) in (27 * 24..).zip(&jobs) {
        assert_eq!(paths(job), spelled(hour - 1));
    }
}

#[test]
fn a_run_of_more_inputs_than_are_learned_from_is_learned() {
    let job = &runs(4, DAY_MS, |_| {
        let big = (0..200_000).map(|file| format!("s3://b/big/{file}.parquet"));
        big.chain(["s3://b/dim/countries.csv".to_owned()]).collect()
    })[0];
    assert_eq!(paths(job), ["s3://b/big/", "s3://b/dim/countries.csv"]);
    let (big, dim) = (&job.inputs[0], &job.inputs[1]);
    assert_eq!((big.extent, big.bytes.typical), (Extent::Prefix, 200_000_000));
    assert_eq!((dim.extent, dim.bytes.typical), (Extent::Object, 1_000));
}

#[test]
fn all_days_since_a_date_or_since_the_first_of_the_month_are_a_range() {
    let job = next(|number| {
        (-5..number)
            .map(|back| format!("s3://b/t/dt={}/x", day(back)))
            .collect()
    });
    assert_eq!(job.inputs.len(), 25);
    assert!(paths(&job).contains(&format!("s3://b/t/dt={}/x", day(DAYS - 1))));
    // From the fifth of October on; 40 days later it is the fourteenth of November.
    let first_of_month = |number: i64| if number < 27 { -4 } else { 27 };
    let month = |number: i64| {
        (first_of_month(number)..number)
            .map(|back| format!("s3://b/t/dt={}/x", day(back)))
            .collect()
    };
    let job = &runs(40, DAY_MS, month)[0];
    assert_eq!(paths(job), month(40));
}

#[test]
fn files_with_new_names_are_a_prefix() {
    let part = |number: i64, part: i64| {
        format!(
            "part-{part:05}-{:08x}-1111-2222-3333-444455556666.parquet",
            number * 7_919
        )
    };
    let job = next(|number| {
        let rewritten = (0..3).map(|file| format!("s3://b/table/{}", part(number, file)));
        let of_day = (0..3).map(|file| format!("s3://b/events/dt={}/{}", day(number), part(number, file)));
        rewritten
            .chain(of_day)
            .chain(["s3://b/table/_metadata".to_owned()])
            .collect()
    });
    assert_eq!(
        paths(&job),
        [
            format!("s3://b/events/dt={}/", day(DAYS)),
            "s3://b/table/".to_owned()
        ]
    );
    for input in &job.inputs {
        assert_eq!(input.extent, Extent::Prefix);
        let objects = if input.path.contains("table") { 4 } else { 3 };
        assert_eq!(
            (input.objects, input.bytes.typical),
            (Some(objects), objects * 1_000),
            "{input:?}"
        );
    }
}

#[test]
fn many_files_of_one_folder_are_a_prefix_and_a_choice_of_them_a_part() {
    let all = next(|_| (0..100).map(|file| format!("s3://b/images/{file}.jpg")).collect());
    assert_eq!(paths(&all), ["s3://b/images/"]);
    assert_eq!(
        (all.inputs[0].extent, all.inputs[0].objects),
        (Extent::Prefix, Some(100))
    );
    let some = next(|number| {
        let chosen = |file: &i64| (file * 7 + number * 13) % 3 == 0;
        (0..300)
            .filter(chosen)
            .map(|file| format!("s3://b/images/{file}.jpg"))
            .collect()
    });
    assert_eq!(paths(&some), ["s3://b/images/"]);
    assert_eq!(some.inputs[0].extent, Extent::PartOfPrefix);
}

#[test]
fn a_path_that_two_rules_give_is_expected_once() {
    // Every run reads one fixed day, and the day before: of the run after that day, both are one.
    let fixed = day(DAYS - 1);
    let job = next(|number| {
        let mut paths = vec![
            format!("s3://b/t/dt={fixed}/"),
            format!("s3://b/t/dt={}/", day(number - 1)),
        ];
        paths.dedup();
        paths
    });
    assert_eq!(paths(&job), [format!("s3://b/t/dt={fixed}/")]);
}

#[test]
fn an_input_of_few_runs_is_not_expected() {
    let job = next(|number| {
        let rare = (number % 4 == 0).then(|| "s3://b/rare/x".to_owned());
        rare.into_iter().chain(["s3://b/usual/x".to_owned()]).collect()
    });
    assert_eq!(paths(&job), ["s3://b/usual/x"]);
}

/// A run of a job on each day, from its hour on for ten minutes.
fn daily(name: &str, hour: i64, number: i64) -> Run {
    let submitted = Moment::from_ms(START + number * DAY_MS + hour * HOUR_MS);
    Run {
        name: name.to_owned(),
        submitted,
        ended: Some(submitted.plus_ms(10 * MINUTE_MS)),
        ..Run::default()
    }
}

fn deadline(jobs: &[ForecastJob], name: &str) -> (DeadlineRule, i64) {
    let job = jobs
        .iter()
        .find(|job| job.name == name)
        .expect("the job is forecast");
    (
        job.deadline_rule,
        job.deadline.since_ms(job.submission.at) / MINUTE_MS,
    )
}

#[test]
fn a_deadline_is_given_or_the_start_of_a_consumer_or_follows_from_run_times() {
    let mut all = Vec::new();
    for number in 0..DAYS {
        let mut given = daily("given", 1, number);
        given.deadline = Some(given.submitted.plus_ms(45 * MINUTE_MS));
        let mut producer = daily("producer", 2, number);
        producer.outputs = vec![format!("s3://b/made/dt={}", day(number))];
        let mut consumer = daily("consumer", 4, number);
        let path = format!("s3://b/made/dt={}/part-0", day(number));
        consumer.inputs = vec![Input {
            path,
            bytes: Some(5),
            bytes_per_s: None,
        }];
        all.extend([given, producer, consumer]);
    }
    let jobs = next_day(all.into_iter(), START + DAYS * DAY_MS);
    assert_eq!(deadline(&jobs, "given"), (DeadlineRule::Given, 45));
    assert_eq!(deadline(&jobs, "producer"), (DeadlineRule::Consumer, 120));
    assert_eq!(deadline(&jobs, "consumer"), (DeadlineRule::RunTimes, 12));
}

#[test]
fn a_consumer_leaves_a_job_its_usual_run_time() {
    let output = |table: &str, number: i64| format!("s3://b/{table}/dt={}", day(number));
    let mut all = Vec::new();
    for number in 0..DAYS {
        // One run in seven takes a minute, all others half an hour.
        let mut varied = daily("varied", 2, number);
        let minutes = if number % 7 == 0 { 1 } else { 30 };
        varied.ended = Some(varied.submitted.plus_ms(minutes * MINUTE_MS));
        let mut instant = daily("instant", 4, number);
        instant.ended = Some(instant.submitted);
        for (producer, table) in [(&mut varied, "varied"), (&mut instant, "instant")] {
            producer.outputs = vec![output(table, number)];
            let submitted = producer.ended.expect("it was just set");
            let input = Input {
                path: format!("{}/part-0", output(table, number)),
                ..Input::default()
            };
            all.push(Run {
                name: format!("reader of {table}"),
                submitted,
                ended: Some(submitted.plus_ms(MINUTE_MS)),
                inputs: vec![input],
                ..Run::default()
            });
        }
        all.extend([varied, instant]);
    }
    // A producer comes before its consumer, also where both were submitted at one time.
    all.sort_by_key(|run| (run.submitted, run.outputs.is_empty()));
    let jobs = next_day(all.into_iter(), START + DAYS * DAY_MS);
    assert_eq!(deadline(&jobs, "varied"), (DeadlineRule::Consumer, 30));
    let instant = jobs.iter().find(|job| job.name == "instant").unwrap();
    assert_eq!(instant.deadline_rule, DeadlineRule::Consumer);
    assert!(instant.deadline > instant.submission.at, "{instant:?}");
}
