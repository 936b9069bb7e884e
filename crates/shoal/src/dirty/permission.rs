//! May this identity write this object? Asked of the lake before a write is acknowledged that the lake has not seen.
//!
//! A multipart upload is created in the writer's name and aborted at once: it needs the permission that the write needs, and leaves nothing
//! behind. A plain write is not flushed by it: the object would get the ETag of an upload in parts.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Collected, Limited};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::endpoint::{Endpoint, EndpointRequest, LakeAccount, RequestBody};
use crate::sigv4::PayloadHash;

/// The answer names an upload and no more.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// What the lake says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permission {
    /// It would take the object.
    Granted,
    /// It would, and give it an ETag that cannot be told beforehand.
    OtherEtag,
    /// It would not, or cannot be asked: the write itself will hear why.
    Unknown,
}

/// Asks the lake whether it would take an object written with these headers to `target`.
pub(super) async fn ask(
    lake: &Arc<Endpoint>,
    target: &PathAndQuery,
    headers: &HeaderMap,
    account: LakeAccount,
) -> Permission {
    let create = request(
        Method::POST,
        target,
        "uploads",
        of_upload(headers),
        account.clone(),
    );
    let Ok(answer) = lake.send(create).await else {
        return Permission::Unknown;
    };
    let (head, body) = answer.into_parts();
    if head.status != StatusCode::OK {
        return Permission::Unknown;
    }
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map(Collected::to_bytes).unwrap_or_default();
    let Some(upload) = upload_id(&body) else {
        return Permission::Unknown;
    };
    abort(Arc::clone(lake), target, &upload, account);
    let encryption = head.headers.get("x-amz-server-side-encryption");
    if encryption.is_none_or(|algorithm| algorithm == HeaderValue::from_static("AES256")) {
        Permission::Granted
    } else {
        Permission::OtherEtag
    }
}

/// Nobody waits for it; an upload that stays behind is empty.
fn abort(lake: Arc<Endpoint>, target: &PathAndQuery, upload: &str, account: LakeAccount) {
    let upload = utf8_percent_encode(upload, NON_ALPHANUMERIC);
    let query = format!("uploadId={upload}");
    let abort = request(Method::DELETE, target, &query, HeaderMap::new(), account);
    tokio::spawn(async move {
        match lake.send(abort).await {
            Ok(answer) => drop(answer.into_body().collect().await),
            Err(error) => tracing::debug!(%error, "an upload that asked for permission was not aborted"),
        }
    });
}

fn request(
    method: Method,
    target: &PathAndQuery,
    query: &str,
    headers: HeaderMap,
    account: LakeAccount,
) -> EndpointRequest {
    let target = PathAndQuery::try_from(format!("{}?{query}", target.path()));
    EndpointRequest {
        operation: if method == Method::POST {
            "create_multipart_upload"
        } else {
            "abort_multipart_upload"
        },
        method,
        target: target.expect("a path with a query is a target"),
        headers,
        body: RequestBody::Empty,
        expects_continue: false,
        payload: PayloadHash::empty(),
        account,
    }
}

/// The headers of the write without those of its bytes.
fn of_upload(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    let of_bytes: Vec<_> = headers
        .keys()
        .filter(|name| *name == "content-md5" || name.as_str().starts_with("x-amz-checksum-"))
        .cloned()
        .collect();
    for name in of_bytes {
        headers.remove(name);
    }
    headers
}

fn upload_id(body: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(body).ok()?;
    let (_, rest) = text.split_once("<UploadId>")?;
    let (id, _) = rest.split_once("</UploadId>")?;
    // An id is the lake's own; these are all that XML would have escaped in one.
    Some(id.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
}

#[cfg(test)]
mod tests {
    use super::upload_id;

    #[test]
    fn the_id_of_an_upload_is_found_in_the_answer_that_created_it() {
        let xml = b"<?xml version=\"1.0\"?><R><Key>k</Key><UploadId>a&amp;b</UploadId></R>";
        assert_eq!(upload_id(xml).as_deref(), Some("a&b"));
        assert_eq!(upload_id(b"<R></R>"), None);
    }
}
