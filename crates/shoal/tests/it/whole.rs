//! Stories of what the lake sends for an object that is not the object.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;

use crate::client::Reply;
use crate::cluster::Cluster;
use crate::lake::{Fault, Object, Request};
use crate::node::{BLOCK, Node};
use crate::read::{cache, put};

/// The CRC-32 of "some bytes".
const CRC32: &str = "n1l/VQ==";

async fn get(node: &Node) -> Reply {
    node.client().get("/b/k").send().await
}

fn reason(reply: &Reply) -> Option<&str> {
    reply.header("x-cache-reason")
}

/// An answer to a GET with the ETag of the object and these other headers and bytes.
fn answered_with(node: &Node, head: &str, body: &[u8]) -> Fault {
    let etag = node.lake.object("b", "k").unwrap().etag;
    let mut answer = format!("HTTP/1.1 {head}\r\netag: {etag}\r\nconnection: close\r\n\r\n").into_bytes();
    answer.extend_from_slice(body);
    Fault::raw(answer).when(Request::is_get).times(1)
}

#[tokio::test]
async fn an_answer_of_another_length_or_encoding_is_never_taken_for_a_block() {
    let zeros = vec![0; 4 * BLOCK as usize];
    let size = zeros.len();
    let block = BLOCK as usize;
    let part = format!("content-range: bytes {}-{}/{size}", 2 * block, 3 * block - 1);
    let answers = [
        (
            format!("200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {size}"),
            size,
        ),
        (format!("200 OK\r\ncontent-length: {}", size - 1), size - 1),
        ("200 OK".to_owned(), size),
        (
            format!("206 Partial Content\r\n{part}\r\ncontent-encoding: gzip\r\ncontent-length: {block}"),
            block,
        ),
    ];
    for (head, length) in answers {
        let node = Node::start_immutable().await;
        let bytes = put(&node, size as u64);
        node.client().get("/b/k").range("bytes=0-9").send().await;
        node.settle().await;
        node.lake.misbehave(answered_with(&node, &head, &zeros[..length]));
        let range = format!("bytes={}-{}", 2 * block, 2 * block + 9);
        let ask = || node.client().get("/b/k").range(&range).send();
        let first = ask().await;
        assert_eq!(first.body, bytes[2 * block..2 * block + 10], "{head}");
        assert_eq!(
            (cache(&first), reason(&first)),
            ("BYPASS", Some("mismatch")),
            "{head}"
        );
        node.settle().await;
        assert_eq!(ask().await.body, bytes[2 * block..2 * block + 10], "{head}");
        assert_eq!(get(&node).await.body, bytes, "{head}");
        node.stop().await;
    }
}

#[tokio::test]
async fn an_object_that_the_lake_stores_encoded_is_read_as_it_is() {
    let node = Node::start().await;
    let object = Object::new(vec![7; 3 * BLOCK as usize]).header("content-encoding", "gzip");
    node.lake.put("b", "k", object);
    node.client().get("/b/k").range("bytes=0-9").send().await;
    node.settle().await;
    let reply = get(&node).await;
    assert_eq!(
        (reply.header("content-encoding"), cache(&reply)),
        (Some("gzip"), "PARTIAL")
    );
    assert_eq!(reply.body, vec![7; 3 * BLOCK as usize]);
    node.stop().await;
}

#[tokio::test]
async fn the_lake_is_asked_for_no_encoding_whatever_a_client_understands() {
    let cluster = Cluster::start(2).await;
    let bytes = cluster.put("k", 6);
    for node in &cluster.nodes {
        let call = node.client().get("/b/k").header("accept-encoding", "gzip, br");
        assert_eq!(call.send().await.body, bytes);
    }
    let asked = cluster.lake.requests();
    assert!(asked.iter().any(Request::is_get));
    for request in asked {
        assert_eq!(request.header("accept-encoding"), Some("identity"), "{request:?}");
    }
    cluster.stop().await;
}

/// A node that has seen that this lake's ETags are MD5s.
async fn node_that_trusts_etags() -> Node {
    let node = Node::start().await;
    node.lake.put("b", "other", "other bytes");
    node.client().get("/b/other").send().await;
    node.settle().await;
    node
}

fn damaged() -> Fault {
    Fault::new().damaged().when(Request::is_get)
}

