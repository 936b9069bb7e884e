//! A rule names identities that may read what others wrote below it while it is dirty.

use http::StatusCode;
use shoal_node::config::{Config, FreshnessMode, Identity};

use super::{assert_back, back, bytes, flush, reads, texts, write_back};
use crate::client::Client;
use crate::lake::{Access, Request};
use crate::node::{Node, OTHER_KEY};

const THIRD: (&str, &str) = ("third-access-key", "third-secret-key");

/// The other client may read what the first one wrote below `tmp/`; a third one may not.
fn shared(config: &mut Config) {
    back(config);
    config.write.rules[0].readers = vec![OTHER_KEY.into()];
    config.identities.push(Identity::new(THIRD.0, THIRD.1));
}

/// Starts a node with a dirty object, before a lake that lets neither of the other clients read.
async fn node() -> Node {
    let node = Node::start_with(shared).await;
    node.lake.add_user(THIRD.0, THIRD.1);
    for key in [OTHER_KEY, THIRD.0] {
        node.lake.deny(key, Access::Read, "b/tmp");
    }
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    node.settle().await;
    node.lake.forget_requests();
    node
}

fn third(node: &Node) -> Client {
    Client::signing(node.address(), THIRD.0, THIRD.1)
}

#[tokio::test]
async fn a_reader_shares_the_tier_with_a_writer_and_the_lake_is_not_asked() {
    let node = node().await;
    let (reader, bytes) = (node.other(), bytes(1));
    let read = reads(&reader, "tmp/k", &bytes).await;
    let etag = read.header("etag").unwrap();
    let head = reader.head("/b/tmp/k").send().await;
    assert_eq!((head.status, head.header("etag")), (StatusCode::OK, Some(etag)));
    let range = reader.get("/b/tmp/k").range("bytes=70000-70009").send().await;
    assert_eq!(range.status, StatusCode::PARTIAL_CONTENT);
    assert!(range.body == bytes.slice(70_000..70_010));
    for (name, value, status) in [
        ("if-none-match", etag, StatusCode::NOT_MODIFIED),
        ("if-match", "\"another\"", StatusCode::PRECONDITION_FAILED),
        ("range", "bytes=9999999-", StatusCode::RANGE_NOT_SATISFIABLE),
    ] {
        let reply = reader.get("/b/tmp/k").header(name, value).send().await;
        assert_eq!(reply.status, status, "{name}");
    }
    assert_eq!(node.lake.requests().len(), 0, "{:?}", node.lake.requests());
    let page = reader.get("/b?list-type=2").send().await;
    assert_eq!(texts(&page, "Key"), ["tmp/k"]);
    assert_eq!(node.lake.count(|request| request.query != "list-type=2"), 0);
    assert_eq!(
        node.status().await["write_back"]["objects"],
        1,
        "nothing was flushed"
    );
    node.stop().await;
}

#[tokio::test]
async fn for_all_others_the_lake_decides_after_a_flush() {
    let node = node().await;
    for client in [third(&node), node.stranger()] {
        for call in [client.get("/b/tmp/k"), client.head("/b/tmp/k")] {
            assert_eq!(call.send().await.status, StatusCode::FORBIDDEN);
        }
        assert!(node.lake.object("b", "tmp/k").is_none(), "the lake refuses them");
    }
    node.lake.allow(THIRD.0, Access::Read, "b/tmp");
    reads(&third(&node), "tmp/k", &bytes(1)).await;
    assert!(node.lake.object("b", "tmp/k").is_some());
    node.stop().await;
}

#[tokio::test]
async fn a_reader_needs_the_lakes_permission_once_the_object_is_there() {
    let node = Node::start_with(|config| {
        shared(config);
        config.freshness.default = FreshnessMode::Immutable;
    })
    .await;
    node.lake.deny(OTHER_KEY, Access::Read, "b/tmp");
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    reads(&node.other(), "tmp/k", &bytes(1)).await;
    assert_eq!(flush(&node, "").await["flush"]["flushed"], 1);
    node.settle().await;
    let refused = node.other().get("/b/tmp/k").send().await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "the blocks are cached");
    node.lake.allow(OTHER_KEY, Access::Read, "b/tmp");
    reads(&node.other(), "tmp/k", &bytes(1)).await;
    node.stop().await;
}

#[tokio::test]
async fn a_copy_by_a_reader_is_its_own_write_in_the_tier() {
    let node = node().await;
    let reader = node.other();
    let copy = reader.put("/b/tmp/copy", "");
    assert_back(&copy.header("x-amz-copy-source", "/b/tmp/k").send().await);
    reads(&reader, "tmp/copy", &bytes(1)).await;
    assert_eq!(node.lake.count(|request| request.is_get() || request.is_put()), 0);
    flush(&node, "s3://b/tmp/copy").await;
    assert!(node.lake.object("b", "tmp/copy").unwrap().content.all() == bytes(1));
    assert!(node.lake.object("b", "tmp/k").is_none());
    assert_eq!(node.lake.count(Request::is_put), 1);
    let is_of_reader = |request: &Request| request.access_key.as_deref() == Some(OTHER_KEY);
    assert!(
        node.lake.requests().iter().all(is_of_reader),
        "the copy is flushed in the reader's name"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_reader_changes_an_object_only_as_far_as_the_lake_permits() {
    let node = node().await;
    let reader = node.other();
    // Its conditions are judged by the dirty object, which a reader may know.
    let removal = reader.delete("/b/tmp/k").header("if-match", "\"another\"");
    assert_eq!(removal.send().await.status, StatusCode::PRECONDITION_FAILED);
    node.lake.deny(OTHER_KEY, Access::Write, "b/tmp");
    for call in [
        reader.delete("/b/tmp/k"),
        reader.put("/b/tmp/k", "theirs"),
        reader.put("/b/tmp/k?tagging", "<Tagging/>"),
    ] {
        assert_eq!(call.send().await.status, StatusCode::FORBIDDEN);
    }
    reads(&reader, "tmp/k", &bytes(1)).await;
    // Another name, because a refusal is remembered for some seconds.
    write_back(&node.client(), "tmp/l", &bytes(2)).await;
    node.lake.allow(OTHER_KEY, Access::Write, "b/tmp");
    let removal = reader.delete("/b/tmp/l").header("if-match", "\"another\"");
    assert_eq!(removal.send().await.status, StatusCode::PRECONDITION_FAILED);
    reads(&reader, "tmp/l", &bytes(2)).await;
    assert!(node.lake.object("b", "tmp/k").is_none() && node.lake.object("b", "tmp/l").is_none());
    node.stop().await;
}
