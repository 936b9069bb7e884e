//! How orders to read the configuration again ended.

use std::fmt::Display;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde_json::{Value, json};

/// How reloads ended, for `/status` and metrics.
#[derive(Debug)]
pub struct Reloads(Mutex<History>);

#[derive(Clone, Debug)]
struct History {
    ok: u64,
    failed: u64,
    /// Time at which the configuration in force was read.
    read_at: SystemTime,
    /// Why the latest reload failed.
    error: Option<String>,
    /// Settings that differ in the files, and cannot change while the node runs.
    need_restart: Vec<String>,
}

impl Reloads {
    /// A history without reloads; the node starts at `now`.
    pub fn since(now: SystemTime) -> Self {
        Self(Mutex::new(History {
            ok: 0,
            failed: 0,
            read_at: now,
            error: None,
            need_restart: Vec::new(),
        }))
    }

    /// Notes how a reload ended at `now`: with settings that need a restart to change, or with an error.
    pub fn note(&self, now: SystemTime, taken_over: Result<&[String], impl Display>) {
        let mut history = self.0.lock();
        match taken_over {
            Ok(need_restart) => {
                history.ok += 1;
                history.read_at = now;
                history.error = None;
                need_restart.clone_into(&mut history.need_restart);
            }
            Err(error) => {
                history.failed += 1;
                history.error = Some(error.to_string());
            }
        }
    }

    /// The number of reloads that succeeded, and of those that failed.
    pub fn counts(&self) -> [(&'static str, u64); 2] {
        let history = self.0.lock();
        [("ok", history.ok), ("failed", history.failed)]
    }

    /// Whether the latest reload succeeded, and when the configuration in force was read, in seconds since
    /// 1970.
    pub fn latest(&self) -> (bool, u64) {
        let history = self.0.lock();
        (history.error.is_none(), unix_seconds(history.read_at))
    }

    /// The page for `/status`.
    pub fn page(&self) -> Value {
        let history = self.0.lock().clone();
        json!({
            "read_at": unix_seconds(history.read_at),
            "reloads": history.ok,
            "failed_reloads": history.failed,
            "error": history.error,
            "need_restart": history.need_restart,
        })
    }
}

fn unix_seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
