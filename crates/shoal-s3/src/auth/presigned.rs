//! Presigned URLs, which carry their credentials in the query.

use std::borrow::Cow;
use std::time::Duration;

use http::HeaderMap;

use super::Refusal;
use super::claim::{self, CONTENT_SHA256, Claim};
use super::credential::Credential;
use super::location::Credentials;
use crate::names::percent::decode_query;
use crate::sigv4::canonical::split_pair;
use crate::sigv4::{ALGORITHM, PARAMETERS, Timestamp};

/// The parameter that marks a URL of signature version 2.
const OF_VERSION_2: &[u8] = b"AWSAccessKeyId";

/// Maximum lifetime of a URL, in seconds: a week.
const EXPIRES_MAX: u64 = 7 * 24 * 60 * 60;

/// The signature parameters of the query, decoded once.
#[derive(Debug, Default)]
pub(super) struct Parameters<'a> {
    /// In the order of [`PARAMETERS`].
    values: [Option<Cow<'a, [u8]>>; PARAMETERS.len()],
}

impl<'a> Parameters<'a> {
    /// Collects the parameters; `None` if the query carries no credentials.
    pub(super) fn read(query: &'a str) -> Result<Option<Self>, Refusal> {
        if query.is_empty() {
            return Ok(None);
        }
        let mut parameters = Self::default();
        for pair in query.as_bytes().split(|byte| *byte == b'&') {
            let (name, value) = split_pair(pair);
            let name = decode_query(name);
            match parameters.place_of(&name) {
                Some(place) if place.is_some() => return Err(Refusal::RepeatedParameter),
                Some(place) => *place = Some(decode_query(value)),
                None if *name == *OF_VERSION_2 => return Err(Refusal::UnsupportedSignatureVersion),
                None => {}
            }
        }
        Ok(parameters.is_claim().then_some(parameters))
    }

    /// Returns true if the parameters make a claim; the hash of a body alone does not.
    fn is_claim(&self) -> bool {
        let [claims @ .., _payload_hash] = &self.values;
        claims.iter().any(Option::is_some)
    }

    fn place_of(&mut self, name: &[u8]) -> Option<&mut Option<Cow<'a, [u8]>>> {
        if !name.starts_with(b"X-Amz-") {
            return None;
        }
        let at = PARAMETERS
            .iter()
            .position(|parameter| parameter.as_bytes() == name)?;
        Some(&mut self.values[at])
    }

    /// Builds a claim from the parameters; the first six are required.
    pub(super) fn into_claim(self, headers: &'a HeaderMap) -> Result<Claim<'a>, Refusal> {
        let [
            Some(algorithm),
            Some(credential),
            Some(date),
            Some(expires),
            Some(signed_headers),
            Some(signature),
            token,
            hash,
        ] = self.values
        else {
            return Err(Refusal::MissingParameters);
        };
        if &*algorithm != ALGORITHM.as_bytes() {
            return Err(Refusal::UnsupportedAlgorithm);
        }
        let location = Credentials::Query {
            expires: parse_expires(&expires)?,
        };
        Ok(Claim {
            location,
            credential: Credential::parse(text(credential)?, location)?,
            signed_headers: text(signed_headers)?,
            signature,
            timestamp: Timestamp::parse(&date).ok_or(Refusal::MalformedQueryDate)?,
            payload_hash: payload_hash(hash, headers)?,
            token: session_token(token, headers)?,
        })
    }
}

/// The announced payload hash; unsigned if neither header nor parameter announces one.
fn payload_hash<'a>(
    parameter: Option<Cow<'a, [u8]>>,
    headers: &'a HeaderMap,
) -> Result<Cow<'a, [u8]>, Refusal> {
    let header = headers
        .get(&CONTENT_SHA256)
        .map(|value| Cow::Borrowed(value.as_bytes()));
    match (parameter, header) {
        (Some(one), Some(other)) if one != other => Err(Refusal::TwoPayloadHashes),
        (Some(hash), _) | (None, Some(hash)) => Ok(hash),
        (None, None) => Ok(Cow::Borrowed(b"UNSIGNED-PAYLOAD")),
    }
}

/// The session token; parameter and header may not differ, as the lake might read either.
fn session_token<'a>(
    parameter: Option<Cow<'a, [u8]>>,
    headers: &'a HeaderMap,
) -> Result<Option<Cow<'a, [u8]>>, Refusal> {
    let parameter = parameter.filter(|token| !token.is_empty());
    match (parameter, claim::token(headers)) {
        (Some(one), Some(other)) if one != other => Err(Refusal::WrongToken),
        (one, other) => Ok(one.or(other)),
    }
}

fn parse_expires(value: &[u8]) -> Result<Duration, Refusal> {
    let (negative, digits) = value
        .strip_prefix(b"-")
        .map_or((false, value), |digits| (true, digits));
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Refusal::ExpiresNotANumber);
    }
    if negative {
        return Err(Refusal::ExpiresNegative);
    }
    // More digits than a number has are too long, too.
    let seconds = std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| digits.parse().ok());
    let seconds = seconds.filter(|seconds| *seconds <= EXPIRES_MAX);
    seconds.map(Duration::from_secs).ok_or(Refusal::ExpiresTooLong)
}

fn text(value: Cow<'_, [u8]>) -> Result<Cow<'_, str>, Refusal> {
    let text = match value {
        Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
        Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
    };
    text.ok_or(Refusal::MissingParameters)
}

#[cfg(test)]
mod tests {
    use super::parse_expires;
    use crate::auth::Refusal;
    use std::time::Duration;

    #[test]
    fn an_expiry_is_a_number_of_seconds_up_to_a_week() {
        assert_eq!(parse_expires(b"0").unwrap(), Duration::ZERO);
        assert_eq!(parse_expires(b"604800").unwrap(), Duration::from_hours(24 * 7));
        for text in ["604801", "99999999999999999999999999"] {
            assert!(
                matches!(parse_expires(text.as_bytes()), Err(Refusal::ExpiresTooLong)),
                "{text}"
            );
        }
        assert!(matches!(parse_expires(b"-7"), Err(Refusal::ExpiresNegative)));
        for text in ["", "-", "+7", " 7", "7s", "0x7", "7.5", "1e3"] {
            assert!(
                matches!(parse_expires(text.as_bytes()), Err(Refusal::ExpiresNotANumber)),
                "{text}"
            );
        }
    }
}
