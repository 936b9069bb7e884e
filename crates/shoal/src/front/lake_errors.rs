//! What a client is told when the lake does not answer, or breaks off before the first byte.

use http::StatusCode;

use crate::endpoint::{EndpointError, Failure, causes};
use crate::flights::FlightError;
use crate::front::error::{ErrorCode, S3Error};
use crate::read::ReadError;

/// The lake gave no answer.
pub fn unanswered(error: &EndpointError) -> S3Error {
    // The address and the cause are the operator's to see, not the client's.
    // A refused account is told by the endpoint, once a minute.
    if error.kind() != Failure::AccountRefused {
        tracing::warn!(error = causes(error), "the lake gave no answer");
    }
    of_failure(error.kind())
}

fn of_failure(kind: Failure) -> S3Error {
    match kind {
        kind if kind.is_timeout() => {
            S3Error::new(ErrorCode::GatewayTimeout, "The lake gave no answer in time.")
        }
        Failure::AccountRefused => S3Error::new(
            ErrorCode::BadGateway,
            "The lake does not accept the account of this node. Your own key is not at fault; ask the operator.",
        ),
        Failure::Crowded => S3Error::new(
            ErrorCode::SlowDown,
            "Too many requests wait for the lake; please reduce your rate.",
        ),
        Failure::Unsignable => S3Error::new(
            ErrorCode::InvalidRequest,
            "A header of the request cannot be signed for the lake.",
        ),
        _ => S3Error::new(ErrorCode::BadGateway, "The lake cannot be reached or broke off."),
    }
}

/// A read has no answer.
pub fn unread(error: &ReadError) -> S3Error {
    match error {
        ReadError::Lake(error) => unanswered(error),
        ReadError::LakeStatus(status) | ReadError::Flight(FlightError::Status(status)) => of_status(*status),
        ReadError::Flight(FlightError::Busy) => S3Error::new(
            ErrorCode::SlowDown,
            "Too many bytes are on their way from the lake; please reduce your rate.",
        ),
        ReadError::Flight(FlightError::Lake(trouble)) => {
            if trouble.kind() != Failure::AccountRefused {
                tracing::warn!(error = %trouble, "the lake gave no answer");
            }
            of_failure(trouble.kind())
        }
        ReadError::Flight(error) => {
            tracing::warn!(%error, "the lake broke off");
            S3Error::new(ErrorCode::BadGateway, "The lake cannot be reached or broke off.")
        }
        ReadError::Restless => S3Error::new(
            ErrorCode::ServiceUnavailable,
            "The object changes faster than it can be read.",
        ),
    }
}

fn of_status(status: StatusCode) -> S3Error {
    match status.as_u16() {
        401 | 403 => S3Error::new(ErrorCode::AccessDenied, "Access Denied"),
        429 | 503 => S3Error::new(ErrorCode::SlowDown, "The lake asks to reduce the request rate."),
        504 => S3Error::new(ErrorCode::GatewayTimeout, "The lake gave no answer in time."),
        _ => S3Error::new(ErrorCode::BadGateway, "The lake answered with an error."),
    }
}
