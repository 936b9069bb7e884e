//! A lake whose connections break in the middle of a body.

use bytes::Bytes;
use http::StatusCode;
use shoal_node::config::FreshnessMode;

use crate::client::Client;
use crate::cluster::Cluster;
use crate::lake::{Content, Cut, Fault, Lake, Object, Request};
use crate::node::{BLOCK, Node};
use crate::read::{cache, get, put};

const BLOCKS: u64 = 5;
const SIZE: u64 = BLOCKS * BLOCK + 17;

fn offsets() -> [u64; 7] {
    [0, 1, BLOCK - 1, BLOCK, BLOCK + 7, 4 * BLOCK, SIZE - 1]
}

fn is_resumption(request: &Request) -> bool {
    request.is_get() && request.header("range").is_some() && request.header("if-match").is_some()
}

/// A new object as `b/{key}`.
fn put_as(lake: &Lake, key: &str) -> Bytes {
    let content = Content::synthetic(SIZE, key.len() as u64);
    let bytes = content.all();
    lake.put("b", key, Object::new(content));
    bytes
}

async fn reads(client: &Client, key: &str, expected: &Bytes) {
    let reply = client.get(&format!("/b/{key}")).try_send().await;
    let reply = reply.unwrap_or_else(|error| panic!("{key} is broken off: {error}"));
    assert_eq!(reply.status, StatusCode::OK, "{key}");
    assert!(reply.body == expected, "{key} has other bytes");
}

#[tokio::test]
async fn a_cold_read_goes_on_where_the_lake_broke_off() {
    let node = Node::start_with(|config| config.limits.retry_budget_percent = 100).await;
    for turn in 0..3 {
        for (cut, name) in [(Cut::Close, "closed"), (Cut::Reset, "reset")] {
            for offset in offsets() {
                let key = format!("{turn}-{name}-at-{offset}");
                let bytes = put_as(&node.lake, &key);
                node.lake.forget_requests();
                node.lake.misbehave(Fault::cut(offset, cut).when(Request::is_get));
                reads(&node.client(), &key, &bytes).await;
                assert_eq!(node.lake.count(is_resumption), 1, "{key}");
                if cut == Cut::Close {
                    assert_eq!(node.lake.body_bytes_sent(), SIZE, "{key}: no byte came twice");
                }
            }
        }
    }
    node.settle().await;
    assert_eq!(node.status().await["lake"]["resumes"], 42);
    node.stop().await;
}

#[tokio::test]
async fn a_body_that_stalls_is_asked_for_once_more_from_there() {
    let node = Node::start_with(|config| {
        config.lake.stall_timeout = Some(std::time::Duration::from_millis(200));
    })
    .await;
    for offset in [0, BLOCK + 7] {
        let key = format!("stalls-at-{offset}");
        let bytes = put_as(&node.lake, &key);
        node.lake
            .misbehave(Fault::cut(offset, Cut::Stall).when(Request::is_get));
        reads(&node.client(), &key, &bytes).await;
    }
    node.stop().await;
}

#[tokio::test]
async fn a_resumed_object_is_cached_like_any_other() {
    let node = Node::start_immutable().await;
    let bytes = put(&node, SIZE);
    node.lake
        .misbehave(Fault::cut(BLOCK + 7, Cut::Close).when(Request::is_get));
    assert_eq!(get(&node.client()).await.body, bytes);
    node.settle().await;
    node.lake.forget_requests();
    let warm = get(&node.client()).await;
    assert_eq!((&warm.body, cache(&warm)), (&bytes, "HIT"));
    assert_eq!(node.lake.count(|_| true), 0);
    node.stop().await;
}

#[tokio::test]
async fn a_range_goes_on_where_the_lake_broke_off() {
    let node = Node::start().await;
    let bytes = put(&node, SIZE);
    for (first, last) in [(0, 9), (BLOCK - 5, 3 * BLOCK), (SIZE - 100, SIZE - 1)] {
        node.lake
            .misbehave(Fault::cut(5, Cut::Close).when(Request::is_get));
        let range = format!("bytes={first}-{last}");
        let reply = node.client().get("/b/k").range(&range).send().await;
        assert_eq!(reply.body, bytes.slice(first as usize..=last as usize), "{range}");
        node.lake.behave();
    }
    node.stop().await;
}

