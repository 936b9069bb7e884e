//! Errors of reading a history.

pub use shoal_logs::FileError;

/// Why a history cannot be read. File names are as given by the caller.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
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
    /// Creates the error of a history that exceeds this limit in a file.
    pub(crate) fn too_large(name: &str, limit: String) -> Self {
        Self::TooLarge {
            name: name.to_owned(),
            limit,
        }
    }
}
