//! *Dirty* objects: acknowledged, but not yet at the lake (dissertation 4.5.1, 4.5.2).
//!
//! [`DirtyObjects`] is the interface for the rest of a node. A write is acknowledged once its bytes are in
//! the store of a *tier* and an entry in the tier's registry names them. The registry (`shoal-registry`)
//! alone orders the changes of a name; nodes keep no order of their own.
//!
//! ```text
//! intake       bytes ─▶ the tier's store
//! objects      a manifest ─▶ the entry of the name                                ─▶ 200
//! copying      the bytes of a dirty object ─▶ new keys, a manifest ─▶ another entry   ─▶ 200
//! cleaner      when it is due: bytes, compared with its digests ─▶ lake ─▶ the entry is empty
//!
//! objects      a removal ─▶ a tombstone in the entry of the name                  ─▶ 204
//! removals     when it is due: its name, with many others ─▶ lake ─▶ the entry is empty
//! ```
//!
//! `docs/explanation/write-back.md` gives the reasons.

mod clearance;
mod copying;
pub(crate) mod errors;
mod flush;
pub(crate) mod lake_writer;
mod objects;
pub(crate) mod packs;
mod permission;
mod record;
pub mod recovery;
mod stock;
mod tiers;
mod uploads;

pub use self::clearance::{Clearance, Clearances, PendingRemoval, Trial};
pub use self::copying::{CopyRequest, NotCopied};
pub use self::lake_writer::Parts;
pub use self::objects::{DirtyObjects, Received};
pub use self::permission::{Action, Permission, PermissionError, beside, of_permission};
pub use self::record::checksums::{Checksum, ChecksumSpec, element_name};
pub(crate) use self::record::format::all_of;
pub use self::record::keys::unversioned;
pub use self::record::manifest::{Manifest, is_writer};
pub use self::record::scope::Scope;
pub(crate) use self::record::scope::{BEHIND_PREFIX, bytes_in};
pub use self::record::tombstone::{Dirty, Tombstone};
pub use self::record::writing::{PendingWrite, WriteError};
pub use self::stock::status::{TierPage, TierStatus};
pub use self::tiers::entries::{DirtyPage, Entries, FlushFailed, Lookup};
pub use self::tiers::{TierError, TierSettings};
pub use self::uploads::{Completed, KeptUpload, ListedPart, Part, Upload, UploadId, UploadPosition, select};

/// Objects and uploads for tests.
#[cfg(test)]
pub(crate) mod testing {
    pub(crate) use super::record::manifest::tests::manifest;
    pub(crate) use super::record::tombstone::tests::tombstone;
    pub(crate) use super::uploads::begun;
}
