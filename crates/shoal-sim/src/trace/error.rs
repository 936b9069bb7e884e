//! Errors of reading a trace.

use shoal_logs::FileError;

use crate::block::OBJECT_BLOCKS_MAX;

/// A trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
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
}
