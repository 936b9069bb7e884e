//! A node whose certificate is replaced on disk while it serves: by SIGHUP, and by looking at the files
//! itself.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, ChildStderr, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal, kill_process};
use rustls::crypto::ring;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tempfile::TempDir;

use crate::commands::shoal;

/// A node with the certificate in `folder`, stopped with the test.
struct Node {
    child: Child,
    log: BufReader<ChildStderr>,
    address: SocketAddr,
    folder: TempDir,
}

type Connection = StreamOwned<ClientConnection, TcpStream>;

impl Node {
    fn start(certificate: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        install(&folder, certificate);
        let mut command = shoal(&[
            "serve",
            "--s3-listen",
            "127.0.0.1:0",
            "--admin-listen",
            "127.0.0.1:0",
            // No server answers there, and these tests need none.
            "--lake-endpoint",
            "http://127.0.0.1:1",
        ]);
        let path = |name: &str| folder.path().join(name);
        command.arg("--store-path").arg(path("store"));
        command.arg("--s3-tls-cert").arg(path("tls.pem"));
        command.arg("--s3-tls-key").arg(path("tls.key"));
        let mut child = command
            .env("SHOAL_LOG_FORMAT", "json")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let serving = said(&mut log, "serving");
        Self {
            address: serving["s3"].as_str().unwrap().parse().unwrap(),
            child,
            log,
            folder,
        }
    }

    /// Waits for a line of the log, as long as it takes.
    fn says(&mut self, message: &str) -> serde_json::Value {
        said(&mut self.log, message)
    }

    fn hang_up(&self) {
        kill_process(Pid::from_child(&self.child), Signal::HUP).unwrap();
    }

    fn connect(&self) -> Connection {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_file(data("ca.pem")).unwrap())
            .unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        let client = ClientConnection::new(Arc::new(config), name).unwrap();
        StreamOwned::new(client, TcpStream::connect(self.address).unwrap())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Nothing that the test is about: it may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn said(log: &mut BufReader<ChildStderr>, message: &str) -> serde_json::Value {
    for line in log.lines().map(Result::unwrap) {
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        if line["message"] == message {
            return line;
        }
    }
    panic!("the node ended and had not said {message:?}");
}

fn data(name: &str) -> String {
    format!(
        "{}/../shoal-net/tests/data/tls/{name}",
        env!("CARGO_MANIFEST_DIR")
    )
}

/// Puts a certificate and its key in the place of what is there, each file whole or not at all.
fn install(folder: &TempDir, name: &str) {
    for kind in ["pem", "key"] {
        replace(folder, kind, &fs::read(data(&format!("{name}.{kind}"))).unwrap());
    }
}

fn replace(folder: &TempDir, kind: &str, content: &[u8]) {
    let aside = folder.path().join("aside");
    fs::write(&aside, content).unwrap();
    fs::rename(&aside, folder.path().join(format!("tls.{kind}"))).unwrap();
}

/// The certificate that a connection shows, once it is known to answer.
fn shown(connection: &mut Connection) -> CertificateDer<'static> {
    connection
        .write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .unwrap();
    let mut answer = BufReader::new(&mut *connection);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(answer.read_line(&mut head).unwrap() > 0, "{head}");
    }
    assert!(head.starts_with("HTTP/1.1 "), "{head}");
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    answer.read_exact(&mut vec![0; length]).unwrap();
    connection.conn.peer_certificates().unwrap()[0]
        .clone()
        .into_owned()
}

fn expected(name: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_file(data(&format!("{name}.pem"))).unwrap()
}

#[test]
fn a_hangup_brings_a_new_certificate_and_keeps_the_old_one_when_the_new_is_broken() {
    let mut node = Node::start("first");
    let mut old = node.connect();
    assert_eq!(shown(&mut old), expected("first"));

    install(&node.folder, "second");
    node.hang_up();
    node.says("new certificate in use");
    assert_eq!(shown(&mut node.connect()), expected("second"));
    assert_eq!(shown(&mut old), expected("first"), "an open connection goes on");

    replace(&node.folder, "pem", b"-----BEGIN CERTIFICATE-----\n");
    node.hang_up();
    let refusal = node.says("the new configuration is refused, the old one stays in force");
    assert_eq!(refusal["level"], "ERROR");
    let error = refusal["error"].as_str().unwrap();
    assert!(error.contains("tls.pem") && error.contains("hint: "), "{error}");
    assert_eq!(
        shown(&mut node.connect()),
        expected("second"),
        "the old one stays"
    );
    assert_eq!(shown(&mut old), expected("first"));
}

#[test]
fn a_new_certificate_is_found_without_being_told_and_a_broken_one_is_not_used() {
    let mut node = Node::start("first");
    let mut old = node.connect();
    assert_eq!(shown(&mut old), expected("first"));

    install(&node.folder, "second");
    node.says("new certificate in use");
    assert_eq!(shown(&mut node.connect()), expected("second"));

    // Told when it lasts: once may have been a key that was still being written.
    replace(&node.folder, "key", &fs::read(data("first.key")).unwrap());
    let refusal = node.says("new certificate not used, the old one stays in use");
    assert!(
        refusal["error"]
            .as_str()
            .unwrap()
            .contains("must belong together")
    );
    assert_eq!(
        shown(&mut node.connect()),
        expected("second"),
        "the old one stays"
    );
    assert_eq!(shown(&mut old), expected("first"), "an open connection goes on");

    install(&node.folder, "first");
    node.says("new certificate in use");
    assert_eq!(
        shown(&mut node.connect()),
        expected("first"),
        "a whole pair is used again"
    );
}
