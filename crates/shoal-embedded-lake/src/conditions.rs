//! Checks conditional headers before anything is read or replaced.

use http::header::{ETAG, LAST_MODIFIED};
use http::{HeaderMap, HeaderValue};
use s3s::dto::{ETag, ETagCondition, HeadObjectOutput, Timestamp, TimestampFormat};
use s3s::{S3Error, S3Result, s3_error};
use time::OffsetDateTime;

/// The conditions of one request, from whichever headers.
#[derive(Clone, Debug, Default)]
pub(super) struct Conditions {
    pub(super) matches: Option<ETagCondition>,
    pub(super) none_match: Option<ETagCondition>,
    pub(super) modified_since: Option<Timestamp>,
    pub(super) unmodified_since: Option<Timestamp>,
}

impl Conditions {
    /// Checks the conditions on an object: fails with 412 if it has changed, with 304 if the client has it.
    /// Entity tags take precedence over dates (RFC 9110, 13.2.2).
    pub(super) fn check(&self, object: &HeadObjectOutput) -> S3Result<()> {
        let etag = object.e_tag.as_ref().map_or("", ETag::value);
        let modified = object.last_modified.clone().unwrap_or_default();
        let names_it =
            |condition: &ETagCondition| condition.as_etag().is_none_or(|named| named.value() == etag);
        let failed = match (&self.matches, &self.unmodified_since) {
            (Some(condition), _) => !names_it(condition) || condition.as_etag().is_some_and(is_weak),
            (None, Some(since)) => seconds(&modified) > seconds(since),
            (None, None) => false,
        };
        let unchanged = match (&self.none_match, &self.modified_since) {
            (Some(condition), _) => names_it(condition),
            (None, Some(since)) => seconds(&modified) <= seconds(since),
            (None, None) => false,
        };
        if failed {
            return Err(precondition_failed());
        }
        if unchanged {
            let mut error = s3_error!(NotModified);
            error.set_headers(validators(etag, &modified));
            return Err(error);
        }
        Ok(())
    }
}

pub(super) fn precondition_failed() -> S3Error {
    s3_error!(
        PreconditionFailed,
        "At least one of the pre-conditions you specified did not hold"
    )
}

/// Returns the headers of a 304 that clients use in conditional requests.
fn validators(etag: &str, modified: &Timestamp) -> HeaderMap {
    let mut date = Vec::new();
    let etag = HeaderValue::try_from(format!("\"{etag}\"")).ok();
    let formatted = modified.format(TimestampFormat::HttpDate, &mut date).ok();
    let date = formatted.and_then(|()| HeaderValue::from_bytes(&date).ok());
    let headers = [(ETAG, etag), (LAST_MODIFIED, date)];
    let known = headers
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    known.collect()
}

fn is_weak(etag: &ETag) -> bool {
    etag.as_weak().is_some()
}

/// Truncates to seconds, the resolution of dates in headers; a file's finer time would always look newer.
fn seconds(time: &Timestamp) -> i64 {
    OffsetDateTime::from(time.clone()).unix_timestamp()
}
