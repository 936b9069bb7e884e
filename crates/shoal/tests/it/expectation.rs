//! Stories of clients that send `Expect: 100-continue` and hold the body back until `100 Continue`.

use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use shoal_net::clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::chunks::Checksum;
use crate::client::{Call, Payload};
use crate::lake::{Content, Fault, Gate, Request};
use crate::node::Node;

const CONTINUE: &str = "HTTP/1.1 100 Continue\r\n\r\n";

/// A client that has sent the head of its request.
struct Waiting {
    stream: TcpStream,
    body: Bytes,
}

impl Waiting {
    async fn with(node: &Node, call: Call) -> Self {
        let request = call.header("expect", "100-continue").into_request();
        let target = request.uri().path_and_query().unwrap();
        let mut head = format!("{} {target} HTTP/1.1\r\n", request.method()).into_bytes();
        for (name, value) in request.headers() {
            head.extend_from_slice(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        head.extend_from_slice(b"\r\n");
        let mut stream = TcpStream::connect(node.address()).await.unwrap();
        stream.write_all(&head).await.unwrap();
        Self {
            stream,
            body: request.into_body(),
        }
    }

    /// The next head of an answer.
    async fn received(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await.expect("a head has an end"));
        }
        String::from_utf8(head).unwrap()
    }

    /// Everything until the connection ends.
    async fn received_until_the_end(mut self) -> String {
        let mut answer = String::new();
        self.stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    async fn send_body(&mut self) {
        self.stream.write_all(&self.body).await.unwrap();
    }

    async fn put(node: &Node, call: Call) {
        let mut client = Self::with(node, call).await;
        assert_eq!(client.received().await, CONTINUE);
        client.send_body().await;
        let answer = client.received().await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(!answer.contains("connection: close"), "{answer}");
    }
}

#[tokio::test]
async fn a_lake_that_refuses_by_the_head_is_heard_before_the_body_is_asked_for() {
    let node = Node::start().await;
    for payload in [Payload::Hashed, Payload::SignedChunks(8192, None)] {
        node.lake
            .misbehave(Fault::status(403).by_the_head().when(Request::is_put));
        let put = node.client().put("/b/k", vec![7; 100_000]).payload(payload);
        let answer = Waiting::with(&node, put).await.received_until_the_end().await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
        assert!(!answer.contains("100 Continue"), "{answer}");
        let seen = node.lake.last_request();
        assert_eq!(
            (seen.header("expect"), seen.body_received),
            (Some("100-continue"), 0)
        );
    }
    let put = node.client().put("/b/k", "x").send().await;
    assert_eq!(put.status, StatusCode::OK, "{}", put.text());
    assert_eq!(node.lake.last_request().header("expect"), None);
    node.stop().await;
}

#[tokio::test]
async fn a_gate_that_refuses_asks_for_no_body_and_ends_the_connection() {
    let node = Node::start().await;
    let call = node.client().put("/b/k", "x").tampered(|request| {
        request
            .headers_mut()
            .insert("x-amz-unsigned", http::HeaderValue::from_static("1"));
    });
    let answer = Waiting::with(&node, call).await.received_until_the_end().await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    node.stop().await;
}

#[tokio::test]
async fn a_client_is_told_to_go_on_when_the_lake_says_so() {
    let node = Node::start().await;
    let gate = Gate::new();
    node.lake.misbehave(Fault::new().body_held_by(&gate));
    let mut client = Waiting::with(&node, node.client().put("/b/k", "bytes")).await;
    gate.arrived(1).await;
    let early = tokio::time::timeout(Duration::from_millis(300), client.received()).await;
    assert!(early.is_err(), "{early:?}");
    gate.open();
    assert_eq!(client.received().await, CONTINUE);
    client.send_body().await;
    assert!(client.received().await.starts_with("HTTP/1.1 200 "));
    assert_eq!(node.lake.object("b", "k").unwrap().content.all(), "bytes");
    node.stop().await;
}

#[tokio::test]
async fn a_body_that_is_waited_for_arrives_in_every_payload_mode_without_delay() {
    let node = Node::start().await;
    let body = Content::synthetic(100_001, 3).all();
    let modes = [
        Payload::Hashed,
        Payload::Unsigned,
        Payload::SignedChunks(8192, None),
        Payload::SignedChunks(8192, Some(Checksum::Crc64Nvme)),
        Payload::UnsignedTrailer(8192, Checksum::Crc64Nvme),
    ];
    let start = clock::instant();
    for mode in modes {
        Waiting::put(&node, node.client().put("/b/k", body.clone()).payload(mode)).await;
        assert_eq!(
            node.lake.object("b", "k").unwrap().content.all(),
            body,
            "{mode:?}"
        );
        node.lake.delete("b", "k");
    }
    // The lake sends `100 Continue` at once. If it were ignored, each body would wait for a second.
    let taken = start.elapsed();
    assert!(taken < Duration::from_secs(modes.len() as u64), "{taken:?}");
    node.stop().await;
}

#[tokio::test]
async fn a_lake_that_keeps_silent_gets_the_body_after_a_second() {
    let node = Node::start().await;
    let gate = Gate::new();
    node.lake.misbehave(Fault::new().body_held_by(&gate));
    let start = clock::instant();
    let mut client = Waiting::with(&node, node.client().put("/b/k", "bytes")).await;
    let told = tokio::time::timeout(Duration::from_secs(20), client.received()).await;
    assert_eq!(told.expect("nobody waits for ever"), CONTINUE);
    assert!(start.elapsed() >= Duration::from_secs(1), "{:?}", start.elapsed());
    client.send_body().await;
    gate.open();
    assert!(client.received().await.starts_with("HTTP/1.1 200 "));
    assert_eq!(node.lake.object("b", "k").unwrap().content.all(), "bytes");
    node.stop().await;
}
