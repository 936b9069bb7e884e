//! `[[tier]]`

use std::path::{Path, PathBuf};

pub use shoal_registry::engine::etcd::{Settings as EtcdConfig, User as EtcdUser};
use shoal_s3::identity::Account;

/// A tier: a registry that orders dirty names, and a store of the bytes of dirty objects.
#[derive(Clone, Debug, PartialEq)]
pub struct TierConfig {
    /// The unique name by which rules refer to the tier.
    pub name: String,
    /// The store of the bytes.
    pub store: TierStoreConfig,
    /// Limit on the bytes of dirty objects, in the store and in the registry.
    pub capacity_bytes: u64,
    /// The engine that orders the names.
    pub registry: RegistryConfig,
    /// The size up to which the registry keeps the bytes of objects itself.
    pub inline_bytes: u64,
    /// True if the store keeps receipts, from which a lost registry is recovered.
    pub receipts: bool,
}

impl TierConfig {
    /// The default of `inline`: a page of the registry's file, and of most disks.
    pub const INLINE_BYTES: u64 = 4 << 10;
    /// The most that `inline` may be. Both engines take transactions of 1.5 MiB, but a registry keeps all of
    /// them in one file of a few GiB, and its readers get the bytes with each entry.
    pub const INLINE_BYTES_MAX: u64 = 64 << 10;
}

/// The store of a tier's bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum TierStoreConfig {
    /// A folder on this machine, for the nodes of one process.
    Folder(PathBuf),
    /// A bucket of an S3 store.
    S3(S3StoreConfig),
}

/// A bucket for the bytes of a tier.
#[derive(Clone, Debug, PartialEq)]
pub struct S3StoreConfig {
    /// `http://` or `https://` URL of the store, without a path.
    pub endpoint: String,
    /// Region for signatures.
    pub region: String,
    /// The CA certificates for the store, in PEM; `None` for those that the system trusts.
    pub ca_file: Option<PathBuf>,
    /// The account at the store; `None` for the AWS credential chain.
    pub keys: Option<Account>,
    /// The bucket. Clients must not write to it.
    pub bucket: String,
    /// The storage class of objects of at least [`S3StoreConfig::LARGE_BYTES`]; `None` for the store's
    /// default, which smaller objects always have.
    pub class_large: Option<String>,
}

impl S3StoreConfig {
    /// The default of `region`.
    pub const REGION: &str = "us-east-1";
    /// The size at which an object counts as large: one block by default. Erasure coding, the usual class of
    /// large objects, costs more operations than it saves bytes below it.
    pub const LARGE_BYTES: u64 = 4 << 20;
}

/// The engine that orders the names of a tier.
#[derive(Clone, Debug, PartialEq)]
pub enum RegistryConfig {
    /// A database in a folder of this machine, for the nodes of one process.
    Embedded(PathBuf),
    /// A cluster of etcd.
    Etcd(EtcdConfig),
}

impl RegistryConfig {
    /// Returns the default registry of a tier in `folder`.
    pub fn within(folder: &Path) -> Self {
        Self::Embedded(folder.join("registry"))
    }
}
