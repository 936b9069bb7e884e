//! Asks the lake if a bucket keeps versions: objects that die young in a tier would never become versions.

use std::sync::Arc;

use http::uri::PathAndQuery;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Collected, Limited};
use shoal_s3::identity::NODE;
use shoal_s3::sigv4::PayloadHash;
use shoal_s3::target;
use shoal_s3::xml::Document;

use crate::endpoint::{Endpoint, EndpointRequest, LakeAccount, RequestBody};

/// Limit on the response about a bucket.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Returns true if a bucket keeps versions or has kept them, `None` if the lake does not answer. Objects in
/// such a bucket may also be locked. If the lake does not let the caller know, the node assumes that there
/// are none.
pub(in crate::dirty) async fn is_versioned(
    lake: &Arc<Endpoint>,
    bucket: &str,
    account: LakeAccount,
) -> Option<bool> {
    let path = format!("{}?versioning", target::path(Some(bucket), None));
    let request = EndpointRequest {
        operation: "other_read",
        method: Method::GET,
        target: PathAndQuery::try_from(path).expect("what is percent-encoded is a path"),
        headers: HeaderMap::new(),
        body: RequestBody::Empty,
        expects_continue: false,
        payload: PayloadHash::empty(),
        account,
        payer: NODE,
    };
    let (head, body) = lake.send(request).await.ok()?.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map(Collected::to_bytes).ok()?;
    let is_answer = !head.status.is_server_error();
    is_answer.then(|| head.status == StatusCode::OK && says_versioned(&body))
}

fn says_versioned(document: &[u8]) -> bool {
    let status = || {
        let document = Document::parse(document).ok()?;
        let (tag, mut reader) = document.answer().ok()?;
        reader.element(&tag).ok()?.text_of("Status")
    };
    status().is_some_and(|status| !status.trim().is_empty())
}

#[cfg(test)]
mod tests {
    use super::says_versioned;

    #[test]
    fn a_bucket_that_keeps_or_kept_versions_says_so() {
        let says = |inside: &str| {
            let document = format!("<VersioningConfiguration xmlns=\"x\">{inside}</VersioningConfiguration>");
            says_versioned(document.as_bytes())
        };
        assert!(says("<Status>Enabled</Status>") && says("<Status>Suspended</Status>"));
        assert!(!says("") && !says("<Status/>") && !says_versioned(b"no document"));
    }
}
