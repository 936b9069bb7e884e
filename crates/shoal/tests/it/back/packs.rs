//! Rules with `pack = true`: small objects go to the lake many at a time, and are read as if they were alone.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::StatusCode;
use shoal_node::config::{Config, FreshnessMode, PackConfig};
use shoal_pack::{Reading, read_tail};

use super::{assert_back, back, bytes, flush, reads, texts, write_back};
use crate::client::{Call, Client, Reply};
use crate::lake::{ACCESS_KEY, Access, Content, Fault, Lake, Request, SECRET_KEY};
use crate::node::{Node, OTHER_KEY};

pub(super) const FOLDER: &str = "tmp/.shoal-pack/";

/// As [`back`], and objects below 64 KiB are packed.
pub(super) fn pack(config: &mut Config) {
    back(config);
    config.write.rules[0].pack = Some(PackConfig {
        below_bytes: 64 << 10,
        pack_bytes: 1 << 20,
        idle: Duration::ZERO,
        keeper: ACCESS_KEY.into(),
    });
}

pub(super) fn small(seed: u64) -> Bytes {
    Content::synthetic(1_000 + seed, seed).all()
}

pub(super) fn is_of_pack(request: &Request) -> bool {
    request.key.starts_with(FOLDER.as_bytes())
}

/// The keys that the lake itself lists below `tmp/`.
pub(super) async fn at_lake(lake: &Lake) -> Vec<String> {
    let client = Client::signing(lake.address(), ACCESS_KEY, SECRET_KEY);
    let page = client.get("/b?list-type=2&prefix=tmp/").send().await;
    texts(&page, "Key")
}

/// The packs that the lake has.
pub(super) async fn packs(lake: &Lake) -> Vec<String> {
    let keys = at_lake(lake).await.into_iter();
    keys.filter(|key| !key.contains("/map/"))
        .filter(|key| key.starts_with(FOLDER))
        .collect()
}

/// Writes some small objects and has them packed. Returns what each write was answered.
pub(super) async fn packed(node: &Node, keys: &[&str]) -> BTreeMap<String, Reply> {
    let mut written = BTreeMap::new();
    for (seed, key) in (0..).zip(keys) {
        written.insert(
            (*key).to_owned(),
            write_back(&node.client(), key, &small(seed)).await,
        );
    }
    let flushed = flush(node, "").await;
    assert_eq!(flushed["flush"]["failed"], 0, "{flushed}");
    written
}

async fn status_of(client: &Client, key: &str) -> (u16, String) {
    let reply = client.get(&format!("/b/{key}")).send().await;
    (reply.status.as_u16(), reply.code().to_owned())
}

#[tokio::test]
async fn small_objects_cost_the_lake_a_pack_and_a_table_and_read_as_before() {
    let node = Node::start_with(pack).await;
    let keys: Vec<_> = (0..50).map(|number| format!("tmp/{number:02}")).collect();
    let written = packed(&node, &keys.iter().map(String::as_str).collect::<Vec<_>>()).await;
    assert_eq!(
        node.lake.count(|request| request.is_put() && is_of_pack(request)),
        2
    );
    assert_eq!(
        node.lake
            .count(|request| request.is_put() && !is_of_pack(request)),
        0
    );
    let [pack] = &packs(&node.lake).await[..] else {
        panic!("{:?}", at_lake(&node.lake).await)
    };
    let pack = node.lake.object("b", pack).unwrap().content.all();
    let Ok(Reading::Members(members)) = read_tail(pack.len() as u64, &pack) else {
        panic!("no pack")
    };
    assert!(
        members.iter().map(|member| &member.key).eq(keys.iter()),
        "sorted by key"
    );
    for (seed, key) in (0..).zip(&keys) {
        let read = reads(&node.client(), key, &small(seed)).await;
        assert_eq!(read.header("etag"), written[key].header("etag"), "{key}");
    }
    assert_eq!(node.status().await["write_back"]["objects"], 0);
    node.stop().await;
}

