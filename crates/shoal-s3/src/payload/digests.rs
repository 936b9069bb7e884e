//! The hashes and checksums of a body.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use shoal_base::words;

words! {
    /// A checksum that S3 knows, or `Content-MD5`.
    pub enum Algorithm {
        /// CRC-32 of ISO/IEC 3309, as in zip.
        Crc32 = "crc32",
        /// CRC-32 of Castagnoli.
        Crc32c = "crc32c",
        /// CRC-64 of the `NVMe` specification.
        Crc64Nvme = "crc64nvme",
        /// SHA-1
        Sha1 = "sha1",
        /// SHA-256
        Sha256 = "sha256",
        /// MD5
        Md5 = "md5",
    }
}

impl Algorithm {
    /// The algorithms of `x-amz-checksum-…` headers.
    pub const CHECKSUMS: [Self; 5] = [
        Self::Crc32,
        Self::Crc32c,
        Self::Crc64Nvme,
        Self::Sha1,
        Self::Sha256,
    ];

    /// The header with the checksum of a body.
    pub const fn header(self) -> Option<&'static str> {
        match self {
            Self::Crc32 => Some("x-amz-checksum-crc32"),
            Self::Crc32c => Some("x-amz-checksum-crc32c"),
            Self::Crc64Nvme => Some("x-amz-checksum-crc64nvme"),
            Self::Sha1 => Some("x-amz-checksum-sha1"),
            Self::Sha256 => Some("x-amz-checksum-sha256"),
            Self::Md5 => None,
        }
    }

    /// The algorithm of a header `x-amz-checksum-…`, given in lower case.
    pub fn of_header(name: &str) -> Option<Self> {
        let has_header = |algorithm: &Self| algorithm.header() == Some(name);
        Self::CHECKSUMS.into_iter().find(has_header)
    }

    /// Length of a digest in bytes.
    pub const fn len_bytes(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// Combines the digests and lengths of consecutive parts into the digest of the whole. `None` for
    /// algorithms whose digests cannot be combined: all but the CRCs.
    pub fn combine<'a>(self, parts: impl IntoIterator<Item = (&'a [u8], u64)>) -> Option<Vec<u8>> {
        let crc = self.crc()?;
        let number = |digest: &[u8]| {
            digest
                .iter()
                .fold(0_u64, |number, byte| number << 8 | u64::from(*byte))
        };
        let mut whole = crc_fast::Digest::new(crc).finalize();
        for (digest, len) in parts {
            whole = crc_fast::checksum_combine(crc, whole, number(digest), len);
        }
        Some(whole.to_be_bytes()[8 - self.len_bytes()..].into())
    }

    const fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Self::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Self::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            Self::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
            Self::Sha1 | Self::Sha256 | Self::Md5 => None,
        }
    }

    /// Decodes a base64 digest from a header; `None` if it is malformed or of the wrong length.
    pub fn parse(self, value: &[u8]) -> Option<Vec<u8>> {
        STANDARD
            .decode(value)
            .ok()
            .filter(|digest| digest.len() == self.len_bytes())
    }
}

/// Digests computed together while a body is streamed.
#[derive(Debug, Default)]
pub struct Digests {
    running: Vec<(Algorithm, Running)>,
}

#[derive(Debug)]
enum Running {
    Crc(crc_fast::Digest),
    Sha1(Sha1),
    Sha256(Sha256),
    Md5(Md5),
}

impl Digests {
    /// Also computes `algorithm`, from now on.
    pub fn add(&mut self, algorithm: Algorithm) {
        if self.running.iter().any(|(running, _)| *running == algorithm) {
            return;
        }
        let hasher = match (algorithm, algorithm.crc()) {
            (_, Some(crc)) => Running::Crc(crc_fast::Digest::new(crc)),
            (Algorithm::Sha1, None) => Running::Sha1(Sha1::new()),
            (Algorithm::Md5, None) => Running::Md5(Md5::new()),
            (Algorithm::Sha256, None) => Running::Sha256(Sha256::new()),
            (Algorithm::Crc32 | Algorithm::Crc32c | Algorithm::Crc64Nvme, None) => {
                unreachable!("the name of a CRC has its parameters")
            }
        };
        self.running.push((algorithm, hasher));
    }

