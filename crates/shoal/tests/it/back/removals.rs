//! Objects that are removed before the lake knows: a tombstone is the answer, and the lake gets many at once.

use std::time::Duration;

use futures_util::future::join_all;
use http::{Method, StatusCode};

use super::{assert_back, back, bytes, flush, reads, texts, write_back};
use crate::client::{Client, Reply};
use crate::lake::{ACCESS_KEY, Access, Fault, Request};
use crate::node::{Node, OTHER_KEY};
use crate::waiting::value;

fn is_of_many(request: &Request) -> bool {
    request.query == "delete"
}

fn is_of_one(request: &Request) -> bool {
    request.method == Method::DELETE && request.query.is_empty()
}

async fn remove(client: &Client, key: &str) -> Reply {
    let reply = client.delete(&format!("/b/{key}")).send().await;
    assert_eq!(reply.status, StatusCode::NO_CONTENT, "{key}: {}", reply.code());
    reply
}

/// Removes an object at its tombstone.
async fn remove_back(client: &Client, key: &str) {
    let reply = remove(client, key).await;
    assert_eq!(reply.header("x-shoal-write"), Some("back"), "{key}");
}

async fn status_of(client: &Client, key: &str) -> u16 {
    client.get(&format!("/b/{key}")).send().await.status.as_u16()
}

/// A node whose lake has removed an object of the folder `tmp/` for the node's client.
async fn node() -> Node {
    let node = Node::start_with(back).await;
    let first = remove(&node.client(), "tmp/first").await;
    assert_eq!(
        first.header("x-shoal-write"),
        None,
        "the lake is asked by the removal itself"
    );
    node
}

/// The keys on the pages of a listing, and the number of pages.
async fn listed(client: &Client, query: &str) -> (Vec<String>, usize) {
    let (mut keys, mut token, mut pages) = (Vec::new(), String::new(), 0);
    loop {
        let reply = client.get(&format!("/b?list-type=2&{query}{token}")).send().await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
        keys.extend(texts(&reply, "Key"));
        keys.extend(texts(&reply, "CommonPrefixes"));
        pages += 1;
        match texts(&reply, "NextContinuationToken").pop() {
            Some(next) => token = format!("&continuation-token={next}"),
            None => return (keys, pages),
        }
    }
}

#[tokio::test]
async fn an_object_that_dies_young_costs_the_lake_less_than_a_tenth_of_a_request() {
    let node = Node::start_with(back).await;
    let objects = 200;
    let live = async |key: &str| {
        write_back(&node.client(), key, &bytes(1).slice(..100)).await;
        remove(&node.client(), key).await;
        assert_eq!(status_of(&node.client(), key).await, 404);
    };
    // The lake decides on the first one.
    live("tmp/first").await;
    let lives = (0..8).map(async |client| {
        for number in 0..objects / 8 {
            live(&format!("tmp/{client}-{number}")).await;
        }
    });
    join_all(lives).await;
    flush(&node, "").await;
    let requests = node.lake.count(|_| true);
    assert!(
        requests * 10 < objects,
        "{requests} requests for {objects} objects"
    );
    assert_eq!(node.lake.count(is_of_many), 1);
    assert_eq!(
        node.lake
            .count(|request| request.is_put() && request.is_of_object()),
        0
    );
    node.stop().await;
}

#[tokio::test]
async fn a_removed_object_that_the_lake_has_is_gone_for_every_reader() {
    let node = node().await;
    for key in ["tmp/a", "tmp/b", "tmp/c"] {
        node.lake.put("b", key, "at the lake");
        remove_back(&node.client(), key).await;
        assert!(node.lake.object("b", key).is_some(), "the lake has it still");
    }
    node.lake.forget_requests();
    assert_eq!(status_of(&node.client(), "tmp/a").await, 404);
    assert_eq!(
        node.client().head("/b/tmp/a").send().await.status,
        StatusCode::NOT_FOUND
    );
    let ranged = node.client().get("/b/tmp/a").range("bytes=0-1").send().await;
    assert_eq!(
        (ranged.status, ranged.code()),
        (StatusCode::NOT_FOUND, "NoSuchKey")
    );
    assert_eq!(node.lake.count(|_| true), 0, "who removed it needs no lake");
    assert_eq!(node.status().await["write_back"]["removals"], 3);
    assert_eq!(status_of(&node.other(), "tmp/b").await, 404);
    assert_eq!(node.lake.count(is_of_many), 1, "the others go along");
    for key in ["tmp/a", "tmp/b", "tmp/c"] {
        assert!(node.lake.object("b", key).is_none());
    }
    node.stop().await;
}