/// One read meets damage. It and all later ones get the right bytes, and none of the others is kept.
async fn is_never_kept(node: &Node, bytes: &Bytes, ask: impl Fn() -> crate::client::Call) {
    let before = node.store().counters().blocks;
    node.lake.misbehave(damaged().times(1));
    for turn in ["damaged", "after"] {
        let reply = ask().send().await;
        assert_eq!((reply.status, &reply.body), (StatusCode::OK, bytes), "{turn}");
        assert_eq!(
            (cache(&reply), reason(&reply)),
            ("BYPASS", Some("mismatch")),
            "{turn}"
        );
        node.settle().await;
        assert_eq!(node.store().counters().blocks, before, "{turn}");
    }
}

#[tokio::test]
async fn a_small_object_that_has_not_the_md5_of_its_etag_is_not_kept() {
    let node = node_that_trusts_etags().await;
    let bytes = put(&node, 1000);
    is_never_kept(&node, &bytes, || node.client().get("/b/k")).await;
    node.stop().await;
}

#[tokio::test]
async fn an_object_that_has_not_the_checksum_of_the_lake_is_not_kept() {
    let node = Node::start().await;
    let object = Object::new("some bytes").etag("\"no md5\"");
    node.lake
        .put("b", "k", object.header("x-amz-checksum-crc32", CRC32));
    let bytes = Bytes::from("some bytes");
    let ask = || node.client().get("/b/k").header("x-amz-checksum-mode", "ENABLED");
    is_never_kept(&node, &bytes, ask).await;
    node.stop().await;
}

#[tokio::test]
async fn an_object_that_has_its_checksum_is_kept() {
    let node = Node::start().await;
    node.lake.put(
        "b",
        "k",
        Object::new("some bytes").header("x-amz-checksum-crc32", CRC32),
    );
    let ask = || {
        node.client()
            .get("/b/k")
            .header("x-amz-checksum-mode", "ENABLED")
            .send()
    };
    assert_eq!(cache(&ask().await), "MISS");
    node.settle().await;
    let warm = ask().await;
    assert_eq!(
        (cache(&warm), warm.header("x-amz-checksum-crc32")),
        ("REVALIDATED", Some(CRC32))
    );
    node.stop().await;
}

#[tokio::test]
async fn a_reader_that_has_begun_is_cut_off_before_the_last_byte_of_another_object() {
    let node = node_that_trusts_etags().await;
    let bytes = put(&node, 16_000);
    let in_pieces = damaged().paced(4_000, Duration::from_millis(20));
    node.lake.misbehave(in_pieces.times(1));
    assert!(node.client().get("/b/k").try_send().await.is_err());
    node.settle().await;
    assert_eq!(node.store().counters().blocks, 1, "the other one");
    assert_eq!(get(&node).await.body, bytes);
    node.stop().await;
}

#[tokio::test]
async fn a_block_whose_head_comes_last_is_proven_as_a_whole() {
    let node = node_that_trusts_etags().await;
    let bytes = put(&node, 16_000);
    node.lake.misbehave(damaged().times(1));
    // It begins inside the block: the damage is in what the reader wants, the proof comes with the head.
    node.client().get("/b/k").range("bytes=15990-").send().await;
    node.settle().await;
    assert_eq!(node.store().counters().blocks, 1, "the other one");
    assert_eq!(get(&node).await.body, bytes);
    node.stop().await;
}

#[tokio::test]
async fn an_etag_that_is_no_md5_keeps_no_object_from_the_cache() {
    let node = Node::start().await;
    let object = Object::new("some bytes").etag("\"00112233445566778899aabbccddeeff\"");
    node.lake.put("b", "k", object);
    assert_eq!(cache(&get(&node).await), "MISS");
    node.settle().await;
    let warm = get(&node).await;
    assert_eq!((warm.text(), cache(&warm)), ("some bytes", "REVALIDATED"));
    node.stop().await;
}

#[tokio::test]
async fn damage_reaches_no_node_of_a_cluster() {
    let cluster = Cluster::start(3).await;
    for key in ["k0", "k1", "k2", "k3"] {
        let object = Object::new("some bytes").header("x-amz-checksum-crc32", CRC32);
        cluster.lake.put("b", key, object);
        cluster.lake.misbehave(damaged().times(1));
        for node in &cluster.nodes {
            let call = node.client().get(&format!("/b/{key}"));
            let reply = call.header("x-amz-checksum-mode", "ENABLED").send().await;
            assert_eq!(reply.text(), "some bytes", "{key}");
        }
        cluster.settle().await;
        cluster.lake.behave();
    }
    cluster.stop().await;
}
