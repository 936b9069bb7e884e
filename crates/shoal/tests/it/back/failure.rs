//! Failures while an object is dirty.

use std::fs;
use std::path::Path;
use std::time::Duration;

use http::StatusCode;
use shoal_node::config::Fallback;

use super::cluster::cluster;
use super::{back, bytes, flush, reads, write_back};
use crate::cluster::Cluster;
use crate::lake::{Content, Fault, Request};
use crate::node::{BLOCK, Node};
use crate::waiting::until;

fn is_put(request: &Request) -> bool {
    request.is_put() && request.key.starts_with(b"tmp/")
}

#[tokio::test]
async fn an_object_that_the_lake_refuses_stays_dirty_is_shown_and_tried_again() {
    let node = Node::start_with(back).await;
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    for status in [503, 403] {
        node.lake.behave();
        node.lake.misbehave(Fault::status(status).when(is_put).always());
        let report = flush(&node, "").await;
        assert_eq!(report["flush"]["failed"], 1, "{report}");
        let trouble = &report["troubled"][0];
        assert_eq!(trouble["object"], "s3://b/tmp/k");
        assert!(
            trouble["error"].as_str().unwrap().contains(&status.to_string()),
            "{trouble}"
        );
        reads(&node.client(), "tmp/k", &bytes(1)).await;
    }
    let metrics = node.admin("/metrics").await;
    let none = "shoal_written_back_total{outcome=\"failed\"} 0";
    assert!(!metrics.text().contains(none), "{}", metrics.text());
    node.lake.behave();
    until("the lake is asked again", async || {
        node.lake.object("b", "tmp/k").is_some()
    })
    .await;
    reads(&node.client(), "tmp/k", &bytes(1)).await;
    // The registry is updated a little later than the lake.
    until("the object is no longer shown", async || {
        node.status().await["write_back"]["troubled"] == serde_json::json!([])
    })
    .await;
    node.stop().await;
}

#[tokio::test]
async fn a_flush_needs_no_order() {
    let node = Node::start_with(|config| {
        back(config);
        config.write.age = Duration::from_secs(1);
    })
    .await;
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    until("it is flushed", async || node.lake.object("b", "tmp/k").is_some()).await;
    reads(&node.client(), "tmp/k", &bytes(1)).await;
    node.stop().await;
}

