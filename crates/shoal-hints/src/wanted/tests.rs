//! Stories of jobs that follow each other.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof, proptest};

use super::{READERS_MAX, STAGES_MAX, Wanted, wanted};
use crate::event::{Phase, RunEvent};
use crate::facet::{Life, Stage};
use crate::job::{Input, JobName, JobRecord, Jobs, ParentRun};

fn name(name: &str) -> JobName {
    JobName {
        namespace: "n".into(),
        name: name.into(),
    }
}

fn paths(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("s3://b/{name}")).collect()
}

fn inputs(names: &[&str]) -> Vec<Input> {
    let input = |path| Input { path, bytes: None };
    paths(names).into_iter().map(input).collect()
}

/// Returns the record of a job that ran from one time to another, in milliseconds.
fn ran(job: &str, ms: Range<u64>, reads: &[&str], writes: &[&str]) -> JobRecord {
    JobRecord {
        job: name(job),
        started_ms: ms.start,
        ended_ms: ms.end,
        inputs: inputs(reads),
        outputs: paths(writes),
        parent: None,
        next: Vec::new(),
    }
}

fn jobs(records: Vec<JobRecord>) -> Jobs {
    records
        .into_iter()
        .map(|record| (record.job.clone(), Arc::new(record)))
        .collect()
}

fn start(job: &str, reads: &[&str], writes: &[&str]) -> RunEvent {
    RunEvent {
        phase: Phase::Start,
        at_ms: 1_000,
        run: String::new(),
        job: name(job),
        parents: Vec::new(),
        parent_job: None,
        nominal_ms: None,
        inputs: inputs(reads),
        outputs: paths(writes),
        edges: Vec::new(),
        parts: Vec::new(),
        deadline_ms: None,
        priority: 0,
        expected_bytes: None,
        short_lived: Vec::new(),
        submit_ms: None,
        stages: Vec::new(),
    }
}

fn shown(wanted: &[Wanted]) -> Vec<(&str, u8, Vec<&str>)> {
    let shown = wanted.iter().map(|wanted| {
        let inputs = wanted.inputs.iter().map(|path| &path["s3://b/".len()..]);
        (&*wanted.reader.name, wanted.stage, inputs.collect())
    });
    shown.collect()
}

#[test]
fn the_inputs_of_jobs_that_read_what_a_run_writes_come_after_its_own() {
    let jobs = jobs(vec![
        ran("extract", 10..20, &["raw"], &["tmp"]),
        ran("join", 20..30, &["tmp", "regions"], &["joined"]),
        ran("report", 30..40, &["joined", "events", "regions"], &["out"]),
        ran("other", 20..30, &["raw"], &["elsewhere"]),
    ]);
    let wanted = wanted(&start("extract", &["raw"], &[]), &jobs);
    assert_eq!(
        shown(&wanted),
        [
            ("extract", 0, vec!["raw"]),
            ("join", 1, vec!["regions"]),
            ("report", 2, vec!["events"]),
        ],
        "what is written on the way is not there yet, and no input is wanted twice"
    );
}

#[test]
fn a_reader_that_did_not_run_after_the_last_run_is_not_due() {
    let jobs = jobs(vec![
        ran("hourly", 100..110, &["raw"], &["tmp"]),
        ran("weekly", 50..60, &["tmp", "big"], &["out"]),
    ]);
    let wanted = wanted(&start("hourly", &["raw"], &["tmp"]), &jobs);
    assert_eq!(shown(&wanted), [("hourly", 0, vec!["raw"])]);
}

#[test]
fn a_job_that_the_scheduler_announces_is_due_whatever_it_reads() {
    let mut jobs = jobs(vec![
        ran("first", 10..20, &["a"], &[]),
        ran("second", 1..2, &["b"], &[]),
        ran("third", 1..2, &["c"], &[]),
    ]);
    Arc::make_mut(jobs.get_mut(&name("second")).unwrap()).next = vec![name("third"), name("never ran")];
    let mut event = start("first", &["a"], &[]);
    event.edges = vec![(name("first"), name("second")), (name("other"), name("third"))];
    let wanted = wanted(&event, &jobs);
    assert_eq!(
        shown(&wanted),
        [
            ("first", 0, vec!["a"]),
            ("second", 1, vec!["b"]),
            ("third", 2, vec!["c"])
        ]
    );
}

