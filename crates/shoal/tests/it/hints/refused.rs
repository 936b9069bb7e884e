//! Stories about hints that are not carried out: foreign, too large, malformed, or too many.

use std::fs;
use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use http::StatusCode;
use serde_json::{Value, json};
use shoal_node::config::HintRule;

use super::{event, gets, hints, send, take, takes_hints, until_brought};
use crate::client::{Call, Client};
use crate::lake::{Access, Content, Object};
use crate::node::{BLOCK, Node, OTHER_KEY};

async fn node() -> Node {
    Node::start_with(takes_hints).await
}

fn put(node: &Node, key: &str, blocks: u64) {
    node.lake
        .put("b", key, Object::new(Content::synthetic(blocks * BLOCK, 3)));
}

/// Returns a request to the admin port, without a token.
fn post(node: &Node, path: &str, body: impl Into<bytes::Bytes>) -> Call {
    Client::anonymous(node.admin_address()).post(path, body)
}

#[tokio::test]
async fn hints_of_a_caller_whom_the_lake_refuses_leave_nothing_behind() {
    let node = Node::start_with(|config| {
        config.hints.rules = vec![HintRule {
            namespace: "*".into(),
            identity: Some(OTHER_KEY.into()),
        }];
    })
    .await;
    put(&node, "secret/1", 2);
    node.lake.deny(OTHER_KEY, Access::Read, "b");
    take(&node, &event("START", 1, "j", &["secret", "secret/1"], &[])).await;
    let hints = until_brought(&node, 1).await;
    assert_eq!(hints[0]["task"]["state"], "failed", "{:#}", hints[0]);
    let why = hints[0]["task"]["detail"].as_str().unwrap();
    assert!(why.contains("cannot be listed"), "{why}");
    assert_eq!(node.status().await["store"]["blocks"], 0);
    node.stop().await;
}

#[tokio::test]
async fn jobs_of_a_namespace_without_a_rule_are_refused_and_not_remembered() {
    let node = node().await;
    put(&node, "t/1", 1);
    let mut foreign = event("START", 1, "j", &["t"], &[]);
    foreign["job"]["namespace"] = "other".into();
    let reply = send(&node, &foreign).await;
    assert_eq!(reply.status, StatusCode::FORBIDDEN);
    assert!(
        reply.text().contains("hint: add [[hints.rule]]"),
        "{}",
        reply.text()
    );
    foreign["eventType"] = "COMPLETE".into();
    assert_eq!(send(&node, &foreign).await.status, StatusCode::FORBIDDEN);
    assert!(hints(&node).await.is_empty());
    assert_eq!(node.admin("/runs").await.text(), "");
    assert_eq!(node.lake.count(|_| true), 0, "the lake is not asked");
    node.stop().await;
}

#[tokio::test]
async fn inputs_that_do_not_fit_are_not_brought_at_all() {
    let node = Node::start_with(|config| {
        takes_hints(config);
        // Of 64 MiB.
        config.hints.limits.room_percent = 1;
    })
    .await;
    put(&node, "small/1", 4);
    put(&node, "large/1", 2);
    put(&node, "large/2", 9);
    take(&node, &event("START", 1, "j", &["large"], &[])).await;
    let failed = until_brought(&node, 1).await;
    let why = failed[0]["task"]["detail"].as_str().unwrap();
    assert_eq!(
        why,
        "no room: its inputs have 704 KiB, and hints may take 655 KiB, of which 0 B are taken"
    );
    assert_eq!(node.lake.count(gets), 0, "all or nothing");
    // Two runs that read the same share its room; a third one has none.
    take(&node, &event("START", 2, "k", &["small"], &[])).await;
    take(&node, &event("START", 3, "l", &["small"], &[])).await;
    let all = until_brought(&node, 3).await;
    assert!(
        all[..2].iter().all(|hint| hint["task"]["state"] == "done"),
        "{all:#?}"
    );
    put(&node, "more/1", 7);
    take(&node, &event("START", 4, "m", &["more"], &[])).await;
    let all = until_brought(&node, 4).await;
    assert_eq!(all[0]["task"]["state"], "failed", "{:#}", all[0]);
    // What fills up empties: the runs end.
    for (run, job) in [(2, "k"), (3, "l")] {
        take(&node, &event("COMPLETE", run, job, &[], &[])).await;
    }
    take(&node, &event("START", 5, "m", &["more"], &[])).await;
    let all = until_brought(&node, 5).await;
    assert_eq!(all[0]["task"]["state"], "done", "{:#}", all[0]);
    node.stop().await;
}

#[tokio::test]
async fn a_hint_whose_run_never_ends_is_over_after_a_time() {
    let node = Node::start_with(|config| {
        takes_hints(config);
        config.hints.keep = Duration::from_secs(1);
    })
    .await;
    put(&node, "t/1", 1);
    take(&node, &event("START", 1, "j", &["t"], &[])).await;
    super::until(&node, "it is over", |hints| hints[0]["keeps"] == false).await;
    crate::waiting::value(
        "nothing is pinned",
        async || super::pinned(&node).await,
        |pinned| *pinned == 0,
    )
    .await;
    node.stop().await;
}

