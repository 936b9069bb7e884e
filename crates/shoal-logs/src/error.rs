//! Errors of reading a file of logs.

use std::io;

/// Why a line is not of the expected format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("found {found}\nhint: expected {expected}")]
pub struct Mismatch {
    /// The text that was found, and where.
    pub found: String,
    /// The expected form.
    pub expected: String,
}

impl Mismatch {
    /// Creates the mismatch of a line that has `found` where `expected` belongs.
    pub fn new(found: impl Into<String>, expected: impl Into<String>) -> Self {
        Self {
            found: found.into(),
            expected: expected.into(),
        }
    }
}

/// Why a file cannot be read. Names of files are as given by the caller.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The bytes cannot be read.
    #[error("cannot read {name}: {source}")]
    Io {
        /// The file.
        name: String,
        /// The cause.
        source: io::Error,
    },
    /// The format cannot be determined.
    #[error("cannot tell the format of {name}\nhint: name it with --format: {known}")]
    UnknownFormat {
        /// The file.
        name: String,
        /// The names of all formats.
        known: String,
    },
    /// The file uses an unsupported compression.
    #[error("{name} is compressed\nhint: unpack it first: {command} {name} > unpacked")]
    Compressed {
        /// The file.
        name: String,
        /// Command that decompresses it.
        command: &'static str,
    },
    /// A line, or a record of a binary file, is malformed.
    #[error("{name}:{line}: {mismatch}")]
    Line {
        /// The file.
        name: String,
        /// The line or record, counted from 1.
        line: u64,
        /// The text that was found, and the expected form.
        mismatch: Mismatch,
    },
}

/// A place in a file, for errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The file.
    pub name: String,
    /// The line or record that was read last, counted from 1.
    pub line: u64,
}

impl Place {
    /// Creates the place before the first line.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            line: 0,
        }
    }

    /// Returns the error of a line that is malformed.
    pub fn error(&self, mismatch: Mismatch) -> FileError {
        FileError::Line {
            name: self.name.clone(),
            line: self.line,
            mismatch,
        }
    }

    /// Returns an error of the operating system or of a compressed stream.
    pub fn io_error(&self, source: io::Error) -> FileError {
        FileError::Io {
            name: self.name.clone(),
            source,
        }
    }
}
