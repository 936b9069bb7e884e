//! The log of a misconfigured node as an operator reads it: the real binary, its standard error, its pages.

mod at_start;
mod cluster;
mod lake;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use shoal_net::clock;
use tempfile::TempDir;

use crate::client::Client;
use crate::commands::shoal;

/// How long a story waits for a line; only a failing one waits until the end.
const PATIENCE: Duration = Duration::from_mins(1);

/// `shoal serve` on free ports with a configuration file, and everything it has logged.
pub(crate) struct Process {
    child: Child,
    log: Arc<Log>,
    _folder: TempDir,
}

#[derive(Default)]
struct Log {
    lines: Mutex<Vec<String>>,
    grew: Condvar,
}

impl Process {
    /// Starts a node whose file says what these lines say, below its listeners and its store.
    pub(crate) fn start(lines: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shoal.toml");
        fs::write(&file, lines).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let mut command = shoal(&[
            "serve",
            "--s3-listen",
            "127.0.0.1:0",
            "--admin-listen",
            "127.0.0.1:0",
        ]);
        command.arg("--config").arg(&file);
        command.arg("--store-path").arg(folder.path().join("store"));
        command.env("NO_COLOR", "1").stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log = Arc::<Log>::default();
        let (told, kept) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in told.lines().map_while(Result::ok) {
                kept.lines.lock().push(line);
                kept.grew.notify_all();
            }
        });
        Self {
            child,
            log,
            _folder: folder,
        }
    }

    /// The first line that has all of these words in it, as soon as it is there.
    pub(crate) fn logs(&self, words: &[&str]) -> String {
        let deadline = clock::instant() + PATIENCE;
        let mut lines = self.log.lines.lock();
        loop {
            let found = lines
                .iter()
                .find(|line| words.iter().all(|word| line.contains(word)));
            if let Some(line) = found {
                return line.clone();
            }
            let timed_out = self.log.grew.wait_until(&mut lines, deadline).timed_out();
            assert!(!timed_out, "no line with {words:?} in\n{}", lines.join("\n"));
        }
    }

    /// How many lines so far have this text in them.
    pub(crate) fn count(&self, text: &str) -> usize {
        let lines = self.log.lines.lock();
        lines.iter().filter(|line| line.contains(text)).count()
    }

    /// Where S3 and the admin pages are served, once they are.
    pub(crate) fn addresses(&self) -> (SocketAddr, SocketAddr) {
        let line = self.logs(&["serving"]);
        let address = |name: &str| {
            let value = line.split(name).nth(1).unwrap();
            value.split_whitespace().next().unwrap().parse().unwrap()
        };
        (address(" s3="), address(" admin="))
    }

    /// A page of its admin port, as JSON.
    pub(crate) async fn page(&self, path: &str) -> Value {
        let admin = Client::anonymous(self.addresses().1);
        serde_json::from_slice(&admin.get(path).send().await.body).unwrap()
    }

    /// Ends it as `systemctl stop` does.
    pub(crate) fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It has exited already when the story was successful.
        let _ = self.child.kill();
    }
}
