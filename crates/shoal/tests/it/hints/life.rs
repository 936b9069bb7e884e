//! Stories about what a run writes for its own readers: it stays in the tier until they have read it.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use shoal_node::config::{Config, HintRule};

use super::{event, gets, hints, pinned, run_id, send, take, takes_hints, until, until_brought};
use crate::back::{back, bytes, flush, reads, write_back};
use crate::cluster::Cluster;
use crate::lake::{Access, Content, Object};
use crate::node::{BLOCK, Node, OTHER_KEY};
use crate::waiting::{self, value};

/// Objects below `tmp/` are due at once.
fn soon(config: &mut Config) {
    back(config);
    takes_hints(config);
    config.write.age = Duration::from_secs(1);
}

/// Returns the start of a run with these stages.
fn dag(run: u32, stages: &Value) -> Value {
    let mut dag = event("START", run, "dag", &[], &[]);
    dag["job"]["facets"] = json!({ "shoal": { "stages": stages } });
    dag
}

async fn is_at_lake(node: &Node, key: &str) {
    waiting::until(&format!("the lake has {key}"), async || {
        node.lake.object("b", key).is_some()
    })
    .await;
}

/// Waits until a later object has gone to the lake, so that all that were due have.
async fn passes(node: &Node, key: &str) {
    write_back(&node.client(), key, &bytes(99)).await;
    is_at_lake(node, key).await;
}

/// Returns the age of the oldest object that waits for the lake.
async fn oldest(node: &Node) -> Value {
    node.status().await["write_back"]["tiers"][0]["oldest_seconds"].clone()
}

#[tokio::test]
async fn what_a_run_calls_short_lived_never_reaches_the_lake_if_it_is_removed_in_time() {
    let node = Node::start_with(soon).await;
    let client = node.client();
    let stages = json!([
        { "name": "map", "writes": ["s3://b/tmp/between"], "life": "run" },
        { "name": "reduce", "reads": ["s3://b/tmp/between"], "writes": ["s3://b/tmp/out"] },
    ]);
    take(&node, &dag(1, &stages)).await;
    let all = until_brought(&node, 1).await;
    let hint = &all[0]["task"]["hint"];
    assert_eq!(
        (&hint["short_lived"], &hint["inputs"], &all[0]["keeps"]),
        (&json!(["s3://b/tmp/between"]), &json!([]), &json!(true))
    );
    for part in ["1", "2"] {
        write_back(&client, &format!("tmp/between/{part}"), &bytes(1)).await;
    }
    passes(&node, "tmp/out/1").await;
    reads(&client, "tmp/between/1", &bytes(1)).await;
    assert!(node.lake.object("b", "tmp/between/1").is_none());
    // What is held is not late.
    value("nothing else waits", async || oldest(&node).await, Value::is_null).await;
    assert!(client.delete("/b/tmp/between/1").send().await.status.is_success());
    // The job has forgotten the other one: it is not lost.
    take(&node, &event("COMPLETE", 1, "dag", &[], &[])).await;
    is_at_lake(&node, "tmp/between/2").await;
    assert_eq!(
        node.lake.object("b", "tmp/between/2").unwrap().content.all(),
        bytes(1)
    );
    let writes = |key: &'static [u8]| {
        node.lake
            .count(move |request| request.method == "PUT" && request.key == key)
    };
    assert_eq!(writes(b"tmp/between/1"), 0);
    node.stop().await;
}

#[tokio::test]
async fn what_stages_write_for_each_other_is_held_without_a_word_and_what_others_read_is_not() {
    let node = Node::start_with(soon).await;
    // A job that is no part of the run has read one of them.
    take(&node, &event("START", 1, "elsewhere", &["tmp/shared"], &[])).await;
    take(&node, &event("COMPLETE", 1, "elsewhere", &["tmp/shared"], &[])).await;
    let stages = json!([
        { "name": "a", "writes": ["s3://b/tmp/own", "s3://b/tmp/shared", "s3://b/tmp/out"] },
        { "name": "b", "reads": ["s3://b/tmp/own", "s3://b/tmp/shared"] },
    ]);
    take(&node, &dag(2, &stages)).await;
    for key in ["tmp/own/1", "tmp/shared/1", "tmp/out/1"] {
        write_back(&node.client(), key, &bytes(1)).await;
    }
    is_at_lake(&node, "tmp/shared/1").await;
    is_at_lake(&node, "tmp/out/1").await;
    assert!(node.lake.object("b", "tmp/own/1").is_none());
    // An operator need not wait.
    flush(&node, "").await;
    assert!(node.lake.object("b", "tmp/own/1").is_some());
    // The writer's own word goes before the guess.
    let put = node
        .client()
        .put("/b/tmp/own/2", bytes(2))
        .header("x-shoal-lifetime", "normal");
    assert_eq!(put.send().await.status, StatusCode::OK);
    is_at_lake(&node, "tmp/own/2").await;
    write_back(&node.client(), "tmp/own/3", &bytes(3)).await;
    // A run that fails needs nothing of it any more.
    take(&node, &event("FAIL", 2, "dag", &[], &[])).await;
    is_at_lake(&node, "tmp/own/3").await;
    node.stop().await;
}

