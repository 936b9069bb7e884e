//! Reasons why the gate rejects a request, each with an S3 code and message.

use std::borrow::Cow;

use super::location::Credentials;
use crate::error::{ErrorCode, S3Error};
use crate::sigv4::canonical::CanonicalError;

/// Why the head of a request was rejected. Messages are S3's, where S3 has one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A header that may be present once is present twice.
    #[error("The header {0} may be given only once.")]
    RepeatedHeader(&'static str),
    /// The request names no host, which HTTP/1.1 and HTTP/2 require.
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
    /// Signature version 2 or 4A.
    #[error("The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.")]
    UnsupportedSignatureVersion,
    /// An `Authorization` header of a type that S3 does not have.
    #[error("Unsupported Authorization Type")]
    UnsupportedAuthorization(Box<str>),
    /// An `Authorization` header without anything after its type.
    #[error("Authorization header is invalid -- one and only one ' ' (space) required")]
    AuthorizationOfOneWord(Box<str>),
    /// The `Authorization` header or the credential in the query cannot be parsed or names another scope.
    #[error("{}; {detail}", malformed_part(*.in_query))]
    Malformed {
        /// True if the credential is in a presigned URL and not in a header.
        in_query: bool,
        /// The defect, as a sentence.
        detail: Cow<'static, str>,
        /// The expected region, if the request was signed for another one: SDKs read it and sign again.
        region: Option<Box<str>>,
    },
    /// A presigned URL whose credential and date name different days.
    #[error("{0}")]
    OtherDay(Box<str>),
    /// A presigned URL without some of its parameters.
    #[error(
        "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, \
         X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters."
    )]
    MissingParameters,
    /// A presigned URL with a repeated parameter.
    #[error("A query-string authentication parameter may be given only once.")]
    RepeatedParameter,
    /// A presigned URL with another algorithm.
    #[error("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"")]
    UnsupportedAlgorithm,
    /// A presigned URL with a date that cannot be parsed.
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
    /// A presigned URL whose date is too far in the future.
    #[error("Request is not valid yet")]
    NotYetValid,
    /// A presigned URL that has expired.
    #[error("Request has expired")]
    Expired,
    /// No date, or one that cannot be parsed.
    #[error("AWS authentication requires a valid Date or x-amz-date header")]
    MissingDate,
    /// Signed more than 15 minutes from now.
    #[error("The difference between the request time and the current time is too large.")]
    TimeTooSkewed,
    /// No identity of this node has that access key.
    #[error("The AWS Access Key Id you provided does not exist in our records.")]
    UnknownAccessKey(Box<str>),
    /// The same for temporary credentials, which the lake may know.
    #[error(
        "This node does not know the access key: it takes no temporary credentials (of a role, an instance, \
         SSO or STS). Sign with the access key of one of the node's identities, without a session token."
    )]
    UnknownTemporaryKey(Box<str>),
    /// Identities of this node have no temporary credentials.
    #[error("The provided token is malformed or otherwise invalid.")]
    TokenForStaticIdentity,
    /// Some headers that must be signed are not.
    #[error("There were headers present in the request which were not signed")]
    UnsignedHeaders(Box<str>),
    /// `SignedHeaders` names a header that the request lacks, or the signature is wrong: S3 does not
    /// distinguish them.
    #[error(
        "The request signature we calculated does not match the signature you provided. Check your key and \
         signing method."
    )]
    SignatureMismatch,
    /// An invalid percent-encoding in the path.
    #[error("Couldn't parse the specified URI.")]
    MalformedPath,
    /// A signed request that does not declare how its body is protected.
    #[error("Missing required header for this request: x-amz-content-sha256")]
    MissingPayloadHash,
    /// An anonymous request announces a malformed hash.
    #[error("The provided 'x-amz-content-sha256' header does not match what was computed.")]
    ImpossiblePayloadHash(Box<str>),
    /// A payload hash that S3 does not define.
    #[error(
        "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, \
         STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a valid sha256 value."
    )]
    UnknownPayloadHash,
    /// Header and query disagree about the body.
    #[error("The header x-amz-content-sha256 and the parameter X-Amz-Content-Sha256 differ.")]
    TwoPayloadHashes,
    /// aws-chunked with a presigned URL.
    #[error("A presigned request cannot have a streaming payload.")]
    StreamingWithPresigned,
    /// No credentials, and anonymous requests are not accepted.
    #[error("Access Denied")]
    Anonymous,
    /// aws-chunked without credentials.
    #[error("A request without credentials cannot have a streaming payload.")]
    StreamingWithoutCredentials,
}

impl Refusal {
    pub(super) fn malformed(location: Credentials, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::Malformed {
            in_query: matches!(location, Credentials::Query { .. }),
            detail: detail.into(),
            region: None,
        }
    }

    /// The elements of S3's XML error that describe this refusal.
    fn details(self) -> Vec<(&'static str, String)> {
        match self {
            Self::UnsupportedAuthorization(value) | Self::AuthorizationOfOneWord(value) => vec![
                ("ArgumentName", "Authorization".to_owned()),
                ("ArgumentValue", value.into()),
            ],
            Self::Malformed {
                region: Some(region), ..
            } => vec![("Region", region.into())],
            Self::UnknownAccessKey(key) | Self::UnknownTemporaryKey(key) => {
                vec![("AWSAccessKeyId", key.into())]
            }
            Self::UnsignedHeaders(names) => vec![("HeadersNotSigned", names.into())],
            Self::ImpossiblePayloadHash(hash) => vec![("ClientComputedContentSHA256", hash.into())],
            _ => Vec::new(),
        }
    }

    /// The S3 error code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::RepeatedHeader(_)
            | Self::MissingHost
            | Self::TwoHosts
            | Self::UnsupportedSignatureVersion
            | Self::MissingPayloadHash
            | Self::TwoPayloadHashes
            | Self::StreamingWithPresigned
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
            // AWS answers 400 to an impossible lifetime and Ceph 403, and clients are tested against Ceph's
            // answer.
            Self::ExpiresNegative
            | Self::ExpiresTooLong
            | Self::NotYetValid
            | Self::Expired
            | Self::MissingDate
            | Self::Anonymous
            | Self::UnsignedHeaders(_) => ErrorCode::AccessDenied,
            Self::TimeTooSkewed => ErrorCode::RequestTimeTooSkewed,
            Self::UnknownAccessKey(_) | Self::UnknownTemporaryKey(_) => ErrorCode::InvalidAccessKeyId,
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

impl From<Refusal> for S3Error {
    fn from(refusal: Refusal) -> Self {
        let error = Self::new(refusal.code(), refusal.to_string());
        let details = refusal.details();
        Self { details, ..error }
    }
}
