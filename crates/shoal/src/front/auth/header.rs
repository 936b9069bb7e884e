//! The `Authorization` header: `AWS4-HMAC-SHA256 Credential=…, SignedHeaders=…, Signature=…`.

use http::HeaderValue;

use super::Refusal;
use super::claim::Place;
use crate::sigv4::{ALGORITHM, words};

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
        let (mut credential, mut signed_headers, mut signature) = (None, None, None);
        for part in words(parts, b',') {
            let part = part.trim_ascii();
            let (place, value) = if let Some(value) = part.strip_prefix("Credential=") {
                (&mut credential, value)
            } else if let Some(value) = part.strip_prefix("SignedHeaders=") {
                (&mut signed_headers, value)
            } else if let Some(value) = part.strip_prefix("Signature=") {
                (&mut signature, value)
            } else {
                return Err(unexpected(part));
            };
            if place.replace(value).is_some() {
                return Err(malformed("a part is given twice."));
            }
        }
        let missing = |name| move || malformed(name);
        Ok(Self {
            credential: credential.ok_or_else(missing("missing Credential."))?,
            signed_headers: signed_headers.ok_or_else(missing("missing SignedHeaders."))?,
            signature: signature.ok_or_else(missing("missing Signature."))?,
        })
    }
}

fn unexpected(part: &str) -> Refusal {
    malformed(if part.contains('=') {
        "only Credential, SignedHeaders and Signature are expected."
    } else {
        "a part has no \"=\" sign."
    })
}

fn malformed(detail: &'static str) -> Refusal {
    Refusal::malformed(Place::Header, detail)
}

/// Signature version 4A is told what to use instead; anything else is no S3 authorization.
fn unsupported(algorithm: &str) -> Refusal {
    if algorithm.starts_with("AWS4-") {
        Refusal::UnsupportedSignatureVersion
    } else {
        let name = algorithm.split(' ').next().unwrap_or_default();
        Refusal::UnsupportedAuthorization(name.into())
    }
}

#[cfg(test)]
mod tests {
    use super::Authorization;
    use crate::front::auth::Refusal;
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
        for text in [
            "AWS4-HMAC-SHA256",
            "AWS4-HMAC-SHA256 Credential=a,SignedHeaders=host",
            "AWS4-HMAC-SHA256 Credential=a,Credential=b,SignedHeaders=host,Signature=7",
            "AWS4-HMAC-SHA256 Credential=a,SignedHeaders=host,Signature=7,",
            "AWS4-HMAC-SHA256 Credential=a,SignedHeaders=host,Signature=7,Region=x",
        ] {
            assert!(matches!(parse(text), Err(Refusal::Malformed { .. })), "{text}");
        }
    }

    #[test]
    fn other_ways_to_authorize_are_told_apart() {
        let version = |text| parse(text).unwrap_err();
        assert!(matches!(
            version("AWS4-ECDSA-P256-SHA256 Credential=a"),
            Refusal::UnsupportedSignatureVersion
        ));
        for text in [
            "AWS HAHAHA",
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
