//! Stories about hints: engines say what their jobs read, and it is here before they ask.

mod commands;
mod life;
mod refused;
mod tables;

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use shoal_node::config::{Config, HintRule};

use crate::client::{Client, Reply};
use crate::cluster::Cluster;
use crate::lake::{ACCESS_KEY, Content, Object, Request};
use crate::node::{BLOCK, Node};
use crate::waiting::value;

/// Lets jobs of `etl` have their inputs brought in the name of the owner of the lake's account.
pub(crate) fn takes_hints(config: &mut Config) {
    config.hints.rules = vec![HintRule {
        namespace: "etl".into(),
        identity: Some(ACCESS_KEY.into()),
    }];
}

/// Returns the id of a run.
fn run_id(number: u32) -> String {
    format!("00000000-0000-4000-8000-{number:012x}")
}

/// Returns an event of a run of a job, which reads and writes what is at these keys of the bucket `b`.
pub(crate) fn event(phase: &str, run: u32, job: &str, reads: &[&str], writes: &[&str]) -> Value {
    let datasets = |keys: &[&str]| {
        let datasets = keys
            .iter()
            .map(|key| json!({ "namespace": "s3://b", "name": key }));
        datasets.collect::<Vec<_>>()
    };
    // Runs start one after the other.
    let seconds = run * 10 + u32::from(phase != "START");
    json!({
        "eventType": phase,
        "eventTime": format!("2026-11-30T10:{:02}:{:02}Z", seconds / 60, seconds % 60),
        "run": { "runId": run_id(run) },
        "job": { "namespace": "etl", "name": job },
        "inputs": datasets(reads),
        "outputs": datasets(writes),
        "producer": "https://example.org",
        "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
    })
}

/// Sends an event to a node.
async fn send(node: &Node, event: &Value) -> Reply {
    let client = Client::anonymous(node.admin_address());
    let call = client.post("/api/v1/lineage", event.to_string());
    call.header("content-type", "application/json").send().await
}

/// Sends an event that is taken.
pub(crate) async fn take(node: &Node, event: &Value) {
    let reply = send(node, event).await;
    assert_eq!(reply.status, StatusCode::CREATED, "{}", reply.text());
}

/// Returns the hints as a node lists them, the latest first.
async fn hints(node: &Node) -> Vec<Value> {
    let reply = node.admin("/hints").await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    let list: Value = serde_json::from_slice(&reply.body).unwrap();
    list["hints"].as_array().unwrap().clone()
}

/// Waits until the hints of a node are as they should be.
async fn until(node: &Node, what: &str, are: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    value(what, async || hints(node).await, |hints| are(hints)).await
}

/// Waits until this many hints are over or have brought everything, and none is under way.
pub(crate) async fn until_brought(node: &Node, count: usize) -> Vec<Value> {
    until(node, "all hints are carried out", |hints| {
        let is_over = |hint: &Value| {
            ["done", "failed", "cancelled"]
                .iter()
                .any(|state| hint["task"]["state"] == *state)
        };
        hints.len() == count && hints.iter().all(is_over)
    })
    .await
}

/// The number of objects that a node has pinned.
async fn pinned(node: &Node) -> u64 {
    node.status().await["store"]["pins"]["objects"].as_u64().unwrap()
}

fn gets(request: &Request) -> bool {
    request.is_get() && request.is_of_object()
}

