//! The errors that clients get from write-back.

use std::fmt::Display;

use shoal_cache::lake::errors;
use shoal_s3::error::{ErrorCode, S3Error};

use super::objects::NotBegun;
use super::permission::PermissionError;
use super::tiers::entries::FlushFailed;
use crate::tier::TierUnavailable;

/// Message to clients while the registry is nearly full. Operators find details in `/status`.
pub const NEARLY_FULL: &str = "The registry of dirty objects is nearly full, so nothing new begins below this rule \
                               until it has room; please try again, and tell the operator \
                               (registry-nearly-full in /status).";

/// Returns the error while the state of a name is unknown.
pub fn try_again(error: TierUnavailable) -> S3Error {
    retry(ErrorCode::SlowDown, &error)
}

/// Returns the error of a request for which an object must be flushed first.
pub fn not_flushed(error: &FlushFailed) -> S3Error {
    retry(ErrorCode::ServiceUnavailable, error)
}

/// Returns the error for a change that could not begin.
pub fn not_begun(error: NotBegun) -> S3Error {
    match error {
        NotBegun::Flush(error) => not_flushed(&error),
        NotBegun::Busy => retry(ErrorCode::SlowDown, &error),
        NotBegun::NearlyFull(_) => S3Error::new(ErrorCode::SlowDown, NEARLY_FULL),
    }
}

/// Returns the error if the caller's permission could not be determined.
pub fn no_permission(error: &PermissionError) -> S3Error {
    let error = match error {
        PermissionError::Lake(error) => errors::unanswered(error),
        PermissionError::Status(status) => errors::of_status(*status),
        PermissionError::GivenUp => S3Error::new(
            ErrorCode::ServiceUnavailable,
            "The question to the lake was given up; please try again.",
        ),
    };
    error.undone()
}

fn retry(code: ErrorCode, error: &impl Display) -> S3Error {
    S3Error::new(code, format!("{error}; please try again."))
}
