//! The contract of a store of bytes: pieces that are written once, read by range, listed and removed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use shoal_s3::range::ByteRange;

use crate::endpoint::BoxError;

/// The largest piece. It is the largest object that S3 takes in one PUT.
pub const PIECE_BYTES_MAX: u64 = 5 << 30;

/// Number of characters of the longest key. With it, a key fits into the name of a file.
pub const KEY_CHARS_MAX: usize = 200;

/// The bytes of a piece, on their way into a store or out of it. An error ends the stream; on the way out the
/// box holds a [`StoreError`].
pub type ByteStream = BoxStream<'static, Result<Bytes, BoxError>>;

/// The MD5 of a piece.
pub type PieceMd5 = [u8; 16];

/// What is known of a piece that is to be copied.
#[derive(Clone, Copy, Debug)]
pub struct PieceSum {
    /// Its length in bytes.
    pub size_bytes: u64,
    /// Its MD5, if it is known: a store that names pieces by their MD5 must name this one so.
    pub md5: Option<PieceMd5>,
}

/// Keeps the bytes of dirty objects.
///
/// Each key is written once: it ends in a ULID and is never used again, not even after a failed
/// [`put`](Self::put).
pub trait ByteStore: fmt::Debug + Send + Sync {
    /// Keeps `size_bytes` bytes under a new key. Once this returns `Ok`, they survive a crash and a power
    /// loss, as far as the store promises. Returns their MD5, which the object's ETag needs: stores that are
    /// asked by S3 compute it in any case.
    ///
    /// # Errors
    ///
    /// Fails if the body fails, if it is shorter or longer than `size_bytes`, or if the store does not keep
    /// it. No reader finds an incomplete piece under the key then. If the store fails after it has received
    /// the whole body, or the caller drops the future at that time, a complete piece may remain;
    /// [`list`](Self::list) finds it.
    fn put<'a>(
        &'a self,
        key: &'a str,
        size_bytes: u64,
        body: ByteStream,
    ) -> BoxFuture<'a, Result<PieceMd5, PutError>>;

    /// Returns the bytes of a range of the piece under a key. Dropping the stream ends the work for it.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreError::Missing`] if there is no such piece, and if the range does not lie within it.
    /// The stream ends with an error rather than with wrong or missing bytes.
    fn get<'a>(&'a self, key: &'a str, range: ByteRange) -> BoxFuture<'a, Result<ByteStream, StoreError>>;

    /// Keeps the bytes of a piece, of which `expected` is known, under a new key, too. Once this returns
    /// `Ok`, they are as safe as those of a [`put`](Self::put), and they are the bytes that were written.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreError::Missing`] if there is no such piece, with [`StoreError::Damaged`] if it has
    /// another length or other bytes, and if the store does not keep the copy. No reader finds an incomplete
    /// piece under the new key then. A complete one may remain, also if the caller drops the future;
    /// [`list`](Self::list) finds it.
    fn copy<'a>(
        &'a self,
        from: &'a str,
        to: &'a str,
        expected: PieceSum,
    ) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Removes pieces. A key that does not exist counts as removed.
    ///
    /// # Errors
    ///
    /// Fails if any of the pieces may remain. The others are removed all the same, unless the store does not
    /// answer.
    fn remove<'a>(&'a self, keys: &'a [Arc<str>]) -> BoxFuture<'a, Result<(), StoreError>>;

    /// Lists at most `limit` pieces whose keys are greater than `after`, ascending by the bytes of the keys.
    fn list<'a>(&'a self, after: Option<&'a str>, limit: usize)
    -> BoxFuture<'a, Result<KeyPage, StoreError>>;

    /// Checks that the store can do what a tier needs: writes a piece, reads a range of it, lists and removes
    /// it.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot do this, and if it is set up so that it would lose pieces or keep removed
    /// ones.
    fn probe(&self) -> BoxFuture<'_, Result<(), ProbeError>>;

    /// Checks that the store [copies](Self::copy) a piece, and that the copy outlives its source. A store
    /// that does not can be a tier nevertheless, and then the lake makes all copies.
    ///
    /// # Errors
    ///
    /// Fails if the store does not do this, or does not answer.
    fn probe_copy(&self) -> BoxFuture<'_, Result<(), ProbeError>>;

    /// Checks that a store that has passed [`probe`](Self::probe) still writes, reads, lists and removes
    /// pieces. Its settings and storage classes are not looked at.
    ///
    /// # Errors
    ///
    /// Fails if the store does not do this.
    fn check(&self) -> BoxFuture<'_, Result<(), ProbeError>>;
}

