//! The program as its callers run it: a request on stdin, a plan on stdout, an exit code.
#![allow(clippy::unwrap_used, reason = "a test stops where it cannot go on")]

use std::io::Write;
use std::process::{Command, Output, Stdio};

use shoal_lab::netco::table1;
use shoal_plan::{Plan, Request};

fn planned(request: &str, arguments: &[&str]) -> Output {
    let mut child = Command::new(env!("CARGO_BIN_EXE_shoal-planner"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(request.as_bytes()).unwrap();
    child.wait_with_output().unwrap()
}

fn json(change: impl FnOnce(&mut Request)) -> String {
    let mut request = table1::request();
    change(&mut request);
    serde_json::to_string(&request).unwrap()
}

#[test]
fn a_request_becomes_a_plan() {
    let output = planned(&json(|_| ()), &["--time-limit", "30", "--threads", "2"]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let plan: Plan = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan.quality.planned, 6);
    assert!(output.stderr.is_empty());
    // The same request gives the same plan.
    assert_eq!(planned(&json(|_| ()), &[]).stdout, output.stdout);
}

#[test]
fn a_request_that_makes_no_sense_is_refused_with_a_hint_and_exit_code_2() {
    let absurd = json(|request| request.jobs[0].deadline_s = 0.0);
    for (request, told) in [
        ("", "error: the request is not one: EOF while parsing"),
        (
            "{\"version\": 1}",
            "error: the request is not one: missing field `window`",
        ),
        (
            absurd.as_str(),
            "error: job J1: its deadline (0 s) is not after its submission (1 s)",
        ),
    ] {
        let output = planned(request, &[]);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.starts_with(told) && text.contains("\nhint: "), "{text}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_deadline_that_no_request_keeps_is_no_failure() {
    let output = planned(&json(|request| request.link.bytes_per_second = 1.0), &[]);
    let plan: Plan = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(plan.quality.planned, 0);
}
