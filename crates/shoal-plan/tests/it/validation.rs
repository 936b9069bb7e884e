//! Requests that make no sense are refused in one sentence, with a hint.

use shoal_lab::netco::{SmallSolver, table1};
use shoal_plan::model::{Held, LinkChange, Objective, Promise, Request, RequestError};
use shoal_plan::plan;
use shoal_plan::plan::{Outcome, Reason};
use shoal_plan::show::explain;
use shoal_plan::show::explain::since_zero;

fn refusal(change: impl FnOnce(&mut Request)) -> String {
    let mut request = table1::request();
    change(&mut request);
    request.check().unwrap_err().to_string()
}

#[test]
fn absurd_requests_are_refused_with_a_hint() {
    let held = |file: &str, bytes| Held {
        file: file.to_owned(),
        bytes,
        pinned_until_s: None,
    };
    let unit = table1::UNIT_BYTES;
    let cases: [(String, &str); 24] = [
        (
            refusal(|r| r.version = 9),
            "the request has version 9, and this planner reads version 1",
        ),
        (
            refusal(|r| r.window.end_s = f64::NAN),
            "the window's end_s is NaN",
        ),
        (refusal(|r| r.window.slot_s = 0.0), "the window's slot_s is 0"),
        (
            refusal(|r| r.window.end_s = -1.0),
            "the window: end_s (-1 s) is not after start_s (0 s)",
        ),
        (
            refusal(|r| r.window.slot_s = 1e-6),
            "slots up to the last deadline: 6000000, and at most 2000",
        ),
        (
            refusal(|r| r.jobs[0].deadline_s = 1e300),
            "slots up to the last deadline: 1000000000000000000",
        ),
        (
            refusal(|r| r.link.bytes_per_second = -3.0),
            "the link's bytes_per_second is -3",
        ),
        (
            refusal(|r| r.link.bytes_per_second = f64::INFINITY),
            "the link's bytes_per_second is inf",
        ),
        (
            refusal(|r| {
                r.link.changes = vec![
                    LinkChange {
                        at_s: 2.0,
                        bytes_per_second: 1.0
                    };
                    2
                ]
            }),
            "the link's changes: the next (2 s) is not after a change (2 s)",
        ),
        (
            refusal(|r| {
                r.link.promised = vec![Promise {
                    start_s: 2.0,
                    end_s: 1.0,
                    bytes_per_second: 1.0,
                }]
            }),
            "a promise: end_s (1 s) is not after start_s (2 s)",
        ),
        (
            refusal(|r| r.cache.bytes_per_second = Some(0.0)),
            "the cache's bytes_per_second is 0",
        ),
        (
            refusal(|r| r.cache.held = vec![held("f9", 1)]),
            "the cache names the file f9, which is not among the files",
        ),
        (
            refusal(|r| r.cache.held = vec![held("f1", 2 * unit)]),
            "the cache holds 2147483648 bytes of f1, which has",
        ),
        (
            refusal(|r| r.cache.held = vec![held("f1", 1); 2]),
            "two held files are named f1",
        ),
        (
            refusal(|r| r.cache.held = ["f1", "f2", "f3"].map(|file| held(file, unit)).to_vec()),
            "the cache holds 3221225472 bytes and has room for 2147483648",
        ),
        (
            refusal(|r| r.files[1].name = "f1".to_owned()),
            "two files are named f1",
        ),
        (
            refusal(|r| r.files[1].name = String::new()),
            "file number 2 has no name",
        ),
        (refusal(|r| r.files[0].bytes = 0), "file f1 has no bytes"),
        (
            refusal(|r| r.jobs[0].deadline_s = 0.5),
            "job J1: its deadline (0.5 s) is not after its submission (1 s)",
        ),
        (
            refusal(|r| r.jobs[0].submit_s = -1.0),
            "job J1 is submitted at -1 s, outside the window of 0 to 6 s",
        ),
        (refusal(|r| r.jobs[0].inputs.clear()), "job J1 reads nothing"),
        (
            refusal(|r| r.jobs[0].inputs[0] = "F1".to_owned()),
            "job J1 names the file F1, which is not among the files",
        ),
        (
            refusal(|r| r.jobs[2].inputs[0] = "f3".to_owned()),
            "job J3 names the file f3 twice",
        ),
        (
            refusal(|r| r.jobs[1].name = "J1".to_owned()),
            "two jobs are named J1",
        ),
    ];
    for (told, expected) in cases {
        assert!(told.starts_with(expected), "{told}\nexpected: {expected}");
        assert!(told.contains("\nhint: "), "{told}");
    }
}

