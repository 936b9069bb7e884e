//! How long objects stay in a tier before they are flushed.

use std::time::Duration;

use http::StatusCode;
use shoal_node::config::Config;

use super::{assert_back, back, bytes, flush, multipart, reads, write_back};
use crate::lake::Request;
use crate::node::Node;
use crate::waiting::until;

const LIFETIME: &str = "x-shoal-lifetime";

/// Objects are due after a short time, short-lived ones much later.
fn soon(config: &mut Config) {
    back(config);
    config.write.age = Duration::from_secs(2);
}

fn writes_object(request: &Request) -> bool {
    request.method == "PUT" && request.key == b"tmp/k" && request.query.is_empty()
}

#[tokio::test]
async fn an_object_that_its_writer_calls_short_lived_stays_and_a_normal_one_goes() {
    let node = Node::start_with(soon).await;
    let client = node.client();
    let put = client.put("/b/tmp/short", bytes(1)).header(LIFETIME, "short");
    assert_back(&put.send().await);
    let begun = client.post("/b/tmp/parts?uploads=", "").header(LIFETIME, "short");
    let begun = begun.send().await;
    let id = &super::texts(&begun, "UploadId")[0];
    let list = multipart::put_all([&client], "tmp/parts", id, &[bytes(2)]).await;
    let completed = multipart::complete(&client, "tmp/parts", id, &multipart::list(list)).await;
    assert_eq!(completed.status, StatusCode::OK, "{}", completed.text());
    write_back(&client, "tmp/normal", &bytes(3)).await;
    until("the lake has the normal object", async || {
        node.lake.object("b", "tmp/normal").is_some()
    })
    .await;
    until("the entry of the normal object ends", async || {
        node.status().await["write_back"]["objects"] == 2
    })
    .await;
    // The others are older: they would be flushed by now.
    tokio::time::sleep(Duration::from_secs(1)).await;
    for (key, seed) in [("tmp/short", 1), ("tmp/parts", 2)] {
        assert!(node.lake.object("b", key).is_none(), "{key}");
        reads(&client, key, &bytes(seed)).await;
    }
    let report = flush(&node, "").await;
    assert_eq!(
        (&report["objects"], &report["flush"]["flushed"]),
        (&0.into(), &2.into())
    );
    let told = node.lake.requests().into_iter();
    let mut told = told.filter(|request| request.headers.contains_key(LIFETIME));
    assert!(told.next().is_none(), "the lake hears of a lifetime");
    node.stop().await;
}

#[tokio::test]
async fn a_lifetime_that_nobody_knows_is_refused_in_every_mode() {
    let node = Node::start_with(soon).await;
    for target in ["/b/tmp/k", "/b/around"] {
        let put = node.client().put(target, bytes(1)).header(LIFETIME, "long");
        let reply = put.send().await;
        let refused = (StatusCode::BAD_REQUEST, "InvalidArgument");
        assert_eq!((reply.status, reply.code()), refused, "{target}");
    }
    node.stop().await;
}

#[tokio::test]
async fn an_object_that_is_overwritten_young_never_reaches_the_lake() {
    let node = Node::start_with(|config| {
        soon(config);
        // Longer than five writes take on a busy machine.
        config.write.age = Duration::from_secs(6);
    })
    .await;
    for seed in 1..=5 {
        write_back(&node.client(), "tmp/k", &bytes(seed)).await;
    }
    until("the lake has the object", async || {
        node.lake.object("b", "tmp/k").is_some()
    })
    .await;
    assert!(node.lake.object("b", "tmp/k").unwrap().content.all() == bytes(5));
    assert_eq!(node.lake.count(writes_object), 1);
    node.stop().await;
}

#[tokio::test]
async fn the_page_of_a_node_tells_how_old_its_objects_are_and_when_they_are_due() {
    let node = Node::start_with(back).await;
    let tier = async || node.status().await["write_back"]["tiers"][0].clone();
    assert_eq!(tier().await["oldest_seconds"], serde_json::Value::Null);
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    until("the object is some seconds old", async || {
        tier().await["oldest_seconds"].as_u64() >= Some(2)
    })
    .await;
    let tier = tier().await;
    assert_eq!(
        (&tier["age_seconds"], &tier["parallel"]),
        (&3_600.into(), &8.into())
    );
    let metrics = node.admin("/metrics").await;
    let metrics = metrics.text();
    assert!(metrics.contains("shoal_tier_flushes_parallel{tier="), "{metrics}");
    node.stop().await;
}
