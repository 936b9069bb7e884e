//! Stories about tasks whose objects are listed one by one.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::StatusCode;
use serde_json::{Value, json};

use super::{is_over, put_objects, until};
use crate::client::{Client, Reply};
use crate::lake::{ACCESS_KEY, Request};
use crate::node::Node;
use crate::waiting;

/// Sends a list.
pub(crate) async fn send(node: &Node, query: &str, list: impl Into<Bytes>) -> Reply {
    let client = Client::anonymous(node.admin_address());
    let call = client.post(&format!("/tasks?{query}"), list);
    call.header("content-type", "text/plain; charset=utf-8")
        .send()
        .await
}

/// Sends a list that is taken, and waits for the end of the task.
pub(super) async fn carry_out(node: &Node, kind: &str, list: impl Into<Bytes>) -> Value {
    let reply = send(node, &format!("kind={kind}&identity={ACCESS_KEY}"), list).await;
    assert_eq!(reply.status, StatusCode::ACCEPTED, "{}", reply.text());
    let task: Value = serde_json::from_slice(&reply.body).unwrap();
    until(node, task["id"].as_str().unwrap(), is_over).await
}

/// The lists on the disk of a node.
pub(super) fn lists(node: &Node) -> usize {
    std::fs::read_dir(node.store_path().join("node/manifests"))
        .unwrap()
        .count()
}

#[tokio::test]
async fn a_list_names_its_objects_exactly() {
    let node = Node::start_immutable().await;
    put_objects(&node, ["a", "ab", "b *?[", "c/d"].map(String::from));
    let task = carry_out(
        &node,
        "prefetch",
        "s3://b/a\n\ns3://b/b *?[\r\ns3://b/lost\n# a comment",
    )
    .await;
    assert_eq!(
        (&task["state"], &task["manifest"]["objects"]),
        (&"failed".into(), &3.into()),
        "{task:#}"
    );
    assert_eq!(
        (
            &task["objects"]["done"],
            &task["objects"]["total"],
            &task["objects"]["failed"]
        ),
        (&2.into(), &3.into(), &1.into())
    );
    assert!(
        task["errors"][0]["error"].as_str().unwrap().contains("404"),
        "{task:#}"
    );
    node.lake.forget_requests();
    node.client().get("/b/a").send().await;
    assert_eq!(node.lake.count(Request::is_get), 0);
    node.client().get("/b/ab").send().await;
    assert_ne!(node.lake.count(Request::is_get), 0, "it was not on the list");
    let is_gone = async || lists(&node) == 0;
    waiting::until("the list of a task that is over is gone", is_gone).await;
    node.stop().await;
}

#[tokio::test]
async fn a_long_list_is_kept_on_disk_and_survives_a_restart() {
    let node = Node::start_immutable().await;
    put_objects(&node, ["x".into()]);
    // Most of these objects are missing, which costs the lake one question each.
    let mut list = String::new();
    for number in 0..2_500 {
        if number % 500 == 0 {
            list.push_str("s3://b/x\n");
        } else {
            writeln!(list, "s3://b/lost-{number}").unwrap();
        }
    }
    let gate = node.lake.hold(Request::is_head);
    let reply = send(&node, &format!("kind=cached&identity={ACCESS_KEY}"), list).await;
    let task: Value = serde_json::from_slice(&reply.body).unwrap();
    let id = task["id"].as_str().unwrap().to_owned();
    until(&node, &id, |task| task["state"] == "running").await;
    assert!(
        node.status().await["store"]["taken_bytes"].as_u64()
            > node.status().await["store"]["resident_bytes"].as_u64()
    );
    let stopped = node.halt().await;
    gate.open();
    let node = stopped.start().await;
    let task = until(&node, &id, is_over).await;
    // A hundred refusals in a row end a task.
    assert_eq!(task["state"], "failed");
    assert!(
        task["detail"]
            .as_str()
            .unwrap()
            .starts_with("the lake refused 100 objects in a row"),
        "{task:#}"
    );
    assert_eq!(
        task["errors"].as_array().unwrap().len(),
        16,
        "errors are counted, and the first are named"
    );
    node.stop().await;
}

