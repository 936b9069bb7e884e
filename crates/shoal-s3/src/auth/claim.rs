//! A request's unverified claim about its sender.

use std::borrow::Cow;
use std::time::{Duration, SystemTime};

use http::header::{AUTHORIZATION, DATE};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::Refusal;
use super::credential::Credential;
use super::header;
use super::presigned::Parameters;
use crate::sigv4::Timestamp;

/// The expected hash of the body, or the way it is signed.
pub(super) static CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
static SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");
static AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");

/// The part of a request that carries the signature.
#[derive(Clone, Copy, Debug)]
pub(super) enum SignatureLocation {
    /// The `Authorization` header.
    Header,
    /// The query; the URL is valid for `expires`.
    Query { expires: Duration },
}

/// The one claim that a request makes, with its proof.
#[derive(Debug)]
pub(super) struct Claim<'a> {
    pub(super) location: SignatureLocation,
    pub(super) credential: Credential<'a>,
    /// Lower-case names joined by semicolons.
    pub(super) signed_headers: Cow<'a, str>,
    /// The signature as the client sent it; it should be 64 hexadecimal digits.
    pub(super) signature: Cow<'a, [u8]>,
    pub(super) timestamp: Timestamp,
    /// The last line of the canonical request.
    pub(super) payload_hash: Cow<'a, [u8]>,
    /// True if the request carries a session token.
    pub(super) has_token: bool,
}

impl<'a> Claim<'a> {
    /// Reads the one claim that a request may make; `None` if it makes none.
    pub(super) fn read(parts: &'a Parts) -> Result<Option<Self>, Refusal> {
        let query = Parameters::read(parts.uri.query().unwrap_or_default())?;
        let authorization = parts.headers.get(AUTHORIZATION).filter(|value| !value.is_empty());
        match (authorization, query) {
            (Some(_), Some(_)) => Err(Refusal::TwoKindsOfCredentials),
            (Some(authorization), None) => Self::from_header(authorization, &parts.headers).map(Some),
            (None, Some(query)) => query.into_claim(&parts.headers).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// Returns true if the credentials are in the query.
    pub(super) fn is_presigned(&self) -> bool {
        matches!(self.location, SignatureLocation::Query { .. })
    }

    fn from_header(authorization: &'a HeaderValue, headers: &'a HeaderMap) -> Result<Self, Refusal> {
        let authorization = header::Authorization::parse(authorization)?;
        let payload_hash = find(headers, &CONTENT_SHA256).ok_or(Refusal::MissingPayloadHash)?;
        Ok(Self {
            location: SignatureLocation::Header,
            credential: Credential::parse(
                Cow::Borrowed(authorization.credential),
                SignatureLocation::Header,
            )?,
            signed_headers: Cow::Borrowed(authorization.signed_headers),
            signature: Cow::Borrowed(authorization.signature.as_bytes()),
            timestamp: date(headers)?,
            payload_hash: Cow::Borrowed(payload_hash.as_bytes()),
            has_token: has_token(headers),
        })
    }
}

/// Returns true if the headers carry a session token.
pub(super) fn has_token(headers: &HeaderMap) -> bool {
    find(headers, &SECURITY_TOKEN).is_some_and(|token| !token.is_empty())
}

/// Like [`HeaderMap::get`], but faster: hashing a long `x-amz-` name takes longer than scanning a dozen
/// headers.
fn find<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a HeaderValue> {
    let mut named = headers.iter().filter(|(other, _)| *other == name);
    named.next().map(|(_, value)| value)
}

/// Reads `x-amz-date`, or else `Date` in its own format or that of signatures.
fn date(headers: &HeaderMap) -> Result<Timestamp, Refusal> {
    if let Some(date) = find(headers, &AMZ_DATE) {
        return Timestamp::parse(date.as_bytes()).ok_or(Refusal::MissingDate);
    }
    let date = headers.get(DATE).ok_or(Refusal::MissingDate)?;
    Timestamp::parse(date.as_bytes())
        .or_else(|| http_date(date))
        .ok_or(Refusal::MissingDate)
}

fn http_date(date: &HeaderValue) -> Option<Timestamp> {
    let time: SystemTime = httpdate::parse_http_date(date.to_str().ok()?).ok()?;
    Some(Timestamp::at(time))
}
