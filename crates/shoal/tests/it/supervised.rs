//! A node that a service manager starts and stops.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use http::StatusCode;
use tempfile::TempDir;

use crate::client::Client;
use crate::lake::{ACCESS_KEY, ANONYMOUS, Access, Lake, Object, SECRET_KEY};
use crate::process::Process;
use crate::waiting::value;

/// The end of a service manager.
struct Manager(UnixDatagram);

impl Manager {
    fn listen(path: &Path) -> Self {
        let socket = UnixDatagram::bind(path).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self(socket)
    }

    /// The next report, if there is one.
    fn next(&self) -> Option<String> {
        let mut report = [0; 64];
        let length = self.0.recv(&mut report).ok()?;
        Some(String::from_utf8(report[..length].to_vec()).unwrap())
    }

    /// Waits for the next report.
    async fn report(&self) -> String {
        let next = value("the node reports", async || self.next(), Option::is_some);
        next.await.unwrap()
    }
}

#[tokio::test]
async fn a_node_reports_that_it_serves_and_that_it_stops_although_its_lake_is_silent() {
    let folder = TempDir::new().unwrap();
    let manager = Manager::listen(&folder.path().join("notify"));
    let lake = Lake::start().await;
    lake.add_user(ACCESS_KEY, SECRET_KEY);
    lake.stop().await;
    let (endpoint, store) = (lake.url(), folder.path().join("store"));
    let arguments = [
        ["--lake-endpoint", &endpoint],
        ["--store-path", store.to_str().unwrap()],
    ];
    let node = Process::serve_for(&folder.path().join("notify"), &arguments.concat()).await;
    assert_eq!(manager.report().await, "READY=1");
    let page = Client::anonymous(node.admin).get("/healthz").send().await;
    assert_eq!(page.status, StatusCode::OK);
    assert_eq!(manager.next(), None, "the node has reported once");
    assert_eq!(node.stop().await, Some(0));
    assert_eq!(manager.report().await, "STOPPING=1");
    assert_eq!(manager.next(), None);
}

#[tokio::test]
async fn a_client_that_connects_while_a_node_restarts_waits_and_is_refused_nothing() {
    let folder = TempDir::new().unwrap();
    let lake = Lake::start().await;
    lake.put("b", "k", Object::new(b"bytes".to_vec()));
    lake.allow(ANONYMOUS, Access::Read, "b");
    let (endpoint, store) = (lake.url(), folder.path().join("store"));
    let arguments = [
        ["--lake-endpoint", &endpoint],
        ["--store-path", store.to_str().unwrap()],
    ];
    let arguments = arguments.concat();
    // As `ListenStream=` of a socket unit.
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let node = Process::serve_on(&socket, &arguments).await;
    let address = node.s3;
    assert_eq!(address, socket.local_addr().unwrap());
    assert!(node.lines("that no setting names").is_empty());
    assert_eq!(node.stop().await, Some(0));
    let mut waiting = TcpStream::connect(address).unwrap();
    waiting
        .write_all(b"GET /b/k HTTP/1.1\r\nhost: s3\r\nconnection: close\r\n\r\n")
        .unwrap();
    let node = Process::serve_on(&socket, &arguments).await;
    let read = tokio::task::spawn_blocking(move || {
        let mut answer = String::new();
        waiting.read_to_string(&mut answer).map(|_| answer)
    });
    let answer = read.await.unwrap().unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\nbytes"),
        "{answer}"
    );
    assert_eq!(node.stop().await, Some(0));
}
