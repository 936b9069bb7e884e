//! Requests about uploads that a tier keeps. Their objects reach the lake when they are flushed.

mod copy;
mod xml;

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use shoal_cache::exchange::respond::{self, X_CACHE_REASON};
use shoal_cache::exchange::{Admitted, ResponseBody, ResponseResult};
use shoal_cache::lake::Write;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::hop_by_hop::MODE_HEADER;
use shoal_s3::object::ObjectName;
use shoal_s3::operation::{Classified, Operation};
use shoal_s3::payload::Algorithm;
use shoal_s3::target;
use shoal_s3::xml::Element;

pub(super) use self::xml::checksum_elements;
use super::TieredLakeParts;
use crate::dirty::errors::{access_denied, invalid, malformed, no_such_upload, parts_changed};
use crate::dirty::{Action, Checksum, Completed, KeptUpload, UploadId, is_writer, select, unversioned};
use crate::headers::those;

/// Limit on the list of parts in a completion: ten thousand parts with their checksums.
const LIST_BYTES_MAX: usize = 4 << 20;

/// Number of times that a completion restarts because a part was uploaded again.
const COMPLETIONS: usize = 3;

/// The part numbers that S3 allows.
const NUMBERS: std::ops::RangeInclusive<u16> = 1..=10_000;

const OBJECT_SIZE: HeaderName = HeaderName::from_static("x-amz-mp-object-size");

/// Returns the id of the upload that a request names, if a node of this cluster created it. The ids of lakes
/// have another form.
pub(super) fn upload_named(classified: &Classified) -> Option<UploadId> {
    classified.query.get("uploadId")?.parse().ok()
}

/// Answers requests about uploads whose objects may be dirty.
pub(super) struct UploadRequests(pub(super) Arc<TieredLakeParts>);

impl UploadRequests {
    /// Begins an upload in the tier, or at the lake, and then reports why.
    pub(super) async fn begin(&self, admitted: Box<Admitted>, write: Write<'_>) -> ResponseResult {
        match self.0.dirty.begin_upload(&admitted, write).await {
            Ok(id) => Ok(answered(&xml::begun(write.name, id))),
            Err(why) => self.0.write_through(admitted, write.name, why, None).await,
        }
    }

    /// Answers a request about an upload that a tier keeps.
    pub(super) async fn answer(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
        id: UploadId,
    ) -> ResponseResult {
        let kept = self.0.dirty.find_upload(&unversioned(name), id).await?;
        if !is_writer(&admitted.verified.caller, &kept.upload.writer) {
            return Err(access_denied());
        }
        let operation = admitted.classified.operation;
        if kept.completed.is_some() && operation != Operation::CompleteMultipartUpload {
            return Err(no_such_upload());
        }
        match operation {
            Operation::UploadPart if admitted.classified.copy_source.is_some() => {
                self.copy_part(&admitted, &kept).await
            }
            Operation::UploadPart => self.take_part(admitted, &kept).await,
            Operation::CompleteMultipartUpload => Box::pin(self.complete_upload(admitted, kept)).await,
            Operation::AbortMultipartUpload => {
                self.0.dirty.abort_upload(&kept).await?;
                Ok(respond::empty(StatusCode::NO_CONTENT))
            }
            _ if admitted.parts.method == Method::GET => self.list_parts(&admitted, &kept).await,
            _ => {
                let message = "This is not done with an upload that is written back.";
                Err(S3Error::new(ErrorCode::NotImplemented, message))
            }
        }
    }

    async fn take_part(&self, admitted: Box<Admitted>, kept: &KeptUpload) -> ResponseResult {
        let (opened, body) = admitted.open()?;
        let number = number_in(&opened.classified)?;
        let headers = &opened.parts.headers;
        if headers.contains_key("x-amz-server-side-encryption-customer-algorithm") {
            return Err(S3Error::new(
                ErrorCode::InvalidRequest,
                "The upload was not begun with a key of the client.",
            ));
        }
        let size_bytes = size_in(headers)?;
        let part = self.0.dirty.put_part(kept, number, size_bytes, body).await?;
        let mut response = respond::empty(StatusCode::OK);
        let headers = response.headers_mut();
        let etag = HeaderValue::try_from(part.etag()).expect("an MD5 in quotes is a header value");
        headers.insert(header::ETAG, etag);
        headers.extend(part.checksum.as_ref().map(Checksum::header));
        headers.insert(MODE_HEADER, HeaderValue::from_static("back"));
        Ok(response)
    }

