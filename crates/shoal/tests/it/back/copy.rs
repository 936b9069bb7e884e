//! Copies of dirty objects: within the tier where the node can make them, and at the lake otherwise.

use std::time::Duration;

use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::StatusCode;
use shoal_net::clock;

use super::multipart::{cluster, etag, parts, upload};
use super::{assert_back, back, bytes, flush, reads, texts, write_back};
use crate::client::{Call, Client};
use crate::lake::{Access, Request};
use crate::node::{Node, OTHER_KEY};

const LONG_AGO: &str = "Thu, 01 Jan 2015 00:00:00 GMT";

fn copy(client: &Client, from: &str, to: &str) -> Call {
    let copy = client.put(&format!("/b/{to}"), "");
    copy.header("x-amz-copy-source", format!("/b/{from}"))
}

/// Returns true for a request that reads or copies bytes.
fn moves_bytes(request: &Request) -> bool {
    request.is_get() || request.headers.contains_key("x-amz-copy-source")
}

/// Returns the files of the pieces in a tier's folder.
fn pieces(folder: &Path) -> Vec<PathBuf> {
    let entries = |path: PathBuf| {
        std::fs::read_dir(path)
            .unwrap()
            .map(|entry| entry.unwrap().path())
    };
    entries(folder.join("pieces")).flat_map(entries).collect()
}

#[tokio::test]
async fn a_rename_moves_no_byte_to_the_lake_or_back() {
    let node = Node::start_with(back).await;
    let client = node.client();
    let put = client.put("/b/tmp/_temporary/0/part", bytes(1));
    let put = put
        .header("x-amz-meta-colour", "blue")
        .header("content-type", "text/x-story");
    let put = put.send().await;
    assert_back(&put);
    let copied = copy(&client, "tmp/_temporary/0/part", "tmp/part").send().await;
    assert_back(&copied);
    let told = texts(&copied, "ETag")[0].replace("&quot;", "\"");
    assert_eq!(Some(&*told), put.header("etag"));
    assert_eq!(texts(&copied, "LastModified").len(), 1);
    let deleted = client.delete("/b/tmp/_temporary/0/part").send().await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    let before = reads(&client, "tmp/part", &bytes(1)).await;
    assert_eq!(before.header("x-amz-meta-colour"), Some("blue"));
    assert!(node.lake.object("b", "tmp/part").is_none());
    assert_eq!(flush(&node, "").await["flush"]["failed"], 0);
    let object = node.lake.object("b", "tmp/part").unwrap();
    assert!(object.content.all() == bytes(1));
    assert_eq!(object.etag, told);
    assert_eq!(object.headers["x-amz-meta-colour"], "blue");
    assert_eq!(object.headers["content-type"], "text/x-story");
    assert!(node.lake.object("b", "tmp/_temporary/0/part").is_none());
    assert_eq!(node.lake.count(moves_bytes), 0);
    assert_eq!(node.lake.count(Request::is_put), 1, "only the flush");
    node.stop().await;
}

#[tokio::test]
async fn an_object_that_came_in_parts_is_copied_in_the_same_parts_by_way_of_any_node() {
    let cluster = cluster(2).await;
    let (client, other) = (cluster.nodes[0].client(), cluster.nodes[1].client());
    let parts = parts(1);
    let whole = Bytes::from(parts.concat());
    upload(std::slice::from_ref(&client), "tmp/source", &parts).await;
    let copied = copy(&other, "tmp/source", "tmp/copy").send().await;
    assert_back(&copied);
    assert_eq!(texts(&copied, "ETag")[0].replace("&quot;", "\""), etag(&parts));
    let folder = cluster.lake.tier_folder();
    assert_eq!(pieces(&folder).len(), 2 * parts.len());
    let deleted = other.delete("/b/tmp/source").send().await;
    assert_eq!(deleted.status, StatusCode::NO_CONTENT);
    reads(&client, "tmp/copy", &whole).await;
    assert_eq!(flush(&cluster.nodes[1], "").await["flush"]["failed"], 0);
    let object = cluster.lake.object("b", "tmp/copy").unwrap();
    assert!(object.content.all() == whole);
    assert_eq!(object.etag, etag(&parts));
    let sizes: Vec<u64> = parts.iter().map(|part| part.len() as u64).collect();
    assert_eq!(object.parts, sizes);
    assert_eq!(cluster.lake.count(moves_bytes), 0);
    cluster.stop().await;
}

