//! The chain of signatures that runs through the chunks of an aws-chunked body.

use sha2::{Digest, Sha256};
use shoal_base::hex;

use super::payload_hash::EMPTY_SHA256;
use super::{Signature, SigningKey, Timestamp};

/// The start of a chain: the signature of the request head, and the inputs of that signature.
#[derive(Clone, Debug)]
pub struct SeedSignature {
    /// Signs every link of the chain.
    pub key: SigningKey,
    /// The time at which the head was signed.
    pub timestamp: Timestamp,
    /// `day/region/s3/aws4_request`
    pub scope: String,
    /// The head's signature.
    pub signature: Signature,
}

/// Computes the signatures of chunks and trailer, each from the previous one.
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
    pub fn sign_chunk(&mut self, data_sha256: &[u8; 32]) -> &Signature {
        self.sign_next(
            "AWS4-HMAC-SHA256-PAYLOAD",
            &[EMPTY_SHA256.as_bytes(), &hex::encode(data_sha256)],
        )
    }

    /// The signature of the trailer, written canonically: `name:value\n` for each header.
    pub fn sign_trailer(&mut self, canonical_trailer: &[u8]) -> &Signature {
        let digest = hex::encode(&Sha256::digest(canonical_trailer).into());
        self.sign_next("AWS4-HMAC-SHA256-TRAILER", &[&digest])
    }

    fn sign_next(&mut self, algorithm: &str, digests: &[&[u8]]) -> &Signature {
        let last = &self.last;
        let mut text = Vec::with_capacity(320);
        text.extend_from_slice(algorithm.as_bytes());
        for line in [last.timestamp.as_str(), &last.scope, last.signature.as_str()] {
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

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};
    use shoal_base::hex;
    use shoal_base::secret::Secret;

    use super::{ChunkSigner, SeedSignature};
    use crate::sigv4::{Signature, SigningKey, Timestamp, scope};

    /// The account, the day and the region of Amazon's published examples.
    fn seed(signature: &str) -> SeedSignature {
        let timestamp = Timestamp::parse(b"20130524T000000Z").unwrap();
        let secret = Secret::new("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY");
        SeedSignature {
            key: SigningKey::derive(&secret, &timestamp, "us-east-1", "s3"),
            timestamp,
            scope: scope(&timestamp, "us-east-1", "s3"),
            signature: Signature::from_mac(&hex::decode(signature.as_bytes()).unwrap()),
        }
    }

    fn sha256(data: &[u8]) -> [u8; 32] {
        Sha256::digest(data).into()
    }

    #[test]
    fn the_chunks_of_the_published_example_have_its_signatures() {
        let mut signer = ChunkSigner::new(seed(
            "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9",
        ));
        for (data, signature) in [
            (
                vec![b'a'; 65536],
                "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
            ),
            (
                vec![b'a'; 1024],
                "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
            ),
            (
                vec![],
                "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
            ),
        ] {
            assert_eq!(signer.sign_chunk(&sha256(&data)).as_str(), signature);
        }
    }

    #[test]
    fn the_trailer_of_the_published_example_has_its_signature() {
        let mut signer = ChunkSigner::new(seed(
            "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e",
        ));
        for (data, signature) in [
            (
                vec![b'a'; 65536],
                "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
            ),
            (
                vec![b'a'; 1024],
                "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
            ),
            (
                vec![],
                "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
            ),
        ] {
            assert_eq!(signer.sign_chunk(&sha256(&data)).as_str(), signature);
        }
        let signature = "d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435";
        let signed = signer.sign_trailer(b"x-amz-checksum-crc32c:sOO8/Q==\n");
        assert_eq!(signed.as_str(), signature);
    }
}
