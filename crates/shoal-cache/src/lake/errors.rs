//! The errors that a client gets when the lake does not answer, or breaks off before the first byte.

use http::StatusCode;
use shoal_base::causes;
use shoal_net::clock;
use shoal_net::endpoint::{EndpointError, Failure};
use shoal_net::log_throttle::LogThrottle;
use shoal_s3::error::{ErrorCode, S3Error};

use super::ReadError;
use crate::single_flight::FetchError;

/// Returns the error for a request that the lake did not answer.
pub fn unanswered(error: &EndpointError) -> S3Error {
    let failed = failed(error.kind(), &causes::line(error));
    if error.kind().may_be_carried_out() {
        failed
    } else {
        failed.undone()
    }
}

/// Returns the error for a failed read.
pub fn unread(error: &ReadError) -> S3Error {
    match error {
        ReadError::Lake(error) => unanswered(error),
        ReadError::LakeStatus(status) => of_status(*status),
        ReadError::Fetch(error) => not_brought(error),
        ReadError::Refused(error) => error.clone(),
        ReadError::ChangesTooOften => not_brought(&FetchError::Changed),
    }
}

/// Returns the error for a block that did not arrive before the first byte of the response.
fn not_brought(error: &FetchError) -> S3Error {
    match error {
        FetchError::Status(status) => of_status(*status),
        FetchError::Lake(trouble) => failed(trouble.kind(), &trouble.to_string()),
        FetchError::Kept(error) => {
            tracing::warn!(%error, "the bytes of an object cannot be read where they are kept");
            S3Error::new(
                ErrorCode::SlowDown,
                "The bytes of the object cannot be read from its tier or its pack; please try again.",
            )
        }
        FetchError::Busy => S3Error::new(
            ErrorCode::SlowDown,
            "Too many bytes are on their way from the lake; please reduce your rate.",
        ),
        FetchError::Changed => S3Error::new(
            ErrorCode::ServiceUnavailable,
            "The object changes faster than it can be read.",
        ),
        FetchError::NotHeld => {
            static LINES: LogThrottle = LogThrottle::new();
            if let Some(unsaid) = LINES.admit(clock::instant()) {
                tracing::warn!(unsaid, "a block is no longer cached and may not be fetched");
            }
            S3Error::new(
                ErrorCode::ServiceUnavailable,
                "A node of the cluster no longer holds a part of the object; please try again.",
            )
        }
        FetchError::Mismatch => failed(Failure::Unintelligible, &error.to_string()),
        FetchError::Abandoned => S3Error::new(
            ErrorCode::ServiceUnavailable,
            "The fetch was given up by another reader; please try again.",
        ),
    }
}

/// Logs the cause and the address for operators. The client only learns which part failed.
fn failed(failure: Failure, causes: &str) -> S3Error {
    static LINES: [LogThrottle; Failure::ALL.len()] = [const { LogThrottle::new() }; Failure::ALL.len()];
    // The endpoint itself logs a refused account, once a minute.
    if failure != Failure::AccountRefused
        && let Some(unsaid) = LINES[failure as usize].admit(clock::instant())
    {
        tracing::warn!(
            failure = failure.as_str(),
            error = causes,
            unsaid,
            "the lake gave no answer"
        );
    }
    failure.answer()
}

/// Returns the error for a status of the lake that says nothing about the request.
pub fn of_status(status: StatusCode) -> S3Error {
    match status.as_u16() {
        401 | 403 => S3Error::new(ErrorCode::AccessDenied, "Access Denied"),
        429 | 503 => S3Error::new(ErrorCode::SlowDown, "The lake asks to reduce the request rate."),
        504 => S3Error::new(ErrorCode::GatewayTimeout, "The lake gave no answer in time."),
        _ => S3Error::new(ErrorCode::BadGateway, "The lake answered with an error."),
    }
}

/// Returns the error of a request whose conditions do not hold.
pub fn precondition_failed() -> S3Error {
    let message = "At least one of the pre-conditions you specified did not hold";
    S3Error::new(ErrorCode::PreconditionFailed, message)
}
