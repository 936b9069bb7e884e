//! `[directory]`

use std::path::PathBuf;
use std::time::Duration;

use shoal_base::secret::Secret;
use shoal_directory::redis::Settings;

/// The `url` of an in-process directory.
pub const EMBEDDED: &str = "embedded";

/// Location of the directory, for nodes with `mode = "directory"`.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectoryConfig {
    /// `embedded`, or the URL of Redis: `redis://`, `redis-cluster://`, `redis-sentinel://`, with `rediss` in
    /// place of `redis` for TLS. `user@` may stand before the first host.
    pub url: String,
    /// The content of `password_file`.
    pub password: Option<Secret>,
    /// CA certificates (PEM) for the certificate of Redis; `None` for the system's.
    pub ca_file: Option<PathBuf>,
    /// Prefix of all keys in Redis, so that several clusters can share one.
    pub prefix: String,
    /// Time limit of a request; the node then continues without the directory.
    pub timeout: Duration,
}

impl DirectoryConfig {
    /// Returns the settings of Redis; `None` if the directory is embedded.
    pub fn redis(&self) -> Option<Settings> {
        (self.url != EMBEDDED).then(|| Settings {
            url: self.url.clone(),
            password: self.password.clone(),
            ca_file: self.ca_file.clone(),
            prefix: self.prefix.clone(),
        })
    }
}

impl Default for DirectoryConfig {
    fn default() -> Self {
        Self {
            url: EMBEDDED.into(),
            password: None,
            ca_file: None,
            prefix: "shoal".into(),
            timeout: Duration::from_millis(20),
        }
    }
}
