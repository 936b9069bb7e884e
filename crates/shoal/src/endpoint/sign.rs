//! Signing a request to an endpoint: the one place that knows which signer does it.

use std::borrow::Cow;
use std::time::SystemTime;

use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PayloadChecksumKind, PercentEncodingMode, SignableBody, SignableRequest, SigningSettings,
    UriPathNormalizationMode, sign,
};
use aws_sigv4::sign::v4::SigningParams;
use http::header::{CONTENT_TYPE, HOST};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

use super::error::BoxError;
use crate::identity::Account;

/// What `x-amz-content-sha256` says about the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadHash(Cow<'static, str>);

impl PayloadHash {
    /// The hash of no bytes.
    pub const EMPTY: Self = Self(Cow::Borrowed(
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    ));
    /// The signature does not cover the body.
    pub const UNSIGNED: Self = Self(Cow::Borrowed("UNSIGNED-PAYLOAD"));

    /// A hex SHA-256, or one of the `STREAMING-…` words.
    pub fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self(text.into())
    }

    /// The header value.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The signature of a request head, from which the signatures of its chunks continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedSignature(pub String);

/// What S3 leaves as it is in the canonical path.
const CANONICAL_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// Adds `x-amz-date`, `x-amz-content-sha256`, `Authorization` and, for temporary credentials, `x-amz-security-token`.
pub(super) fn sign_request(
    method: &Method,
    target: &PathAndQuery,
    headers: &mut HeaderMap,
    account: &Account,
    region: &str,
    payload: &PayloadHash,
    now: SystemTime,
) -> Result<SeedSignature, BoxError> {
    let identity = Credentials::new(
        &account.access_key,
        account.secret_key.expose(),
        account
            .session_token
            .as_ref()
            .map(|token| token.expose().to_owned()),
        None,
        "shoal",
    )
    .into();
    let mut settings = SigningSettings::default();
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    settings.payload_checksum_kind = PayloadChecksumKind::XAmzSha256;
    let params = SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name("s3")
        .time(now)
        .settings(settings)
        .build()?
        .into();

    let signed = headers
        .iter()
        .filter(|(name, _)| is_signed(name))
        .map(|(name, value)| Ok((name.as_str(), std::str::from_utf8(value.as_bytes())?)))
        .collect::<Result<Vec<_>, BoxError>>()?;
    let body = SignableBody::Precomputed(payload.as_str().to_owned());
    let request = SignableRequest::new(method.as_str(), canonical(target), signed.into_iter(), body)?;
    let (instructions, signature) = sign(request, &params)?.into_parts();
    for header in instructions.into_parts().0 {
        let mut value = HeaderValue::from_str(header.value())?;
        value.set_sensitive(header.sensitive());
        headers.insert(HeaderName::from_static(header.name()), value);
    }
    Ok(SeedSignature(signature))
}

/// S3 demands these; other headers may be changed on the way without harm.
fn is_signed(name: &HeaderName) -> bool {
    name == HOST || name == CONTENT_TYPE || name == "content-md5" || name.as_str().starts_with("x-amz-")
}

/// The path as S3 spells it when it checks the signature: decoded once and encoded again.
fn canonical(target: &PathAndQuery) -> String {
    let decoded: Vec<u8> = percent_decode_str(target.path()).collect();
    let path = percent_encode(&decoded, CANONICAL_PATH);
    target
        .query()
        .map_or_else(|| path.to_string(), |query| format!("{path}?{query}"))
}
