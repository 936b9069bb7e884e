//! Packed objects as clients see them: permissions, requests to the lake, listings, and what is hidden.

use std::fs;

use http::{Method, StatusCode};
use shoal_node::config::{Config, FreshnessMode};

use super::packs::{FOLDER, is_of_pack, pack, packed, packs, small};
use super::{flush, reads, texts};
use crate::client::{Client, Reply};
use crate::lake::{Access, Request};
use crate::node::{Node, OTHER_KEY};
use crate::tasks::{carry_out, order};

/// A node that has packed these objects, has no block of them, and knows the map.
pub(super) async fn cold_node(keys: &[&str], change: impl FnOnce(&mut Config)) -> Node {
    let started = Node::start_with(|config| {
        pack(config);
        change(config);
    });
    let node = Box::pin(started).await;
    Box::pin(packed(&node, keys)).await;
    let restarted = node.restart_after(|store| fs::remove_dir_all(store).unwrap());
    let node = Box::pin(restarted).await;
    let absent = node.client().get("/b/tmp/absent").send().await;
    assert_eq!(absent.status, StatusCode::NOT_FOUND, "{}", absent.text());
    node.lake.forget_requests();
    node
}

fn is_refused(reply: &Reply) {
    assert_eq!(reply.status, StatusCode::FORBIDDEN, "{}", reply.text());
    assert!(
        reply.body.is_empty() || reply.code() == "AccessDenied",
        "{}",
        reply.text()
    );
}

#[tokio::test]
async fn a_cold_read_is_one_request_for_the_bytes_of_the_object() {
    let node = cold_node(&["tmp/a", "tmp/b"], |_| ()).await;
    let cold = reads(&node.client(), "tmp/b", &small(1)).await;
    assert_eq!(cold.header("x-cache"), Some("MISS"));
    let requests = node.lake.requests();
    let [get] = &requests[..] else {
        panic!("{requests:#?}")
    };
    assert!(get.is_get() && is_of_pack(get) && get.header("range").is_some());
    let sent = small(1).len() as u64;
    assert_eq!(get.body_sent, sent, "no other object is sent");
    let from_lake = format!("shoal_read_bytes_total{{source=\"lake\"}} {sent}\n");
    assert!(node.admin("/metrics").await.text().contains(&from_lake));
    node.settle().await;
    let warm = reads(&node.client(), "tmp/b", &small(1)).await;
    assert_eq!(warm.header("x-cache"), Some("REVALIDATED"));
    assert_eq!(warm.header("etag"), cold.header("etag"));
    let requests = node.lake.requests();
    assert!(
        requests.len() == 2 && requests[1].is_head() && is_of_pack(&requests[1]),
        "{requests:#?}"
    );
    node.stop().await;
}

#[tokio::test]
async fn readers_of_one_cold_object_share_its_bytes_and_not_the_permission() {
    let node = cold_node(&["tmp/a", "tmp/b"], |_| ()).await;
    node.lake.deny(OTHER_KEY, Access::Read, "b/tmp/.shoal-pack");
    let gate = node.lake.hold(is_of_pack);
    let clients = [
        node.client(),
        node.other(),
        node.client(),
        node.client(),
        node.client(),
    ];
    let readers = clients.map(|client| {
        let read = async move { client.get("/b/tmp/a").send().await };
        tokio::spawn(read)
    });
    gate.arrived(1).await;
    gate.open();
    let mut statuses = Vec::new();
    for reader in readers {
        let reply = reader.await.unwrap();
        assert!(reply.status != StatusCode::OK || reply.body == small(0));
        statuses.push(reply.status.as_u16());
    }
    assert_eq!(statuses, [200, 403, 200, 200, 200]);
    let sent = small(0).len() as u64;
    // A reader that waited may be faster than the one that brought the bytes.
    assert!(
        node.lake.body_bytes_sent() < 3 * sent,
        "{:#?}",
        node.lake.requests()
    );
    node.stop().await;
}

#[tokio::test]
async fn a_grant_of_a_pack_counts_for_all_its_members() {
    let keys = ["tmp/a", "tmp/b", "tmp/c"];
    let node = cold_node(&keys, |config| {
        config.freshness.default = FreshnessMode::Immutable;
    })
    .await;
    reads(&node.client(), "tmp/a", &small(0)).await;
    node.settle().await;
    node.lake.forget_requests();
    let hit = reads(&node.client(), "tmp/a", &small(0)).await;
    assert_eq!(hit.header("x-cache"), Some("HIT"));
    let head = node.client().head("/b/tmp/b").send().await;
    assert_eq!(
        (head.status, head.header("content-length")),
        (StatusCode::OK, Some("1001"))
    );
    assert_eq!(node.lake.count(|_| true), 0, "the lake has permitted it");
    reads(&node.client(), "tmp/c", &small(2)).await;
    let requests = node.lake.requests();
    assert!(requests.len() == 1 && requests[0].is_get(), "{requests:#?}");
    node.stop().await;
}

