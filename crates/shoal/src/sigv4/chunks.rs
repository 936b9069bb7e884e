//! The chain of signatures that runs through the chunks of an aws-chunked body.

use sha2::{Digest, Sha256};

use super::payload_hash::EMPTY_SHA256;
use super::{SigningKey, Timestamp, hex};

/// Where a chain begins: the signature of the request head, and what it was made with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedSignature {
    /// Signs every link of the chain.
    pub key: SigningKey,
    /// When the head was signed.
    pub timestamp: Timestamp,
    /// `day/region/s3/aws4_request`
    pub scope: String,
    /// The head's signature: 64 hexadecimal digits.
    pub signature: String,
}

/// Computes the signatures of chunks and trailer, each from the one before.
#[derive(Debug)]
pub struct ChunkSigner {
    last: SeedSignature,
}

impl ChunkSigner {
    /// A chain that begins at `seed`.
    pub fn new(seed: SeedSignature) -> Self {
        Self { last: seed }
    }

    /// The signature of the next chunk, whose data has this SHA-256.
    pub fn sign_chunk(&mut self, data_sha256: &[u8; 32]) -> &str {
        self.sign_next(
            "AWS4-HMAC-SHA256-PAYLOAD",
            &[EMPTY_SHA256.as_bytes(), &hex::encode(data_sha256)],
        )
    }

    /// The signature of the trailer, written canonically: `name:value\n` for each header.
    pub fn sign_trailer(&mut self, canonical_trailer: &[u8]) -> &str {
        let digest = hex::encode(&Sha256::digest(canonical_trailer).into());
        self.sign_next("AWS4-HMAC-SHA256-TRAILER", &[&digest])
    }

    fn sign_next(&mut self, algorithm: &str, digests: &[&[u8]]) -> &str {
        let last = &self.last;
        let mut text = Vec::with_capacity(320);
        text.extend_from_slice(algorithm.as_bytes());
        for line in [last.timestamp.as_str(), &last.scope, &last.signature] {
            text.push(b'\n');
            text.extend_from_slice(line.as_bytes());
        }
        for digest in digests {
            text.push(b'\n');
            text.extend_from_slice(digest);
        }
        self.last.signature = self.last.key.sign(&text);
        &self.last.signature
    }
}
