//! Stories of the requests to the lake for a write through the node, and for the next read.

use bytes::Bytes;
use http::StatusCode;

use super::{bytes, through, write_through};
use crate::client::Reply;
use crate::lake::{Access, Fault, Object, Request};
use crate::node::{Node, OTHER_KEY};

async fn read(node: &Node, expected: &Bytes) -> Reply {
    let reply = node.client().get("/b/k").send().await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.code());
    assert!(reply.body == expected);
    reply
}

fn is_write(request: &Request) -> bool {
    request.is_put()
}

#[tokio::test]
async fn a_write_asks_the_lake_for_nothing_more_and_its_first_read_for_no_bytes() {
    let node = Node::start_immutable().await;
    write_through(&node, "k", &bytes(1)).await;
    node.settle().await;
    assert_eq!(node.lake.requests().len(), 1, "{:?}", node.lake.requests());
    read(&node, &bytes(1)).await;
    assert_eq!(node.lake.requests().len(), 2);
    let again = read(&node, &bytes(1)).await;
    assert_eq!(again.header("x-cache"), Some("HIT"));
    assert_eq!(
        node.lake.requests().len(),
        2,
        "what never changes is asked for once"
    );
    assert_eq!(node.lake.body_bytes_sent(), 0);
    node.stop().await;
}

#[tokio::test]
async fn a_small_object_is_read_at_once_without_the_lakes_bytes() {
    let node = Node::start().await;
    for number in 0..20 {
        let small = Bytes::from(vec![number; 1_000]);
        write_through(&node, "k", &small).await;
        let reply = read(&node, &small).await;
        assert_eq!(reply.header("x-cache"), Some("REVALIDATED"), "{number}");
    }
    assert_eq!(node.lake.body_bytes_sent(), 0);
    node.stop().await;
}

#[tokio::test]
async fn a_block_that_waits_for_the_disk_is_read_from_memory() {
    let node = Node::start().await;
    // This process may be stopped for as long as a block waits; hardly ever each time.
    for number in 0..20 {
        let object = bytes(number);
        let key = format!("k{number}");
        write_through(&node, &key, &object).await;
        let reply = node.client().get(&format!("/b/{key}")).send().await;
        let is_on_disk = node.store().counters().blocks > 0;
        assert!(reply.body == object);
        assert_eq!(reply.header("x-cache"), Some("REVALIDATED"));
        assert_eq!(node.lake.body_bytes_sent(), 0);
        if !is_on_disk {
            node.settle().await;
            assert_eq!(node.store().counters().blocks, 4 * (number + 1));
            return node.stop().await;
        }
    }
    panic!("a read waited for the disk");
}

#[tokio::test]
async fn a_read_tells_the_headers_of_the_lake_and_not_those_of_the_write() {
    let node = Node::start().await;
    let put = through(&node, "k", &bytes(2)).header("x-amz-meta-colour", "blue");
    assert_eq!(put.send().await.status, StatusCode::OK);
    node.settle().await;
    // The same bytes have the same ETag.
    let repainted = Object::new(bytes(2)).header("x-amz-meta-colour", "red");
    node.lake.put("b", "k", repainted);
    let node = node.restart_after(|_| ()).await;
    let etag = node.lake.object("b", "k").unwrap().etag;
    let known = node.client().get("/b/k").header("if-none-match", etag);
    let known = known.send().await;
    assert_eq!(known.status, StatusCode::NOT_MODIFIED);
    assert!(known.header("last-modified").is_some());
    let reply = read(&node, &bytes(2)).await;
    assert_eq!(reply.header("last-modified"), known.header("last-modified"));
    assert_eq!(reply.header("x-amz-meta-colour"), Some("red"));
    assert_eq!(node.lake.body_bytes_sent(), 0);
    node.stop().await;
}

#[tokio::test]
async fn of_two_writers_the_one_that_the_lake_has_is_read() {
    let node = Node::start_immutable().await;
    write_through(&node, "k", &bytes(3)).await;
    node.settle().await;
    node.lake.put("b", "k", bytes(4));
    read(&node, &bytes(4)).await;
    let target = "/b/k";
    let put = |seed| {
        node.client()
            .put(target, bytes(seed))
            .header("x-shoal-write", "through")
            .send()
    };
    for round in 5..15 {
        let (one, other) = tokio::join!(put(2 * round), put(2 * round + 1));
        assert_eq!((one.status, other.status), (StatusCode::OK, StatusCode::OK));
        let theirs = node.lake.object("b", "k").unwrap().content.all();
        read(&node, &theirs).await;
    }
    node.stop().await;
}

#[tokio::test]
async fn a_writer_without_read_permission_reads_nothing_and_others_read_its_object() {
    let node = Node::start_immutable().await;
    node.lake.deny(OTHER_KEY, Access::Read, "b/k");
    let put = node
        .other()
        .put("/b/k", bytes(5))
        .header("x-shoal-write", "through");
    assert_eq!(put.send().await.status, StatusCode::OK);
    node.settle().await;
    node.is_not_readable_by_others("/b/k").await;
    read(&node, &bytes(5)).await;
    node.stop().await;
}

#[tokio::test]
async fn an_etag_that_is_no_md5_names_a_version_like_any_other() {
    let node = Node::start().await;
    let theirs = "\"0f343b0931126a20f133d67c2b018a3b-kms\"";
    node.lake
        .misbehave(Fault::new().with_header("etag", theirs).when(is_write));
    write_through(&node, "k", &bytes(6)).await;
    node.settle().await;
    node.lake.put("b", "k", Object::new(bytes(6)).etag(theirs));
    let reply = read(&node, &bytes(6)).await;
    assert_eq!(reply.header("etag"), Some(theirs));
    assert_eq!(node.lake.body_bytes_sent(), 0);
    node.stop().await;
}

#[tokio::test]
async fn an_object_with_another_etag_than_its_write_had_is_read_from_the_lake() {
    let node = Node::start().await;
    let otherwise = Fault::new().with_header("etag", "\"another\"");
    node.lake.misbehave(otherwise.when(is_write));
    write_through(&node, "k", &bytes(7)).await;
    node.settle().await;
    read(&node, &bytes(7)).await;
    assert_eq!(node.lake.body_bytes_sent(), bytes(7).len() as u64);
    node.stop().await;
}

#[tokio::test]
async fn an_etag_that_no_condition_can_ask_for_names_no_version() {
    let node = Node::start().await;
    for etag in ["W/\"weak\"", "*"] {
        let odd = || Fault::new().with_header("etag", etag);
        node.lake.misbehave(odd().when(is_write));
        let reply = through(&node, "k", &bytes(8)).send().await;
        assert_eq!(reply.status, StatusCode::OK);
        assert_eq!(reply.header("x-shoal-write"), Some("around"));
        assert_eq!(reply.header("x-cache-reason"), Some("no-etag"));
        assert!(super::keeps_nothing(&node).await);
        node.lake.misbehave(odd().when(Request::is_get));
        let reply = node.client().get("/b/k").send().await;
        assert_eq!((reply.status, &reply.body), (StatusCode::OK, &bytes(8)), "{etag}");
        assert_eq!(reply.header("x-cache-reason"), Some("no-etag"));
        node.settle().await;
        assert!(super::keeps_nothing(&node).await);
        node.lake.behave();
    }
    read(&node, &bytes(8)).await;
    node.stop().await;
}
