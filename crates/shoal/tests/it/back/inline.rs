//! Small objects, whose bytes the registry of a tier keeps itself.

use bytes::Bytes;
use http::StatusCode;
use shoal_node::config::Config;
use shoal_registry::engine::embedded::Embedded;
use shoal_registry::engine::{Change, Engine as _, Transaction};

use super::store::Beside;
use super::{assert_back, back, flush, reads, texts, write_back};
use crate::lake::{Content, Fault, Request};
use crate::node::Node;
use crate::waiting::{until, value};

const SMALL: u64 = 4 << 10;

fn small(seed: u64) -> Bytes {
    Content::synthetic(SMALL, seed).all()
}

/// Returns true for a request about a piece.
fn is_of_piece(request: &Request) -> bool {
    request.key.starts_with(b"pieces/")
}

async fn node(beside: &Beside, change: impl FnOnce(&mut Config)) -> Node {
    let node = Node::start_with(|config| {
        beside.back(config);
        change(config);
    })
    .await;
    beside.store.forget_requests();
    node
}

#[tokio::test]
async fn a_small_object_is_written_read_copied_and_flushed_without_the_store() {
    let beside = Beside::start().await;
    let node = node(&beside, |_| ()).await;
    let client = node.client();
    let put = client
        .put("/b/tmp/k", small(1))
        .header("x-amz-meta-colour", "blue");
    let put = put.send().await;
    assert_back(&put);
    let read = reads(&client, "tmp/k", &small(1)).await;
    assert_eq!(read.header("etag"), put.header("etag"));
    assert_eq!(read.header("x-amz-meta-colour"), Some("blue"));
    let range = client.get("/b/tmp/k").range("bytes=10-19").send().await;
    assert!(range.status == StatusCode::PARTIAL_CONTENT && range.body == small(1).slice(10..20));
    let copy = client
        .put("/b/tmp/copy", "")
        .header("x-amz-copy-source", "/b/tmp/k");
    assert_back(&copy.send().await);
    write_back(&client, "tmp/k", &small(2)).await;
    reads(&client, "tmp/copy", &small(1)).await;
    let page = client.get("/b?list-type=2").send().await;
    assert_eq!(texts(&page, "Key"), ["tmp/copy", "tmp/k"]);
    assert_eq!(node.status().await["write_back"]["bytes"], 2 * SMALL);
    assert_eq!(flush(&node, "").await["flush"]["failed"], 0);
    for (key, seed) in [("tmp/copy", 1), ("tmp/k", 2)] {
        assert!(node.lake.object("b", key).unwrap().content.all() == small(seed));
        reads(&client, key, &small(seed)).await;
    }
    assert_eq!(
        node.lake.count(Request::is_get),
        0,
        "a flush leaves the blocks in the cache"
    );
    assert_eq!(beside.store.count(is_of_piece), 0);
    assert_eq!(node.status().await["write_back"]["bytes"], 0);
    node.stop().await;
}

#[tokio::test]
async fn larger_objects_and_all_with_inline_0_are_pieces() {
    let beside = Beside::start().await;
    let larger = Content::synthetic(SMALL + 1, 1).all();
    let of_default = node(&beside, |_| ()).await;
    write_back(&of_default.client(), "tmp/k", &larger).await;
    assert_eq!(
        beside
            .store
            .count(|request| is_of_piece(request) && request.is_put()),
        1
    );
    reads(&of_default.client(), "tmp/k", &larger).await;
    of_default.stop().await;
    let beside = Beside::start().await;
    let off = node(&beside, |config| config.tiers[0].inline_bytes = 0).await;
    write_back(&off.client(), "tmp/k", &small(1)).await;
    assert_eq!(
        beside
            .store
            .count(|request| is_of_piece(request) && request.is_put()),
        1
    );
    off.stop().await;
}

#[tokio::test]
async fn small_objects_are_written_back_while_the_store_is_away() {
    let beside = Beside::start().await;
    let node = node(&beside, |_| ()).await;
    beside.store.misbehave(Fault::status(503).always());
    let larger = Content::synthetic(SMALL + 1, 1).all();
    until("the node notices that the store is away", async || {
        let put = node.client().put("/b/tmp/larger", larger.clone()).send().await;
        put.header("x-cache-reason") == Some("tier-unavailable")
    })
    .await;
    write_back(&node.client(), "tmp/k", &small(1)).await;
    reads(&node.client(), "tmp/k", &small(1)).await;
    assert_eq!(flush(&node, "").await["flush"]["failed"], 0);
    assert!(node.lake.object("b", "tmp/k").unwrap().content.all() == small(1));
    node.stop().await;
}

#[tokio::test]
async fn small_objects_count_for_the_capacity_and_a_flush_makes_room() {
    let node = Node::start_with(|config| {
        back(config);
        config.tiers = vec![crate::node::tier(config.store.path.with_file_name("tier"))];
        config.tiers[0].capacity_bytes = 2 * SMALL + 100;
    })
    .await;
    let client = node.client();
    for key in ["tmp/1", "tmp/2"] {
        write_back(&client, key, &small(1)).await;
    }
    let third = client.put("/b/tmp/3", small(3)).send().await;
    assert_eq!(third.status, StatusCode::OK);
    assert_eq!(third.header("x-cache-reason"), Some("too-dirty"));
    assert_eq!(flush(&node, "").await["flush"]["failed"], 0);
    write_back(&client, "tmp/4", &small(4)).await;
    node.stop().await;
}

#[tokio::test]
async fn a_body_with_another_digest_leaves_nothing() {
    let node = Node::start_with(back).await;
    let client = node.client();
    let call = client
        .put("/b/tmp/k", small(1))
        .header("content-md5", "rL0Y20zC+Fzt72VPzMSk2A==");
    assert_eq!(call.send().await.status, StatusCode::BAD_REQUEST);
    assert_eq!(client.get("/b/tmp/k").send().await.status, StatusCode::NOT_FOUND);
    node.stop().await;
}

#[tokio::test]
async fn a_flipped_bit_in_the_registry_reaches_no_reader_and_not_the_lake() {
    let beside = Beside::start().await;
    let node = node(&beside, |_| ()).await;
    write_back(&node.client(), "tmp/k", &small(1)).await;
    let stopped = node.halt().await;
    // The node may still have it open.
    let open = async || Embedded::open(beside.registry.path());
    let engine = value("the registry is free", open, Result::is_ok).await.unwrap();
    let key = Bytes::from("c/b/tmp/k");
    let mut stored = engine.get(&key).await.unwrap().unwrap().value.to_vec();
    *stored.last_mut().unwrap() ^= 1;
    let change = Change::put(key, stored.into());
    engine.commit(Transaction::from(change)).await.unwrap();
    drop(engine);
    let node = stopped.start().await;
    let client = node.client();
    let read = client.get("/b/tmp/k").send().await;
    assert_eq!(read.status, StatusCode::SERVICE_UNAVAILABLE);
    let copy = client
        .put("/b/tmp/copy", "")
        .header("x-amz-copy-source", "/b/tmp/k");
    assert_eq!(copy.send().await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(flush(&node, "").await["flush"]["failed"], 1);
    assert!(node.lake.object("b", "tmp/k").is_none());
    let conditions = node.status().await["conditions"].to_string();
    assert!(
        conditions.contains("wrong-bytes") && conditions.contains("s3://b/tmp/k"),
        "{conditions}"
    );
    // An overwrite ends it.
    write_back(&client, "tmp/k", &small(2)).await;
    reads(&client, "tmp/k", &small(2)).await;
    assert_eq!(flush(&node, "").await["flush"]["failed"], 0);
    node.stop().await;
}
