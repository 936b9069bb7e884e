//! A read of a dirty object. Every byte comes from the nodes that hold it, because the lake does not have it.

use std::sync::Arc;

use super::Manifest;
use crate::blocks::FetchPlan;
use crate::read::{GetAnswer, ObjectReader, ReadError, ReadRequest};

/// Answers a GET by the writer of the object.
///
/// # Errors
///
/// The first bytes cannot be read.
pub async fn read(
    reader: &ObjectReader,
    request: &ReadRequest,
    manifest: &Manifest,
) -> Result<GetAnswer, ReadError> {
    let placed = FetchPlan::Placed(Arc::clone(&manifest.placement));
    reader
        .open_version(request, Arc::clone(&manifest.version), placed)
        .await
}