/// One page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPage {
    /// The pieces, ascending by key.
    pub pieces: Vec<ListedPiece>,
    /// Whether no piece has a key greater than those of this page. The last page may be empty.
    pub is_last: bool,
}

/// A piece as a listing shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPiece {
    /// Its key.
    pub key: Arc<str>,
    /// Its length in bytes.
    pub size_bytes: u64,
    /// The time since it was written, by the store's own clock.
    pub age: Duration,
}

/// Why a piece was not kept.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// The body's own error, or its length is wrong.
    #[error("the body of the piece failed: {0}")]
    Body(#[source] BoxError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The length of a body is not the announced one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongLength {
    /// The body ended early.
    #[error("the body ended after {got_bytes} of {size_bytes} bytes")]
    Short {
        /// The number of bytes that came.
        got_bytes: u64,
        /// The announced number.
        size_bytes: u64,
    },
    /// The body went on.
    #[error("the body has more than the announced {size_bytes} bytes")]
    Long {
        /// The announced number.
        size_bytes: u64,
    },
}

/// Why a store did not do what it was asked to do. No message contains a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no piece under this key.
    #[error("the store has no such piece")]
    Missing,
    /// The piece is there, but its bytes are not those that were written.
    #[error("the piece is damaged: {0}")]
    Damaged(String),
    /// The store has no room left.
    #[error("the store is full: {0}")]
    Full(String),
    /// The store does not answer, or fails for the moment.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The store refuses, and would refuse again.
    #[error("the store refuses: {0}")]
    Refused(String),
}

/// Why a store cannot be a tier, or not copy, for the operator.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}\nhint: {hint}")]
pub struct ProbeError {
    /// Whether the store may pass later as it is: it does not answer now, or has no room.
    pub is_outage: bool,
    /// The problem, in words.
    pub problem: String,
    /// The advice to the operator.
    pub hint: String,
}

/// Checks that a key is one of a piece: `/`-separated words of letters, digits and `-`.
pub(super) fn check_key(key: &str) -> Result<(), StoreError> {
    let is_word = |word: &str| {
        !word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    if key.len() <= KEY_CHARS_MAX && key.split('/').all(is_word) {
        Ok(())
    } else {
        Err(StoreError::Refused(format!("{key:?} is not the key of a piece")))
    }
}

/// Checks the length of a piece to be written.
pub(super) fn check_size(size_bytes: u64) -> Result<(), StoreError> {
    if size_bytes <= PIECE_BYTES_MAX {
        Ok(())
    } else {
        Err(StoreError::Refused(format!(
            "a piece has at most {PIECE_BYTES_MAX} bytes, and this one {size_bytes}"
        )))
    }
}

/// Checks the keys and the length of a piece to be copied.
pub(super) fn check_copy(from: &str, to: &str, size_bytes: u64) -> Result<(), StoreError> {
    check_key(from)?;
    check_key(to)?;
    check_size(size_bytes)?;
    if from == to {
        return Err(StoreError::Refused(format!("{from} is no new key")));
    }
    Ok(())
}

/// The error when a piece does not have the length that it was written with.
pub(super) fn other_length(size_bytes: u64, got_bytes: u64) -> StoreError {
    StoreError::Damaged(format!("it has {got_bytes} bytes, and not {size_bytes}"))
}

#[cfg(test)]
mod tests {
    use super::{KEY_CHARS_MAX, PIECE_BYTES_MAX, check_key, check_size};

    #[test]
    fn keys_are_words_between_slashes() {
        for key in ["01JAZ", "node-1/01JAZ", "a/b/c", &"k".repeat(KEY_CHARS_MAX)] {
            assert!(check_key(key).is_ok(), "{key}");
        }
        let long = "k".repeat(KEY_CHARS_MAX + 1);
        for key in [
            "", "/", "/a", "a/", "a//b", "..", "a/../b", "a.b", "a_b", "a b", "é", "a\0", &long,
        ] {
            assert!(check_key(key).is_err(), "{key:?}");
        }
    }

    #[test]
    fn a_piece_fits_into_one_put() {
        assert!(check_size(0).is_ok());
        assert!(check_size(PIECE_BYTES_MAX).is_ok());
        assert!(check_size(PIECE_BYTES_MAX + 1).is_err());
    }
}
