//! Objects that come in parts and go through the cache.

use bytes::Bytes;
use http::StatusCode;

use crate::client::{Client, Reply};
use crate::cluster::Cluster;
use crate::lake::{Content, Request};
use crate::node::{BLOCK, Node};

/// Parts that end within blocks, one of them on a block's end.
fn parts(seed: u64) -> Vec<Bytes> {
    let sizes = [3 * BLOCK + 1_000, BLOCK - 1_000, 10, 2 * BLOCK + 7].into_iter();
    sizes
        .zip(seed..)
        .map(|(size, seed)| Content::synthetic(size, seed).all())
        .collect()
}

async fn begin(client: &Client, key: &str) -> String {
    let begun = client.post(&format!("/b/{key}?uploads"), "").send().await;
    let text = begun.text();
    let (_, rest) = text.split_once("<UploadId>").unwrap();
    rest.split_once('<').unwrap().0.into()
}

async fn put(client: &Client, key: &str, id: &str, number: usize, part: &Bytes) -> Reply {
    let target = format!("/b/{key}?partNumber={number}&uploadId={id}");
    let put = client
        .put(&target, part.clone())
        .header("x-shoal-write", "through");
    let reply = put.send().await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    reply
}

/// Completes an upload of all parts that the lake has of it.
async fn complete(client: &Client, key: &str, id: &str) -> Reply {
    let complete = client.post(&format!("/b/{key}?uploadId={id}"), "<CompleteMultipartUpload/>");
    let reply = complete.header("x-shoal-write", "through").send().await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    reply
}

#[tokio::test]
async fn an_object_written_in_parts_is_read_at_once_without_the_lakes_bytes() {
    let node = Node::start().await;
    let (client, parts) = (node.client(), parts(1));
    let id = begin(&client, "k").await;
    for number in [2, 4, 1, 3] {
        let reply = put(&client, "k", &id, number, &parts[number - 1]).await;
        assert_eq!(
            reply.header("x-shoal-write"),
            Some("through"),
            "{:?}",
            reply.header("x-cache-reason")
        );
    }
    let completed = complete(&client, "k", &id).await;
    assert_eq!(completed.header("x-shoal-write"), Some("through"));
    node.settle().await;
    let read = client.get("/b/k").send().await;
    assert!(read.body == parts.concat());
    assert_eq!(read.header("x-cache"), Some("REVALIDATED"));
    let asked_for_bytes = |request: &Request| request.is_get() && request.header("if-none-match").is_none();
    assert_eq!(node.lake.count(asked_for_bytes), 0);
    assert_eq!(
        node.store().counters().blocks,
        7,
        "of the object; its parts are gone"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_part_that_is_sent_again_is_the_one_that_counts() {
    let node = Node::start().await;
    let (client, parts) = (node.client(), parts(2));
    let id = begin(&client, "k").await;
    put(&client, "k", &id, 1, &parts[0]).await;
    put(&client, "k", &id, 1, &parts[3]).await;
    put(&client, "k", &id, 2, &parts[1]).await;
    complete(&client, "k", &id).await;
    node.settle().await;
    let read = client.get("/b/k").send().await;
    assert!(read.body == [&parts[3][..], &parts[1]].concat());
    assert_eq!(read.header("x-cache"), Some("REVALIDATED"));
    node.stop().await;
}

#[tokio::test]
async fn an_object_with_a_part_that_went_another_way_is_the_lakes_alone() {
    let cluster = Cluster::start(2).await;
    let clients = [cluster.nodes[0].client(), cluster.nodes[1].client()];
    let parts = parts(3);
    let id = begin(&clients[0], "k").await;
    for (part, number) in parts.iter().zip(1..) {
        put(&clients[number % 2], "k", &id, number, part).await;
    }
    complete(&clients[0], "k", &id).await;
    for client in &clients {
        let read = client.get("/b/k").send().await;
        assert!(read.body == parts.concat());
    }
    cluster.stop().await;
}

#[tokio::test]
async fn an_upload_that_is_given_up_leaves_nothing_in_the_cache() {
    let node = Node::start().await;
    let client = node.client();
    let id = begin(&client, "k").await;
    put(&client, "k", &id, 1, &parts(4)[0]).await;
    let aborted = client.delete(&format!("/b/k?uploadId={id}")).send().await;
    assert_eq!(aborted.status, StatusCode::NO_CONTENT);
    assert!(super::keeps_nothing(&node).await);
    node.stop().await;
}

#[tokio::test]
async fn parts_of_one_object_hand_its_blocks_to_their_homes() {
    let cluster = Cluster::start(3).await;
    let (client, parts) = (cluster.nodes[0].client(), parts(5));
    let id = begin(&client, "k").await;
    for (part, number) in parts.iter().zip(1..) {
        put(&client, "k", &id, number, part).await;
    }
    complete(&client, "k", &id).await;
    cluster.settle().await;
    let fetched = cluster.lake.count(Request::is_get);
    for node in &cluster.nodes {
        let read = node.client().get("/b/k").send().await;
        assert!(read.body == parts.concat());
    }
    let opened = cluster.lake.count(Request::is_get) - fetched;
    assert!(
        opened <= 2,
        "each node may ask the lake whether its reader may read: {opened}"
    );
    cluster.stop().await;
}