#[test]
fn the_tasks_of_a_dag_come_in_its_order_whether_or_not_all_of_them_ran_before() {
    let jobs = jobs(vec![
        ran("dag.load", 1..2, &["a"], &["tmp"]),
        ran("dag.report", 1..2, &["tmp", "b"], &[]),
    ]);
    let mut event = start("dag", &[], &[]);
    event.parts = vec![name("dag.load")];
    event.edges = vec![
        (name("dag.load"), name("dag.check")),
        (name("dag.check"), name("dag.report")),
    ];
    let wanted = wanted(&event, &jobs);
    assert_eq!(
        shown(&wanted),
        [("dag.load", 1, vec!["a"]), ("dag.report", 3, vec!["b"])]
    );
}

#[test]
fn the_parts_of_the_last_run_are_expected_when_the_whole_begins() {
    let part = |job: &str, run: &str, ms, reads: &[&str], writes: &[&str]| {
        let mut record = ran(job, ms, reads, writes);
        let (job, run) = (name("app"), run.to_owned());
        record.parent = Some(ParentRun { job, run });
        record
    };
    let jobs = jobs(vec![
        part("app.read", "2", 10..20, &["raw"], &["tmp"]),
        part("app.write", "2", 20..30, &["tmp", "events"], &["out"]),
        part("app.gone", "1", 5..6, &["old"], &[]),
        ran("publish", 40..50, &["out", "assets"], &[]),
    ]);
    let wanted = wanted(&start("app", &[], &[]), &jobs);
    assert_eq!(
        shown(&wanted),
        [
            ("app.read", 1, vec!["raw"]),
            ("app.write", 2, vec!["events"]),
            ("publish", 3, vec!["assets"]),
        ]
    );
    assert!(
        wanted.iter().all(|wanted| !wanted.is_behind),
        "they are parts, or follow from them"
    );
}

#[test]
fn stages_of_one_run_come_in_the_order_in_which_they_read_each_other() {
    let stage = |name: &str, reads: &[&str], writes: &[&str]| Stage {
        name: name.into(),
        reads: paths(reads),
        writes: paths(writes),
        ..Stage::default()
    };
    let mut event = start("dag", &[], &[]);
    event.stages = vec![
        stage("report", &["joined", "events"], &["out"]),
        stage("extract", &["raw"], &["tmp"]),
        stage("join", &["tmp", "regions"], &["joined"]),
    ];
    let wanted = wanted(&event, &BTreeMap::new());
    assert_eq!(
        shown(&wanted),
        [
            ("dag/extract", 0, vec!["raw"]),
            ("dag/join", 1, vec!["regions"]),
            ("dag/report", 2, vec!["events"]),
        ]
    );
    event.stages = vec![stage("a", &["x", "k"], &["y"]), stage("b", &["y", "l"], &["x"])];
    let circle = super::wanted(&event, &BTreeMap::new());
    assert_eq!(circle.len(), 2, "a circle is no reason to go round for ever");
}

/// Returns the readers for which anything is held: what they await, and what is short-lived by the word of
/// the run.
fn held(wanted: &[Wanted]) -> Vec<(&str, Vec<&str>, Vec<&str>)> {
    fn names(paths: &[String]) -> Vec<&str> {
        paths.iter().map(|path| &path["s3://b/".len()..]).collect()
    }
    let held = wanted.iter().map(|wanted| {
        (
            &*wanted.reader.name,
            names(&wanted.awaited),
            names(&wanted.short_lived),
        )
    });
    held.filter(|(_, awaited, short_lived)| !awaited.is_empty() || !short_lived.is_empty())
        .collect()
}

