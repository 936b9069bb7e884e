//! Requests as they reach the lake: targets, headers, bodies, signatures, and bodies that fail on the way.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use shoal_net::endpoint::{
    BoxError, Endpoint, EndpointRequest, Failure, LakeAccount, NodeCredentials, RequestBody, RequestStream,
};
use shoal_node::config;
use shoal_s3::identity::{Account, NODE};
use shoal_s3::sigv4::{PayloadHash, SeedSignature};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{STALL_TIMEOUT, account, endpoint, failure, get, put, read_text, whole};
use crate::chunks::{Checksum, ChunkSigner, encode};
use crate::lake::{ACCESS_KEY, Lake, SECRET_KEY};

#[tokio::test]
async fn target_bytes_arrive_as_they_are_and_are_signed_right() {
    let lake = Lake::start().await;
    let endpoint = endpoint(&lake);
    for (path, key) in [
        ("plain", "plain"),
        ("a%2Fb", "a/b"),
        ("a%2fb", "a/b"),
        ("a//b", "a//b"),
        ("/a", "/a"),
        ("a/./b", "a/./b"),
        ("a/../b", "a/../b"),
        ("..", ".."),
        ("a+b%2B", "a+b+"),
        ("a%20b", "a b"),
        ("%F0%9F%90%9F", "🐟"),
        ("%01%7F", "\u{1}\u{7f}"),
        ("%2525", "%25"),
        ("a'(b)!*:@&=$,;", "a'(b)!*:@&=$,;"),
        ("x%3Fy%23", "x?y#"),
    ] {
        lake.put("bucket", key, path);
        let target = format!("/bucket/{path}?versionId=null&response-content-type=a%2Fb%20c");
        assert_eq!(
            read_text(&endpoint, get(&target)).await,
            (StatusCode::OK, path.into()),
            "{path}"
        );
        let seen = lake.last_request();
        assert_eq!(format!("{}?{}", seen.path, seen.query), target);
    }
    let seen = lake.last_request();
    assert_eq!(seen.access_key.as_deref(), Some(ACCESS_KEY));
    assert_eq!(seen.header("host"), Some(lake.address().to_string().as_str()));
}

#[tokio::test]
async fn headers_arrive_with_their_duplicates_and_their_bytes() {
    let lake = Lake::start().await;
    lake.create_bucket("bucket");
    let mut put = put("/bucket/key", RequestBody::Empty);
    put.headers.append("x-unknown", HeaderValue::from_static("1"));
    put.headers.append("x-unknown", HeaderValue::from_static("2"));
    put.headers
        .append("x-amz-meta-a", HeaderValue::from_static("two  words "));
    put.headers
        .append("x-amz-meta-a", HeaderValue::from_static("twice"));
    put.headers.append(
        "x-amz-meta-b",
        HeaderValue::from_bytes("grün".as_bytes()).unwrap(),
    );
    put.headers
        .append("x-latin", HeaderValue::from_bytes(b"gr\xfcn").unwrap());
    assert_eq!(read_text(&endpoint(&lake), put).await.0, StatusCode::OK);
    let seen = lake.last_request();
    let values = |name: &str| seen.headers.get_all(name).iter().cloned().collect::<Vec<_>>();
    assert_eq!(values("x-unknown"), ["1", "2"]);
    assert_eq!(values("x-amz-meta-a"), ["two  words", "twice"]);
    assert_eq!(values("x-amz-meta-b"), ["grün".as_bytes()]);
    assert_eq!(values("x-latin"), [&b"gr\xfcn"[..]]);
    assert_eq!(seen.header("content-length"), Some("0"));
}

#[tokio::test]
async fn a_stranger_stays_unsigned() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", "x");
    let anonymous = EndpointRequest {
        account: LakeAccount::Anonymous,
        payer: NODE,
        ..get("/bucket/key")
    };
    assert_eq!(
        read_text(&endpoint(&lake), anonymous).await.0,
        StatusCode::FORBIDDEN
    );
    let seen = lake.last_request();
    assert!(
        ["authorization", "x-amz-date", "x-amz-content-sha256"]
            .iter()
            .all(|name| seen.header(name).is_none())
    );
}

#[tokio::test]
async fn bodies_go_out_with_and_without_a_length() {
    let lake = Lake::start().await;
    lake.create_bucket("bucket");
    let endpoint = endpoint(&lake);
    for length in [Some(6), None] {
        let body = RequestBody::Stream {
            length,
            body: stream_of(vec![Ok(b"abc"), Ok(b"def")]),
        };
        assert_eq!(
            read_text(&endpoint, put("/bucket/key", body)).await.0,
            StatusCode::OK
        );
        assert_eq!(lake.object("bucket", "key").unwrap().content.all(), "abcdef");
        let seen = lake.last_request();
        assert_eq!(seen.header("content-length"), length.map(|_| "6"));
        assert_eq!(
            seen.header("transfer-encoding"),
            length.is_none().then_some("chunked")
        );
    }
}

