//! The meaning of `x-amz-content-sha256`: the hash of a body, or another way of protecting it.

use std::borrow::Cow;

use http::HeaderValue;
use shoal_base::hex;

/// SHA-256 of nothing, in hexadecimal.
pub const EMPTY_SHA256: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// The content of `x-amz-content-sha256`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadHash {
    /// The SHA-256 of the whole body.
    Sha256([u8; 32]),
    /// The signature does not cover the body.
    Unsigned,
    /// aws-chunked; every chunk is signed.
    StreamingSigned,
    /// aws-chunked; every chunk and the trailer are signed.
    StreamingSignedTrailer,
    /// aws-chunked; a checksum in the trailer, nothing signed.
    StreamingUnsignedTrailer,
}

impl PayloadHash {
    /// The hash of an empty body.
    pub fn empty() -> Self {
        Self::Sha256(hex::decode(EMPTY_SHA256.as_bytes()).expect("a digest has 64 digits"))
    }

    /// Reads the header's value; `None` if S3 does not define it.
    pub fn parse(value: &[u8]) -> Option<Self> {
        match value {
            b"UNSIGNED-PAYLOAD" => Some(Self::Unsigned),
            b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD" => Some(Self::StreamingSigned),
            b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => Some(Self::StreamingSignedTrailer),
            b"STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Some(Self::StreamingUnsignedTrailer),
            digest => hex::decode(digest).map(Self::Sha256),
        }
    }

    /// The header's text.
    pub fn as_text(&self) -> Cow<'static, str> {
        Cow::Borrowed(match self {
            Self::Sha256(digest) => {
                let digits = hex::encode(digest);
                return Cow::Owned(std::str::from_utf8(&digits).expect("digits are ASCII").to_owned());
            }
            Self::Unsigned => "UNSIGNED-PAYLOAD",
            Self::StreamingSigned => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
            Self::StreamingSignedTrailer => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
            Self::StreamingUnsignedTrailer => "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        })
    }

    /// The header's value.
    pub fn to_header_value(&self) -> HeaderValue {
        match self.as_text() {
            Cow::Borrowed(text) => HeaderValue::from_static(text),
            Cow::Owned(text) => HeaderValue::try_from(text).expect("digits make a header value"),
        }
    }

    /// Returns true if the body is framed as aws-chunked.
    pub fn is_streaming(&self) -> bool {
        matches!(self, Self::StreamingUnsignedTrailer) || self.signs_chunks()
    }

    /// Returns true if every chunk carries a signature.
    pub fn signs_chunks(&self) -> bool {
        matches!(self, Self::StreamingSigned | Self::StreamingSignedTrailer)
    }

    /// Returns true if a trailer may follow the last chunk.
    pub fn has_trailer(&self) -> bool {
        matches!(
            self,
            Self::StreamingSignedTrailer | Self::StreamingUnsignedTrailer
        )
    }
}

#[cfg(test)]
mod tests {
    use super::PayloadHash;
    use sha2::{Digest, Sha256};

    #[test]
    fn every_value_reads_back_as_it_was_written() {
        let all = [
            PayloadHash::empty(),
            PayloadHash::Unsigned,
            PayloadHash::StreamingSigned,
            PayloadHash::StreamingSignedTrailer,
            PayloadHash::StreamingUnsignedTrailer,
        ];
        for hash in all {
            assert_eq!(PayloadHash::parse(hash.to_header_value().as_bytes()), Some(hash));
        }
        assert_eq!(
            PayloadHash::empty(),
            PayloadHash::Sha256(Sha256::digest(b"").into())
        );
    }

    #[test]
    fn values_s3_does_not_know_are_none() {
        for value in [
            "",
            "unsigned-payload",
            "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD",
            "abc",
            "STREAMING-",
        ] {
            assert_eq!(PayloadHash::parse(value.as_bytes()), None, "{value}");
        }
    }
}