#[tokio::test]
async fn what_an_announced_job_reads_is_held_and_kept_for_it_on_every_node() {
    let cluster = Cluster::start_with(3, |_, config| {
        takes_hints(config);
        back(config);
        config.write.age = Duration::from_secs(1);
    })
    .await;
    let [first, second, third] = &cluster.nodes[..] else {
        panic!("three nodes")
    };
    for (run, job, reads, writes) in [
        (1, "extract", vec![], vec!["tmp/between"]),
        (2, "load", vec!["tmp/between"], vec![]),
    ] {
        take(first, &event("START", run, job, &reads, &[])).await;
        take(first, &event("COMPLETE", run, job, &reads, &writes)).await;
    }
    let mut start = event("START", 3, "extract", &[], &[]);
    start["run"]["facets"] = json!({ "jobDependencies": {
        "downstream": [{ "job": { "namespace": "etl", "name": "load" } }]
    } });
    take(first, &start).await;
    let awaited = json!(["s3://b/tmp/between"]);
    let is_known = |hints: &[Value]| {
        hints
            .iter()
            .any(|hint| hint["task"]["hint"]["awaited"] == awaited)
    };
    until(second, "another node knows what is awaited", is_known).await;
    until(third, "and so does the third", is_known).await;
    value(
        "the node holds what it writes",
        async || {
            let key = format!("tmp/between/{}", second.lake.count(|_| true));
            write_back(&second.client(), &key, &bytes(1)).await;
            passes(second, &format!("tmp/later/{}", second.lake.count(|_| true))).await;
            second.lake.object("b", &key).is_none()
        },
        |is_held| *is_held,
    )
    .await;
    write_back(&second.client(), "tmp/between/last", &bytes(7)).await;
    let before = cluster.lake.count(gets);
    take(third, &event("COMPLETE", 3, "extract", &[], &["tmp/between"])).await;
    until(third, "it is kept in the cache, too", |hints| {
        hints[0]["task"]["hint"]["inputs"] == json!(["s3://b/tmp/between"])
            && hints[0]["task"]["state"] == "done"
    })
    .await;
    let mut all = 0;
    for node in &cluster.nodes {
        all += pinned(node).await;
    }
    assert!(all > 0, "the reader behind is due");
    passes(second, "tmp/later/last").await;
    assert!(second.lake.object("b", "tmp/between/last").is_none());
    assert_eq!(cluster.lake.count(gets), before, "the tier has it");
    // The reader is done.
    take(first, &event("COMPLETE", 4, "load", &["tmp/between"], &[])).await;
    is_at_lake(second, "tmp/between/last").await;
    for node in &cluster.nodes {
        value(
            "nothing is pinned",
            async || pinned(node).await,
            |pinned| *pinned == 0,
        )
        .await;
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_hint_holds_what_its_identity_writes_and_nothing_of_others() {
    let node = Node::start_with(|config| {
        soon(config);
        config.hints.rules = vec![HintRule {
            namespace: "*".into(),
            identity: Some(OTHER_KEY.into()),
        }];
    })
    .await;
    // The identity of the rule may not even write there.
    node.lake.deny(OTHER_KEY, Access::Write, "b/tmp/");
    let stages = json!([{ "writes": ["s3://b/tmp"], "life": "run" }]);
    take(&node, &dag(1, &stages)).await;
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    is_at_lake(&node, "tmp/k").await;
    let refused = node.other().put("/b/tmp/other", bytes(2)).send().await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    node.stop().await;
}

#[tokio::test]
async fn a_run_whose_end_is_lost_holds_nothing_for_ever() {
    let node = Node::start_with(|config| {
        soon(config);
        config.hints.keep = Duration::from_secs(5);
    })
    .await;
    let stages = json!([{ "writes": ["s3://b/tmp/between"], "life": "run" }]);
    take(&node, &dag(1, &stages)).await;
    write_back(&node.client(), "tmp/between/1", &bytes(1)).await;
    is_at_lake(&node, "tmp/between/1").await;
    let all = hints(&node).await;
    assert_eq!(all[0]["keeps"], false, "{:#}", all[0]);
    node.stop().await;
}

#[tokio::test]
async fn what_a_task_of_a_dag_writes_lives_as_long_as_the_dag() {
    let node = Node::start_with(soon).await;
    let mut task = event("START", 1, "dag.task", &[], &["tmp/between"]);
    task["outputs"][0]["facets"] = json!({ "shoal": { "life": "run" } });
    task["run"]["facets"] = json!({ "parent": {
        "run": { "runId": run_id(9) }, "job": { "namespace": "etl", "name": "dag" }
    } });
    take(&node, &task).await;
    write_back(&node.client(), "tmp/between/1", &bytes(1)).await;
    take(&node, &event("COMPLETE", 1, "dag.task", &[], &["tmp/between"])).await;
    passes(&node, "tmp/later").await;
    assert!(node.lake.object("b", "tmp/between/1").is_none());
    take(&node, &event("COMPLETE", 9, "dag", &[], &[])).await;
    is_at_lake(&node, "tmp/between/1").await;
    node.stop().await;
}

#[tokio::test]
async fn the_stage_with_the_highest_priority_goes_first_and_takes_the_room() {
    let node = Node::start_with(|config| {
        takes_hints(config);
        // Of 64 MiB: room for ten blocks.
        config.hints.limits.room_percent = 1;
    })
    .await;
    for key in ["low/1", "high/1"] {
        node.lake
            .put("b", key, Object::new(Content::synthetic(6 * BLOCK, 1)));
    }
    let gate = node
        .lake
        .hold(|request| gets(request) && request.path.contains("high"));
    let stages = json!([
        { "name": "low", "reads": ["s3://b/low"] },
        { "name": "high", "reads": ["s3://b/high"], "priority": 9 },
    ]);
    take(&node, &dag(1, &stages)).await;
    let state = |hints: &[Value], stage: &str| {
        let of_stage = |hint: &&Value| hint["task"]["hint"]["reader"]["name"] == format!("dag/{stage}");
        hints
            .iter()
            .find(of_stage)
            .map(|hint| hint["task"]["state"].clone())
    };
    until(&node, "the preferred one runs", |hints| {
        state(hints, "high") == Some("running".into())
    })
    .await;
    // Orders that are due begin within a second.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(state(&hints(&node).await, "low"), Some("queued".into()));
    gate.open();
    let all = until_brought(&node, 2).await;
    assert_eq!(state(&all, "high"), Some("done".into()), "{all:#?}");
    assert_eq!(state(&all, "low"), Some("failed".into()), "{all:#?}");
    node.stop().await;
}

#[tokio::test]
async fn a_stage_that_reads_more_than_fits_is_left_alone_without_a_question_to_the_lake() {
    let node = Node::start_with(takes_hints).await;
    node.lake
        .put("b", "t/1", Object::new(Content::synthetic(BLOCK, 1)));
    let stages = json!([{ "name": "s", "reads": ["s3://b/t"], "bytes": u64::MAX }]);
    take(&node, &dag(1, &stages)).await;
    let failed = until_brought(&node, 1).await;
    let why = failed[0]["task"]["detail"].as_str().unwrap();
    assert!(why.starts_with("no room: its inputs have "), "{why}");
    assert_eq!(node.lake.count(|_| true), 0, "the lake is not asked");
    // A dataset says so, too. One that is smaller than said is brought.
    let mut start = event("START", 2, "j", &["t"], &[]);
    start["inputs"][0]["facets"] = json!({ "shoal": { "bytes": 2 * BLOCK } });
    take(&node, &start).await;
    let all = until_brought(&node, 2).await;
    assert_eq!(all[0]["brought_bytes"], BLOCK, "{:#}", all[0]);
    node.stop().await;
}

#[tokio::test]
async fn a_mark_that_no_node_knows_is_refused() {
    let node = Node::start_with(takes_hints).await;
    for (stage, why) in [
        (
            json!({ "life": "for ever" }),
            "life in its facet shoal is \"for ever\", none of run",
        ),
        (
            json!({ "priority": 101 }),
            "priority in its facet shoal is 101, no number from 0 to 100",
        ),
        (
            json!({ "bytes": -1 }),
            "bytes in its facet shoal is -1, no number of bytes",
        ),
    ] {
        let reply = send(&node, &dag(1, &json!([stage]))).await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST);
        assert!(reply.text().contains(why), "{}", reply.text());
    }
    assert!(hints(&node).await.is_empty());
    node.stop().await;
}
