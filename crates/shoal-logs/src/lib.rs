//! Logs of requests and jobs, line by line, as values.
//!
//! A file is unpacked ([`packed`]) and read in lines ([`mod@line`]) or rows ([`rows`]), which give each
//! mistake its place. A parser takes one line and gives a value, which may borrow from it, or a [`Mismatch`].
//! The meaning of a request belongs to the caller: the simulator turns requests into accesses of a cache,
//! the planner into runs of jobs. One format per file, and one reader per format.

mod access_log;
mod error;
pub mod line;
pub mod node;
pub mod packed;
mod request;
pub mod rows;
pub mod s3_server;
pub mod swim;
pub mod timestamp;

pub use self::access_log::AccessLog;
pub use self::error::{FileError, Mismatch, Place};
pub use self::request::{Request, RequestKind};
