//! Listings and bulk deletions where some of the objects are dirty.

use std::time::Duration;

use http::StatusCode;
use serde_json::{Value, json};
use shoal_net::clock;
use shoal_orders::Moment;

use super::{back, bytes, flush, reads, texts, write_back};
use crate::client::Client;
use crate::lake::{Access, Request};
use crate::node::{Node, OTHER_KEY};
use crate::tasks::{carry_out, ls, order};

/// Returns the keys below `tmp/`, page by page.
async fn pages(client: &Client, version: &str, most: usize) -> Vec<Vec<String>> {
    let (mut pages, mut from) = (Vec::new(), String::new());
    loop {
        let list = client
            .get(&format!("/b?{version}prefix=tmp/&max-keys={most}{from}"))
            .send()
            .await;
        assert_eq!(list.status, StatusCode::OK, "{}", list.text());
        pages.push(texts(&list, "Key"));
        if texts(&list, "IsTruncated") == ["false"] {
            return pages;
        }
        from = match version {
            "" => format!("&marker={}", texts(&list, "NextMarker")[0]),
            _ => format!("&continuation-token={}", texts(&list, "NextContinuationToken")[0]),
        };
        assert!(pages.len() < 20, "the pages do not end: {pages:?}");
    }
}

#[tokio::test]
async fn dirty_objects_stand_between_those_of_the_lake_on_every_page() {
    let node = Node::start_with(back).await;
    for key in ["tmp/b", "tmp/d", "tmp/e", "tmp/h"] {
        node.lake.put("b", key, "at the lake");
    }
    for key in ["tmp/a", "tmp/c", "tmp/d", "tmp/i"] {
        write_back(&node.client(), key, &bytes(1)).await;
    }
    let expected = ["tmp/a", "tmp/b", "tmp/c", "tmp/d", "tmp/e", "tmp/h", "tmp/i"];
    for version in ["list-type=2&", ""] {
        for most in [1, 2, 3, 6, 7, 1000] {
            let pages = pages(&node.client(), version, most).await;
            assert_eq!(pages.concat(), expected, "{version}{most}");
            assert!(
                pages.iter().all(|page| page.len() <= most),
                "{version}{most}: {pages:?}"
            );
        }
    }
    assert!(
        node.lake.object("b", "tmp/a").is_none(),
        "a listing flushes nothing"
    );
    let page = node.client().get("/b?list-type=2&prefix=tmp/d").send().await;
    assert_eq!(
        texts(&page, "Size"),
        [bytes(1).len().to_string()],
        "what is dirty is newer"
    );
    node.stop().await;
}

#[tokio::test]
async fn others_see_dirty_objects_in_a_listing_and_a_client_that_may_not_list_sees_none() {
    let node = Node::start_with(back).await;
    node.lake.put("b", "tmp/b", "at the lake");
    write_back(&node.client(), "tmp/a", &bytes(1)).await;
    let list = node.other().get("/b?list-type=2").send().await;
    assert_eq!(texts(&list, "Key"), ["tmp/a", "tmp/b"]);
    node.lake.deny(OTHER_KEY, Access::Read, "b");
    write_back(&node.other(), "tmp/c", &bytes(1)).await;
    let list = node.other().get("/b?list-type=2").send().await;
    assert_eq!(
        (list.status, list.code()),
        (StatusCode::FORBIDDEN, "AccessDenied")
    );
    node.stop().await;
}

#[tokio::test]
async fn the_lake_names_the_owner_of_a_flushed_object() {
    let node = Node::start_with(back).await;
    for key in ["tmp/a", "tmp/other/b"] {
        write_back(&node.client(), key, &bytes(1)).await;
    }
    let asked = "/b?list-type=2&fetch-owner=true&prefix=tmp/a";
    let list = node.client().get(asked).send().await;
    assert_eq!(texts(&list, "Key"), ["tmp/a"]);
    assert!(node.lake.object("b", "tmp/a").is_some());
    assert!(
        node.lake.object("b", "tmp/other/b").is_none(),
        "nobody asked whose it is"
    );
    node.stop().await;
}

#[tokio::test]
async fn many_objects_are_removed_wherever_they_are() {
    let node = Node::start_with(back).await;
    node.lake.put("b", "tmp/at the lake", "bytes");
    for key in ["tmp/a", "tmp/b&c", "tmp/kept"] {
        write_back(&node.client(), key.replace('&', "%26").as_str(), &bytes(1)).await;
    }
    let body = "<Delete><Object><Key>tmp/a</Key></Object><Object><Key>tmp/b&amp;c</Key></Object>\
        <Object><Key>tmp/at the lake</Key></Object></Delete>";
    let deleted = node.client().post("/b?delete", body).send().await;
    assert_eq!(deleted.status, StatusCode::OK, "{}", deleted.text());
    assert_eq!(texts(&deleted, "Deleted").len(), 3);
    let list = node.client().get("/b?list-type=2").send().await;
    assert_eq!(texts(&list, "Key"), ["tmp/kept"]);
    flush(&node, "").await;
    let list = node.client().get("/b?list-type=2").send().await;
    assert_eq!(texts(&list, "Key"), ["tmp/kept"]);
    assert_eq!(node.lake.count(|request: &Request| request.is_put()), 1);
    node.stop().await;
}

