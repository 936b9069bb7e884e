//! A Redis for the nodes of a story.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use super::free_address;
use crate::waiting::value;

/// An empty Redis on a port of its own, without persistence.
pub(super) struct Redis {
    address: SocketAddr,
    process: Child,
    folder: TempDir,
}

impl Redis {
    pub(super) fn start() -> Option<Self> {
        let (address, folder) = (free_address(), TempDir::new().unwrap());
        let process = Self::run(address, &folder)?;
        Some(Self {
            address,
            process,
            folder,
        })
    }

    fn run(address: SocketAddr, folder: &TempDir) -> Option<Child> {
        let process = Command::new("redis-server")
            .args([
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
                "--port",
            ])
            .arg(address.port().to_string())
            .arg("--dir")
            .arg(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        for _ in 0..500 {
            if TcpStream::connect(address).is_ok() {
                return Some(process);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("Redis does not listen");
    }

    pub(super) fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Sends a command, and returns the answer's first line.
    fn ask(&self, command: &str) -> String {
        let mut connection = TcpStream::connect(self.address).unwrap();
        connection.write_all(format!("{command}\r\n").as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(connection).read_line(&mut line).unwrap();
        line
    }

    pub(super) fn flush(&self) {
        assert_eq!(self.ask("FLUSHALL"), "+OK\r\n");
    }

    /// Waits until it has the entries of two objects again.
    pub(super) async fn knows_again(&self) {
        let script = "EVAL \"return #redis.call('KEYS', 'shoal:b:*')\" 0";
        let objects = async || self.ask(script);
        value("the entries are back", objects, |count| count == ":2\r\n").await;
    }

    pub(super) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(super) fn start_again(&mut self) {
        self.process = Self::run(self.address, &self.folder).expect("it ran before");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
