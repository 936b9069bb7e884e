//! The durable tier: bytes of dirty objects, kept outside the nodes that took them.
//!
//! A [`ByteStore`](store::ByteStore) keeps immutable pieces. The registry of dirty names says which pieces
//! make an object; a store knows nothing of names.

mod config;
mod exact_body;
pub mod folder;
mod probe;
pub mod s3;
pub mod store;
#[cfg(test)]
mod tests;

pub use self::config::{
    EtcdConfig, EtcdUser, PasswordError, RegistryConfig, S3StoreConfig, TierConfig, TierStoreConfig,
};
