//! `AKID/20130524/us-east-1/s3/aws4_request`: the access key of a signature, and the scope it is valid for.

use std::borrow::Cow;

use super::Refusal;
use super::location::Credentials;
use crate::sigv4::{TERMINATOR, Timestamp, words};

/// A credential as the request writes it: an access key and four words of scope.
#[derive(Debug)]
pub(super) struct Credential<'a> {
    text: Cow<'a, str>,
    access_key_len: usize,
    location: Credentials,
}

impl<'a> Credential<'a> {
    /// Splits from the right, because an access key may contain slashes.
    pub(super) fn parse(text: Cow<'a, str>, location: Credentials) -> Result<Self, Refusal> {
        match memchr::memrchr_iter(b'/', text.as_bytes()).nth(3) {
            Some(at) if at > 0 => Ok(Self {
                text,
                access_key_len: at,
                location,
            }),
            _ => Err(Refusal::malformed(
                location,
                "the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".",
            )),
        }
    }

    /// The access key that claims to have signed.
    pub(super) fn access_key(&self) -> &str {
        &self.text[..self.access_key_len]
    }

    /// The scope that the signature claims to be valid for.
    pub(super) fn scope(&self) -> &str {
        &self.text[self.access_key_len + 1..]
    }

    /// Describes the difference between this scope and the one that the node accepts for a request signed at
    /// `timestamp`.
    pub(super) fn refuse_scope(
        &self,
        expected_region: &str,
        expected_service: &str,
        timestamp: &Timestamp,
    ) -> Refusal {
        let mut words = words(self.scope(), b'/');
        let mut word = || words.next().expect("parse found four words");
        let (day, region, service, terminator) = (word(), word(), word(), word());
        if region != expected_region {
            let region = shown(region);
            let detail = format!("the region '{region}' is wrong; expecting '{expected_region}'");
            return Refusal::malformed_in(self.location, detail.into(), Some(expected_region.into()));
        }
        let detail = if service != expected_service {
            let service = shown(service);
            format!("incorrect service \"{service}\". This endpoint belongs to \"{expected_service}\".")
        } else if terminator != TERMINATOR {
            let terminator = shown(terminator);
            format!("incorrect terminal \"{terminator}\". This endpoint uses \"{TERMINATOR}\".")
        } else if day.len() != 8 || !day.bytes().all(|byte| byte.is_ascii_digit()) {
            let day = shown(day);
            let form = "This date in the credential must be in the format \"yyyyMMdd\".";
            format!("incorrect date format \"{day}\". {form}")
        } else {
            let signed = timestamp.day();
            let other_day = "This date is not the same as X-Amz-Date:";
            let detail = format!("Invalid credential date \"{day}\". {other_day} \"{signed}\".");
            // S3's message does not name the parameter here.
            if matches!(self.location, Credentials::Query { .. }) {
                return Refusal::OtherDay(detail.into());
            }
            detail
        };
        Refusal::malformed(self.location, detail)
    }
}

/// Cuts a client's text to a length that fits into a message.
pub(super) fn shown(word: &str) -> Cow<'_, str> {
    const LONGEST: usize = 64;
    match word.char_indices().nth(LONGEST) {
        Some((at, _)) => Cow::Owned(format!("{}…", &word[..at])),
        None => Cow::Borrowed(word),
    }
}
