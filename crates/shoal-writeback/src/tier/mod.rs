//! Durable tiers: the storage of written-back objects until they are at the lake.
//!
//! A [`ByteStore`] holds immutable pieces. The registry of dirty names (`shoal-registry`) records which
//! pieces an object consists of; a store does not know names.

mod bytes;
mod config;
mod damage;
mod digests;
mod exact_body;
mod folder;
pub mod probe;
mod s3;
mod store;
#[cfg(test)]
pub(crate) mod tests;
mod unavailable;

pub use self::bytes::{Piece, Place, TierBytes};
pub use self::config::{EtcdConfig, EtcdUser, RegistryConfig, S3StoreConfig, TierConfig, TierStoreConfig};
pub use self::damage::{Damage, Damages, MEND_TIER};
pub use self::digests::{ChunkDigester, ChunkDigests, ChunkProof, WrongBytes, chunk_bytes_for, count};
pub use self::folder::{FolderStore, is_in_memory};
pub(crate) use self::s3::is_versioned;
pub use self::s3::{S3Store, StorageClasses};
pub use self::store::{
    ByteStore, ByteStream, KeyPage, ListedPiece, PIECE_BYTES_MAX, PieceMd5, ProbeError, PutError, StoreError,
};
pub use self::unavailable::TierUnavailable;
