//! A single node that writes back to a tier.

use std::time::Duration;

use http::{Method, StatusCode};

use super::{back, bytes, flush, reads, write_back};
use crate::lake::{Access, Fault, Gate, Request};
use crate::node::{Node, OTHER_KEY};
use crate::write::modes;

async fn node() -> Node {
    Node::start_with(back).await
}

fn is_object(request: &Request) -> bool {
    request.key.starts_with(b"tmp/") && request.query.is_empty()
}

#[tokio::test]
async fn an_object_written_back_is_read_before_the_lake_has_it() {
    let node = node().await;
    for (number, mode) in modes().into_iter().enumerate() {
        let (key, bytes) = (format!("tmp/{number}"), bytes(number as u64));
        let put = node
            .client()
            .put(&format!("/b/{key}"), bytes.clone())
            .payload(mode);
        let put = put
            .header("x-amz-meta-colour", "blue")
            .header("content-type", "text/x-story");
        let reply = put.send().await;
        assert_eq!(reply.status, StatusCode::OK, "{mode:?}: {}", reply.text());
        assert_eq!(reply.header("x-shoal-write"), Some("back"), "{mode:?}");
        let etag = reply.header("etag").unwrap().to_owned();
        let read = reads(&node.client(), &key, &bytes).await;
        let head = node.client().head(&format!("/b/{key}")).send().await;
        for reply in [read, head] {
            assert_eq!(reply.header("etag"), Some(etag.as_str()), "{mode:?}");
            assert_eq!(reply.header("x-amz-meta-colour"), Some("blue"));
            assert_eq!(reply.header("content-type"), Some("text/x-story"));
            assert_eq!(
                reply.header("content-length"),
                Some(bytes.len().to_string().as_str())
            );
        }
        assert!(node.lake.object("b", &key).is_none(), "{mode:?}");
    }
    assert_eq!(node.lake.count(is_object), 0, "the lake hears of no object");
    node.stop().await;
}

#[tokio::test]
async fn a_flush_changes_nothing_that_is_seen() {
    let node = node().await;
    for (number, mode) in modes().into_iter().enumerate() {
        let key = format!("tmp/{number}");
        let put = node
            .client()
            .put(&format!("/b/{key}"), bytes(number as u64))
            .payload(mode);
        put.header("x-amz-meta-colour", "blue").send().await;
    }
    let seen = async |number: usize| {
        let get = node.client().get(&format!("/b/tmp/{number}"));
        let reply = get.header("x-amz-checksum-mode", "ENABLED").send().await;
        let mut headers = reply.headers.clone();
        for name in [
            "x-amz-request-id",
            "x-amz-id-2",
            "x-cache",
            "server-timing",
            "date",
            "last-modified",
        ] {
            headers.remove(name);
        }
        (reply.status, headers, reply.body)
    };
    for number in 0..modes().len() {
        let before = seen(number).await;
        let report = flush(&node, &format!("s3://b/tmp/{number}")).await;
        assert_eq!(report["flush"]["failed"], 0, "{report}");
        assert!(node.lake.object("b", format!("tmp/{number}")).is_some());
        assert_eq!(seen(number).await, before);
    }
    assert_eq!(node.status().await["write_back"]["objects"], 0);
    node.stop().await;
}

#[tokio::test]
async fn ranges_and_conditions_of_a_dirty_object_are_those_of_any_other() {
    let node = node().await;
    let bytes = bytes(1);
    let etag = write_back(&node.client(), "tmp/k", &bytes).await;
    let etag = etag.header("etag").unwrap();
    let get = || node.client().get("/b/tmp/k");
    let part = get().range("bytes=65530-65545").send().await;
    assert_eq!(part.status, StatusCode::PARTIAL_CONTENT);
    assert_eq!(part.body, bytes.slice(65530..65546));
    let beyond = get().range("bytes=999999999-").send().await;
    assert_eq!(beyond.status, StatusCode::RANGE_NOT_SATISFIABLE);
    for (name, value, status) in [
        ("if-none-match", etag, StatusCode::NOT_MODIFIED),
        ("if-match", etag, StatusCode::OK),
        ("if-match", "\"other\"", StatusCode::PRECONDITION_FAILED),
    ] {
        assert_eq!(
            get().header(name, value).send().await.status,
            status,
            "{name}: {value}"
        );
    }
    assert!(node.lake.object("b", "tmp/k").is_none());
    node.stop().await;
}

#[tokio::test]
async fn an_empty_object_can_be_dirty_too() {
    let node = node().await;
    let nothing = bytes::Bytes::new();
    write_back(&node.client(), "tmp/k", &nothing).await;
    reads(&node.client(), "tmp/k", &nothing).await;
    flush(&node, "s3://b/").await;
    assert_eq!(node.lake.object("b", "tmp/k").unwrap().content.size(), 0);
    node.stop().await;
}

