//! Stories of clients whose keys the node does not know: the lake judges each of their requests.

mod conditions;
mod ways;

use std::time::Duration;

use http::{HeaderValue, Method, Request, StatusCode};
use shoal_base::secret::Secret;
use shoal_node::config::{Config, FreshnessMode, UnknownIdentities, WriteMode, WriteRule};

use crate::chunks::Checksum;
use crate::client::{Call, Client, Payload, Reply};
use crate::cluster::Cluster;
use crate::gate::refused;
use crate::lake::{ACCESS_KEY, Access, Content, Lake, Object, Request as Seen, SECRET_KEY};
use crate::node::{BLOCK, Node, lake};
use crate::waiting::until;

/// A user of the lake whom no node knows.
const GUEST: &str = "guest-access-key";
const GUEST_SECRET: &str = "guest-secret-key";

/// Lets the lake judge unknown clients.
fn open(config: &mut Config) {
    config.s3.unknown_identities = UnknownIdentities::Lake;
    // A yes of the lake to another request must never be reused.
    config.freshness.default = FreshnessMode::Immutable;
}

/// Gives the node an account at the lake.
fn with_account(config: &mut Config) {
    open(config);
    config.lake.access_key = Some(ACCESS_KEY.into());
    config.lake.secret_key = Some(Secret::new(SECRET_KEY));
}

async fn lake_of_guest() -> Lake {
    let lake = lake().await;
    lake.add_user(GUEST, GUEST_SECRET);
    lake
}

async fn node(change: impl FnOnce(&mut Config)) -> Node {
    Node::in_front_of(&lake_of_guest().await, change).await
}

fn guest(node: &Node) -> Client {
    Client::signing(node.address(), GUEST, GUEST_SECRET)
}

fn cached(reply: &Reply) -> &str {
    reply.header("x-cache").unwrap_or_default()
}

/// Waits until the node has this many blocks on disk.
async fn stored(node: &Node, blocks: usize) {
    until("the blocks are on disk", || async {
        node.store().blocks_by_use(0).await.len() == blocks
    })
    .await;
}

fn is_question(request: &Seen) -> bool {
    request.is_get() && request.header("if-none-match").is_some()
}

#[tokio::test]
async fn nobody_reads_by_a_signature_that_the_lake_does_not_accept() {
    for change in [open as fn(&mut Config), with_account] {
        let node = node(change).await;
        node.lake.put("b", "mine", "my bytes");
        node.lake.put("b", "secret", "secret bytes");
        node.lake.deny(GUEST, Access::Read, "b/secret");
        // Cold, and then with both objects cached.
        for _ in 0..2 {
            let impostor = Client::signing(node.address(), GUEST, "guess");
            refused(
                &impostor.get("/b/mine").send().await,
                StatusCode::FORBIDDEN,
                "SignatureDoesNotMatch",
            );
            let other = |request: &mut Request<_>| {
                let uri = request.uri().to_string().replace("/b/mine", "/b/secret");
                *request.uri_mut() = uri.parse().unwrap();
            };
            for call in [
                guest(&node).get("/b/mine").tampered(other),
                guest(&node)
                    .get("/b/mine")
                    .presigned(Duration::from_mins(1))
                    .tampered(other),
            ] {
                refused(&call.send().await, StatusCode::FORBIDDEN, "SignatureDoesNotMatch");
            }
            refused(
                &guest(&node).get("/b/secret").send().await,
                StatusCode::FORBIDDEN,
                "AccessDenied",
            );
            let stranger = Client::signing(node.address(), "nobody", "nothing");
            refused(
                &stranger.get("/b/mine").send().await,
                StatusCode::FORBIDDEN,
                "InvalidAccessKeyId",
            );
            assert_eq!(guest(&node).get("/b/mine").send().await.text(), "my bytes");
            assert_eq!(node.client().get("/b/secret").send().await.text(), "secret bytes");
            stored(&node, 2).await;
        }
    }
}

