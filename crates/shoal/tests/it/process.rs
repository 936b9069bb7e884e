//! A node in a process of its own, for what only a process can show: signals, limits of the system, what it
//! logs.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::client::Client;
use crate::commands::shoal;
use crate::waiting::value;

pub(crate) struct Process {
    child: Child,
    log: Arc<Mutex<Vec<Value>>>,
    pub(crate) s3: SocketAddr,
    pub(crate) admin: SocketAddr,
}

impl Process {
    /// `shoal serve` on free ports with these arguments, once it serves.
    pub(crate) async fn serve(arguments: &[&str]) -> Self {
        let mut command = shoal(&["serve"]);
        command.args(arguments);
        Self::started(command).await
    }

    /// The same, reporting to the service manager at this socket.
    pub(crate) async fn serve_for(manager: &Path, arguments: &[&str]) -> Self {
        let mut command = shoal(&["serve"]);
        command.args(arguments).env("NOTIFY_SOCKET", manager);
        Self::started(command).await
    }

    /// The same, in a process with a limit of open files.
    pub(crate) async fn serve_with_files(files: u32, arguments: &[&str]) -> Self {
        let inner = shoal(&["serve"]);
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("ulimit -n {files} && exec \"$0\" \"$@\"")])
            .arg(inner.get_program())
            .args(inner.get_args())
            .args(arguments);
        Self::started(command).await
    }

    /// The same, with a socket for S3 that the service manager keeps open.
    pub(crate) async fn serve_on(socket: &TcpListener, arguments: &[&str]) -> Self {
        // Otherwise the socket is closed in the process.
        fcntl_setfd(socket, FdFlags::empty()).unwrap();
        let inner = shoal(&["serve"]);
        let mut command = Command::new("sh");
        command
            .args(["-c", "LISTEN_PID=$$ exec \"$0\" \"$@\""])
            .arg(inner.get_program())
            .args(inner.get_args())
            .args(arguments)
            .env("LISTEN_FDS", "1")
            .env("LISTEN_FDS_FIRST_FD", socket.as_raw_fd().to_string());
        Self::started_at(command, socket.local_addr().unwrap()).await
    }

    async fn started(command: Command) -> Self {
        Self::started_at(command, SocketAddr::from(([127, 0, 0, 1], 0))).await
    }

    async fn started_at(mut command: Command, s3: SocketAddr) -> Self {
        command.args(["--s3-listen", &s3.to_string(), "--admin-listen", "127.0.0.1:0"]);
        command.env("SHOAL_LOG_FORMAT", "json").env("NO_COLOR", "1");
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::<Mutex<Vec<Value>>>::default();
        let (lines, written) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                let line = serde_json::from_str(&line).unwrap_or(Value::String(line));
                written.lock().push(line);
            }
        });
        let nowhere = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut process = Self {
            child,
            log,
            s3: nowhere,
            admin: nowhere,
        };
        let serving = process.says("serving").await;
        let address = |name: &str| serving[name].as_str().unwrap().parse().unwrap();
        (process.s3, process.admin) = (address("s3"), address("admin"));
        process
    }

    /// Waits for a line of the log with these words; gives the first one.
    pub(crate) async fn says(&self, words: &str) -> Value {
        self.says_again(words, 1).await
    }

    /// Waits for this many log lines with these words; returns the latest.
    pub(crate) async fn says_again(&self, words: &str, times: usize) -> Value {
        let log = async || self.log.lock().clone();
        value(&format!("it logs {words:?}"), log, |_| {
            self.lines(words).len() >= times
        })
        .await;
        self.lines(words)[times - 1].clone()
    }

    /// The lines of the log with these words so far.
    pub(crate) fn lines(&self, words: &str) -> Vec<Value> {
        let log = self.log.lock();
        log.iter()
            .filter(|line| line.to_string().contains(words))
            .cloned()
            .collect()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn client(&self, access_key: &str, secret_key: &str) -> Client {
        Client::signing(self.s3, access_key, secret_key)
    }

    /// The answer of `/status`.
    pub(crate) async fn status(&self) -> Value {
        let page = Client::anonymous(self.admin).get("/status").send().await;
        serde_json::from_slice(&page.body).unwrap()
    }

    /// The text of `/metrics`.
    pub(crate) async fn metrics(&self) -> String {
        let page = Client::anonymous(self.admin).get("/metrics").send().await;
        page.text().to_owned()
    }

    /// Its exit code after SIGTERM.
    pub(crate) async fn stop(mut self) -> Option<i32> {
        self.signal(Signal::TERM);
        let ended = tokio::task::spawn_blocking(move || self.child.wait().unwrap().code());
        ended.await.unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has exited already when the test was successful.
        let _ = self.child.kill();
    }
}
