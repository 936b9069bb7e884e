//! A request's unverified claim about its sender.

use std::borrow::Cow;

use http::{HeaderMap, HeaderName, HeaderValue};

use super::credential::Credential;
use super::location::Credentials;
use crate::sigv4::Timestamp;

/// The expected hash of the body, or the way it is signed.
pub(super) static CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
static SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// The one claim that a request makes, with its proof.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    pub(super) location: Credentials,
    pub(super) credential: Credential<'a>,
    /// Lower-case names joined by semicolons.
    pub(super) signed_headers: Cow<'a, str>,
    /// The signature as the client sent it; it should be 64 hexadecimal digits.
    pub(super) signature: Cow<'a, [u8]>,
    pub(super) timestamp: Timestamp,
    /// The last line of the canonical request.
    pub(super) payload_hash: Cow<'a, [u8]>,
    /// The session token, if the request carries one.
    pub(super) token: Option<Cow<'a, [u8]>>,
}

impl Claim<'_> {
    /// Returns true if the credentials are in the query.
    pub(super) fn is_presigned(&self) -> bool {
        matches!(self.location, Credentials::Query { .. })
    }
}

/// Returns the session token that the headers carry.
pub(super) fn token(headers: &HeaderMap) -> Option<Cow<'_, [u8]>> {
    let token = find(headers, &SECURITY_TOKEN).filter(|token| !token.is_empty());
    token.map(|token| Cow::Borrowed(token.as_bytes()))
}

/// Like [`HeaderMap::get`], but faster: hashing a long `x-amz-` name takes longer than scanning a dozen
/// headers.
pub(super) fn find<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut named = headers.iter().filter(|(other, _)| *other == name);
    named.next().map(|(_, value)| value)
}
