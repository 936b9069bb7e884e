//! Configuration: the table of settings, the loader and the validation.
//!
//! The struct of a section lives in the module that reads it, and [`Config`] collects these structs. Three
//! live here, because their readers are in a higher layer: [`Lookup`] (the crate of the name server), [`Log`]
//! (the binary) and [`IdentityConfig`] (the reload).

mod check;
mod file;
mod load;
mod problem;
mod render;
mod role;
mod settings;
mod shared;
#[cfg(test)]
mod tests;
mod units;
mod value;

pub use load::{FILE_VARIABLE, Loaded, Sources};
pub use problem::{ConfigError, Problem, Provenance};
pub(crate) use render::differences;
pub use role::Role;
pub use settings::{SETTINGS, Setting};
pub use units::{parse_size, parse_time};

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use shoal_base::secret::Secret;
use shoal_store::StoreConfig;

pub use shoal_registry::Lifetime;

pub use crate::admin::AdminConfig;
pub use crate::front::{Anonymous, S3Config};
pub use shoal_cache::cooperation::{CooperationConfig, CooperationMode};
pub use shoal_cache::directory::DirectoryConfig;
pub use shoal_cache::freshness::{FreshnessConfig, FreshnessMode, FreshnessRule};
pub use shoal_cache::split::SplitRule;
pub use shoal_cache::write::{Fallback, WriteConfig, WriteMode, WriteRule};
pub use shoal_net::endpoint::LakeConfig;
pub use shoal_net::limits::Limits;
pub use shoal_net::link::{Bandwidth, BandwidthScope};
pub use shoal_net::membership::NodeConfig;
pub use shoal_orders::tasks::PlanConfig;
pub use shoal_writeback::tier::{
    EtcdConfig, EtcdUser, PasswordError, RegistryConfig, S3StoreConfig, TierConfig, TierStoreConfig,
};

/// All settings of a node, and of the name server that directs clients to nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// `[node]`
    pub node: NodeConfig,
    /// `[s3]`
    pub s3: S3Config,
    /// `[admin]`
    pub admin: AdminConfig,
    /// `[lake]`
    pub lake: LakeConfig,
    /// `[store]`
    pub store: StoreConfig,
    /// `[freshness]`
    pub freshness: FreshnessConfig,
    /// `[write]`
    pub write: WriteConfig,
    /// `[cooperation]`
    pub cooperation: CooperationConfig,
    /// `[directory]`
    pub directory: DirectoryConfig,
    /// `[[tier]]`
    pub tiers: Vec<TierConfig>,
    /// `[plan]`
    pub plan: PlanConfig,
    /// `[limits]`
    pub limits: Limits,
    /// `[lookup]`
    pub lookup: Lookup,
    /// `[log]`
    pub log: Log,
    /// `[[identity]]`
    pub identities: Vec<IdentityConfig>,
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

/// Log lines on stderr.
#[derive(Clone, Debug, PartialEq)]
pub struct Log {
    /// `tracing` filter, e.g. `info` or `shoal=debug`.
    pub filter: String,
    /// `text` or `json`.
    pub format: String,
    /// True if every request is logged.
    pub access: bool,
}

/// `[[identity]]`: a client that may sign requests to this node.
#[derive(Clone, Debug, PartialEq)]
pub struct IdentityConfig {
    /// The key that the client signs with.
    pub access_key: String,
    /// `secret_key` or the content of `secret_key_file`.
    pub secret_key: Secret,
    /// The weight of the identity when clients compete for scarce resources.
    pub share: u32,
    /// Its own account at the lake, if any.
    pub lake_access_key: Option<String>,
    /// Secret key of that account.
    pub lake_secret_key: Option<Secret>,
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
            access: false,
        }
    }
}
