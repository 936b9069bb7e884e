//! Objects that are acknowledged before they are at the lake.

mod alone;
mod asking;
mod clients;
mod cluster;
mod conditions;
mod copy;
mod deletion;
pub(crate) mod digests;
mod failure;
mod heads;
mod inline;
mod lifetimes;
mod listing;
mod listing_uploads;
mod multipart;
mod packs;
mod packs_fetched;
mod packs_seen;
mod packs_shared;
mod permission;
mod readers;
mod recovery;
mod refusals;
mod refused;
mod removals;
mod slow;
mod status;
mod store;
mod unpacking;

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use shoal_node::config::{Config, WriteMode, WriteRule};

use crate::client::{Client, Reply};
use crate::lake::Content;
use crate::node::{BLOCK, Node};
use crate::waiting::value;

/// Returns an object of a few blocks, the last one short.
pub(crate) fn bytes(seed: u64) -> Bytes {
    Content::synthetic(3 * BLOCK + 1_000, seed).all()
}

/// Everything below `tmp/` is written back, and stays dirty until a flush is ordered.
pub(crate) fn back(config: &mut Config) {
    config.write.age = Duration::from_hours(1);
    // A request without a response is given up after twice this time.
    config.lake.stall_timeout = Some(Duration::from_secs(1));
    config.write.rules = vec![WriteRule::new("s3://b/tmp/", WriteMode::Back)];
}

pub(crate) async fn write_back(client: &Client, key: &str, bytes: &Bytes) -> Reply {
    let reply = client.put(&format!("/b/{key}"), bytes.clone()).send().await;
    assert_back(&reply);
    reply
}

/// Asserts that a write was acknowledged in mode `back`, before the lake has the object.
pub(crate) fn assert_back(reply: &Reply) {
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    assert_eq!(
        reply.header("x-shoal-write"),
        Some("back"),
        "{:?}",
        reply.header("x-cache-reason")
    );
}

pub(crate) async fn reads(client: &Client, key: &str, expected: &Bytes) -> Reply {
    let reply = client.get(&format!("/b/{key}")).send().await;
    assert_eq!(reply.status, StatusCode::OK, "{key}: {}", reply.code());
    assert!(reply.body == expected, "{key} has other bytes");
    reply
}

/// Returns the texts of the elements with this name, in order.
pub(crate) fn texts(reply: &Reply, element: &str) -> Vec<String> {
    let (open, close) = (format!("<{element}>"), format!("</{element}>"));
    let elements = reply.text().split(&*open).skip(1);
    elements
        .filter_map(|rest| rest.split_once(&*close).map(|(text, _)| text.to_owned()))
        .collect()
}

/// Orders a flush, and waits for its end.
pub(crate) async fn flush(node: &Node, below: &str) -> serde_json::Value {
    let order = node.order(&format!("/flush?below={below}")).await;
    assert_eq!(order.status, StatusCode::ACCEPTED, "{}", order.text());
    let write_back = async || node.status().await["write_back"].clone();
    value("the flush ends", write_back, |status| {
        status["flush"]["running"] == false
    })
    .await
}
