//! The endpoint against a lake that checks signatures and misbehaves.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use shoal::config;
use shoal::endpoint::{
    BoxError, Endpoint, EndpointError, EndpointRequest, Failure, LakeAccount, LakeBody, NodeCredentials,
    RequestBody, RequestStream,
};
use shoal::identity::Account;
use shoal::secret::Secret;
use shoal::sigv4::PayloadHash;

use crate::chunks::{Checksum, ChunkSigner, encode};
use crate::lake::{ACCESS_KEY, Access, Content, Cut, Fault, Lake, REGION, Request, SECRET_KEY};
use crate::tls;

const STALL_TIMEOUT: Duration = Duration::from_millis(400);

fn endpoint_with(lake: &Lake, limits: &config::Limits) -> Endpoint {
    let config = config::Lake {
        endpoint: lake.url(),
        region: REGION.into(),
        ..config::Lake::default()
    };
    let credentials = NodeCredentials::of_config(&config).unwrap();
    Endpoint::new(&config, limits, credentials).unwrap()
}

fn endpoint(lake: &Lake) -> Endpoint {
    endpoint_with(
        lake,
        &config::Limits {
            stall_timeout: STALL_TIMEOUT,
            ..config::Limits::default()
        },
    )
}

fn account() -> LakeAccount {
    LakeAccount::Signed(Arc::new(Account {
        access_key: ACCESS_KEY.into(),
        secret_key: Secret::new(SECRET_KEY),
        session_token: None,
    }))
}

fn request(method: Method, target: &str) -> EndpointRequest {
    EndpointRequest {
        operation: "Test",
        method,
        target: PathAndQuery::try_from(target).unwrap(),
        headers: HeaderMap::new(),
        body: RequestBody::Empty,
        payload: PayloadHash::empty(),
        account: account(),
    }
}

fn get(target: &str) -> EndpointRequest {
    request(Method::GET, target)
}

fn put(target: &str, body: RequestBody) -> EndpointRequest {
    EndpointRequest {
        body,
        payload: PayloadHash::Unsigned,
        ..request(Method::PUT, target)
    }
}

