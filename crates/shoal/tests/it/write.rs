//! Stories of everything that is not a GET: bodies in every payload mode, forwarding, forgetting.

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};

use crate::chunks::Checksum;
use crate::client::{Payload, raw};
use crate::lake::{Access, Content, Fault, Object, Request};
use crate::node::{Node, OTHER_KEY};

pub(crate) fn modes() -> Vec<Payload> {
    let mut modes = vec![
        Payload::Hashed,
        Payload::Unsigned,
        Payload::SignedChunks(8192, None),
    ];
    for checksum in Checksum::ALL {
        modes.push(Payload::SignedChunks(8192, Some(checksum)));
        modes.push(Payload::UnsignedTrailer(8192, checksum));
    }
    modes
}

#[tokio::test]
async fn a_body_reaches_the_lake_in_every_payload_mode() {
    let node = Node::start().await;
    for mode in modes() {
        for size in [0, 1, 8192, 100_001] {
            let body = Content::synthetic(size, 3).all();
            let put = node.client().put("/b/k", body.clone()).payload(mode);
            let reply = put.header("x-amz-meta-colour", "blue").send().await;
            assert_eq!(reply.status, StatusCode::OK, "{mode:?} {size}: {}", reply.text());
            let stored = node.lake.object("b", "k").unwrap();
            assert_eq!(stored.content.all(), body, "{mode:?} {size}");
            assert_eq!(
                node.client().get("/b/k").send().await.body,
                body,
                "{mode:?} {size}"
            );
            node.lake.delete("b", "k");
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn a_body_that_is_not_what_was_signed_never_becomes_an_object() {
    let node = Node::start().await;
    let body = Content::synthetic(50_000, 4).all();
    for mode in modes().into_iter().filter(|mode| *mode != Payload::Unsigned) {
        let put = node.client().put("/b/k", body.clone()).payload(mode);
        let put = put.tampered(|request| {
            let mut bytes = request.body().to_vec();
            // Inside the data, whatever the framing.
            bytes[20_000] ^= 1;
            *request.body_mut() = bytes.into();
        });
        // The node may close the connection while the client still sends.
        if let Ok(reply) = put.try_send().await {
            assert!(reply.status.is_client_error(), "{mode:?}: {}", reply.status);
            assert!(!reply.code().is_empty(), "{mode:?}: {}", reply.text());
        }
        assert!(node.lake.object("b", "k").is_none(), "{mode:?} was stored");
    }
    node.stop().await;
}

/// As S3 says it, so that a client sees which bytes it signed and which arrived.
#[tokio::test]
async fn a_client_whose_body_has_another_hash_is_told_both() {
    let node = Node::start().await;
    let put = node.client().put("/b/k", "signed").tampered(|request| {
        *request.body_mut() = Bytes::from_static(b"sent!!");
    });
    let reply = put.send().await;
    assert_eq!(
        (reply.status, reply.code()),
        (StatusCode::BAD_REQUEST, "XAmzContentSHA256Mismatch")
    );
    for (name, hash) in [
        (
            "ClientComputedContentSHA256",
            "4a3cdfae6f291c8f544daea5b72905cf9e74c1ed427d831ad0d7ca00c73c794d",
        ),
        (
            "S3ComputedContentSHA256",
            "9bd8175dd1bbed6f575ce3e7f75ff9c1f881f9c7bf642ac5a4cdfe923c2989b2",
        ),
    ] {
        let element = format!("<{name}>{hash}</{name}>");
        assert!(reply.text().contains(&element), "{}", reply.text());
    }
    node.stop().await;
}

#[tokio::test]
async fn a_body_shorter_or_longer_than_announced_never_becomes_an_object() {
    let node = Node::start().await;
    for mode in modes()
        .into_iter()
        .filter(|mode| matches!(mode, Payload::SignedChunks(..) | Payload::UnsignedTrailer(..)))
    {
        for length in ["49999", "50001", "-1", "many"] {
            let put = node
                .client()
                .put("/b/k", Content::synthetic(50_000, 4).all())
                .payload(mode);
            let put = put.tampered(move |request| {
                request
                    .headers_mut()
                    .insert("x-amz-decoded-content-length", HeaderValue::from_static(length));
            });
            if let Ok(reply) = put.try_send().await {
                assert!(
                    reply.status.is_client_error(),
                    "{mode:?} {length}: {}",
                    reply.status
                );
            }
            assert!(
                node.lake.object("b", "k").is_none(),
                "{mode:?} {length} was stored"
            );
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn a_client_that_goes_away_in_the_middle_of_a_put_leaves_the_old_object() {
    let node = Node::start().await;
    node.lake.put("b", "k", "old");
    let request = node.client().put("/b/k", vec![7; 100_000]).into_request();
    let mut head = b"PUT /b/k HTTP/1.1\r\n".to_vec();
    for (name, value) in request.headers() {
        head.extend_from_slice(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
    }
    head.extend_from_slice(b"\r\n");
    head.extend_from_slice(&request.body()[..50_000]);
    let mut stream = tokio::net::TcpStream::connect(node.address()).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut stream, &head)
        .await
        .unwrap();
    drop(stream);
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert_eq!(node.client().get("/b/k").send().await.body, "old");
    node.stop().await;
}

#[tokio::test]
async fn unknown_operations_and_headers_reach_the_lake_with_their_meaning() {
    let node = Node::start().await;
    node.lake.put("b", "k", "x");
    node.lake.forget_requests();
    let target = "/b/k%2Fz//y?never-heard-of&b=2&a=%20+&x=";
    let call = node
        .client()
        .call(Method::GET, target)
        .header("x-amz-unheard-of", "1")
        .header("x-custom", "two  words");
    call.send().await;
    let seen = node.lake.last_request();
    assert_eq!(
        format!("{}?{}", seen.path, seen.query),
        "/b/k/z//y?never-heard-of&b=2&a=%20%20&x="
    );
    assert_eq!(seen.header("x-amz-unheard-of"), Some("1"));
    assert_eq!(seen.header("x-custom"), Some("two  words"));
    assert_eq!(
        seen.access_key.as_deref(),
        Some(crate::lake::ACCESS_KEY),
        "signed anew, and right"
    );
    node.stop().await;
}

#[tokio::test]
async fn a_request_without_a_body_is_not_given_one() {
    let node = Node::start().await;
    node.lake.put("b", "k", "x");
    assert_eq!(
        node.client().delete("/b/k").send().await.status,
        StatusCode::NO_CONTENT
    );
    assert_eq!(node.lake.last_request().header("transfer-encoding"), None);
    node.stop().await;
}

#[tokio::test]
async fn the_same_bytes_with_other_metadata_are_another_answer() {
    let node = Node::start().await;
    for colour in ["blue", "green"] {
        node.client()
            .put("/b/k", "same bytes")
            .header("x-amz-meta-colour", colour)
            .send()
            .await;
        for turn in ["cold", "warm"] {
            let reply = node.client().get("/b/k").send().await;
            assert_eq!(reply.header("x-amz-meta-colour"), Some(colour), "{turn}");
            node.settle().await;
        }
    }
    node.stop().await;
}

#[tokio::test]
async fn a_client_that_waits_to_send_nothing_is_answered_once_and_the_connection_ends() {
    let node = Node::start().await;
    let put = |body: &'static str| node.client().put("/b/k", body).header("expect", "100-continue");
    let empty = put("").send().await;
    assert_eq!(
        (empty.status, empty.header("connection")),
        (StatusCode::OK, Some("close"))
    );
    let full = put("bytes").send().await;
    assert_eq!((full.status, full.header("connection")), (StatusCode::OK, None));
    node.stop().await;
}

#[tokio::test]
async fn a_conditional_put_is_the_lakes_to_judge() {
    let node = Node::start().await;
    node.lake
        .misbehave(Fault::status(412).when(Request::is_put).times(1));
    let reply = node
        .client()
        .put("/b/k", "x")
        .header("if-none-match", "*")
        .send()
        .await;
    assert_eq!(reply.status, StatusCode::PRECONDITION_FAILED);
    assert_eq!(node.lake.last_request().header("if-none-match"), Some("*"));
    node.stop().await;
}

#[tokio::test]
async fn a_list_is_the_lakes_own() {
    let node = Node::start().await;
    for key in ["a", "b/c", "b/d"] {
        node.lake.put("b", key, key);
    }
    let reply = node.client().get("/b?list-type=2&prefix=b%2F").send().await;
    assert!(
        reply.text().contains("<Key>b/c</Key>") && !reply.text().contains("<Key>a</Key>"),
        "{}",
        reply.text()
    );
    node.stop().await;
}

#[tokio::test]
async fn a_lost_permission_is_seen_at_once_when_it_was_taken_through_the_node() {
    let node = Node::start_immutable().await;
    node.lake.put("b", "k", "x");
    assert_eq!(node.other().get("/b/k").send().await.status, StatusCode::OK);
    node.settle().await;
    node.lake.deny(OTHER_KEY, Access::Read, "b");
    assert_eq!(
        node.other().get("/b/k").send().await.status,
        StatusCode::OK,
        "a promise of immutability is one"
    );
    node.client().put("/b?policy", "{}").send().await;
    assert_eq!(
        node.other().get("/b/k").send().await.status,
        StatusCode::FORBIDDEN
    );
    node.stop().await;
}

#[tokio::test]
async fn several_deletes_in_one_request_are_seen_by_the_next_reads() {
    let node = Node::start_immutable().await;
    for key in ["k1", "k2"] {
        node.lake.put("b", key, "x");
        assert_eq!(
            node.client().get(&format!("/b/{key}")).send().await.status,
            StatusCode::OK
        );
    }
    let list = "<Delete><Object><Key>k1</Key></Object><Object><Key>k2</Key></Object></Delete>";
    let reply = node.client().post("/b?delete", list).send().await;
    assert_eq!(reply.status, StatusCode::OK, "{}", reply.text());
    for key in ["k1", "k2"] {
        assert_eq!(
            node.client().get(&format!("/b/{key}")).send().await.status,
            StatusCode::NOT_FOUND
        );
    }
    node.stop().await;
}

#[tokio::test]
async fn objects_encrypted_with_a_clients_key_are_never_stored_here() {
    let node = Node::start().await;
    node.lake.put("b", "k", "secret");
    let get = || {
        node.client()
            .get("/b/k")
            .header("x-amz-server-side-encryption-customer-algorithm", "AES256")
    };
    for _ in 0..2 {
        let reply = get().send().await;
        assert_eq!(
            (reply.header("x-cache"), reply.header("x-cache-reason")),
            (Some("BYPASS"), Some("sse-c"))
        );
    }
    node.lake.put(
        "b",
        "k2",
        Object::new("secret").header("x-amz-server-side-encryption-customer-algorithm", "AES256"),
    );
    let reply = node.client().get("/b/k2").send().await;
    assert_eq!(
        (reply.text(), reply.header("x-cache-reason")),
        ("secret", Some("sse-c"))
    );
    assert_eq!(node.store().counters().blocks, 0);
    node.stop().await;
}

#[tokio::test]
async fn an_object_without_an_etag_is_relayed_and_not_cached() {
    let node = Node::start().await;
    node.lake.put("b", "k", "bytes");
    node.lake.misbehave(Fault::new().without_header("etag").always());
    for range in [None, Some("bytes=1-2")] {
        let call = node.client().get("/b/k");
        let reply = match range {
            Some(range) => call.range(range).send().await,
            None => call.send().await,
        };
        assert_eq!(reply.text(), if range.is_some() { "yt" } else { "bytes" });
        assert_eq!(reply.header("x-cache-reason"), Some("no-etag"));
    }
    node.stop().await;
}

#[tokio::test]
async fn versions_are_read_by_name() {
    let node = Node::start().await;
    node.lake.keep_versions("v");
    node.lake.put("v", "k", "one");
    let first = node.client().get("/v/k").send().await;
    let version = first.header("x-amz-version-id").unwrap().to_owned();
    node.lake.put("v", "k", "two");
    for _ in 0..2 {
        let old = node
            .client()
            .get(&format!("/v/k?versionId={version}"))
            .send()
            .await;
        assert_eq!(
            (old.text(), old.header("x-amz-version-id")),
            ("one", Some(version.as_str()))
        );
        assert_eq!(node.client().get("/v/k").send().await.text(), "two");
        node.settle().await;
    }
    node.stop().await;
}

#[tokio::test]
async fn checksums_are_sent_on_request_cold_and_warm() {
    let node = Node::start().await;
    node.client()
        .put("/b/k", "some bytes")
        .payload(Payload::UnsignedTrailer(1024, Checksum::ALL[0]))
        .send()
        .await;
    let direct = crate::client::Client::signing(
        node.lake.address(),
        crate::lake::ACCESS_KEY,
        crate::lake::SECRET_KEY,
    );
    let header = Checksum::ALL[0].header();
    let expected = direct
        .get("/b/k")
        .header("x-amz-checksum-mode", "ENABLED")
        .send()
        .await;
    assert!(expected.header(header).is_some());
    for turn in ["cold", "warm"] {
        let without = node.client().get("/b/k").send().await;
        assert_eq!(without.header(header), None, "{turn}");
        let with = node
            .client()
            .get("/b/k")
            .header("x-amz-checksum-mode", "ENABLED")
            .send()
            .await;
        assert_eq!(with.header(header), expected.header(header), "{turn}");
        node.settle().await;
    }
    node.stop().await;
}

#[tokio::test]
async fn a_part_by_number_is_the_lakes_to_cut() {
    let node = Node::start().await;
    node.lake.put(
        "b",
        "k",
        Object::new(Bytes::from(vec![1; 300])).parts(vec![100, 200]),
    );
    let direct = crate::client::Client::signing(
        node.lake.address(),
        crate::lake::ACCESS_KEY,
        crate::lake::SECRET_KEY,
    );
    let expected = direct.get("/b/k?partNumber=2").send().await;
    let reply = node.client().get("/b/k?partNumber=2").send().await;
    assert_eq!((reply.status, &reply.body), (expected.status, &expected.body));
    assert_eq!(reply.header("x-cache-reason"), Some("part-number"));
    node.stop().await;
}

#[tokio::test]
async fn ambiguous_framing_is_refused_in_xml_and_the_connection_closed() {
    let node = Node::start().await;
    let heads = [
        "GET /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        "PUT /b/k HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "GET /b/k HTTP/1.1\nHost: x\n\n",
        "GET /b/k HTTP/1.1\r\nHost: x\r\n folded: y\r\n\r\n",
        "GET /b/k HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        "GARBAGE\r\n\r\n",
    ];
    for head in heads {
        let answer = String::from_utf8(raw(node.address(), head).await).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400"), "{head:?}: {answer}");
        assert!(answer.contains("<Code>"), "{head:?}: {answer}");
    }
    assert!(node.lake.requests().is_empty(), "none of it reached the lake");
    node.stop().await;
}