#[tokio::test]
async fn others_read_a_dirty_object_when_the_lake_has_it_and_only_if_they_may() {
    let node = node().await;
    node.lake.put("b", "tmp/old", "what the lake had");
    node.lake.deny(OTHER_KEY, Access::Read, "b/tmp/mine");
    for key in ["tmp/new", "tmp/old", "tmp/mine"] {
        write_back(&node.client(), key, &bytes(1)).await;
    }
    let head = node.other().head("/b/tmp/new").send().await;
    assert_eq!(head.status, StatusCode::OK);
    assert!(node.lake.object("b", "tmp/new").is_some());
    reads(&node.other(), "tmp/old", &bytes(1)).await;
    for client in [node.other(), node.stranger()] {
        let refused = client.get("/b/tmp/mine").send().await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN);
    }
    reads(&node.client(), "tmp/mine", &bytes(1)).await;
    node.stop().await;
}

#[tokio::test]
async fn a_client_that_may_not_write_to_the_lake_may_not_write_back() {
    let node = node().await;
    node.lake.deny(OTHER_KEY, Access::Write, "b/tmp");
    let put = node.other().put("/b/tmp/k", bytes(1)).send().await;
    assert_eq!((put.status, put.code()), (StatusCode::FORBIDDEN, "AccessDenied"));
    assert_eq!(
        node.client().get("/b/tmp/k").send().await.status,
        StatusCode::NOT_FOUND
    );
    node.stop().await;
}

#[tokio::test]
async fn where_no_rule_covers_it_a_write_back_is_refused_and_a_read_costs_nothing() {
    let node = node().await;
    let put = node
        .client()
        .put("/b/k", "bytes")
        .header("x-shoal-write", "back")
        .send()
        .await;
    assert_eq!(
        (put.status, put.code()),
        (StatusCode::BAD_REQUEST, "InvalidArgument")
    );
    assert!(put.text().contains("[[write.rule]]"), "{}", put.text());
    assert!(node.lake.object("b", "k").is_none());
    node.stop().await;
}

#[tokio::test]
async fn a_dirty_object_that_is_removed_never_comes_to_the_lake() {
    let node = node().await;
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    let delete = node.client().delete("/b/tmp/k").send().await;
    assert_eq!(delete.status, StatusCode::NO_CONTENT);
    assert_eq!(
        node.client().get("/b/tmp/k").send().await.status,
        StatusCode::NOT_FOUND
    );
    flush(&node, "").await;
    assert!(node.lake.object("b", "tmp/k").is_none());
    node.stop().await;
}

#[tokio::test]
async fn a_client_that_may_not_remove_an_object_leaves_it_in_place() {
    let node = node().await;
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    node.lake.deny(OTHER_KEY, Access::Write, "b/tmp");
    let delete = node.other().delete("/b/tmp/k").send().await;
    assert_eq!(delete.status, StatusCode::FORBIDDEN);
    reads(&node.client(), "tmp/k", &bytes(1)).await;
    assert_eq!(flush(&node, "").await["flush"]["failed"], 0, "it is held no more");
    assert!(node.lake.object("b", "tmp/k").is_some());
    node.stop().await;
}

#[tokio::test]
async fn the_last_write_of_a_name_is_the_one_that_is_read_and_flushed() {
    let node = node().await;
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    write_back(&node.client(), "tmp/k", &bytes(2)).await;
    reads(&node.client(), "tmp/k", &bytes(2)).await;
    flush(&node, "").await;
    let puts = node
        .lake
        .count(|request| is_object(request) && request.method == "PUT");
    assert_eq!(puts, 1, "what is overwritten costs the lake nothing");
    assert!(node.lake.object("b", "tmp/k").unwrap().content.all() == bytes(2));
    let around = node
        .client()
        .put("/b/tmp/k", bytes(3))
        .header("x-shoal-write", "around");
    assert_eq!(around.send().await.status, StatusCode::OK);
    reads(&node.client(), "tmp/k", &bytes(3)).await;
    node.stop().await;
}