#[tokio::test]
async fn a_node_that_starts_without_a_cache_reads_what_others_have_packed() {
    let node = Node::start_with(pack).await;
    let put = node.client().put("/b/tmp/k", small(1));
    let put = put
        .header("content-type", "text/x")
        .header("x-amz-meta-colour", "blue");
    assert_back(&put.send().await);
    packed(&node, &["tmp/0", "tmp/1", "tmp/2"]).await;
    let before = node.client().get("/b/tmp/k").send().await;
    let node = node
        .restart_after(|store| std::fs::remove_dir_all(store).unwrap())
        .await;
    node.lake.forget_requests();
    let client = node.client();
    let read = reads(&client, "tmp/k", &small(1)).await;
    for name in [
        "etag",
        "content-type",
        "x-amz-meta-colour",
        "last-modified",
        "content-length",
    ] {
        assert_eq!(read.header(name), before.header(name), "{name}");
    }
    let is_read = |request: &Request| request.is_get() && request.key.ends_with(b".zip");
    assert_eq!(node.lake.count(is_read), 1, "permission and bytes come together");
    assert_eq!(node.lake.count(Request::is_head), 0);
    let head = client.head("/b/tmp/k").send().await;
    assert_eq!(
        (head.status, head.header("etag")),
        (StatusCode::OK, read.header("etag"))
    );
    let range = client.get("/b/tmp/k").range("bytes=10-19").send().await;
    assert!(range.status == StatusCode::PARTIAL_CONTENT && range.body == small(1).slice(10..20));
    let unchanged = client
        .get("/b/tmp/k")
        .header("if-none-match", read.header("etag").unwrap());
    assert_eq!(unchanged.send().await.status, StatusCode::NOT_MODIFIED);
    for (seed, key) in [(0, "tmp/0"), (2, "tmp/2")] {
        reads(&client, key, &small(seed)).await;
    }
    assert_eq!(status_of(&client, "tmp/3").await, (404, "NoSuchKey".into()));
    node.stop().await;
}

#[tokio::test]
async fn listings_have_packed_names_and_no_packs() {
    let node = Node::start_with(pack).await;
    node.lake.put("b", "tmp/b", "plain");
    node.lake.put("b", "tmp/z", "plain");
    packed(&node, &["tmp/a", "tmp/c/1", "tmp/c/2", "tmp/d"]).await;
    write_back(&node.client(), "tmp/e", &small(9)).await;
    let list = async |query: &str| {
        let reply = node.client().get(&format!("/b?list-type=2{query}")).send().await;
        assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
        let prefixes = texts(&reply, "Prefix").into_iter().skip(1);
        (
            texts(&reply, "Key"),
            prefixes.collect::<Vec<_>>(),
            texts(&reply, "NextContinuationToken").pop(),
        )
    };
    let all = ["tmp/a", "tmp/b", "tmp/c/1", "tmp/c/2", "tmp/d", "tmp/e", "tmp/z"];
    assert_eq!(list("&prefix=").await.0, all);
    let (keys, prefixes, _) = list("&prefix=tmp/&delimiter=/").await;
    assert_eq!(keys, ["tmp/a", "tmp/b", "tmp/d", "tmp/e", "tmp/z"]);
    assert_eq!(prefixes, ["tmp/c/"]);
    let (mut paged, mut token) = (Vec::new(), String::new());
    loop {
        let (keys, _, next) = list(&format!("&max-keys=2&prefix={token}")).await;
        paged.extend(keys);
        match next {
            Some(next) => token = format!("&continuation-token={next}"),
            None => break,
        }
    }
    assert_eq!(paged, all);
    node.stop().await;
}

#[tokio::test]
async fn a_newer_object_and_a_removal_take_the_place_of_a_packed_one() {
    let node = Node::start_with(pack).await;
    packed(&node, &["tmp/a", "tmp/b", "tmp/c", "tmp/d"]).await;
    let client = node.client();
    write_back(&client, "tmp/a", &small(10)).await;
    write_back(&client, "tmp/b", &bytes(1)).await;
    for key in ["tmp/c", "tmp/d"] {
        let gone = client.delete(&format!("/b/{key}")).send().await;
        assert_eq!(gone.status, StatusCode::NO_CONTENT, "{}", gone.text());
    }
    flush(&node, "").await;
    let node = node
        .restart_after(|store| std::fs::remove_dir_all(store).unwrap())
        .await;
    let client = node.client();
    reads(&client, "tmp/a", &small(10)).await;
    reads(&client, "tmp/b", &bytes(1)).await;
    assert!(
        node.lake.object("b", "tmp/b").is_some(),
        "it is too large for a pack"
    );
    for key in ["tmp/c", "tmp/d"] {
        assert_eq!(status_of(&client, key).await, (404, "NoSuchKey".into()), "{key}");
    }
    let page = client.get("/b?list-type=2&prefix=tmp/").send().await;
    assert_eq!(texts(&page, "Key"), ["tmp/a", "tmp/b"]);
    node.stop().await;
}

