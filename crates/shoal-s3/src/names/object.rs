//! Identifiers of objects, versions and blocks in a lake, and the lake's description of a version.

mod headers;
pub mod sent;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use http::header::{DATE, LAST_MODIFIED};
use http::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shoal_base::encoding::{Malformed, Reader, write_bytes, write_headers, write_time};
use shoal_base::words;
use shoal_policy::{BlockId, ObjectId, VersionId};

pub use self::headers::of_caller;

use crate::etag;

/// An object's name as the lake knows it: the key is the path percent-decoded *once*.
///
/// Messages between nodes have the fields in this order, which must not change.
#[derive(Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ObjectName {
    /// Bucket name.
    pub bucket: Arc<str>,
    /// Key bytes; S3 requires UTF-8, but the node does not depend on it.
    pub key: Arc<[u8]>,
    /// `versionId` of the request, if the client asks for one version of the object by name.
    pub version: Option<Arc<str>>,
}

impl ObjectName {
    /// The digest that names the object in the lake `lake` (its endpoint URL).
    ///
    /// Every part is preceded by its length, so that no two names produce the same bytes.
    pub fn id(&self, lake: &str) -> ObjectId {
        let version = self.version.as_deref().unwrap_or_default();
        ObjectId(digest(&[
            lake.as_bytes(),
            self.bucket.as_bytes(),
            &self.key,
            version.as_bytes(),
        ]))
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Escaped for logs and status pages: a name must not start a new line or control a terminal.
        let key = String::from_utf8_lossy(&self.key);
        write!(f, "s3://{}/{}", self.bucket.escape_debug(), key.escape_debug())?;
        self.version.as_deref().map_or(Ok(()), |version| {
            write!(f, "?versionId={}", version.escape_debug())
        })
    }
}

/// The lake's description of one immutable version of an object.
///
/// Messages between nodes have the fields in this order, which must not change.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Version {
    /// The object that this is a version of.
    pub object: ObjectId,
    /// The version's ID: a digest of the object, its ETag and its size.
    pub id: VersionId,
    /// Whole size in bytes.
    pub size_bytes: u64,
    /// Size of every block except the last, in bytes.
    pub block_bytes: u64,
    /// `Last-Modified`, for date conditionals.
    #[serde(with = "sent::time")]
    pub last_modified: Option<SystemTime>,
    /// ETag exactly as the lake sent it, quotes included.
    pub etag: Arc<str>,
    /// The headers of a GET that describe the version, without those meant for one caller. `Content-Length`
    /// and `Content-Range` are written with the response. A version that was written through this node and
    /// has not been read has its ETag alone. A [recent](Self::is_recent) one also has the answer's `Date`,
    /// which no client gets.
    #[serde(with = "sent::headers")]
    pub headers: HeaderMap,
}

/// How long a version and its blocks are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Whole size in bytes.
    pub size_bytes: u64,
    /// Size of every block except the last, in bytes.
    pub block_bytes: u64,
}

impl Version {
    /// The digest that names the version of `object` with this ETag and size.
    pub fn id_of(object: ObjectId, etag: &str, size_bytes: u64) -> VersionId {
        let parts = [&object.0, etag.as_bytes(), &size_bytes.to_le_bytes()];
        VersionId::new(object, digest(&parts))
    }

    /// Serializes the version, for a footer.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.object.0);
        out.extend_from_slice(&self.id.0);
        out.extend_from_slice(&self.size_bytes.to_le_bytes());
        out.extend_from_slice(&self.block_bytes.to_le_bytes());
        write_time(out, self.last_modified);
        write_bytes(out, self.etag.as_bytes());
        write_headers(out, &self.headers);
    }

    /// Inverse of [`Version::write`].
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if the bytes end too early or the version contradicts itself.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Self {
            object: ObjectId(reader.array()?),
            id: VersionId(reader.array()?),
            size_bytes: reader.u64()?,
            block_bytes: reader.u64()?,
            last_modified: reader.time()?,
            etag: reader.text()?.into(),
            headers: reader.headers()?,
        }
        .verified()
    }

    /// Validates a version that was read from disk or received from another node.
    ///
    /// # Errors
    ///
    /// Fails with [`Malformed`] if the version contradicts itself.
    pub fn verified(mut self) -> Result<Self, Malformed> {
        let is_consistent = self.block_bytes > 0
            && u32::try_from(self.size_bytes.div_ceil(self.block_bytes)).is_ok()
            && HeaderValue::from_str(&self.etag).is_ok()
            && etag::names_version(&self.etag)
            && self.id == Self::id_of(self.object, &self.etag, self.size_bytes);
        // An older node may have kept more headers.
        self.headers = headers::retain_of_version(self.headers);
        is_consistent.then_some(self).ok_or(Malformed)
    }

    /// Returns true if the lake described the version within the second of its `Last-Modified`. New headers
    /// may then have got the same ETag and date, so a 304 does not confirm these (RFC 9110, section 8.8.2.2).
    pub fn is_recent(&self) -> bool {
        self.headers.contains_key(DATE)
    }

    /// The ETag as a header value, for `If-Match` and `If-None-Match`.
    pub fn etag_header(&self) -> HeaderValue {
        HeaderValue::from_str(&self.etag).expect("an ETag came from a header")
    }

    /// The block at `index`.
    pub fn block(&self, index: u32) -> BlockId {
        BlockId {
            version: self.id,
            index,
        }
    }

    /// How long the version and its blocks are.
    pub const fn extent(&self) -> Extent {
        Extent {
            size_bytes: self.size_bytes,
            block_bytes: self.block_bytes,
        }
    }

    /// The number of blocks; an empty object has none.
    pub const fn block_count(&self) -> u32 {
        self.extent().block_count()
    }

    /// Length of the block at `index` in bytes: `block_bytes`, or less for the last one.
    pub fn block_len(&self, index: u32) -> u64 {
        self.extent().block_len(index)
    }
}

