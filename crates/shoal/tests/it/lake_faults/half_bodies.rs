//! Uploads that end on their way. The lake sees a reset: after an orderly end, some lakes store a part as the
//! whole object.

use std::io::ErrorKind;

use rustix::process::Signal;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::process::Process;

/// Half of a body is more than a node holds, so a part of it reaches the lake.
const BODY_BYTES: usize = 2 << 20;

/// A node, a client that has sent half of a body, and the lake's end of the upload.
struct Upload {
    node: Process,
    client: TcpStream,
    lake: TcpStream,
    _folder: tempfile::TempDir,
}

impl Upload {
    async fn begin() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        let store = store.to_str().unwrap();
        let node = Process::serve(&["--lake-endpoint", &endpoint, "--store-path", store]).await;
        let mut client = TcpStream::connect(node.s3).await.unwrap();
        let head = format!("PUT /b/k HTTP/1.1\r\nhost: node\r\ncontent-length: {BODY_BYTES}\r\n\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        client.write_all(&vec![b'x'; BODY_BYTES / 2]).await.unwrap();
        loop {
            // The node also asks the lake questions of its own.
            let (mut lake, _) = listener.accept().await.unwrap();
            let mut method = [0; 4];
            if lake.read_exact(&mut method).await.is_ok() && method == *b"PUT " {
                lake.read_exact(&mut vec![0; BODY_BYTES / 4]).await.unwrap();
                return Self {
                    node,
                    client,
                    lake,
                    _folder: folder,
                };
            }
        }
    }
}

/// Reads to the end, which is a reset.
async fn assert_is_reset(mut lake: TcpStream) {
    let mut rest = Vec::new();
    let ended = lake.read_to_end(&mut rest).await;
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert!(rest.len() < BODY_BYTES, "the whole body arrived");
}

#[tokio::test]
async fn an_upload_whose_client_breaks_off_is_reset_at_the_lake() {
    let upload = Upload::begin().await;
    drop(upload.client);
    assert_is_reset(upload.lake).await;
    assert_eq!(upload.node.stop().await, Some(0));
}

#[tokio::test]
async fn an_upload_through_a_node_that_is_killed_is_reset_at_the_lake() {
    let upload = Upload::begin().await;
    upload.node.signal(Signal::KILL);
    assert_is_reset(upload.lake).await;
}