#[tokio::test]
async fn a_cached_object_costs_the_lake_one_question_for_each_read() {
    let node = node(with_account).await;
    let bytes = Content::synthetic(3 * BLOCK + 100, 7);
    node.lake
        .put("b", "k", Object::new(bytes.clone()).header("content-type", "a/b"));
    let first = guest(&node).get("/b/k").send().await;
    assert_eq!((cached(&first), &first.body), ("MISS", &bytes.all()));
    stored(&node, 4).await;
    node.lake.forget_requests();
    for _ in 0..2 {
        let again = guest(&node).get("/b/k").send().await;
        assert_eq!((cached(&again), &again.body), ("REVALIDATED", &bytes.all()));
        for name in ["content-type", "etag", "last-modified", "content-length"] {
            assert_eq!(again.header(name), first.header(name), "{name}");
        }
    }
    let requests = node.lake.requests();
    assert!(
        requests.iter().all(is_question) && requests.len() == 2,
        "{requests:?}"
    );
    assert!(
        requests
            .iter()
            .all(|request| request.access_key.as_deref() == Some(GUEST))
    );
    assert_eq!(node.lake.body_bytes_sent(), 0);

    // The node's own client reads it, too, and a yes to one says nothing about the other.
    assert_eq!(node.client().get("/b/k").send().await.body, bytes.all());
    node.lake.deny(GUEST, Access::Read, "b");
    refused(
        &guest(&node).get("/b/k").send().await,
        StatusCode::FORBIDDEN,
        "AccessDenied",
    );
    assert_eq!(cached(&node.client().get("/b/k").send().await), "HIT");
}

#[tokio::test]
async fn what_others_have_cached_serves_without_an_account_of_the_node() {
    let node = node(open).await;
    node.lake.put("b", "whole", "whole");
    for cache in ["MISS", "REVALIDATED"] {
        let reply = guest(&node).get("/b/whole").send().await;
        assert_eq!((cached(&reply), reply.text()), (cache, "whole"));
        stored(&node, 1).await;
    }
    let bytes = Content::synthetic(3 * BLOCK, 7);
    node.lake.put("b", "k", Object::new(bytes.clone()));
    let half = guest(&node).get("/b/k").range("bytes=0-65535").send().await;
    assert_eq!(half.status, StatusCode::PARTIAL_CONTENT);
    assert_eq!(node.client().get("/b/k").send().await.body, bytes.all());
    stored(&node, 4).await;
    node.lake.forget_requests();
    let whole = guest(&node).get("/b/k").send().await;
    assert_eq!((cached(&whole), &whole.body), ("REVALIDATED", &bytes.all()));
    let part = guest(&node).get("/b/k").range("bytes=10-70000").send().await;
    assert_eq!(
        (cached(&part), &part.body),
        ("REVALIDATED", &bytes.read(10..70_001))
    );
    assert_eq!(
        (node.lake.count(is_question), node.lake.body_bytes_sent()),
        (2, 0)
    );
}

#[tokio::test]
async fn a_new_version_and_new_metadata_are_answered_by_the_lake() {
    let node = node(with_account).await;
    let put = |content: &'static str, etag: &str, kind: &str, day: u64| {
        let time = std::time::UNIX_EPOCH + Duration::from_hours(24 * day);
        let object = Object::new(content).etag(etag).modified_at(time);
        node.lake.put("b", "k", object.header("x-amz-meta-kind", kind));
    };
    let read = async || {
        let reply = guest(&node).get("/b/k").send().await;
        let kind = reply.header("x-amz-meta-kind").unwrap().to_owned();
        (cached(&reply).to_owned(), reply.text().to_owned(), kind)
    };
    let is = |cache: &str, text: &str, kind: &str| (cache.to_owned(), text.to_owned(), kind.to_owned());
    put("one", "\"1\"", "a", 1);
    assert_eq!(read().await, is("MISS", "one", "a"));
    stored(&node, 1).await;
    assert_eq!(read().await, is("REVALIDATED", "one", "a"));
    // A copy onto itself changes the metadata, and keeps the ETag.
    put("one", "\"1\"", "b", 2);
    assert_eq!(read().await.2, "b");
    assert_eq!(read().await, is("REVALIDATED", "one", "b"));
    put("two", "\"2\"", "c", 3);
    assert_eq!(read().await, is("MISS", "two", "c"));
    node.lake.delete("b", "k");
    refused(
        &guest(&node).get("/b/k").send().await,
        StatusCode::NOT_FOUND,
        "NoSuchKey",
    );
}

