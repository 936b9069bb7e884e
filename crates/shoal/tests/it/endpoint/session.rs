//! Changes whose permission ends on their way: the session of the node is over, as after a long freeze.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use shoal_net::endpoint::{
    Endpoint, EndpointRequest, Failure, LakeAccount, NodeCredentials, RequestBody, SendOptions,
};
use shoal_node::config;
use shoal_registry::Name;
use shoal_registry::changes::{ChangedObject, Changes, LakeChange};
use shoal_registry::engine::Engine;
use shoal_registry::engine::embedded::Embedded;
use shoal_registry::entry::Kind;
use shoal_registry::names::Names;
use shoal_registry::session::Session;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use super::{STALL_TIMEOUT, failure, get, put, read_text, request, whole};
use crate::tls;

const PATIENCE: Duration = Duration::from_secs(30);

/// A change that has begun, and the session in which it did.
struct Begun {
    session: Arc<Session>,
    change: LakeChange,
    _folder: tempfile::TempDir,
}

impl Begun {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let engine: Arc<dyn Engine> = Arc::new(Embedded::open(folder.path()).unwrap());
        let session = Arc::new(Session::new(Arc::clone(&engine), 1, PATIENCE));
        session.keep().await.unwrap();
        let changes = Changes::new(Names::new(engine, 1, PATIENCE), Arc::clone(&session));
        let (changes, name) = (Arc::new(changes), Name::new("bucket", b"key"));
        let begun = changes
            .begin(&name, Kind::Write, ChangedObject::Current, None)
            .await;
        Self {
            session,
            change: begun.unwrap(),
            _folder: folder,
        }
    }

    /// The registry no longer takes the node for living.
    async fn session_ends(&self) {
        self.session.close().await.unwrap();
        assert!(!self.change.permit().may_send());
    }
}

/// A store that follows commands, and an endpoint for it.
async fn store() -> (TcpListener, Arc<Endpoint>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, endpoint(url, None))
}

fn endpoint(url: String, ca_file: Option<&Path>) -> Arc<Endpoint> {
    let config = config::LakeConfig {
        endpoint: url,
        ca_file: ca_file.map(Into::into),
        // A store that reads nothing for a while is not given up.
        connect_timeout: PATIENCE,
        write_timeout: PATIENCE,
        stall_timeout: Some(PATIENCE),
        ..config::LakeConfig::default()
    };
    let limits = config::Limits::default();
    Arc::new(Endpoint::new(&config, &limits, NodeCredentials::default()).unwrap())
}

fn anonymous(request: EndpointRequest) -> EndpointRequest {
    EndpointRequest {
        account: LakeAccount::Anonymous,
        ..request
    }
}

fn put_of(size: usize) -> EndpointRequest {
    let body = RequestBody::Stream {
        length: Some(size as u64),
        body: whole(vec![b'x'; size]),
    };
    anonymous(put("/bucket/key", body))
}

/// Reads until the other end stops sending. Returns the number of bytes.
async fn drain(store: &mut TcpStream) -> usize {
    let (mut read, mut buffer) = (0, vec![0; 64 << 10]);
    loop {
        let more = tokio::time::timeout(PATIENCE, store.read(&mut buffer));
        match more.await.expect("the connection ends") {
            Ok(0) | Err(_) => return read,
            Ok(bytes) => read += bytes,
        }
    }
}

/// Reads the head of a request and a body of this size.
async fn read_request(store: &mut TcpStream, size: usize) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(store.read_u8().await.unwrap());
    }
    store.read_exact(&mut vec![0; size]).await.unwrap();
}

async fn answer(store: &mut TcpStream) {
    let head = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    store.write_all(head).await.unwrap();
}

/// Sizes of which the last bytes wait in the kernel, in the HTTP client, and in the body, while the store
/// reads nothing.
const SIZES: [usize; 5] = [256 << 10, 320 << 10, 384 << 10, 1 << 20, 16 << 20];

#[tokio::test]
async fn a_body_that_waits_in_any_buffer_when_the_session_ends_does_not_reach_the_store() {
    for size in SIZES {
        let (listener, endpoint) = store().await;
        let begun = Begun::new().await;
        let permit = begun.change.permit();
        let sending = tokio::spawn(async move {
            endpoint
                .send_with(put_of(size), SendOptions::permitted_by(Some(&permit)))
                .await
        });
        let (mut store, _) = listener.accept().await.unwrap();
        // As much as the buffers take is in them.
        tokio::time::sleep(STALL_TIMEOUT).await;
        begun.session_ends().await;
        let read = drain(&mut store).await;
        assert!(read < size, "{read} of {size} bytes");
        assert_eq!(failure(sending.await.unwrap()), Failure::SessionOver, "{size}");
    }
}