#[tokio::test]
async fn refusals_that_are_scattered_over_a_list_do_not_end_its_task() {
    let node = Node::start_immutable().await;
    put_objects(&node, ["x".into()]);
    let mut list = String::new();
    for number in 0..600 {
        if number % 5 == 0 {
            writeln!(list, "s3://b/lost-{number}").unwrap();
        } else {
            list.push_str("s3://b/x\n");
        }
    }
    for order in ["cached", "prefetch&dry_run=true", "prefetch"] {
        let task = carry_out(&node, order, list.clone()).await;
        assert_eq!(
            (&task["detail"], &task["objects"]["done"]),
            (&"120 of 600 objects failed".into(), &480.into()),
            "{order}: {task:#}"
        );
    }
    node.stop().await;
}

#[tokio::test]
async fn a_list_with_a_bad_line_is_refused_and_leaves_nothing() {
    let node = Node::start().await;
    let query = format!("kind=prefetch&identity={ACCESS_KEY}");
    for (query, list, status, told) in [
        (
            &*query,
            "s3://b/a\nnonsense\n",
            StatusCode::BAD_REQUEST,
            "line 2 is not the URI of an object",
        ),
        (&query, "", StatusCode::BAD_REQUEST, "the list names no object"),
        (
            "kind=prefetch&identity=nobody",
            "s3://b/a",
            StatusCode::BAD_REQUEST,
            "no [[identity]]",
        ),
        (
            "kind=prefetch&uri=s3://b/&identity=x",
            "s3://b/a",
            StatusCode::BAD_REQUEST,
            "the order has a uri and a list",
        ),
        (
            "kind=prefetch&rate_bytes_per_second=fast",
            "s3://b/a",
            StatusCode::BAD_REQUEST,
            "the body is not an order",
        ),
        (
            "kind=prefetch&other=1",
            "s3://b/a",
            StatusCode::BAD_REQUEST,
            "unknown field",
        ),
    ] {
        let reply = send(&node, query, list).await;
        assert_eq!(
            (reply.status, reply.text().contains(told)),
            (status, true),
            "{}",
            reply.text()
        );
        assert!(reply.text().contains("\nhint: "), "{}", reply.text());
    }
    let long_line = format!("s3://b/{}", "x".repeat(8000));
    assert_eq!(
        send(&node, &query, long_line).await.status,
        StatusCode::BAD_REQUEST
    );
    assert_eq!(lists(&node), 0);
    let tasks: Value = serde_json::from_slice(&node.admin("/tasks").await.body).unwrap();
    assert_eq!(tasks["tasks"], json!([]));
    node.stop().await;
}

/// Returns the event that S3 sends about an object of the bucket `b`.
pub(super) fn record(event: &str, key: &str) -> Value {
    json!({
        "eventSource": "aws:s3", "eventName": event,
        "s3": { "bucket": { "name": "b" }, "object": { "key": key, "size": 7, "eTag": "x" } },
    })
}

/// Sends the announcements of S3 as an order of this kind.
pub(super) async fn announce_as(node: &Node, kind: &str, records: &[Value]) -> Reply {
    let client = Client::anonymous(node.admin_address());
    let call = client.post(
        &format!("/tasks?kind={kind}&identity={ACCESS_KEY}"),
        json!({ "Records": records }).to_string(),
    );
    call.header("content-type", "application/json").send().await
}

async fn announce(node: &Node, records: &[Value]) -> Reply {
    announce_as(node, "prefetch", records).await
}

