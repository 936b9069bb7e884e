//! Runs from logs of requests: their order, and the identities that sign them.

use std::collections::BTreeSet;
use std::io::Cursor;

use shoal_history::read::{JobBy, ReadOptions, Reader};
use shoal_history::run::summary::Summary;
use shoal_history::{Format, History, Moment, Run, Templates, Window, forecast};

use crate::workload::{DAY_MS, HOUR_MS, MINUTE_MS, START};

const KEYS: [&str; 2] = ["AKIA4OSFODNN7EXAMP01", "AKIA4OSFODNN7EXAMP02"];

/// A read that started at `at_ms` and was logged when it ended.
fn line(at_ms: i64, duration_ms: i64, caller: &str, key: &str) -> String {
    format!(
        r#"{{"target":"shoal::access","time":"{}","operation":"get_object","bucket":"lake","key":"{key}","status":200,"bytes":5,"offset_bytes":0,"object_bytes":5,"duration_ms":{duration_ms},"caller":"{caller}"}}"#,
        Moment::from_ms(at_ms)
    )
}

fn read(job_by: JobBy, files: &[Vec<String>]) -> History {
    let mut reader = Reader::new(ReadOptions {
        job_by,
        ..ReadOptions::default()
    });
    for (number, lines) in files.iter().enumerate() {
        let text = lines.join("\n");
        reader
            .file(
                &format!("n{number}"),
                Some(Format::S3),
                Cursor::new(text.into_bytes()),
            )
            .expect("the file is a log");
    }
    reader.finish().expect("this is no large history")
}

/// The names of the jobs forecast for the next day.
fn names(history: &History) -> BTreeSet<String> {
    let from = history.span().expect("the history has runs").1.plus_ms(1);
    let jobs = forecast(&Templates::learn(history), Window::after(from, DAY_MS)).jobs;
    jobs.into_iter().map(|job| job.name).collect()
}

#[test]
fn logs_that_are_not_merged_are_told() {
    // The same three runs on each of two nodes, an hour apart.
    let node = |node: i64| -> Vec<String> {
        (0..3)
            .flat_map(|run| (0..4).map(move |request| run * HOUR_MS + request * 10_000 + node))
            .map(|at_ms| line(START + at_ms, 5, KEYS[0], &format!("k{node}")))
            .collect()
    };
    let one_after_the_other = read(JobBy::Identity, &[node(0), node(1)]);
    let text = Summary::new(&one_after_the_other).text();
    // The last run of the second node is not late.
    assert!(text.contains("8 requests out of order"), "{text}");
    assert!(text.contains("merge the logs by time"), "{text}");
    let mut merged = [node(0), node(1)].concat();
    merged.sort();
    let merged = read(JobBy::Identity, &[merged]);
    assert_eq!((merged.len(), merged.passed().count()), (3, 0));
}

#[test]
fn a_long_request_that_is_logged_at_its_end_is_in_order() {
    let lines = vec![
        line(START + 20 * MINUTE_MS, 5, KEYS[0], "a"),
        line(START, 20 * MINUTE_MS + 1_000, KEYS[0], "b"),
        line(START + 20 * MINUTE_MS + 2_000, 5, KEYS[0], "c"),
    ];
    let history = read(JobBy::Identity, &[lines]);
    assert_eq!((history.len(), history.passed().count()), (1, 0));
}

#[test]
fn an_identity_is_no_id() {
    // Two jobs that read the same, each hour of one day.
    let lines = (0..24)
        .flat_map(|hour| {
            [
                (hour * HOUR_MS, KEYS[0]),
                (hour * HOUR_MS + 20 * MINUTE_MS, KEYS[1]),
            ]
        })
        .map(|(at_ms, key)| line(START + at_ms, 5, key, "fact"))
        .collect();
    for by in [JobBy::Identity, JobBy::Any] {
        let history = read(by, std::slice::from_ref(&lines));
        assert_eq!(names(&history), KEYS.map(str::to_owned).into());
    }
}

#[test]
fn an_identity_that_lasts_for_a_session_is_one() {
    let session = |day: i64| {
        [
            format!("ASIAIOSFODNN7EX{day:05}"),
            format!("arn:aws:sts::123456789012:assumed-role/etl/botocore-session-17951{day:05}"),
        ]
    };
    let lines = (0..10)
        .flat_map(|day| session(day).map(|identity| line(START + day * DAY_MS, 5, &identity, "fact")))
        .collect();
    let expected = ["*", "arn:aws:sts::*:assumed-role/etl/botocore-session-*"];
    assert_eq!(
        names(&read(JobBy::Identity, &[lines])),
        expected.map(str::to_owned).into()
    );
}

#[test]
fn a_name_with_an_id_that_comes_back_on_several_days_stays() {
    let mut reader = Reader::default();
    let ids = ["01JD3ZQ8X5N2V7K4M9T6R1W8YB", "01JD3ZQ8X5N2V7K4M9T6R1W8YC"];
    for day in 0..10 {
        let lasting = ids.map(|id| format!("load {id}"));
        // A name of a single day does not recur, however often it runs on that day.
        let dated = format!(
            "report {}",
            &Moment::from_ms(START + day * DAY_MS).to_string()[..10]
        );
        for (hour, name) in [
            (2, &lasting[0]),
            (4, &lasting[1]),
            (6, &dated),
            (12, &dated),
            (18, &dated),
        ] {
            let run = Run {
                name: name.clone(),
                submitted: Moment::from_ms(START + day * DAY_MS + hour * HOUR_MS),
                ..Run::default()
            };
            reader.run("h", &run).expect("this is no large history");
        }
    }
    let names = names(&reader.finish().expect("this is no large history"));
    let lasting = ids.map(|id| format!("load {id}"));
    assert_eq!(
        names,
        lasting.into_iter().chain(["report *".to_owned()]).collect()
    );
}
