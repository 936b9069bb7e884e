//! Why a history cannot be read.

use std::io;

use shoal_logs::Mismatch;

use crate::format::Format;

/// Why a history cannot be read. The name of the file is the one that the caller gave.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The bytes cannot be read.
    #[error("cannot read {name}: {source}")]
    Io {
        /// The file.
        name: String,
        /// The reason.
        source: io::Error,
    },
    /// Neither its name nor its beginning identifies the format.
    #[error(
        "cannot tell the format of {name}\nhint: name it with --format: {}",
        Format::names()
    )]
    UnknownFormat {
        /// The file.
        name: String,
    },
    /// The file is compressed in a way that is not understood.
    #[error("{name} is compressed\nhint: unpack it first: {command} {name} > history")]
    Compressed {
        /// The file.
        name: String,
        /// The command that unpacks it.
        command: &'static str,
    },
    /// A line is malformed.
    #[error("{name}:{line}: found {found}\nhint: expected {expected}")]
    Line {
        /// The file.
        name: String,
        /// The line, counted from 1.
        line: u64,
        /// The text that was found, and the field it stands in.
        found: String,
        /// The expected form.
        expected: String,
    },
    /// The history does not fit into the bounds.
    #[error("{name}: the history has more than {limit}\nhint: take a shorter one: some weeks are enough")]
    TooLarge {
        /// The file that went beyond the bound.
        name: String,
        /// The bound, with its unit.
        limit: String,
    },
}

impl HistoryError {
    /// A malformed line.
    pub(crate) fn line(name: &str, line: u64, mismatch: Mismatch) -> Self {
        Self::Line {
            name: name.to_owned(),
            line,
            found: mismatch.found,
            expected: mismatch.expected,
        }
    }

    /// An error of the operating system, or of a compressed stream.
    pub(crate) fn io(name: &str, source: io::Error) -> Self {
        Self::Io {
            name: name.to_owned(),
            source,
        }
    }
}
