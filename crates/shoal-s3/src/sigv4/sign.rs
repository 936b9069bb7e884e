//! Signs requests to the lake in the `Authorization` header.

use std::time::SystemTime;

use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method};

use super::canonical::{self, CanonicalError};
use super::{ALGORITHM, KeyCache, PayloadHash, SeedSignature, Timestamp, scope};
use crate::identity::Account;

const X_AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");
const X_AMZ_CONTENT_SHA256: HeaderName = HeaderName::from_static("x-amz-content-sha256");
const X_AMZ_SECURITY_TOKEN: HeaderName = HeaderName::from_static("x-amz-security-token");

/// The signing account, and the region it signs for.
#[derive(Clone, Copy, Debug)]
pub struct Signer<'a> {
    /// The account at the lake.
    pub account: &'a Account,
    /// The lake's region.
    pub region: &'a str,
    /// Cache of derived keys.
    pub keys: &'a KeyCache,
}

/// The reason why a request cannot be signed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// `Host` is missing; code that knows the endpoint sets it before signing.
    #[error("a request without Host cannot be signed")]
    MissingHost,
    /// The path or query cannot be written canonically.
    #[error("a request cannot be signed: {0}")]
    NotCanonical(#[from] CanonicalError),
    /// The account's key or token holds bytes that no header can carry.
    #[error("the account's access key or session token does not fit into a header")]
    UnprintableCredentials,
}

impl Signer<'_> {
    /// Sets `x-amz-date`, `x-amz-content-sha256`, `x-amz-security-token` and `authorization`.
    ///
    /// `host`, every `x-amz-*` header, `content-type` and `content-md5` are signed; headers of the connection
    /// are not, because proxies rewrite them.
    ///
    /// # Errors
    ///
    /// Fails without `host`, with a path that has no canonical form, or with credentials that fit into no
    /// header.
    pub fn sign(
        &self,
        method: &Method,
        target: &PathAndQuery,
        headers: &mut HeaderMap,
        payload: PayloadHash,
        now: SystemTime,
    ) -> Result<SeedSignature, SignError> {
        let timestamp = Timestamp::at(now);
        self.set_headers(headers, &timestamp, payload)?;
        let signed_headers = signed_headers(headers);
        let seed = self.signature(method, target, headers, &signed_headers, payload, timestamp)?;

        let authorization = [
            ALGORITHM,
            " Credential=",
            &self.account.access_key,
            "/",
            &seed.scope,
            ", SignedHeaders=",
            &signed_headers,
            ", Signature=",
            seed.signature.as_str(),
        ]
        .concat();
        headers.insert(AUTHORIZATION, secret_value(&authorization)?);
        Ok(seed)
    }

    fn set_headers(
        &self,
        headers: &mut HeaderMap,
        timestamp: &Timestamp,
        payload: PayloadHash,
    ) -> Result<(), SignError> {
        let date = HeaderValue::from_str(timestamp.as_str()).expect("a timestamp is a header value");
        headers.insert(X_AMZ_DATE, date);
        headers.insert(X_AMZ_CONTENT_SHA256, payload.to_header_value());
        match &self.account.session_token {
            Some(token) => headers.insert(X_AMZ_SECURITY_TOKEN, secret_value(token.expose())?),
            None => headers.remove(X_AMZ_SECURITY_TOKEN),
        };
        Ok(())
    }

    pub(super) fn signature(
        &self,
        method: &Method,
        target: &PathAndQuery,
        headers: &HeaderMap,
        signed_headers: &str,
        payload: PayloadHash,
        timestamp: Timestamp,
    ) -> Result<SeedSignature, SignError> {
        let Account {
            access_key,
            secret_key,
            ..
        } = self.account;
        let key = self.keys.key(access_key, secret_key, &timestamp, self.region);
        let scope = scope(&timestamp, self.region, self.keys.service());
        let signature = canonical::Request {
            method: method.as_str(),
            path: target.path(),
            query: target.query().unwrap_or_default(),
            headers,
            host: headers.get(HOST).ok_or(SignError::MissingHost)?.as_bytes(),
            signed_headers,
            payload_hash: payload.as_text().as_bytes(),
        }
        .sign(&key, &timestamp, &scope)?;
        Ok(SeedSignature {
            key,
            timestamp,
            scope,
            signature,
        })
    }
}

/// The names to sign, in order, joined by semicolons.
pub(super) fn signed_headers(headers: &HeaderMap) -> String {
    let matters = |name: &HeaderName| {
        *name == HOST || *name == CONTENT_TYPE || name == "content-md5" || name.as_str().starts_with("x-amz-")
    };
    let mut names: Vec<&str> = headers
        .keys()
        .filter(|name| matters(name))
        .map(HeaderName::as_str)
        .collect();
    names.sort_unstable();
    names.join(";")
}

fn secret_value(text: &str) -> Result<HeaderValue, SignError> {
    let mut value = HeaderValue::from_str(text).map_err(|_| SignError::UnprintableCredentials)?;
    value.set_sensitive(true);
    Ok(value)
}