#[tokio::test]
async fn a_part_of_an_object_is_brought_in_blocks_by_the_account_of_the_node() {
    let node = node(with_account).await;
    let bytes = Content::synthetic(4 * BLOCK, 3);
    node.lake.put("b", "k", Object::new(bytes.clone()));
    let read = async || guest(&node).get("/b/k").range("bytes=70000-80000").send().await;
    let caches = [read().await, read().await];
    for reply in &caches {
        assert_eq!(reply.body, bytes.read(70_000..80_001));
        assert_eq!(reply.header("content-range"), Some("bytes 70000-80000/262144"));
    }
    stored(&node, 1).await;
    node.lake.forget_requests();
    assert_eq!(cached(&read().await), "REVALIDATED");
    let question = node.lake.last_request();
    assert_eq!(question.header("range"), Some("bytes=70000-80000"));
    assert_eq!((node.lake.requests().len(), node.lake.body_bytes_sent()), (1, 0));
}

#[tokio::test]
async fn an_account_that_may_not_read_the_object_costs_no_read() {
    let node = node(with_account).await;
    let bytes = Content::synthetic(2 * BLOCK, 3);
    node.lake.put("b", "k", Object::new(bytes.clone()));
    let read = async || guest(&node).get("/b/k").range("bytes=10-70000").send().await;
    assert_eq!(read().await.body, bytes.read(10..70_001));
    node.lake.deny(ACCESS_KEY, Access::Read, "b");
    let reply = read().await;
    assert_eq!(reply.body, bytes.read(10..70_001));
    assert_eq!(reply.header("x-cache-reason"), Some("node-account"));
}

#[tokio::test]
async fn a_response_does_not_break_off_behind_the_blocks_that_the_node_has() {
    let node = node(with_account).await;
    let bytes = Content::synthetic(4 * BLOCK, 3);
    node.lake.put("b", "k", Object::new(bytes.clone()));
    node.lake.deny(ACCESS_KEY, Access::Read, "b");
    let first = guest(&node).get("/b/k").range("bytes=0-65535").send().await;
    assert_eq!(first.body, bytes.read(0..65_536));
    stored(&node, 1).await;
    for _ in 0..2 {
        let whole = guest(&node).get("/b/k").send().await;
        assert_eq!((whole.status, &whole.body), (StatusCode::OK, &bytes.all()));
        let part = guest(&node).get("/b/k").range("bytes=0-131071").send().await;
        assert_eq!(part.body, bytes.read(0..131_072));
    }
}

#[tokio::test]
async fn checksums_are_cached_once_a_client_has_asked_for_them() {
    let node = node(with_account).await;
    let object = Object::new("bytes").header("x-amz-checksum-crc32", "AAAAAA==");
    node.lake.put("b", "k", object);
    let get = || guest(&node).get("/b/k");
    assert_eq!(get().send().await.header("x-amz-checksum-crc32"), None);
    stored(&node, 1).await;
    for _ in 0..2 {
        let reply = get().header("x-amz-checksum-mode", "ENABLED").send().await;
        assert_eq!((cached(&reply), reply.text()), ("REVALIDATED", "bytes"));
        assert_eq!(reply.header("x-amz-checksum-crc32"), Some("AAAAAA=="));
    }
}

