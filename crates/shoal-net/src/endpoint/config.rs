//! `[lake]`

use std::path::PathBuf;
use std::time::Duration;

use shoal_base::secret::Secret;

use crate::link::Bandwidth;

/// The S3 store in front of which the node caches.
#[derive(Clone, Debug, PartialEq)]
pub struct LakeConfig {
    /// `http://` or `https://` URL without a path.
    pub endpoint: String,
    /// Region for signatures.
    pub region: String,
    /// The CA certificates for the store, in PEM; `None` for those that the system trusts. Only tiers have
    /// this setting.
    pub ca_file: Option<PathBuf>,
    /// Access key for identities without an account.
    pub access_key: Option<String>,
    /// Its secret key (`secret_key`, or the content of `secret_key_file`).
    pub secret_key: Option<Secret>,
    /// Time limit to connect: name resolution, TCP and TLS together. Not a setting: a network that needs more
    /// is down.
    pub connect_timeout: Duration,
    /// Time limit until the response to a read begins, and until each next frame of a body.
    pub answer_timeout: Duration,
    /// Time limit until the response to a write begins, after the last byte of its body.
    pub write_timeout: Duration,
    /// The same for requests for which the lake itself moves data: copies, completions of uploads, bulk
    /// deletions. Not a setting: it only has to end one day.
    pub long_write_timeout: Duration,
    /// Time without progress after which a response body counts as stalled; `None` for `answer_timeout`. Not
    /// a setting.
    pub stall_timeout: Option<Duration>,
    /// The bandwidth of the link in each direction; `None` if the link is not metered.
    pub bandwidth: Option<Bandwidth>,
}

impl LakeConfig {
    /// Returns the time without progress after which a body counts as stalled.
    pub fn stall_timeout(&self) -> Duration {
        self.stall_timeout.unwrap_or(self.answer_timeout)
    }
}

impl Default for LakeConfig {
    fn default() -> Self {
        Self {
            endpoint: "http://127.0.0.1:9090".into(),
            region: "us-east-1".into(),
            ca_file: None,
            access_key: None,
            secret_key: None,
            connect_timeout: Duration::from_secs(3),
            answer_timeout: Duration::from_secs(20),
            write_timeout: Duration::from_secs(45),
            long_write_timeout: Duration::from_mins(15),
            stall_timeout: None,
            bandwidth: None,
        }
    }
}
