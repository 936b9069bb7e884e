//! Stories of a node whose link to the lake is metered.

use std::time::Duration;

use http::StatusCode;
use serde_json::Value;
use shoal_net::clock;
use shoal_node::config::{Bandwidth, BandwidthScope, Config};

use crate::back::{back, bytes, flush, write_back};
use crate::lake::{Access, Content};
use crate::node::{Node, OTHER_KEY};
use crate::waiting::until;

const MB: u64 = 1_000_000;

/// A link with this rate, in bytes a second.
pub(crate) fn metered(config: &mut Config, bytes_per_second: u64) {
    config.lake.bandwidth = Some(Bandwidth {
        bytes_per_second,
        scope: BandwidthScope::Node,
    });
}

/// Counts of a class of transfers in one direction, from `/status`.
pub(crate) async fn class(node: &Node, direction: &str, class: &str) -> Value {
    node.status().await["link"][direction]["classes"][class].clone()
}

pub(crate) async fn moved(node: &Node, direction: &str, of: &str) -> u64 {
    class(node, direction, of).await["bytes"].as_u64().unwrap()
}

#[tokio::test]
async fn reads_and_writes_keep_the_bandwidth_of_the_link() {
    let node = Node::start_with(|config| metered(config, 4 * MB)).await;
    let object = Content::synthetic(2 * MB, 7).all();
    node.lake.put("b", "cold", object.clone());
    // The burst and a quantum, three times 64 KiB, go at once.
    let least = Duration::from_millis(440);

    let began = clock::instant();
    let read = node.client().get("/b/cold").send().await;
    assert!(read.body == object, "{}", read.status);
    assert!(began.elapsed() > least, "{:?}", began.elapsed());

    let began = clock::instant();
    let written = node.client().put("/b/new", object.clone()).send().await;
    assert_eq!(written.status, StatusCode::OK);
    assert!(began.elapsed() > least, "{:?}", began.elapsed());
    assert!(node.lake.object("b", "new").unwrap().content.all() == object);

    let link = node.status().await["link"].clone();
    assert_eq!(link["bandwidth_bytes_per_second"], 4 * MB);
    assert_eq!(link["scope"], "node");
    for direction in ["down", "up"] {
        let client = &link[direction]["classes"]["client"];
        assert_eq!(client["bytes"], 2 * MB, "{direction}");
        assert!(client["waits"].as_u64().unwrap() > 0, "{direction}");
        assert_eq!(client["waiting"], 0, "{direction}");
    }
    let metrics = node.admin("/metrics").await;
    for line in [
        "shoal_link_bytes_total{direction=\"down\",class=\"client\"} 2000000",
        "shoal_link_share_bytes_per_second{direction=\"up\"} 4000000",
        "shoal_link_bandwidth_bytes_per_second 4000000",
    ] {
        assert!(metrics.text().contains(line), "{line}");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_link_without_a_bandwidth_is_not_metered() {
    let node = Node::start().await;
    node.lake.put("b", "cold", "x");
    assert_eq!(node.client().get("/b/cold").send().await.status, StatusCode::OK);
    assert_eq!(node.status().await["link"], Value::Null);
    assert!(
        !node
            .admin("/metrics")
            .await
            .text()
            .contains("shoal_link_bytes_total{")
    );
    node.stop().await;
}

#[tokio::test]
async fn the_cleaner_leaves_the_link_to_a_client_that_writes() {
    let node = Node::start_with(|config| {
        back(config);
        metered(config, 2 * MB);
    })
    .await;
    for seed in 0..40 {
        write_back(&node.client(), &format!("tmp/{seed}"), &bytes(seed)).await;
    }
    let order = node.order("/flush?below=s3://b/tmp/").await;
    assert_eq!(order.status, StatusCode::ACCEPTED, "{}", order.text());
    until("the cleaner uses the link", async || {
        moved(&node, "up", "cleaning").await > 0
    })
    .await;
    let before = moved(&node, "up", "cleaning").await;
    let object = Content::synthetic(4 * MB, 7).all();
    let written = node.client().put("/b/around", object).send().await;
    assert_eq!(written.status, StatusCode::OK);
    let cleaned = moved(&node, "up", "cleaning").await - before;
    assert_eq!(moved(&node, "up", "client").await, 4 * MB);
    // A twentieth is the cleaner's whatever clients do; it also has the link until the client's first bytes
    // come, and after its last ones.
    assert!(cleaned < 2 * MB, "the cleaner moved {cleaned}");
    until("all is clean", async || {
        let status = node.status().await;
        status["write_back"]["flush"]["running"] == false && status["write_back"]["flush"]["left"] == 0
    })
    .await;
    node.stop().await;
}

#[tokio::test]
async fn a_flush_that_a_client_waits_for_is_the_clients() {
    let node = Node::start_with(|config| {
        back(config);
        metered(config, 100 * MB);
    })
    .await;
    node.lake.allow(OTHER_KEY, Access::Read, "b/tmp/a");
    write_back(&node.client(), "tmp/a", &bytes(1)).await;
    write_back(&node.client(), "tmp/b", &bytes(2)).await;
    let size = bytes(1).len() as u64;
    // Another identity reads what the lake says, so the object goes there first.
    let read = node.other().get("/b/tmp/a").send().await;
    assert!(read.body == bytes(1), "{}", read.status);
    assert_eq!(moved(&node, "up", "client").await, size);
    assert_eq!(moved(&node, "up", "cleaning").await, 0);
    flush(&node, "s3://b/tmp/").await;
    assert_eq!(moved(&node, "up", "client").await, size);
    assert_eq!(moved(&node, "up", "cleaning").await, size);
    node.stop().await;
}

#[tokio::test]
async fn a_body_that_breaks_goes_on_within_the_bandwidth() {
    let node = Node::start_with(|config| metered(config, 50 * MB)).await;
    let object = Content::synthetic(MB, 7).all();
    node.lake.put("b", "cold", object.clone());
    let is_get = crate::lake::Request::is_get;
    node.lake
        .misbehave(crate::lake::Fault::cut(300_000, crate::lake::Cut::Close).when(is_get));
    let read = node.client().get("/b/cold").send().await;
    assert!(read.body == object, "{}", read.status);
    let received = node.status().await["lake"]["bytes_received"].as_u64().unwrap();
    assert_eq!(moved(&node, "down", "client").await, received);
    node.stop().await;
}