#[tokio::test]
async fn events_come_in_batches_and_in_gzip_and_what_is_wrong_is_named() {
    let node = node().await;
    put(&node, "t/1", 1);
    let good = event("START", 1, "j", &["t"], &[]);
    let mut foreign = good.clone();
    foreign["job"]["namespace"] = "other".into();
    let batch =
        json!([good, foreign, {"eventTime": "now"}, {"eventTime": "2026-11-30T10:00:00Z", "dataset": {}}]);
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(batch.to_string().as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    let path = "/api/v1/lineage/batch";
    let reply = post(&node, path, packed.clone())
        .header("content-encoding", "gzip")
        .send()
        .await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    let answer: Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(answer["status"], "partial_success", "{answer:#}");
    assert_eq!(answer["summary"]["successful"], 2);
    assert_eq!(answer["summary"]["non_retriable"], 2);
    assert_eq!(answer["failed_events"][1]["index"], 2);
    until_brought(&node, 1).await;

    let plain = ("content-type", "application/json");
    for (path, body, (name, value), status) in [
        (path, b"{}".to_vec(), plain, StatusCode::BAD_REQUEST),
        (path, b"[]".to_vec(), plain, StatusCode::OK),
        (
            path,
            format!("[{}1]", "1,".repeat(1_000)).into(),
            plain,
            StatusCode::PAYLOAD_TOO_LARGE,
        ),
        ("/api/v1/lineage", b"[]".to_vec(), plain, StatusCode::BAD_REQUEST),
        (
            "/api/v1/lineage",
            vec![b' '; (4 << 20) + 1],
            plain,
            StatusCode::PAYLOAD_TOO_LARGE,
        ),
        (
            "/api/v1/lineage",
            b"no gzip".to_vec(),
            ("content-encoding", "gzip"),
            StatusCode::BAD_REQUEST,
        ),
        (
            "/api/v1/lineage",
            packed,
            ("content-encoding", "br"),
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
        ),
        (
            "/api/v1/lineage",
            b"{}".to_vec(),
            ("origin", "https://example.org"),
            StatusCode::FORBIDDEN,
        ),
    ] {
        let reply = post(&node, path, body).header(name, value).send().await;
        assert_eq!(reply.status, status, "{path} {name}: {value}: {}", reply.text());
    }
    // Little that becomes much.
    let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
    bomb.write_all(&vec![b' '; 64 << 20]).unwrap();
    let reply = post(&node, path, bomb.finish().unwrap())
        .header("content-encoding", "gzip")
        .send()
        .await;
    assert_eq!(reply.status, StatusCode::PAYLOAD_TOO_LARGE);
    let got = node.admin("/api/v1/lineage").await;
    assert_eq!(got.status, StatusCode::METHOD_NOT_ALLOWED);
    node.stop().await;
}

#[tokio::test]
async fn an_engine_that_sends_too_many_events_is_asked_to_wait() {
    let node = node().await;
    let events = vec![event("OTHER", 1, "j", &[], &[]); 1_000];
    let body = json!(events).to_string();
    let sent = post(&node, "/api/v1/lineage/batch", body)
        .header("content-type", "application/json")
        .send()
        .await;
    assert_eq!(sent.status, StatusCode::OK);
    // The node lets some of them through in the time that each takes.
    let mut refused = send(&node, &events[0]).await;
    for _ in 0..10_000 {
        if refused.status != StatusCode::CREATED {
            break;
        }
        refused = send(&node, &events[0]).await;
    }
    assert_eq!(
        refused.status,
        StatusCode::SERVICE_UNAVAILABLE,
        "{}",
        refused.text()
    );
    assert_eq!(refused.header("retry-after"), Some("1"));
    node.stop().await;
}

#[tokio::test]
async fn a_token_of_an_engine_is_good_for_events_alone() {
    let folder = tempfile::tempdir().unwrap();
    let [operators, engines] = ["operators", "engines"].map(|name| folder.path().join(name));
    fs::write(&operators, "a-token-of-operators\n").unwrap();
    fs::write(&engines, "a-token-of-engines\n").unwrap();
    let node = Node::start_with(|config| {
        takes_hints(config);
        config.admin.token_file = Some(operators);
        config.hints.token_file = Some(engines);
    })
    .await;
    let body = event("START", 1, "j", &[], &[]).to_string();
    for (path, token, status) in [
        ("/api/v1/lineage", "", StatusCode::UNAUTHORIZED),
        (
            "/api/v1/lineage",
            "Bearer a-token-of-engines",
            StatusCode::CREATED,
        ),
        (
            "/api/v1/lineage",
            "Bearer a-token-of-operators",
            StatusCode::CREATED,
        ),
        ("/drain", "Bearer a-token-of-engines", StatusCode::UNAUTHORIZED),
        ("/tasks", "Bearer a-token-of-engines", StatusCode::UNAUTHORIZED),
    ] {
        let reply = post(&node, path, body.clone())
            .header("authorization", token)
            .send()
            .await;
        assert_eq!(reply.status, status, "{path} {token}: {}", reply.text());
    }
    node.stop().await;
}
