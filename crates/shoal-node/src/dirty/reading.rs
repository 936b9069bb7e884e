//! Reads of dirty objects. All bytes come from this node's disk or from the tier, because the lake does not
//! have them.

use std::sync::Arc;

use super::Manifest;
use crate::obtain::Obtain;
use crate::read::{GetAnswer, ObjectReader, ReadError, ReadRequest};
use crate::tier::TierBytes;

/// Answers a GET from the object's writer.
///
/// # Errors
///
/// The first bytes cannot be read.
pub async fn read(
    reader: &ObjectReader,
    request: &ReadRequest,
    manifest: &Manifest,
    bytes: TierBytes,
) -> Result<GetAnswer, ReadError> {
    let obtain = Obtain::Kept(Arc::new(bytes));
    reader
        .open_version(request, Arc::clone(&manifest.version), obtain)
        .await
}