impl Extent {
    /// As [`Version::block_count`].
    pub const fn block_count(self) -> u32 {
        self.size_bytes.div_ceil(self.block_bytes) as u32
    }

    /// As [`Version::block_len`].
    pub fn block_len(self, index: u32) -> u64 {
        let start = u64::from(index) * self.block_bytes;
        self.block_bytes.min(self.size_bytes.saturating_sub(start))
    }
}

fn digest(parts: &[&[u8]]) -> [u8; 16] {
    // Hashed in one call, because many small updates cost more than the hash itself.
    let mut text = Vec::with_capacity(256);
    for part in parts {
        text.extend_from_slice(&(part.len() as u64).to_le_bytes());
        text.extend_from_slice(part);
    }
    let full = Sha256::digest(&text);
    full[..16].try_into().expect("SHA-256 has 32 bytes")
}

words! {
    /// Why a response cannot be cached, shown in `X-Cache-Reason`.
    pub enum Uncacheable {
        /// The lake sends no ETag that a condition can use (none, a weak one, `*`), so reads cannot be bound
        /// to one version.
        NoEtag = "no-etag",
        /// The lake does not send the length of the object.
        NoLength = "no-length",
        /// Encrypted with a key that only the client has.
        SseC = "sse-c",
        /// `partNumber`: only the lake knows the parts.
        PartNumber = "part-number",
        /// The client sent `no-store`.
        NoStore = "no-store",
        /// A range, condition or parameter on which S3 stores differ (several ranges, `If-Range`, an empty
        /// condition, several ETags, `*`, future dates, an empty `response-*`, any range of an empty object):
        /// the lake's own answer is the right one.
        Dialect = "dialect",
        /// `response-*` on an unsigned request: the lake rejects it, and so must a hit.
        UnsignedOverride = "unsigned-override",
        /// A GET with a body.
        RequestBody = "request-body",
        /// The object has more blocks than an index can count.
        TooLarge = "too-large",
        /// The lake permits the client to read the object, but not the account of the node.
        NodeAccount = "node-account",
        /// The received bytes are not the object that the lake describes.
        Mismatch = "mismatch",
    }
}

impl Version {
    /// Creates the version made by a write from the lake's `answer` to it. This suffices to name its blocks,
    /// but of the headers of a read it has only the ETag, so it must not be used to answer a read.
    ///
    /// # Errors
    ///
    /// Fails if the answer names no strong ETag, or the object is too large or encrypted with the client's
    /// key.
    pub fn from_write(
        object: ObjectId,
        answer: &HeaderMap,
        size_bytes: u64,
        block_bytes: u64,
    ) -> Result<Self, Uncacheable> {
        let version = Self::from_response(object, answer, size_bytes, block_bytes)?;
        let headers = HeaderMap::from_iter([(http::header::ETAG, version.etag_header())]);
        Ok(Self {
            headers,
            last_modified: None,
            ..version
        })
    }

    /// Removes the checksums, because those in the answer to a range request may be of the range.
    #[must_use]
    pub fn without_checksums(mut self) -> Self {
        self.headers = headers::without_checksums(&self.headers);
        self
    }

    /// Reads a version from the headers of a GET or HEAD response; `size_bytes` is the size of the whole
    /// object.
    ///
    /// # Errors
    ///
    /// Fails if the answer names no strong ETag, or the object is too large or encrypted with the client's
    /// key.
    pub fn from_response(
        object: ObjectId,
        headers: &HeaderMap,
        size_bytes: u64,
        block_bytes: u64,
    ) -> Result<Self, Uncacheable> {
        if headers.contains_key("x-amz-server-side-encryption-customer-algorithm") {
            return Err(Uncacheable::SseC);
        }
        if u32::try_from(size_bytes.div_ceil(block_bytes)).is_err() {
            return Err(Uncacheable::TooLarge);
        }
        let etag = headers
            .get(http::header::ETAG)
            .and_then(|etag| etag.to_str().ok());
        let etag = etag
            .filter(|etag| etag::names_version(etag))
            .ok_or(Uncacheable::NoEtag)?;
        let time = |name| {
            let date = headers.get(name)?.to_str().ok()?;
            httpdate::parse_http_date(date).ok()
        };
        let last_modified = time(LAST_MODIFIED);
        let mut of_version = headers::of_version(headers);
        if last_modified.is_some() && time(DATE) <= last_modified {
            let date = headers.get(DATE).or(headers.get(LAST_MODIFIED));
            of_version.extend(date.map(|date| (DATE, date.clone())));
        }
        Ok(Self {
            id: Self::id_of(object, etag, size_bytes),
            object,
            etag: etag.into(),
            size_bytes,
            block_bytes,
            last_modified,
            headers: of_version,
        })
    }
}
