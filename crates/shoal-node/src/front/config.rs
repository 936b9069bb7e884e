//! `[s3]`

use std::net::SocketAddr;
use std::path::PathBuf;

/// How the node treats anonymous requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anonymous {
    /// The lake decides, as for any caller.
    Forward,
    /// The node refuses them at once.
    Refuse,
}

/// The port where the node serves S3 to clients.
#[derive(Clone, Debug, PartialEq)]
pub struct S3Config {
    /// Address and port.
    pub listen: SocketAddr,
    /// Domain of virtual-host style (`bucket.domain`). Path style always works.
    pub domain: Option<String>,
    /// How the node treats anonymous requests.
    pub anonymous: Anonymous,
    /// PEM certificate chain; reloaded when the file changes.
    pub tls_cert: Option<PathBuf>,
    /// PEM private key.
    pub tls_key: Option<PathBuf>,
}

impl Default for S3Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9000)),
            domain: None,
            anonymous: Anonymous::Forward,
            tls_cert: None,
            tls_key: None,
        }
    }
}