#[tokio::test]
async fn the_inputs_of_a_run_are_here_before_they_are_read_and_kept_until_its_end() {
    let cluster = Cluster::start_with(3, |_, config| takes_hints(config)).await;
    let bytes = [
        cluster.put("sales/1", 3),
        cluster.put("sales/2", 2),
        cluster.put("ref/regions.csv", 1),
    ];
    cluster.put("sales_of_others/1", 2);
    cluster.put("sales/_temporary/1", 2);
    let start = event("START", 1, "join", &["sales", "ref/regions.csv"], &["joined"]);
    take(&cluster.nodes[0], &start).await;
    let brought = until_brought(&cluster.nodes[1], 1).await;
    assert_eq!(cluster.lake.count(gets), 6, "each block once, and no other");
    assert_eq!(brought[0]["brought_bytes"], 6 * BLOCK, "{:#}", brought[0]);
    assert_eq!(brought[0]["keeps"], true);
    cluster.settle().await;

    // An engine that has no answer sends its event again.
    take(&cluster.nodes[0], &start).await;
    take(&cluster.nodes[2], &start).await;
    cluster.lake.forget_requests();
    for (node, (key, bytes)) in ["sales/1", "sales/2", "ref/regions.csv"]
        .iter()
        .zip(&bytes)
        .enumerate()
    {
        cluster.read(node, key, bytes).await;
    }
    assert_eq!(
        cluster.lake.count(gets),
        0,
        "the reader does not wait for the lake"
    );
    let used = hints(&cluster.nodes[2]).await;
    assert_eq!(used.len(), 1, "{used:#?}");
    assert_eq!(used[0]["used_bytes"], 6 * BLOCK, "{:#}", used[0]);
    assert!(
        used[0]["early_ms"].is_u64() && used[0]["wasted_bytes"] == 0,
        "{:#}",
        used[0]
    );

    take(&cluster.nodes[2], &event("COMPLETE", 1, "join", &[], &["joined"])).await;
    for node in &cluster.nodes {
        value(
            "nothing is pinned any more",
            async || pinned(node).await,
            |pinned| *pinned == 0,
        )
        .await;
    }
    // An event that is late does not begin it again.
    take(&cluster.nodes[2], &start).await;
    assert_eq!(hints(&cluster.nodes[2]).await.len(), 1);
    cluster.stop().await;
}

