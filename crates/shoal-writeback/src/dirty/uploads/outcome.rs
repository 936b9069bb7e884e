//! Outcomes of uploads, and the errors of their requests.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use serde::{Deserialize, Serialize};
use shoal_registry::uploads::FoundUpload;

use super::part::Upload;
use crate::dirty::record::format::headers;
use crate::dirty::record::writing::WriteError;
use crate::tier::TierUnavailable;

/// An object that was assembled from parts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Completed {
    /// The ETag of the object, in quotes.
    pub etag: Arc<str>,
    /// The checksum headers of the object.
    #[serde(with = "headers")]
    pub checksums: HeaderMap,
    /// The reason why the object is already at the lake; empty if it is dirty.
    pub through: Arc<str>,
}

/// An upload and its state in the registry.
#[derive(Clone, Debug)]
pub struct KeptUpload {
    /// The upload.
    pub upload: Upload,
    /// The response to its completion, if it is complete.
    pub completed: Option<Arc<Completed>>,
    pub(in crate::dirty) found: FoundUpload,
}

/// The reason why a request about an upload failed. The upload stays as it was. Clients get most of the
/// messages.
#[derive(Debug, thiserror::Error)]
pub enum UploadFailed {
    /// No such upload: it was completed or aborted, or has expired.
    #[error(
        "The specified upload does not exist. The upload ID may be invalid, or the upload may have been aborted or completed."
    )]
    NotFound,
    /// A part was uploaded again concurrently.
    #[error("The parts of the upload have changed while it was to be completed.")]
    PartsChanged,
    /// The state of the upload is unknown at present.
    #[error(transparent)]
    Unavailable(#[from] TierUnavailable),
    /// The bytes of a part were not received.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The part exceeds the size limit.
    #[error(
        "The part is larger than one that is written back may be; begin the upload with x-shoal-write: around."
    )]
    TooLarge,
    /// The checksum in a completion is not the object's.
    #[error("The checksum of the object is not the one that the request names.")]
    Checksum,
    /// The lake refused the object with this status.
    #[error("the lake answered {0}")]
    Refused(StatusCode),
    /// Any other reason; the client may retry.
    #[error("the object could not be put together")]
    Later,
}
