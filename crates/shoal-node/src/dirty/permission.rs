//! Asks the lake whether an identity may write an object, before a write is acknowledged that the lake has
//! not seen.
//!
//! The node creates a multipart upload in the writer's name and aborts it at once. This needs the same
//! permission as the write, and leaves nothing behind. The flush of a plain write does not reuse the upload,
//! because the object would get the ETag of a multipart upload.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue};

use super::checksums::creation_headers;
use super::lake_upload::LakeUpload;
use crate::endpoint::{Endpoint, LakeAccount};

/// The lake's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    /// The lake would take the object.
    Granted,
    /// The lake would take the object, under an ETag that the node cannot know beforehand.
    OtherEtag,
    /// The lake would not take the object, or does not answer. The write itself will get the reason.
    NotGranted,
}

/// Asks the lake whether it would take an object written with these headers to `target`.
pub(super) async fn ask(
    lake: &Arc<Endpoint>,
    target: &PathAndQuery,
    headers: &HeaderMap,
    account: LakeAccount,
) -> Permission {
    let created = LakeUpload::create(lake, target, creation_headers(headers), account).await;
    let Ok((upload, head)) = created else {
        return Permission::NotGranted;
    };
    // If the abort fails, an empty upload stays behind.
    upload.abort();
    let encryption = head.headers.get("x-amz-server-side-encryption");
    if encryption.is_none_or(|algorithm| algorithm == HeaderValue::from_static("AES256")) {
        Permission::Granted
    } else {
        Permission::OtherEtag
    }
}
