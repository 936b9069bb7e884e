//! Reasons why a table cannot be read.

/// The reason why a table cannot be read. Each is a predicate of its log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// It is beyond a bound.
    #[error("has {0}")]
    TooLarge(&'static str),
    /// It is not as its format wants it.
    #[error("is damaged: {0}")]
    Damaged(&'static str),
    /// It may be right, and this crate does not know it.
    #[error("is of an unknown form: {0}")]
    Unknown(&'static str),
    /// It names a file that is in no bucket.
    #[error("names a file that is not in S3")]
    Elsewhere,
    /// It lacks an object that the rest of it counts on.
    #[error("lacks a file: {0}")]
    Lacks(&'static str),
}

/// The error of an object that ends before it should.
pub(crate) const CUT_OFF: TableError = TableError::Damaged("it ends in the middle");
