//! Results of configuration reloads.

use std::fmt::Display;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use shoal_base::moment::since_1970;

/// The reloads since the node started, for `/status` and metrics.
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

impl ReloadHistory {
    /// Creates an empty history; the node starts at `now`.
    pub fn since(now: SystemTime) -> Self {
        Self {
            read_at: since_1970(now).as_secs(),
            ..Self::default()
        }
    }

    /// Records the result of a reload at `now`: the settings that need a restart, or an error.
    pub fn note(&mut self, now: SystemTime, taken_over: Result<&[String], impl Display>) {
        match taken_over {
            Ok(need_restart) => {
                self.reloads += 1;
                self.read_at = since_1970(now).as_secs();
                self.error = None;
                need_restart.clone_into(&mut self.need_restart);
            }
            Err(error) => {
                self.failed_reloads += 1;
                self.error = Some(error.to_string());
            }
        }
    }
}
