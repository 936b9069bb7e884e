//! Objects that were acknowledged before the lake has them: *dirty* objects (dissertation 4.5.1, 4.5.2).
//!
//! [`DirtyObjects`] is the interface that the rest of a node speaks to. A write is acknowledged when its
//! bytes are in the store of a *tier* and an entry in the tier's registry names them. The registry orders all
//! changes of a name (`shoal-registry`); no node has an order of its own.
//!
//! ```text
//! intake       bytes ─▶ the tier's store
//! objects      a manifest ─▶ the entry of the name                                ─▶ 200
//! copying      the bytes of a dirty object ─▶ new keys, a manifest ─▶ another entry   ─▶ 200
//! cleaner      when it is due: bytes, compared with its digests ─▶ lake ─▶ the entry is empty
//! ```
//!
//! `docs/explanation/write-back.md` holds the reasons.

mod acknowledged;
mod checksums;
mod cleaner;
mod clearance;
mod copying;
mod flush_orders;
mod flush_transfers;
mod intake;
mod inventory;
mod lake_upload;
mod lake_writer;
mod listing;
mod manifest;
mod multipart;
mod objects;
mod outcomes;
mod pacing;
mod part_layout;
mod permission;
mod reading;
mod registry_room;
mod status;
mod survey;
mod sweep;
mod tier_store;
mod tiers;
mod uploads;
mod writing;

pub use self::checksums::{Checksum, ChecksumSpec, ChecksumType, element_name};
pub use self::clearance::Clearance;
pub use self::copying::{CopyRequest, NotCopied};
pub use self::flush_orders::{FlushOrders, FlushProgress};
pub use self::listing::{Listing, UploadListing, described, in_order};
pub use self::manifest::Manifest;
pub use self::multipart::{
    Completed, CompletionError, KeptUpload, ListError, ListedPart, Part, PartError, Upload, UploadEnd,
    UploadId, UploadPosition, UploadQuery, UploadUnavailable, select,
};
pub use self::objects::{DirtyObjects, FlushFailed, Lookup, NotBegun, Parts, Received};
pub use self::part_layout::{PartLayout, PlacedPart};
pub use self::permission::{Action, Permission, PermissionError, beside, of_permission};
pub use self::reading::read;
pub use self::status::{Figures, TierStatus, WriteBackOutcome};
pub use self::sweep::Swept;
pub use self::tiers::{TierError, TierSettings};
pub use self::writing::{PendingWrite, ReceiveError, WriteError};
