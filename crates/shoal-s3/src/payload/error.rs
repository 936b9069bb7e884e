//! The errors of a body, and the client's answers for them.

use super::decoder::ChunkError;
use super::digests::Algorithm;
use super::memory_limit::NoRoom;
use crate::error::{ErrorCode, S3Error};
use shoal_base::hex;

/// Why a body was aborted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// The connection ended early, or the body's length differs from the announced one.
    #[error("You did not provide the number of bytes specified by the Content-Length HTTP header")]
    WrongLength,
    /// `Content-Length` or `x-amz-decoded-content-length` is not a number.
    #[error("The header {0} is not a length.")]
    MalformedLength(&'static str),
    /// aws-chunked without `x-amz-decoded-content-length`.
    #[error("You must provide the Content-Length HTTP header.")]
    MissingDecodedLength,
    /// The body's SHA-256 differs from `x-amz-content-sha256`.
    #[error("The provided 'x-amz-content-sha256' header does not match what was computed.")]
    WrongHash {
        /// The digest in the header.
        announced: Vec<u8>,
        /// The digest of the body.
        computed: Vec<u8>,
    },
    /// `Content-MD5` is not 16 bytes of base 64.
    #[error("The Content-MD5 you specified was invalid.")]
    MalformedMd5,
    /// The body's MD5 differs.
    #[error("The Content-MD5 you specified did not match what we received.")]
    WrongMd5,
    /// `x-amz-checksum-*` is not base 64 of the right length.
    #[error("Value for x-amz-checksum-{} {} is invalid.", .0.as_str(), if *.1 { "trailing header" } else { "header" })]
    MalformedChecksum(Algorithm, bool),
    /// The body's checksum differs.
    #[error("The {} you specified did not match the calculated checksum.", .0.as_str().to_ascii_uppercase())]
    WrongChecksum(Algorithm),
    /// The body's checksum differs, and the request gave several.
    #[error("Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.")]
    SeveralChecksums,
    /// The body's checksum differs, and `x-amz-sdk-checksum-algorithm` names another algorithm than the
    /// checksum's.
    #[error("Value for x-amz-sdk-checksum-algorithm header is invalid.")]
    OtherAlgorithm,
    /// `x-amz-trailer` names something other than a checksum, or several.
    #[error("The value specified in the x-amz-trailer header is not supported")]
    UnsupportedTrailer,
    /// The trailer is not the one that `x-amz-trailer` announced.
    #[error(
        "The request contained trailing data that was not well-formed or did not conform to our published schema."
    )]
    UnexpectedTrailer,
    /// A chunk's or the trailer's signature is wrong.
    #[error(
        "The request signature we calculated does not match the signature you provided. Check your key and \
         signing method."
    )]
    WrongSignature,
    /// The aws-chunked framing is wrong.
    #[error("{0}")]
    Framing(#[from] ChunkError),
    /// The node already holds too many bytes.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// A bug of the node: a signed body was forwarded without the lake's key.
    #[error("We encountered an internal error. Please try again.")]
    NotResigned,
}

impl PayloadError {
    /// The S3 code for the client.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::MalformedLength("x-amz-decoded-content-length") | Self::MissingDecodedLength => {
                ErrorCode::MissingContentLength
            }
            Self::MalformedLength(_) => ErrorCode::InvalidArgument,
            Self::WrongHash { .. } => ErrorCode::XAmzContentSha256Mismatch,
            Self::MalformedMd5 => ErrorCode::InvalidDigest,
            Self::WrongMd5 | Self::WrongChecksum(_) => ErrorCode::BadDigest,
            Self::MalformedChecksum(..)
            | Self::SeveralChecksums
            | Self::OtherAlgorithm
            | Self::UnsupportedTrailer
            | Self::Framing(ChunkError::ChunkTooLarge) => ErrorCode::InvalidRequest,
            Self::UnexpectedTrailer
            | Self::Framing(
                ChunkError::MalformedTrailer | ChunkError::TooManyTrailers | ChunkError::UnexpectedTrailer,
            ) => ErrorCode::MalformedTrailerError,
            Self::WrongSignature => ErrorCode::SignatureDoesNotMatch,
            Self::NotResigned => ErrorCode::InternalError,
            Self::NoRoom(_) => ErrorCode::SlowDown,
            Self::WrongLength
            | Self::Framing(
                ChunkError::Truncated
                | ChunkError::ShorterThanAnnounced
                | ChunkError::LongerThanAnnounced
                | ChunkError::MalformedSize
                | ChunkError::LineTooLong
                | ChunkError::BareNewline
                | ChunkError::MissingNewline
                | ChunkError::DataAfterEnd,
            ) => ErrorCode::IncompleteBody,
        }
    }

    fn is_of_another_length(&self) -> bool {
        matches!(
            self,
            Self::WrongLength
                | Self::Framing(ChunkError::ShorterThanAnnounced | ChunkError::LongerThanAnnounced)
        )
    }

    /// The message for the client: S3 has one sentence for lengths, one for the rest of the framing, and one
    /// for trailers.
    fn message(&self) -> String {
        match self.code() {
            ErrorCode::IncompleteBody if self.is_of_another_length() => Self::WrongLength.to_string(),
            ErrorCode::IncompleteBody => "The request body terminated unexpectedly".to_owned(),
            ErrorCode::MalformedTrailerError => Self::UnexpectedTrailer.to_string(),
            ErrorCode::MissingContentLength => Self::MissingDecodedLength.to_string(),
            _ => self.to_string(),
        }
    }
}

impl From<PayloadError> for S3Error {
    fn from(error: PayloadError) -> Self {
        let s3_error = Self::new(error.code(), error.message());
        match error {
            PayloadError::WrongHash { announced, computed } => s3_error
                .with("ClientComputedContentSHA256", hex::text(&announced))
                .with("S3ComputedContentSHA256", hex::text(&computed)),
            _ => s3_error,
        }
    }
}
