//! A read of a dirty object: every byte from the nodes that hold it, for there is no lake to ask.

use std::sync::Arc;

use super::Manifest;
use crate::blocks::Ways;
use crate::read::{Answer, Ask, ReadError, Reader};

/// Answers a GET by the writer of an object.
pub async fn read(reader: &Reader, ask: &Ask, manifest: &Manifest) -> Result<Answer, ReadError> {
    let placed = Ways::Placed(Arc::clone(&manifest.placement));
    reader
        .open_version(ask, Arc::clone(&manifest.version), placed)
        .await
}
