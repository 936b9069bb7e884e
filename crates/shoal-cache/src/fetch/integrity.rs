//! Verifies bytes from the lake and from peers against the checksum or MD5 that the lake reports for the
//! whole object.
//!
//! Only objects of one block are verified, because only then are all bytes known before any is stored. Bytes
//! that differ are not stored, and later reads of that version are forwarded to the lake.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use http::HeaderMap;
use lru::LruCache;
use parking_lot::Mutex;
use shoal_base::hex;
use shoal_policy::{Source, VersionId};
use shoal_s3::object::Version;
use shoal_s3::payload::{Algorithm, Digests};

use crate::fetch::read_context::ReadContext;
use crate::single_flight::FetchError;

/// Capacity of the list of mismatched versions; the oldest entry is dropped first.
const MISMATCHED_MAX: usize = 1024;

/// Objects of up to this size are verified against their ETag. MD5 does 0.6 GB/s: 7 us of CPU time for 4 KiB
/// and 27 us for an object of this size, about a tenth of the other costs of a cold read, but 7 ms for a
/// block of 4 MiB, more than all other costs. Checksums have no such limit: a CRC, which SDKs request by
/// default, does 17 GB/s.
const MD5_BYTES_MAX: u64 = 16 << 10;

/// State shared by the checks of all objects.
#[derive(Debug)]
pub(super) struct IntegrityChecks {
    mismatched: Mutex<LruCache<VersionId, ()>>,
    /// Set once an object's ETag has matched its MD5. Until then a mismatch proves nothing: some lakes use
    /// ETags that only look like an MD5.
    etags_are_md5: AtomicBool,
}

/// The check of one object: the digest that its bytes must have.
pub(super) struct IntegrityCheck<'a> {
    checks: &'a IntegrityChecks,
    version: &'a Version,
    context: &'a ReadContext,
    expected: ExpectedDigest,
}

#[derive(Debug, PartialEq, Eq)]
struct ExpectedDigest {
    algorithm: Algorithm,
    digest: Vec<u8>,
}

impl Default for IntegrityChecks {
    fn default() -> Self {
        let room = NonZeroUsize::new(MISMATCHED_MAX).expect("the bound is not zero");
        Self {
            mismatched: Mutex::new(LruCache::new(room)),
            etags_are_md5: AtomicBool::new(false),
        }
    }
}

impl IntegrityChecks {
    /// Returns the check for the bytes of `version`, if the lake reports a digest of them.
    ///
    /// # Errors
    ///
    /// Fails with `Mismatch` if this version has mismatched before.
    pub(super) fn of<'a>(
        &'a self,
        version: &'a Version,
        context: &'a ReadContext,
    ) -> Result<Option<IntegrityCheck<'a>>, FetchError> {
        if version.block_count() != 1 {
            return Ok(None);
        }
        if self.mismatched.lock().contains(&version.id) {
            return Err(FetchError::Mismatch);
        }
        let expected = ExpectedDigest::of(&version.headers, &version.etag, version.size_bytes);
        Ok(expected.map(|expected| IntegrityCheck {
            checks: self,
            version,
            context,
            expected,
        }))
    }
}

impl IntegrityCheck<'_> {
    /// Verifies the whole object in `pieces`, the last of which came from `source`, against the lake's
    /// digest.
    ///
    /// # Errors
    ///
    /// Fails with `Mismatch` if the digest differs.
    pub(super) fn verify(&self, pieces: &[Bytes], source: Source) -> Result<(), FetchError> {
        let Self { checks, expected, .. } = self;
        let by_etag = expected.algorithm == Algorithm::Md5;
        if expected.matches(pieces) {
            if by_etag {
                checks.etags_are_md5.store(true, Ordering::Relaxed);
            }
            return Ok(());
        }
        if by_etag && !checks.etags_are_md5.load(Ordering::Relaxed) {
            return Ok(());
        }
        checks.mismatched.lock().put(self.version.id, ());
        let object = self.context.target().as_str().escape_debug();
        let algorithm = expected.algorithm.as_str();
        tracing::warn!(%object, algorithm, source = source.as_str(), "bytes do not match the checksum that the lake gives for the object; they are not cached");
        Err(FetchError::Mismatch)
    }
}

