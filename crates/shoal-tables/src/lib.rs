//! Tables of Iceberg and Delta: which objects at the lake are their current snapshot. Old files of a table
//! stay below its name until they are cleaned up, and only the table's own log says which ones they are.
//!
//! ```text
//! listing of the log ──▶ TableSearch ──▶ round: objects of the log to read now
//!                             ▲                     │
//!                             └──── take ◀── bytes ─┘
//!                             │
//!                             └──▶ finish: names of the files, and of the log that an engine reads
//! ```
//!
//! The crate performs no I/O. Whoever writes into a lake writes these bytes, so everything is bounded: what
//! is read and unpacked, the depth of schemas, the number of files and the bytes of their names. A table that
//! is beyond a bound, or of a form that is not known, is refused with the reason.
//!
//! # No library
//!
//! `apache-avro` and `parquet` end the process for a file made to do so, which a node cannot afford: decision
//! 0055 has the measurement. Avro and Parquet are read here as far as lists of files need them: named fields
//! of records, and leaf columns without repetition.

mod avro;
mod bounds;
mod delta;
mod error;
mod iceberg;
mod names;
mod parquet;
mod search;
mod unpack;

pub use self::bounds::{FILE_BYTES_MAX, LOG_KEYS_MAX};
pub use self::error::TableError;
pub use self::search::{LogFile, Snapshot, TableFormat, TableObject, TableRead, TableSearch};
