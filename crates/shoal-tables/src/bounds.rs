//! The bounds of what is read of a table.

use crate::error::TableError;

/// The longest object of a log that is read, in bytes. Checkpoints and manifests of most tables have a few
/// MiB.
pub const FILE_BYTES_MAX: u64 = 32 << 20;

/// Maximum number of keys of a log that are listed.
pub const LOG_KEYS_MAX: usize = 100_000;

/// The most bytes that one packed piece of an object may have when it is unpacked, and all pieces of it.
pub(crate) const PIECE_BYTES_MAX: usize = 64 << 20;
pub(crate) const UNPACKED_BYTES_MAX: usize = 256 << 20;

/// Maximum number of objects of a log that are read, and of their bytes: manifests, commits, parts of a
/// checkpoint.
pub(crate) const READS_MAX: usize = 10_000;
pub(crate) const READ_BYTES_MAX: usize = 512 << 20;

/// Maximum number of files of a snapshot, and of bytes of their names: what a search keeps.
pub(crate) const FILES_MAX: usize = 100_000;
pub(crate) const NAME_BYTES_MAX: usize = 32 << 20;

/// A sum that must not pass a bound.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    left: usize,
    /// The error beyond the bound: what there is too much of.
    too_many: &'static str,
}

impl Budget {
    /// Creates a budget of `most`. The error beyond it says `too_many`.
    pub(crate) const fn new(most: usize, too_many: &'static str) -> Self {
        Self { left: most, too_many }
    }

    /// Takes an amount.
    pub(crate) fn take(&mut self, amount: usize) -> Result<(), TableError> {
        let left = self.left.checked_sub(amount);
        self.left = left.ok_or(TableError::TooLarge(self.too_many))?;
        Ok(())
    }

    /// Gives an amount back that was taken.
    pub(crate) const fn give(&mut self, amount: usize) {
        self.left += amount;
    }
}
