//! Why the gate does not let a request in; each "no" has a name, a code and a sentence.

use std::borrow::Cow;

use super::claim::Place;
use crate::s3::error::{ErrorCode, S3Error};
use crate::s3::sigv2::UncoveredError;
use crate::s3::sigv4::canonical::CanonicalError;

/// A reason to refuse the head of a request. The sentences are those of S3 where S3 has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A header that may be there once is there twice.
    #[error("The header {0} may be given only once.")]
    RepeatedHeader(&'static str),
    /// HTTP/1.1 and HTTP/2 both name the host.
    #[error("The request names no host.")]
    MissingHost,
    /// The `Host` header contradicts the request line or `:authority`.
    #[error("The Host header and the host of the request target differ.")]
    TwoHosts,
    /// Credentials in the header and in the query.
    #[error(
        "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string \
         parameter or the Authorization header should be specified"
    )]
    TwoKindsOfCredentials,
    /// Signature version 4A, or version 2 where it is not let in.
    #[error("The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.")]
    UnsupportedSignatureVersion,
    /// An `Authorization` header that is not of S3.
    #[error("Unsupported Authorization Type")]
    UnsupportedAuthorization(Box<str>),
    /// An `Authorization` header without anything behind its type.
    #[error("Authorization header is invalid -- one and only one ' ' (space) required")]
    AuthorizationOfOneWord(Box<str>),
    /// The `Authorization` header or the credential in the query does not read or names another scope.
    #[error("{}; {detail}", malformed_part(*.in_query))]
    Malformed {
        /// A presigned URL, not a header.
        in_query: bool,
        /// What is wrong with it.
        detail: Cow<'static, str>,
        /// The region to sign for, if another one was: SDKs read it and sign anew.
        region: Option<Box<str>>,
    },
    /// A presigned URL whose credential is of another day than its date.
    #[error("{0}")]
    OtherDay(Box<str>),
    /// A presigned URL with some of its parameters.
    #[error(
        "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, \
         X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters."
    )]
    MissingParameters,
    /// A presigned URL of version 2 with some of its parameters.
    #[error("Query-string authentication requires the Signature, Expires and AWSAccessKeyId parameters")]
    MissingParametersOfVersion2,
    /// A presigned URL with one of its parameters twice.
    #[error("A query-string authentication parameter may be given only once.")]
    RepeatedParameter,
    /// A presigned URL with another algorithm.
    #[error("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"")]
    UnsupportedAlgorithm,
    /// A presigned URL with a date that does not read.
    #[error("X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"")]
    MalformedQueryDate,
    /// `X-Amz-Expires=soon`
    #[error("X-Amz-Expires should be a number")]
    ExpiresNotANumber,
    /// `X-Amz-Expires=-1`
    #[error("X-Amz-Expires must be non-negative")]
    ExpiresNegative,
    /// More than seven days.
    #[error(
        "X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less \
         than 604800 seconds"
    )]
    ExpiresTooLong,
    /// `Expires=soon`
    #[error("Invalid date (should be seconds since epoch)")]
    ExpiresNotATime,
    /// A presigned URL of version 2 that ends in more than seven days.
    #[error("Expires must be less than a week from now")]
    ExpiresTooLate,
    /// A presigned URL of tomorrow.
    #[error("Request is not valid yet")]
    NotYetValid,
    /// A presigned URL of yesterday.
    #[error("Request has expired")]
    Expired,
    /// No date, or one that does not read.
    #[error("AWS authentication requires a valid Date or x-amz-date header")]
    MissingDate,
    /// Signed more than 15 minutes from now.
    #[error("The difference between the request time and the current time is too large.")]
    TimeTooSkewed,
    /// Nobody here signs with that key.
    #[error("The AWS Access Key Id you provided does not exist in our records.")]
    UnknownAccessKey(Box<str>),
    /// Identities of this node have no temporary credentials.
    #[error("The provided token is malformed or otherwise invalid.")]
    TokenForStaticIdentity,
    /// Headers that must be signed are not.
    #[error("There were headers present in the request which were not signed")]
    UnsignedHeaders(Box<str>),
    /// A parameter that version 2 does not sign.
    #[error("There were parameters present in the request which were not signed: {0}")]
    UnsignedParameter(Box<str>),
    /// A name in `SignedHeaders` that the request does not carry, or a wrong signature: S3 tells no difference.
    #[error(
        "The request signature we calculated does not match the signature you provided. Check your key and \
         signing method."
    )]
    SignatureMismatch,
    /// A `%` in the path that encodes nothing.
    #[error("Couldn't parse the specified URI.")]
    MalformedPath,
    /// A signed request must say how its body is protected.
    #[error("Missing required header for this request: x-amz-content-sha256")]
    MissingPayloadHash,
    /// A stranger's body has a hash that no body has.
    #[error("The provided 'x-amz-content-sha256' header does not match what was computed.")]
    ImpossiblePayloadHash(Box<str>),
    /// A value that S3 does not define.
    #[error(
        "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, \
         STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a valid sha256 value."
    )]
    UnknownPayloadHash,
    /// Header and query disagree on the body.
    #[error("The header x-amz-content-sha256 and the parameter X-Amz-Content-Sha256 differ.")]
    TwoPayloadHashes,
    /// aws-chunked with a presigned URL.
    #[error("A presigned request cannot have a streaming payload.")]
    StreamingWithPresigned,
    /// aws-chunked with a signature that knows no chunks.
    #[error("A request signed with version 2 cannot have a streaming payload.")]
    StreamingWithVersion2,
    /// No credentials, where strangers are not let in.
    #[error("Access Denied")]
    Stranger,
    /// aws-chunked from a stranger.
    #[error("A request without credentials cannot have a streaming payload.")]
    StreamingWithoutCredentials,
}

