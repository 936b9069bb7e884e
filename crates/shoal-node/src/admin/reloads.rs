//! Results of configuration reloads.

use std::fmt::Display;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde_json::{Value, json};

/// Results of reloads, for `/status` and metrics.
#[derive(Debug)]
pub struct Reloads(Mutex<History>);

#[derive(Clone, Debug)]
struct History {
    ok: u64,
    failed: u64,
    /// When the configuration in force was read.
    read_at: SystemTime,
    /// Why the latest reload failed.
    error: Option<String>,
    /// Settings that have changed in the files but need a restart.
    need_restart: Vec<String>,
}

impl Reloads {
    /// Creates an empty history; the node starts at `now`.
    pub fn since(now: SystemTime) -> Self {
        Self(Mutex::new(History {
            ok: 0,
            failed: 0,
            read_at: now,
            error: None,
            need_restart: Vec::new(),
        }))
    }

    /// Records the result of a reload at `now`: the settings that need a restart, or an error.
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

    /// Returns the number of successful and of failed reloads.
    pub fn counts(&self) -> [(&'static str, u64); 2] {
        let history = self.0.lock();
        [("ok", history.ok), ("failed", history.failed)]
    }

    /// Returns true if the latest reload succeeded, and when the configuration in force was read, in seconds
    /// since 1970.
    pub fn latest(&self) -> (bool, u64) {
        let history = self.0.lock();
        (history.error.is_none(), unix_seconds(history.read_at))
    }

    /// Returns the part of `/status` about reloads.
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