#[tokio::test]
async fn what_the_jobs_behind_a_run_read_comes_while_it_runs() {
    let mut cluster = Cluster::start_with(3, |_, config| takes_hints(config)).await;
    for key in ["raw/1", "regions/1", "events/1"] {
        cluster.put(key, 2);
    }
    let runs = [
        ("extract", ["raw", ""], "tmp"),
        ("join", ["tmp", "regions"], "joined"),
        ("report", ["joined", "events"], "out"),
    ];
    // The first time, nobody knows what comes next.
    for (run, (job, reads, writes)) in (1..).zip(runs) {
        let reads: Vec<&str> = reads.into_iter().filter(|key| !key.is_empty()).collect();
        take(&cluster.nodes[0], &event("START", run, job, &reads, &[])).await;
        take(&cluster.nodes[1], &event("COMPLETE", run, job, &reads, &[writes])).await;
    }
    let ended = |hints: &[Value]| hints.len() == 3 && hints.iter().all(|hint| hint["keeps"] == false);
    until(&cluster.nodes[2], "the first runs are over", ended).await;
    // What jobs read outlasts a restart.
    cluster.restart(2, |_| ()).await;
    cluster.sees(3).await;

    take(&cluster.nodes[2], &event("START", 4, "extract", &["raw"], &[])).await;
    let hints = until_brought(&cluster.nodes[0], 6).await;
    let row = |hint: &Value| {
        let hint = &hint["task"]["hint"];
        (
            hint["reader"]["name"].as_str().unwrap().to_owned(),
            hint["stage"].as_u64().unwrap(),
            hint["inputs"].clone(),
        )
    };
    let mut latest: Vec<_> = hints[..3].iter().map(row).collect();
    latest.sort_by_key(|(_, stage, _)| *stage);
    assert_eq!(
        latest,
        [
            ("extract".to_owned(), 0, json!(["s3://b/raw"])),
            ("join".to_owned(), 1, json!(["s3://b/regions"])),
            ("report".to_owned(), 2, json!(["s3://b/events"])),
        ],
        "what is written on the way is not there yet"
    );
    // The inputs of a reader behind the run are kept until it has read them.
    take(
        &cluster.nodes[0],
        &event("COMPLETE", 4, "extract", &["raw"], &["tmp"]),
    )
    .await;
    let is_kept = |hints: &[Value], stage: u64| {
        let of_stage = hints[..3]
            .iter()
            .find(|hint| hint["task"]["hint"]["stage"] == stage);
        of_stage.is_some_and(|hint| hint["keeps"] == true)
    };
    until(&cluster.nodes[1], "only those behind are kept", |hints| {
        !is_kept(hints, 0) && is_kept(hints, 1) && is_kept(hints, 2)
    })
    .await;
    take(
        &cluster.nodes[1],
        &event("COMPLETE", 5, "join", &["regions"], &[]),
    )
    .await;
    until(&cluster.nodes[1], "the reader has read", |hints| {
        !is_kept(hints, 1) && is_kept(hints, 2)
    })
    .await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_later_stage_waits_for_the_earlier_ones_and_a_block_on_its_way_to_a_reader_is_not_brought() {
    let node = Node::start_with(|config| {
        takes_hints(config);
        config.freshness.default = shoal_node::config::FreshnessMode::Immutable;
    })
    .await;
    for key in ["first/1", "second/1"] {
        node.lake
            .put("b", key, Object::new(Content::synthetic(2 * BLOCK, 1)));
    }
    // The node knows the object, and has its first block.
    let first = node.client().get("/b/first/1").range("bytes=0-0");
    assert_eq!(first.send().await.status, StatusCode::PARTIAL_CONTENT);
    node.settle().await;
    let (before, last) = (node.lake.count(gets), format!("bytes={BLOCK}-"));
    let gate = node
        .lake
        .hold(|request| gets(request) && request.path.contains("first"));
    let reader = tokio::spawn(node.client().get("/b/first/1").range(&last).send());
    let asked = async || node.lake.count(gets);
    value("the reader waits for the lake", asked, |gets| *gets == before + 1).await;
    let mut dag = event("START", 1, "dag", &[], &[]);
    dag["job"]["facets"] = json!({ "shoal": { "stages": [
        { "name": "a", "reads": ["s3://b/first"], "writes": ["s3://b/tmp"] },
        { "name": "b", "reads": ["s3://b/tmp", "s3://b/second"] },
    ] } });
    take(&node, &dag).await;
    let is_in = |hint: &Value, state: &str| hint["task"]["state"] == state;
    until(&node, "the first stage is brought", |hints| {
        hints.len() == 2 && is_in(&hints[0], "running") && is_in(&hints[1], "queued")
    })
    .await;
    // Orders that are due begin within a second.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert!(is_in(&hints(&node).await[1], "queued"), "the later stage waits");
    gate.open();
    assert_eq!(reader.await.unwrap().status, StatusCode::PARTIAL_CONTENT);
    let all = until_brought(&node, 2).await;
    assert_eq!(
        (&all[0]["brought_bytes"], &all[1]["brought_bytes"]),
        (&json!(0), &json!(2 * BLOCK)),
        "{all:#?}"
    );
    node.stop().await;
}

#[tokio::test]
async fn what_no_reader_asks_for_is_counted_as_wasted() {
    let node = Node::start_with(|config| {
        takes_hints(config);
        config.freshness.default = shoal_node::config::FreshnessMode::Immutable;
    })
    .await;
    for key in ["t/1", "t/2"] {
        node.lake.put("b", key, Object::new(Content::synthetic(BLOCK, 1)));
    }
    take(&node, &event("START", 1, "j", &["t"], &[])).await;
    until_brought(&node, 1).await;
    let reply = node.client().get("/b/t/1").send().await;
    assert_eq!(reply.header("x-cache"), Some("HIT"));
    let explained = node.admin("/explain?object=s3://b/t/2").await;
    let explained: Value = serde_json::from_slice(&explained.body).unwrap();
    assert_eq!(
        explained["pins"][0]["hint"]["reader"]["name"], "j",
        "{explained:#}"
    );
    assert_eq!(
        explained["pins"][0]["task"], explained["blocks"][0]["brought_by"],
        "{explained:#}"
    );
    take(&node, &event("FAIL", 1, "j", &["t"], &[])).await;
    // Spark says so after a failure, too. It is not what the job reads.
    take(&node, &event("COMPLETE", 1, "j", &["t"], &[])).await;
    let over = until(&node, "the hint is over", |hints| hints[0]["keeps"] == false).await;
    assert_eq!(
        (
            &over[0]["brought_bytes"],
            &over[0]["used_bytes"],
            &over[0]["wasted_bytes"]
        ),
        (&json!(2 * BLOCK), &json!(BLOCK), &json!(BLOCK)),
        "{:#}",
        over[0]
    );
    assert_eq!(
        node.admin("/runs").await.text(),
        "",
        "a run that failed is no example"
    );
    let metrics = node.admin("/metrics").await;
    for line in [
        format!("shoal_early_bytes_total{{outcome=\"brought\"}} {}", 2 * BLOCK),
        format!("shoal_early_bytes_total{{outcome=\"used\"}} {BLOCK}"),
        "shoal_hint_events_total{outcome=\"taken\"} 3".to_owned(),
    ] {
        assert!(
            metrics.text().lines().any(|found| found == line),
            "{line}\n{}",
            metrics.text()
        );
    }
    node.stop().await;
}
