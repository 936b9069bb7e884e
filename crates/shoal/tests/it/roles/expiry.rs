//! Reads and tasks that outlive the temporary key with which they began.

use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt as _;
use serde_json::Value;

use super::sts::{Sts, TemporaryKey};
use super::{ETL, key, node};
use crate::lake::{Content, Cut, Fault, Gate, Object, Request};
use crate::node::{BLOCK, Node};
use crate::tasks::{self, order, post};
use crate::waiting::until;

fn is_resumption(request: &Request) -> bool {
    request.is_get() && request.header("if-match").is_some()
}

/// A key that soon expires. A busy machine may need more than `life` for what is to be done with it.
async fn short_key(node: &Node, sts: &Sts, life: Duration) -> TemporaryKey {
    sts.keys_live(life);
    let short = key(node, ETL, "one-token").await;
    sts.keys_live(Duration::from_hours(1));
    short
}

async fn until_expired(node: &Node, key: &TemporaryKey) {
    until("the key has expired", async || {
        let head = key.with_token(key.client(node).head("/b/none")).send().await;
        head.status == StatusCode::BAD_REQUEST || head.status == StatusCode::FORBIDDEN
    })
    .await;
}

#[tokio::test]
async fn a_read_that_outlives_its_key_goes_on_by_the_next_of_its_principal_only() {
    let (node, sts, lake) = node(|config| config.limits.retry_budget_percent = 100).await;
    sts.accept("one-token", "one");
    sts.accept("two-token", "two");
    let content = Content::synthetic(5 * BLOCK, 7);
    let bytes = content.all();
    lake.put("b", "k", Object::new(content));
    // The connection breaks twice: before the key expires, and after.
    let gate = Gate::new();
    lake.misbehave(Fault::cut(BLOCK, Cut::Close).when(|request| request.is_get() && !is_resumption(request)));
    let held = Fault::cut(BLOCK, Cut::Close).held_by(&gate);
    lake.misbehave(held.when(is_resumption));
    let mut life = Duration::from_secs(1);
    let (first, reading) = loop {
        let first = short_key(&node, &sts, life).await;
        let reading = first
            .with_token(first.client(&node).get("/b/k"))
            .open()
            .await
            .unwrap();
        if reading.status() == StatusCode::OK {
            break (first, reading);
        }
        life *= 2;
    };
    let reading = tokio::spawn(reading.into_body().collect());
    gate.arrived(1).await;
    until_expired(&node, &first).await;
    // The key of another principal of the role lives longer, and does not serve.
    let (next, _other) = (
        key(&node, ETL, "one-token").await,
        key(&node, ETL, "two-token").await,
    );
    gate.open();
    let read = reading.await.unwrap().expect("the read goes on").to_bytes();
    assert!(read == bytes, "it has other bytes");
    let asked: Vec<Request> = lake.requests().into_iter().filter(is_resumption).collect();
    let tokens = asked
        .iter()
        .map(|request| request.header("x-amz-security-token").unwrap());
    assert_eq!(tokens.collect::<Vec<_>>(), [&first.token, &next.token]);
    node.stop().await;
}

#[tokio::test]
async fn a_task_that_outlives_its_key_waits_for_the_next_of_its_role() {
    let (node, sts, lake) = node(|_| ()).await;
    sts.accept("one-token", "one");
    sts.accept("two-token", "two");
    lake.put("b", "k", "bytes");
    // The listing is answered when the key has expired.
    let gate = lake.hold(|request| request.parameter("list-type").is_some());
    let mut prefetch = order("prefetch", "s3://b/");
    prefetch["identity"] = ETL.into();
    let mut life = Duration::from_secs(1);
    let (first, id) = loop {
        let first = short_key(&node, &sts, life).await;
        let reply = post(&node, &prefetch).await;
        if reply.status == StatusCode::ACCEPTED {
            let task: Value = serde_json::from_slice(&reply.body).unwrap();
            break (first, task["id"].as_str().unwrap().to_owned());
        }
        life *= 2;
    };
    until_expired(&node, &first).await;
    gate.open();
    let waiting = tasks::until(&node, &id, |task| task["detail"].is_string()).await;
    assert_eq!(waiting["state"], "running", "{waiting:#}");
    assert!(
        waiting["detail"]
            .as_str()
            .unwrap()
            .contains("no temporary key of such a role"),
        "{waiting:#}"
    );
    let next = key(&node, ETL, "two-token").await;
    let done = tasks::until(&node, &id, tasks::is_over).await;
    assert_eq!(
        (&done["state"], &done["detail"]),
        (&"done".into(), &().into()),
        "{done:#}"
    );
    let last = lake.requests().pop().unwrap();
    assert_eq!(last.header("x-amz-security-token"), Some(&*next.token));
    node.stop().await;
}
