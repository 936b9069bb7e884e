//! Listings of multipart uploads, some of which only a tier has.

use std::time::{Duration, SystemTime};

use http::StatusCode;
use shoal_net::clock;

use super::cluster::cluster;
use super::multipart::{begin, complete, list, parts, put};
use super::{back, texts};
use crate::client::{Client, Reply};
use crate::cluster::Cluster;
use crate::lake::{Access, Lake};
use crate::node::{Node, OTHER_KEY};
use crate::waiting::until;

const HOUR: Duration = Duration::from_hours(1);

/// Requests a page; without a limit in `query`, everything.
async fn page(client: &Client, query: &str) -> Reply {
    let page = client.get(&format!("/b?uploads&{query}")).send().await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text());
    page
}

/// Returns the ids of all uploads, and the common prefixes, page by page.
async fn pages(client: &Client, query: &str, most: usize) -> Vec<Vec<String>> {
    let (mut pages, mut from) = (Vec::new(), String::new());
    loop {
        let page = page(client, &format!("{query}&max-uploads={most}{from}")).await;
        let mut shown = texts(&page, "UploadId");
        shown.extend(prefixes(&page));
        pages.push(shown);
        if texts(&page, "IsTruncated") == ["false"] {
            return pages;
        }
        from = format!(
            "&key-marker={}&upload-id-marker={}",
            texts(&page, "NextKeyMarker")[0],
            texts(&page, "NextUploadIdMarker")[0]
        );
        assert!(pages.len() < 20, "the pages do not end: {pages:?}");
    }
}

fn prefixes(page: &Reply) -> Vec<String> {
    let groups = texts(page, "CommonPrefixes");
    let tags = ["<Prefix>", "</Prefix>"];
    groups
        .iter()
        .map(|group| group.replace(tags[0], "").replace(tags[1], ""))
        .collect()
}

/// Asserts that listings of every page size divide `expected` into pages.
async fn is_paged(client: &Client, query: &str, expected: &[&str]) {
    for most in [1, 2, 3, expected.len(), 1000] {
        let pages = pages(client, query, most).await;
        assert_eq!(pages.concat(), expected, "{query}, {most} a page");
        let is_full = |page: &Vec<String>| page.len() == most;
        assert!(
            pages[..pages.len() - 1].iter().all(is_full),
            "{query}, {most} a page: {pages:?}"
        );
    }
}

/// Waits until the lake has `count` uploads: the question for permission also creates one.
async fn has_uploads(lake: &Lake, count: usize) {
    until("the lake has no other upload", async || lake.uploads() == count).await;
}

#[tokio::test]
async fn uploads_that_a_node_keeps_stand_between_those_of_the_lake_on_every_page() {
    let node = Node::start_with(back).await;
    let (client, lake) = (node.client(), &node.lake);
    let long_ago = SystemTime::UNIX_EPOCH;
    let b = lake.begin_upload("b", "tmp/b", clock::utc_now());
    let early = lake.begin_upload("b", "tmp/k", long_ago);
    let earlier = lake.begin_upload("b", "tmp/k", long_ago + HOUR);
    let late = lake.begin_upload("b", "tmp/k", clock::utc_now() + HOUR);
    let z = lake.begin_upload("b", "z", clock::utc_now());
    let a = begin(&client, "tmp/a").await;
    let one = begin(&client, "tmp/k").await;
    let two = begin(&client, "tmp/k").await;
    let y = begin(&client, "tmp/y").await;
    has_uploads(lake, 5).await;
    is_paged(
        &client,
        "",
        &[&a, &b, &early, &earlier, &one, &two, &late, &y, &z],
    )
    .await;
    is_paged(&client, "prefix=tmp/k", &[&early, &earlier, &one, &two, &late]).await;
    is_paged(&client, "prefix=tmp/y", &[&y]).await;
    is_paged(
        &client,
        "prefix=tmp/&delimiter=/",
        &[&a, &b, &early, &earlier, &one, &two, &late, &y],
    )
    .await;
    let behind = page(&client, "key-marker=tmp/k").await;
    assert_eq!(texts(&behind, "UploadId"), [&*y, &*z]);
    assert_eq!(texts(&behind, "KeyMarker"), ["tmp/k"]);
    let none = page(&client, "max-uploads=0").await;
    assert!(texts(&none, "UploadId").is_empty());
    node.stop().await;
}

#[tokio::test]
async fn uploads_behind_a_delimiter_are_one_prefix_of_both_lists() {
    let node = Node::start_with(back).await;
    let (client, lake) = (node.client(), &node.lake);
    let now = clock::utc_now();
    for key in ["tmp/a/1", "tmp/b/1", "tmp/d/1", "tmp/d/2"] {
        lake.begin_upload("b", key, now);
    }
    for key in ["tmp/b/0", "tmp/b/2", "tmp/c/1", "tmp/d/3"] {
        begin(&client, key).await;
    }
    let e = begin(&client, "tmp/e").await;
    has_uploads(lake, 4).await;
    for most in [1, 2, 3, 5] {
        let pages = pages(&client, "prefix=tmp/&delimiter=/", most).await;
        let mut shown = pages.concat();
        // On a page, prefixes follow the uploads.
        shown.sort_by_key(|name| *name == e);
        assert_eq!(
            shown,
            ["tmp/a/", "tmp/b/", "tmp/c/", "tmp/d/", &e],
            "{most} a page"
        );
    }
    let behind = page(&client, "prefix=tmp/&delimiter=/&key-marker=tmp/c/").await;
    assert_eq!(
        (prefixes(&behind), texts(&behind, "UploadId")),
        (vec!["tmp/d/".into()], vec![e])
    );
    node.stop().await;
}

