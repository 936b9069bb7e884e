//! Multipart uploads whose objects may be dirty: uploads, parts, and how they end.

mod id;
mod outcome;
mod part;
mod position;
mod selection;

pub use self::id::UploadId;
pub use self::outcome::{
    Completed, CompletionError, OpenUpload, PartError, UploadEnd, UploadProgress, UploadUnavailable,
};
pub use self::part::{Part, Upload};
pub(in crate::dirty) use self::position::sort;
pub use self::position::{UploadPosition, UploadQuery};
pub use self::selection::{ListError, ListedPart, PART_BYTES_MIN, select};
pub(in crate::dirty) use self::selection::{etag, part_layout};

#[cfg(test)]
pub(in crate::dirty) mod tests {
    pub(in crate::dirty) use super::part::tests::{part, upload, uploaded};
    pub(in crate::dirty) use super::position::tests::{begun, inquiry};
}
