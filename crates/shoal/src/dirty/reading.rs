//! A read of a dirty object. Every byte comes from the nodes that hold it, because the lake does not have it.

use std::sync::Arc;

use super::Manifest;
use crate::blocks::Ways;
use crate::read::{Answer, Ask, ReadError, Reader};

/// Answers a GET by the writer of the object.
///
/// # Errors
///
/// The first bytes cannot be read.
pub async fn read(reader: &Reader, ask: &Ask, manifest: &Manifest) -> Result<Answer, ReadError> {
    let placed = Ways::Placed(Arc::clone(&manifest.placement));
    reader
        .open_version(ask, Arc::clone(&manifest.version), placed)
        .await
}