#[tokio::test]
async fn three_nodes_bring_the_bytes_of_an_unknown_client_once() {
    let lake = lake_of_guest().await;
    let cluster = Cluster::in_front_of(lake, 3, |_, config| with_account(config)).await;
    let bytes = cluster.put("k", 6);
    cluster.lake.deny(GUEST, Access::Read, "b/refused");
    for node in &cluster.nodes {
        let reply = guest(node).get("/b/k").send().await;
        assert_eq!((reply.status, &reply.body), (StatusCode::OK, &bytes));
    }
    let sent = cluster.lake.body_bytes_sent();
    assert!(sent < 2 * bytes.len() as u64, "{sent} bytes of {}", bytes.len());

    // A refused client leaves nothing behind.
    cluster.lake.put("b", "refused", "x");
    let node = &cluster.nodes[0];
    refused(
        &guest(node).get("/b/refused").send().await,
        StatusCode::FORBIDDEN,
        "AccessDenied",
    );
}

fn hostile(node: &Node) -> [(Call, StatusCode, &'static str); 4] {
    let add = |name: &'static str, value: &'static str| {
        move |request: &mut Request<_>| {
            request
                .headers_mut()
                .insert(name, HeaderValue::from_static(value));
        }
    };
    let put = || guest(node).put("/b/k", "x");
    [
        (
            put().tampered(add("x-amz-copy-source", "/b/secret")),
            StatusCode::FORBIDDEN,
            "AccessDenied",
        ),
        (
            put().tampered(add("x-amz-acl", "public-read")),
            StatusCode::FORBIDDEN,
            "AccessDenied",
        ),
        (
            guest(node)
                .get("/b/k")
                .presigned(Duration::from_mins(1))
                .tampered(add("x-amz-expected-bucket-owner", "1")),
            StatusCode::FORBIDDEN,
            "AccessDenied",
        ),
        (
            put().header("x-shoal-write", "back"),
            StatusCode::BAD_REQUEST,
            "InvalidRequest",
        ),
    ]
}

#[tokio::test]
async fn a_header_that_anyone_may_have_added_does_not_reach_the_lake() {
    let node = node(open).await;
    node.lake.put("b", "k", "bytes");
    for (call, status, code) in hostile(&node) {
        refused(&call.send().await, status, code);
    }
    // Names and values of signed headers are the lake's to check.
    let changed = guest(&node).put("/b/k", "x").header("x-amz-meta-a", "1");
    let changed = changed.tampered(|request| {
        request
            .headers_mut()
            .insert("x-amz-meta-a", HeaderValue::from_static("2"));
    });
    refused(
        &changed.send().await,
        StatusCode::FORBIDDEN,
        "SignatureDoesNotMatch",
    );
    assert!(
        node.lake
            .requests()
            .iter()
            .all(|request| !request.headers.contains_key("x-amz-acl"))
    );
}

#[tokio::test]
async fn a_request_reaches_the_lake_as_it_was_signed() {
    let node = node(open).await;
    node.lake.create_bucket("b");
    let target = "/b/a%20b//c%2Fd~%C3%A9";
    let put = |payload| {
        guest(&node)
            .put(target, "0123456789".repeat(1000))
            .payload(payload)
            .header("x-amz-meta-inner", "two  blanks")
            .header("cache-control", "one")
            .header("cache-control", "two")
            .header("te", "trailers")
            .header("user-agent", "signed/1")
            .header("accept-encoding", "gzip, br")
            .header("x-shoal-job", "signed")
    };
    for payload in [
        Payload::Hashed,
        Payload::Unsigned,
        Payload::SignedChunks(8192, None),
        Payload::SignedChunks(8192, Some(Checksum::Crc32)),
        Payload::UnsignedTrailer(8192, Checksum::Crc32),
    ] {
        let reply = put(payload).send().await;
        assert_eq!(reply.status, StatusCode::OK, "{payload:?}: {}", reply.text());
        let seen = node.lake.last_request();
        assert_eq!(seen.path, target);
        assert_eq!(seen.access_key.as_deref(), Some(GUEST));
        let stored = node.lake.object("b", "a b//c/d~é").unwrap();
        assert_eq!(stored.content.all(), "0123456789".repeat(1000).as_bytes());
    }
    let read = guest(&node)
        .get(&format!(
            "{target}?response-content-type=text%2Fplain&x-id=GetObject"
        ))
        .send()
        .await;
    assert_eq!(read.header("content-type"), Some("text/plain"));
    let listed = guest(&node).get("/b?list-type=2&prefix=a%20b").send().await;
    assert!(
        listed.text().contains("<Key>a b//c/d~é</Key>"),
        "{}",
        listed.text()
    );
    for method in [Method::HEAD, Method::DELETE] {
        let reply = guest(&node).call(method.clone(), target).send().await;
        assert!(reply.status.is_success(), "{method}");
        assert_eq!(node.lake.last_request().method, method);
    }
}

#[tokio::test]
async fn a_write_of_an_unknown_client_ends_what_was_known_of_the_object() {
    let node = node(open).await;
    node.lake.put("b", "k", "old");
    assert_eq!(node.client().get("/b/k").send().await.text(), "old");
    assert_eq!(
        guest(&node).put("/b/k", "new").send().await.status,
        StatusCode::OK
    );
    assert_eq!(node.client().get("/b/k").send().await.text(), "new");
}

#[tokio::test]
async fn a_signature_of_another_kind_is_a_signature() {
    let node = node(open).await;
    node.lake.put("b", "k", "bytes");
    node.lake.allow(crate::lake::ANONYMOUS, Access::Read, "b");
    let anonymous = Client::anonymous(node.address());
    for authorization in [
        "AWS4-ECDSA-P256-SHA256 Credential=key/20260101/s3/aws4_request, SignedHeaders=host, Signature=00",
        "AWS key:c2ln",
    ] {
        let reply = anonymous
            .get("/b/k")
            .header("authorization", authorization)
            .send()
            .await;
        // This lake does not have them either, and says so itself.
        assert_eq!(reply.status, StatusCode::BAD_REQUEST, "{}", reply.text());
        let seen = node.lake.last_request();
        assert_eq!(seen.header("authorization"), Some(authorization));
    }
}

#[tokio::test]
async fn below_a_prefix_that_is_written_back_the_node_must_know_the_client() {
    let node = node(|config| {
        with_account(config);
        config.write.rules = vec![WriteRule::new("b/back/", WriteMode::Back)];
    })
    .await;
    node.lake.put("b", "back/k", "bytes");
    node.lake.put("b", "k", "bytes");
    node.lake.forget_requests();
    let client = guest(&node);
    for call in [
        client.get("/b/back/k"),
        client.put("/b/back/k", "x"),
        client.delete("/b/back/k"),
        client.get("/b/back/k?tagging"),
        client.put("/b/k2", "").header("x-amz-copy-source", "/b/back/k"),
        client.get("/b?list-type=2"),
        client.get("/b?list-type=2&prefix=back%2F"),
        client.get("/b?uploads"),
        client.post("/b?delete", "<Delete><Object><Key>k</Key></Object></Delete>"),
        client.post(
            "/b?delete&prefix=k",
            "<Delete><Object><Key>back/k</Key></Object></Delete>",
        ),
    ] {
        let reply = call.send().await;
        refused(&reply, StatusCode::FORBIDDEN, "AccessDenied");
        assert!(
            reply.text().contains("must know the access key"),
            "{}",
            reply.text()
        );
    }
    assert_eq!(
        client.head("/b/back/k").send().await.status,
        StatusCode::FORBIDDEN
    );
    assert!(node.lake.requests().is_empty(), "{:?}", node.lake.requests());
    // What is dirty there is nothing to requests about other names.
    let written = node.client().put("/b/back/dirty", "x").send().await;
    assert_eq!(written.header("x-shoal-write"), Some("back"));
    assert_eq!(client.get("/b/k").send().await.text(), "bytes");
    let listed = client.get("/b?list-type=2&prefix=k").send().await;
    assert_eq!(listed.status, StatusCode::OK, "{}", listed.text());
}

#[tokio::test]
async fn a_node_refuses_unknown_clients_unless_it_is_told_otherwise() {
    let node = node(|_| ()).await;
    node.lake.put("b", "k", "bytes");
    refused(
        &guest(&node).get("/b/k").send().await,
        StatusCode::FORBIDDEN,
        "InvalidAccessKeyId",
    );
    assert!(node.lake.requests().is_empty());
}