#[tokio::test]
async fn a_reader_whom_the_lake_refuses_causes_no_removal_and_learns_nothing() {
    let node = node().await;
    node.lake.put("b", "tmp/k", "at the lake");
    remove_back(&node.client(), "tmp/k").await;
    node.lake.deny(OTHER_KEY, Access::Read, "b/tmp");
    assert_eq!(status_of(&node.other(), "tmp/k").await, 403);
    assert_eq!(
        node.stranger().get("/b/tmp/k").send().await.status,
        StatusCode::FORBIDDEN
    );
    assert!(node.lake.object("b", "tmp/k").is_some());
    node.stop().await;
}

#[tokio::test]
async fn listings_leave_removed_names_out_on_pages_of_any_length() {
    let node = node().await;
    let key = |number: usize| format!("tmp/{number:02}");
    for number in 0..20 {
        node.lake.put("b", key(number), "x");
    }
    write_back(&node.client(), "tmp/05x", &bytes(1)).await;
    for number in (0..12).chain([19]) {
        remove_back(&node.client(), &key(number)).await;
    }
    node.lake.forget_requests();
    let mut left: Vec<_> = (12..19).map(key).collect();
    left.insert(0, "tmp/05x".into());
    for (client, most) in [
        (node.client(), 1),
        (node.other(), 3),
        (node.client(), 8),
        (node.other(), 1000),
    ] {
        let (keys, pages) = listed(&client, &format!("prefix=tmp/&max-keys={most}")).await;
        assert_eq!(keys, left, "pages of {most}");
        assert!(pages <= 8 / most + 1, "{pages} pages of {most}");
    }
    let reply = node.client().get("/b?prefix=tmp/&max-keys=2").send().await;
    assert_eq!(texts(&reply, "Key"), left[..2]);
    assert_eq!(texts(&reply, "MaxKeys"), ["2"]);
    let removals = |request: &Request| is_of_many(request) || is_of_one(request);
    assert_eq!(node.lake.count(removals), 0, "nothing is flushed");
    node.stop().await;
}

#[tokio::test]
async fn tombstones_behind_a_common_prefix_are_carried_out_before_a_listing() {
    let node = node().await;
    for key in ["tmp/a/1", "tmp/a/2", "tmp/b/1", "tmp/b/2"] {
        node.lake.put("b", key, "x");
        remove(&node.client(), key).await;
    }
    node.lake.put("b", "tmp/b/3", "x");
    assert!(node.lake.object("b", "tmp/a/2").is_some(), "it has a tombstone");
    node.lake.deny(OTHER_KEY, Access::Read, "b");
    let refused = node
        .other()
        .get("/b?list-type=2&prefix=tmp/&delimiter=/")
        .send()
        .await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert!(
        node.lake.object("b", "tmp/a/2").is_some(),
        "a refused caller flushes nothing"
    );
    let names = listed(&node.client(), "prefix=tmp/&delimiter=/").await.0;
    assert_eq!(names, ["<Prefix>tmp/b/</Prefix>"]);
    assert!(node.lake.object("b", "tmp/a/2").is_none());
    node.stop().await;
}

