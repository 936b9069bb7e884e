//! `UploadPartCopy`: the node reads the source from the lake and stores its bytes as if the client had sent
//! them.

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use http_body_util::BodyExt;
use shoal_cache::exchange::{Admitted, ResponseResult};
use shoal_cache::lake::errors::precondition_failed;
use shoal_net::endpoint::LakeBody;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::operation::CopySource;
use shoal_s3::target;

use super::{UploadRequests, answered, number_in, xml};
use crate::dirty::KeptUpload;
use crate::dirty::errors::{access_denied, invalid};
use crate::tiered::writes::conditions_of_source;

const RANGE: &str = "x-amz-copy-source-range";

impl UploadRequests {
    pub(super) async fn copy_part(&self, admitted: &Admitted, kept: &KeptUpload) -> ResponseResult {
        let number = number_in(&admitted.classified)?;
        let headers = &admitted.parts.headers;
        let target = target_of(admitted.classified.copy_source.as_ref())?;
        self.0.flush_for_read(admitted, &kept.upload.name).await?;
        let asked = of_source(headers);
        let range_bytes = asked.get(header::RANGE).map(bytes_of).transpose()?;
        let asker = self.0.asker(admitted);
        let source = asker.send(asker.client().get(target).with_headers(asked)).await?;
        let size_bytes = size_of(&source, range_bytes)?;
        let bytes = source.into_body().map_err(|_| broken_off());
        let part = self.0.dirty.put_part(kept, number, size_bytes, bytes).await?;
        if part.size_bytes != size_bytes {
            return Err(broken_off());
        }
        Ok(answered(&xml::copied(&part)))
    }
}

/// Returns the number of bytes in a range. A copy must name both ends of its range; other forms are invalid.
fn bytes_of(range: &HeaderValue) -> Result<u64, S3Error> {
    let ends = || {
        let (first, last) = range.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first)?.checked_add(1)
    };
    ends().ok_or_else(|| {
        invalid("x-amz-copy-source-range must be bytes=first-last, the offsets of the first and last byte.")
    })
}

/// Returns the number of bytes that the lake will send. Fails unless the lake sends all that the node asked
/// for.
fn size_of(source: &Response<LakeBody>, range_bytes: Option<u64>) -> Result<u64, S3Error> {
    let says = |code, message: &'static str| Err(S3Error::new(code, message));
    match source.status() {
        StatusCode::OK if range_bytes.is_none() => {}
        StatusCode::PARTIAL_CONTENT if range_bytes.is_some() => {}
        StatusCode::NOT_MODIFIED | StatusCode::PRECONDITION_FAILED => return Err(precondition_failed()),
        StatusCode::NOT_FOUND => {
            return says(ErrorCode::NoSuchKey, "The object that is copied does not exist.");
        }
        StatusCode::FORBIDDEN => return Err(access_denied()),
        StatusCode::RANGE_NOT_SATISFIABLE => {
            return says(ErrorCode::InvalidRange, "The requested range is not satisfiable");
        }
        _ => return Err(broken_off()),
    }
    let length = source.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    match (length, range_bytes) {
        (None, _) => Err(broken_off()),
        // A read is cut off at the end of the object, but a copy needs the whole range.
        (Some(length), Some(asked)) if length != asked => says(
            ErrorCode::InvalidRange,
            "The range ends behind the object that is copied.",
        ),
        (Some(length), _) => Ok(length),
    }
}

fn broken_off() -> S3Error {
    S3Error::new(
        ErrorCode::BadGateway,
        "The lake did not give the object that is copied.",
    )
}

/// Returns the request target of the source. Fails if the name is ambiguous: the node does not guess.
fn target_of(source: Option<&CopySource>) -> Result<PathAndQuery, S3Error> {
    let target = match source {
        Some(CopySource::Object(name)) => target::of_object(name).ok(),
        _ => None,
    };
    target.ok_or_else(|| {
        invalid("x-amz-copy-source must be /bucket/key, percent-encoded: a plus sign as %2B, a blank as %20.")
    })
}

/// Returns the conditions and the range of the source as the headers of a read.
fn of_source(sent: &HeaderMap) -> HeaderMap {
    let mut asked = conditions_of_source(sent);
    if let Some(range) = sent.get(RANGE) {
        asked.insert(header::RANGE, range.clone());
    }
    asked
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, header};

    use super::{bytes_of, of_source};

    #[test]
    fn a_range_that_is_copied_names_both_its_ends() {
        let bytes = |text| bytes_of(&HeaderValue::from_static(text)).ok();
        assert_eq!(bytes("bytes=0-9"), Some(10));
        assert_eq!(bytes("bytes=9-9"), Some(1));
        for text in [
            "bytes=9-8",
            "bytes=9-",
            "bytes=-9",
            "bytes=0-1,2-3",
            "0-9",
            "bytes=a-b",
            "bytes=0-18446744073709551615",
        ] {
            assert_eq!(bytes(text), None, "{text}");
        }
    }

    #[test]
    fn a_read_of_the_source_asks_for_what_the_copy_does() {
        let mut sent = HeaderMap::new();
        sent.insert("x-amz-copy-source-range", HeaderValue::from_static("bytes=0-9"));
        sent.insert("range", HeaderValue::from_static("bytes=5-6"));
        let asked = of_source(&sent);
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[header::RANGE], "bytes=0-9");
    }
}
