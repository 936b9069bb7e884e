//! What goes wrong while the lake does not have an object.

use std::time::Duration;

use http::StatusCode;

use super::cluster::{cluster, settled};
use super::{back, bytes, flush, reads, until, write_back};
use crate::client::Client;
use crate::cluster::{Cluster, Wire};
use crate::lake::{Content, Fault, Request};
use crate::node::{BLOCK, Node};

fn is_put(request: &Request) -> bool {
    request.is_put() && request.key.starts_with(b"tmp/")
}

#[tokio::test]
async fn an_object_that_the_lake_refuses_stays_dirty_is_shown_and_tried_again() {
    let node = Node::start_with(back).await;
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    for status in [503, 403] {
        node.lake.misbehave(Fault::status(status).when(is_put));
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
    let failed = "shoal_written_back_total{outcome=\"failed\"} 2";
    assert!(metrics.text().contains(failed), "{}", metrics.text());
    until("the lake is asked again", async || {
        node.lake.object("b", "tmp/k").is_some()
    })
    .await;
    reads(&node.client(), "tmp/k", &bytes(1)).await;
    assert_eq!(
        node.status().await["write_back"]["troubled"],
        serde_json::json!([])
    );
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
    // One that the lake has all bytes of when it is removed, and one that it does not read to its end.
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
        let delete = tokio::spawn(async move { client.delete(&format!("/b/{key}")).send().await });
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

/// Writes objects through the first node; gives what became of each key.
async fn written(cluster: &Cluster, keys: u64) -> Vec<String> {
    let keys: Vec<String> = (0..keys).map(|number| format!("tmp/{number}")).collect();
    for (seed, key) in (0..).zip(&keys) {
        write_back(&cluster.nodes[0].client(), key, &bytes(seed)).await;
    }
    keys
}

async fn status_of(client: &Client, key: &str) -> StatusCode {
    client.get(&format!("/b/{key}")).send().await.status
}

async fn lost(cluster: &Cluster) -> u64 {
    let mut lost = 0;
    for node in &cluster.nodes {
        let troubled = node.status().await["write_back"]["troubled"].clone();
        let troubled = troubled.as_array().unwrap().clone();
        lost += troubled.iter().filter(|object| object["lost"] == true).count() as u64;
    }
    lost
}

#[tokio::test]
async fn a_node_that_is_gone_takes_its_dirty_objects_along_whole_and_brings_them_back() {
    let mut cluster = cluster(3).await;
    let keys = written(&cluster, 12).await;
    let gone = cluster.nodes.pop().unwrap().halt().await;
    cluster.sees(2).await;
    settled(&cluster).await;
    let mut missing = 0;
    for (seed, key) in (0..).zip(&keys) {
        match status_of(&cluster.nodes[0].client(), key).await {
            StatusCode::NOT_FOUND => {
                missing += 1;
                // That somebody else asks lets nothing be forgotten.
                for client in [cluster.nodes[1].other(), cluster.nodes[1].client()] {
                    assert_eq!(status_of(&client, key).await, StatusCode::NOT_FOUND);
                }
            }
            _ => {
                for node in &cluster.nodes {
                    reads(&node.client(), key, &bytes(seed)).await;
                }
            }
        }
    }
    assert!(
        missing > 0,
        "four blocks on three nodes: most objects had one there"
    );
    assert_eq!(lost(&cluster).await, missing, "and each is named");
    flush(&cluster.nodes[0], "").await;
    let at_the_lake = || {
        keys.iter()
            .filter(|key| cluster.lake.object("b", key).is_some())
            .count()
    };
    until("what is not lost is at the lake", async || {
        at_the_lake() as u64 == 12 - missing
    })
    .await;
    cluster.nodes.push(gone.start().await);
    cluster.sees(3).await;
    settled(&cluster).await;
    assert_eq!(lost(&cluster).await, 0);
    for (seed, key) in (0..).zip(&keys) {
        for node in &cluster.nodes {
            reads(&node.client(), key, &bytes(seed)).await;
        }
    }
    flush(&cluster.nodes[2], "").await;
    for (seed, key) in (0..).zip(&keys) {
        assert!(cluster.lake.object("b", key).unwrap().content.all() == bytes(seed));
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_lost_object_is_lost_also_while_its_home_is_silent() {
    let mut cluster = cluster(4).await;
    let keys = written(&cluster, 24).await;
    for (seed, key) in (0..).zip(&keys) {
        // Copies of blocks are left behind that make nothing whole which is not.
        reads(&cluster.nodes[0].client(), key, &bytes(seed)).await;
    }
    cluster.nodes.pop().unwrap().stop().await;
    cluster.sees(3).await;
    settled(&cluster).await;
    let mut missing = Vec::new();
    for key in &keys {
        if status_of(&cluster.nodes[0].client(), key).await == StatusCode::NOT_FOUND {
            missing.push(key);
        }
    }
    assert!(missing.len() > 6, "each node is home to some of {missing:?}");
    cluster.ways[1].becomes(Wire::Stuck);
    for key in missing {
        let status = status_of(&cluster.nodes[0].client(), key).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{key}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn while_a_node_is_silent_the_others_give_what_they_hold_whole_or_not_at_all() {
    let cluster = cluster(3).await;
    let keys = written(&cluster, 12).await;
    cluster.ways[2].becomes(Wire::Cut);
    let (mut whole, mut parted) = (0, 0);
    for (seed, key) in (0..).zip(&keys) {
        for node in &cluster.nodes[..2] {
            let target = format!("/b/{key}");
            match node.client().get(&target).try_send().await {
                Ok(reply) if reply.status == StatusCode::OK => {
                    assert!(reply.body == bytes(seed), "{key}");
                    whole += 1;
                }
                // A part of it is on the silent node, or only that knows of it.
                Ok(reply) => {
                    let status = reply.status;
                    assert!(
                        status.is_server_error() || status == StatusCode::NOT_FOUND,
                        "{key}: {status}"
                    );
                    assert_ne!(status, StatusCode::BAD_GATEWAY, "the lake was there");
                    parted += 1;
                }
                // The part was missed after the first bytes had been sent.
                Err(_) => parted += 1,
            }
        }
    }
    assert!(whole > 0 && parted > 0, "{whole} and {parted}");
    cluster.ways[2].becomes(Wire::Whole);
    cluster.sees(3).await;
    settled(&cluster).await;
    for (seed, key) in (0..).zip(&keys) {
        for node in &cluster.nodes {
            reads(&node.client(), key, &bytes(seed)).await;
        }
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_lost_object_is_out_of_the_way_once_its_name_is_written_again_or_removed() {
    let mut cluster = cluster(3).await;
    let keys = written(&cluster, 12).await;
    let gone = cluster.nodes.pop().unwrap().halt().await;
    cluster.sees(2).await;
    settled(&cluster).await;
    let client = cluster.nodes[0].client();
    let mut lost_keys = Vec::new();
    for key in &keys {
        if status_of(&client, key).await == StatusCode::NOT_FOUND {
            lost_keys.push(key);
        }
    }
    assert!(lost_keys.len() >= 3, "{lost_keys:?}");
    for (number, key) in (0..).zip(&lost_keys) {
        match number % 3 {
            0 => drop(write_back(&client, key, &bytes(100)).await),
            1 => {
                let put = client
                    .put(&format!("/b/{key}"), bytes(100))
                    .header("x-shoal-write", "around");
                assert_eq!(put.send().await.status, StatusCode::OK);
            }
            _ => {
                let delete = client.delete(&format!("/b/{key}")).send().await;
                assert_eq!(delete.status, StatusCode::NO_CONTENT);
            }
        }
    }
    cluster.nodes.push(gone.start().await);
    cluster.sees(3).await;
    settled(&cluster).await;
    for (number, key) in (0..).zip(&lost_keys) {
        for node in &cluster.nodes {
            if number % 3 == 2 {
                assert_eq!(
                    status_of(&node.client(), key).await,
                    StatusCode::NOT_FOUND,
                    "{key}"
                );
            } else {
                reads(&node.client(), key, &bytes(100)).await;
            }
        }
    }
    cluster.stop().await;
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
    settled(&cluster).await;
    for (seed, key) in (0..).zip(&keys) {
        for node in &cluster.nodes {
            reads(&node.client(), key, &bytes(seed)).await;
        }
    }
    assert_eq!(lost(&cluster).await, 0);
    cluster.stop().await;
}

#[tokio::test]
async fn dirty_blocks_stay_when_others_need_room_and_too_many_go_through() {
    let node = Node::start_with(|config| {
        back(config);
        config.store.capacity_bytes = 16 << 20;
        config.freshness.default = shoal_node::config::FreshnessMode::Immutable;
    })
    .await;
    write_back(&node.client(), "tmp/first", &bytes(1)).await;
    for number in 0..40 {
        let key = format!("k{number}");
        node.lake.put("b", &key, Content::synthetic(1 << 20, number));
        assert_eq!(status_of(&node.client(), &key).await, StatusCode::OK);
    }
    node.settle().await;
    assert!(
        node.store()
            .counters()
            .evictions
            .iter()
            .any(|(_, count)| *count > 0),
        "room was short"
    );
    reads(&node.client(), "tmp/first", &bytes(1)).await;
    // The lake is slow to take what is flushed.
    let is_flush = |request: &Request| is_put(request) && request.header("content-md5").is_some();
    let gate = node.lake.hold(is_flush);
    let mut modes = Vec::new();
    for number in 0..8 {
        let big = Content::synthetic(1 << 20, number).all();
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
    assert_eq!(modes.last().unwrap(), "through", "{modes:?}");
    gate.open();
    assert_eq!(modes[0], "back");
    node.stop().await;
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
async fn a_node_without_the_secret_learns_nothing_of_dirty_objects() {
    let cluster = cluster(2).await;
    write_back(&cluster.nodes[0].client(), "tmp/k", &bytes(1)).await;
    for way in &cluster.ways {
        for client in [
            Client::anonymous(way.address()),
            Client::signing(way.address(), "shoal-node", "a guess"),
        ] {
            for target in [
                "/dirty/held?ask=AQAAAGIFAAAAdG1wL2s",
                "/dirty/find",
                "/dirty/",
                "/dirty/x?ask=",
            ] {
                // Nodes speak TLS there: what a stranger says in the open has no answer of HTTP.
                assert!(client.get(target).try_send().await.is_err(), "{target}");
            }
        }
    }
    cluster.stop().await;
}