#[tokio::test]
async fn an_empty_object_is_copied() {
    let node = Node::start_with(back).await;
    write_back(&node.client(), "tmp/_SUCCESS", &Bytes::new()).await;
    assert_back(&copy(&node.client(), "tmp/_SUCCESS", "tmp/copy").send().await);
    reads(&node.client(), "tmp/copy", &Bytes::new()).await;
    flush(&node, "").await;
    assert_eq!(node.lake.object("b", "tmp/copy").unwrap().content.size(), 0);
    node.stop().await;
}

#[tokio::test]
async fn a_copy_has_the_metadata_of_its_source_or_those_of_the_request() {
    let node = Node::start_with(back).await;
    let client = node.client();
    let put = client
        .put("/b/tmp/k", bytes(1))
        .header("x-amz-meta-colour", "blue");
    assert_back(&put.header("x-amz-meta-size", "xl").send().await);
    let refined = |call: Call, directive| {
        let call = call.header("x-amz-metadata-directive", directive);
        call.header("x-amz-meta-colour", "red")
    };
    let kept = refined(copy(&client, "tmp/k", "tmp/kept"), "COPY");
    assert_back(&kept.send().await);
    let replaced = refined(copy(&client, "tmp/k", "tmp/replaced"), "REPLACE");
    assert_back(&replaced.send().await);
    let onto_itself = refined(copy(&client, "tmp/k", "tmp/k"), "REPLACE");
    assert_back(&onto_itself.send().await);
    for is_flushed in [false, true] {
        for (key, colour, size) in [
            ("tmp/kept", "blue", Some("xl")),
            ("tmp/replaced", "red", None),
            ("tmp/k", "red", None),
        ] {
            let read = reads(&client, key, &bytes(1)).await;
            assert_eq!(read.header("x-amz-meta-colour"), Some(colour), "{key}");
            assert_eq!(read.header("x-amz-meta-size"), size, "{key}");
            assert_eq!(node.lake.object("b", key).is_some(), is_flushed, "{key}");
        }
        assert_eq!(flush(&node, "").await["flush"]["failed"], 0);
    }
    node.stop().await;
}

#[tokio::test]
async fn a_copy_is_made_only_of_a_source_that_is_what_the_client_believes() {
    let node = Node::start_with(back).await;
    let client = node.client();
    let put = write_back(&client, "tmp/k", &bytes(1)).await;
    let etag = put.header("etag").unwrap();
    let now = httpdate::fmt_http_date(clock::utc_now());
    for (name, wrong, right) in [
        ("x-amz-copy-source-if-match", "\"wrong\"", etag),
        ("x-amz-copy-source-if-none-match", etag, "\"wrong\""),
        ("x-amz-copy-source-if-unmodified-since", LONG_AGO, &now),
    ] {
        let copied = |value: &str| copy(&client, "tmp/k", "tmp/copy").header(name, value).send();
        let refused = copied(wrong).await;
        assert_eq!(
            (refused.status, refused.code()),
            (StatusCode::PRECONDITION_FAILED, "PreconditionFailed"),
            "{name}"
        );
        let none = client.get("/b/tmp/copy").send().await;
        assert_eq!(none.status, StatusCode::NOT_FOUND, "{name}");
        assert_back(&copied(right).await);
        client.delete("/b/tmp/copy").send().await;
    }
    assert!(node.lake.object("b", "tmp/k").is_none());
    node.stop().await;
}

