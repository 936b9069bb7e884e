//! Multipart uploads whose objects may be dirty: uploads, their parts, and their outcomes.

mod id;
mod outcome;
mod part;
mod position;
mod selection;

pub use self::id::UploadId;
pub use self::outcome::{Completed, CompletionError, PartError, UploadEnd, UploadUnavailable};
pub use self::part::{KeptUpload, Part, Upload};
pub(in crate::dirty) use self::position::sort;
pub use self::position::{UploadPosition, UploadQuery};
pub use self::selection::{ListError, ListedPart, select};
pub(in crate::dirty) use self::selection::{acknowledged, etag, part_layout};

#[cfg(test)]
pub(in crate::dirty) mod tests {
    pub(in crate::dirty) use super::part::tests::{part, upload};
    pub(in crate::dirty) use super::position::tests::begun;
}
