//! `[lake]`

use std::path::PathBuf;
use std::time::Duration;

use shoal_base::secret::Secret;

use crate::link::{Bandwidth, BandwidthScope};

/// The S3 store that the node extends.
#[derive(Clone, Debug, PartialEq)]
pub struct LakeConfig {
    /// `http://` or `https://` URL without a path.
    pub endpoint: String,
    /// Region that signatures name.
    pub region: String,
    /// The certificates, in PEM, that sign that of the store; `None` for those that the system trusts. Only a
    /// tier has the setting.
    pub ca_file: Option<PathBuf>,
    /// Credentials for identities that have none.
    pub access_key: Option<String>,
    /// The secret half (`secret_key` or the content of `secret_key_file`).
    pub secret_key: Option<Secret>,
    /// A connection (name, TCP, TLS) must be made within this time.
    pub connect_timeout: Duration,
    /// The answer to a read must begin within this time.
    pub answer_timeout: Duration,
    /// The answer to a write must begin within this time after its last byte.
    pub write_timeout: Duration,
    /// The same for writes that make the lake move bytes itself: copies, completed uploads, many deletions.
    pub long_write_timeout: Duration,
    /// A response body that makes no progress for this time has stalled.
    pub stall_timeout: Duration,
    /// The bandwidth of the link in each direction; `None` for a link that is not metered.
    pub bandwidth: Option<Bandwidth>,
    /// Whose bandwidth that is.
    pub bandwidth_scope: BandwidthScope,
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
            stall_timeout: Duration::from_secs(20),
            bandwidth: None,
            bandwidth_scope: BandwidthScope::Node,
        }
    }
}
