//! Copies a dirty object to another name in the same tier. The store copies the bytes itself, and the lake is
//! only asked for permission. Tools that write under temporary names use such a copy to rename on commit.

use http::{HeaderMap, HeaderName, Response, header};
use http_body::Body as _;
use shoal_cache::exchange::{Admitted, ResponseBody};
use shoal_cache::lake::Write;
use shoal_cache::lake::errors::precondition_failed;
use shoal_net::clock;
use shoal_s3::conditions::{Conditions, Evaluation};
use shoal_s3::error::S3Error;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::operation::{CopySource, Operation};
use shoal_s3::time::rfc3339;
use shoal_s3::xml::Element;

use crate::dirty::{CopyRequest, Dirty, NotCopied};
use crate::tiered::TieredLakeParts;
use crate::tiered::upload_requests::{answered, checksum_elements};

/// Number of attempts if the source changes while it is copied.
const ATTEMPTS: usize = 4;

/// The conditions of a read. Those on the source of a copy have a prefix.
const CONDITIONS: [HeaderName; 4] = [
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
];

impl TieredLakeParts {
    /// Copies an object if the request is a copy of a dirty object. Returns `None` if the request must be
    /// sent to the lake.
    pub(super) async fn copy(
        &self,
        admitted: &Admitted,
        write: Write<'_>,
    ) -> Result<Option<Response<ResponseBody>>, S3Error> {
        let dirty = &self.dirty;
        let order = order_of(admitted, write.name);
        let order = order.filter(|(source, ..)| dirty.entries.may_be_dirty(source));
        let Some((source_name, request, conditions)) = order else {
            return Ok(None);
        };
        let caller = &admitted.verified.caller;
        for _ in 0..ATTEMPTS {
            let source = dirty.entries.find(source_name).await?;
            // For all other callers the lake decides who may read the source.
            let readable = dirty.entries.readable_by(&source, caller);
            let Some(manifest) = readable.and_then(Dirty::object) else {
                return Ok(None);
            };
            check_body(admitted).await?;
            let version = &manifest.version;
            if conditions.evaluate(&version.etag, version.last_modified) != Evaluation::Proceed {
                return Err(precondition_failed());
            }
            match dirty.copy(&source, &request, write, caller).await {
                Ok(version) => return Ok(Some(answered(&described(&version)))),
                Err(why @ NotCopied::AtLake(_)) => {
                    tracing::debug!(%why, name = ?write.name, "a dirty object is flushed, so that the lake can copy it");
                    return Ok(None);
                }
                Err(NotCopied::SourceGone) => {}
                Err(NotCopied::Write(error)) => return Err(error.into()),
            }
        }
        Ok(None)
    }
}

/// Parses a copy that the node can make itself if its source is dirty: the source, the request, and the
/// conditions on the source. Returns `None` if only the lake can carry the request out.
fn order_of<'a>(
    admitted: &'a Admitted,
    name: &ObjectName,
) -> Option<(&'a ObjectName, CopyRequest, Conditions)> {
    let Admitted {
        parts, classified, ..
    } = admitted;
    let Some(CopySource::Object(source)) = &classified.copy_source else {
        return None;
    };
    let is_plain = classified.operation == Operation::PutObject
        && source.version.is_none()
        && name.version.is_none()
        && admitted.body.size_hint().exact() == Some(0);
    if !is_plain {
        return None;
    }
    let request = CopyRequest::parse(&parts.headers).ok()?;
    // S3 refuses a copy onto itself that changes nothing; the lake words that refusal.
    if source == name && !request.replaces_metadata {
        return None;
    }
    let conditions = Conditions::parse(&conditions_of_source(&parts.headers));
    (!conditions.is_dialect(clock::utc_now())).then_some((source, request, conditions))
}

/// Verifies that the body is empty and matches the request's headers.
async fn check_body(admitted: &Admitted) -> Result<(), S3Error> {
    let (_, body) = admitted.without_body().open()?;
    body.collect_at_most(0, "A copy has no body.").await.map(drop)
}

/// Returns the conditions on the source as the headers of a read.
pub(in crate::tiered) fn conditions_of_source(sent: &HeaderMap) -> HeaderMap {
    let mut conditions = HeaderMap::new();
    for of_read in CONDITIONS {
        for value in sent.get_all(format!("x-amz-copy-source-{of_read}")) {
            conditions.append(of_read.clone(), value.clone());
        }
    }
    conditions
}

fn described(copy: &Version) -> Element {
    let modified = copy.last_modified.unwrap_or_else(clock::utc_now);
    Element::root("CopyObjectResult")
        .with_leaf("LastModified", rfc3339(modified))
        .with_leaf("ETag", &*copy.etag)
        .with_all(checksum_elements(&copy.headers))
}
