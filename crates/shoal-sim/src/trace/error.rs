//! Errors of reading a trace.

use std::io;
use std::path::PathBuf;

use shoal_logs::Mismatch;

use super::format::Format;
use crate::block::OBJECT_BLOCKS_MAX;

/// A trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The operating system cannot read the file.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// Neither its name nor its beginning identifies the format.
    #[error("cannot tell the format of {}\nhint: name it with --format: {}", .0.display(), Format::names())]
    UnknownFormat(PathBuf),
    /// The trace must be unpacked first.
    #[error("{} is compressed\nhint: unpack it first: {command} {} > trace", path.display(), path.display())]
    Compressed {
        /// The compressed file.
        path: PathBuf,
        /// The command that unpacks it.
        command: &'static str,
    },
    /// The trace has no read that a cache could serve.
    #[error(
        "the trace reads no object\nhint: a node logs requests only with `access = true` below [log], and S3 some hours later"
    )]
    Unread,
    /// The blocks of the trace do not fit into memory.
    #[error(
        "the trace reads more than {0} different blocks\nhint: take larger ones, with `--block` or `cluster.block`"
    )]
    TooManyBlocks(usize),
    /// An object that the experiment scales has too many blocks.
    #[error(
        "an object of {0} bytes has more than {OBJECT_BLOCKS_MAX} blocks\nhint: take larger ones, with `cluster.block`, or a smaller `workload.scale`"
    )]
    TooManyOfObject(u64),
    /// A line, or a record of a binary trace, is malformed.
    #[error("{}:{line}: {mismatch}", path.display())]
    Line {
        /// The trace.
        path: PathBuf,
        /// The line or record, counted from 1.
        line: u64,
        /// The text that was found, and the expected form.
        mismatch: Mismatch,
    },
}