#[tokio::test]
async fn a_grant_ends_when_the_lake_refuses_bytes_of_the_pack() {
    let keys = ["tmp/a", "tmp/b"];
    let node = cold_node(&keys, |config| {
        config.freshness.default = FreshnessMode::Immutable;
    })
    .await;
    reads(&node.other(), "tmp/a", &small(0)).await;
    node.settle().await;
    node.lake.deny(OTHER_KEY, Access::Read, "b/tmp/.shoal-pack");
    is_refused(&node.other().get("/b/tmp/b").send().await);
    let refused = node.other().get("/b/tmp/a").send().await;
    is_refused(&refused);
    assert!(!refused.text().contains("shoal-pack"), "{}", refused.text());
    is_refused(&node.other().head("/b/tmp/a").send().await);
    reads(&node.client(), "tmp/a", &small(0)).await;
    node.stop().await;
}

/// Returns the names on all pages of a listing, whose common prefixes come last on each page.
async fn listed(client: &Client, query: &str) -> Vec<String> {
    let (mut names, mut from) = (Vec::new(), String::new());
    for _ in 0..40 {
        let page = client.get(&format!("/b?{query}{from}")).send().await;
        assert_eq!(page.status, StatusCode::OK, "{}", page.text());
        assert!(!page.text().contains("shoal-pack"), "{}", page.text());
        names.extend(texts(&page, "Key"));
        let groups = texts(&page, "CommonPrefixes").into_iter();
        names.extend(groups.map(|group| group.replace("<Prefix>", "").replace("</Prefix>", "")));
        if texts(&page, "IsTruncated") == ["false"] {
            return names;
        }
        let next = |name| texts(&page, name).pop();
        from = match (next("NextContinuationToken"), next("NextMarker")) {
            (Some(token), _) => format!("&continuation-token={token}"),
            (None, Some(marker)) => format!("&marker={marker}"),
            (None, None) => format!("&key-marker={}", next("NextKeyMarker").unwrap()),
        };
    }
    panic!("the pages do not end: {names:?}");
}

#[tokio::test]
async fn each_name_is_on_one_page_whatever_its_size_and_the_version_of_the_api() {
    let node = Node::start_with(pack).await;
    packed(&node, &["tmp/.s", "tmp/b", "tmp/d/1", "tmp/d/2", "tmp/e"]).await;
    for key in ["tmp/-", "tmp/c", "tmp/e", "u"] {
        node.lake.put("b", key, "at the lake");
    }
    let all = ["tmp/-", "tmp/.s", "tmp/b", "tmp/c", "tmp/d/1", "tmp/d/2", "tmp/e"];
    for most in [1, 2, 3, 5, 1000] {
        for version in ["list-type=2&", "", "versions&"] {
            let query = format!("{version}prefix=tmp/&max-keys={most}");
            assert_eq!(listed(&node.client(), &query).await, all, "{query}");
        }
        let query = format!("list-type=2&delimiter=/&prefix=tmp/&max-keys={most}");
        let mut grouped = listed(&node.client(), &query).await;
        grouped.sort();
        assert_eq!(
            grouped,
            ["tmp/-", "tmp/.s", "tmp/b", "tmp/c", "tmp/d/", "tmp/e"],
            "{query}"
        );
    }
    let page = node.client().get("/b?list-type=2&prefix=tmp/e").send().await;
    assert_eq!(
        texts(&page, "Size"),
        [small(4).len().to_string()],
        "the packed one is newer"
    );
    assert_eq!(
        listed(&node.client(), "list-type=2&delimiter=/").await,
        ["u", "tmp/"]
    );
    node.stop().await;
}

#[tokio::test]
async fn a_prefix_that_has_nothing_but_packs_is_empty() {
    let node = Node::start_with(pack).await;
    packed(&node, &["tmp/a"]).await;
    let removed = node.client().delete("/b/tmp/a").send().await;
    assert_eq!(removed.status, StatusCode::NO_CONTENT, "{}", removed.text());
    flush(&node, "").await;
    assert_eq!(packs(&node.lake).await.len(), 1, "it is removed later");
    let queries = ["", "list-type=2", "list-type=2&delimiter=/", "delimiter=/"];
    for query in queries {
        assert_eq!(listed(&node.client(), query).await, [""; 0], "{query}");
    }
    node.lake.put("b", "tmp/z", "at the lake");
    for query in &queries[2..] {
        assert_eq!(listed(&node.client(), query).await, ["tmp/"], "{query}");
    }
    node.stop().await;
}