    /// Adds the next bytes of the body.
    pub fn update(&mut self, data: &[u8]) {
        for (_, hasher) in &mut self.running {
            match hasher {
                Running::Crc(crc) => crc.update(data),
                Running::Sha1(sha1) => sha1.update(data),
                Running::Sha256(sha256) => sha256.update(data),
                Running::Md5(md5) => md5.update(data),
            }
        }
    }

    /// Returns true if the bytes added have this digest. The algorithm must have been added.
    pub fn matches(&self, algorithm: Algorithm, expected: &[u8]) -> bool {
        self.digest(algorithm) == expected
    }

    /// The digest of the bytes added; the algorithm must have been added.
    pub fn digest(&self, algorithm: Algorithm) -> Vec<u8> {
        let (_, hasher) = self
            .running
            .iter()
            .find(|(running, _)| *running == algorithm)
            .expect("what is asked for was added before the body began");
        match hasher {
            Running::Crc(crc) => crc.finalize().to_be_bytes()[8 - algorithm.len_bytes()..].into(),
            Running::Sha1(sha1) => sha1.clone().finalize().to_vec(),
            Running::Sha256(sha256) => sha256.clone().finalize().to_vec(),
            Running::Md5(md5) => md5.clone().finalize().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Algorithm, Digests};

    /// Digests of `123456789`: the check values of the CRC catalogue, RFC 1321 and the SHA test vectors.
    const CHECKS: [(Algorithm, &str); 6] = [
        (Algorithm::Crc32, "y/Q5Jg=="),
        (Algorithm::Crc32c, "4waSgw=="),
        (Algorithm::Crc64Nvme, "rosUhgp5mIg="),
        (Algorithm::Sha1, "98O8HYCOBHMq32eZZczDTKeuNEE="),
        (Algorithm::Sha256, "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
        (Algorithm::Md5, "JfnnlDI7RTiF9RgfG2JNCw=="),
    ];

    #[test]
    fn the_catalogues_check_values_come_out_however_the_bytes_are_cut() {
        for cut in 0..=9 {
            let mut digests = Digests::default();
            for (algorithm, _) in CHECKS {
                digests.add(algorithm);
                digests.add(algorithm);
            }
            digests.update(&b"123456789"[..cut]);
            digests.update(&b"123456789"[cut..]);
            for (algorithm, value) in CHECKS {
                let expected = algorithm.parse(value.as_bytes()).unwrap();
                assert!(digests.matches(algorithm, &expected), "{algorithm:?}");
                let other: Vec<u8> = expected.iter().map(|byte| byte ^ 1).collect();
                assert!(!digests.matches(algorithm, &other), "{algorithm:?}");
            }
        }
    }

    #[test]
    fn digests_of_parts_combine_to_the_digest_of_the_whole_if_they_are_crcs() {
        for (algorithm, value) in CHECKS {
            let digest = |data: &[u8]| {
                let mut digests = Digests::default();
                digests.add(algorithm);
                digests.update(data);
                digests.digest(algorithm)
            };
            let parts: [&[u8]; 4] = [b"1234", b"", b"5", b"6789"];
            let digests = parts.map(digest);
            let combined = algorithm.combine(
                digests
                    .iter()
                    .zip(parts)
                    .map(|(digest, part)| (&digest[..], part.len() as u64)),
            );
            let is_crc = algorithm.as_str().starts_with("crc");
            assert_eq!(
                combined,
                algorithm.parse(value.as_bytes()).filter(|_| is_crc),
                "{algorithm:?}"
            );
            assert_eq!(
                algorithm.combine([]),
                is_crc.then(|| digest(b"")),
                "{algorithm:?}"
            );
        }
    }

    #[test]
    fn a_digest_of_another_length_or_alphabet_does_not_parse() {
        for value in ["", "y/Q5Jg", "y_Q5Jg==", "y/Q5JgA=", "not base 64", "y/Q5Jg==\n"] {
            assert_eq!(Algorithm::Crc32.parse(value.as_bytes()), None, "{value}");
        }
    }

    #[test]
    fn only_checksum_headers_name_an_algorithm() {
        assert_eq!(
            Algorithm::of_header("x-amz-checksum-crc64nvme"),
            Some(Algorithm::Crc64Nvme)
        );
        for name in [
            "x-amz-checksum-algorithm",
            "x-amz-checksum-mode",
            "x-amz-checksum-md5",
            "crc32",
        ] {
            assert_eq!(Algorithm::of_header(name), None, "{name}");
        }
    }
}
