//! `[directory]`

use std::path::PathBuf;
use std::time::Duration;

use shoal_base::secret::Secret;
use shoal_directory::redis::Settings;

/// The `url` of a directory in the process of its nodes.
pub const EMBEDDED: &str = "embedded";

/// Where the directory is, for nodes with `mode = "directory"`.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectoryConfig {
    /// `embedded`, or the URL of Redis: `redis://`, `redis-cluster://`, `redis-sentinel://`, with `rediss` in
    /// place of `redis` for TLS.
    pub url: String,
    /// The user at Redis, if it has users.
    pub user: Option<String>,
    /// Its password (`password` or the content of `password_file`).
    pub password: Option<Secret>,
    /// The certificates, in PEM, that sign that of Redis; `None` for those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// Keys in Redis begin with this, so that several clusters of nodes can share one.
    pub prefix: String,
    /// An answer must come within this time; a node goes on without it.
    pub timeout: Duration,
}

impl DirectoryConfig {
    /// The settings of Redis; `None` if the directory is embedded.
    pub fn redis(&self) -> Option<Settings> {
        (self.url != EMBEDDED).then(|| Settings {
            url: self.url.clone(),
            user: self.user.clone(),
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
            user: None,
            password: None,
            ca_file: None,
            prefix: "shoal".into(),
            timeout: Duration::from_millis(20),
        }
    }
}
