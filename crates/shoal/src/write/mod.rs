//! How an object is written: around the cache, through it, or back from it.
//!
//! A write *through* goes to the lake as any other does. Beside it, its bytes are gathered in blocks ([`Gathering`]), and when the lake has
//! committed them the blocks get their names and go where a read would have put them ([`Through`]). Nothing of this can fail a write or
//! make it wait: what is not cached costs the next read a way to the lake, as after a write *around*.

mod finishing;
mod gathering;
mod mode;
mod through;

pub use self::gathering::Gathering;
pub use self::mode::{MODE_HEADER, ModeError, WriteRules};
pub use self::through::{Through, Written};

/// Why a write through left nothing in the cache: the word in `X-Cache-Reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncached {
    /// A part of an object: which version it will be of is known when all parts are there.
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
        }
    }
}
