//! Errors of reading a history.

use std::io;

use shoal_logs::Mismatch;

use crate::format::Format;

/// Why a history cannot be read. File names are as given by the caller.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The bytes cannot be read.
    #[error("cannot read {name}: {source}")]
    Io {
        /// The file.
        name: String,
        /// The cause.
        source: io::Error,
    },
    /// The format cannot be determined.
    #[error(
        "cannot tell the format of {name}\nhint: name it with --format: {}",
        Format::names()
    )]
    UnknownFormat {
        /// The file.
        name: String,
    },
    /// The file uses an unsupported compression.
    #[error("{name} is compressed\nhint: unpack it first: {command} {name} > history")]
    Compressed {
        /// The file.
        name: String,
        /// Command that decompresses it.
        command: &'static str,
    },
    /// A line is malformed.
    #[error("{name}:{line}: {mismatch}")]
    Line {
        /// The file.
        name: String,
        /// The line, counted from 1.
        line: u64,
        /// The text that was found, and the expected form.
        mismatch: Mismatch,
    },
    /// The history exceeds a limit.
    #[error("{name}: the history has more than {limit}\nhint: take a shorter one: some weeks are enough")]
    TooLarge {
        /// The file that exceeded the limit.
        name: String,
        /// The limit, with its unit.
        limit: String,
    },
}

impl HistoryError {
    /// Creates the error of a malformed line.
    pub(crate) fn line(name: &str, line: u64, mismatch: Mismatch) -> Self {
        Self::Line {
            name: name.to_owned(),
            line,
            mismatch,
        }
    }

    /// Creates the error of a history that exceeds this limit in a file.
    pub(crate) fn too_large(name: &str, limit: String) -> Self {
        Self::TooLarge {
            name: name.to_owned(),
            limit,
        }
    }

    /// Creates an error of the operating system or of a compressed stream.
    pub(crate) fn io(name: &str, source: io::Error) -> Self {
        Self::Io {
            name: name.to_owned(),
            source,
        }
    }
}
