//! Writes of objects: around the cache, through it, or back from it ([`crate::dirty`]).
//!
//! A write *through* goes to the lake like any other. Beside it, its bytes are copied into blocks
//! ([`BodyCopy`]), and when the lake has committed them the blocks get their names and go where a read would
//! have put them ([`WriteThrough`]). None of this can fail a write or make it wait: a block that is not
//! cached costs the next read a way to the lake, as after a write *around*.

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

/// Why a write was carried out in another mode than requested: a write through the cache left nothing there,
/// a write back went to the lake first. The value of `X-Cache-Reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncached {
    /// An upload in parts, some of which did not pass this node.
    Multipart,
    /// A copy: its bytes do not pass this node.
    Copy,
    /// Encrypted with a key that only the client has.
    SseC,
    /// It names a version or a part, which has no meaning for a new whole object: only the lake knows how to
    /// treat such a request.
    Dialect,
    /// The request does not give the object's length.
    NoLength,
    /// The object is too large: it may displace only a part of all others.
    TooLarge,
    /// The memory for bytes on their way to the disk is full: the disk is slower than the writers.
    NoMemory,
    /// Fewer or more bytes came than were announced.
    Incomplete,
    /// The lake's answer has no ETag to name the version by.
    NoEtag,
    /// The writer is anonymous. Only its writer can read an object that is written back, and anonymous
    /// callers cannot be told apart.
    Anonymous,
    /// The write has a condition that only the lake can check.
    Condition,
    /// The lake would give it an ETag that cannot be computed beforehand.
    OtherEtag,
    /// The lake was asked whether it would take the object, and did not say yes.
    NotPermitted,
    /// Too much is dirty already.
    TooDirty,
    /// The tier does not answer.
    TierUnavailable,
    /// The registry of the tier is nearly full.
    RegistryFull,
    /// The bucket keeps versions, or did: each write must become one.
    Versioned,
}

impl Uncached {
    /// The value in headers.
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
