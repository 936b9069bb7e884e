//! Events as engines really sent them; `events/README.md` and `events/AIRFLOW.md` say how they were recorded.

#![allow(clippy::unwrap_used, reason = "a test stops where it cannot go on")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use shoal_hints::{Event, JobRecord, Jobs, Phase, RunEvent, wanted};

fn events(file: &str) -> Vec<RunEvent> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/events")
        .join(file);
    let text = fs::read_to_string(path).unwrap();
    let events = text
        .lines()
        .filter_map(|line| match Event::parse(line.as_bytes(), &[]).unwrap() {
            Event::Run(event) => Some(*event),
            Event::Other => None,
        });
    events.collect()
}

/// Returns what the runs of these events leave in the memory of jobs.
fn remembered(events: &[RunEvent]) -> Jobs {
    let ends = events.iter().filter(|event| event.phase == Phase::Complete);
    let records = ends.map(|end| {
        let start = events.iter().find(|event| event.run == end.run);
        let record = JobRecord::of(start, end);
        (record.job.clone(), Arc::new(record))
    });
    records.collect()
}

/// Returns the readers that an event announces, each with its stage and its inputs.
fn announced(event: &RunEvent, jobs: &Jobs) -> Vec<(String, u8, Vec<String>)> {
    let wanted = wanted(event, jobs).into_iter();
    wanted
        .map(|wanted| (wanted.reader.name, wanted.stage, wanted.inputs))
        .collect()
}

fn row(reader: &str, stage: u8, inputs: &[&str]) -> (String, u8, Vec<String>) {
    let inputs = inputs.iter().map(|input| (*input).to_owned()).collect();
    (reader.to_owned(), stage, inputs)
}

#[test]
fn a_dag_of_airflow_announces_the_inputs_of_its_tasks() {
    for file in ["airflow-daily-report.jsonl", "airflow-tasktree.jsonl"] {
        let events = events(file);
        let jobs = remembered(&events);
        assert_eq!(
            announced(&events[0], &jobs),
            [
                row("daily_report.extract", 1, &["s3://data/sales"]),
                row("daily_report.join", 2, &["s3://data/ref"]),
                row("daily_report.report", 3, &["s3://data/events"]),
            ],
            "{file}"
        );
        let extract = events
            .iter()
            .find(|event| event.job.name == "daily_report.extract")
            .unwrap();
        assert_eq!(extract.parents, [events[0].run.clone()], "{file}");
        assert_eq!(
            announced(extract, &BTreeMap::new()),
            [row("daily_report.extract", 0, &["s3://data/sales"])]
        );
    }
}

#[test]
fn a_run_that_another_one_depends_on_is_announced_by_the_client_of_python() {
    let events = events("python-client.jsonl");
    assert!(events.iter().any(|event| {
        let next: Vec<_> = event.edges.iter().map(|(_, next)| &*next.name).collect();
        next == ["nightly.export", "nightly.train"]
    }));
    assert_eq!(
        events.len(),
        4,
        "an event about a job or a dataset alone is of no run"
    );
}

#[test]
fn the_first_query_of_an_application_of_spark_announces_what_the_second_one_reads() {
    let events = events("spark-two-stages.jsonl");
    let jobs = remembered(&events);
    let joins = events
        .iter()
        .find(|event| event.outputs == ["s3://data/tmp/joined"])
        .unwrap();
    assert_eq!(
        announced(joins, &jobs),
        [
            row(
                "nightly_report.adaptive_spark_plan.tmp_joined",
                0,
                &["s3://data/sales", "s3://data/ref/regions.csv"]
            ),
            row(
                "nightly_report.adaptive_spark_plan.out_report",
                1,
                &["s3://data/events"]
            ),
        ]
    );
    // The next run of the application begins with what this one read first.
    let first = announced(&events[0], &jobs);
    let paths: Vec<&str> = first
        .iter()
        .flat_map(|(_, _, paths)| paths)
        .map(String::as_str)
        .collect();
    for path in ["s3://data/sales", "s3://data/ref/regions.csv", "s3://data/events"] {
        assert!(paths.contains(&path), "{first:#?}");
    }
    assert!(!paths.contains(&"s3://data/tmp/joined"), "{first:#?}");
}

#[test]
fn every_event_that_was_recorded_is_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/events");
    for entry in fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if Path::new(&name)
            .extension()
            .is_some_and(|ending| ending == "jsonl")
        {
            assert!(!events(&name).is_empty(), "{name}");
        }
    }
}
