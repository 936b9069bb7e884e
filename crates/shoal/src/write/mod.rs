//! How an object is written: around the cache, through it, or back from it ([`crate::dirty`]).
//!
//! A write *through* goes to the lake as any other does. Beside it, its bytes are gathered in blocks ([`Gathering`]), and when the lake has
//! committed them the blocks get their names and go where a read would have put them ([`Through`]). Nothing of this can fail a write or
//! make it wait: what is not cached costs the next read a way to the lake, as after a write *around*.

mod finishing;
mod gathering;
mod mode;
mod parted;
mod through;

pub use self::gathering::Gathering;
pub use self::mode::{ModeError, WriteRules};
pub use self::parted::{Upload, UploadPart};
pub use self::through::{OBJECT_PART_OF_CAPACITY, Through, size_to_gather};

/// Why a write was carried out in another mode than it was asked for: one through the cache left nothing there, one back went to the lake
/// first. The word in `X-Cache-Reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncached {
    /// An upload in parts, of which not all passed here.
    Multipart,
    /// A copy: its bytes do not pass here.
    Copy,
    /// Encrypted with a key that only the client has.
    SseC,
    /// It names a version or a part, which means nothing for a whole object that is new: the lake alone knows what it makes of it.
    Dialect,
    /// The request does not say how long the object is.
    NoLength,
    /// One object may displace only a part of all others.
    TooLarge,
    /// The memory for bytes on their way to the disk is full: the disk is slower than the writers.
    NoMemory,
    /// Fewer or more bytes came than were announced.
    Incomplete,
    /// The lake does not say which version it is.
    NoEtag,
    /// Written back, it could be read by its writer alone, and everybody is nobody.
    Anonymous,
    /// Only the lake can tell whether a condition holds.
    Condition,
    /// The lake would give it an ETag that cannot be told beforehand.
    OtherEtag,
    /// The lake was asked whether it would take it, and did not say yes.
    NotPermitted,
    /// Too much is dirty already.
    TooDirty,
    /// The nodes that were to keep it did not.
    NotKept,
    /// The members of the cluster change: nobody is sure to be home to it.
    Unsettled,
}

impl Uncached {
    /// The word in headers.
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
            Self::NotKept => "not-kept",
            Self::Unsettled => "unsettled",
        }
    }
}
