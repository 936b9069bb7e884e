//! Stories of what operators see of buckets and identities: requests, and bytes by where they came from.

use std::collections::BTreeMap;

use http::StatusCode;
use shoal_node::config::{FreshnessMode, UnknownIdentities};

use crate::client::Client;
use crate::lake::{ACCESS_KEY, ANONYMOUS, Access};
use crate::node::{Node, OTHER_KEY};

const STRANGER: &str = "a-key-that-no-node-knows";
const STRANGER_SECRET: &str = "a-secret-that-no-node-knows";

/// Requests, bytes sent, and bytes from the lake.
type Usage = [u64; 3];

/// Returns the usage by `label`, as `/metrics` shows it.
async fn usage(node: &Node, label: &str) -> BTreeMap<String, Usage> {
    let metrics = node.admin("/metrics").await;
    let mut usages = BTreeMap::<_, Usage>::new();
    for (place, what) in ["requests", "sent_bytes", "lake_bytes"].into_iter().enumerate() {
        let name = format!("shoal_{label}_{what}_total{{{label}=\"");
        let lines = metrics.text().lines().filter_map(|line| line.strip_prefix(&name));
        for (value, count) in lines.map(|line| line.split_once("\"} ").unwrap()) {
            usages.entry(value.to_owned()).or_default()[place] = count.parse().unwrap();
        }
    }
    usages
}

fn usages<const N: usize>(expected: [(&str, Usage); N]) -> BTreeMap<String, Usage> {
    expected.map(|(name, usage)| (name.to_owned(), usage)).into()
}

#[tokio::test]
async fn requests_and_bytes_are_counted_by_bucket_and_by_identity() {
    let node = Node::start_immutable().await;
    node.lake.create_bucket("c");
    node.lake.put("b", "k", vec![b'x'; 1000]);
    node.lake.put("c", "k", vec![b'x'; 300]);
    node.lake.allow(ANONYMOUS, Access::Read, "c/k");
    for _ in 0..2 {
        assert_eq!(node.client().get("/b/k").send().await.status, StatusCode::OK);
        node.settle().await;
    }
    for client in [node.other(), node.stranger()] {
        assert_eq!(client.get("/c/k").send().await.status, StatusCode::OK);
        node.settle().await;
    }
    let buckets = usage(&node, "bucket").await;
    assert_eq!(buckets["b"], [2, 2000, 1000]);
    assert_eq!(buckets["c"], [2, 600, 300]);
    let identities = usage(&node, "identity").await;
    let expected = [
        (ACCESS_KEY, [2, 2000, 1000]),
        ("anonymous", [1, 300, 0]),
        (OTHER_KEY, [1, 300, 300]),
    ];
    assert_eq!(identities, usages(expected));
    node.stop().await;
}

#[tokio::test]
async fn a_bucket_that_the_lake_refuses_or_does_not_have_takes_no_place() {
    let node = Node::start().await;
    node.lake.put("b", "k", vec![b'x'; 1000]);
    node.lake.create_bucket("secret");
    node.lake.put("secret", "k", "x");
    for place in ["secret", "b"] {
        node.lake.deny(OTHER_KEY, Access::Read, place);
        node.lake.deny(OTHER_KEY, Access::Write, place);
    }
    for (client, target, status) in [
        (node.client(), "/nowhere/k", StatusCode::NOT_FOUND),
        (node.client(), "/nowhere?list-type=2", StatusCode::NOT_FOUND),
        (node.other(), "/secret/k", StatusCode::FORBIDDEN),
        (node.other(), "/secret?list-type=2", StatusCode::FORBIDDEN),
        (node.stranger(), "/secret/k", StatusCode::FORBIDDEN),
    ] {
        assert_eq!(client.get(target).send().await.status, status, "{target}");
    }
    // The answer to a removal of many objects is a success, and its document says that each was refused.
    let many = "<Delete><Object><Key>k</Key></Object></Delete>";
    let removed = node.other().post("/secret?delete", many).send().await;
    assert_eq!(removed.status, StatusCode::OK);
    assert!(removed.text().contains("AccessDenied"), "{}", removed.text());
    for label in ["bucket", "identity"] {
        let usage = usage(&node, label).await;
        let names: Vec<_> = usage.keys().map(String::as_str).collect();
        assert_eq!((names, usage["other"][0]), (vec!["other"], 6), "{label}");
    }
    // A bucket that has a place has its refused requests, too.
    assert_eq!(node.client().get("/b/k").send().await.status, StatusCode::OK);
    assert_eq!(
        node.other().get("/b/k").send().await.status,
        StatusCode::FORBIDDEN
    );
    let buckets = usage(&node, "bucket").await;
    assert_eq!((buckets["b"][0], buckets["other"][0], buckets.len()), (2, 6, 2));
    assert!(buckets["b"][1] > 1000, "the refusal has bytes: {buckets:?}");
    node.stop().await;
}

#[tokio::test]
async fn clients_whose_keys_no_node_knows_have_one_label() {
    let node = Node::start_with(|config| {
        config.s3.unknown_identities = UnknownIdentities::Lake;
        config.freshness.default = FreshnessMode::Immutable;
    })
    .await;
    node.lake.add_user(STRANGER, STRANGER_SECRET);
    node.lake.put("b", "k", vec![b'x'; 1000]);
    let stranger = Client::signing(node.address(), STRANGER, STRANGER_SECRET);
    assert_eq!(stranger.get("/b/k").send().await.status, StatusCode::OK);
    let guess = Client::signing(node.address(), "a-guess-of-a-key", "a-guess-of-a-secret");
    assert_eq!(guess.get("/b/k").send().await.status, StatusCode::FORBIDDEN);
    let identities = usage(&node, "identity").await;
    let [requests, sent_bytes, lake_bytes] = identities["unverified"];
    assert_eq!((identities.len(), requests, lake_bytes >= 1000), (1, 2, true));
    assert!(sent_bytes >= lake_bytes, "{identities:?}");
    let text = node.admin("/metrics").await;
    for key in [STRANGER, STRANGER_SECRET, "a-guess-of-a-key"] {
        assert!(!text.text().contains(key), "{key}");
    }
    node.stop().await;
}

#[tokio::test]
async fn what_is_not_cached_comes_from_the_lake_byte_by_byte() {
    let node = Node::start().await;
    node.lake.put("b", "k", vec![b'x'; 1000]);
    let listing = node.client().get("/b?list-type=2").send().await;
    assert_eq!(listing.status, StatusCode::OK);
    let bytes = listing.body.len() as u64;
    assert_eq!(usage(&node, "bucket").await, usages([("b", [1, bytes, bytes])]));
    // A request without a bucket is one of its identity only.
    assert_eq!(node.client().get("/").send().await.status, StatusCode::OK);
    assert_eq!(usage(&node, "bucket").await["b"][0], 1);
    assert_eq!(usage(&node, "identity").await[ACCESS_KEY][0], 2);
    node.stop().await;
}