#[tokio::test]
async fn the_lake_makes_every_other_copy() {
    let node = Node::start_with(back).await;
    node.lake.allow(OTHER_KEY, Access::Read, "b");
    let client = node.client();
    node.lake.put("b", "clean", bytes(9));
    for (number, (what, by, from, to, header)) in [
        ("of another writer", node.other(), "dirty", "tmp/copy", None),
        ("of a clean object", client.clone(), "../clean", "tmp/copy", None),
        (
            "to a name that is not back",
            client.clone(),
            "dirty",
            "copy",
            None,
        ),
        (
            "with an ACL",
            client.clone(),
            "dirty",
            "tmp/copy",
            Some(("x-amz-acl", "private")),
        ),
        (
            "with a condition on its name",
            client.clone(),
            "dirty",
            "tmp/copy",
            Some(("if-none-match", "*")),
        ),
        (
            "of a version",
            client.clone(),
            "dirty?versionId=null",
            "tmp/copy",
            None,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let seed = number as u64;
        let is_clean = from.starts_with("../");
        let from = match from.strip_prefix("../") {
            Some(clean) => clean.to_owned(),
            None => format!("tmp/{number}-{from}"),
        };
        let to = format!("{to}-{number}");
        if !is_clean {
            let key = from.split('?').next().unwrap();
            write_back(&client, key, &bytes(seed)).await;
        }
        node.lake.forget_requests();
        let mut call = copy(&by, &from, &to);
        if let Some((name, value)) = header {
            call = call.header(name, value);
        }
        let copied = call.send().await;
        assert_eq!(copied.status, StatusCode::OK, "{what}: {}", copied.text());
        assert_ne!(copied.header("x-shoal-write"), Some("back"), "{what}");
        let at_lake = node
            .lake
            .count(|request| request.headers.contains_key("x-amz-copy-source"));
        assert_eq!(at_lake, 1, "{what}");
        let expected = if is_clean { bytes(9) } else { bytes(seed) };
        assert!(
            node.lake.object("b", &to).unwrap().content.all() == expected,
            "{what}"
        );
        reads(&by, &to, &expected).await;
    }
    write_back(&client, "tmp/k", &bytes(1)).await;
    copy(&client, "tmp/k", "tmp/k").send().await;
    assert!(node.lake.object("b", "tmp/k").is_some(), "onto itself");
    node.stop().await;
}

#[tokio::test]
async fn a_caller_that_may_not_write_the_name_makes_no_copy() {
    let node = Node::start_with(back).await;
    let other = node.other();
    write_back(&other, "tmp/k", &bytes(1)).await;
    node.lake.deny(OTHER_KEY, Access::Write, "b/tmp/closed");
    let refused = copy(&other, "tmp/k", "tmp/closed/k").send().await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let none = node.client().get("/b/tmp/closed/k").send().await;
    assert_eq!(none.status, StatusCode::NOT_FOUND);
    assert_eq!(pieces(&node.lake.tier_folder()).len(), 1);
    node.stop().await;
}

#[tokio::test]
async fn a_source_that_goes_while_it_is_copied_is_looked_for_again() {
    let node = Node::start_with(|config| {
        back(config);
        config.write.permission = Duration::ZERO;
    })
    .await;
    let client = node.client();
    let folder = node.lake.tier_folder();
    for (key, later) in [("overwritten", Some(bytes(2))), ("removed", None)] {
        let (from, to) = (format!("tmp/{key}"), format!("tmp/{key}-copy"));
        let others = pieces(&folder);
        write_back(&client, &from, &bytes(1)).await;
        let mut first = pieces(&folder);
        first.retain(|piece| !others.contains(piece));
        // The copy has found its source, and waits for permission.
        let is_question = {
            let to = to.clone();
            move |request: &Request| request.query == "uploads" && request.key == to.as_bytes()
        };
        let gate = node.lake.hold(is_question);
        let copied = tokio::spawn(copy(&client, &from, &to).send());
        gate.arrived(1).await;
        match &later {
            Some(bytes) => drop(write_back(&client, &from, bytes).await),
            None => drop(client.delete(&format!("/b/{from}")).send().await),
        }
        for piece in first {
            // The tier may remove the piece at the same time.
            let _ = std::fs::remove_file(piece);
        }
        node.lake.behave();
        gate.open();
        let copied = copied.await.unwrap();
        if let Some(bytes) = later {
            assert_back(&copied);
            reads(&client, &to, &bytes).await;
        } else {
            assert_eq!(copied.status, StatusCode::NOT_FOUND, "{}", copied.text());
        }
    }
    node.stop().await;
}
