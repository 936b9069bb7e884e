//! The errors that clients get from write-back.

use std::fmt::Display;

use http::StatusCode;
use shoal_cache::lake::errors::{of_status, precondition_failed, unanswered};
use shoal_cache::lake::{ReadError, unknown};
use shoal_cache::write::Uncached;
use shoal_s3::error::{ErrorCode, S3Error};

use crate::dirty::{FlushFailed, ListError, NotBegun, PermissionError, UploadFailed, WriteError};
use crate::tier::TierUnavailable;

/// Message to clients while the registry is nearly full. Operators find details in `/status`.
const NEARLY_FULL: &str = "The registry of dirty objects is nearly full, so nothing new begins below this rule \
                           until it has room; please try again, and tell the operator \
                           (registry-nearly-full in /status).";

/// The state of a name is unknown.
impl From<TierUnavailable> for S3Error {
    fn from(error: TierUnavailable) -> Self {
        try_again(ErrorCode::SlowDown, &error)
    }
}

impl From<TierUnavailable> for ReadError {
    fn from(error: TierUnavailable) -> Self {
        Self::Refused(error.into())
    }
}

/// An object must be flushed before a request, and was not.
impl From<FlushFailed> for S3Error {
    fn from(error: FlushFailed) -> Self {
        try_again(ErrorCode::ServiceUnavailable, &error)
    }
}

impl From<NotBegun> for S3Error {
    fn from(error: NotBegun) -> Self {
        match error {
            NotBegun::Flush(error) => error.into(),
            NotBegun::Busy => try_again(ErrorCode::SlowDown, &error),
            NotBegun::NearlyFull(_) => Self::new(ErrorCode::SlowDown, NEARLY_FULL),
        }
    }
}

impl From<PermissionError> for S3Error {
    fn from(error: PermissionError) -> Self {
        let error = match error {
            PermissionError::Lake(error) => unanswered(&error),
            PermissionError::Status(status) => of_status(status),
            PermissionError::GivenUp => Self::new(
                ErrorCode::ServiceUnavailable,
                "The question to the lake was given up; please try again.",
            ),
        };
        error.undone()
    }
}

impl From<WriteError> for S3Error {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Body(error) => error,
            WriteError::Full => refused(Uncached::TooDirty),
            WriteError::OutcomeUnknown => unknown(),
            WriteError::Unavailable(error) => error.into(),
        }
    }
}

impl From<UploadFailed> for S3Error {
    fn from(error: UploadFailed) -> Self {
        let code = match error {
            UploadFailed::NotFound => ErrorCode::NoSuchUpload,
            UploadFailed::PartsChanged => ErrorCode::InvalidPart,
            UploadFailed::TooLarge => ErrorCode::EntityTooLarge,
            UploadFailed::Checksum => ErrorCode::BadDigest,
            UploadFailed::Unavailable(error) => return error.into(),
            UploadFailed::Write(WriteError::Body(error)) => return error,
            UploadFailed::Write(error) => {
                tracing::warn!(%error, "a part could not be stored");
                let message = "The part could not be taken; please try again.";
                return Self::new(ErrorCode::SlowDown, message);
            }
            UploadFailed::Refused(StatusCode::PRECONDITION_FAILED) => return precondition_failed(),
            UploadFailed::Refused(StatusCode::FORBIDDEN) => return access_denied(),
            // `If-Match` names an object that does not exist.
            UploadFailed::Refused(StatusCode::NOT_FOUND) => {
                return Self::new(ErrorCode::NoSuchKey, "The specified key does not exist.");
            }
            UploadFailed::Refused(StatusCode::CONFLICT) => {
                let message = "The object was written in the meantime; please try again.";
                return Self::new(ErrorCode::ConditionalRequestConflict, message);
            }
            UploadFailed::Refused(_) | UploadFailed::Later => {
                return try_again(ErrorCode::SlowDown, &error);
            }
        };
        Self::new(code, error.to_string())
    }
}

impl From<ListError> for S3Error {
    fn from(error: ListError) -> Self {
        let code = match error {
            ListError::Empty => ErrorCode::MalformedXml,
            ListError::Order => ErrorCode::InvalidPartOrder,
            ListError::Part(_) => ErrorCode::InvalidPart,
            ListError::Small(_) => ErrorCode::EntityTooSmall,
        };
        Self::new(code, error.to_string())
    }
}

fn try_again(code: ErrorCode, error: &impl Display) -> S3Error {
    S3Error::new(code, format!("{error}; please try again."))
}

/// Returns the error for a write that the tier cannot accept at present.
pub(super) fn refused(why: Uncached) -> S3Error {
    let message = match why {
        Uncached::TooDirty => {
            "The tier is full until the lake has taken some of its objects; please try again."
        }
        Uncached::RegistryFull => NEARLY_FULL,
        _ => "The tier takes no writes now; please try again.",
    };
    S3Error::new(ErrorCode::SlowDown, message)
}

/// Returns the error of a caller that may not do what it asks for.
pub(super) fn access_denied() -> S3Error {
    S3Error::new(ErrorCode::AccessDenied, "Access Denied")
}

pub(super) fn invalid(message: &'static str) -> S3Error {
    S3Error::new(ErrorCode::InvalidArgument, message)
}

pub(super) fn malformed() -> S3Error {
    S3Error::new(
        ErrorCode::MalformedXml,
        "The XML you provided was not well-formed or did not validate against our published schema.",
    )
}

pub(super) fn unreadable() -> S3Error {
    S3Error::new(ErrorCode::BadGateway, "The lake's answer cannot be read.")
}
