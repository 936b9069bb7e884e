//! A node acts on a dirty object for a caller only after the lake has granted permission.

use http::{Method, StatusCode};

use super::{back, bytes, flush, reads, texts, write_back};
use crate::client::{Call, Client};
use crate::lake::{ANONYMOUS, Access, Request};
use crate::node::{Node, OTHER_KEY};
use crate::waiting::until;

const POLICY: &str = r#"{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::b/*"}]}"#;

/// Starts a node with a dirty object, before a lake that denies the other identity everything.
async fn node() -> Node {
    let node = Node::start_with(back).await;
    for access in [Access::Read, Access::Write] {
        node.lake.deny(OTHER_KEY, access, "b");
    }
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    node
}

/// Asserts that the object is dirty, and can still be flushed.
async fn is_untouched(node: &Node, what: &str) {
    assert!(node.lake.object("b", "tmp/k").is_none(), "{what} flushed it");
    assert_eq!(
        node.status().await["write_back"]["objects"],
        1,
        "{what} removed it"
    );
    reads(&node.client(), "tmp/k", &bytes(1)).await;
}

/// Returns requests about the dirty object or its bucket, each with a name. The lake refuses all of them with
/// 403.
fn touching(client: &Client) -> Vec<(&'static str, Call)> {
    let conditional = |etag: &str| client.delete("/b/tmp/k").header("if-match", etag);
    let copy = |source: &str| client.put("/b/copy", "").header("x-amz-copy-source", source);
    vec![
        ("GET", client.get("/b/tmp/k")),
        ("HEAD", client.head("/b/tmp/k")),
        ("GET of two ranges", client.get("/b/tmp/k").range("bytes=0-1,5-6")),
        (
            "GET of its name without versions",
            client.get("/b/tmp/k?versionId=null"),
        ),
        ("GET ?acl", client.get("/b/tmp/k?acl")),
        (
            "PUT ?acl",
            client.put("/b/tmp/k?acl", "").header("x-amz-acl", "public-read"),
        ),
        (
            "PUT around",
            client.put("/b/tmp/k", "x").header("x-shoal-write", "around"),
        ),
        (
            "PUT through",
            client.put("/b/tmp/k", "x").header("x-shoal-write", "through"),
        ),
        (
            "PUT back",
            client.put("/b/tmp/k", "x").header("x-shoal-write", "back"),
        ),
        ("COPY", copy("/b/tmp/k")),
        (
            "COPY of its name without versions",
            copy("/b/tmp/k?versionId=null"),
        ),
        ("DELETE", client.delete("/b/tmp/k")),
        (
            "DELETE of its name without versions",
            client.delete("/b/tmp/k?versionId=null"),
        ),
        ("DELETE of another ETag", conditional("\"other\"")),
        (
            "DELETE of a size that is none",
            client.delete("/b/tmp/k").header("x-amz-if-match-size", "x"),
        ),
        ("DELETE of any ETag", conditional("*")),
        ("LIST", client.get("/b?list-type=2")),
        ("LIST with owners", client.get("/b?list-type=2&fetch-owner=true")),
        ("LIST of versions", client.get("/b?versions")),
        ("PUT ?policy", client.put("/b?policy", POLICY)),
        (
            "PUT ?policy beside a prefix",
            client.put("/b?policy&prefix=x", POLICY),
        ),
        ("DELETE of the bucket", client.delete("/b")),
    ]
}

#[tokio::test]
async fn a_request_that_the_lake_refuses_touches_no_dirty_object_and_learns_nothing_of_it() {
    let node = node().await;
    for client in [node.other(), node.stranger()] {
        for (what, call) in touching(&client) {
            let reply = call.send().await;
            assert_eq!(reply.status, StatusCode::FORBIDDEN, "{what}: {reply:?}");
            is_untouched(&node, what).await;
        }
        let body = "<Delete><Object><Key>tmp/k</Key></Object><Object><Key>tmp/k</Key><VersionId>null</VersionId></Object></Delete>";
        let reply = client.post("/b?delete&prefix=x", body).send().await;
        assert_eq!((reply.status, texts(&reply, "Error").len()), (StatusCode::OK, 2));
        is_untouched(&node, "DeleteObjects").await;
    }
    assert_eq!(flush(&node, "").await["flush"]["failed"], 0, "it is not held");
    node.stop().await;
}

