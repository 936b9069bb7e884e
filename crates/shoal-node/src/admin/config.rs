//! `[admin]`

use std::net::SocketAddr;

/// The port for operators: health, metrics, status. Never the S3 port.
#[derive(Clone, Debug, PartialEq)]
pub struct AdminConfig {
    /// Address and port.
    pub listen: SocketAddr,
    /// Names under which operators reach it, besides addresses and private names.
    pub hosts: Vec<String>,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 9100)),
            hosts: Vec::new(),
        }
    }
}
