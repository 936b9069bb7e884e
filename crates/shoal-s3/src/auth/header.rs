//! The `Authorization` header: `AWS4-HMAC-SHA256 Credential=…, SignedHeaders=…, Signature=…`.

use std::borrow::Cow;
use std::time::SystemTime;

use http::header::DATE;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::Refusal;
use super::claim::{CONTENT_SHA256, Claim, find, token};
use super::credential::{Credential, shown};
use super::location::Credentials;
use crate::sigv4::{ALGORITHM, Timestamp, split_once, words};

static AMZ_DATE: HeaderName = HeaderName::from_static("x-amz-date");

/// The three parts of the header.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Authorization<'a> {
    pub(super) credential: &'a str,
    pub(super) signed_headers: &'a str,
    pub(super) signature: &'a str,
}

impl<'a> Authorization<'a> {
    /// Reads the header: each part once, in any order, separated by commas with or without spaces.
    pub(super) fn parse(value: &'a HeaderValue) -> Result<Self, Refusal> {
        let text = value.to_str().map_err(|_| malformed("it is not ASCII."))?;
        let parts = match text.strip_prefix(ALGORITHM) {
            Some(rest) if rest.is_empty() || rest.starts_with(' ') => rest,
            _ => return Err(unsupported(text)),
        };
        let mut parts = words(parts, b',');
        let (Some(first), Some(second), Some(third), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(malformed(
                "the authorization header requires three components: Credential, SignedHeaders, and Signature.",
            ));
        };
        let (mut credential, mut signed_headers, mut signature) = (None, None, None);
        for part in [first, second, third] {
            let part = part.trim_ascii();
            let Some((name, value)) = split_once(part, b'=') else {
                let part = shown(part);
                return Err(malformed(format!(
                    "the authorization component \"{part}\" is malformed."
                )));
            };
            // There are exactly three parts, so an unknown or repeated one means that another is missing.
            match name {
                "Credential" => credential = Some(value),
                "SignedHeaders" => signed_headers = Some(value),
                "Signature" => signature = Some(value),
                _ => {}
            }
        }
        let missing = |sentence: &'static str| move || malformed(sentence);
        Ok(Self {
            credential: credential.ok_or_else(missing("missing Credential."))?,
            signed_headers: signed_headers.ok_or_else(missing("missing SignedHeaders."))?,
            signature: signature.ok_or_else(missing("missing Signature."))?,
        })
    }

    /// Builds a claim from the header and from those that give the time and the payload hash.
    pub(super) fn into_claim(self, headers: &'a HeaderMap) -> Result<Claim<'a>, Refusal> {
        let payload_hash = find(headers, &CONTENT_SHA256).ok_or(Refusal::MissingPayloadHash)?;
        let location = Credentials::Header;
        Ok(Claim {
            location,
            credential: Credential::parse(Cow::Borrowed(self.credential), location)?,
            signed_headers: Cow::Borrowed(self.signed_headers),
            signature: Cow::Borrowed(self.signature.as_bytes()),
            timestamp: date(headers)?,
            payload_hash: Cow::Borrowed(payload_hash.as_bytes()),
            token: token(headers),
        })
    }
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

fn malformed(detail: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal::malformed(Credentials::Header, detail)
}

/// Returns S3's error for signature versions 2 and 4A, which names the supported one, or for an unknown type.
fn unsupported(algorithm: &str) -> Refusal {
    match algorithm.split_once(' ') {
        Some(("AWS", _)) => Refusal::UnsupportedSignatureVersion,
        _ if algorithm.starts_with("AWS4-") => Refusal::UnsupportedSignatureVersion,
        Some((name, _)) => Refusal::UnsupportedAuthorization(name.into()),
        None => Refusal::AuthorizationOfOneWord(algorithm.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::Authorization;
    use crate::auth::Refusal;
    use http::HeaderValue;

    fn parse(text: &'static str) -> Result<Authorization<'static>, Refusal> {
        let value: &'static HeaderValue = Box::leak(Box::new(HeaderValue::from_static(text)));
        Authorization::parse(value)
    }

    #[test]
    fn the_parts_are_found_with_and_without_spaces_in_any_order() {
        let expected = Authorization {
            credential: "a/b/c/d/e",
            signed_headers: "host;x",
            signature: "77",
        };
        for text in [
            "AWS4-HMAC-SHA256 Credential=a/b/c/d/e,SignedHeaders=host;x,Signature=77",
            "AWS4-HMAC-SHA256 Credential=a/b/c/d/e, SignedHeaders=host;x, Signature=77",
            "AWS4-HMAC-SHA256  Signature=77 ,SignedHeaders=host;x,  Credential=a/b/c/d/e",
        ] {
            assert_eq!(parse(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn a_part_missing_unknown_or_given_twice_is_malformed() {
        let three =
            "the authorization header requires three components: Credential, SignedHeaders, and Signature.";
        for (text, expected) in [
            ("AWS4-HMAC-SHA256", three),
            ("AWS4-HMAC-SHA256 Credential=a,SignedHeaders=host", three),
            (
                "AWS4-HMAC-SHA256 Credential=a,Credential=b,SignedHeaders=host,Signature=7",
                three,
            ),
            (
                "AWS4-HMAC-SHA256 Credential=a,SignedHeaders=host,Signature=7,",
                three,
            ),
            (
                "AWS4-HMAC-SHA256 Credential=a,SignedHeaders=host,Signature=7,Region=x",
                three,
            ),
            (
                "AWS4-HMAC-SHA256 Credential=a,Credential=b,Signature=7",
                "missing SignedHeaders.",
            ),
            (
                "AWS4-HMAC-SHA256 x=a,SignedHeaders=host,Signature=7",
                "missing Credential.",
            ),
            (
                "AWS4-HMAC-SHA256 Credential=a,SignedHeaders=host,x=7",
                "missing Signature.",
            ),
            (
                "AWS4-HMAC-SHA256 Credential=a,SignedHeaders-host,Signature=7",
                "the authorization component \"SignedHeaders-host\" is malformed.",
            ),
        ] {
            let refusal = parse(text).unwrap_err().to_string();
            let told = refusal.strip_prefix("The authorization header is malformed; ");
            assert_eq!(told, Some(expected), "{text}");
        }
    }

    #[test]
    fn other_ways_to_authorize_are_told_apart() {
        let version = |text| parse(text).unwrap_err();
        for text in [
            "AWS4-ECDSA-P256-SHA256 Credential=a",
            "AWS a:frJIUN8DYpKDtOLCwo//yllqDzg=",
            "AWS HAHAHA",
        ] {
            assert_eq!(version(text), Refusal::UnsupportedSignatureVersion, "{text}");
        }
        for text in ["invalid", "AWS"] {
            assert_eq!(version(text), Refusal::AuthorizationOfOneWord(text.into()));
        }
        for text in [
            "AWSX a:b",
            "Basic YTpi",
            "Bearer x",
            "aws4-hmac-sha256 Credential=a",
        ] {
            assert!(
                matches!(version(text), Refusal::UnsupportedAuthorization(_)),
                "{text}"
            );
        }
    }
}
