//! The questions that a node asks the lake before it acknowledges a write, and how long it remembers the
//! answers.

use std::time::Duration;

use http::{Method, StatusCode};

use super::{back, bytes, reads, write_back};
use crate::lake::{Access, Request};
use crate::node::{Node, OTHER_KEY};

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