#[tokio::test]
async fn no_request_reaches_a_pack() {
    let node = Node::start_with(pack).await;
    packed(&node, &["tmp/a"]).await;
    let (client, pack) = (node.client(), packs(&node.lake).await.remove(0));
    let target = format!("/b/{pack}");
    node.lake.forget_requests();
    let calls = [
        client.get(&target).range("bytes=0-1"),
        client.get(&format!("{target}?tagging")),
        client.put(&target, "x").header("x-shoal-write", "around"),
        client.put(&format!("{target}?acl"), ""),
        client.post(&format!("/b/{FOLDER}new?uploads"), ""),
        client.put("/b/u", "").header("x-amz-copy-source", &target),
    ];
    for call in calls {
        is_refused(&call.send().await);
    }
    let keys = format!("<Object><Key>{pack}</Key></Object><Object><Key>u</Key></Object>");
    let deleted = client
        .post("/b?delete", format!("<Delete>{keys}</Delete>"))
        .send()
        .await;
    assert_eq!(deleted.status, StatusCode::OK, "{}", deleted.text());
    assert_eq!(texts(&deleted, "Code"), ["AccessDenied"], "{}", deleted.text());
    assert_eq!(texts(&deleted, "Deleted").len(), 1, "{}", deleted.text());
    assert_eq!(node.lake.count(is_of_pack), 0, "{:#?}", node.lake.requests());
    node.stop().await;
}

#[tokio::test]
async fn a_read_that_only_the_lake_can_answer_unpacks_the_object_for_whoever_may_read_it() {
    let node = cold_node(&["tmp/a", "tmp/b", "tmp/c"], |_| ()).await;
    let foreign = |client: &Client, key| {
        let get = client.get(&format!("/b/tmp/{key}"));
        get.header("x-amz-expected-bucket-owner", "o")
    };
    node.lake.deny(OTHER_KEY, Access::Read, "b/tmp");
    node.lake.deny(OTHER_KEY, Access::Write, "b/tmp");
    is_refused(&foreign(&node.other(), "a").send().await);
    is_refused(&node.other().get("/b/tmp/b?tagging").send().await);
    let copy = node
        .other()
        .put("/b/u", "")
        .header("x-amz-copy-source", "/b/tmp/c");
    is_refused(&copy.send().await);
    for key in ["tmp/a", "tmp/b", "tmp/c"] {
        assert!(node.lake.object("b", key).is_none(), "{key}");
    }
    let read = foreign(&node.client(), "a").send().await;
    assert!(
        read.status == StatusCode::OK && read.body == small(0),
        "{}",
        read.text()
    );
    assert_eq!(
        read.header("etag"),
        Some(&*node.lake.object("b", "tmp/a").unwrap().etag)
    );
    node.client().get("/b/tmp/b?tagging").send().await;
    assert!(node.lake.object("b", "tmp/b").unwrap().content.all() == small(1));
    reads(&node.client(), "tmp/b", &small(1)).await;
    node.stop().await;
}

/// The lake would write the object under its own name, where the packed one hides it.
#[tokio::test]
async fn a_form_cannot_upload_below_a_packed_prefix() {
    let node = Node::start_with(pack).await;
    let form = async |key: &str| {
        let form = format!("--x\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\n{key}\r\n--x--");
        let post = node.client().post("/b", form);
        let post = post.header("content-type", "multipart/form-data; boundary=x");
        post.send().await
    };
    let refused = form("tmp/a").await;
    assert_eq!(
        (refused.status, refused.code()),
        (StatusCode::NOT_IMPLEMENTED, "NotImplemented")
    );
    assert!(refused.text().contains("packed"), "{}", refused.text());
    let posts = || node.lake.count(|request| request.method == Method::POST);
    assert_eq!(posts(), 0);
    form("u").await;
    assert_eq!(posts(), 1, "others are the lake's");
    node.stop().await;
}

#[tokio::test]
async fn a_task_brings_packed_objects_into_the_cache() {
    let node = cold_node(&["tmp/a", "tmp/b", "tmp/c"], |_| ()).await;
    let done = carry_out(&node, &order("prefetch", "s3://b/tmp/")).await;
    assert_eq!(done["objects"]["done"], 3, "{done:#}");
    node.lake.forget_requests();
    let warm = reads(&node.client(), "tmp/c", &small(2)).await;
    assert_eq!(warm.header("x-cache"), Some("REVALIDATED"));
    assert_eq!(node.lake.count(Request::is_get), 0);
    node.stop().await;
}