#[tokio::test]
async fn signed_chunks_go_on_from_the_signature_of_the_head() {
    let lake = Lake::start().await;
    lake.create_bucket("bucket");
    let (body, trailer) = (&b"some bytes in signed chunks"[..], Checksum::Crc64Nvme);
    let chunks = move |seed: SeedSignature| {
        let signer = ChunkSigner::new(
            SECRET_KEY,
            seed.timestamp.as_str(),
            &seed.scope,
            seed.signature.as_str(),
        );
        whole(encode(body, 8, signer, Some(trailer)))
    };
    let seeded = RequestBody::Seeded {
        length: None,
        body: Box::new(chunks),
    };
    let mut request = EndpointRequest {
        payload: PayloadHash::StreamingSignedTrailer,
        ..put("/bucket/key", seeded)
    };
    request
        .headers
        .insert("x-amz-decoded-content-length", body.len().into());
    request
        .headers
        .insert("x-amz-trailer", HeaderValue::from_static(trailer.header()));
    assert_eq!(
        read_text(&endpoint(&lake), request).await,
        (StatusCode::OK, String::new())
    );
    assert_eq!(lake.object("bucket", "key").unwrap().content.all(), body);
}

#[tokio::test]
async fn a_body_that_fails_breaks_the_request_off_and_nothing_is_stored() {
    let lake = Lake::start().await;
    lake.create_bucket("bucket");
    let endpoint = endpoint(&lake);
    for length in [Some(10), None] {
        let pieces = vec![Ok(&b"good"[..]), Err("the client sent a wrong signature".into())];
        let body = RequestBody::Stream {
            length,
            body: stream_of(pieces),
        };
        let error = endpoint.send(put("/bucket/key", body)).await.err().unwrap();
        assert_eq!(error.kind(), Failure::RequestBody);
        let cause = std::error::Error::source(error.cause::<hyper::Error>().unwrap()).unwrap();
        assert_eq!(cause.to_string(), "the client sent a wrong signature");
    }
    let body = RequestBody::Stream {
        length: Some(10),
        body: stream_of(vec![Ok(b"short")]),
    };
    assert_eq!(
        failure(endpoint.send(put("/bucket/key", body)).await),
        Failure::RequestBody
    );
    assert!(lake.object("bucket", "key").is_none());
}

#[tokio::test]
async fn an_answer_that_comes_before_the_body_is_sent_is_given() {
    let lake = Lake::start().await;
    let endpoint = endpoint(&lake);
    let big = RequestBody::Stream {
        length: Some(64 << 20),
        body: whole(vec![0; 64 << 20]),
    };
    let request = signed_by_a_stranger(put("/bucket/key", big));
    let (status, text) = read_text(&endpoint, request).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
    assert!(text.contains("InvalidAccessKeyId"), "{text}");
}

#[tokio::test]
async fn a_body_is_let_go_with_the_answer_that_did_not_wait_for_it() {
    // A store that answers by the head and leaves the connection open, as if the body were still to come.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = config::LakeConfig {
        endpoint: format!("http://{}", listener.local_addr().unwrap()),
        ..config::LakeConfig::default()
    };
    let endpoint = Endpoint::new(&config, &config::Limits::default(), NodeCredentials::default()).unwrap();
    let held = Arc::new(());
    let endless = stream::unfold(Arc::clone(&held), |held| async {
        std::future::pending::<()>().await;
        Some((Ok(Frame::data(Bytes::new())), held))
    });
    let body = RequestBody::Stream {
        length: Some(1),
        body: StreamBody::new(endless).boxed_unsync(),
    };
    let (answer, _open) = tokio::join!(read_text(&endpoint, put("/bucket/key", body)), async {
        let (mut store, _) = listener.accept().await.unwrap();
        store.read_u8().await.unwrap();
        store
            .write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno")
            .await
            .unwrap();
        store
    });
    assert_eq!(answer, (StatusCode::FORBIDDEN, "no".into()));
    assert_eq!(Arc::strong_count(&held), 1);
}

#[tokio::test]
async fn a_source_that_is_slow_is_not_the_lakes_fault() {
    let lake = Lake::start().await;
    lake.create_bucket("bucket");
    let pieces = stream::unfold(0, |sent| async move {
        tokio::time::sleep(STALL_TIMEOUT * 7 / 4).await;
        (sent < 2).then(|| (Ok(Frame::data(Bytes::from_static(b"ab"))), sent + 1))
    });
    let body = RequestBody::Stream {
        length: Some(4),
        body: StreamBody::new(pieces).boxed_unsync(),
    };
    assert_eq!(
        read_text(&endpoint(&lake), put("/bucket/key", body)).await.0,
        StatusCode::OK
    );
}

fn stream_of(pieces: Vec<Result<&'static [u8], BoxError>>) -> RequestStream {
    let frames = pieces
        .into_iter()
        .map(|piece| piece.map(|bytes| Frame::data(Bytes::from_static(bytes))));
    StreamBody::new(stream::iter(frames)).boxed_unsync()
}

/// The lake refuses it by its head, without a look at its body.
fn signed_by_a_stranger(request: EndpointRequest) -> EndpointRequest {
    let LakeAccount::Signed(known) = account() else {
        unreachable!()
    };
    let stranger = Account {
        access_key: "stranger".into(),
        ..(*known).clone()
    };
    EndpointRequest {
        account: LakeAccount::Signed(Arc::new(stranger)),
        payer: NODE,
        ..request
    }
}