#[tokio::test]
async fn keys_are_spelt_as_the_client_wants_them_on_every_page() {
    let node = Node::start_with(back).await;
    let client = node.client();
    node.lake.begin_upload("b", "tmp/b&c", clock::utc_now());
    for key in ["tmp/%C3%A9", "tmp/a+b%20c", "tmp/x%3Cy"] {
        begin(&client, key).await;
    }
    has_uploads(&node.lake, 1).await;
    let plain = page(&client, "").await;
    assert_eq!(
        texts(&plain, "Key"),
        ["tmp/a+b c", "tmp/b&amp;c", "tmp/x&lt;y", "tmp/é"]
    );
    let encoded = page(&client, "encoding-type=url").await;
    let keys = ["tmp/a%2Bb%20c", "tmp%2Fb%26c", "tmp/x%3Cy", "tmp/%C3%A9"];
    assert_eq!(texts(&encoded, "Key"), keys);
    for most in 1..4 {
        let pages = pages(&client, "encoding-type=url", most).await;
        assert_eq!(pages.concat(), texts(&plain, "UploadId"), "{most} a page");
    }
    node.stop().await;
}

#[tokio::test]
async fn an_upload_is_shown_as_its_parts_are() {
    let node = Node::start_with(back).await;
    let begun = node.client().post("/b/tmp/k?uploads", "");
    let begun = begun.header("x-amz-checksum-algorithm", "CRC32").send().await;
    let id = texts(&begun, "UploadId").remove(0);
    let shown = page(&node.client(), "").await;
    let its_parts = node.client().get(&format!("/b/tmp/k?uploadId={id}")).send().await;
    for element in [
        "UploadId",
        "Initiator",
        "Owner",
        "StorageClass",
        "ChecksumAlgorithm",
        "ChecksumType",
    ] {
        assert_eq!(texts(&shown, element), texts(&its_parts, element), "{element}");
        assert_eq!(texts(&shown, element).len(), 1, "{element}");
    }
    assert!(texts(&shown, "Initiated")[0].starts_with("20"));
    node.stop().await;
}

#[tokio::test]
async fn others_see_the_uploads_of_the_lake_and_a_client_that_may_not_list_sees_none() {
    let node = Node::start_with(back).await;
    let of_the_lake = node.lake.begin_upload("b", "tmp/b", clock::utc_now());
    let own = begin(&node.client(), "tmp/a").await;
    let others = begin(&node.other(), "tmp/a").await;
    has_uploads(&node.lake, 1).await;
    let ids = async |client: &Client| texts(&page(client, "").await, "UploadId");
    assert_eq!(ids(&node.client()).await, [&*own, &*of_the_lake]);
    assert_eq!(ids(&node.other()).await, [&*others, &*of_the_lake]);
    // A marker from one client shows none of its uploads to another client.
    let first = page(&node.client(), "max-uploads=1").await;
    let marker = &texts(&first, "NextUploadIdMarker")[0];
    let further = page(
        &node.other(),
        &format!("key-marker=tmp/a&upload-id-marker={marker}"),
    )
    .await;
    assert!(!texts(&further, "UploadId").contains(&own));
    node.lake.deny(OTHER_KEY, Access::Read, "b");
    let refused = node.other().get("/b?uploads").send().await;
    assert_eq!(
        (refused.status, refused.code()),
        (StatusCode::FORBIDDEN, "AccessDenied")
    );
    let stranger = node.stranger().get("/b?uploads").send().await;
    assert_eq!(stranger.status, StatusCode::FORBIDDEN);
    node.stop().await;
}

/// Returns the ids that each node lists.
async fn shown(cluster: &Cluster) -> Vec<Vec<String>> {
    let mut shown = Vec::new();
    for node in &cluster.nodes {
        shown.push(texts(&page(&node.client(), "").await, "UploadId"));
    }
    shown
}

#[tokio::test]
async fn every_node_shows_the_uploads_of_all_until_they_end() {
    let cluster = cluster(3).await;
    let part = parts(40).remove(2);
    let mut ids = Vec::new();
    for (node, key) in cluster.nodes.iter().zip(["tmp/a", "tmp/b", "tmp/c"]) {
        ids.push(begin(&node.client(), key).await);
    }
    has_uploads(&cluster.lake, 0).await;
    assert_eq!(shown(&cluster).await, vec![ids.clone(); 3]);
    for (node, most) in cluster.nodes.iter().zip(1..) {
        assert_eq!(pages(&node.client(), "", most).await.concat(), ids);
    }
    let client = cluster.nodes[0].client();
    let aborted = client
        .delete(&format!("/b/tmp/b?uploadId={}", ids[1]))
        .send()
        .await;
    assert_eq!(aborted.status, StatusCode::NO_CONTENT);
    assert_eq!(shown(&cluster).await, vec![[&*ids[0], &*ids[2]]; 3]);
    let put = put(&client, "tmp/c", &ids[2], 1, &part).await;
    let list = list([(1, put.header("etag").unwrap().to_owned())]);
    let completed = complete(&client, "tmp/c", &ids[2], &list).await;
    assert_eq!(completed.status, StatusCode::OK, "{}", completed.text());
    has_uploads(&cluster.lake, 0).await;
    assert_eq!(shown(&cluster).await, vec![[&*ids[0]]; 3]);
    cluster.stop().await;
}
