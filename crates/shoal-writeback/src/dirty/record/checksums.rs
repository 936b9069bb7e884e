//! The checksums of multipart uploads: one for each part, and one for the object, computed from those of the
//! parts or from all bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use shoal_base::encoding::Malformed;
use shoal_cache::write::Uncached;
use shoal_net::words;
use shoal_s3::payload::{Algorithm, Digests};
use shoal_s3::xml::Element;

use crate::headers::those;

const ALGORITHM: HeaderName = HeaderName::from_static("x-amz-checksum-algorithm");
const TYPE: HeaderName = HeaderName::from_static("x-amz-checksum-type");

/// A digest and its algorithm.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "(String, Vec<u8>)", into = "(String, Vec<u8>)")]
pub struct Checksum {
    /// The algorithm, one of those that S3 defines.
    pub algorithm: Algorithm,
    /// The bytes of the digest.
    pub digest: Vec<u8>,
}

words! {
    /// The data that an object's checksum is computed from.
    pub enum ChecksumType {
        /// The checksums of the parts.
        Composite = "COMPOSITE",
        /// The bytes of the object.
        FullObject = "FULL_OBJECT",
    }
}

/// The checksum that an upload was created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChecksumSpec {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The data that the object's checksum is computed from.
    pub kind: ChecksumType,
}

impl Checksum {
    /// Returns the digest in base64, as in headers.
    pub fn text(&self) -> String {
        STANDARD.encode(&self.digest)
    }

    /// Returns the header that carries the checksum.
    pub fn header(&self) -> (HeaderName, HeaderValue) {
        (name_of(self.algorithm), text(&self.text()))
    }

    /// Returns the XML element of the checksum in a list of parts.
    pub fn element(&self) -> Element {
        Element::leaf(&element_name(self.algorithm), &self.text())
    }
}

/// Returns the name of the algorithm, and the digest, as records have them.
impl From<Checksum> for (String, Vec<u8>) {
    fn from(Checksum { algorithm, digest }: Checksum) -> Self {
        (algorithm.as_str().into(), digest)
    }
}

impl TryFrom<(String, Vec<u8>)> for Checksum {
    type Error = Malformed;

    fn try_from((algorithm, digest): (String, Vec<u8>)) -> Result<Self, Malformed> {
        let is_it = |known: &Algorithm| known.as_str() == algorithm && known.len_bytes() == digest.len();
        let algorithm = Algorithm::CHECKSUMS.into_iter().find(is_it).ok_or(Malformed)?;
        Ok(Self { algorithm, digest })
    }
}

/// Returns the name of the XML element that holds a checksum.
pub fn element_name(algorithm: Algorithm) -> String {
    format!("Checksum{}", algorithm.as_str().to_uppercase())
}

impl ChecksumSpec {
    /// Parses the headers of a `CreateMultipartUpload`. Returns `None` if they name no checksum.
    ///
    /// # Errors
    ///
    /// The node does not support the algorithm or the type.
    pub fn from_headers(headers: &HeaderMap) -> Result<Option<Self>, Uncached> {
        let Some(name) = headers.get(ALGORITHM) else {
            return Ok(None);
        };
        let name = name.to_str().unwrap_or_default().to_ascii_lowercase();
        let mut known = Algorithm::CHECKSUMS.into_iter();
        let algorithm = known.find(|algorithm| algorithm.as_str() == name);
        let algorithm = algorithm.ok_or(Uncached::Dialect)?;
        let kind = match headers.get(TYPE).map(HeaderValue::as_bytes) {
            Some(b"COMPOSITE") => ChecksumType::Composite,
            Some(b"FULL_OBJECT") if algorithm.combine([]).is_some() => ChecksumType::FullObject,
            Some(_) => return Err(Uncached::Dialect),
            None if algorithm == Algorithm::Crc64Nvme => ChecksumType::FullObject,
            None => ChecksumType::Composite,
        };
        Ok(Some(Self { algorithm, kind }))
    }

    /// Returns the checksum headers for reads of the object, computed from the digests and sizes of its
    /// parts.
    pub fn headers_of_object(self, parts: &[(&[u8], u64)]) -> HeaderMap {
        let value = match self.kind {
            ChecksumType::Composite => {
                let mut digests = Digests::default();
                digests.add(self.algorithm);
                for (digest, _) in parts {
                    digests.update(digest);
                }
                let digest = STANDARD.encode(digests.digest(self.algorithm));
                format!("{digest}-{}", parts.len())
            }
            ChecksumType::FullObject => {
                let whole = self.algorithm.combine(parts.iter().copied());
                let whole = whole.expect("only a CRC is one of the whole object");
                STANDARD.encode(whole)
            }
        };
        let mut headers = HeaderMap::new();
        headers.insert(name_of(self.algorithm), text(&value));
        headers.insert(TYPE, HeaderValue::from_static(self.kind.as_str()));
        headers
    }
}

/// Returns true if `named`, the checksum in a completion, is the object's. Lakes accept a composite checksum
/// with the number of parts appended and, as minio-go sends it, without.
pub(crate) fn is_named(computed: &HeaderValue, named: &HeaderValue) -> bool {
    let digest = computed.as_bytes().split(|byte| *byte == b'-').next();
    named == computed || digest == Some(named.as_bytes())
}

