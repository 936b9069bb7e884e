//! A lake that accepts and says nothing.

use std::time::Duration;

use http::StatusCode;
use shoal_node::config::Config;

use crate::client::Reply;
use crate::lake::{Cut, Fault, Request};
use crate::node::{BLOCK, Node};
use crate::read::put;

const PATIENCE: Duration = Duration::from_millis(300);

/// A node with short timeouts for the lake.
fn impatient(config: &mut Config) {
    config.lake.answer_timeout = PATIENCE;
    config.lake.write_timeout = PATIENCE;
    config.lake.stall_timeout = Some(PATIENCE);
}

fn is_silence_of_the_lake(reply: &Reply) {
    assert_eq!(
        (reply.status, reply.code()),
        (StatusCode::GATEWAY_TIMEOUT, "GatewayTimeout"),
        "{}",
        reply.text()
    );
    assert!(
        reply.text().contains("The lake gave no answer in time"),
        "{}",
        reply.text()
    );
}

#[tokio::test]
async fn a_silent_lake_is_a_gateway_timeout_within_the_time_of_the_settings() {
    let node = Node::start_with(impatient).await;
    put(&node, BLOCK);
    let _closed = node.lake.hold(|_| true);
    let client = node.client();
    is_silence_of_the_lake(&client.get("/b/k").send().await);
    is_silence_of_the_lake(&client.get("/b?list-type=2").send().await);
    is_silence_of_the_lake(&client.put("/b/k", "new").send().await);
    is_silence_of_the_lake(&client.delete("/b/k").send().await);
    assert_eq!(
        client.head("/b/k").send().await.status,
        StatusCode::GATEWAY_TIMEOUT
    );
    assert_eq!(
        node.lake.count(|_| true),
        5,
        "what took that long is not asked for again"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_body_that_never_begins_is_a_gateway_timeout_too() {
    let node = Node::start_with(impatient).await;
    put(&node, BLOCK);
    node.lake
        .misbehave(Fault::cut(0, Cut::Stall).when(Request::is_get).always());
    is_silence_of_the_lake(&node.client().get("/b/k").send().await);
    node.stop().await;
}

#[tokio::test]
async fn a_copy_that_takes_the_lake_long_is_waited_for() {
    let node = Node::start_with(impatient).await;
    put(&node, BLOCK);
    node.lake.misbehave(Fault::new().late(PATIENCE * 3));
    let copy = node
        .client()
        .put("/b/copy", "")
        .header("x-amz-copy-source", "/b/k");
    assert_eq!(copy.send().await.status, StatusCode::OK);
    assert!(node.lake.object("b", "copy").is_some());
    node.stop().await;
}
