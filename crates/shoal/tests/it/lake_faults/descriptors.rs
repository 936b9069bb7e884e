//! A node that has no descriptors left blames itself, not the lake.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::process::Process;

#[tokio::test]
async fn a_node_without_descriptors_says_so_and_asks_to_slow_down() {
    let lake = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", lake.local_addr().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("store");
    let arguments = [
        "--lake-endpoint",
        &endpoint,
        "--store-path",
        store.to_str().unwrap(),
    ];
    let node = Process::serve_with_files(64, &arguments).await;
    let mut client = TcpStream::connect(node.s3).await.unwrap();
    let mut others = Vec::new();
    for _ in 0..100 {
        others.push(TcpStream::connect(node.s3).await.unwrap());
    }
    node.says("cannot accept connections").await;

    client
        .write_all(b"GET /b/k HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n")
        .await
        .unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("<Code>SlowDown</Code>"), "{answer}");
    assert!(answer.contains("This node has no descriptors"), "{answer}");
    let told = node.says("the lake gave no answer").await;
    assert_eq!(told["failure"], "exhausted");
    let error = told["error"].as_str().unwrap();
    assert!(error.ends_with("Too many open files (os error 24)"), "{error}");
    drop(others);
    assert_eq!(node.stop().await, Some(0));
}
