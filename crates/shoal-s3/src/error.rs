//! The one table from errors to S3 answers: code, status, message.

use std::borrow::Cow;

use http::StatusCode;

/// An answer in the S3 error vocabulary. Clients see the code and the message, so neither may contain
/// secrets.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}: {message}", code.as_str())]
pub struct S3Error {
    /// The error as an S3 code.
    pub code: ErrorCode,
    /// The human-readable message.
    pub message: Cow<'static, str>,
    /// Further elements of the XML body by name, such as `AWSAccessKeyId`, in the order in which S3 writes
    /// them.
    pub details: Vec<(&'static str, String)>,
    /// True if the connection must be closed, because its framing can no longer be trusted.
    pub close: bool,
    /// True if the store behind this node certainly has not executed the request and will not.
    pub is_undone: bool,
}

impl S3Error {
    /// Creates an error with this message.
    pub fn new(code: ErrorCode, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            details: Vec::new(),
            close: false,
            is_undone: false,
        }
    }

    /// Adds an element to the XML body.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.details.push((name, value.into()));
        self
    }

    /// Marks the request as certainly not executed by the store.
    #[must_use]
    pub fn undone(mut self) -> Self {
        self.is_undone = true;
        self
    }

    /// Requests that the connection is closed after this error.
    #[must_use]
    pub fn closing(mut self) -> Self {
        self.close = true;
        self
    }
}

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $status:literal $code:literal,)*) => {
        /// The S3 error codes that this node itself answers with.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorCode { $($(#[$doc])* $name,)* }

        impl ErrorCode {
            /// All codes, for tests and documentation.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The code as S3 spells it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $code,)* }
            }

            /// Parses a code as S3 spells it; `None` if this node does not know it.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|code| code.as_str() == name)
            }

            /// The HTTP status that belongs to the code.
            pub fn status(self) -> StatusCode {
                let status: u16 = match self { $(Self::$name => $status,)* };
                StatusCode::from_u16(status).expect("the table holds valid statuses")
            }
        }
    };
}

error_codes! {
    /// 403
    AccessDenied = 403 "AccessDenied",
    /// 400
    AuthorizationHeaderMalformed = 400 "AuthorizationHeaderMalformed",
    /// 400
    AuthorizationQueryParametersError = 400 "AuthorizationQueryParametersError",
    /// 400: a checksum or Content-MD5 that the body does not have
    BadDigest = 400 "BadDigest",
    /// 409: a conditional request conflicts with a concurrent change of the object
    ConditionalRequestConflict = 409 "ConditionalRequestConflict",
    /// 400
    EntityTooLarge = 400 "EntityTooLarge",
    /// 400: a part of an upload that is not the last one
    EntityTooSmall = 400 "EntityTooSmall",
    /// 400: the signature is older than it may be
    ExpiredToken = 400 "ExpiredToken",
    /// 400: the body ended before its announced length
    IncompleteBody = 400 "IncompleteBody",
    /// 403
    InvalidAccessKeyId = 403 "InvalidAccessKeyId",
    /// 400
    InvalidArgument = 400 "InvalidArgument",
    /// 400
    InvalidBucketName = 400 "InvalidBucketName",
    /// 400
    InvalidDigest = 400 "InvalidDigest",
    /// 400: a part that was not uploaded, or is another one
    InvalidPart = 400 "InvalidPart",
    /// 400
    InvalidPartOrder = 400 "InvalidPartOrder",
    /// 416
    InvalidRange = 416 "InvalidRange",
    /// 400
    InvalidRequest = 400 "InvalidRequest",
    /// 400
    InvalidToken = 400 "InvalidToken",
    /// 400
    InvalidUri = 400 "InvalidURI",
    /// 500: for errors of this node alone, never for bad input
    InternalError = 500 "InternalError",
    /// 400
    KeyTooLongError = 400 "KeyTooLongError",
    /// 400
    MalformedTrailerError = 400 "MalformedTrailerError",
    /// 400
    MalformedXml = 400 "MalformedXML",
    /// 405
    MethodNotAllowed = 405 "MethodNotAllowed",
    /// 411
    MissingContentLength = 411 "MissingContentLength",
    /// 501
    NotImplemented = 501 "NotImplemented",
    /// 404
    NoSuchBucket = 404 "NoSuchBucket",
    /// 404
    NoSuchKey = 404 "NoSuchKey",
    /// 404
    NoSuchUpload = 404 "NoSuchUpload",
    /// 409: another operation on the same thing is in progress
    OperationAborted = 409 "OperationAborted",
    /// 412
    PreconditionFailed = 412 "PreconditionFailed",
    /// 400: bytes that are not HTTP, or whose framing is ambiguous
    BadRequest = 400 "BadRequest",
    /// 431
    RequestHeaderSectionTooLarge = 431 "RequestHeaderSectionTooLarge",
    /// 400: the client went silent in the middle of a request
    RequestTimeout = 400 "RequestTimeout",
    /// 403
    RequestTimeTooSkewed = 403 "RequestTimeTooSkewed",
    /// 403
    SignatureDoesNotMatch = 403 "SignatureDoesNotMatch",
    /// 503
    SlowDown = 503 "SlowDown",
    /// 502: the lake cannot be reached or broke off
    BadGateway = 502 "BadGateway",
    /// 504: the lake gave no answer in time
    GatewayTimeout = 504 "GatewayTimeout",
    /// 504: only-if-cached, and the object is not cached
    NotCached = 504 "NotCached",
    /// 503
    ServiceUnavailable = 503 "ServiceUnavailable",
    /// 400
    XAmzContentSha256Mismatch = 400 "XAmzContentSHA256Mismatch",
}

#[cfg(test)]
mod tests {
    use super::ErrorCode;

    #[test]
    fn the_reference_has_each_code_with_its_status_and_no_other() {
        let page = include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/reference/errors.md"
        ));
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
        let mut named: Vec<String> = rows
            .filter_map(|row| {
                let (code, rest) = row.split_once("` | ")?;
                Some(format!("{code} {}", rest.split_once(' ')?.0))
            })
            .collect();
        named.sort_unstable();
        let codes = ErrorCode::ALL.iter();
        let mut known: Vec<String> = codes
            .map(|code| format!("{} {}", code.as_str(), code.status().as_u16()))
            .collect();
        known.sort_unstable();
        assert_eq!(named, known);
    }
}
