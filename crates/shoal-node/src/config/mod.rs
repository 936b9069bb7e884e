//! Configuration: the table of settings, the loader and the validation.
//!
//! The struct of a section lives in the module that reads it, and [`Config`] collects these structs. Those
//! whose readers are in a higher layer live in `sections`.

mod check;
mod load;
mod problem;
mod render;
mod role;
mod role_pattern;
mod sections;
mod settings;
mod shared;
#[cfg(test)]
mod tests;
mod value;

pub use load::{FILE_VARIABLE, Loaded, Sources};
pub use problem::{ConfigError, Problem, Provenance};
pub(crate) use render::differences;
pub use role::Role;
pub use role_pattern::RolePattern;
pub use sections::{
    AccessFormat, AdminConfig, Anonymous, Log, Lookup, LookupPlace, S3Config, StsConfig, UnknownIdentities,
};
pub use settings::{SETTINGS, Setting};
pub use value::units::{parse_size, parse_time};

use shoal_store::StoreConfig;

pub use shoal_net::key_source::{KeySourceConfig, KeySourceKind};
pub use shoal_registry::Lifetime;
pub use shoal_s3::identity::Identity;

pub use shoal_cache::cooperation::{CooperationConfig, CooperationMode};
pub use shoal_cache::directory::DirectoryConfig;
pub use shoal_cache::freshness::{FreshnessConfig, FreshnessMode, FreshnessRule};
pub use shoal_cache::quotas::{QuotaConfig, QuotaScope, QuotaSize};
pub use shoal_cache::split::SplitRule;
pub use shoal_cache::write::{Fallback, PackConfig, WriteConfig, WriteMode, WriteRule};
pub use shoal_hints::Table;
pub use shoal_net::endpoint::LakeConfig;
pub use shoal_net::limits::Limits;
pub use shoal_net::link::{Bandwidth, BandwidthScope};
pub use shoal_net::membership::NodeConfig;
pub use shoal_net::trace::{Share, TraceConfig};
pub use shoal_orders::hints::{HintConfig, HintRule};
pub use shoal_orders::tasks::PlanConfig;
pub use shoal_writeback::tier::{
    EtcdConfig, EtcdUser, RegistryConfig, S3StoreConfig, TierConfig, TierStoreConfig,
};

/// All settings of a node, and of the name server that directs clients to nodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// `[node]`
    pub node: NodeConfig,
    /// `[s3]`
    pub s3: S3Config,
    /// `[sts]`
    pub sts: StsConfig,
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
    /// `[hints]`
    pub hints: HintConfig,
    /// `[limits]`
    pub limits: Limits,
    /// `[lookup]`
    pub lookup: Lookup,
    /// `[log]`
    pub log: Log,
    /// `[trace]`
    pub trace: TraceConfig,
    /// `[[identity]]`: the clients that may sign requests to this node.
    pub identities: Vec<Identity>,
    /// Services that know the secrets of further clients.
    pub key_sources: Vec<KeySourceConfig>,
    /// `[[quota]]`: what identities and the objects below prefixes may use.
    pub quotas: Vec<QuotaConfig>,
}
