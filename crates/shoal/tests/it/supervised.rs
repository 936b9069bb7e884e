//! A node that a service manager starts and stops.

use std::os::unix::net::UnixDatagram;
use std::path::Path;

use http::StatusCode;
use tempfile::TempDir;

use crate::client::Client;
use crate::lake::{ACCESS_KEY, Lake, SECRET_KEY};
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