fn whole(body: impl Into<Bytes>) -> RequestStream {
    Full::new(body.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

fn stream_of(pieces: Vec<Result<&'static [u8], BoxError>>) -> RequestStream {
    let frames = pieces
        .into_iter()
        .map(|piece| piece.map(|bytes| Frame::data(Bytes::from_static(bytes))));
    StreamBody::new(stream::iter(frames)).boxed_unsync()
}

async fn read(body: LakeBody) -> Result<Bytes, EndpointError> {
    body.collect().await.map(http_body_util::Collected::to_bytes)
}

async fn read_text(endpoint: &Endpoint, request: EndpointRequest) -> (StatusCode, String) {
    let response = endpoint.send(request).await.unwrap();
    let status = response.status();
    (
        status,
        String::from_utf8(read(response.into_body()).await.unwrap().to_vec()).unwrap(),
    )
}

fn failure<T>(outcome: Result<T, EndpointError>) -> Failure {
    outcome.err().expect("it was to fail").kind()
}

// Signatures and bytes.

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
    let (sender, seed) = tokio::sync::oneshot::channel();
    let mut request = put("/bucket/key", RequestBody::Empty);
    request.payload = PayloadHash::StreamingSignedTrailer;
    request
        .headers
        .insert("x-amz-decoded-content-length", body.len().into());
    request
        .headers
        .insert("x-amz-trailer", HeaderValue::from_static(trailer.header()));
    let gate = lake.hold(|request| !request.body_complete);
    gate.open();

    // The head's date is known to whoever makes the chunks only through the lake's log here: the body waits for it.
    let chunks = {
        let lake = lake.clone();
        async move {
            let previous: String = seed.await.unwrap();
            while lake.count(|_| true) == 0 {
                tokio::task::yield_now().await;
            }
            let date = lake.last_request().header("x-amz-date").unwrap().to_owned();
            let day = time::Date::parse(
                &date[..8],
                time::macros::format_description!("[year][month][day]"),
            )
            .unwrap();
            let key = aws_sigv4::sign::v4::generate_signing_key(
                SECRET_KEY,
                day.midnight().assume_utc().into(),
                REGION,
                "s3",
            );
            let scope = format!("{}/{REGION}/s3/aws4_request", &date[..8]);
            let signer = ChunkSigner {
                signing_key: key.as_ref().to_vec(),
                date,
                scope,
                previous,
            };
            Ok::<_, BoxError>(Frame::data(Bytes::from(encode(
                body,
                8,
                Some(signer),
                Some(trailer),
            ))))
        }
    };
    request.body = RequestBody::Seeded {
        length: None,
        body: Box::new(move |seed| {
            sender.send(seed.signature).unwrap();
            StreamBody::new(stream::once(chunks)).boxed_unsync()
        }),
    };
    assert_eq!(
        read_text(&endpoint(&lake), request).await,
        (StatusCode::OK, String::new())
    );
    assert_eq!(lake.object("bucket", "key").unwrap().content.all(), body);
}

// What goes wrong on our side of the body.

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
    let LakeAccount::Signed(known) = account() else {
        unreachable!()
    };
    let stranger = Account {
        access_key: "stranger".into(),
        ..(*known).clone()
    };
    let big = RequestBody::Stream {
        length: Some(64 << 20),
        body: whole(vec![0; 64 << 20]),
    };
    let request = EndpointRequest {
        account: LakeAccount::Signed(Arc::new(stranger)),
        ..put("/bucket/key", big)
    };
    let (status, text) = read_text(&endpoint, request).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
    assert!(text.contains("InvalidAccessKeyId"), "{text}");
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

// Retries.

#[tokio::test]
async fn passing_trouble_is_tried_again_and_the_client_never_knows() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", "x");
    let endpoint = endpoint(&lake);
    for fault in [
        Fault::status(500),
        Fault::status(502),
        Fault::status(503),
        Fault::status(504),
        Fault::reset(),
    ] {
        lake.misbehave(fault.times(2));
        assert_eq!(
            read_text(&endpoint, get("/bucket/key")).await,
            (StatusCode::OK, "x".into())
        );
    }
    let counts = endpoint.counters();
    // Of each pair of resets the first may befall a connection that was open before: that one is not counted.
    assert!((9..=10).contains(&counts.retries), "{counts:?}");
    assert_eq!(counts.requests["Test"], lake.count(Request::is_get) as u64);
    assert_eq!(lake.count(Request::is_get), 15);
}

#[tokio::test]
async fn trouble_that_stays_is_given_as_it_is() {
    let lake = Lake::start().await;
    let endpoint = endpoint(&lake);
    lake.misbehave(Fault::status(503).always());
    let (status, text) = read_text(&endpoint, get("/bucket/key")).await;
    assert_eq!(
        (status, lake.count(Request::is_get)),
        (StatusCode::SERVICE_UNAVAILABLE, 3)
    );
    assert!(text.contains("SlowDown"), "{text}");
    assert_eq!(
        endpoint.counters().connections,
        1,
        "error bodies are read to their end"
    );
}

#[tokio::test]
async fn a_lake_that_asks_for_more_time_than_we_have_is_not_asked_again() {
    let lake = Lake::start().await;
    lake.misbehave(Fault::status(503).with_header("retry-after", "60").always());
    let response = endpoint(&lake).send(get("/bucket/key")).await.unwrap();
    assert_eq!(response.headers()["retry-after"], "60");
    assert_eq!(lake.count(Request::is_get), 1);
}