#[tokio::test]
async fn an_object_that_is_removed_while_it_is_flushed_is_not_at_the_lake_afterwards() {
    let cluster = cluster(2).await;
    // The lake has received all bytes of one object when it is removed, and does not read the other to its
    // end.
    for (key, blocks) in [("tmp/short", 1), ("tmp/long", 160)] {
        let bytes = Content::synthetic(blocks * BLOCK, 1).all();
        write_back(&cluster.nodes[0].client(), key, &bytes).await;
        let gate = crate::lake::Gate::new();
        cluster
            .lake
            .misbehave(Fault::new().body_held_by(&gate).when(is_put));
        cluster.nodes[0].order("/flush").await;
        gate.arrived(1).await;
        let client = cluster.nodes[1].client();
        let delete = client
            .delete(&format!("/b/{key}"))
            .header("x-shoal-write", "through");
        let delete = tokio::spawn(delete.send());
        tokio::time::sleep(Duration::from_millis(200)).await;
        gate.open();
        assert_eq!(delete.await.unwrap().status, StatusCode::NO_CONTENT, "{key}");
        for node in &cluster.nodes {
            let read = node.client().get(&format!("/b/{key}")).send().await;
            assert_eq!(read.status, StatusCode::NOT_FOUND, "{key}");
        }
        assert!(cluster.lake.object("b", key).is_none(), "{key}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn of_two_writers_of_one_name_all_nodes_and_the_lake_believe_the_same() {
    let cluster = cluster(3).await;
    for round in 0..6 {
        let key = format!("tmp/{round}");
        let target = format!("/b/{key}");
        let write = |node: usize, seed: u64| cluster.nodes[node].client().put(&target, bytes(seed)).send();
        let (one, other) = tokio::join!(write(0, 2 * round), write(1, 2 * round + 1));
        assert_eq!((one.status, other.status), (StatusCode::OK, StatusCode::OK));
        let first = cluster.nodes[0].client().get(&target).send().await;
        assert!(
            [2 * round, 2 * round + 1]
                .into_iter()
                .any(|seed| first.body == bytes(seed))
        );
        for node in &cluster.nodes {
            reads(&node.client(), &key, &first.body).await;
        }
        let report = flush(&cluster.nodes[2], "").await;
        assert_eq!(report["flush"]["failed"], 0, "{report}");
        assert!(cluster.lake.object("b", &key).unwrap().content.all() == first.body);
    }
    cluster.stop().await;
}

/// Writes objects through the first node. Returns the outcome for each key.
async fn written(cluster: &Cluster, keys: u64) -> Vec<String> {
    let keys: Vec<String> = (0..keys).map(|number| format!("tmp/{number}")).collect();
    for (seed, key) in (0..).zip(&keys) {
        write_back(&cluster.nodes[0].client(), key, &bytes(seed)).await;
    }
    keys
}

#[tokio::test]
async fn a_node_that_drains_leaves_nothing_behind_that_the_lake_does_not_have() {
    let mut cluster = cluster(3).await;
    let keys = written(&cluster, 6).await;
    assert_eq!(
        cluster.nodes[2].order("/drain").await.status,
        StatusCode::ACCEPTED
    );
    let node = &cluster.nodes[2];
    until("it is drained", async || {
        node.status().await["drain"]["state"] == "drained"
    })
    .await;
    assert_eq!(node.status().await["write_back"]["objects"], 0);
    cluster.nodes.pop().unwrap().stop().await;
    cluster.sees(2).await;
    for (seed, key) in (0..).zip(&keys) {
        for node in &cluster.nodes {
            reads(&node.client(), key, &bytes(seed)).await;
        }
    }
    cluster.stop().await;
}

#[tokio::test]
async fn parts_of_an_upload_that_the_lake_has_begun_go_there_and_say_so() {
    let node = Node::start_with(back).await;
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    let create = node.client().post("/b/tmp/k?uploads", "");
    let created = create.header("x-shoal-write", "around").send().await;
    let id = created
        .text()
        .split("UploadId>")
        .nth(1)
        .unwrap()
        .trim_end_matches("</")
        .to_owned();
    let part = node
        .client()
        .put(&format!("/b/tmp/k?partNumber=1&uploadId={id}"), bytes(2))
        .send()
        .await;
    assert_eq!(part.header("x-shoal-write"), Some("through"));
    assert_eq!(part.header("x-cache-reason"), Some("multipart"));
    reads(&node.client(), "tmp/k", &bytes(1)).await;
    let complete = node
        .client()
        .post(&format!("/b/tmp/k?uploadId={id}"), "<CompleteMultipartUpload/>");
    assert_eq!(complete.send().await.status, StatusCode::OK);
    reads(&node.client(), "tmp/k", &bytes(2)).await;
    flush(&node, "").await;
    reads(&node.client(), "tmp/k", &bytes(2)).await;
    node.stop().await;
}

#[tokio::test]
async fn the_others_have_every_object_of_a_node_that_is_gone_and_bring_it_to_the_lake() {
    let mut cluster = cluster(3).await;
    let keys = written(&cluster, 6).await;
    let gone = cluster.nodes.remove(0).halt().await;
    for (seed, key) in (0..).zip(&keys) {
        for node in &cluster.nodes {
            reads(&node.client(), key, &bytes(seed)).await;
        }
    }
    let delete = cluster.nodes[0].client().delete("/b/tmp/0").send().await;
    assert_eq!(delete.status, StatusCode::NO_CONTENT);
    write_back(&cluster.nodes[1].client(), "tmp/1", &bytes(100)).await;
    let report = flush(&cluster.nodes[0], "").await;
    assert_eq!(report["flush"]["flushed"], 5, "{report}");
    assert!(cluster.lake.object("b", "tmp/0").is_none());
    assert!(cluster.lake.object("b", "tmp/1").unwrap().content.all() == bytes(100));
    drop(gone);
    cluster.stop().await;
}

#[tokio::test]
async fn objects_of_a_dead_node_are_flushed_when_they_are_due() {
    let mut cluster = Cluster::start_with(2, |_, config| {
        back(config);
        config.write.age = Duration::from_secs(2);
    })
    .await;
    let is_flush = |request: &Request| is_put(request) && request.header("content-md5").is_some();
    let gate = cluster.lake.hold(is_flush);
    write_back(&cluster.nodes[0].client(), "tmp/k", &bytes(1)).await;
    drop(cluster.nodes.remove(0).halt().await);
    gate.open();
    until("the other node flushes it", async || {
        cluster.lake.object("b", "tmp/k").is_some()
    })
    .await;
    reads(&cluster.nodes[0].client(), "tmp/k", &bytes(1)).await;
    cluster.stop().await;
}

#[tokio::test]
async fn beyond_its_capacity_a_tier_takes_nothing_and_writes_go_through() {
    let node = Node::start_with(|config| {
        back(config);
        config.tiers = vec![crate::node::tier(config.store.path.with_file_name("tier"))];
        config.tiers[0].capacity_bytes = 2 << 20;
    })
    .await;
    let big = Content::synthetic(1 << 20, 1).all();
    let mut modes = Vec::new();
    for number in 0..4 {
        let key = format!("tmp/{number}");
        let put = node.client().put(&format!("/b/{key}"), big.clone()).send().await;
        assert_eq!(put.status, StatusCode::OK, "{}", put.text());
        modes.push(put.header("x-shoal-write").unwrap().to_owned());
        if modes.last().unwrap() == "through" {
            assert_eq!(put.header("x-cache-reason"), Some("too-dirty"));
            assert!(node.lake.object("b", &key).is_some());
        }
        reads(&node.client(), &key, &big).await;
    }
    assert_eq!(modes, ["back", "back", "through", "through"]);
    until("a full tier is flushed before its time", async || {
        node.lake.object("b", "tmp/0").is_some()
    })
    .await;
    node.stop().await;
}

/// Starts a node whose tier is in `folder`.
async fn node_with_tier(folder: &Path, fallback: Fallback) -> Node {
    let tier = crate::node::tier(folder.into());
    Node::start_with(move |config| {
        back(config);
        config.write.rules[0].fallback = fallback;
        config.tiers = vec![tier];
    })
    .await
}

#[tokio::test]
async fn a_store_that_fails_sends_writes_through_until_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let node = node_with_tier(folder.path(), Fallback::Through).await;
    let client = node.client();
    write_back(&client, "tmp/dirty", &bytes(1)).await;
    let (incoming, away) = (folder.path().join("incoming"), folder.path().join("away"));
    fs::rename(&incoming, &away).unwrap();
    let put = client.put("/b/tmp/k", bytes(2)).send().await;
    assert_eq!(put.status, StatusCode::SERVICE_UNAVAILABLE, "{}", put.text());
    until("the node has noticed", async || {
        let put = client.put("/b/tmp/k", bytes(3)).send().await;
        put.header("x-cache-reason") == Some("tier-unavailable") && put.status == StatusCode::OK
    })
    .await;
    assert!(node.lake.object("b", "tmp/k").unwrap().content.all() == bytes(3));
    reads(&client, "tmp/k", &bytes(3)).await;
    reads(&client, "tmp/dirty", &bytes(1)).await;
    fs::rename(&away, &incoming).unwrap();
    until("the tier takes writes again", async || {
        let put = client.put("/b/tmp/k", bytes(4)).send().await;
        put.header("x-shoal-write") == Some("back")
    })
    .await;
    reads(&client, "tmp/k", &bytes(4)).await;
    node.stop().await;
}

#[tokio::test]
async fn a_rule_may_refuse_what_the_tier_cannot_take() {
    let folder = tempfile::tempdir().unwrap();
    let node = node_with_tier(folder.path(), Fallback::Refuse).await;
    let client = node.client();
    write_back(&client, "tmp/k", &bytes(1)).await;
    fs::rename(folder.path().join("incoming"), folder.path().join("away")).unwrap();
    until("the node has noticed", async || {
        let put = client.put("/b/tmp/k", bytes(2)).send().await;
        assert_eq!(
            (put.status, put.code()),
            (StatusCode::SERVICE_UNAVAILABLE, "SlowDown")
        );
        put.text().contains("takes no writes now")
    })
    .await;
    let begun = client.post("/b/tmp/parts?uploads", "").send().await;
    assert_eq!(begun.status, StatusCode::SERVICE_UNAVAILABLE);
    reads(&client, "tmp/k", &bytes(1)).await;
    let elsewhere = client.put("/b/k", bytes(2)).send().await;
    assert_eq!(elsewhere.status, StatusCode::OK);
    node.stop().await;
}
