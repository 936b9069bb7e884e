//! The announcements of a request's head about its body.

use http::request::Parts;
use http::{HeaderMap, Method};

use super::digests::{Algorithm, Digests};
use super::{Payload, PayloadError};
use crate::sigv4::PayloadHash;
use crate::sigv4::canonical::split_pair;

/// Everything that a body is checked against.
#[derive(Clone, Debug)]
pub(super) struct Announced {
    /// `x-amz-content-sha256` and the seed of the chunk signatures.
    pub(super) payload: Payload,
    /// `Content-Length`: bytes on the wire. Absent with `Transfer-Encoding: chunked`.
    pub(super) length: Option<u64>,
    /// `x-amz-decoded-content-length`: bytes of an aws-chunked body without its framing.
    pub(super) decoded_length: Option<u64>,
    /// Digests that headers give.
    pub(super) digests: Vec<Expected>,
    /// The checksum that the trailer will give.
    pub(super) trailer: Option<Trailer>,
}

/// A digest that the body must have, and the client's error if it does not.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub(super) algorithm: Algorithm,
    pub(super) digest: Vec<u8>,
    /// `None` for the hash in the signature, whose error contains both hashes.
    pub(super) otherwise: Option<PayloadError>,
}

impl Expected {
    /// Compares the digest with that of the bytes received; its algorithm must have been added.
    pub(super) fn check(&self, digests: &Digests) -> Result<(), PayloadError> {
        let computed = digests.digest(self.algorithm);
        if computed == self.digest {
            return Ok(());
        }
        Err(self.otherwise.clone().unwrap_or_else(|| PayloadError::WrongHash {
            announced: self.digest.clone(),
            computed,
        }))
    }
}

/// The one header that `x-amz-trailer` names, in lower case.
#[derive(Clone, Debug)]
pub(super) struct Trailer {
    pub(super) name: String,
    /// `None` for a checksum that this node does not know: the lake verifies it.
    pub(super) algorithm: Option<Algorithm>,
}

impl Announced {
    /// Parses the head, and reports its errors before the body is read.
    pub(super) fn read(parts: &Parts, payload: Payload) -> Result<Self, PayloadError> {
        let headers = &parts.headers;
        let hash = payload.hash;
        let decoded_length = length(headers, "x-amz-decoded-content-length")?;
        if hash.is_streaming() && decoded_length.is_none() {
            return Err(PayloadError::MissingDecodedLength);
        }
        let mut digests = Vec::new();
        if let PayloadHash::Sha256(digest) = hash {
            digests.push(Expected {
                algorithm: Algorithm::Sha256,
                digest: digest.to_vec(),
                otherwise: None,
            });
        }
        digests.extend(checksum(headers, Algorithm::Md5)?);
        if checksums_are_of_the_body(parts) {
            digests.extend(checksums(headers)?);
        }
        Ok(Self {
            payload,
            length: length(headers, "content-length")?,
            decoded_length,
            digests,
            trailer: if hash.has_trailer() {
                trailer(headers)?
            } else {
                None
            },
        })
    }
}

/// Returns true if checksums in the headers are of the body. Completing a multipart upload names the checksum
/// of the object, not of the list of parts that is sent; a copy has no body at all.
fn checksums_are_of_the_body(parts: &Parts) -> bool {
    let query = parts.uri.query().unwrap_or_default();
    let has_upload_id = query
        .split('&')
        .any(|pair| split_pair(pair.as_bytes()).0 == b"uploadId");
    let completes_upload = parts.method == Method::POST && has_upload_id;
    !completes_upload && !parts.headers.contains_key("x-amz-copy-source")
}

fn length(headers: &HeaderMap, name: &'static str) -> Result<Option<u64>, PayloadError> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    let digits = value.as_bytes();
    // `parse` alone would accept "+5".
    let number = digits
        .iter()
        .all(u8::is_ascii_digit)
        .then(|| value.to_str().ok()?.parse().ok())
        .flatten();
    number.map(Some).ok_or(PayloadError::MalformedLength(name))
}

/// The checksums that headers give. S3 refuses contradictory headers before it computes anything, so a wrong
/// checksum beside such headers is reported as a contradiction.
fn checksums(headers: &HeaderMap) -> Result<Vec<Expected>, PayloadError> {
    let given = Algorithm::CHECKSUMS.map(|algorithm| checksum(headers, algorithm));
    let count = given.iter().filter(|given| !matches!(given, Ok(None))).count();
    let is_several = count + usize::from(headers.contains_key("x-amz-trailer")) > 1;
    let mut found = Vec::new();
    for given in given {
        let malformed = |error| {
            if is_several {
                PayloadError::SeveralChecksums
            } else {
                error
            }
        };
        found.extend(given.map_err(malformed)?);
    }
    for expected in &mut found {
        if is_several {
            expected.otherwise = Some(PayloadError::SeveralChecksums);
        } else if names_another_algorithm(headers, expected.algorithm) {
            expected.otherwise = Some(PayloadError::OtherAlgorithm);
        }
    }
    Ok(found)
}

fn names_another_algorithm(headers: &HeaderMap, algorithm: Algorithm) -> bool {
    headers.get("x-amz-sdk-checksum-algorithm").is_some_and(|named| {
        !named
            .as_bytes()
            .eq_ignore_ascii_case(algorithm.as_str().as_bytes())
    })
}

fn checksum(headers: &HeaderMap, algorithm: Algorithm) -> Result<Option<Expected>, PayloadError> {
    let (name, malformed, otherwise) = match algorithm.header() {
        Some(name) => (
            name,
            PayloadError::MalformedChecksum(algorithm, false),
            PayloadError::WrongChecksum(algorithm),
        ),
        None => ("content-md5", PayloadError::MalformedMd5, PayloadError::WrongMd5),
    };
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    Ok(Some(Expected {
        algorithm,
        digest: algorithm.parse(value.as_bytes()).ok_or(malformed)?,
        otherwise: Some(otherwise),
    }))
}

fn trailer(headers: &HeaderMap) -> Result<Option<Trailer>, PayloadError> {
    let mut values = headers.get_all("x-amz-trailer").iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let name = value
        .to_str()
        .map_err(|_| PayloadError::UnsupportedTrailer)?
        .trim()
        .to_ascii_lowercase();
    let is_checksum = name.strip_prefix("x-amz-checksum-").is_some_and(|rest| {
        !rest.is_empty()
            && rest
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    });
    if values.next().is_some() || !is_checksum {
        return Err(PayloadError::UnsupportedTrailer);
    }
    Ok(Some(Trailer {
        algorithm: Algorithm::of_header(&name),
        name,
    }))
}