#[test]
fn a_request_with_an_unknown_key_or_a_missing_one_is_refused() {
    let json = serde_json::to_string(&table1::request()).unwrap();
    let read = |json: &str| serde_json::from_str::<Request>(json).map_err(|error| error.to_string());
    assert_eq!(read(&json).unwrap(), table1::request());
    assert!(
        read(&json.replace("\"jobs\"", "\"job\""))
            .unwrap_err()
            .contains("unknown field `job`")
    );
    assert!(read(&json.replace("\"slot_s\":0.5", "\"slot\":0.5")).is_err());
}

#[test]
fn a_job_that_is_too_slow_or_too_large_is_left_out_and_told_why() {
    let mut request = table1::request();
    request.jobs[0].bytes_per_second_max = Some(0.9 * table1::UNIT_BYTES as f64);
    request.files[2].bytes = 9 * table1::UNIT_BYTES;
    request.jobs[2].bytes_per_second_max = None;
    request.jobs[4].bytes_per_second_max = None;
    request.cache.bytes_per_second = None;
    let plan = plan(&request, &SmallSolver).unwrap();
    let why = |job: usize| match &plan.jobs[job].outcome {
        Outcome::BestEffort(reason) => reason.clone(),
        Outcome::Planned => panic!("job {job} is planned"),
    };
    assert!(matches!(why(0), Reason::TooSlow { .. }));
    assert!(matches!(why(2), Reason::TooLarge { .. }));
    assert!(matches!(why(4), Reason::TooLarge { .. }));
    let told = explain::explain(&request, &plan, "J1", &since_zero).unwrap();
    assert!(
        told.contains("its rate is too low: reading takes 1 s, and it has 1 s\n  hint: "),
        "{told}"
    );
    let told = explain::explain(&request, &plan, "J5", &since_zero).unwrap();
    assert!(
        told.contains("even alone, link and cache bring 2.50 GiB of its 9.00 GiB in time"),
        "{told}"
    );
    assert_eq!(explain::explain(&request, &plan, "J9", &since_zero), None);
    assert_eq!(request.check(), Ok::<(), RequestError>(()));
}

#[test]
fn a_planned_job_is_told_what_is_fetched_when_and_what_was_there() {
    let mut request = table1::request();
    request.cache.held = vec![Held {
        file: "f1".to_owned(),
        bytes: table1::UNIT_BYTES / 2,
        pinned_until_s: None,
    }];
    let plan = plan(&request, &SmallSolver).unwrap();
    let told = |job| explain::explain(&request, &plan, job, &|s| format!("<{s}>")).unwrap();
    let first = told("J1");
    for part in [
        "J1: planned, meets its deadline\n  it is submitted at <1> and reads 1.00 GiB of 1 input\n",
        "  its deadline is <2>, 0:00:01 later (its slack)\n  over an idle link, reading takes 0:00:01\n",
        "\n  f1 (1.00 GiB)\n    512 MiB are in the cache already\n",
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    let fifth = told("J5");
    assert!(
        fifth.contains(" are fetched from <") && fifth.contains("MiB/s\n"),
        "{fifth}"
    );
    assert!(fifth.contains("    what is cached is pinned until <"), "{fifth}");
}

#[test]
fn requests_at_the_edge_of_sense_have_a_plan() {
    let changes: [fn(&mut Request); 6] = [
        |r| r.jobs.clear(),
        |r| {
            r.jobs.clear();
            r.files.clear();
        },
        // The link is closed all the time.
        |r| {
            r.link.changes = vec![LinkChange {
                at_s: -1.0,
                bytes_per_second: 0.0,
            }]
        },
        // A job that is shorter than a slot, and one that comes at the very end.
        |r| {
            r.files[0].bytes = 1;
            r.jobs[0].deadline_s = r.jobs[0].submit_s + 1e-7;
            r.jobs[5].submit_s = 6.0 - 1e-8;
            r.jobs[5].deadline_s = 6.0 - 1e-9;
        },
        |r| {
            r.cache.held = vec![Held {
                file: "f1".to_owned(),
                bytes: 7,
                pinned_until_s: Some(1e300),
            }]
        },
        |r| r.cache.capacity_bytes = 0,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        for objective in [Objective::LeastPeak, Objective::MostDeadlines] {
            let mut request = table1::request();
            request.options.objective = objective;
            change(&mut request);
            let plan = plan(&request, &SmallSolver)
                .unwrap_or_else(|error| panic!("{number}, {objective:?}: {error}"));
            // The last digit of a number may change on its way through JSON; no number may be lost.
            let json = serde_json::to_string(&plan).unwrap();
            let read: shoal_plan::Plan = serde_json::from_str(&json).unwrap();
            assert_eq!(
                (read.jobs.len(), read.quality.planned),
                (plan.jobs.len(), plan.quality.planned),
                "{number}"
            );
        }
    }
}
