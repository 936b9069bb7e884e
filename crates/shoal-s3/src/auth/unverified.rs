//! Requests whose signature this node cannot verify, because the key or the algorithm is unknown to it. A
//! node may forward them to the lake unchanged, which judges them.

use std::borrow::Cow;

use http::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HOST};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Credentials, Refusal, Verified, require_signed};
use crate::identity::Caller;
use crate::names::percent::decode_query;
use crate::payload::Payload;
use crate::sigv4::canonical::split_pair;
use crate::sigv4::{PayloadHash, words};

/// The start of the names of all algorithms of signature version 4, among them that of version 4A
/// (`AWS4-ECDSA-P256-SHA256`).
const VERSION_4: &[u8] = b"AWS4-";

/// The headers of a request that its signature covers.
#[derive(Debug, PartialEq, Eq)]
pub enum SignedHeaders<'a> {
    /// Signature version 4: these lower-case names, joined by semicolons.
    Listed(Cow<'a, [u8]>),
    /// Signature version 2 covers the same headers of every request.
    OfVersion2,
}

impl<'a> SignedHeaders<'a> {
    /// Returns the headers that the signature of a request covers; `None` for a request without a signature.
    pub fn of(headers: &'a HeaderMap, query: Option<&'a str>) -> Option<Self> {
        let header = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        match header {
            Some(text) if text.starts_with(b"AWS ") => Some(Self::OfVersion2),
            Some(text) if text.starts_with(VERSION_4) => of_header(text).map(Self::Listed),
            Some(_) => None,
            None => Self::of_query(query?),
        }
    }

    fn of_query(query: &'a str) -> Option<Self> {
        let pairs = || query.as_bytes().split(|byte| *byte == b'&').map(split_pair);
        let value = |wanted: &[u8]| {
            let mut found = pairs().filter(|(name, _)| *decode_query(name) == *wanted);
            found.next().map(|(_, value)| decode_query(value))
        };
        if value(b"X-Amz-Algorithm").is_some_and(|algorithm| algorithm.starts_with(VERSION_4)) {
            value(b"X-Amz-SignedHeaders").map(Self::Listed)
        } else {
            let is_of_version_2 = value(b"AWSAccessKeyId").is_some() && value(b"Signature").is_some();
            is_of_version_2.then_some(Self::OfVersion2)
        }
    }

    /// Returns true if the signature covers the headers of this name.
    pub fn contain(&self, name: &HeaderName) -> bool {
        match self {
            Self::Listed(names) => names
                .split(|byte| *byte == b';')
                .any(|listed| listed == name.as_str().as_bytes()),
            Self::OfVersion2 => {
                name.as_str().starts_with("x-amz-")
                    || name.as_str() == "content-md5"
                    || [CONTENT_TYPE, DATE].contains(name)
            }
        }
    }
}

/// Returns the list in an `Authorization` header.
fn of_header(authorization: &[u8]) -> Option<Cow<'_, [u8]>> {
    let text = std::str::from_utf8(authorization).ok()?;
    let (_, parts) = text.split_once(' ')?;
    let names = words(parts, b',').find_map(|part| part.trim_ascii().strip_prefix("SignedHeaders="))?;
    Some(Cow::Borrowed(names.as_bytes()))
}

/// Admits a request that the lake is to judge.
///
/// # Errors
///
/// The signature does not cover the host, or an `x-amz-*` header that the lake might obey: anyone could have
/// added it to a request that the signer sent, or to a presigned URL.
pub(super) fn admit(parts: &Parts, refusal: Refusal) -> Result<Verified, Refusal> {
    let Some(signed) = SignedHeaders::of(&parts.headers, parts.uri.query()) else {
        return Err(refusal);
    };
    check_signed(&parts.headers, &signed)?;
    let credentials = if parts.headers.contains_key(AUTHORIZATION) {
        Credentials::Header
    } else {
        let expires = std::time::Duration::ZERO;
        Credentials::Query { expires }
    };
    Ok(Verified {
        caller: Caller::Unverified,
        named: None,
        credentials,
        payload: Payload {
            hash: PayloadHash::Unsigned,
            seed: None,
        },
    })
}

fn check_signed(headers: &HeaderMap, signed: &SignedHeaders<'_>) -> Result<(), Refusal> {
    if matches!(signed, SignedHeaders::Listed(_)) && !signed.contain(&HOST) {
        return Err(Refusal::UnsignedHeaders("host".into()));
    }
    require_signed(headers, |name| signed.contain(name))
}