#[tokio::test]
async fn the_same_bodies_reach_the_store_while_the_session_lasts() {
    let (listener, endpoint) = store().await;
    let begun = Begun::new().await;
    let permit = begun.change.permit();
    let store = async {
        let (mut store, _) = listener.accept().await.unwrap();
        for size in SIZES {
            tokio::time::sleep(STALL_TIMEOUT / 4).await;
            read_request(&mut store, size).await;
            answer(&mut store).await;
        }
    };
    let client = async {
        for size in SIZES {
            let answer = endpoint
                .send_with(put_of(size), SendOptions::permitted_by(Some(&permit)))
                .await;
            assert_eq!(answer.unwrap().status(), StatusCode::OK);
        }
    };
    tokio::join!(client, store);
}

#[tokio::test]
async fn a_request_that_waits_for_its_connection_when_the_session_ends_is_not_sent() {
    // Behind TLS, whose handshake ends after the session.
    let behind = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let front = tls::in_front_of(behind.local_addr().unwrap()).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let endpoint = endpoint(url, Some(Path::new(tls::CERTIFICATE)));
    let begun = Begun::new().await;
    let permit = begun.change.permit();
    let sending = tokio::spawn(async move {
        endpoint
            .send_with(put_of(1), SendOptions::permitted_by(Some(&permit)))
            .await
    });
    let (mut outside, _) = listener.accept().await.unwrap();
    begun.session_ends().await;
    let mut inside = TcpStream::connect(front).await.unwrap();
    let passing = tokio::spawn(async move { copy_bidirectional(&mut outside, &mut inside).await });
    assert_eq!(failure(sending.await.unwrap()), Failure::SessionOver);
    drop(passing.await.unwrap());
    let handshake = tokio::time::timeout(STALL_TIMEOUT, behind.accept()).await;
    if let Ok(Ok((mut store, _))) = handshake {
        assert_eq!(drain(&mut store).await, 0);
    }
}

#[tokio::test]
async fn a_change_over_tls_is_sent_while_the_session_lasts() {
    let behind = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let front = tls::in_front_of(behind.local_addr().unwrap()).await;
    let endpoint = endpoint(format!("https://{front}"), Some(Path::new(tls::CERTIFICATE)));
    let begun = Begun::new().await;
    let permit = begun.change.permit();
    let size = 1 << 20;
    let store = async {
        let (mut store, _) = behind.accept().await.unwrap();
        read_request(&mut store, size).await;
        answer(&mut store).await;
        store
    };
    let (sent, _open) = tokio::join!(
        endpoint.send_with(put_of(size), SendOptions::permitted_by(Some(&permit))),
        store
    );
    assert_eq!(sent.unwrap().status(), StatusCode::OK);
}

#[tokio::test]
async fn nothing_is_sent_on_a_connection_at_rest_after_the_session_but_what_needs_none() {
    let (listener, endpoint) = store().await;
    let begun = Begun::new().await;
    let permit = begun.change.permit();
    let removal = || anonymous(request(Method::DELETE, "/bucket/key"));
    let (sent, mut at_rest) = tokio::join!(
        endpoint.send_with(removal(), SendOptions::permitted_by(Some(&permit))),
        async {
            let (mut store, _) = listener.accept().await.unwrap();
            read_request(&mut store, 0).await;
            answer(&mut store).await;
            store
        }
    );
    assert_eq!(sent.unwrap().status(), StatusCode::OK);
    begun.session_ends().await;
    let (read, ()) = tokio::join!(read_text(&endpoint, anonymous(get("/bucket/key"))), async {
        read_request(&mut at_rest, 0).await;
        answer(&mut at_rest).await;
    });
    assert_eq!(read.0, StatusCode::OK);
    assert_eq!(endpoint.counters().connections.get(), 1);
    let refused = endpoint
        .send_with(removal(), SendOptions::permitted_by(Some(&permit)))
        .await;
    assert_eq!(failure(refused), Failure::SessionOver);
    assert_eq!(drain(&mut at_rest).await, 0);
}

#[tokio::test]
async fn a_change_that_waits_for_its_answer_when_the_session_ends_is_given_up() {
    let (listener, endpoint) = store().await;
    let begun = Begun::new().await;
    let permit = begun.change.permit();
    let sending = tokio::spawn(async move {
        endpoint
            .send_with(put_of(9), SendOptions::permitted_by(Some(&permit)))
            .await
    });
    let (mut store, _) = listener.accept().await.unwrap();
    read_request(&mut store, 9).await;
    begun.session_ends().await;
    assert_eq!(failure(sending.await.unwrap()), Failure::SessionOver);
    let reset = store.read_u8().await.unwrap_err();
    assert_eq!(reset.kind(), std::io::ErrorKind::ConnectionReset);
}
