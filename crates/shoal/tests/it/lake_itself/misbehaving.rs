//! Faults, gates, counts: what makes the lake of use to a test.

use std::time::Duration;

use http::StatusCode;
use http_body_util::BodyExt;
use proptest::prelude::{ProptestConfig, any, proptest};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client;
use crate::client::raw;
use crate::lake::{ANONYMOUS, Access, Content, Cut, Fault, Lake, Request};

#[tokio::test]
async fn requests_and_their_bytes_are_counted() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", Content::synthetic(1 << 20, 1));
    let client = client(&lake);
    assert_eq!(client.get("/bucket/key").send().await.body.len(), 1 << 20);
    client.get("/bucket/key").range("bytes=5-14").send().await;
    client.head("/bucket/key").send().await;
    client.put("/bucket/other", "body").send().await;
    assert_eq!(
        (
            lake.count(Request::is_get),
            lake.count(Request::is_head),
            lake.count(Request::is_put)
        ),
        (2, 1, 1)
    );
    let log = lake.requests();
    assert_eq!(log[1].header("range"), Some("bytes=5-14"));
    assert_eq!(
        log.iter().map(|request| request.body_sent).collect::<Vec<_>>(),
        [1 << 20, 10, 0, 0]
    );
    assert!(
        log.iter()
            .all(|request| request.answered && request.body_complete)
    );
    assert_eq!(
        (log[3].body_received, lake.body_bytes_sent()),
        (4, (1 << 20) + 10)
    );
    lake.forget_requests();
    assert_eq!(lake.count(|_| true), 0);
}

#[tokio::test]
async fn a_huge_object_costs_nothing_and_reads_the_same_everywhere() {
    let lake = Lake::start().await;
    let size = 5 << 30;
    lake.put("bucket", "huge", Content::synthetic(size, 7));
    let client = client(&lake);
    let tail = client.get("/bucket/huge").range("bytes=-100").send().await;
    assert_eq!(tail.body, Content::synthetic(size, 7).read(size - 100..size));
    assert_eq!(
        client.head("/bucket/huge").send().await.header("content-length"),
        Some("5368709120")
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn synthetic_content_does_not_depend_on_how_it_is_read(start in 0u64..200, length in 0u64..200, seed in any::<u64>()) {
        let content = Content::synthetic(400, seed);
        let part = content.read(start..start + length);
        assert_eq!(part, content.all().slice(start as usize..(start + length) as usize));
    }
}

#[tokio::test]
async fn a_fault_befalls_the_requests_it_is_meant_for_and_as_often() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", "0123456789");
    let client = client(&lake);
    lake.misbehave(
        Fault::status(503)
            .times(2)
            .when(Request::is_get)
            .with_header("retry-after", "1"),
    );
    lake.misbehave(Fault::ignores_range().with_header("etag", "\"other\""));
    assert_eq!(
        client.head("/bucket/key").send().await.header("etag"),
        Some("\"other\"")
    );
    let first = client.get("/bucket/key").send().await;
    assert_eq!(
        (first.code(), first.header("retry-after")),
        ("SlowDown", Some("1"))
    );
    assert_eq!(client.get("/bucket/key").send().await.code(), "SlowDown");
    assert_eq!(client.get("/bucket/key").send().await.text(), "0123456789");

    lake.misbehave(Fault::ignores_range());
    let whole = client.get("/bucket/key").range("bytes=2-3").send().await;
    assert_eq!((whole.status.as_u16(), whole.text()), (200, "0123456789"));
    lake.misbehave(Fault::ignores_if_match());
    assert_eq!(
        client
            .get("/bucket/key")
            .header("if-match", "\"none\"")
            .send()
            .await
            .status,
        StatusCode::OK
    );
    lake.misbehave(Fault::new().without_header("etag"));
    let bare = client
        .get("/bucket/key")
        .header("if-none-match", "*")
        .send()
        .await;
    assert_eq!((bare.status.as_u16(), bare.header("etag")), (304, None));

    lake.misbehave(Fault::status(500).always());
    lake.behave();
    assert_eq!(client.get("/bucket/key").send().await.status, StatusCode::OK);
}

