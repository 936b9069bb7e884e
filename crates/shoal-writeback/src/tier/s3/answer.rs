//! Interprets the responses of an S3 store for a tier.

use http::StatusCode;
use shoal_base::causes;
use shoal_net::endpoint::s3::{CallError, Refusal};
use shoal_net::endpoint::{EndpointError, Failure};

use crate::tier::store::StoreError;

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

impl From<CallError> for StoreError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Unanswered(error) => error.into(),
            CallError::BrokenOff(error) => match error.downcast::<EndpointError>() {
                Ok(error) => Self::from(*error),
                Err(_) => Self::Unavailable("its answer is too long".into()),
            },
            CallError::Refused(refusal) => refused(&refusal),
            CallError::TooLong(_) | CallError::Misunderstood(_) => Self::Refused(error.to_string()),
        }
    }
}

/// Converts the error of a request without a response, or of a body that ended early.
impl From<EndpointError> for StoreError {
    fn from(error: EndpointError) -> Self {
        let said = causes::line(&error);
        match error.kind() {
            Failure::AccountRefused | Failure::Unsignable | Failure::Misconfigured => Self::Refused(said),
            Failure::Changed => Self::Damaged(said),
            _ => Self::Unavailable(said),
        }
    }
}

/// Converts a response that is an error. The store's message is omitted, because it may contain a secret.
fn refused(refusal: &Refusal) -> StoreError {
    // An error after an early 200 has no status of its own.
    let status = match refusal.status {
        status if status.is_success() => StatusCode::INTERNAL_SERVER_ERROR,
        status => status,
    };
    let code = refusal.code();
    let is_code = code.len() <= CODE_CHARS_MAX && code.chars().all(|c| c.is_ascii_alphanumeric());
    let code = if is_code { code } else { "" };
    let said = if code.is_empty() {
        format!("it answered {status}")
    } else {
        format!("it answered {} {code}", status.as_u16())
    };
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

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use shoal_s3::xml::ErrorDocument;

    use super::{Refusal, StoreError, refused};

    #[test]
    fn an_answer_says_whether_to_wait_to_make_room_or_to_change_a_setting() {
        let of = |status, code: &str| {
            refused(&Refusal {
                status: StatusCode::from_u16(status).unwrap(),
                error: (!code.is_empty()).then(|| ErrorDocument {
                    code: code.into(),
                    message: "secret".into(),
                }),
            })
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
            (200, "SlowDown"),
            (200, "AccessDenied"),
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
}
