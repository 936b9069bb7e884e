//! Why something was not admitted. Every "no" has a name, because operators ask "why is it not cached?".

use std::fmt;

/// Why a block was not stored. Never a failure of the read that brought it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// It would not fit into the empty cache, or its description exceeds what a block may carry.
    TooLarge,
    /// Everything that could leave has left, and there is still no room: the rest is in use.
    NoRoom,
    /// The disk failed or is full; fills pause until a probe succeeds.
    Paused,
    /// The node, not the disk, lacks something: file descriptors, memory mappings, threads.
    Exhausted,
    /// The bytes are not the block they claim to be: wrong length, version or block size, or none at all.
    Mismatched,
}

impl Refusal {
    /// Every reason, for metrics and documentation.
    pub const ALL: &'static [Self] = &[
        Self::TooLarge,
        Self::NoRoom,
        Self::Paused,
        Self::Exhausted,
        Self::Mismatched,
    ];

    /// The word used in headers, metric labels and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::TooLarge => "too-large",
            Self::NoRoom => "no-room",
            Self::Paused => "store-unavailable",
            Self::Exhausted => "exhausted",
            Self::Mismatched => "mismatched",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::error::Error for Refusal {}
