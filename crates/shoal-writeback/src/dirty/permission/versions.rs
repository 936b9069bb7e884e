//! Asks the lake if a bucket keeps versions: objects that die young in a tier would never become versions.

use std::sync::Arc;

use http::StatusCode;
use shoal_net::endpoint::s3::{S3Client, SendOptions};
use shoal_net::endpoint::{Endpoint, LakeAccount};
use shoal_s3::identity::NODE;
use shoal_s3::xml::Element;

/// Returns true if a bucket keeps versions or has kept them, `None` if the lake does not answer. Objects in
/// such a bucket may also be locked. If the lake does not let the caller know, the node assumes that there
/// are none.
pub(in crate::dirty) async fn is_versioned(
    lake: &Arc<Endpoint>,
    bucket: &str,
    account: LakeAccount,
) -> Option<bool> {
    let client = S3Client {
        endpoint: Arc::clone(lake),
        account,
        payer: NODE,
    };
    let question = client.setting(bucket, "versioning");
    let answer = client.send(question, SendOptions::default()).await.ok()?;
    let (head, body) = (answer.head, answer.body.ok()?);
    let is_answer = !head.status.is_server_error();
    is_answer.then(|| head.status == StatusCode::OK && says_versioned(&body))
}

fn says_versioned(document: &[u8]) -> bool {
    let status = || Element::from_answer(document).ok()?.text_of("Status");
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
