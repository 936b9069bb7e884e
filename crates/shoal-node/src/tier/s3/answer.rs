//! Interprets the responses of an S3 store for a tier.

use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header, response};
use http_body_util::{BodyExt as _, Limited};
use shoal_s3::xml::{Document, ErrorDocument, Malformed};

use crate::endpoint::{EndpointError, Failure, LakeBody, causes};
use crate::tier::store::StoreError;

/// Limit on responses that are read as a document: a page of a listing has a thousand keys of 1 kB.
const DOCUMENT_BYTES_MAX: usize = 4 << 20;

/// Number of characters of an error code that are reported.
const CODE_CHARS_MAX: usize = 64;

/// Error codes of a store that is full, for this account, for this bucket or entirely.
const FULL: [&str; 7] = [
    "QuotaExceeded",
    "InsufficientCapacity",
    "InsufficientStorage",
    "StorageFull",
    "XMinioAdminBucketQuotaExceeded",
    "XMinioStorageFull",
    "XMinioStorageQuotaExceeded",
];

/// Error codes of transient failures, whatever the status is.
const PASSING: [&str; 5] = [
    "InternalError",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
];

/// Reads a response whose body is a document or empty.
pub(super) async fn read(answer: Response<LakeBody>) -> Result<(response::Parts, Bytes), StoreError> {
    let (head, body) = answer.into_parts();
    match Limited::new(body, DOCUMENT_BYTES_MAX).collect().await {
        Ok(body) => Ok((head, body.to_bytes())),
        // The status of an error is sufficient.
        Err(_) if !head.status.is_success() => Ok((head, Bytes::new())),
        Err(error) => Err(match error.downcast::<EndpointError>() {
            Ok(error) => failed(&error),
            Err(_) => StoreError::Unavailable("its answer is too long".into()),
        }),
    }
}

/// Converts a response with an error status.
pub(super) fn refused(status: StatusCode, body: &[u8]) -> StoreError {
    let code = error_code(body).unwrap_or_default();
    let said = if code.is_empty() {
        format!("it answered {status}")
    } else {
        format!("it answered {} {code}", status.as_u16())
    };
    let code = &*code;
    match status.as_u16() {
        _ if FULL.contains(&code) => StoreError::Full(said),
        _ if PASSING.contains(&code) => StoreError::Unavailable(said),
        507 => StoreError::Full(said),
        404 if code != "NoSuchBucket" => StoreError::Missing,
        416 => StoreError::Damaged("it is shorter than the bytes that were asked for".into()),
        501 | 505 => StoreError::Refused(said),
        // Conflicts with other requests are transient, such as versitygw's while it removes an empty folder.
        408 | 409 | 429 | 500.. => StoreError::Unavailable(said),
        _ => StoreError::Refused(said),
    }
}

/// Converts the error of a request without a response, or of a body that ended early.
pub(super) fn failed(error: &EndpointError) -> StoreError {
    let said = causes(error);
    match error.kind() {
        Failure::AccountRefused | Failure::Unsignable | Failure::Misconfigured => StoreError::Refused(said),
        Failure::Changed => StoreError::Damaged(said),
        _ => StoreError::Unavailable(said),
    }
}

/// Returns the ETag in the response to a copy. A store may send 200 early and report an error in the body.
pub(super) fn copied_etag(body: &[u8]) -> Result<String, StoreError> {
    if let Ok(Some(_)) = ErrorDocument::read(body) {
        return Err(refused(StatusCode::INTERNAL_SERVER_ERROR, body));
    }
    let etag = || {
        let document = Document::parse(body)?;
        let (tag, mut reader) = document.answer()?;
        let result = reader.element(&tag)?;
        reader.end()?;
        let etag = result
            .text_of("ETag")
            .filter(|_| tag.name() == "CopyObjectResult");
        etag.ok_or(Malformed)
    };
    etag().map_err(|Malformed| StoreError::Refused("its answer is not that of a copy".into()))
}

