//! Writes of objects: around the cache, through it, or back from it (`dirty`).
//!
//! A write *through* the cache is sent to the lake like any other. While it passes, its bytes are copied into
//! blocks ([`BodyCopy`]); once the lake has committed the object, the blocks get their names and are stored
//! where a read would have put them ([`WriteThrough`]). This never fails or delays a write: a block that is
//! not cached costs the next read a request to the lake, as after a write *around* the cache.

mod body_copy;
mod config;
mod mode;
mod multipart;
mod parts;
mod through;

pub use self::body_copy::BodyCopy;
pub use self::config::{Fallback, PackConfig, WriteConfig, WriteMode, WriteRule};
pub use self::mode::{BackRule, PackSettings, WriteRules, lifetime_in};
pub use self::parts::Upload;
pub use self::through::{Spread, WriteThrough, size_to_copy};

use shoal_net::words;

words! {
    /// The reason why a write was carried out in another mode than requested: written through the cache
    /// without being cached, or written to the lake first instead of back. The value of `X-Cache-Reason`.
    pub enum Uncached {
        /// A multipart upload, some parts of which did not pass through this node.
        Multipart = "multipart",
        /// A copy, whose bytes do not pass through this node.
        Copy = "copy",
        /// Encrypted with a key that only the client has (SSE-C).
        SseC = "sse-c",
        /// Names a version or a part, which has no meaning for a new whole object, so only the lake knows how
        /// to treat the request.
        Dialect = "dialect",
        /// The request does not announce the object's length.
        NoLength = "no-length",
        /// The object is larger than the part of the cache that one object may take.
        TooLarge = "too-large",
        /// The memory for blocks that wait for the disk is full: the disk is slower than the writers.
        NoMemory = "no-memory",
        /// The body was shorter or longer than announced.
        Incomplete = "incomplete",
        /// The lake's response has no ETag to identify the version by.
        NoEtag = "no-etag",
        /// The writer is anonymous. Only the writer may read a dirty object, and one anonymous caller is like
        /// another.
        Anonymous = "anonymous",
        /// The write has a condition that only the lake can evaluate.
        Condition = "condition",
        /// The lake would give the object an ETag that the node cannot compute.
        OtherEtag = "other-etag",
        /// The lake did not grant permission for the write.
        NotPermitted = "not-permitted",
        /// The tier is full of dirty objects.
        TooDirty = "too-dirty",
        /// The tier does not answer.
        TierUnavailable = "tier-unavailable",
        /// The registry of the tier is nearly full.
        RegistryFull = "registry-full",
        /// The bucket keeps versions or has kept them, so each write must become a version.
        Versioned = "versioned",
    }
}