#[tokio::test]
async fn who_may_read_the_pack_may_read_its_members_and_nobody_else() {
    for freshness in [FreshnessMode::Revalidate, FreshnessMode::Immutable] {
        let node = Node::start_with(|config| {
            pack(config);
            config.freshness.default = freshness;
        })
        .await;
        node.lake.deny(OTHER_KEY, Access::Read, "b/tmp");
        packed(&node, &["tmp/a", "tmp/b"]).await;
        reads(&node.client(), "tmp/a", &small(0)).await;
        for key in ["tmp/a", "tmp/b"] {
            assert_eq!(status_of(&node.other(), key).await, (403, "AccessDenied".into()));
        }
        let anonymous = node.stranger().get("/b/tmp/a").send().await;
        assert_eq!(anonymous.status, StatusCode::FORBIDDEN);
        node.lake.allow(OTHER_KEY, Access::Read, "b/tmp");
        reads(&node.other(), "tmp/a", &small(0)).await;
        node.stop().await;
    }
}

#[tokio::test]
async fn objects_of_one_writer_share_packs() {
    let node = Node::start_with(pack).await;
    write_back(&node.other(), "tmp/other", &small(7)).await;
    packed(&node, &["tmp/a", "tmp/b"]).await;
    assert_eq!(packs(&node.lake).await.len(), 2);
    let writers = node
        .lake
        .requests()
        .into_iter()
        .filter(|request| request.is_put() && is_of_pack(request));
    let writers: Vec<_> = writers.filter_map(|request| request.access_key).collect();
    assert!(writers.iter().any(|writer| writer == OTHER_KEY), "{writers:?}");
    reads(&node.other(), "tmp/other", &small(7)).await;
    node.stop().await;
}

#[tokio::test]
async fn a_writer_whom_the_lake_refuses_packs_writes_its_objects_alone() {
    let node = Node::start_with(pack).await;
    node.lake.deny(OTHER_KEY, Access::Write, "b/tmp/.shoal-pack");
    write_back(&node.other(), "tmp/other", &small(7)).await;
    packed(&node, &["tmp/a"]).await;
    assert!(node.lake.object("b", "tmp/other").is_some());
    assert_eq!(packs(&node.lake).await.len(), 1);
    reads(&node.other(), "tmp/other", &small(7)).await;
    node.stop().await;
}

#[tokio::test]
async fn what_needs_the_object_at_the_lake_takes_it_out_of_its_pack() {
    let node = Node::start_with(pack).await;
    let keys = ["tmp/tags", "tmp/around", "tmp/match", "tmp/copied", "tmp/packed"];
    let written = packed(&node, &keys).await;
    let client = node.client();
    // The lake of these tests has no tags; it has the object when it says so.
    client.get("/b/tmp/tags?tagging").send().await;
    let etag = written["tmp/match"].header("etag").unwrap();
    let matched = client
        .put("/b/tmp/match", small(20))
        .header("if-match", etag)
        .send()
        .await;
    assert_eq!(matched.status, StatusCode::OK, "{}", matched.text());
    let around = client
        .put("/b/tmp/around", small(21))
        .header("x-shoal-write", "around")
        .send()
        .await;
    assert_eq!(around.status, StatusCode::OK, "{}", around.text());
    let copy = client
        .put("/b/elsewhere", "")
        .header("x-amz-copy-source", "/b/tmp/copied");
    assert_eq!(copy.send().await.status, StatusCode::OK);
    for (key, seed) in [
        ("tmp/tags", 0),
        ("tmp/match", 20),
        ("tmp/around", 21),
        ("tmp/copied", 3),
    ] {
        assert!(
            node.lake.object("b", key).unwrap().content.all() == small(seed),
            "{key}"
        );
        reads(&client, key, &small(seed)).await;
    }
    assert!(node.lake.object("b", "elsewhere").unwrap().content.all() == small(3));
    assert!(node.lake.object("b", "tmp/packed").is_none());
    reads(&client, "tmp/packed", &small(4)).await;
    node.stop().await;
}