#[tokio::test]
async fn an_announcement_of_an_upload_is_a_list() {
    let node = Node::start_immutable().await;
    put_objects(&node, ["in/a b+.parquet".into(), "in/other".into()]);
    let reply = announce(
        &node,
        &[
            record("ObjectCreated:Put", "in/a+b%2B.parquet"),
            record("ObjectRemoved:Delete", "in/other"),
        ],
    )
    .await;
    assert_eq!(reply.status, StatusCode::ACCEPTED, "{}", reply.text());
    let task: Value = serde_json::from_slice(&reply.body).unwrap();
    let task = until(&node, task["id"].as_str().unwrap(), is_over).await;
    assert_eq!(
        (&task["state"], &task["objects"]["done"]),
        (&"done".into(), &1.into()),
        "{task:#}"
    );
    node.stop().await;
}

#[tokio::test]
async fn an_announcement_of_removals_alone_is_taken_and_starts_no_task() {
    let node = Node::start_immutable().await;
    put_objects(&node, ["in/a".into()]);
    let reply = announce(&node, &[record("s3:ObjectRemoved:DeleteMarkerCreated", "in/a")]).await;
    assert_eq!(reply.status, StatusCode::NO_CONTENT, "{}", reply.text());
    let tasks: Value = serde_json::from_slice(&node.admin("/tasks").await.body).unwrap();
    assert_eq!((&tasks["tasks"], lists(&node)), (&json!([]), 0));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn announcements_of_one_moment_become_one_task() {
    let node = Node::start_immutable().await;
    let keys: Vec<String> = (0..40).map(|number| format!("in/{number}")).collect();
    put_objects(&node, keys.clone());
    let mut ids = BTreeSet::new();
    for key in &keys {
        let reply = announce(&node, &[record("ObjectCreated:Put", key)]).await;
        assert_eq!(reply.status, StatusCode::ACCEPTED, "{}", reply.text());
        let task: Value = serde_json::from_slice(&reply.body).unwrap();
        ids.insert(task["id"].as_str().unwrap().to_owned());
    }
    assert!(
        ids.len() < keys.len() / 2,
        "{} tasks of {} uploads",
        ids.len(),
        keys.len()
    );
    let mut objects = 0;
    for id in &ids {
        let task = until(&node, id, is_over).await;
        assert_eq!(task["state"], "done", "{task:#}");
        objects += task["objects"]["done"].as_u64().unwrap();
    }
    assert_eq!(objects, 40);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_gathered_when_a_node_went_is_done_when_it_is_back() {
    let node = Node::start_immutable().await;
    put_objects(&node, ["in/a".into(), "in/b".into()]);
    let mut id = String::new();
    for key in ["in/a", "in/b"] {
        let reply = announce(&node, &[record("ObjectCreated:Put", key)]).await;
        let task: Value = serde_json::from_slice(&reply.body).unwrap();
        id = task["id"].as_str().unwrap().to_owned();
    }
    let node = node.halt().await.start().await;
    let task = until(&node, &id, is_over).await;
    assert_eq!(task["state"], "done", "{task:#}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_quick_tasks_with_lists_each_run_once_and_none_fails() {
    let node = Arc::new(Node::start_immutable().await);
    put_objects(&node, ["a".into()]);
    let posts = (0..400).map(|_| {
        let node = Arc::clone(&node);
        async move {
            send(&node, &format!("kind=cached&identity={ACCESS_KEY}"), "s3://b/a\n")
                .await
                .status
        }
    });
    let posted: Vec<_> = stream::iter(posts).buffer_unordered(8).collect().await;
    assert!(posted.iter().all(|status| *status == StatusCode::ACCEPTED));
    let tasks = async || node.status().await["tasks"].clone();
    let are_over = |tasks: &Value| tasks["queued"] == 0 && tasks["running"] == 0;
    let tasks = waiting::value("the tasks end", tasks, are_over).await;
    let page = node.admin("/tasks?state=failed").await;
    assert_eq!(tasks["failed"], 0, "{}", page.text());
}