#[tokio::test]
async fn a_client_sees_an_object_as_far_as_the_lake_permits() {
    let node = node().await;
    node.lake.allow(OTHER_KEY, Access::Read, "b/tmp");
    reads(&node.other(), "tmp/k", &bytes(1)).await;
    assert!(node.lake.object("b", "tmp/k").is_some(), "the lake decides on it");
    write_back(&node.client(), "tmp/own", &bytes(2)).await;
    node.lake.allow(ANONYMOUS, Access::Write, "b/tmp/own");
    let around = node.stranger().put("/b/tmp/own", "theirs");
    assert_eq!(
        around.header("x-shoal-write", "around").send().await.status,
        StatusCode::OK
    );
    assert_eq!(node.client().get("/b/tmp/own").send().await.body, "theirs");
    flush(&node, "").await;
    assert_eq!(
        node.client().get("/b/tmp/own").send().await.body,
        "theirs",
        "the later write stays"
    );
    node.stop().await;
}

#[tokio::test]
async fn while_the_lake_is_away_a_stranger_cannot_tell_a_dirty_name_from_none() {
    let node = node().await;
    node.lake.stop().await;
    let told = async |key: &str| {
        let reply = node.stranger().get(&format!("/b/tmp/{key}")).send().await;
        (
            reply.status,
            reply.code().to_owned(),
            reply.text().contains("<Message>The lake"),
        )
    };
    assert_eq!(told("k").await, told("none").await);
    node.stop().await;
}

#[tokio::test]
async fn a_request_that_the_lake_takes_long_to_refuse_holds_nothing_up() {
    let node = node().await;
    let gate = node.lake.hold(|request: &Request| {
        request.access_key.is_none() && [Method::DELETE, Method::POST].contains(&request.method)
    });
    let stranger = node.stranger();
    let body = "<Delete><Object><Key>tmp/k</Key></Object></Delete>";
    let calls = [stranger.delete("/b/tmp/k"), stranger.post("/b?delete", body)];
    let asked = calls.map(|call| tokio::spawn(call.send()));
    gate.arrived(1).await;
    is_untouched(&node, "a request that is thought about").await;
    let report = flush(&node, "").await;
    assert_eq!(
        report["flush"]["flushed"], 1,
        "it is not held meanwhile: {report}"
    );
    assert!(node.lake.object("b", "tmp/k").is_some());
    for call in asked {
        call.abort();
    }
    gate.open();
    node.stop().await;
}

#[tokio::test]
async fn a_removal_goes_on_when_its_client_hangs_up() {
    for is_of_many in [false, true] {
        let node = node().await;
        let gate = node.lake.hold(|request: &Request| {
            request.method == Method::DELETE && request.query.is_empty() || request.query == "delete"
        });
        let body = "<Delete><Object><Key>tmp/k</Key></Object></Delete>";
        let call = if is_of_many {
            node.client().post("/b?delete", body)
        } else {
            node.client().delete("/b/tmp/k")
        };
        let asked = tokio::spawn(call.send());
        gate.arrived(1).await;
        asked.abort();
        gate.open();
        until("the object is gone", async || {
            node.client().get("/b/tmp/k").send().await.status == StatusCode::NOT_FOUND
        })
        .await;
        write_back(&node.client(), "tmp/k", &bytes(2)).await;
        let report = flush(&node, "").await;
        assert_eq!(report["flush"]["failed"], 0, "no change is left over: {report}");
        node.stop().await;
    }
}
