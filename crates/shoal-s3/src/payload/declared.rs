//! The announcements of a request's head about its body.

use http::request::Parts;
use http::{HeaderMap, Method};
use shoal_base::hex;

use super::Payload;
use super::digests::{Algorithm, Digests};
use super::error::{malformed_digest, wrong_digest};
use crate::error::{ErrorCode, S3Error};
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

/// A digest that the body must have.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub(super) algorithm: Algorithm,
    pub(super) digest: Vec<u8>,
    origin: Origin,
}

/// Where a digest comes from, which decides the client's error if the body does not have it.
#[derive(Clone, Copy, Debug)]
enum Origin {
    /// The signature: the error contains both hashes.
    Signature,
    /// A header.
    Header,
    /// A header that contradicts another one, with the message for the client.
    ContradictedHeader(&'static str),
}

impl Expected {
    /// Compares the digest with that of the bytes received; its algorithm must have been added.
    pub(super) fn check(&self, digests: &Digests) -> Result<(), S3Error> {
        let computed = digests.digest(self.algorithm);
        if computed == self.digest {
            return Ok(());
        }
        Err(match self.origin {
            Origin::Signature => S3Error::new(
                ErrorCode::XAmzContentSha256Mismatch,
                "The provided 'x-amz-content-sha256' header does not match what was computed.",
            )
            .with("ClientComputedContentSHA256", hex::text(&self.digest))
            .with("S3ComputedContentSHA256", hex::text(&computed)),
            Origin::Header => wrong_digest(self.algorithm),
            Origin::ContradictedHeader(message) => S3Error::new(ErrorCode::InvalidRequest, message),
        })
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
    pub(super) fn read(parts: &Parts, payload: Payload) -> Result<Self, S3Error> {
        let headers = &parts.headers;
        let hash = payload.hash;
        let missing = || {
            let message = "You must provide the Content-Length HTTP header.";
            S3Error::new(ErrorCode::MissingContentLength, message)
        };
        let decoded_length = length(headers, "x-amz-decoded-content-length", missing)?;
        if hash.is_streaming() && decoded_length.is_none() {
            return Err(missing());
        }
        let mut digests = Vec::new();
        if let PayloadHash::Sha256(digest) = hash {
            digests.push(Expected {
                algorithm: Algorithm::Sha256,
                digest: digest.to_vec(),
                origin: Origin::Signature,
            });
        }
        digests.extend(checksum(headers, Algorithm::Md5)?);
        if checksums_are_of_the_body(parts) {
            digests.extend(checksums(headers)?);
        }
        let length = length(headers, "content-length", || {
            let message = "The header content-length is not a length.";
            S3Error::new(ErrorCode::InvalidArgument, message)
        })?;
        Ok(Self {
            payload,
            length,
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

/// The length in a header, if there is one; the error `malformed` for a header that is not a number.
fn length(headers: &HeaderMap, name: &str, malformed: impl Fn() -> S3Error) -> Result<Option<u64>, S3Error> {
    let Some(value) = headers.get(name) else {
        return Ok(None);
    };
    // `parse` alone would accept "+5".
    let is_number = value.as_bytes().iter().all(u8::is_ascii_digit);
    let number = value.to_str().ok().filter(|_| is_number);
    let length = number.and_then(|number| number.parse().ok());
    length.map(Some).ok_or_else(malformed)
}

/// The message for a request with several checksums, one of which is wrong or malformed.
const SEVERAL_CHECKSUMS: &str =
    "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed.";

/// The checksums that headers give. S3 refuses contradictory headers before it computes anything, so a wrong
/// checksum beside such headers is reported as a contradiction.
fn checksums(headers: &HeaderMap) -> Result<Vec<Expected>, S3Error> {
    let given = Algorithm::CHECKSUMS.map(|algorithm| checksum(headers, algorithm));
    let count = given.iter().filter(|given| !matches!(given, Ok(None))).count();
    let is_several = count + usize::from(headers.contains_key("x-amz-trailer")) > 1;
    let mut found = Vec::new();
    for given in given {
        let malformed = |error| {
            if is_several {
                S3Error::new(ErrorCode::InvalidRequest, SEVERAL_CHECKSUMS)
            } else {
                error
            }
        };
        found.extend(given.map_err(malformed)?);
    }
    for expected in &mut found {
        if is_several {
            expected.origin = Origin::ContradictedHeader(SEVERAL_CHECKSUMS);
        } else if names_another_algorithm(headers, expected.algorithm) {
            expected.origin =
                Origin::ContradictedHeader("Value for x-amz-sdk-checksum-algorithm header is invalid.");
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

fn checksum(headers: &HeaderMap, algorithm: Algorithm) -> Result<Option<Expected>, S3Error> {
    let Some(value) = headers.get(algorithm.header().unwrap_or("content-md5")) else {
        return Ok(None);
    };
    let digest = algorithm.parse(value.as_bytes());
    Ok(Some(Expected {
        algorithm,
        digest: digest.ok_or_else(|| malformed_digest(algorithm, "header"))?,
        origin: Origin::Header,
    }))
}

fn trailer(headers: &HeaderMap) -> Result<Option<Trailer>, S3Error> {
    let mut values = headers.get_all("x-amz-trailer").iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let unsupported = || {
        let message = "The value specified in the x-amz-trailer header is not supported";
        S3Error::new(ErrorCode::InvalidRequest, message)
    };
    let name = value.to_str().map_err(|_| unsupported())?;
    let name = name.trim().to_ascii_lowercase();
    let is_checksum = name.strip_prefix("x-amz-checksum-").is_some_and(|rest| {
        !rest.is_empty()
            && rest
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    });
    if values.next().is_some() || !is_checksum {
        return Err(unsupported());
    }
    Ok(Some(Trailer {
        algorithm: Algorithm::of_header(&name),
        name,
    }))
}
