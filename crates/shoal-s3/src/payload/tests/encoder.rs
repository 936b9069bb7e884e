//! Writes aws-chunked bodies as clients do.

use sha2::{Digest, Sha256};
use shoal_base::secret::Secret;

use crate::payload::decoder::Framing;
use crate::sigv4::{ChunkSigner, SeedSignature, SigningKey, Timestamp, scope};

/// A body to encode.
#[derive(Clone, Debug)]
pub(super) struct Encoder<'a> {
    pub(super) seed: Option<SeedSignature>,
    /// Name and value of the trailer line.
    pub(super) trailer: Option<(&'a str, &'a str)>,
    /// The end of a trailer line: CRLF, or LF CRLF as in Amazon's documentation.
    pub(super) trailer_end: &'a str,
}

impl Encoder<'_> {
    pub(super) fn framing(&self) -> Framing {
        Framing {
            signed: self.seed.is_some(),
            trailer: self.trailer.is_some(),
        }
    }

    /// Encodes `chunks`, none of which may be empty.
    pub(super) fn encode<'c>(&self, chunks: impl IntoIterator<Item = &'c [u8]>) -> Vec<u8> {
        let mut signer = self.seed.clone().map(ChunkSigner::new);
        let mut wire = Vec::new();
        for chunk in chunks {
            write_size_line(&mut wire, chunk, signer.as_mut());
            wire.extend_from_slice(chunk);
            wire.extend_from_slice(b"\r\n");
        }
        write_size_line(&mut wire, &[], signer.as_mut());
        if let Some((name, value)) = self.trailer {
            wire.extend_from_slice(format!("{name}:{value}{}", self.trailer_end).as_bytes());
            if let Some(signer) = &mut signer {
                let signature = signer.sign_trailer(format!("{name}:{value}\n").as_bytes());
                wire.extend_from_slice(format!("x-amz-trailer-signature:{signature}\r\n").as_bytes());
            }
        }
        wire.extend_from_slice(b"\r\n");
        wire
    }
}

fn write_size_line(wire: &mut Vec<u8>, chunk: &[u8], signer: Option<&mut ChunkSigner>) {
    wire.extend_from_slice(format!("{:x}", chunk.len()).as_bytes());
    if let Some(signer) = signer {
        let signature = signer.sign_chunk(&Sha256::digest(chunk).into());
        wire.extend_from_slice(format!(";chunk-signature={signature}").as_bytes());
    }
    wire.extend_from_slice(b"\r\n");
}

/// The start of the chain of signatures for the holder of `secret`.
pub(super) fn seed(secret: &str) -> SeedSignature {
    let timestamp = Timestamp::parse(b"20130524T000000Z").unwrap();
    let key = SigningKey::derive(&Secret::new(secret), &timestamp, "us-east-1", "s3");
    let signature = key.sign(b"the head of the request");
    SeedSignature {
        key,
        timestamp,
        scope: scope(&timestamp, "us-east-1", "s3"),
        signature,
    }
}