#[tokio::test]
async fn a_body_can_be_cut_at_a_byte_in_three_ways() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", Content::synthetic(100_000, 1));
    let client = client(&lake);
    for cut in [Cut::Close, Cut::Reset, Cut::Stall] {
        lake.misbehave(Fault::cut(70_000, cut));
        let mut body = client.get("/bucket/key").open().await.unwrap().into_body();
        let mut seen = 0;
        let failed = tokio::time::timeout(Duration::from_millis(500), async {
            while let Some(frame) = body.frame().await {
                match frame {
                    Ok(frame) => seen += frame.into_data().unwrap().len(),
                    Err(_) => return true,
                }
            }
            false
        });
        match cut {
            Cut::Stall => assert!(failed.await.is_err()),
            Cut::Close | Cut::Reset => assert_eq!(failed.await, Ok(true), "{cut:?}"),
        }
        if cut != Cut::Reset {
            assert_eq!(seen, 70_000, "{cut:?}");
        }
        assert!(!lake.last_request().answered);
    }
}

#[tokio::test]
async fn the_wire_can_carry_what_is_not_http() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", "x");
    lake.allow(ANONYMOUS, Access::Read, "bucket");
    lake.misbehave(Fault::raw("HTTP/1.1 2OO\r\n\0"));
    let request = "GET /bucket/key HTTP/1.1\r\nhost: lake\r\n\r\n";
    assert_eq!(raw(lake.address(), request).await, b"HTTP/1.1 2OO\r\n\0");
    lake.misbehave(Fault::reset());
    assert!(client(&lake).get("/bucket/key").try_send().await.is_err());
    assert_eq!(lake.last_request().status, None);
}

#[tokio::test]
async fn an_object_can_change_between_two_pieces_of_its_body() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", "old old old");
    let writer = lake.clone();
    lake.misbehave(Fault::new().after(4, move || {
        writer.put("bucket", "key", "new");
    }));
    let client = client(&lake);
    assert_eq!(
        client.get("/bucket/key").send().await.text(),
        "old old old",
        "one response, one version"
    );
    assert_eq!(client.get("/bucket/key").send().await.text(), "new");
}

#[tokio::test]
async fn a_gate_holds_answers_until_it_is_opened() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", "x");
    let gate = lake.hold(Request::is_get);
    let readers: Vec<_> = (0..3)
        .map(|_| tokio::spawn(client(&lake).get("/bucket/key").send()))
        .collect();
    gate.arrived(3).await;
    assert_eq!(
        client(&lake).head("/bucket/key").send().await.status,
        StatusCode::OK
    );
    assert!(readers.iter().all(|reader| !reader.is_finished()));
    gate.open();
    for reader in readers {
        assert_eq!(reader.await.unwrap().text(), "x");
    }
}

#[tokio::test]
async fn a_stopped_lake_refuses_and_a_resumed_one_remembers() {
    let lake = Lake::start().await;
    lake.put("bucket", "key", "x");
    lake.stop().await;
    assert!(client(&lake).get("/bucket/key").try_send().await.is_err());
    lake.resume().await;
    assert_eq!(client(&lake).get("/bucket/key").send().await.text(), "x");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_not_stored() {
    let lake = Lake::start().await;
    lake.create_bucket("bucket");
    lake.allow(ANONYMOUS, Access::Write, "bucket");
    raw_and_close(
        &lake,
        "PUT /bucket/key HTTP/1.1\r\nhost: lake\r\ncontent-length: 10\r\n\r\nfour",
    )
    .await;
    assert!(lake.object("bucket", "key").is_none());
    let request = lake.last_request();
    assert_eq!((request.body_received, request.body_complete), (4, false));
}

/// Sends bytes and closes at once; returns when the lake has seen the end.
async fn raw_and_close(lake: &Lake, bytes: &str) {
    let mut stream = TcpStream::connect(lake.address()).await.unwrap();
    stream.write_all(bytes.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    drop(stream.read_to_end(&mut Vec::new()).await);
}
