//! Outcomes of uploads.

use std::sync::Arc;

use http::HeaderMap;
use serde::{Deserialize, Serialize};
use shoal_registry::uploads::FoundUpload;

use super::part::Upload;
use crate::dirty::record::format::headers;

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