#[tokio::test]
async fn a_body_that_is_only_relayed_goes_on_too_if_its_etag_is_a_strong_one() {
    let node = Node::start_with(|config| config.limits.retry_budget_percent = 100).await;
    let bytes = put(&node, SIZE);
    let uncached = |node: &Node| node.client().get("/b/k").header("cache-control", "no-store");
    for offset in offsets() {
        node.lake
            .misbehave(Fault::cut(offset, Cut::Close).when(Request::is_get));
        let reply = uncached(&node).send().await;
        assert_eq!((&reply.body, cache(&reply)), (&bytes, "BYPASS"), "{offset}");
        node.lake
            .misbehave(Fault::cut(10, Cut::Close).when(Request::is_get));
        let reply = uncached(&node).range("bytes=70-99").send().await;
        assert_eq!(reply.body, bytes.slice(70..100));
    }
    node.lake.forget_requests();
    for etag in ["W/\"weak\"", "*", "\"*\""] {
        let fault = Fault::cut(BLOCK, Cut::Close).with_header("etag", etag);
        node.lake.misbehave(fault.when(Request::is_get));
        assert!(uncached(&node).try_send().await.is_err(), "{etag}");
    }
    assert_eq!(node.lake.count(is_resumption), 0);
    node.stop().await;
}

#[tokio::test]
async fn an_object_that_changed_when_the_lake_broke_off_is_never_mixed() {
    for relayed in [false, true] {
        let node = Node::start().await;
        put(&node, SIZE);
        let lake = node.lake.clone();
        let changes = move || {
            lake.put("b", "k", Object::new(Content::synthetic(SIZE, 99)));
        };
        let fault = Fault::cut(2 * BLOCK, Cut::Close).after(BLOCK, changes);
        node.lake.misbehave(fault.when(Request::is_get));
        let mut ask = node.client().get("/b/k");
        if relayed {
            ask = ask.header("cache-control", "no-store");
        }
        assert!(ask.try_send().await.is_err());
        assert_eq!(node.lake.count(is_resumption), 1);
        node.stop().await;
    }
}

#[tokio::test]
async fn a_no_to_the_rest_of_a_body_ends_the_callers_grant_like_any_other() {
    for (status, relayed) in [401, 403, 404, 412]
        .into_iter()
        .flat_map(|no| [(no, false), (no, true)])
    {
        let node = Node::start_with(|config| {
            config.freshness.default = FreshnessMode::Immutable;
            config.limits.retry_budget_percent = 100;
        })
        .await;
        put(&node, SIZE);
        let mut ask = node.client().get("/b/k");
        if relayed {
            get(&node.client()).await;
            node.settle().await;
            ask = ask.header("cache-control", "no-store");
        }
        node.lake
            .misbehave(Fault::cut(2 * BLOCK, Cut::Close).when(Request::is_get));
        node.lake.misbehave(Fault::status(status).when(is_resumption));
        let _ = ask.try_send().await;
        node.settle().await;
        assert!(node.lake.count(is_resumption) > 0);
        let next = node.client().get("/b/k").range("bytes=0-9").send().await;
        assert_ne!(cache(&next), "HIT", "after {status}, relayed: {relayed}");
        node.stop().await;
    }
}

#[tokio::test]
async fn a_lake_that_always_breaks_off_ends_in_an_error_and_not_in_a_loop() {
    let node = Node::start_with(|config| config.limits.retry_budget_percent = 100).await;
    put(&node, SIZE);
    for offset in [0, 1000] {
        node.lake.forget_requests();
        node.lake
            .misbehave(Fault::cut(offset, Cut::Close).when(Request::is_get).always());
        let outcome = node.client().get("/b/k").try_send().await;
        assert!(outcome.map_or(true, |reply| reply.status == StatusCode::BAD_GATEWAY));
        let asked = node.lake.count(Request::is_get);
        assert!(
            asked <= 20,
            "{asked}: four times for the object and for each block in sight"
        );
        node.lake.behave();
    }
    node.stop().await;
}

#[tokio::test]
async fn without_a_budget_for_retries_nothing_is_resumed() {
    let node = Node::start_with(|config| config.limits.retry_budget_percent = 0).await;
    put(&node, SIZE);
    node.lake
        .misbehave(Fault::cut(BLOCK, Cut::Close).when(Request::is_get));
    let uncached = node.client().get("/b/k").header("cache-control", "no-store");
    assert!(uncached.try_send().await.is_err());
    assert_eq!(node.lake.count(is_resumption), 0);
    node.stop().await;
}

#[tokio::test]
async fn nodes_that_cooperate_go_on_where_the_lake_broke_off() {
    let cluster = Cluster::start_with(3, |_, config| config.limits.retry_budget_percent = 100).await;
    for turn in 0..3 {
        for offset in [0, 1, BLOCK / 2, BLOCK - 1] {
            let key = format!("{turn}-at-{offset}");
            let bytes = cluster.put(&key, 6);
            let paid = cluster.lake.body_bytes_sent();
            let fault = Fault::cut(offset, Cut::Close).when(Request::is_get);
            cluster.lake.misbehave(fault.times(4));
            cluster.read(turn, &key, &bytes).await;
            assert_eq!(cluster.lake.body_bytes_sent() - paid, bytes.len() as u64, "{key}");
            cluster.lake.behave();
        }
    }
    cluster.stop().await;
}
