//! The questions that a node sends to the lake before it acknowledges a write, and how long it remembers the
//! answers.

use std::time::Duration;

use http::{Method, StatusCode};

use super::{back, bytes, flush, reads, write_back};
use crate::lake::{ACCESS_KEY, Access, Request};
use crate::node::{Node, OTHER_KEY};
use crate::waiting::until;

fn is_permission(request: &Request) -> bool {
    request.method == Method::POST && request.parameter("uploads").is_some()
}

#[tokio::test]
async fn a_write_into_a_bucket_that_keeps_versions_becomes_a_version_at_once() {
    let node = Node::start_with(back).await;
    node.lake.keep_versions("b");
    for seed in 0..2 {
        let put = node.client().put("/b/tmp/k", bytes(seed)).send().await;
        assert_eq!(put.status, StatusCode::OK, "{}", put.text());
        assert_eq!(put.header("x-cache-reason"), Some("versioned"));
        assert!(put.header("x-amz-version-id").is_some());
        reads(&node.client(), "tmp/k", &bytes(seed)).await;
    }
    let begun = node.client().post("/b/tmp/k?uploads=", "").send().await;
    assert_eq!(begun.header("x-cache-reason"), Some("versioned"));
    node.stop().await;
}

#[tokio::test]
async fn the_lake_is_asked_for_its_permission_as_often_as_the_operator_wants() {
    for (remembered, questions) in [(Duration::ZERO, 3), (Duration::from_mins(10), 1)] {
        let node = Node::start_with(|config| {
            back(config);
            config.write.permission = remembered;
        })
        .await;
        for number in 0..3 {
            write_back(&node.client(), &format!("tmp/{number}"), &bytes(number)).await;
        }
        assert_eq!(node.lake.count(is_permission), questions);
        node.lake.deny(OTHER_KEY, Access::Write, "b");
        let refused = node.other().put("/b/tmp/k", bytes(1)).send().await;
        assert_eq!(
            refused.status,
            StatusCode::FORBIDDEN,
            "it is another identity's yes"
        );
        node.stop().await;
    }
}

/// Remembered permissions expire at once, so the next write asks the lake.
fn with_a_short_memory(config: &mut shoal_node::config::Config) {
    back(config);
    config.write.permission = Duration::from_nanos(1);
}

#[tokio::test]
async fn a_writer_goes_on_while_the_lake_is_down_and_the_lake_gets_everything_later() {
    let node = Node::start_with(with_a_short_memory).await;
    write_back(&node.client(), "tmp/0", &bytes(0)).await;
    node.lake.stop().await;
    for number in 1..4 {
        write_back(&node.client(), &format!("tmp/{number}"), &bytes(number)).await;
    }
    let stranger = node.other().put("/b/tmp/s", bytes(9)).send().await;
    assert_eq!(
        stranger.status,
        StatusCode::BAD_GATEWAY,
        "the lake has never said yes"
    );
    node.lake.resume().await;
    until("the lake has what was written meanwhile", async || {
        flush(&node, "s3://b/").await;
        (0..4).all(|number| node.lake.object("b", format!("tmp/{number}")).is_some())
    })
    .await;
    assert!(node.lake.object("b", "tmp/s").is_none());
    node.stop().await;
}

#[tokio::test]
async fn a_writer_whom_the_lake_has_refused_does_not_go_on_while_it_is_down() {
    let node = Node::start_with(with_a_short_memory).await;
    write_back(&node.client(), "tmp/0", &bytes(0)).await;
    node.lake.deny(ACCESS_KEY, Access::Write, "b");
    let refused = node.client().put("/b/tmp/1", bytes(1)).send().await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    node.lake.stop().await;
    let asked = node.client().put("/b/tmp/2", bytes(2)).send().await;
    assert_eq!(asked.status, StatusCode::BAD_GATEWAY, "{}", asked.text());
    node.stop().await;
}