    async fn complete_upload(&self, admitted: Box<Admitted>, mut kept: KeptUpload) -> ResponseResult {
        let (opened, body) = admitted.open()?;
        let parts = &opened.parts;
        let list = body
            .collect_at_most(LIST_BYTES_MAX, "The list of parts is too long.")
            .await?;
        let listed = xml::listed(&list).map_err(|_| malformed())?;
        let asked = asked_of_object(&parts.headers);
        let is_for_lake = asked.keys().any(|name| name.as_str().starts_with("if-"));
        if is_for_lake && kept.completed.is_none() {
            let asker = self.0.asker(&opened);
            if let Some(denied) = asker.denial(Action::Write, &kept.upload.name).await? {
                return Err(denied);
            }
        }
        let mut attempts = 0..COMPLETIONS;
        let completed = loop {
            if let Some(completed) = kept.completed {
                break completed;
            }
            let uploaded = self.0.dirty.parts(&kept).await?;
            let selected = select(&listed, &uploaded)?;
            check_size(&parts.headers, selected.iter().map(|part| part.size_bytes).sum())?;
            match self.0.dirty.complete_upload(&kept, &selected, &asked).await {
                Ok(Some(completed)) => break completed,
                Ok(None) if attempts.next().is_some() => {
                    let (name, id) = (&kept.upload.name, kept.upload.id);
                    kept = self.0.dirty.find_upload(name, id).await?;
                }
                Ok(None) => return Err(parts_changed()),
                Err(error) => {
                    // Only a refusal by the lake has this code.
                    if error.code == ErrorCode::AccessDenied {
                        let clearances = &self.0.dirty.clearances;
                        clearances.refused(&opened.verified.caller, &kept.upload.name.bucket);
                    }
                    return Err(error);
                }
            }
        };
        let upload = kept.upload;
        self.0.grants.invalidate_object(&upload.name);
        let address = self.0.addresses.as_used_by(parts);
        let location = address
            .map(|address| address.of_object(&upload.name.bucket, &target::key(&upload.name.key)))
            .unwrap_or_default();
        let mut response = answered(&xml::completed(&upload.name, &location, &completed));
        add_if_through(response.headers_mut(), &completed);
        Ok(response)
    }

    async fn list_parts(&self, admitted: &Admitted, kept: &KeptUpload) -> ResponseResult {
        let uploaded = self.0.dirty.parts(kept).await?;
        let page = xml::listed_parts(&admitted.classified.query, &kept.upload, &uploaded);
        let page = page.ok_or_else(|| invalid("max-parts and part-number-marker must be numbers."))?;
        Ok(answered(&page))
    }
}

/// Returns the part number in the query.
fn number_in(classified: &Classified) -> Result<u16, S3Error> {
    let number = classified.query.get("partNumber");
    let number = number.and_then(|number| number.parse().ok());
    number
        .filter(|number| NUMBERS.contains(number))
        .ok_or_else(|| invalid("Part number must be an integer between 1 and 10000, inclusive"))
}

/// Returns the length of a part as the headers announce it.
fn size_in(headers: &HeaderMap) -> Result<u64, S3Error> {
    let number = |name: &HeaderName| headers.get(name)?.to_str().ok()?.parse().ok();
    number(&HeaderName::from_static("x-amz-decoded-content-length"))
        .or_else(|| number(&header::CONTENT_LENGTH))
        .ok_or_else(|| {
            let message = "You must provide the Content-Length HTTP header.";
            S3Error::new(ErrorCode::MissingContentLength, message)
        })
}

/// Returns the headers of a completion that are conditions on the existing object or checksums of the new
/// one.
fn asked_of_object(headers: &HeaderMap) -> HeaderMap {
    let is_asked = |name: &HeaderName| {
        [header::IF_MATCH, header::IF_NONE_MATCH].contains(name)
            || Algorithm::of_header(name.as_str()).is_some()
    };
    those(headers, is_asked)
}

fn check_size(headers: &HeaderMap, size_bytes: u64) -> Result<(), S3Error> {
    let said = headers.get(&OBJECT_SIZE).map(HeaderValue::as_bytes);
    let is_so = said.is_none_or(|said| said == size_bytes.to_string().as_bytes());
    is_so.then_some(()).ok_or_else(|| {
        let message = "The parts together have another size than x-amz-mp-object-size says.";
        S3Error::new(ErrorCode::InvalidRequest, message)
    })
}

/// Returns the response to a request that was written back.
pub(super) fn answered(root: &Element) -> Response<ResponseBody> {
    let mut response = Response::new(ResponseBody::full(Bytes::from(root.to_document())));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    headers.insert(MODE_HEADER, HeaderValue::from_static("back"));
    response
}

/// Adds headers that report that an object was written through the cache, and why, if it was.
fn add_if_through(headers: &mut HeaderMap, completed: &Arc<Completed>) {
    if completed.through.is_empty() {
        return;
    }
    headers.insert(MODE_HEADER, HeaderValue::from_static("through"));
    headers.extend(HeaderValue::from_str(&completed.through).map(|reason| (X_CACHE_REASON, reason)));
}