#[tokio::test]
async fn denials_and_writes_are_never_repeated() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", "x");
    lake.deny(ACCESS_KEY, Access::Read, "bucket/secret");
    let endpoint = endpoint(&lake);
    for target in ["/bucket/none", "/bucket/secret"] {
        endpoint.send(get(target)).await.unwrap();
        lake.misbehave(Fault::status(503));
        let body = RequestBody::Stream {
            length: Some(1),
            body: whole("y"),
        };
        assert_eq!(
            read_text(&endpoint, put(target, body)).await.0,
            StatusCode::SERVICE_UNAVAILABLE
        );
        lake.misbehave(Fault::status(503));
        let delete = request(Method::DELETE, target);
        assert_eq!(
            read_text(&endpoint, delete).await.0,
            StatusCode::SERVICE_UNAVAILABLE
        );
        lake.misbehave(Fault::reset());
        assert_eq!(
            failure(endpoint.send(put(target, RequestBody::Empty)).await),
            Failure::BrokenOff
        );
    }
    assert_eq!((lake.count(|_| true), endpoint.counters().retries), (8, 0));
}

#[tokio::test]
async fn retries_end_with_their_budget() {
    let lake = Lake::start().await;
    lake.misbehave(Fault::status(503).always());
    let endpoint = endpoint(&lake);
    for _ in 0..30 {
        read_text(&endpoint, get("/bucket/key")).await;
    }
    // A burst of ten, and one more for every ten requests.
    let retries = endpoint.counters().retries;
    assert!((10..=13).contains(&retries), "{retries}");
    assert_eq!(lake.count(Request::is_get) as u64, 30 + retries);
}

#[tokio::test]
async fn a_connection_that_went_stale_is_replaced_without_a_retry() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", "x");
    let endpoint = endpoint_with(
        &lake,
        &config::Limits {
            retry_budget_percent: 0,
            ..config::Limits::default()
        },
    );
    read_text(&endpoint, get("/bucket/key")).await;

    // Closed while idle: noticed before anything is sent, so that writes are safe too.
    lake.stop().await;
    lake.resume().await;
    let body = RequestBody::Stream {
        length: Some(1),
        body: whole("y"),
    };
    assert_eq!(
        read_text(&endpoint, put("/bucket/key", body)).await.0,
        StatusCode::OK
    );

    // Closed while the request was under way.
    lake.misbehave(Fault::reset());
    assert_eq!(
        read_text(&endpoint, get("/bucket/key")).await,
        (StatusCode::OK, "y".into())
    );
    assert_eq!(endpoint.counters().retries, 0);

    // On a new connection it is the lake's fault.
    lake.misbehave(Fault::reset().times(2));
    assert_eq!(
        failure(endpoint.send(get("/bucket/key")).await),
        Failure::BrokenOff
    );
}

// Connections.

#[tokio::test]
async fn connections_are_kept_and_shared() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", Content::synthetic(100_000, 1));
    let endpoint = Arc::new(endpoint(&lake));
    for target in ["/bucket/key", "/bucket/none", "/bucket/key"] {
        read(endpoint.send(get(target)).await.unwrap().into_body())
            .await
            .unwrap();
        read(
            endpoint
                .send(request(Method::HEAD, target))
                .await
                .unwrap()
                .into_body(),
        )
        .await
        .unwrap();
    }
    assert_eq!(endpoint.counters().connections, 1);

    let gate = lake.hold(Request::is_get);
    for round in 0..2 {
        let readers: Vec<_> = (0..64)
            .map(|_| {
                let endpoint = Arc::clone(&endpoint);
                tokio::spawn(async move {
                    read(endpoint.send(get("/bucket/key")).await.unwrap().into_body()).await
                })
            })
            .collect();
        if round == 0 {
            gate.arrived(64).await;
            gate.open();
        }
        for reader in readers {
            assert_eq!(
                reader.await.unwrap().unwrap(),
                Content::synthetic(100_000, 1).all()
            );
        }
    }
    assert_eq!(endpoint.counters().connections, 64);
}