impl ExpectedDigest {
    /// Returns the cheapest digest that the lake reports for the whole object.
    fn of(headers: &HeaderMap, etag: &str, size_bytes: u64) -> Option<Self> {
        let is_of_parts = headers
            .get("x-amz-checksum-type")
            .is_some_and(|kind| kind == "COMPOSITE");
        let checksum = |algorithm: Algorithm| {
            let value = headers.get(algorithm.header()?)?;
            let digest = algorithm.parse(value.as_bytes())?;
            Some(Self { algorithm, digest })
        };
        let mut cheapest_first = Algorithm::CHECKSUMS.into_iter().filter(|_| !is_of_parts);
        let md5 = || Self::of_etag(headers, etag).filter(|_| size_bytes <= MD5_BYTES_MAX);
        cheapest_first.find_map(checksum).or_else(md5)
    }

    /// An ETag of 32 hex digits is the MD5 of an object written in one request, unless it is encrypted with a
    /// key of its owner.
    fn of_etag(headers: &HeaderMap, etag: &str) -> Option<Self> {
        let encryption = headers.get("x-amz-server-side-encryption");
        if encryption.is_some_and(|kind| kind != "AES256") {
            return None;
        }
        let text = etag.strip_prefix('"')?.strip_suffix('"')?;
        let md5: [u8; 16] = hex::decode(text.as_bytes())?;
        Some(Self {
            algorithm: Algorithm::Md5,
            digest: md5.into(),
        })
    }

    fn matches(&self, pieces: &[Bytes]) -> bool {
        let mut digests = Digests::default();
        digests.add(self.algorithm);
        for piece in pieces {
            digests.update(piece);
        }
        digests.matches(self.algorithm, &self.digest)
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    /// Checksum of `123456789`.
    const CRC32: (&str, &str) = ("x-amz-checksum-crc32", "y/Q5Jg==");
    const SHA256: (&str, &str) = (
        "x-amz-checksum-sha256",
        "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=",
    );
    const ETAG: &str = "\"25f9e794323b453885f5181f1b624d0b\"";

    fn expected(
        headers: &[(&'static str, &'static str)],
        etag: &str,
        size_bytes: u64,
    ) -> Option<ExpectedDigest> {
        let pairs = headers
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)));
        ExpectedDigest::of(&pairs.collect(), etag, size_bytes)
    }

    #[test]
    fn the_cheapest_digest_of_the_whole_object_is_checked() {
        let algorithm = |headers: &[_], etag| expected(headers, etag, 9).map(|expected| expected.algorithm);
        assert_eq!(algorithm(&[SHA256, CRC32], ETAG), Some(Algorithm::Crc32));
        assert_eq!(algorithm(&[SHA256], ETAG), Some(Algorithm::Sha256));
        assert_eq!(algorithm(&[], ETAG), Some(Algorithm::Md5));
        let parts = ("x-amz-checksum-type", "COMPOSITE");
        assert_eq!(algorithm(&[CRC32, parts], ETAG), Some(Algorithm::Md5));
        assert_eq!(
            algorithm(&[("x-amz-checksum-crc32", "y/Q5Jg==-2")], "\"x-2\""),
            None
        );
        let encrypted = |kind| algorithm(&[("x-amz-server-side-encryption", kind)], ETAG);
        assert_eq!(encrypted("AES256"), Some(Algorithm::Md5));
        assert_eq!(encrypted("aws:kms"), None);
        for etag in [
            "\"25f9e794323b453885f5181f1b624d0b-2\"",
            "\"zzzz\"",
            "25f9e794323b453885f5181f1b624d0b",
        ] {
            assert_eq!(algorithm(&[], etag), None, "{etag}");
        }
    }

    #[test]
    fn an_md5_is_checked_of_small_objects_only_and_a_crc_of_all() {
        assert!(expected(&[], ETAG, MD5_BYTES_MAX).is_some());
        assert_eq!(expected(&[], ETAG, MD5_BYTES_MAX + 1), None);
        assert!(expected(&[CRC32], ETAG, u64::MAX).is_some());
    }

    #[test]
    fn a_digest_matches_its_bytes_in_any_pieces() {
        for headers in [&[CRC32][..], &[SHA256], &[]] {
            let expected = expected(headers, ETAG, 9).unwrap();
            assert!(expected.matches(&[Bytes::from("1234"), Bytes::from("56789")]));
            assert!(!expected.matches(&[Bytes::from("1234"), Bytes::from("56780")]));
            assert!(!expected.matches(&[Bytes::from("1234")]));
        }
    }
}
