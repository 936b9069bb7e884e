//! Slow writers.

use bytes::Bytes;
use http::StatusCode;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{back, bytes, reads};
use crate::client::Client;
use crate::node::{BLOCK, Node};

/// The number of blocks that writers may hold in the memory window: half of it.
const ROOM_BLOCKS: u64 = 2;

/// A client that has sent a part of its object.
pub(super) struct Slow {
    stream: TcpStream,
    rest: Bytes,
}

impl Slow {
    pub(super) async fn begin(node: &Node, key: &str, object: Bytes) -> Self {
        Self::begin_as(node, &node.client(), key, object).await
    }

    pub(super) async fn begin_as(node: &Node, client: &Client, key: &str, object: Bytes) -> Self {
        let request = client.put(&format!("/b/{key}"), object).into_request();
        let mut sent = format!("PUT {} HTTP/1.1\r\nconnection: close\r\n", request.uri().path()).into_bytes();
        for (name, value) in request.headers() {
            sent.extend_from_slice(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"].concat());
        }
        sent.extend_from_slice(b"\r\n");
        let mut rest = request.into_body();
        sent.extend_from_slice(&rest.split_to(100));
        let mut stream = TcpStream::connect(node.address()).await.unwrap();
        stream.write_all(&sent).await.unwrap();
        Self { stream, rest }
    }

    /// Sends the rest. Returns the response.
    pub(super) async fn end(mut self) -> String {
        self.stream.write_all(&self.rest).await.unwrap();
        self.answer().await
    }

    /// Returns the response without sending the rest.
    pub(super) async fn answer(mut self) -> String {
        let mut answer = String::new();
        self.stream.read_to_string(&mut answer).await.unwrap();
        answer
    }
}

#[tokio::test]
async fn an_object_of_another_length_than_announced_is_not_taken() {
    let node = Node::start_with(back).await;
    for announced in ["5", "999999"] {
        let put = node.client().put("/b/tmp/k", bytes(1));
        let put = put.header("x-amz-decoded-content-length", announced);
        if let Ok(reply) = put.try_send().await {
            assert_eq!(
                reply.status,
                StatusCode::BAD_REQUEST,
                "{announced}: {}",
                reply.text()
            );
            assert_eq!(reply.code(), "IncompleteBody");
        }
        let read = node.client().get("/b/tmp/k").send().await;
        assert_eq!(read.status, StatusCode::NOT_FOUND, "{announced}");
    }
    node.stop().await;
}

#[tokio::test]
async fn writers_that_take_their_time_keep_no_reader_waiting() {
    let node = Node::start_with(|config| {
        back(config);
        config.limits.fill_bytes = 2 * ROOM_BLOCKS * BLOCK;
    })
    .await;
    let mut writers = Vec::new();
    for number in 0..4 * ROOM_BLOCKS {
        writers.push(Slow::begin(&node, &format!("tmp/{number}"), bytes(number)).await);
    }
    node.lake.put("b", "cold", bytes(100));
    reads(&node.client(), "cold", &bytes(100)).await;
    let ends = writers.into_iter().rev().map(Slow::end);
    for answer in futures_util::future::join_all(ends).await {
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.contains("x-shoal-write: back"), "{answer}");
    }
    for number in 0..4 * ROOM_BLOCKS {
        reads(&node.client(), &format!("tmp/{number}"), &bytes(number)).await;
    }
    node.settle().await;
    node.stop().await;
}