#[tokio::test]
async fn no_client_reads_or_writes_packs() {
    let node = Node::start_with(pack).await;
    packed(&node, &["tmp/a"]).await;
    let (client, pack) = (node.client(), packs(&node.lake).await.remove(0));
    let target = format!("/b/{pack}");
    let copy = client.put("/b/tmp/copy", "").header("x-amz-copy-source", &target);
    let calls = [
        client.get(&target),
        client.head(&target),
        client.delete(&target),
        client.put(&target, "x"),
        client.put(&format!("/b/{FOLDER}new"), "x"),
        copy,
    ];
    for reply in join_all(calls.map(Call::send)).await {
        assert_eq!(reply.status, StatusCode::FORBIDDEN, "{}", reply.text());
    }
    reads(&client, "tmp/a", &small(0)).await;
    node.stop().await;
}

#[tokio::test]
async fn a_pack_that_is_gone_or_damaged_fails_its_members_and_nothing_else() {
    let node = Node::start_with(pack).await;
    packed(&node, &["tmp/a"]).await;
    let first = packs(&node.lake).await;
    packed(&node, &["tmp/b"]).await;
    let node = node
        .restart_after(|store| std::fs::remove_dir_all(store).unwrap())
        .await;
    let whole = node.lake.object("b", &first[0]).unwrap().content.all();
    let mut flipped = whole.to_vec();
    let member = whole
        .windows(1_000)
        .position(|window| window == small(0))
        .unwrap();
    flipped[member + 500] ^= 1;
    let client = node.client();
    node.lake.put("b", &first[0], Bytes::from(flipped));
    assert_eq!(status_of(&client, "tmp/a").await.0, 503);
    node.lake.delete("b", &first[0]);
    assert_eq!(status_of(&client, "tmp/a").await.0, 503);
    reads(&client, "tmp/b", &small(0)).await;
    assert_eq!(status_of(&client, "tmp/c").await.0, 404);
    node.lake.put("b", &first[0], whole);
    reads(&client, "tmp/a", &small(0)).await;
    node.stop().await;
}

#[tokio::test]
async fn an_unknown_outcome_at_the_lake_loses_nothing_and_is_found_out() {
    let node = Node::start_with(pack).await;
    let is_of_pack_itself = |request: &Request| request.is_put() && request.key.ends_with(b".zip");
    let is_of_table =
        move |request: &Request| request.is_put() && is_of_pack(request) && !is_of_pack_itself(request);
    for (fault, failed) in [
        // The lake has the pack, and nothing names it.
        (Fault::reset().when(is_of_pack_itself), 1),
        // The lake has the table, and the root names it after FENCE.
        (Fault::reset().when(is_of_table), 0),
        // The lake does not have the table, and the reservation ends after FENCE.
        (Fault::status(500).when(is_of_table), 1),
    ] {
        node.lake.misbehave(fault);
        write_back(&node.client(), "tmp/a", &small(1)).await;
        let flushed = flush(&node, "").await;
        assert_eq!(flushed["flush"]["failed"], failed, "{flushed}");
        reads(&node.client(), "tmp/a", &small(1)).await;
        flush(&node, "").await;
        assert_eq!(node.status().await["write_back"]["objects"], 0);
        reads(&node.client(), "tmp/a", &small(1)).await;
    }
    let node = node
        .restart_after(|store| std::fs::remove_dir_all(store).unwrap())
        .await;
    reads(&node.client(), "tmp/a", &small(1)).await;
    node.stop().await;
}

#[tokio::test]
async fn a_bucket_that_the_lake_does_not_have_is_answered_by_the_lake() {
    let node = Node::start_with(|config| {
        pack(config);
        config.write.rules[0].prefix = "s3://absent/".into();
    })
    .await;
    for target in ["/absent?list-type=2", "/absent/k"] {
        let reply = node.client().get(target).send().await;
        assert_eq!(
            (reply.status, reply.code()),
            (StatusCode::NOT_FOUND, "NoSuchBucket"),
            "{target}"
        );
    }
    node.stop().await;
}

#[tokio::test]
async fn a_bucket_with_packed_objects_keeps_no_versions() {
    let node = Node::start_with(pack).await;
    let keep_versions = async || {
        node.client()
            .put("/b?versioning", "<VersioningConfiguration/>")
            .send()
            .await
    };
    packed(&node, &["tmp/a"]).await;
    let refused = keep_versions().await;
    assert_eq!(
        (refused.status, refused.code()),
        (StatusCode::CONFLICT, "OperationAborted")
    );
    assert!(
        refused.text().contains("shoal unpack s3://b/tmp/"),
        "{}",
        refused.text()
    );
    let gone = node.client().delete("/b/tmp/a").send().await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    assert_ne!(
        keep_versions().await.status,
        StatusCode::CONFLICT,
        "nothing is packed any more"
    );
    node.stop().await;
}
