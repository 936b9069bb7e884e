//! May this identity write this object? Asked of the lake before a write is acknowledged that the lake has not seen.
//!
//! A multipart upload is created in the writer's name and aborted at once: it needs the permission that the write needs, and leaves nothing
//! behind. A plain write is not flushed by it: the object would get the ETag of an upload in parts.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue};

use super::checksums::creation_headers;
use super::lake_upload::LakeUpload;
use crate::endpoint::{Endpoint, LakeAccount};

/// What the lake says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    /// It would take the object.
    Granted,
    /// It would, and give it an ETag that cannot be told beforehand.
    OtherEtag,
    /// It would not, or cannot be asked: the write itself will hear why.
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
    // An upload that stays behind is empty.
    upload.abort();
    let encryption = head.headers.get("x-amz-server-side-encryption");
    if encryption.is_none_or(|algorithm| algorithm == HeaderValue::from_static("AES256")) {
        Permission::Granted
    } else {
        Permission::OtherEtag
    }
}
