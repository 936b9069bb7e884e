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
mod pending_commits;
mod through;

pub use self::body_copy::BodyCopy;
pub use self::config::{Fallback, WriteConfig, WriteMode, WriteRule};
pub use self::mode::{BackRule, WriteRules, lifetime_in};
pub use self::multipart::Upload;
pub use self::through::{Spread, WriteThrough, WriteThroughSizes, size_to_copy};

/// The reason why a write was carried out in another mode than requested: written through the cache without
/// being cached, or written to the lake first instead of back. The value of `X-Cache-Reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncached {
    /// A multipart upload, some parts of which did not pass through this node.
    Multipart,
    /// A copy, whose bytes do not pass through this node.
    Copy,
    /// Encrypted with a key that only the client has (SSE-C).
    SseC,
    /// Names a version or a part, which has no meaning for a new whole object, so only the lake knows how to
    /// treat the request.
    Dialect,
    /// The request does not announce the object's length.
    NoLength,
    /// The object is larger than the part of the cache that one object may take.
    TooLarge,
    /// The memory for blocks that wait for the disk is full: the disk is slower than the writers.
    NoMemory,
    /// The body was shorter or longer than announced.
    Incomplete,
    /// The lake's response has no ETag to identify the version by.
    NoEtag,
    /// The writer is anonymous. Only the writer may read a dirty object, and anonymous callers cannot be told
    /// apart.
    Anonymous,
    /// The write has a condition that only the lake can evaluate.
    Condition,
    /// The lake would give the object an ETag that the node cannot compute.
    OtherEtag,
    /// The lake did not grant permission for the write.
    NotPermitted,
    /// The tier is full of dirty objects.
    TooDirty,
    /// The tier does not answer.
    TierUnavailable,
    /// The registry of the tier is nearly full.
    RegistryFull,
    /// The bucket keeps versions or has kept them, so each write must become a version.
    Versioned,
}

impl Uncached {
    /// Returns the value in headers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Multipart => "multipart",
            Self::Copy => "copy",
            Self::SseC => "sse-c",
            Self::Dialect => "dialect",
            Self::NoLength => "no-length",
            Self::TooLarge => "too-large",
            Self::NoMemory => "no-memory",
            Self::Incomplete => "incomplete",
            Self::NoEtag => "no-etag",
            Self::Anonymous => "anonymous",
            Self::Condition => "condition",
            Self::OtherEtag => "other-etag",
            Self::NotPermitted => "not-permitted",
            Self::TooDirty => "too-dirty",
            Self::TierUnavailable => "tier-unavailable",
            Self::RegistryFull => "registry-full",
            Self::Versioned => "versioned",
        }
    }
}