#[tokio::test]
async fn a_key_that_the_caller_may_not_delete_in_a_list_stays_dirty() {
    let node = Node::start_with(back).await;
    for key in ["tmp/a", "tmp/mine/b"] {
        write_back(&node.client(), key, &bytes(1)).await;
    }
    node.lake.deny(OTHER_KEY, Access::Write, "b/tmp/mine");
    let body = "<Delete><Object><Key>tmp/a</Key></Object><Object><Key>tmp/mine/b</Key></Object></Delete>";
    let deleted = node.other().post("/b?delete", body).send().await;
    assert_eq!(deleted.status, StatusCode::OK);
    assert_eq!(texts(&deleted, "Error").len(), 1);
    let report = flush(&node, "").await;
    assert_eq!(
        (&report["flush"]["flushed"], &report["flush"]["failed"]),
        (&1.into(), &0.into())
    );
    assert!(node.lake.object("b", "tmp/mine/b").is_some());
    assert!(node.lake.object("b", "tmp/a").is_none());
    node.stop().await;
}

#[tokio::test]
async fn a_task_about_a_prefix_finds_its_dirty_objects_and_flushes_none() {
    let node = Node::start_with(back).await;
    node.lake.put("b", "tmp/at-the-lake", "bytes");
    node.lake.put("b", "tmp/b.txt", "older bytes");
    for key in ["tmp/a.txt", "tmp/b.txt", "tmp/c.bin"] {
        write_back(&node.client(), key, &bytes(1)).await;
    }
    for (uri, done) in [("s3://b/tmp/", 4), ("s3://b/tmp/*.bin", 1), ("s3://b/other/", 0)] {
        let task = carry_out(&node, &order("prefetch", uri)).await;
        let objects = &task["objects"];
        assert_eq!(task["state"], "done", "{task:#}");
        assert_eq!(
            (&objects["done"], &objects["skipped"]),
            (&done.into(), &0.into()),
            "{task:#}"
        );
        assert_eq!(task["detail"], serde_json::Value::Null, "{task:#}");
    }
    assert!(node.lake.object("b", "tmp/a.txt").is_none());
    node.stop().await;
}

#[tokio::test]
async fn a_task_for_another_identity_has_the_dirty_objects_flushed_that_it_fetches() {
    let node = Node::start_with(back).await;
    for key in ["tmp/a", "tmp/b"] {
        write_back(&node.client(), key, &bytes(1)).await;
    }
    let mut orders = ["evict", "prefetch"].map(|kind| order(kind, "s3://b/tmp/"));
    orders[1]["identity"] = OTHER_KEY.into();
    for order in &orders {
        let task = carry_out(&node, order).await;
        assert_eq!(
            (&task["state"], &task["objects"]["done"]),
            (&"done".into(), &2.into()),
            "{task:#}"
        );
    }
    for key in ["tmp/a", "tmp/b"] {
        assert!(node.lake.object("b", key).is_some(), "{key}");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_pin_holds_a_dirty_object_before_and_after_its_flush() {
    let node = Node::start_with(back).await;
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    carry_out(&node, &order("evict", "s3://b/tmp/")).await;
    let mut pin = order("pin", "s3://b/tmp/");
    let until = Moment::from(clock::utc_now() + Duration::from_mins(10));
    pin["until"] = until.to_string().into();
    let task = carry_out(&node, &pin).await;
    let pinned = task["bytes"]["pinned"].as_u64().unwrap();
    assert!(
        task["state"] == "done" && pinned >= bytes(1).len() as u64,
        "{task:#}"
    );
    assert!(node.lake.object("b", "tmp/k").is_none());
    flush(&node, "").await;
    node.lake.forget_requests();
    let evicted = carry_out(&node, &order("evict", "s3://b/tmp/")).await;
    assert_eq!(evicted["objects"]["failed"], 1, "a pin holds: {evicted:#}");
    reads(&node.client(), "tmp/k", &bytes(1)).await;
    assert_eq!(
        node.lake
            .count(|request: &Request| request.is_get() && request.is_of_object()),
        0
    );
    node.stop().await;
}

#[tokio::test]
async fn a_dirty_object_is_listed_as_dirty_until_the_lake_has_it() {
    let node = Node::start_with(back).await;
    node.lake.put("b", "tmp/at-the-lake", "x");
    write_back(&node.client(), "tmp/new", &bytes(1)).await;
    let listed = async || {
        let objects = ls::objects(&node, "s3://b/tmp/", 1000).await;
        let object = |object: &Value| {
            let (key, bytes) = (object["key"].clone(), object["size_bytes"].as_u64().unwrap());
            (key, bytes, object["dirty"].clone())
        };
        objects.iter().map(object).collect::<Vec<_>>()
    };
    let len = bytes(1).len() as u64;
    let new = |dirty: bool| (json!("tmp/new"), len, json!(dirty));
    let old = (json!("tmp/at-the-lake"), 1, json!(false));
    assert_eq!(listed().await, [old.clone(), new(true)]);
    assert!(
        node.lake.object("b", "tmp/new").is_none(),
        "a listing flushes nothing"
    );
    flush(&node, "s3://b/tmp/").await;
    assert_eq!(listed().await, [old, new(false)]);
    node.stop().await;
}
