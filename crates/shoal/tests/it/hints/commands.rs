//! Stories about hints as operators see them, by the binary.

use std::fs;
use std::process::Output;
use std::time::Duration;

use serde_json::{Value, json};
use shoal_net::clock;
use shoal_orders::Moment;

use super::{event, takes_hints, until, until_brought};
use crate::commands::shoal;
use crate::lake::{Content, Object};
use crate::node::{BLOCK, Node};

async fn run(node: &Node, arguments: &[&str]) -> Output {
    let mut command = shoal(arguments);
    command.env("SHOAL_ADMIN_URL", format!("http://{}", node.admin_address()));
    command.env("NO_COLOR", "1");
    tokio::task::spawn_blocking(move || command.output().unwrap())
        .await
        .unwrap()
}

fn out(output: &Output) -> &str {
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    std::str::from_utf8(&output.stdout).unwrap()
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
