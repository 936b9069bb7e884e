//! Reasons why the gate rejects a request, each with an S3 code and message.

use std::borrow::Cow;

use super::location::Credentials;
use crate::error::{ErrorCode, S3Error};
use crate::sigv4::canonical::CanonicalError;

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident $(($data:ty))? = $code:ident, $message:literal;)*) => {
        /// Why the head of a request was rejected. Messages are S3's, where S3 has one.
        #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
        pub enum Refusal { $($(#[$doc])* #[error($message)] $name $(($data))?,)* }

        impl Refusal {
            /// The S3 error code.
            pub const fn code(&self) -> ErrorCode {
                match self { $(Self::$name { .. } => ErrorCode::$code,)* }
            }
        }
    };
}

refusals! {
    /// A header that may be present once is present twice.
    RepeatedHeader(&'static str) = InvalidRequest, "The header {0} may be given only once.";
    /// The request names no host, which HTTP/1.1 and HTTP/2 require.
    MissingHost = InvalidRequest, "The request names no host.";
    /// The `Host` header contradicts the request line or `:authority`.
    TwoHosts = InvalidRequest, "The Host header and the host of the request target differ.";
    /// Credentials in the header and in the query.
    TwoKindsOfCredentials = InvalidArgument,
        "Only one auth mechanism allowed; only the X-Amz-Algorithm query parameter, Signature query string \
         parameter or the Authorization header should be specified";
    /// Signature version 2 or 4A.
    UnsupportedSignatureVersion = InvalidRequest,
        "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.";
    /// An `Authorization` header of a type that S3 does not have.
    UnsupportedAuthorization(Box<str>) = InvalidArgument, "Unsupported Authorization Type";
    /// An `Authorization` header without anything after its type.
    AuthorizationOfOneWord(Box<str>) = InvalidArgument,
        "Authorization header is invalid -- one and only one ' ' (space) required";
    /// The `Authorization` header cannot be parsed or names another scope.
    MalformedHeader(Defect) = AuthorizationHeaderMalformed, "The authorization header is malformed; {0}";
    /// The same of the credential of a presigned URL.
    MalformedQuery(Defect) = AuthorizationQueryParametersError,
        "Error parsing the X-Amz-Credential parameter; {0}";
    /// A presigned URL whose credential and date name different days.
    OtherDay(Box<str>) = AuthorizationQueryParametersError, "{0}";
    /// A presigned URL without some of its parameters.
    MissingParameters = AuthorizationQueryParametersError,
        "Query-string authentication version 4 requires the X-Amz-Algorithm, X-Amz-Credential, \
         X-Amz-Signature, X-Amz-Date, X-Amz-SignedHeaders, and X-Amz-Expires parameters.";
    /// A presigned URL with a repeated parameter.
    RepeatedParameter = AuthorizationQueryParametersError,
        "A query-string authentication parameter may be given only once.";
    /// A presigned URL with another algorithm.
    UnsupportedAlgorithm = AuthorizationQueryParametersError,
        "X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\"";
    /// A presigned URL with a date that cannot be parsed.
    MalformedQueryDate = AuthorizationQueryParametersError,
        "X-Amz-Date must be in the ISO8601 Long Format \"yyyyMMdd'T'HHmmss'Z'\"";
    /// `X-Amz-Expires=soon`
    ExpiresNotANumber = AuthorizationQueryParametersError, "X-Amz-Expires should be a number";
    /// `X-Amz-Expires=-1`
    // AWS answers 400 to an impossible lifetime and Ceph 403, and clients are tested against Ceph's answer.
    ExpiresNegative = AccessDenied, "X-Amz-Expires must be non-negative";
    /// More than seven days.
    ExpiresTooLong = AccessDenied,
        "X-Amz-Expires must be less than a week (in seconds); that is, the given X-Amz-Expires must be less \
         than 604800 seconds";
    /// A presigned URL whose date is too far in the future.
    NotYetValid = AccessDenied, "Request is not valid yet";
    /// A presigned URL that has expired.
    Expired = AccessDenied, "Request has expired";
    /// No date, or one that cannot be parsed.
    MissingDate = AccessDenied, "AWS authentication requires a valid Date or x-amz-date header";
    /// Signed more than 15 minutes from now.
    TimeTooSkewed = RequestTimeTooSkewed,
        "The difference between the request time and the current time is too large.";
    /// No identity of this node has that access key.
    UnknownAccessKey(Box<str>) = InvalidAccessKeyId,
        "The AWS Access Key Id you provided does not exist in our records.";
    /// The same for temporary credentials, which the lake may know.
    UnknownTemporaryKey(Box<str>) = InvalidAccessKeyId,
        "This node does not know the access key. It knows temporary credentials (of a role or of STS) only if \
         they came through a node of its cluster and have not expired. Get them from a node ([sts]), or sign \
         with the access key of one of the node's identities, without a session token.";
    /// An identity of the configuration has no session token.
    TokenForStaticIdentity = InvalidToken, "The provided token is malformed or otherwise invalid.";
    /// The session token is not that of the access key.
    WrongToken = InvalidToken, "The provided token is malformed or otherwise invalid.";
    /// The temporary key of the request has expired.
    TokenExpired = ExpiredToken, "The provided token has expired.";
    /// Some headers that must be signed are not.
    UnsignedHeaders(Box<str>) = AccessDenied,
        "There were headers present in the request which were not signed";
    /// `SignedHeaders` names a header that the request lacks, or the signature is wrong: S3 does not
    /// distinguish them.
    SignatureMismatch = SignatureDoesNotMatch,
        "The request signature we calculated does not match the signature you provided. Check your key and \
         signing method.";
    /// An invalid percent-encoding in the path.
    MalformedPath = InvalidUri, "Couldn't parse the specified URI.";
    /// A signed request that does not declare how its body is protected.
    MissingPayloadHash = InvalidRequest, "Missing required header for this request: x-amz-content-sha256";
    /// An anonymous request announces a malformed hash.
    ImpossiblePayloadHash(Box<str>) = XAmzContentSha256Mismatch,
        "The provided 'x-amz-content-sha256' header does not match what was computed.";
    /// A payload hash that S3 does not define.
    UnknownPayloadHash = InvalidArgument,
        "x-amz-content-sha256 must be UNSIGNED-PAYLOAD, STREAMING-UNSIGNED-PAYLOAD-TRAILER, \
         STREAMING-AWS4-HMAC-SHA256-PAYLOAD, STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER or a valid sha256 value.";
    /// Header and query disagree about the body.
    TwoPayloadHashes = InvalidRequest,
        "The header x-amz-content-sha256 and the parameter X-Amz-Content-Sha256 differ.";
    /// aws-chunked with a presigned URL.
    StreamingWithPresigned = InvalidRequest, "A presigned request cannot have a streaming payload.";
    /// No credentials, and anonymous requests are not accepted.
    Anonymous = AccessDenied, "Access Denied";
    /// aws-chunked without credentials.
    StreamingWithoutCredentials = InvalidRequest,
        "A request without credentials cannot have a streaming payload.";
}

/// A defect of credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Defect {
    /// The defect, as a sentence.
    pub detail: Cow<'static, str>,
    /// The expected region, if the request was signed for another one: SDKs read it and sign again.
    pub region: Option<Box<str>>,
}

impl Refusal {
    /// Returns true if the node cannot verify the signature, and the lake may: it is of an unknown key, or of
    /// an unknown algorithm.
    pub(super) fn is_of_unknown(&self) -> bool {
        matches!(
            self,
            Self::UnknownAccessKey(_)
                | Self::UnknownTemporaryKey(_)
                | Self::UnsupportedSignatureVersion
                | Self::UnsupportedAlgorithm
        )
    }

    pub(super) fn malformed(location: Credentials, detail: impl Into<Cow<'static, str>>) -> Self {
        Self::malformed_in(location, detail.into(), None)
    }

    pub(super) fn malformed_in(
        location: Credentials,
        detail: Cow<'static, str>,
        region: Option<Box<str>>,
    ) -> Self {
        let defect = Defect { detail, region };
        match location {
            Credentials::Query { .. } => Self::MalformedQuery(defect),
            _ => Self::MalformedHeader(defect),
        }
    }

    /// The elements of S3's XML error that describe this refusal.
    fn details(self) -> Vec<(&'static str, String)> {
        match self {
            Self::UnsupportedAuthorization(value) | Self::AuthorizationOfOneWord(value) => vec![
                ("ArgumentName", "Authorization".to_owned()),
                ("ArgumentValue", value.into()),
            ],
            Self::MalformedHeader(Defect { region, .. }) | Self::MalformedQuery(Defect { region, .. }) => {
                region
                    .into_iter()
                    .map(|region| ("Region", region.into()))
                    .collect()
            }
            Self::UnknownAccessKey(key) | Self::UnknownTemporaryKey(key) => {
                vec![("AWSAccessKeyId", key.into())]
            }
            Self::UnsignedHeaders(names) => vec![("HeadersNotSigned", names.into())],
            Self::ImpossiblePayloadHash(hash) => vec![("ClientComputedContentSHA256", hash.into())],
            _ => Vec::new(),
        }
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