#[test]
fn stages_await_what_other_stages_write_and_no_other_job_reads() {
    let stage = |name: &str, reads: &[&str], writes: &[&str], life| Stage {
        name: name.into(),
        reads: paths(reads),
        writes: paths(writes),
        life,
        ..Stage::default()
    };
    let mut event = start("dag", &[], &[]);
    event.priority = 3;
    event.stages = vec![
        stage("a", &["raw"], &["own", "shared", "unread"], None),
        stage("b", &["own", "shared", "marked"], &["out"], None),
        stage("c", &[], &["marked", "scratch"], Some(Life::Run)),
    ];
    event.stages[1].priority = Some(7);
    event.stages[1].bytes = Some(5);
    let jobs = jobs(vec![ran("elsewhere", 1..2, &["shared"], &[])]);
    let wanted = wanted(&event, &jobs);
    assert_eq!(
        held(&wanted),
        [
            ("dag/c", vec![], vec!["marked", "scratch"]),
            ("dag/b", vec!["own"], vec![]),
        ],
        "what is marked needs no guess"
    );
    let facts = |wanted: &Wanted| (wanted.reader.name.clone(), wanted.priority, wanted.bytes);
    let facts: Vec<_> = wanted.iter().map(facts).collect();
    let named = |name: &str, priority, bytes| (name.to_owned(), priority, bytes);
    assert_eq!(
        facts,
        [
            named("dag/a", 3, None),
            named("dag/c", 3, None),
            named("dag/b", 7, Some(5))
        ]
    );
}

#[test]
fn jobs_await_what_is_written_on_the_way_only_if_all_of_its_readers_are_announced() {
    let mut all = vec![
        ran("first", 10..20, &["raw"], &["one", "shared"]),
        ran("second", 20..30, &["one", "shared"], &["two"]),
        ran("third", 30..40, &["two", "one"], &["three"]),
        ran("other", 30..40, &["shared"], &[]),
    ];
    let mut event = start("first", &["raw"], &[]);
    assert_eq!(held(&wanted(&event, &jobs(all.clone()))), [], "none is announced");
    event.edges = vec![(name("first"), name("second")), (name("second"), name("third"))];
    assert_eq!(
        held(&wanted(&event, &jobs(all.clone()))),
        [
            ("second", vec!["one"], vec![]),
            ("third", vec!["one", "two"], vec![]),
        ]
    );
    // The run says so of an output. A job that has not run yet may read it.
    event.outputs = paths(&["one", "new"]);
    event.short_lived = paths(&["new"]);
    event.edges.push((name("first"), name("unknown")));
    all.push(ran("fourth", 1..2, &["new"], &[]));
    event.edges.push((name("third"), name("fourth")));
    assert_eq!(
        held(&wanted(&event, &jobs(all))),
        [
            ("first", vec![], vec!["new"]),
            ("second", vec!["one"], vec![]),
            ("third", vec!["one", "two"], vec![]),
            ("unknown", vec![], vec!["new"]),
            ("fourth", vec![], vec!["new"]),
        ]
    );
}

#[test]
fn many_jobs_that_are_announced_and_have_not_run_are_few_readers() {
    let mut event = start("first", &[], &["tmp"]);
    event.short_lived = paths(&["tmp"]);
    event.edges = (0..9_999)
        .map(|number| (name("first"), name(&number.to_string())))
        .collect();
    assert_eq!(wanted(&event, &BTreeMap::new()).len(), READERS_MAX + 1);
}

fn record() -> impl Strategy<Value = JobRecord> {
    let place = || prop_oneof![Just("a"), Just("b"), Just("c"), Just("d"), Just("e")];
    (
        0..9_u8,
        0..5_u64,
        0..5_u64,
        vec(place(), 0..4),
        vec(place(), 0..3),
        any::<bool>(),
    )
        .prop_map(|(job, started, length, reads, writes, has_next)| {
            let mut record = ran(&job.to_string(), started..started + length, &reads, &writes);
            record.next = has_next
                .then(|| name(&((job + 1) % 9).to_string()))
                .into_iter()
                .collect();
            record
        })
}

proptest! {
    #[test]
    fn whatever_jobs_did_each_input_is_wanted_once_and_soon(records in vec(record(), 0..9)) {
        let event = start("0", &["a", "b"], &["c"]);
        let wanted = wanted(&event, &jobs(records));
        let all: Vec<&String> = wanted.iter().flat_map(|wanted| &wanted.inputs).collect();
        let once: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(once.len(), all.len());
        assert!(wanted.iter().all(|wanted| wanted.stage <= STAGES_MAX && !wanted.inputs.is_empty()));
        assert!(wanted.is_sorted_by_key(|wanted| wanted.stage) && wanted.len() <= READERS_MAX + 1);
        assert!(wanted.iter().all(|wanted| wanted.is_behind == (wanted.stage > 0)));
        let behind = wanted.iter().filter(|wanted| wanted.stage > 0);
        assert!(behind.flat_map(|wanted| &wanted.inputs).all(|path| !event.outputs.contains(path)));
    }
}