impl Refusal {
    pub(super) fn malformed(place: Place, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::Malformed {
            in_query: matches!(place, Place::Query { .. }),
            detail: detail.into(),
            region: None,
        }
    }

    /// The elements of S3's XML that say what this refusal is about.
    fn details(self) -> Vec<(&'static str, String)> {
        match self {
            Self::UnsupportedAuthorization(value) | Self::AuthorizationOfOneWord(value) => vec![
                ("ArgumentName", "Authorization".to_owned()),
                ("ArgumentValue", value.into()),
            ],
            Self::Malformed {
                region: Some(region), ..
            } => vec![("Region", region.into())],
            Self::UnknownAccessKey(key) => vec![("AWSAccessKeyId", key.into())],
            Self::UnsignedHeaders(names) => vec![("HeadersNotSigned", names.into())],
            Self::ImpossiblePayloadHash(hash) => vec![("ClientComputedContentSHA256", hash.into())],
            _ => Vec::new(),
        }
    }

    /// The S3 code a client is told.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::RepeatedHeader(_)
            | Self::MissingHost
            | Self::TwoHosts
            | Self::UnsupportedSignatureVersion
            | Self::MissingPayloadHash
            | Self::TwoPayloadHashes
            | Self::StreamingWithPresigned
            | Self::StreamingWithVersion2
            | Self::StreamingWithoutCredentials => ErrorCode::InvalidRequest,
            Self::TwoKindsOfCredentials
            | Self::UnsupportedAuthorization(_)
            | Self::AuthorizationOfOneWord(_)
            | Self::UnknownPayloadHash => ErrorCode::InvalidArgument,
            Self::Malformed { in_query: false, .. } => ErrorCode::AuthorizationHeaderMalformed,
            Self::Malformed { in_query: true, .. }
            | Self::OtherDay(_)
            | Self::MissingParameters
            | Self::RepeatedParameter
            | Self::UnsupportedAlgorithm
            | Self::MalformedQueryDate
            | Self::ExpiresNotANumber => ErrorCode::AuthorizationQueryParametersError,
            // AWS answers 400 to an impossible lifetime, Ceph 403, and clients are tested against Ceph's.
            Self::ExpiresNegative
            | Self::ExpiresTooLong
            | Self::ExpiresNotATime
            | Self::ExpiresTooLate
            | Self::MissingParametersOfVersion2
            | Self::UnsignedParameter(_)
            | Self::NotYetValid
            | Self::Expired
            | Self::MissingDate
            | Self::Stranger
            | Self::UnsignedHeaders(_) => ErrorCode::AccessDenied,
            Self::TimeTooSkewed => ErrorCode::RequestTimeTooSkewed,
            Self::UnknownAccessKey(_) => ErrorCode::InvalidAccessKeyId,
            Self::TokenForStaticIdentity => ErrorCode::InvalidToken,
            Self::SignatureMismatch => ErrorCode::SignatureDoesNotMatch,
            Self::MalformedPath => ErrorCode::InvalidUri,
            Self::ImpossiblePayloadHash(_) => ErrorCode::XAmzContentSha256Mismatch,
        }
    }
}

fn malformed_part(in_query: bool) -> &'static str {
    if in_query {
        "Error parsing the X-Amz-Credential parameter"
    } else {
        "The authorization header is malformed"
    }
}

impl From<CanonicalError> for Refusal {
    fn from(error: CanonicalError) -> Self {
        match error {
            CanonicalError::MalformedPath => Self::MalformedPath,
            CanonicalError::MissingHeader => Self::SignatureMismatch,
        }
    }
}

impl From<UncoveredError> for Refusal {
    fn from(error: UncoveredError) -> Self {
        match error {
            UncoveredError::UnsignedParameter(name) => Self::UnsignedParameter(name.into()),
            UncoveredError::RunsOn(_) | UncoveredError::TwoValues(_) => Self::SignatureMismatch,
        }
    }
}

impl From<Refusal> for S3Error {
    fn from(refusal: Refusal) -> Self {
        let error = Self::new(refusal.code(), refusal.to_string());
        let details = refusal.details();
        Self { details, ..error }
    }
}
