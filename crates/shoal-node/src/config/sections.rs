//! The sections that this crate and those above it read.

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use shoal_net::words;

use super::role_pattern::RolePattern;

words! {
    /// How the node treats anonymous requests.
    pub enum Anonymous {
        /// The lake decides, as for any caller.
        Forward = "forward",
        /// The node refuses them at once.
        Refuse = "refuse",
    }
}

words! {
    /// How the node treats requests whose signature it cannot verify, because it does not know the key or the
    /// algorithm.
    pub enum UnknownIdentities {
        /// The node refuses them at once.
        Refuse = "refuse",
        /// The lake gets each as it came, and judges it.
        Lake = "lake",
    }
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
    /// How the node treats requests whose signature it cannot verify.
    pub unknown_identities: UnknownIdentities,
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
            unknown_identities: UnknownIdentities::Refuse,
            tls_cert: None,
            tls_key: None,
        }
    }
}

/// Temporary keys for clients, which the STS of the lake gives by way of the nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct StsConfig {
    /// The roles that clients may ask for; empty if they may ask for none. A star stands for any characters.
    pub roles: Vec<RolePattern>,
    /// Where clients ask.
    pub listen: SocketAddr,
    /// PEM certificate chain; reloaded when the file changes.
    pub tls_cert: Option<PathBuf>,
    /// PEM private key.
    pub tls_key: Option<PathBuf>,
    /// The STS that decides; `None` for the lake itself.
    pub endpoint: Option<String>,
    /// CA certificates for it; `None` for those that the system trusts.
    pub ca_file: Option<PathBuf>,
}

impl StsConfig {
    /// Returns true if clients can get keys.
    pub fn is_on(&self) -> bool {
        !self.roles.is_empty()
    }
}

impl Default for StsConfig {
    fn default() -> Self {
        Self {
            roles: Vec::new(),
            listen: SocketAddr::from(([127, 0, 0, 1], 9443)),
            tls_cert: None,
            tls_key: None,
            endpoint: None,
            ca_file: None,
        }
    }
}

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

/// The name server, which returns the nearest nodes; a node does not read this section.
#[derive(Clone, Debug, PartialEq)]
pub struct Lookup {
    /// Addresses to listen on, each for UDP and TCP.
    pub listen: Vec<SocketAddr>,
    /// Address of the admin pages; `None` disables them.
    pub admin: Option<SocketAddr>,
    /// The name that clients ask for; each node has a name below it.
    pub name: Option<String>,
    /// Admin URLs of nodes that are polled for the living members.
    pub nodes: Vec<String>,
    /// A file with a token that these nodes accept.
    pub nodes_token_file: Option<PathBuf>,
    /// CA certificates for their admin ports.
    pub nodes_ca_file: Option<PathBuf>,
    /// The maximum number of addresses in one answer; all belong to equally near nodes.
    pub answers: usize,
    /// True if other names below `name` also resolve to the nearest nodes: buckets, in virtual-host style.
    pub buckets: bool,
    /// Resolvers whose client-subnet option is trusted.
    pub trusted_resolvers: Vec<IpNet>,
    /// `[[lookup.place]]`
    pub places: Vec<LookupPlace>,
}

/// `[[lookup.place]]`: the topology of the clients of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct LookupPlace {
    /// Their addresses; the longest matching prefix wins.
    pub network: IpNet,
    /// Their topology, outermost first.
    pub topology: String,
}

words! {
    /// The form of the access log.
    pub enum AccessFormat {
        /// Requests are not logged.
        Off = "false",
        /// Each request is an event of the node's own log.
        Events = "true",
        /// Each request is a line as Amazon S3 writes it.
        S3 = "s3",
    }
}

/// The logs of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// `tracing` filter, e.g. `info` or `shoal=debug`.
    pub filter: String,
    /// `text` or `json`.
    pub format: String,
    /// How requests are logged.
    pub access: AccessFormat,
    /// Where lines in the form of Amazon S3 go; `None` for stderr.
    pub access_file: Option<PathBuf>,
}

impl Default for Lookup {
    fn default() -> Self {
        Self {
            listen: vec![SocketAddr::from(([127, 0, 0, 1], 5300))],
            admin: None,
            name: None,
            nodes: Vec::new(),
            nodes_token_file: None,
            nodes_ca_file: None,
            answers: 1,
            buckets: false,
            trusted_resolvers: Vec::new(),
            places: Vec::new(),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            filter: "info".into(),
            format: "text".into(),
            access: AccessFormat::Off,
            access_file: None,
        }
    }
}