/// Adds the type of a checksum that was sent with an object's bytes, because lakes show it beside the
/// checksum.
pub(crate) fn add_type(headers: &mut HeaderMap) {
    let has_checksum = headers
        .keys()
        .any(|name| Algorithm::of_header(name.as_str()).is_some());
    if has_checksum {
        headers
            .entry(TYPE)
            .or_insert(HeaderValue::from_static(ChecksumType::FullObject.as_str()));
    }
}

/// Returns the headers that create an upload at the lake: the object's, without those that describe its
/// bytes.
pub(crate) fn creation_headers(headers: &HeaderMap) -> HeaderMap {
    let is_of_bytes = |name: &HeaderName| {
        let is_checksum = name.as_str().starts_with("x-amz-checksum-") && ![ALGORITHM, TYPE].contains(name);
        name == "content-md5" || is_checksum
    };
    those(headers, |name| !is_of_bytes(name))
}

fn name_of(algorithm: Algorithm) -> HeaderName {
    let name = format!("x-amz-checksum-{}", algorithm.as_str());
    HeaderName::try_from(name).expect("an algorithm's name is that of a header")
}

fn text(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("base 64 is a header value")
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use http::{HeaderMap, HeaderValue};
    use shoal_s3::payload::{Algorithm, Digests};

    use super::{ChecksumSpec, ChecksumType, creation_headers, is_named};
    use shoal_cache::write::Uncached;

    fn created(
        algorithm: &'static str,
        kind: Option<&'static str>,
    ) -> Result<Option<ChecksumSpec>, Uncached> {
        let mut headers = HeaderMap::new();
        headers.insert(super::ALGORITHM, HeaderValue::from_static(algorithm));
        if let Some(kind) = kind {
            headers.insert(super::TYPE, HeaderValue::from_static(kind));
        }
        ChecksumSpec::from_headers(&headers)
    }

    #[test]
    fn an_upload_has_the_checksum_that_its_creation_says_or_none() {
        let is = |algorithm, kind| Ok(Some(ChecksumSpec { algorithm, kind }));
        assert_eq!(ChecksumSpec::from_headers(&HeaderMap::new()), Ok(None));
        assert_eq!(
            created("CRC32", None),
            is(Algorithm::Crc32, ChecksumType::Composite)
        );
        assert_eq!(
            created("CRC64NVME", None),
            is(Algorithm::Crc64Nvme, ChecksumType::FullObject)
        );
        assert_eq!(
            created("CRC32C", Some("FULL_OBJECT")),
            is(Algorithm::Crc32c, ChecksumType::FullObject)
        );
        assert_eq!(created("ADLER", None), Err(Uncached::Dialect));
        assert_eq!(created("CRC32", Some("HALF")), Err(Uncached::Dialect));
        assert_eq!(created("SHA256", Some("FULL_OBJECT")), Err(Uncached::Dialect));
    }

    #[test]
    fn the_checksum_of_an_object_is_of_its_parts_or_of_its_bytes() {
        let digest = |data: &[u8]| {
            let mut digests = Digests::default();
            digests.add(Algorithm::Crc32);
            digests.update(data);
            digests.digest(Algorithm::Crc32)
        };
        let (first, second) = (digest(b"1234"), digest(b"56789"));
        let of = |kind| {
            let checksum_spec = ChecksumSpec {
                algorithm: Algorithm::Crc32,
                kind,
            };
            let headers = checksum_spec.headers_of_object(&[(&first, 4), (&second, 5)]);
            headers["x-amz-checksum-crc32"].to_str().unwrap().to_owned()
        };
        assert_eq!(of(ChecksumType::FullObject), "y/Q5Jg==");
        let composite = STANDARD.encode(digest(&[first.clone(), second.clone()].concat()));
        assert_eq!(of(ChecksumType::Composite), format!("{composite}-2"));
    }

    #[test]
    fn a_checksum_of_checksums_is_named_with_the_number_of_parts_or_without() {
        let named = |computed, named| {
            is_named(
                &HeaderValue::from_static(computed),
                &HeaderValue::from_static(named),
            )
        };
        assert!(named("AAAAAA==-2", "AAAAAA==-2") && named("AAAAAA==-2", "AAAAAA=="));
        assert!(named("AAAAAA==", "AAAAAA=="));
        for other in ["AAAAAA==-3", "AAAAAA==-", "AAAAAQ==", "AAAAAQ==-2", ""] {
            assert!(!named("AAAAAA==-2", other), "{other}");
        }
        assert!(!named("AAAAAA==", "AAAAAA==-2"), "it is that of all bytes");
    }

    #[test]
    fn an_upload_is_created_with_what_is_said_of_the_object_and_not_of_bytes() {
        let mut headers = HeaderMap::new();
        for name in [
            "content-md5",
            "x-amz-checksum-sha1",
            "x-amz-checksum-algorithm",
            "x-amz-meta-a",
        ] {
            headers.insert(name, HeaderValue::from_static("x"));
        }
        let kept = creation_headers(&headers);
        assert!(kept.contains_key("x-amz-checksum-algorithm") && kept.contains_key("x-amz-meta-a"));
        assert_eq!(kept.len(), 2);
    }
}
