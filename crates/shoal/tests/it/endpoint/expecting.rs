//! Bodies that wait for the endpoint to want them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::stream;
use http::StatusCode;
use http_body_util::{BodyExt, StreamBody};
use shoal_net::endpoint::{Endpoint, EndpointRequest, Failure, LakeAccount, NodeCredentials, RequestBody};
use shoal_node::config;
use shoal_s3::identity::NODE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::{STALL_TIMEOUT, failure, put, read, read_text, whole};

/// A store that follows commands, and an endpoint for it.
async fn store() -> (TcpListener, Endpoint) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = config::LakeConfig {
        endpoint: format!("http://{}", listener.local_addr().unwrap()),
        write_timeout: STALL_TIMEOUT,
        stall_timeout: Some(STALL_TIMEOUT),
        ..config::LakeConfig::default()
    };
    let limits = config::Limits::default();
    let endpoint = Endpoint::new(&config, &limits, NodeCredentials::default()).unwrap();
    (listener, endpoint)
}

fn expecting(body: RequestBody) -> EndpointRequest {
    EndpointRequest {
        expects_continue: true,
        account: LakeAccount::Anonymous,
        payer: NODE,
        ..put("/bucket/key", body)
    }
}

/// One byte, and whether anybody has asked for it.
fn watched() -> (RequestBody, Arc<AtomicBool>) {
    let asked = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&asked);
    let body = stream::poll_fn(move |_| {
        seen.store(true, Ordering::SeqCst);
        std::task::Poll::Pending
    });
    let body = RequestBody::Stream {
        length: Some(1),
        body: StreamBody::new(body).boxed_unsync(),
    };
    (body, asked)
}

async fn head_of(store: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(store.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn an_answer_in_place_of_100_continue_leaves_the_body_alone_and_the_connection_unused() {
    let (listener, endpoint) = store().await;
    for _ in 0..2 {
        let (body, asked) = watched();
        let (answer, _open) = tokio::join!(read_text(&endpoint, expecting(body)), async {
            let (mut store, _) = listener.accept().await.expect("a connection of its own");
            assert!(head_of(&mut store).await.contains("expect: 100-continue\r\n"));
            let head = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 6\r\n\r\n";
            store.write_all(head).await.unwrap();
            // Longer than a body waits for a store that does not know the expectation.
            for _ in 0..6 {
                tokio::time::sleep(STALL_TIMEOUT / 2).await;
                store.write_all(b"x").await.unwrap();
            }
            store
        });
        assert_eq!(answer, (StatusCode::FORBIDDEN, "xxxxxx".into()));
        assert!(!asked.load(Ordering::SeqCst));
    }
    assert_eq!(endpoint.counters().connections.get(), 2);
}

#[tokio::test]
async fn an_answer_that_stalls_is_noticed_though_the_body_was_kept_back() {
    let (listener, endpoint) = store().await;
    let (body, _asked) = watched();
    let (response, _open) = tokio::join!(endpoint.send(expecting(body)), async {
        let (mut store, _) = listener.accept().await.unwrap();
        head_of(&mut store).await;
        let head = b"HTTP/1.1 403 Forbidden\r\ncontent-length: 6\r\n\r\nx";
        store.write_all(head).await.unwrap();
        store
    });
    let answer = tokio::time::timeout(Duration::from_secs(10), read(response.unwrap().into_body()));
    assert_eq!(failure(answer.await.expect("it was noticed")), Failure::Stalled);
}

#[tokio::test]
async fn a_connection_goes_on_after_100_continue_and_other_news_is_not_taken_for_it() {
    let (listener, endpoint) = store().await;
    let store = async {
        let (mut store, _) = listener.accept().await.unwrap();
        for _ in 0..2 {
            head_of(&mut store).await;
            let hints = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n";
            store.write_all(hints).await.unwrap();
            let early = tokio::time::timeout(STALL_TIMEOUT / 4, store.read_u8()).await;
            assert!(early.is_err(), "{early:?}");
            store.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
            assert_eq!(store.read_u8().await.unwrap(), b'y');
            let head = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            store.write_all(head).await.unwrap();
        }
        store
    };
    let client = async {
        for _ in 0..2 {
            let body = RequestBody::Stream {
                length: Some(1),
                body: whole("y"),
            };
            let (status, _) = read_text(&endpoint, expecting(body)).await;
            assert_eq!(status, StatusCode::OK);
        }
    };
    tokio::join!(client, store);
    assert_eq!(endpoint.counters().connections.get(), 1);
}
