//! Stories of the lake's answers: whole, slow, early, late or missing.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::BodyExt;
use shoal_net::endpoint::{Failure, RequestBody};

use super::{STALL_TIMEOUT, endpoint, failure, get, put, read, read_text, request};
use crate::lake::{Content, Cut, Fault, Lake, Request};
use crate::waiting::until;

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
    assert_eq!(endpoint.counters().bytes_received.get(), content.size());
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
        (lake.count(Request::is_get), endpoint.counters().retries.get()),
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
async fn a_write_that_makes_the_lake_work_may_take_longer_than_others() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", "x");
    let endpoint = endpoint(&lake);
    let copy = |source: Option<&'static str>| {
        let mut request = put("/bucket/copy", RequestBody::Empty);
        let source = source.map(HeaderValue::from_static);
        request
            .headers
            .extend(source.map(|source| (HeaderName::from_static("x-amz-copy-source"), source)));
        request
    };
    lake.misbehave(Fault::new().late(STALL_TIMEOUT * 2).times(2));
    let copied = endpoint.send(copy(Some("/bucket/key"))).await.unwrap();
    assert_eq!(copied.status(), StatusCode::OK);
    assert_eq!(failure(endpoint.send(copy(None)).await), Failure::TimedOut);
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_refused() {
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
async fn unrequested_bytes_never_become_the_next_answer() {
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
    // Longer than the stall timeout, which does not count the time of a slow reader.
    tokio::time::sleep(STALL_TIMEOUT * 2).await;
    body.frame().await.unwrap().unwrap();
    drop(body);
    until("the transfer ends", async || lake.last_request().abandoned).await;
    assert!(lake.body_bytes_sent() < 64 << 20);
}
