//! `[admin]`

use std::net::SocketAddr;
use std::path::PathBuf;

/// The port for operators: health, metrics, status. Separate from the S3 port.
#[derive(Clone, Debug, PartialEq)]
pub struct AdminConfig {
    /// Address and port.
    pub listen: SocketAddr,
    /// Names under which operators reach it, besides addresses and private names.
    pub hosts: Vec<String>,
    /// File with the tokens that operators send.
    pub token_file: Option<PathBuf>,
    /// Certificate of the port; with it the port uses TLS.
    pub tls_cert: Option<PathBuf>,
    /// The key of that certificate.
    pub tls_key: Option<PathBuf>,
    /// CA certificates for operators' client certificates.
    pub client_ca: Option<PathBuf>,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9100)),
            hosts: Vec::new(),
            token_file: None,
            tls_cert: None,
            tls_key: None,
            client_ca: None,
        }
    }
}
