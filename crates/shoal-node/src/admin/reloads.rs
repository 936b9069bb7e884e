//! Results of configuration reloads.

use std::fmt::Display;
use std::time::SystemTime;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_base::moment::since_1970;

/// Results of reloads, for `/status` and metrics.
#[derive(Debug)]
pub struct Reloads(Mutex<ReloadHistory>);

/// The reloads since the node started.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReloadHistory {
    /// When the configuration in force was read, in seconds since 1970.
    pub read_at: u64,
    /// Successful reloads.
    pub reloads: u64,
    /// Failed reloads, which left the configuration as it was.
    pub failed_reloads: u64,
    /// Why the latest reload failed; `None` if it succeeded.
    pub error: Option<String>,
    /// Settings that have changed in the files but need a restart.
    pub need_restart: Vec<String>,
}

impl Reloads {
    /// Creates an empty history; the node starts at `now`.
    pub fn since(now: SystemTime) -> Self {
        Self(Mutex::new(ReloadHistory {
            read_at: since_1970(now).as_secs(),
            ..ReloadHistory::default()
        }))
    }

    /// Records the result of a reload at `now`: the settings that need a restart, or an error.
    pub fn note(&self, now: SystemTime, taken_over: Result<&[String], impl Display>) {
        let mut history = self.0.lock();
        match taken_over {
            Ok(need_restart) => {
                history.reloads += 1;
                history.read_at = since_1970(now).as_secs();
                history.error = None;
                need_restart.clone_into(&mut history.need_restart);
            }
            Err(error) => {
                history.failed_reloads += 1;
                history.error = Some(error.to_string());
            }
        }
    }

    /// Returns the reloads since the node started.
    pub fn history(&self) -> ReloadHistory {
        self.0.lock().clone()
    }
}
