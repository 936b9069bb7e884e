//! The lake's yes to a caller comes before anything is done to a dirty object for it.

use http::{Method, StatusCode};

use super::cluster::{cluster, settled};
use super::{back, bytes, flush, reads, texts, until, write_back};
use crate::client::{Call, Client};
use crate::lake::{ANONYMOUS, Access, Gate, Request};
use crate::node::{Node, OTHER_KEY};

const POLICY: &str = r#"{"Statement": [{"Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::b/*"}]}"#;

/// A node before a lake that lets the other identity do nothing, and a dirty object.
async fn node() -> Node {
    let node = Node::start_with(back).await;
    for access in [Access::Read, Access::Write] {
        node.lake.deny(OTHER_KEY, access, "b");
    }
    write_back(&node.client(), "tmp/k", &bytes(1)).await;
    node
}

/// The object is dirty, and nothing keeps it from its flush.
async fn is_untouched(node: &Node, what: &str) {
    assert!(node.lake.object("b", "tmp/k").is_none(), "{what} flushed it");
    assert_eq!(
        node.status().await["write_back"]["objects"],
        1,
        "{what} removed it"
    );
    reads(&node.client(), "tmp/k", &bytes(1)).await;
}

/// Whatever touches a dirty object or its bucket, and that it is refused with 403.
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
    gate.arrived(2).await;
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

/// Lets the lake think about the second of two requests of a kind.
fn second(node: &Node, is_it: fn(&Request) -> bool) -> Gate {
    let seen = std::sync::atomic::AtomicUsize::new(0);
    node.lake
        .hold(move |request| is_it(request) && seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 1)
}

#[tokio::test]
async fn a_client_that_hangs_up_leaves_nothing_held() {
    for is_of_many in [false, true] {
        let node = node().await;
        let gate = second(&node, |request| {
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
        let report = flush(&node, "").await;
        assert_eq!(report["flush"]["failed"], 1, "now it is held: {report}");
        asked.abort();
        until("it may be flushed again", async || {
            flush(&node, "").await["flush"]["failed"] == 0
        })
        .await;
        assert!(
            node.lake.object("b", "tmp/k").is_some(),
            "nobody was told that it is gone"
        );
        gate.open();
        node.stop().await;
    }
}

#[tokio::test]
async fn a_write_or_removal_that_is_refused_leaves_a_lost_object_lost() {
    let mut cluster = cluster(3).await;
    let client = cluster.nodes[0].client();
    for number in 0..8 {
        write_back(&client, &format!("tmp/{number}"), &bytes(number)).await;
    }
    let gone = cluster.nodes.pop().unwrap().halt().await;
    cluster.sees(2).await;
    settled(&cluster).await;
    let is_lost = async |key: &str| {
        let reply = client.get(&format!("/b/{key}")).send().await;
        String::from_utf8_lossy(&reply.body).contains("written back and lost")
    };
    let mut lost = Vec::new();
    for number in 0..8 {
        let key = format!("tmp/{number}");
        if is_lost(&key).await {
            lost.push(key);
        }
    }
    assert!(lost.len() >= 3, "{lost:?}");
    for access in [Access::Read, Access::Write] {
        cluster.lake.deny(OTHER_KEY, access, "b");
    }
    for key in &lost {
        let target = format!("/b/{key}");
        for other in [cluster.nodes[1].other(), cluster.nodes[0].stranger()] {
            let put = other.put(&target, "x").header("x-shoal-write", "around");
            let acl = other.get(&format!("{target}?acl"));
            for call in [put, acl, other.delete(&target)] {
                assert_eq!(call.send().await.status, StatusCode::FORBIDDEN);
            }
            let body = format!("<Delete><Object><Key>{key}</Key></Object></Delete>");
            assert_eq!(other.post("/b?delete", body).send().await.status, StatusCode::OK);
        }
        assert!(is_lost(key).await, "{key}");
    }
    let body: Vec<_> = lost
        .iter()
        .map(|key| format!("<Object><Key>{key}</Key></Object>"))
        .collect();
    let removed = client
        .post("/b?delete", format!("<Delete>{}</Delete>", body.concat()))
        .send()
        .await;
    assert_eq!(texts(&removed, "Deleted").len(), lost.len(), "{}", removed.text());
    for key in &lost {
        assert!(!is_lost(key).await, "{key}: its writer may remove it");
    }
    drop(gone);
    cluster.stop().await;
}
