//! Requests to an endpoint.

use http::uri::PathAndQuery;
use http::{HeaderMap, Method};
use sha2::{Digest as _, Sha256};
use shoal_policy::fair::Payer;
use shoal_s3::sigv4::PayloadHash;

use super::account::LakeAccount;
use super::request_body::RequestBody;

/// A request to an endpoint.
pub struct EndpointRequest {
    /// The name of the S3 operation, for metrics and errors.
    pub operation: &'static str,
    /// The method.
    pub method: Method,
    /// The target in path style (`/bucket/key?query`), sent unchanged.
    pub target: PathAndQuery,
    /// End-to-end headers, see [`end_to_end`](shoal_s3::hop_by_hop::end_to_end). `Endpoint::send` adds host,
    /// length, date and signature, and disables content encoding unless `Accept-Encoding` is set.
    pub headers: HeaderMap,
    /// The body.
    pub body: RequestBody,
    /// True if the body must be held back until the endpoint requests it (`Expect: 100-continue`), for at
    /// most a second. If the response arrives first, the body is never polled.
    pub expects_continue: bool,
    /// The body's hash for the signature.
    pub payload: PayloadHash,
    /// The account to sign with.
    pub account: LakeAccount,
    /// The payer whose turn the request takes.
    pub payer: Payer,
}

impl EndpointRequest {
    /// Creates a request without headers and without a body.
    pub fn new(
        operation: &'static str,
        method: Method,
        target: PathAndQuery,
        account: LakeAccount,
        payer: Payer,
    ) -> Self {
        Self {
            operation,
            method,
            target,
            headers: HeaderMap::new(),
            body: RequestBody::Empty,
            expects_continue: false,
            payload: PayloadHash::empty(),
            account,
            payer,
        }
    }

    /// Returns the request with these headers and no others.
    #[must_use]
    pub fn with_headers(self, headers: HeaderMap) -> Self {
        Self { headers, ..self }
    }

    /// Returns the request with this body. The signature covers a body in memory, and the chunks of a seeded
    /// one; it does not cover a stream.
    #[must_use]
    pub fn with_body(self, body: RequestBody) -> Self {
        let payload = match &body {
            RequestBody::Empty => PayloadHash::empty(),
            RequestBody::Whole(bytes) => PayloadHash::Sha256(Sha256::digest(bytes).into()),
            RequestBody::Seeded { .. } => PayloadHash::StreamingSigned,
            RequestBody::Stream { .. } => PayloadHash::Unsigned,
        };
        Self {
            body,
            payload,
            ..self
        }
    }
}