#[tokio::test]
async fn a_lake_that_cannot_be_reached_is_said_so() {
    let lake = Lake::start().await;
    let endpoint = endpoint(&lake);
    lake.stop().await;
    let error = endpoint
        .send(get("/bucket/secret-key?token=hidden"))
        .await
        .err()
        .unwrap();
    assert_eq!(error.kind(), Failure::Unreachable);
    assert_eq!(
        error.to_string(),
        format!("Test /bucket/secret-key: {} cannot be reached", lake.url())
    );
    assert!(!format!("{error:?}").contains("hidden"), "{error:?}");
    assert_eq!(endpoint.counters().requests["Test"], 3);
}

#[tokio::test]
async fn https_is_spoken_to_a_lake_that_the_system_trusts_and_to_no_other() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", "x");
    let address = tls::in_front_of(lake.address()).await;
    let config = config::Lake {
        endpoint: format!("https://{address}"),
        ..config::Lake::default()
    };
    let credentials = NodeCredentials::of_config(&config).unwrap();
    let endpoint = Endpoint::new(&config, &config::Limits::default(), credentials);

    if std::env::var("SSL_CERT_FILE").as_deref() == Ok(tls::CERTIFICATE) {
        let endpoint = endpoint.unwrap();
        for _ in 0..2 {
            assert_eq!(
                read_text(&endpoint, get("/bucket/key")).await,
                (StatusCode::OK, "x".into())
            );
        }
        assert_eq!(endpoint.counters().connections, 1);
        return;
    }
    // A system without any root refuses to start; one with others refuses the connection.
    let refused = match endpoint {
        Ok(endpoint) => failure(endpoint.send(get("/bucket/key")).await),
        Err(error) => error.kind(),
    };
    assert!(
        matches!(refused, Failure::Unreachable | Failure::Misconfigured),
        "{refused:?}"
    );
    assert_eq!(lake.count(|_| true), 0);

    // What the system trusts is read from the environment once: another process sees another system.
    let trusting = std::process::Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "endpoint::https_is_spoken_to_a_lake_that_the_system_trusts_and_to_no_other",
        ])
        .env("SSL_CERT_FILE", tls::CERTIFICATE)
        .output()
        .unwrap();
    assert!(
        trusting.status.success(),
        "{}",
        String::from_utf8_lossy(&trusting.stdout)
    );
    assert!(String::from_utf8_lossy(&trusting.stdout).contains("1 passed"));
}

// Responses.

#[tokio::test]
async fn a_large_body_arrives_whole() {
    let lake = Lake::start().await;
    let content = Content::synthetic((20 << 20) + 3, 5);
    lake.put("bucket", "key", content.clone());
    let endpoint = endpoint(&lake);
    let body = read(endpoint.send(get("/bucket/key")).await.unwrap().into_body())
        .await
        .unwrap();
    assert!(body == content.all());
    assert_eq!(endpoint.counters().bytes_received, content.size());
}

#[tokio::test]
async fn a_head_and_a_304_have_lengths_and_no_body() {
    let lake = Lake::start().await;
    let etag = lake.put("bucket", "key", "hello");
    let endpoint = endpoint(&lake);
    let head = endpoint.send(request(Method::HEAD, "/bucket/key")).await.unwrap();
    assert_eq!(head.headers()["content-length"], "5");
    assert_eq!(read(head.into_body()).await.unwrap(), "");
    let mut conditional = get("/bucket/key");
    conditional.headers.insert("if-none-match", etag.parse().unwrap());
    assert_eq!(
        read_text(&endpoint, conditional).await,
        (StatusCode::NOT_MODIFIED, String::new())
    );
}

