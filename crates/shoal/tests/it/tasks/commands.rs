//! Stories about tasks as operators and scripts give and follow them, by the binary.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use serde_json::Value;

use super::put_objects;
use crate::commands::shoal;
use crate::lake::{ACCESS_KEY, Request};
use crate::node::Node;
use crate::verbs::{err, out, run, run_with};

fn gets(request: &Request) -> bool {
    request.is_get() && request.is_of_object()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prefetch_that_is_waited_for_tells_its_progress_in_plain_lines() {
    let node = Node::start_immutable().await;
    put_objects(&node, (0..3).map(|number| format!("p/{number}")));
    let done = run(&node, &["prefetch", "s3://b/p/", "--as", ACCESS_KEY, "--wait"]).await;
    assert_eq!(done.status.code(), Some(0), "{}", err(&done));
    assert!(
        out(&done).contains(" prefetch s3://b/p/: done\n  objects: 3 of 3 done\n"),
        "{}",
        out(&done)
    );
    assert!(err(&done).starts_with("prefetch: "), "{}", err(&done));
    assert!(!err(&done).contains('\x1b'), "no terminal is there");
    assert_eq!(node.lake.count(gets), 6);

    let tasks = run(&node, &["tasks"]).await;
    assert!(
        out(&tasks).contains("prefetch  done   100%"),
        "{}{}",
        out(&tasks),
        err(&tasks)
    );
    let json = run(&node, &["tasks", "--json", "--state", "done", "--limit", "1"]).await;
    let listed: Value = serde_json::from_slice(&json.stdout).unwrap();
    let id = listed["tasks"][0]["id"].as_str().unwrap();
    let shown = run(&node, &["task", id]).await;
    assert!(out(&shown).starts_with(id), "{}", out(&shown));
    let cancelled = run(&node, &["task", id, "--cancel"]).await;
    assert_eq!(cancelled.status.code(), Some(1), "it is over");
    assert!(
        err(&cancelled).contains("hint: `shoal task ID` shows how it ended"),
        "{}",
        err(&cancelled)
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_does_not_wait_prints_the_id_for_later() {
    let node = Node::start_immutable().await;
    put_objects(&node, ["p/a".into()]);
    let gate = node.lake.hold(gets);
    let begun = run(&node, &["prefetch", "s3://b/p/", "--as", ACCESS_KEY]).await;
    let id = out(&begun).trim();
    assert!(begun.status.success() && id.len() == 26, "{id} {}", err(&begun));
    super::until(&node, id, |task| task["state"] == "running").await;
    let status = run(&node, &["status"]).await;
    let line = format!("task {id} of s3://b/p/: prefetch: ");
    assert!(out(&status).contains(&line), "{}", out(&status));
    let ended = run(&node, &["task", id, "--cancel"]).await;
    assert!(out(&ended).contains(": cancelled\n"), "{}", out(&ended));
    gate.open();
    let waited = run(&node, &["task", id, "--wait"]).await;
    assert_eq!(waited.status.code(), Some(1), "it was not carried out");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_is_interrupted_names_the_task() {
    let node = Node::start_immutable().await;
    put_objects(&node, ["p/a".into()]);
    let gate = node.lake.hold(gets);
    let mut command = shoal(&["prefetch", "s3://b/p/", "--as", ACCESS_KEY, "--wait"]);
    command.env("SHOAL_ADMIN_URL", format!("http://{}", node.admin_address()));
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let pid = rustix::process::Pid::from_child(&child);
    let waiting = tokio::task::spawn_blocking(move || {
        // The first line shows that the command waits.
        let mut child = child;
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut text = String::new();
        said.read_line(&mut text).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        said.read_to_string(&mut text).unwrap();
        (child.wait().unwrap().code(), text)
    });
    let (code, text) = waiting.await.unwrap();
    let tasks: Value = serde_json::from_slice(&node.admin("/tasks").await.body).unwrap();
    let id = tasks["tasks"][0]["id"].as_str().unwrap();
    assert_eq!(code, Some(130), "{text}");
    assert!(text.contains(&format!("the task {id} goes on")), "{text}");
    gate.open();
    super::until(&node, id, super::is_over).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_task_has_a_total_before_its_first_object_is_there() {
    let node = Node::start_immutable().await;
    let bytes = put_objects(&node, (0..3).map(|number| format!("p/{number}")));
    let gate = node.lake.hold(gets);
    let id = super::begin(&node, &super::order("prefetch", "s3://b/p/")).await;
    let task = super::until(&node, &id, |task| !task["objects"]["total"].is_null()).await;
    assert_eq!(task["state"], "running");
    assert_eq!(
        (
            &task["objects"]["total"],
            &task["bytes"]["total"],
            &task["objects"]["done"]
        ),
        (&3.into(), &bytes.into(), &0.into()),
        "{task:#}"
    );
    gate.open();
    super::until(&node, &id, super::is_over).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_says_that_nothing_is_cached_and_a_dry_run_that_it_is_one() {
    let node = Node::start_immutable().await;
    put_objects(&node, ["p/a".into()]);
    let counted = run(&node, &["cached", "s3://b/p/", "--as", ACCESS_KEY]).await;
    let text = out(&counted);
    assert!(
        text.contains("objects: 1 of 1 counted, 0 wholly cached\n"),
        "{text}"
    );
    assert!(text.contains(", 0 B cached\n"), "{text}");
    let dry = run(&node, &["prefetch", "s3://b/p/", "--as", ACCESS_KEY, "--dry-run"]).await;
    assert!(
        out(&dry).contains(" prefetch (dry run) s3://b/p/: done\n"),
        "{}",
        out(&dry)
    );
    assert!(
        out(&dry).contains("1 of 1 counted, 0 wholly cached"),
        "{}",
        out(&dry)
    );
    let tasks = run(&node, &["tasks"]).await;
    assert!(
        out(&tasks).contains("prefetch (dry run)  done"),
        "{}",
        out(&tasks)
    );
    let held = ["cached", "s3://b/p/", "--held", "--as", ACCESS_KEY];
    let line = |bytes: u64| format!("{{\"bytes\":{bytes},\"path\":\"s3://b/p/\"}}\n");
    assert_eq!(out(&run(&node, &held).await), line(0));
    let read = node.client().get("/b/p/a").send().await;
    node.settle().await;
    assert_eq!(out(&run(&node, &held).await), line(read.body.len() as u64));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_reach_a_terminal_without_what_it_would_obey() {
    let node = Node::start_immutable().await;
    let key = "p/\u{9b}31m\u{202e}gnp.exe";
    let list = format!("s3://b/{key}\n");
    let verb = ["prefetch", "--manifest", "-", "--as", ACCESS_KEY, "--wait"];
    let lost = run_with(&node, &verb, &list).await;
    let evil = |text: &str| text.contains(['\u{9b}', '\u{202e}', '\x1b']);
    assert!(
        out(&lost).contains("9b") && !evil(out(&lost)) && !evil(err(&lost)),
        "{}",
        out(&lost)
    );
    let json = run_with(&node, &[&verb[..], &["--json"]].concat(), &list).await;
    assert!(!evil(out(&json)));
    let task: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(task["state"], "failed", "{task:#}");
    for uri in ["s3://../x", "s3://./x"] {
        let refused = run(&node, &["evict", uri, "--as", ACCESS_KEY]).await;
        assert_eq!(refused.status.code(), Some(2));
        assert!(err(&refused).contains("no names of buckets"), "{}", err(&refused));
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_comes_from_stdin_and_a_failure_is_an_exit_code() {
    let node = Node::start_immutable().await;
    put_objects(&node, ["a".into(), "b".into()]);
    let verb = |kind| [kind, "--manifest", "-", "--as", ACCESS_KEY, "--wait", "--json"];
    let done = run_with(&node, &verb("prefetch"), "s3://b/a\ns3://b/b\n").await;
    let task: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert!(
        done.status.success() && task["objects"]["done"] == 2,
        "{}",
        err(&done)
    );
    let lost = run_with(&node, &verb("prefetch"), "s3://b/a\ns3://b/lost\n").await;
    let task: Value = serde_json::from_slice(&lost.stdout).unwrap();
    assert_eq!(lost.status.code(), Some(1), "{task:#}");
    assert_eq!(task["errors"][0]["object"], "s3://b/lost", "{task:#}");
    let bad = run_with(&node, &verb("cached"), "b/a\n").await;
    assert_eq!((bad.status.code(), out(&bad)), (Some(2), ""));
    assert!(
        err(&bad).contains("line 1") && err(&bad).contains("hint: "),
        "{}",
        err(&bad)
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pin_is_shown_with_its_end_and_counted_everywhere() {
    let node = Node::start_immutable().await;
    put_objects(&node, ["p/a".into()]);
    let pin = [
        "pin",
        "s3://b/p/",
        "--until",
        "2031-05-06",
        "--as",
        ACCESS_KEY,
        "--wait",
    ];
    let refused = run(&node, &pin).await;
    assert!(err(&refused).contains("400 days"), "{}", err(&refused));
    let pin = [
        "pin",
        "s3://b/p/",
        "--for",
        "3d",
        "--as",
        ACCESS_KEY,
        "--wait",
        "--json",
    ];
    let pinned = run(&node, &pin).await;
    let task: Value = serde_json::from_slice(&pinned.stdout).unwrap();
    let (id, until) = (task["id"].as_str().unwrap(), task["until"].as_str().unwrap());
    let explained = run(&node, &["explain", "s3://b/p/a"]).await;
    let line = format!("pinned until {until} by task {id}\n");
    assert!(
        out(&explained).contains(&line) && out(&explained).contains(", pinned"),
        "{}",
        out(&explained)
    );
    let status = run(&node, &["status"]).await;
    assert!(out(&status).contains(": pinned 1 object, "), "{}", out(&status));
    let metrics = node.admin("/metrics").await;
    for line in [
        "shoal_pinned_objects 1\n",
        "shoal_tasks{state=\"done\"} 1\n",
        "shoal_tasks_ended_total{kind=\"pin\",state=\"done\"} 1\n",
        "shoal_task_objects_total{kind=\"pin\",outcome=\"done\"} 1\n",
    ] {
        assert!(metrics.text().contains(line), "{line} in {}", metrics.text());
    }
    let evict = ["evict", "s3://b/p/", "--as", ACCESS_KEY, "--wait"];
    let kept = run(&node, &evict).await;
    assert!(out(&kept).contains("pinned"), "{}", out(&kept));
    let unpinned = run(&node, &["unpin", "s3://b/p/", "--as", ACCESS_KEY, "--wait"]).await;
    assert!(unpinned.status.success(), "{}", err(&unpinned));
    let evicted = run(&node, &evict).await;
    assert!(out(&evicted).contains(" removed\n"), "{}", out(&evicted));
    let page = node.admin("/explain?object=s3://b/p/a").await;
    let page: Value = serde_json::from_slice(&page.body).unwrap();
    assert_eq!(page["blocks"][0]["reason"], "ordered", "{page:#}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn orders_that_cannot_be_given_end_with_a_hint_and_print_no_id() {
    let node = Node::start().await;
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "\n").unwrap();
    let (empty, absent) = (empty.to_str().unwrap(), "/nonexistent/list");
    for (arguments, code, told) in [
        (&["prefetch", "b/key"][..], 2, "uri: "),
        (&["prefetch", "s3://b/[", "--as", ACCESS_KEY], 2, "a [ has no ]"),
        (&["evict", "s3://b/", "--as", "nobody"], 2, "no [[identity]]"),
        (
            &["prefetch", "s3://b/", "--as", ACCESS_KEY, "--to", "nowhere"],
            2,
            "nowhere",
        ),
        (&["cached", "--manifest", absent, "--as", ACCESS_KEY], 1, absent),
        (
            &["prefetch", "--manifest", "-", "--as", ACCESS_KEY],
            2,
            "names no object",
        ),
        (&["tasks", "--token-file", empty], 1, "it holds no token"),
        (&["tasks", "--node", "http://127.0.0.1:1"], 1, "cannot be reached"),
        (
            &["task", "01ARZ3NDEKTSV4RRFFQ69G5FAV"],
            1,
            "hint: `shoal tasks` lists them",
        ),
        (&["task", "../status"], 2, "is not the id of a task"),
        (&["pin", "s3://b/"], 2, "--until"),
        (&["unpin"], 2, "s3://BUCKET/PREFIX"),
        (&["prefetch", "s3://b/", "--rate", "fast"], 2, "such as 100MiB"),
        (
            &["prefetch", "s3://b/", "--deadline", "friday"],
            2,
            "2026-11-27T18:00:00Z",
        ),
        (
            &["prefetch", "s3://b/", "--manifest", "-"],
            2,
            "cannot be used with",
        ),
        (&["tasks", "--client-cert", "operator.pem"], 2, "--client-key"),
        (&["tasks", "--limit", "0"], 2, "1..=1000"),
    ] {
        let refused = run(&node, arguments).await;
        let said = err(&refused);
        assert_eq!(
            (refused.status.code(), out(&refused)),
            (Some(code), ""),
            "{arguments:?}: {said}"
        );
        assert!(said.contains(told), "{arguments:?}: {said}");
        // The parser of arguments has words of its own for where to look.
        let helps = said.contains("hint: ") || said.contains("--help") || said.contains("write ");
        assert!(helps, "{arguments:?}: {said}");
    }
    let tasks: Value = serde_json::from_slice(&node.admin("/tasks").await.body).unwrap();
    assert_eq!(tasks["tasks"], serde_json::json!([]), "no order was taken");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_that_is_cut_says_so() {
    let node = Node::start().await;
    for key in ["a", "b"] {
        super::carry_out(&node, &super::order("cached", &format!("s3://b/{key}"))).await;
    }
    let cut = run(&node, &["tasks", "--limit", "1"]).await;
    assert_eq!(out(&cut).lines().count(), 2, "{}", out(&cut));
    assert!(err(&cut).contains("there are older tasks"), "{}", err(&cut));
    let whole = run(&node, &["tasks", "--limit", "2"]).await;
    assert_eq!((out(&whole).lines().count(), err(&whole)), (3, ""));
    let none = run(&node, &["tasks", "--state", "failed"]).await;
    assert_eq!((none.status.code(), out(&none).lines().count()), (Some(0), 1));
    node.stop().await;
}