/// Returns the code of an error document. The store's message is omitted, because it may contain a secret.
fn error_code(body: &[u8]) -> Option<String> {
    let code = ErrorDocument::read(body).ok()??.code;
    let is_code =
        |code: &&str| code.len() <= CODE_CHARS_MAX && code.chars().all(|c| c.is_ascii_alphanumeric());
    Some(code.trim()).filter(is_code).map(Into::into)
}

/// The `Content-Range` of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContentRange {
    pub(super) start: u64,
    /// One past the last byte.
    pub(super) end: u64,
    /// Size of the whole object.
    pub(super) size_bytes: u64,
}

impl ContentRange {
    /// Parses `bytes 0-99/1000`.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
        let (range, size) = value.strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let (start, last, size_bytes): (u64, u64, u64) =
            (first.parse().ok()?, last.parse().ok()?, size.parse().ok()?);
        let end = last.checked_add(1)?;
        (start < end && end <= size_bytes).then_some(Self {
            start,
            end,
            size_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_RANGE;
    use http::{HeaderMap, HeaderValue, StatusCode};
    use shoal_s3::xml::ErrorDocument;

    use super::{ContentRange, StoreError, copied_etag, refused};

    #[test]
    fn an_answer_says_whether_to_wait_to_make_room_or_to_change_a_setting() {
        let of = |status, code: &str| {
            let body = match code {
                "" => String::new(),
                code => ErrorDocument::write(code, "secret").to_document(),
            };
            refused(StatusCode::from_u16(status).unwrap(), body.as_bytes())
        };
        for (status, code) in [(404, "NoSuchKey"), (404, "")] {
            assert_eq!(of(status, code), StoreError::Missing);
        }
        for (status, code) in [(507, "XMinioStorageFull"), (507, ""), (403, "QuotaExceeded")] {
            assert!(matches!(of(status, code), StoreError::Full(_)), "{status} {code}");
        }
        for (status, code) in [
            (503, "SlowDown"),
            (500, ""),
            (502, ""),
            (429, ""),
            (400, "RequestTimeout"),
        ] {
            assert!(
                matches!(of(status, code), StoreError::Unavailable(_)),
                "{status} {code}"
            );
        }
        for (status, code) in [
            (404, "NoSuchBucket"),
            (403, "AccessDenied"),
            (501, ""),
            (301, ""),
            (400, ""),
        ] {
            assert!(
                matches!(of(status, code), StoreError::Refused(_)),
                "{status} {code}"
            );
        }
        assert_eq!(
            of(403, "AccessDenied").to_string(),
            "the store refuses: it answered 403 AccessDenied"
        );
        assert_eq!(
            of(503, "<b>").to_string(),
            "the store is not available: it answered 503 Service Unavailable"
        );
    }

    #[test]
    fn the_answer_to_a_copy_names_its_etag_or_is_an_error() {
        let answer = |root: &str| format!("<{root}><ETag>&quot;e&quot;</ETag></{root}>");
        let etag = copied_etag(answer("CopyObjectResult").as_bytes());
        assert_eq!(etag.as_deref(), Ok("\"e\""));
        for other in [
            answer("CopyPartResult"),
            String::new(),
            "<CopyObjectResult/>".into(),
        ] {
            let refused = copied_etag(other.as_bytes());
            assert!(matches!(refused, Err(StoreError::Refused(_))), "{other}");
        }
        let late = ErrorDocument::write("SlowDown", "").to_document();
        let late = copied_etag(late.as_bytes());
        assert!(matches!(late, Err(StoreError::Unavailable(_))), "{late:?}");
    }

    #[test]
    fn only_a_whole_content_range_is_understood() {
        let of = |text: &'static str| {
            let headers = HeaderMap::from_iter([(CONTENT_RANGE, HeaderValue::from_static(text))]);
            ContentRange::of(&headers).map(|range| (range.start, range.end, range.size_bytes))
        };
        assert_eq!(of("bytes 0-9/10"), Some((0, 10, 10)));
        assert_eq!(of("bytes 4-4/10"), Some((4, 5, 10)));
        for text in [
            "bytes 0-10/10",
            "bytes 5-4/10",
            "bytes */10",
            "bytes 0-9/*",
            "0-9/10",
        ] {
            assert_eq!(of(text), None, "{text}");
        }
    }
}
