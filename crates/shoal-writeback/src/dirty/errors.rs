//! The errors that clients get from write-back.

use std::fmt::Display;

use http::StatusCode;
use shoal_cache::lake::errors::{of_status, precondition_failed, unanswered};
use shoal_cache::lake::{ReadError, unknown};
use shoal_cache::write::Uncached;
use shoal_s3::error::{ErrorCode, S3Error};

use super::packs::MapError;
use super::permission::PermissionError;
use super::record::writing::WriteError;
use super::stock::status::RegistryNearlyFull;
use super::tiers::entries::FlushFailed;
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

/// Where an object is cannot be found out.
impl From<MapError> for S3Error {
    fn from(error: MapError) -> Self {
        try_again(ErrorCode::ServiceUnavailable, &error)
    }
}

/// An object must be flushed before a request, and was not.
impl From<FlushFailed> for S3Error {
    fn from(error: FlushFailed) -> Self {
        try_again(ErrorCode::ServiceUnavailable, &error)
    }
}

impl From<RegistryNearlyFull> for S3Error {
    fn from(_: RegistryNearlyFull) -> Self {
        Self::new(ErrorCode::SlowDown, NEARLY_FULL)
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

/// Returns the error for a part that the tier has not taken.
pub(super) fn part_refused(error: WriteError) -> S3Error {
    if let WriteError::Body(error) = error {
        return error;
    }
    tracing::warn!(%error, "a part could not be stored");
    let message = "The part could not be taken; please try again.";
    S3Error::new(ErrorCode::SlowDown, message)
}

/// Returns the error for an object that is removed.
pub(crate) fn no_such_key() -> S3Error {
    S3Error::new(ErrorCode::NoSuchKey, "The specified key does not exist.")
}

/// Returns the error for an upload that was completed or aborted, or has expired.
pub(crate) fn no_such_upload() -> S3Error {
    let message = "The specified upload does not exist. The upload ID may be invalid, or the upload may have been \
                   aborted or completed.";
    S3Error::new(ErrorCode::NoSuchUpload, message)
}

/// Returns the error for an upload whose parts changed while it was completed.
pub(crate) fn parts_changed() -> S3Error {
    let message = "The parts of the upload have changed while it was to be completed.";
    S3Error::new(ErrorCode::InvalidPart, message)
}

/// Returns the error for an upload that could not be completed; the client may retry.
pub(super) fn not_completed() -> S3Error {
    try_again(ErrorCode::SlowDown, &"the object could not be put together")
}

/// Returns the error for an upload whose object the lake has refused with this status.
pub(super) fn refused_by_lake(status: StatusCode) -> S3Error {
    match status {
        StatusCode::PRECONDITION_FAILED => precondition_failed(),
        StatusCode::FORBIDDEN => access_denied(),
        // `If-Match` names an object that does not exist.
        StatusCode::NOT_FOUND => no_such_key(),
        StatusCode::CONFLICT => {
            let message = "The object was written in the meantime; please try again.";
            S3Error::new(ErrorCode::ConditionalRequestConflict, message)
        }
        status => try_again(ErrorCode::SlowDown, &format_args!("the lake answered {status}")),
    }
}

pub(super) fn try_again(code: ErrorCode, error: &impl Display) -> S3Error {
    S3Error::new(code, format!("{error}; please try again."))
}

/// Returns the error for a write that the tier cannot accept at present.
pub(crate) fn refused(why: Uncached) -> S3Error {
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
pub(crate) fn access_denied() -> S3Error {
    S3Error::new(ErrorCode::AccessDenied, "Access Denied")
}

pub(crate) fn invalid(message: &'static str) -> S3Error {
    S3Error::new(ErrorCode::InvalidArgument, message)
}

pub(crate) fn malformed() -> S3Error {
    S3Error::new(
        ErrorCode::MalformedXml,
        "The XML you provided was not well-formed or did not validate against our published schema.",
    )
}

pub(crate) fn unreadable() -> S3Error {
    S3Error::new(ErrorCode::BadGateway, "The lake's answer cannot be read.")
}