#[tokio::test]
async fn an_operation_of_the_lake_waits_until_the_lake_has_the_object() {
    let node = node().await;
    let keys = ["tmp/copied", "tmp/ruled", "tmp/parted", "tmp/owned"];
    for key in keys {
        write_back(&node.client(), key, &bytes(1)).await;
    }
    let copy = node
        .client()
        .put("/b/copy", "")
        .header("x-amz-copy-source", "/b/tmp/copied");
    assert_eq!(copy.send().await.status, StatusCode::OK);
    reads(&node.client(), "copy", &bytes(1)).await;
    let acl = node
        .client()
        .put("/b/tmp/ruled?acl", "")
        .header("x-amz-acl", "public-read");
    assert_eq!(acl.send().await.status, StatusCode::OK);
    let parts = node
        .client()
        .get("/b/tmp/parted")
        .range("bytes=0-1,5-6")
        .send()
        .await;
    assert!(parts.status.is_success(), "{}", parts.status);
    let owned = node.client().get("/b/tmp/owned");
    let owned = owned.header("x-amz-expected-bucket-owner", "somebody");
    assert_eq!(owned.send().await.status, StatusCode::OK);
    for key in keys {
        assert!(node.lake.object("b", key).is_some(), "{key}");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_bucket_is_changed_once_the_lake_has_what_was_acknowledged_before() {
    let node = node().await;
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    let policy = r#"{"Statement": [{"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::b/tmp/*"}]}"#;
    let put = node.client().put("/b?policy", policy).send().await;
    assert!(put.status.is_success(), "{}", put.text());
    assert!(
        node.lake.object("b", "tmp/k").is_some(),
        "its writer may not bring it there any more"
    );
    reads(&node.client(), "tmp/k", &bytes(1)).await;
    node.stop().await;
}

#[tokio::test]
async fn objects_that_a_request_to_the_bucket_waits_for_are_flushed_side_by_side() {
    let node = node().await;
    for key in ["tmp/a", "tmp/b", "tmp/c"] {
        write_back(&node.client(), key, &bytes(1)).await;
    }
    let gate = Gate::new();
    let is_flush = |request: &Request| request.is_put() && is_object(request);
    node.lake
        .misbehave(Fault::new().body_held_by(&gate).when(is_flush).always());
    let client = node.client();
    let versions = tokio::spawn(async move { client.get("/b?versions").send().await });
    gate.arrived(3).await;
    gate.open();
    versions.await.unwrap();
    for key in ["tmp/a", "tmp/b", "tmp/c"] {
        assert!(node.lake.object("b", key).is_some(), "{key}");
    }
    node.stop().await;
}

#[tokio::test]
async fn a_listing_shows_what_is_dirty() {
    let node = node().await;
    node.lake.put("b", "tmp/b", "at the lake");
    for key in ["tmp/a", "tmp/c"] {
        write_back(&node.client(), key, &bytes(1)).await;
    }
    let list = node.client().get("/b?list-type=2&prefix=tmp/").send().await;
    let keys: Vec<&str> = list
        .text()
        .split("<Key>")
        .skip(1)
        .filter_map(|rest| rest.split("</Key>").next())
        .collect();
    assert_eq!(keys, ["tmp/a", "tmp/b", "tmp/c"]);
    node.stop().await;
}

#[tokio::test]
async fn a_restart_brings_dirty_objects_back() {
    let node = node().await;
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    let node = node.restart_after(|_| ()).await;
    assert!(node.lake.object("b", "tmp/k").is_none());
    reads(&node.client(), "tmp/k", &bytes(1)).await;
    flush(&node, "").await;
    assert!(node.lake.object("b", "tmp/k").unwrap().content.all() == bytes(1));
    let node = node.restart_after(|_| ()).await;
    assert_eq!(
        node.status().await["write_back"]["objects"],
        0,
        "it is dirty no more"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_long_answer_to_a_request_about_an_object_is_passed_on() {
    let node = node().await;
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    let rows = "r".repeat(3 << 20);
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", rows.len());
    let is_select = |request: &Request| request.parameter("select").is_some();
    node.lake.misbehave(Fault::raw(head + &rows).when(is_select));
    let selected = node
        .client()
        .post("/b/tmp/k?select&select-type=2", "<x/>")
        .send()
        .await;
    assert_eq!(selected.status, StatusCode::OK, "{}", selected.code());
    assert!(selected.body == rows, "{} bytes", selected.body.len());
    write_back(&node.client(), "tmp/k", &bytes(2)).await;
    let report = flush(&node, "").await;
    assert_eq!(report["flush"]["failed"], 0, "no change is left over: {report}");
    node.stop().await;
}

#[tokio::test]
async fn a_node_that_stops_ends_what_clients_have_asked_for() {
    let node = node().await;
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    let gate = node
        .lake
        .hold(|request: &Request| request.method == Method::DELETE);
    let client = node.client();
    let asked = tokio::spawn(async move { client.delete("/b/tmp/k").send().await });
    gate.arrived(1).await;
    let stopped = tokio::spawn(node.halt());
    // Longer than the node needs to notice that it may no longer send.
    tokio::time::sleep(Duration::from_millis(500)).await;
    gate.open();
    assert_eq!(asked.await.unwrap().status, StatusCode::NO_CONTENT);
    let node = stopped.await.unwrap().start().await;
    let gone = node.client().get("/b/tmp/k").send().await;
    assert_eq!(gone.status, StatusCode::NOT_FOUND);
    node.stop().await;
}
