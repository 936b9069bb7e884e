//! Stories about hints as operators see them, by the binary.

use std::fs;
use std::process::Output;
use std::time::Duration;

use serde_json::{Value, json};
use shoal_net::clock;
use shoal_orders::Moment;

use super::{event, takes_hints, until, until_brought};
use crate::lake::{Content, Object};
use crate::node::{BLOCK, Node};
use crate::verbs::{self, err, run};

fn out(output: &Output) -> &str {
    assert!(output.status.success(), "{}", err(output));
    verbs::out(output)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dag_in_a_file_is_brought_stage_by_stage_and_what_became_of_it_is_listed() {
    let node = Node::start_with(takes_hints).await;
    for key in ["raw/1", "regions/1"] {
        node.lake.put("b", key, Object::new(Content::synthetic(BLOCK, 1)));
    }
    let deadline = Moment::from(clock::utc_now())
        .plus(Duration::from_mins(5))
        .to_string();
    let mut dag = event("START", 1, "nightly", &[], &[]);
    dag["job"]["facets"] = json!({ "shoal": { "deadline": deadline, "stages": [
        { "name": "join", "reads": ["s3://b/tmp", "s3://b/regions"], "writes": ["s3://b/out"] },
        { "name": "extract", "reads": ["s3://b/raw"], "writes": ["s3://b/tmp"] },
    ] } });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("dag.json");
    fs::write(&file, dag.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let sent = run(&node, &["hint", file]).await;
    assert_eq!(
        out(&sent),
        "1 event taken; `shoal hints` shows what became of them\n"
    );
    let hints = until_brought(&node, 2).await;
    assert_eq!(hints[0]["task"]["deadline"], deadline);
    node.client().get("/b/raw/1").send().await;
    let listed = run(&node, &["hints"]).await;
    let rows: Vec<Vec<&str>> = out(&listed)
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[1][..4],
        ["kept", "etl/nightly/extract", "0", "s3://b/raw"],
        "{}",
        out(&listed)
    );
    assert_eq!(
        rows[2][..5],
        ["kept", "etl/nightly/join", "1", "s3://b/regions", "64.0"],
        "{}",
        out(&listed)
    );
    let explained = run(
        &node,
        &["explain", "s3://b/regions/1", "--as", crate::lake::ACCESS_KEY],
    )
    .await;
    let explained = String::from_utf8_lossy(&explained.stdout).into_owned();
    if !explained.is_empty() {
        assert!(
            explained.contains("kept for etl/nightly/join, until "),
            "{explained}"
        );
    }

    // A run that has ended is an example for forecasts.
    let end = event("COMPLETE", 1, "nightly", &["raw"], &["out"]);
    fs::write(file, format!("{end}\n{}", json!([{ "eventTime": "never" }]))).unwrap();
    let sent = run(&node, &["hint", file]).await;
    assert_eq!(sent.status.code(), Some(1));
    let why = String::from_utf8_lossy(&sent.stderr).into_owned();
    assert!(
        why.contains("1 event not taken, the first one as event 2"),
        "{why}"
    );
    until(&node, "all stages are over", |hints| {
        hints.iter().all(|hint| hint["keeps"] == false)
    })
    .await;
    let runs = run(&node, &["hints", "--runs"]).await;
    let line: Value = serde_json::from_str(out(&runs)).unwrap();
    assert_eq!(
        line,
        json!({
            "id": "00000000-0000-4000-8000-000000000001", "name": "etl/nightly",
            "submitted": "2026-11-30T10:00:10.000Z", "ended": "2026-11-30T10:00:11.000Z",
            "inputs": [{ "path": "s3://b/raw/" }], "outputs": ["s3://b/out"],
        })
    );
    let history = folder.path().join("runs.jsonl");
    fs::write(&history, out(&runs)).unwrap();
    let forecast = run(&node, &["plan", "predict", history.to_str().unwrap()]).await;
    assert!(
        forecast.status.success(),
        "{}",
        String::from_utf8_lossy(&forecast.stderr)
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_of_the_last_run_of_an_application_is_a_hint_of_its_next_run() {
    let node = Node::start_with(takes_hints).await;
    for (key, blocks) in [("fact/1", 3), ("dim/1", 2)] {
        let object = Object::new(Content::synthetic(blocks * BLOCK, 1));
        node.lake.put("lake", key, object);
    }
    let log = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../shoal-history/tests/data/spark-3.5.json"
    );
    let printed = run(&node, &["hint", "--spark-log", log, "--namespace", "etl"]).await;
    let said = String::from_utf8_lossy(&printed.stderr).into_owned();
    assert_eq!(
        said,
        "note: \"etl-job-1\" of 2026-11-20T17:57:39.169Z read 84.2 MiB in 2 inputs: 2 stages\n"
    );
    let folder = tempfile::tempdir().unwrap();
    let next = folder.path().join("next.json");
    fs::write(&next, out(&printed)).unwrap();
    let next = next.to_str().unwrap();

    out(&run(&node, &["hint", next]).await);
    let hints = until_brought(&node, 2).await;
    let facts = hints.iter().map(|hint| {
        let hint = &hint["task"]["hint"];
        (
            hint["reader"]["name"].clone(),
            hint["stage"].clone(),
            hint["inputs"].clone(),
        )
    });
    assert_eq!(
        facts.collect::<Vec<_>>(),
        [
            (json!("etl-job-1/query-2"), json!(0), json!(["s3://lake/fact"])),
            (json!("etl-job-1/query-3"), json!(1), json!(["s3://lake/dim"])),
        ],
        "a later stage comes after the first one, without what is on its way already"
    );
    node.client().get("/lake/fact/1").send().await;

    // The end of the run releases both, and is remembered.
    out(&run(&node, &["hint", next, "--end"]).await);
    let over = until(&node, "both are over", |hints| {
        hints.iter().all(|hint| hint["keeps"] == false)
    })
    .await;
    let [fact, dim] = [0, 1].map(|place| &over[place]);
    assert!(
        fact["first_used"].as_str() >= fact["brought"].as_str() && fact["brought"].is_string(),
        "{fact:#}"
    );
    assert_eq!(
        (&dim["first_used"], &dim["wasted_bytes"]),
        (&json!(null), &json!(2 * BLOCK))
    );
    let runs = run(&node, &["hints", "--runs"]).await;
    let line: Value = serde_json::from_str(out(&runs)).unwrap();
    assert_eq!(line["name"], "etl/etl-job-1");
    assert_eq!(
        (&line["inputs"], &line["outputs"]),
        (
            &json!([
                { "path": "s3://lake/fact/", "bytes": 88_272_840 },
                { "path": "s3://lake/dim/", "bytes": 4_835 },
            ]),
            &json!(["s3://lake/out"])
        )
    );

    // The picture says the same.
    let drawn = folder.path().join("hints.svg");
    out(&run(&node, &["hints", "--plot", drawn.to_str().unwrap()]).await);
    let drawn = fs::read_to_string(drawn).unwrap();
    for row in [
        "query-2, stage 0: s3://lake/fact: 192 KiB of 192 KiB used, 0 B wasted",
        "query-3, stage 1: s3://lake/dim: 0 B of 128 KiB used, 128 KiB wasted",
    ] {
        assert!(drawn.contains(row), "{drawn}");
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_start_no_run_are_refused() {
    let node = Node::start_with(takes_hints).await;
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let end = write(
        "end.json",
        &event("COMPLETE", 1, "nightly", &["raw"], &[]).to_string(),
    );
    let local = write(
        "local",
        r#"{"Event":"SparkListenerApplicationStart","App Name":"a","App ID":"1","Timestamp":5}"#,
    );
    let none = write("none", "");
    let from_log = |log: &str| ["hint", "--spark-log", log, "--namespace", "etl"].map(str::to_owned);
    for (arguments, code, why) in [
        (
            ["hint", &end, "--end"].map(str::to_owned).to_vec(),
            2,
            "has no events to send",
        ),
        (from_log(&local).to_vec(), 2, "read nothing in S3"),
        (from_log(&none).to_vec(), 2, "has no application of Spark"),
        (from_log("nowhere").to_vec(), 1, "cannot read nowhere"),
        (
            ["hint", "--spark-log", &local].map(str::to_owned).to_vec(),
            2,
            "--namespace",
        ),
        (
            ["hints", "--plot", "h.svg"].map(str::to_owned).to_vec(),
            1,
            "there are no hints to draw",
        ),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let refused = run(&node, &arguments).await;
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(code), "{said}");
        assert!(said.contains(why), "{said}");
    }
    node.stop().await;
}