#[tokio::test]
async fn a_later_write_replaces_a_tombstone_and_conditions_see_no_object() {
    let node = node().await;
    for key in ["tmp/put", "tmp/create", "tmp/replace", "tmp/copied"] {
        node.lake.put("b", key, "at the lake");
        remove_back(&node.client(), key).await;
    }
    write_back(&node.client(), "tmp/put", &bytes(2)).await;
    reads(&node.client(), "tmp/put", &bytes(2)).await;
    let create = node
        .client()
        .put("/b/tmp/create", "new")
        .header("if-none-match", "*");
    assert_eq!(create.send().await.status, StatusCode::OK);
    let replace = node.client().put("/b/tmp/replace", "new").header("if-match", "*");
    assert!(replace.send().await.status.is_client_error());
    let copy = node
        .client()
        .put("/b/tmp/copy", "")
        .header("x-amz-copy-source", "b/tmp/copied");
    assert_eq!(copy.send().await.status, StatusCode::NOT_FOUND);
    assert_eq!(flush(&node, "").await["removals"], 0);
    assert!(node.lake.object("b", "tmp/put").unwrap().content.all() == bytes(2));
    assert!(node.lake.object("b", "tmp/replace").is_none());
    node.stop().await;
}

#[tokio::test]
async fn many_names_of_one_request_are_removed_without_the_lake() {
    let node = node().await;
    let keys = |numbers: std::ops::Range<usize>| numbers.map(|number| format!("tmp/{number}"));
    for key in keys(0..50) {
        node.lake.put("b", &key, "x");
    }
    node.lake.forget_requests();
    let objects = keys(0..50).map(|key| format!("<Object><Key>{key}</Key></Object>"));
    let body = objects.collect::<Vec<_>>().concat();
    let removed = node
        .client()
        .post("/b?delete", format!("<Delete>{body}</Delete>"))
        .send()
        .await;
    assert_eq!(texts(&removed, "Deleted").len(), 50, "{}", removed.text());
    assert_eq!(
        node.lake.count(|request| !request.query.contains("versioning")),
        0
    );
    assert_eq!(listed(&node.other(), "prefix=tmp/").await.0.len(), 0);
    flush(&node, "").await;
    assert_eq!(node.lake.count(is_of_many), 1);
    assert!(keys(0..50).all(|key| node.lake.object("b", &key).is_none()));
    node.stop().await;
}

#[tokio::test]
async fn a_removal_that_the_lake_refuses_stays_and_is_named() {
    let node = node().await;
    for key in ["tmp/k", "tmp/no"] {
        node.lake.put("b", key, "at the lake");
        remove_back(&node.client(), key).await;
    }
    node.lake.deny(ACCESS_KEY, Access::Remove, "b/tmp/no");
    assert_eq!(flush(&node, "").await["flush"]["failed"], 1);
    assert!(node.lake.object("b", "tmp/k").is_none(), "the others are removed");
    let status = node.status().await;
    let troubled = &status["write_back"]["troubled"][0];
    assert_eq!(
        (&troubled["object"], &troubled["refused"]),
        (&"s3://b/tmp/no".into(), &true.into())
    );
    assert_eq!(
        status_of(&node.client(), "tmp/no").await,
        404,
        "it is not dropped"
    );
    assert_eq!(status_of(&node.other(), "tmp/no").await, 503);
    let next = remove(&node.client(), "tmp/other").await;
    assert_eq!(
        next.header("x-shoal-write"),
        None,
        "the refusal has ended the yes"
    );
    node.lake.allow(ACCESS_KEY, Access::Remove, "b/tmp/no");
    assert_eq!(flush(&node, "").await["flush"]["failed"], 0);
    assert!(node.lake.object("b", "tmp/no").is_none());
    node.stop().await;
}

#[tokio::test]
async fn a_write_after_a_lost_answer_to_its_removal_is_not_removed() {
    let node = node().await;
    node.lake.put("b", "tmp/k", "at the lake");
    node.lake.put("b", "tmp/j", "at the lake");
    remove_back(&node.client(), "tmp/k").await;
    remove_back(&node.client(), "tmp/j").await;
    node.lake.misbehave(Fault::reset().when(is_of_many));
    assert_eq!(status_of(&node.other(), "tmp/k").await, 503);
    // The node gives the removal up before it brings the newer object to the lake.
    write_back(&node.client(), "tmp/k", &bytes(3)).await;
    let write_back = async || {
        flush(&node, "").await;
        node.status().await["write_back"].clone()
    };
    value("both are at the lake", write_back, |page| {
        page["objects"] == 0 && page["removals"] == 0
    })
    .await;
    assert!(node.lake.object("b", "tmp/k").unwrap().content.all() == bytes(3));
    assert!(node.lake.object("b", "tmp/j").is_none());
    node.stop().await;
}

