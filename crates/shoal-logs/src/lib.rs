//! Logs of requests and jobs, line by line, as values.
//!
//! A parser takes one line and gives a value that borrows from it, or a [`Mismatch`]. Names of files, numbers
//! of lines and the meaning of a request belong to the caller: the simulator turns requests into accesses of
//! a cache, the planner into runs of jobs. One format per file, and one reader per format.

pub mod line;
pub mod node;
mod request;
pub mod s3_server;
pub mod swim;
pub mod timestamp;

pub use self::request::{Request, RequestKind};

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
