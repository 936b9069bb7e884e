//! `[directory]`

use std::path::PathBuf;
use std::time::Duration;

use shoal_base::secret::Secret;

/// The `url` of an in-process directory.
pub const EMBEDDED: &str = "embedded";

/// The location of the directory, and the credentials of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct DirectoryConfig {
    /// [`EMBEDDED`], or `redis://host:port`, `redis-cluster://host:port,…` or
    /// `redis-sentinel://host:port,…/name`; with `rediss` in place of `redis` for TLS. The default port is
    /// 6379, for Sentinels 26379. If Redis uses ACLs, `user@` stands before the first host.
    pub url: String,
    /// The password of that user, or the one shared by all clients (the content of `password_file`).
    pub password: Option<Secret>,
    /// PEM file of the certificate authorities for the servers; `None` for those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// Prefix of all keys, followed by a colon, so that several clusters can share one Redis.
    pub prefix: String,
    /// Time limit of a request for which a reader waits; the node then continues without the directory.
    pub timeout: Duration,
}

impl DirectoryConfig {
    /// Returns true if the directory is in this process, and not in Redis.
    pub fn is_embedded(&self) -> bool {
        self.url == EMBEDDED
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
