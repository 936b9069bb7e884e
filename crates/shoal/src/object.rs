//! The names of things in a lake: objects, versions, blocks, and what the lake says about a version.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use http::HeaderMap;
use sha2::{Digest, Sha256};
use shoal_policy::{BlockId, ObjectId, VersionId};

/// An object's name as the lake knows it: the key is the path percent-decoded *once*.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ObjectName {
    /// Bucket name.
    pub bucket: Arc<str>,
    /// Key bytes; S3 asks for UTF-8, we do not depend on it.
    pub key: Arc<[u8]>,
    /// `versionId` of the request, when the client asks for one state of the object by name.
    pub version: Option<Arc<str>>,
}

impl ObjectName {
    /// The digest that names the object in the lake `lake` (its endpoint URL).
    ///
    /// Every part is preceded by its length, so that no two names run into the same bytes.
    pub fn id(&self, lake: &str) -> ObjectId {
        let version = self.version.as_deref().unwrap_or_default();
        ObjectId(digest(&[lake.as_bytes(), self.bucket.as_bytes(), &self.key, version.as_bytes()]))
    }
}

impl fmt::Debug for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", self.bucket, String::from_utf8_lossy(&self.key))?;
        self.version.as_deref().map_or(Ok(()), |version| write!(f, "?versionId={version}"))
    }
}

/// What the lake says about one immutable version of an object.
#[derive(Clone, Debug)]
pub struct Version {
    /// Names the version: digest of the object, its ETag and its size.
    pub id: VersionId,
    /// The object this is a version of.
    pub object: ObjectId,
    /// ETag exactly as the lake sent it, quotes included.
    pub etag: Arc<str>,
    /// Whole size in bytes.
    pub size_bytes: u64,
    /// Size of every block but the last, in bytes.
    pub block_bytes: u64,
    /// `Last-Modified`, for date conditionals.
    pub last_modified: Option<SystemTime>,
    /// Response headers of a whole-object GET as the lake gave them, without those of the connection
    /// (`Date`, `Server`, `Connection`, `Transfer-Encoding`, request ids) and without `Content-Length`,
    /// `Content-Range`: the response writes those.
    pub headers: HeaderMap,
}

impl Version {
    /// The digest that names the version of `object` with this ETag and size.
    pub fn id_of(object: ObjectId, etag: &str, size_bytes: u64) -> VersionId {
        VersionId(digest(&[&object.0, etag.as_bytes(), &size_bytes.to_le_bytes()]))
    }

    /// The block at `index`.
    pub fn block(&self, index: u32) -> BlockId {
        BlockId { version: self.id, index }
    }

    /// How many blocks the version has; an empty object has none.
    pub fn block_count(&self) -> u32 {
        self.size_bytes.div_ceil(self.block_bytes) as u32
    }

    /// Length of the block at `index` in bytes: `block_bytes`, or less for the last one.
    pub fn block_len(&self, index: u32) -> u64 {
        let start = u64::from(index) * self.block_bytes;
        self.block_bytes.min(self.size_bytes.saturating_sub(start))
    }
}

fn digest(parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let full = hasher.finalize();
    full[..16].try_into().expect("SHA-256 has 32 bytes")
}
