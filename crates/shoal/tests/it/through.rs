//! Stories of how objects are written: around the cache, or through it.

mod asking;
mod parts;

use bytes::Bytes;
use http::StatusCode;
use shoal_node::config::{WriteMode, WriteRule};

use crate::client::{Call, Payload, Reply};
use crate::lake::{Access, Content, Request};
use crate::node::{BLOCK, Node, OTHER_KEY};
use crate::waiting::until;
use crate::write::modes;

/// An object of some blocks, the last one short.
fn bytes(seed: u64) -> Bytes {
    Content::synthetic(3 * BLOCK + 1_000, seed).all()
}

/// With so little memory that the first blocks of such an object are on the disk before it is whole.
async fn node_short_of_memory() -> Node {
    Node::start_with(|config| config.limits.fill_bytes = 8 * BLOCK).await
}

fn through(node: &Node, key: &str, bytes: &Bytes) -> Call {
    let put = node.client().put(&format!("/b/{key}"), bytes.clone());
    put.header("x-shoal-write", "through")
}

async fn write_through(node: &Node, key: &str, bytes: &Bytes) -> Reply {
    let reply = through(node, key, bytes).send().await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    assert_eq!(
        reply.header("x-shoal-write"),
        Some("through"),
        "{:?}",
        reply.header("x-cache-reason")
    );
    reply
}

/// Waits until no written block is on the disk without a name. Returns whether none is there with a name.
async fn keeps_nothing(node: &Node) -> bool {
    node.settle().await;
    let aside = node.store_path().join("aside");
    let has_none = async || std::fs::read_dir(&aside).unwrap().count() == 0;
    until("no block without a name is on the disk", has_none).await;
    node.store().counters().blocks == 0
}

#[tokio::test]
async fn an_unknown_mode_is_refused_and_nothing_is_written() {
    let node = Node::start().await;
    for (word, status, code) in [
        ("beside", StatusCode::BAD_REQUEST, "InvalidArgument"),
        ("back", StatusCode::BAD_REQUEST, "InvalidArgument"),
    ] {
        let put = node.client().put("/b/k", "bytes").header("x-shoal-write", word);
        let reply = put.send().await;
        assert_eq!((reply.status, reply.code()), (status, code));
        assert!(
            reply.text().contains("through"),
            "the modes are named: {}",
            reply.text()
        );
        assert!(node.lake.object("b", "k").is_none());
    }
    node.stop().await;
}

#[tokio::test]
async fn the_mode_of_a_write_is_this_nodes_alone() {
    let node = Node::start().await;
    for mode in ["around", "through"] {
        let put = node.client().put("/b/k", "bytes").header("x-shoal-write", mode);
        assert_eq!(put.send().await.status, StatusCode::OK);
    }
    let told = |request: &Request| request.header("x-shoal-write").is_some();
    assert!(!node.lake.requests().iter().any(told), "the lake hears of it");
    assert_eq!(node.client().get("/b/k").send().await.body, "bytes");
    node.stop().await;
}

#[tokio::test]
async fn an_object_written_through_is_read_at_once_without_the_lakes_bytes() {
    for node in [Node::start().await, node_short_of_memory().await] {
        Box::pin(is_read_at_once(node)).await;
    }
}

async fn is_read_at_once(node: Node) {
    for (number, mode) in modes().into_iter().enumerate() {
        let (key, bytes) = (format!("k{number}"), bytes(number as u64));
        let put = through(&node, &key, &bytes).payload(mode);
        let reply = put.header("x-amz-meta-colour", "blue").send().await;
        assert_eq!(reply.header("x-shoal-write"), Some("through"), "{mode:?}");
        let read = node.client().get(&format!("/b/{key}")).send().await;
        assert!(read.body == bytes, "{mode:?}");
        assert_eq!(read.header("x-cache"), Some("REVALIDATED"), "{mode:?}");
        assert_eq!(read.header("x-amz-meta-colour"), Some("blue"));
        // Blocks that wait for the disk take up the little memory that there is.
        node.settle().await;
    }
    assert_eq!(node.lake.body_bytes_sent(), 0);
    node.stop().await;
}

#[tokio::test]
async fn an_object_written_through_outlives_the_node_with_the_lakes_description() {
    for node in [Node::start().await, node_short_of_memory().await] {
        Box::pin(outlives_the_node(node)).await;
    }
}

async fn outlives_the_node(node: Node) {
    let bytes = bytes(2);
    let put = through(&node, "k", &bytes).header("content-type", "text/x-story");
    assert_eq!(put.send().await.status, StatusCode::OK);
    node.settle().await;
    let node = node.restart_after(|_| ()).await;
    let (read, head) = (
        node.client().get("/b/k").send().await,
        node.client().head("/b/k").send().await,
    );
    assert!(read.body == bytes);
    for name in ["etag", "last-modified", "content-type"] {
        assert!(read.header(name).is_some(), "{name}");
        assert_eq!(read.header(name), head.header(name), "{name}");
    }
    assert_eq!(node.lake.body_bytes_sent(), 0);
    node.stop().await;
}

#[tokio::test]
async fn objects_below_a_prefix_are_written_as_its_rule_says() {
    let rule = WriteRule::new("s3://b/x/", WriteMode::Through);
    let node = Node::start_with(|config| config.write.rules = vec![rule]).await;
    let bytes = bytes(3);
    for (key, cached) in [("x/k", Some("through")), ("y/k", None)] {
        let reply = node
            .client()
            .put(&format!("/b/{key}"), bytes.clone())
            .send()
            .await;
        assert_eq!(reply.header("x-shoal-write"), cached, "{key}");
        node.lake.forget_requests();
        node.client().get(&format!("/b/{key}")).send().await;
        assert_eq!(node.lake.body_bytes_sent() == 0, cached.is_some(), "{key}");
    }
    node.stop().await;
}

