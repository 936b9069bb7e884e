//! Multipart uploads whose objects may be dirty: uploads, parts, and how they end.

mod id;
mod outcome;
mod part;
mod position;
mod selection;

pub use self::id::UploadId;
pub use self::outcome::{Completed, Incomplete, Open, PartError, Progress, UploadEnd, UploadLost};
pub use self::part::{Part, Upload};
pub(in crate::dirty) use self::position::sort;
pub use self::position::{Inquiry, Place};
pub use self::selection::{ListError, ListedPart, PART_BYTES_MIN, select};
pub(in crate::dirty) use self::selection::{etag, structure};

#[cfg(test)]
pub(in crate::dirty) mod tests {
    pub(in crate::dirty) use super::part::tests::{part, upload};
    pub(in crate::dirty) use super::position::tests::{begun, inquiry};
}
