//! Objects that were acknowledged before the lake has them (D3N, IV; dissertation 4.4): *dirty* ones, for data that can be made again.
//!
//! ```text
//! PUT ─▶ writing      may the writer? ─▶ blocks on disk, and ahead of the rest at their homes in the last layer
//!          ▼
//!        home         of the name: a manifest at both homes and at every holder ─▶ 200
//!          │ when it is due, on order, when room is short
//!          ▼
//!        flushing     blocks ─▶ lake, ETag compared ─▶ manifest forgotten ─▶ blocks are like all others
//! ```
//!
//! What comes in parts is kept by `uploads` until it is complete, and is an object like others then.
//!
//! A [`Manifest`] makes an object exist. One node, the home of its name, orders what happens to it ([`Home`]); others ask that
//! node ([`Directory`]). `docs/design/write-back.md` holds the reasons.

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
