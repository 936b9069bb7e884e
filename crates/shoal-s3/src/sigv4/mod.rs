//! AWS Signature Version 4: the canonical request, the signing keys, and their use on both sides.
//!
//! The front recomputes the client's signature; the lake client signs again. Both write the same canonical
//! request, so both live here. Tests compare every signature with that of `aws-sigv4`.

pub mod canonical;
mod chunks;
mod keys;
mod payload_hash;
mod sign;
mod signature;
mod timestamp;

#[cfg(test)]
mod tests;

pub use chunks::{ChunkSigner, SeedSignature};
pub use keys::{KeyCache, SigningKey};
pub use payload_hash::PayloadHash;
use shoal_base::hex;
pub use sign::{SignError, Signer};
pub use signature::Signature;
pub use timestamp::Timestamp;

/// The only supported algorithm, as the `Authorization` header and `X-Amz-Algorithm` name it.
pub const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The service in the credential scope of requests to S3.
pub const SERVICE: &str = "s3";

/// The same of requests to STS.
pub const STS: &str = "sts";

/// The last word of every credential scope.
pub const TERMINATOR: &str = "aws4_request";

/// The query parameters of a presigned URL that only the store it was made for reads: its credentials and,
/// last, the hash of the body.
pub const PARAMETERS: [&str; 8] = [
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-SignedHeaders",
    "X-Amz-Signature",
    "X-Amz-Security-Token",
    "X-Amz-Content-Sha256",
];

/// The words of a list such as `SignedHeaders`.
///
/// Like [`str::split`], which on words this short spends more time on setup than on searching.
pub fn words(list: &str, separator: u8) -> impl Iterator<Item = &str> {
    debug_assert!(separator.is_ascii(), "a word begins and ends between characters");
    let ends = memchr::memchr_iter(separator, list.as_bytes()).chain([list.len()]);
    ends.scan(0, |start, end| {
        Some(&list[std::mem::replace(start, end + 1)..end])
    })
}

/// Like [`str::split_once`], but faster if the separator is near the start.
pub fn split_once(text: &str, separator: u8) -> Option<(&str, &str)> {
    debug_assert!(separator.is_ascii(), "a part begins and ends between characters");
    let at = text.bytes().position(|byte| byte == separator)?;
    Some((&text[..at], &text[at + 1..]))
}

/// `20130524/us-east-1/s3/aws4_request`: the scope that a signature is valid for.
pub fn scope(timestamp: &Timestamp, region: &str, service: &str) -> String {
    let day = timestamp.day();
    let mut scope = String::with_capacity(day.len() + region.len() + service.len() + 15);
    for part in [day, "/", region, "/", service, "/", TERMINATOR] {
        scope.push_str(part);
    }
    scope
}

/// Returns true if `text` is the [`scope`] of a time, a region and a service.
pub fn is_scope(text: &str, timestamp: &Timestamp, region: &str, service: &str) -> bool {
    let parts = [timestamp.day(), "/", region, "/", service, "/", TERMINATOR];
    let rest = parts.iter().try_fold(text, |rest, part| rest.strip_prefix(part));
    rest == Some("")
}

/// The text whose HMAC is the signature of a request; it replaces the canonical form in its buffer.
pub fn string_to_sign(timestamp: &Timestamp, scope: &str, canonical_request: Vec<u8>) -> Vec<u8> {
    use sha2::{Digest, Sha256};

    let mut text = canonical_request;
    let digest = hex::encode(&Sha256::digest(&text).into());
    text.clear();
    for part in [
        ALGORITHM.as_bytes(),
        b"\n",
        timestamp.as_str().as_bytes(),
        b"\n",
        scope.as_bytes(),
        b"\n",
    ] {
        text.extend_from_slice(part);
    }
    text.extend_from_slice(&digest);
    text
}