#[tokio::test]
async fn a_body_that_ends_early_is_an_error_of_its_kind() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", Content::synthetic(1 << 20, 1));
    let endpoint = endpoint(&lake);
    for (fault, expected) in [
        (Fault::cut(500_000, Cut::Close), Failure::Truncated),
        (Fault::cut(0, Cut::Close), Failure::Truncated),
        (Fault::cut((1 << 20) - 1, Cut::Close), Failure::Truncated),
        (
            Fault::cut(500_000, Cut::Close).without_header("content-length"),
            Failure::Truncated,
        ),
        (
            Fault::new().with_header("content-length", "1048577"),
            Failure::Truncated,
        ),
        (Fault::cut(500_000, Cut::Reset), Failure::Reset),
        (Fault::cut(500_000, Cut::Stall), Failure::Stalled),
    ] {
        lake.misbehave(fault);
        let response = endpoint.send(get("/bucket/key")).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(failure(read(response.into_body()).await), expected);
    }
    assert_eq!(
        (lake.count(Request::is_get), endpoint.counters().retries),
        (7, 0),
        "a body is never asked for twice"
    );
    let after = read(endpoint.send(get("/bucket/key")).await.unwrap().into_body())
        .await
        .unwrap();
    assert_eq!(after.len(), 1 << 20);
}

#[tokio::test]
async fn a_body_that_is_slow_and_moves_is_no_stall() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", Content::synthetic(1000, 1));
    lake.misbehave(Fault::new().paced(250, STALL_TIMEOUT * 2 / 3));
    let response = endpoint(&lake).send(get("/bucket/key")).await.unwrap();
    assert_eq!(read(response.into_body()).await.unwrap().len(), 1000);
}

#[tokio::test]
async fn a_head_that_does_not_come_is_a_timeout() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", "x");
    let _closed = lake.hold(|_| true);
    let endpoint = endpoint(&lake);
    let error = endpoint.send(get("/bucket/key")).await.err().unwrap();
    assert!(error.kind() == Failure::TimedOut && error.kind().is_timeout());
    assert_eq!(
        lake.count(|_| true),
        1,
        "what took that long is not asked for again"
    );
}

#[tokio::test]
async fn what_is_not_http_is_refused() {
    let lake = Lake::start().await;
    let endpoint = endpoint(&lake);
    let long = format!("HTTP/1.1 200 OK\r\nx-long: {}\r\n\r\n", "x".repeat(100_000));
    for bytes in [
        "HTTP/1.1 2OO\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nbad header\0: x\r\n\r\n",
        &long,
    ] {
        lake.misbehave(Fault::raw(bytes.to_owned()));
        assert_eq!(
            failure(endpoint.send(get("/bucket/key")).await),
            Failure::Unintelligible,
            "{bytes:.40}"
        );
    }
    lake.misbehave(Fault::raw(
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nxx",
    ));
    assert_eq!(
        failure(endpoint.send(get("/bucket/key")).await),
        Failure::Unintelligible
    );
}

#[tokio::test]
async fn bytes_nobody_asked_for_never_become_the_next_answer() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", "right");
    let endpoint = endpoint(&lake);
    lake.misbehave(Fault::raw(
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\naHTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwrong",
    ));
    assert_eq!(read_text(&endpoint, get("/bucket/key")).await.1, "a");
    assert_eq!(read_text(&endpoint, get("/bucket/key")).await.1, "right");
}

#[tokio::test]
async fn a_reader_that_leaves_ends_the_transfer_and_one_that_pauses_holds_it() {
    let lake = Lake::start().await;
    let size = 256 << 20;
    lake.put("bucket", "key", Content::synthetic(size, 1));
    let endpoint = endpoint(&lake);
    let mut body = endpoint.send(get("/bucket/key")).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    let settled = async {
        loop {
            let before = lake.body_bytes_sent();
            tokio::time::sleep(Duration::from_millis(100)).await;
            if lake.body_bytes_sent() == before {
                return before;
            }
        }
    };
    let held = settled.await;
    assert!(held < 32 << 20, "{held} bytes sent to a reader of one frame");
    // Longer than the stall timeout: it is the reader who is slow.
    tokio::time::sleep(STALL_TIMEOUT * 2).await;
    body.frame().await.unwrap().unwrap();
    drop(body);
    while !lake.last_request().abandoned {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(lake.body_bytes_sent() < 64 << 20);
}
