//! The errors of a body, as the client gets them.

use super::decoder::ChunkError;
use super::digests::Algorithm;
use super::memory_limit::NoRoom;
use crate::error::{ErrorCode, S3Error};

/// The error of a body whose connection ended early, or whose length differs from the announced one.
pub fn wrong_length() -> S3Error {
    let message = "You did not provide the number of bytes specified by the Content-Length HTTP header";
    S3Error::new(ErrorCode::IncompleteBody, message)
}

/// The digest in a `header` or a `trailing header` is not base 64 of the right length.
pub(super) fn malformed_digest(algorithm: Algorithm, place: &str) -> S3Error {
    if algorithm == Algorithm::Md5 {
        return S3Error::new(
            ErrorCode::InvalidDigest,
            "The Content-MD5 you specified was invalid.",
        );
    }
    let name = algorithm.as_str();
    let message = format!("Value for x-amz-checksum-{name} {place} is invalid.");
    S3Error::new(ErrorCode::InvalidRequest, message)
}

/// The body's digest differs from the one in a header or a trailer.
pub(super) fn wrong_digest(algorithm: Algorithm) -> S3Error {
    if algorithm == Algorithm::Md5 {
        let message = "The Content-MD5 you specified did not match what we received.";
        return S3Error::new(ErrorCode::BadDigest, message);
    }
    let name = algorithm.as_str().to_ascii_uppercase();
    let message = format!("The {name} you specified did not match the calculated checksum.");
    S3Error::new(ErrorCode::BadDigest, message)
}

/// The trailer is not the one that `x-amz-trailer` announced.
pub(super) fn unexpected_trailer() -> S3Error {
    S3Error::new(
        ErrorCode::MalformedTrailerError,
        "The request contained trailing data that was not well-formed or did not conform to our published schema.",
    )
}

/// A bug of the node: a signed body was forwarded without the lake's key.
pub(super) fn not_resigned() -> S3Error {
    let message = "We encountered an internal error. Please try again.";
    S3Error::new(ErrorCode::InternalError, message)
}

impl From<ChunkError> for S3Error {
    fn from(error: ChunkError) -> Self {
        match error {
            ChunkError::ShorterThanAnnounced | ChunkError::LongerThanAnnounced => wrong_length(),
            ChunkError::ChunkTooLarge => Self::new(
                ErrorCode::InvalidRequest,
                "A signed chunk may hold at most 16 MiB.",
            ),
            ChunkError::UnexpectedTrailer | ChunkError::MalformedTrailer | ChunkError::TooManyTrailers => {
                unexpected_trailer()
            }
            ChunkError::Truncated
            | ChunkError::MalformedSize
            | ChunkError::LineTooLong
            | ChunkError::BareNewline
            | ChunkError::MissingNewline
            | ChunkError::DataAfterEnd => {
                let message = "The request body terminated unexpectedly";
                Self::new(ErrorCode::IncompleteBody, message)
            }
        }
    }
}

impl From<NoRoom> for S3Error {
    fn from(error: NoRoom) -> Self {
        Self::new(ErrorCode::SlowDown, error.to_string())
    }
}