#[tokio::test]
async fn bytes_that_are_not_what_was_signed_are_not_cached() {
    for node in [Node::start().await, node_short_of_memory().await] {
        Box::pin(keeps_nothing_of_other_bytes(node)).await;
    }
}

async fn keeps_nothing_of_other_bytes(node: Node) {
    for mode in modes().into_iter().filter(|mode| *mode != Payload::Unsigned) {
        let put = through(&node, "k", &bytes(4)).payload(mode).tampered(|request| {
            let mut bytes = request.body().to_vec();
            // Inside the data of the last block, when others may be on the disk.
            bytes[3 * BLOCK as usize] ^= 1;
            *request.body_mut() = bytes.into();
        });
        // The node may close the connection while the client still sends.
        if let Ok(reply) = put.try_send().await {
            assert!(reply.status.is_client_error(), "{mode:?}: {}", reply.status);
        }
        assert!(keeps_nothing(&node).await, "{mode:?}");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_write_that_the_lake_refuses_is_not_cached() {
    let node = Node::start().await;
    node.lake.deny(OTHER_KEY, Access::Write, "b/k");
    let put = node
        .other()
        .put("/b/k", bytes(5))
        .header("x-shoal-write", "through");
    let reply = put.send().await;
    assert_eq!(reply.status, StatusCode::FORBIDDEN);
    assert_eq!(reply.header("x-shoal-write"), None);
    assert!(keeps_nothing(&node).await);
    node.stop().await;
}

#[tokio::test]
async fn a_cached_write_is_no_permission_for_others() {
    let node = Node::start_immutable().await;
    node.lake.deny(OTHER_KEY, Access::Read, "b/k");
    write_through(&node, "k", &bytes(7)).await;
    node.is_not_readable_by_others("/b/k").await;
    node.stop().await;
}

#[tokio::test]
async fn a_write_replaces_what_was_written_before_and_a_delete_takes_it_away() {
    let node = Node::start_immutable().await;
    let (first, second) = (bytes(8), bytes(9));
    write_through(&node, "k", &first).await;
    write_through(&node, "k", &second).await;
    assert!(node.client().get("/b/k").send().await.body == second);
    write_through(&node, "other", &first).await;
    let copy = node
        .client()
        .put("/b/k", "")
        .header("x-amz-copy-source", "/b/other");
    let copied = copy.header("x-shoal-write", "through").send().await;
    assert_eq!(copied.header("x-cache-reason"), Some("copy"), "{}", copied.text());
    assert!(node.client().get("/b/k").send().await.body == first);
    node.client().delete("/b/k").send().await;
    assert_eq!(
        node.client().get("/b/k").send().await.status,
        StatusCode::NOT_FOUND
    );
    node.stop().await;
}

#[tokio::test]
async fn an_object_encrypted_with_the_clients_key_is_never_cached() {
    let node = Node::start().await;
    let put = through(&node, "k", &bytes(12));
    let put = put.header("x-amz-server-side-encryption-customer-algorithm", "AES256");
    let reply = put.send().await;
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(reply.header("x-shoal-write"), Some("around"));
    assert_eq!(reply.header("x-cache-reason"), Some("sse-c"));
    assert!(keeps_nothing(&node).await);
    node.stop().await;
}

#[tokio::test]
async fn a_disk_that_does_not_keep_up_costs_the_cache_and_not_the_write() {
    // Half of the window is one block, and a block waits some milliseconds for the disk.
    let node = Node::start_with(|config| config.limits.fill_bytes = 2 * BLOCK).await;
    let bytes = bytes(13);
    let reply = through(&node, "k", &bytes).send().await;
    assert_eq!(reply.status, StatusCode::OK);
    assert_eq!(reply.header("x-cache-reason"), Some("no-memory"));
    assert!(keeps_nothing(&node).await);
    assert!(node.client().get("/b/k").send().await.body == bytes);
    node.stop().await;
}

#[tokio::test]
async fn a_body_too_large_for_the_memory_goes_to_the_disk_while_it_arrives() {
    let node = Node::start().await;
    // Writes may take half of the memory, 64 blocks.
    let large = Content::synthetic(66 * BLOCK, 15).all();
    // The disk may be slower than the client; hardly ever each time.
    for number in 0..20 {
        let key = format!("k{number}");
        let reply = through(&node, &key, &large).send().await;
        assert_eq!(reply.status, StatusCode::OK);
        node.settle().await;
        if reply.header("x-shoal-write") == Some("through") {
            assert_eq!(node.store().counters().blocks, 66);
            assert!(node.client().get(&format!("/b/{key}")).send().await.body == large);
            assert_eq!(node.lake.body_bytes_sent(), 0);
            return node.stop().await;
        }
    }
    panic!("it had to fit into memory");
}

#[tokio::test]
async fn an_object_too_large_for_the_disk_displaces_nothing() {
    let node = Node::start_with(|config| config.store.capacity_bytes = 3 << 20).await;
    let large = Content::synthetic(1 << 20, 14).all();
    let reply = through(&node, "k", &large).send().await;
    assert_eq!(reply.header("x-cache-reason"), Some("too-large"));
    assert!(keeps_nothing(&node).await);
    node.stop().await;
}

#[tokio::test]
async fn an_empty_object_is_written_through_like_any_other() {
    let node = Node::start().await;
    write_through(&node, "k", &Bytes::new()).await;
    assert_eq!(node.client().get("/b/k").send().await.body, "");
    node.stop().await;
}
