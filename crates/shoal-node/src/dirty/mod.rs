//! Objects that were acknowledged before the lake has them (D3N, IV; dissertation 4.4): *dirty* objects, for
//! data that can be made again.
//!
//! [`DirtyObjects`] is the interface that the rest of a node speaks to. A [`Manifest`] makes an object exist:
//! it says what the lake will know of the object, and where its bytes are until then.
//!
//! The files of this folder describe, list, accept and flush dirty objects. `homes` keeps them and orders the
//! writes of each name. Only `objects` imports from `homes`.
//!
//! `docs/explanation/write-back.md` holds the reasons.

mod checksums;
mod flush_orders;
mod flush_schedule;
pub mod homes;
mod lake_upload;
mod lake_writer;
mod listing;
mod manifest;
mod multipart;
mod objects;
mod part_layout;
mod permission;
mod reading;
mod status;
mod writing;

pub use self::checksums::{Checksum, ChecksumSpec, ChecksumType, element_name};
pub use self::flush_orders::{FlushOrders, FlushProgress};
pub use self::flush_schedule::FlushStatus;
pub use self::lake_writer::LakeWriteError;
pub use self::listing::{Listing, UploadListing, described};
pub use self::manifest::Manifest;
pub use self::multipart::{
    Completed, CompletionError, ListError, ListedPart, OpenUpload, PART_BYTES_MIN, Part, PartError, Upload,
    UploadEnd, UploadId, UploadPosition, UploadProgress, UploadQuery, UploadUnavailable, select,
};
pub use self::objects::{AuthorityUnreachable, DirtyObjects, FlushFailed, Found, Held, Parts};
pub use self::part_layout::{PartLayout, PlacedPart};
pub use self::reading::read;
pub use self::status::{Figures, WriteBackOutcome};
pub use self::writing::{PendingWrite, ReceiveError, WriteError, Written};
