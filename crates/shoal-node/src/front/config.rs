//! `[s3]`

use std::net::SocketAddr;
use std::path::PathBuf;

/// How the node treats requests without credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anonymous {
    /// The lake decides, as it does for any caller.
    Forward,
    /// The node refuses them before it does anything else.
    Refuse,
}

/// The port on which clients speak S3 to the node.
#[derive(Clone, Debug, PartialEq)]
pub struct S3Config {
    /// Address and port.
    pub listen: SocketAddr,
    /// Domain for virtual-host style (`bucket.domain`); path style always works.
    pub domain: Option<String>,
    /// How the node treats requests without credentials.
    pub anonymous: Anonymous,
    /// Whether clients may sign with version 2, too.
    pub signature_v2: bool,
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
            signature_v2: false,
            tls_cert: None,
            tls_key: None,
        }
    }
}