#[tokio::test]
async fn a_lake_that_removes_one_at_a_time_gets_one_removal_each() {
    let node = node().await;
    for key in ["tmp/a", "tmp/b"] {
        node.lake.put("b", key, "x");
        remove_back(&node.client(), key).await;
    }
    node.lake.misbehave(Fault::status(501).when(is_of_many).always());
    assert_eq!(flush(&node, "").await["flush"]["failed"], 0);
    assert!(
        ["tmp/a", "tmp/b"]
            .iter()
            .all(|key| node.lake.object("b", key).is_none())
    );
    remove_back(&node.client(), "tmp/c").await;
    remove_back(&node.client(), "tmp/d").await;
    flush(&node, "").await;
    assert_eq!(node.lake.count(is_of_many), 1, "it is asked once");
    node.stop().await;
}

#[tokio::test]
async fn only_a_plain_removal_leaves_a_tombstone() {
    let node = node().await;
    let client = node.client();
    for (what, call) in [
        ("a version", client.delete("/b/tmp/k?versionId=null")),
        (
            "a condition",
            client.delete("/b/tmp/k").header("x-amz-if-match-size", "1"),
        ),
        (
            "a header",
            client
                .delete("/b/tmp/k")
                .header("x-amz-bypass-governance-retention", "true"),
        ),
        (
            "through",
            client.delete("/b/tmp/k").header("x-shoal-write", "through"),
        ),
        ("another folder", client.delete("/b/tmp/folder/k")),
        ("another caller", node.other().delete("/b/tmp/k")),
    ] {
        node.lake.put("b", "tmp/k", "x");
        let reply = call.send().await;
        assert_eq!(reply.header("x-shoal-write"), None, "{what}");
        assert_eq!(node.status().await["write_back"]["removals"], 0, "{what}");
    }
    remove_back(&client, "tmp/k").await;
    node.stop().await;
}

#[tokio::test]
async fn a_bucket_with_versions_and_a_caller_without_memory_get_the_lakes_answer() {
    let node = Node::start_with(back).await;
    node.lake.keep_versions("b");
    for _ in 0..2 {
        let reply = remove(&node.client(), "tmp/k").await;
        assert_eq!(reply.header("x-shoal-write"), None);
    }
    node.stop().await;
    let forgetful = Node::start_with(|config| {
        back(config);
        config.write.permission = Duration::ZERO;
    });
    let node = forgetful.await;
    for _ in 0..2 {
        let reply = remove(&node.client(), "tmp/k").await;
        assert_eq!(reply.header("x-shoal-write"), None);
    }
    node.stop().await;
}

#[tokio::test]
async fn a_tombstone_outlives_its_node_and_an_outage_of_the_lake() {
    let node = node().await;
    node.lake.put("b", "tmp/k", "at the lake");
    node.lake.stop().await;
    remove_back(&node.client(), "tmp/k").await;
    let node = node.restart_after(|_| {}).await;
    assert_eq!(status_of(&node.client(), "tmp/k").await, 404);
    node.lake.resume().await;
    let write_back = async || {
        flush(&node, "").await;
        node.status().await["write_back"].clone()
    };
    value("it is removed", write_back, |page| page["removals"] == 0).await;
    assert!(node.lake.object("b", "tmp/k").is_none());
    assert_back(&node.client().put("/b/tmp/k", "new").send().await);
    node.stop().await;
}

#[tokio::test]
async fn the_removal_of_a_bucket_carries_out_its_tombstones() {
    let node = node().await;
    node.lake.put("b", "tmp/k", "at the lake");
    remove_back(&node.client(), "tmp/k").await;
    let gone = node.client().delete("/b").send().await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT, "{}", gone.text());
    node.stop().await;
}
