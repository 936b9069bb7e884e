//! Tasks of operators on one node: prefetched, pinned, evicted and counted objects.

mod auth;
mod commands;
mod deadline;
mod evict;
pub(crate) mod ls;
pub(crate) mod manifest;
mod pin;
mod prefetch;

use http::StatusCode;
use serde_json::{Value, json};

use crate::client::{Client, Reply};
use crate::lake::{ACCESS_KEY, Content, Object};
use crate::node::{BLOCK, Node};
use crate::waiting::value;

/// An order about `uri`, in the name of the owner of the lake's account.
pub(crate) fn order(kind: &str, uri: &str) -> Value {
    json!({ "kind": kind, "uri": uri, "identity": ACCESS_KEY })
}

/// Sends an order to a node.
pub(crate) async fn post(node: &Node, order: &Value) -> Reply {
    let client = Client::anonymous(node.admin_address());
    let call = client.post("/tasks", order.to_string());
    call.header("content-type", "application/json").send().await
}

/// Sends an order that is taken. Returns the id of the task.
pub(crate) async fn begin(node: &Node, order: &Value) -> String {
    let reply = post(node, order).await;
    assert_eq!(reply.status, StatusCode::ACCEPTED, "{}", reply.text());
    let task: Value = serde_json::from_slice(&reply.body).unwrap();
    task["id"].as_str().unwrap().to_owned()
}

/// A task as a node reports it.
pub(crate) async fn task(node: &Node, id: &str) -> Value {
    let reply = node.admin(&format!("/tasks/{id}")).await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    serde_json::from_slice(&reply.body).unwrap()
}

/// Waits until a task is as it should be.
pub(crate) async fn until(node: &Node, id: &str, is: impl Fn(&Value) -> bool) -> Value {
    value("the task is as it should be", async || task(node, id).await, is).await
}

pub(crate) fn is_over(task: &Value) -> bool {
    ["done", "failed", "cancelled"]
        .iter()
        .any(|state| task["state"] == *state)
}

/// Sends an order that is taken, and waits for its end.
pub(crate) async fn carry_out(node: &Node, order: &Value) -> Value {
    let id = begin(node, order).await;
    until(node, &id, is_over).await
}

/// Puts objects of one block and a half into the lake.
pub(crate) fn put_objects(node: &Node, keys: impl IntoIterator<Item = String>) -> u64 {
    let mut bytes = 0;
    for (seed, key) in (0..).zip(keys) {
        let object = Object::new(Content::synthetic(BLOCK + BLOCK / 2, seed));
        bytes += object.content.size();
        node.lake.put("b", &key, object);
    }
    bytes
}
