//! The contract of a store of bytes: pieces that are written once, read by range, listed and removed.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, Stream, TryStreamExt as _};
use shoal_net::endpoint::BoxError;
use shoal_s3::range::ByteRange;

use super::Piece;

/// The largest piece, which is the largest object that S3 accepts in one PUT.
pub const PIECE_BYTES_MAX: u64 = 5 << 30;

/// Maximum number of characters in a key, so that it fits in a file name.
pub const KEY_CHARS_MAX: usize = 200;

/// The bytes of a piece that is written or read. An error ends the stream; when reading, the box holds a
/// [`StoreError`].
pub type ByteStream = BoxStream<'static, Result<Bytes, BoxError>>;

/// The MD5 of a piece.
pub type PieceMd5 = [u8; 16];

/// Stores the bytes of dirty objects.
///
/// Each key is written once: it ends in a ULID and is never reused, not even after a failed
/// [`put`](Self::put).
#[async_trait]
pub trait ByteStore: fmt::Debug + Send + Sync {
    /// Stores `size_bytes` bytes under a new key. Once this returns `Ok`, they survive a crash and a power
    /// failure, as far as the store guarantees that. Returns their MD5, which the object's ETag needs: an S3
    /// store has to compute it in any case.
    ///
    /// # Errors
    ///
    /// The body fails, is shorter or longer than `size_bytes`, or the store does not store it. No reader then
    /// finds an incomplete piece under the key. If the store fails after it has received the whole body, or
    /// the caller drops the future at that point, a complete piece may remain; [`list`](Self::list) finds it.
    async fn put(&self, key: &str, size_bytes: u64, body: ByteStream) -> Result<PieceMd5, PutError>;

    /// Returns a range of the piece under a key. Dropping the stream cancels the read.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreError::Missing`] if there is no such piece, and fails if the range does not lie
    /// within it. The stream ends with an error instead of wrong or missing bytes.
    async fn get(&self, key: &str, range: ByteRange) -> Result<ByteStream, StoreError>;

    /// Copies a piece to a new key. Once this returns `Ok`, the copy has the bytes that were written and is
    /// as durable as after a [`put`](Self::put). If the MD5 of the piece is known, a store whose ETags are
    /// MD5s must report that one.
    ///
    /// # Errors
    ///
    /// Fails with [`StoreError::Missing`] if there is no such piece, with [`StoreError::Damaged`] if its
    /// length or bytes differ, and if the store does not store the copy. No reader then finds an incomplete
    /// piece under the new key. A complete one may remain, also if the caller drops the future;
    /// [`list`](Self::list) finds it.
    async fn copy(&self, from: &Piece, to: &str) -> Result<(), StoreError>;

    /// Removes pieces. A key that does not exist counts as removed.
    ///
    /// # Errors
    ///
    /// Some of the pieces may remain. The others are removed all the same, unless the store does not answer.
    async fn remove(&self, keys: &[Arc<str>]) -> Result<(), StoreError>;

    /// Lists at most `limit` pieces with keys greater than `after`, in ascending byte order of the keys.
    async fn list(&self, after: Option<&str>, limit: usize) -> Result<KeyPage, StoreError>;

    /// Checks the settings of the store.
    ///
    /// # Errors
    ///
    /// The store does not answer, or has settings with which it would lose pieces or keep removed ones.
    async fn check_settings(&self) -> Result<(), ProbeError>;

    /// Names the store in messages to operators.
    fn place(&self) -> String;
}

impl dyn ByteStore {
    /// Returns all pieces, ascending by key, read in pages of at most `limit`.
    pub(crate) fn all(&self, limit: usize) -> impl Stream<Item = Result<ListedPiece, StoreError>> + Send {
        let pages = stream::try_unfold(Some(None::<Arc<str>>), move |after| async move {
            let Some(after) = after else {
                return Ok::<_, StoreError>(None);
            };
            let page = self.list(after.as_deref(), limit).await?;
            let last = page.pieces.last().filter(|_| !page.is_last);
            let next = last.map(|last| Some(Arc::clone(&last.key)));
            Ok(Some((stream::iter(page.pieces.into_iter().map(Ok)), next)))
        });
        pages.try_flatten()
    }
}

/// One page of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPage {
    /// The pieces, ascending by key.
    pub pieces: Vec<ListedPiece>,
    /// True if no piece has a greater key than those of this page. The last page may be empty.
    pub is_last: bool,
}

/// A piece in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPiece {
    /// The key of the piece.
    pub key: Arc<str>,
    /// The length in bytes.
    pub size_bytes: u64,
    /// The time since it was written, by the store's own clock.
    pub age: Duration,
}

/// The reason why a piece was not stored.
#[derive(Debug, thiserror::Error)]
pub enum PutError {
    /// The body failed, or has the wrong length.
    #[error("the body of the piece failed: {0}")]
    Body(#[source] BoxError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The reason why a store did not carry an operation out. No message contains a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no piece under this key.
    #[error("the store has no such piece")]
    Missing,
    /// The piece exists, but its bytes differ from those that were written.
    #[error("the piece is damaged: {0}")]
    Damaged(String),
    /// The store has no room left.
    #[error("the store is full: {0}")]
    Full(String),
    /// The store does not answer, or has a transient failure.
    #[error("the store is not available: {0}")]
    Unavailable(String),
    /// The store refuses the operation, and would refuse it again.
    #[error("the store refuses: {0}")]
    Refused(String),
}

/// The reason why a store cannot be a tier, or cannot copy, for operators.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}\nhint: {hint}")]
pub struct ProbeError {
    /// True if the store may pass later without changes: it does not answer, or has no room.
    pub is_outage: bool,
    /// The problem, as a sentence.
    pub problem: String,
    /// The remedy to show to operators.
    pub hint: String,
}

impl ProbeError {
    /// Returns the error for a store that cannot be a tier as it is.
    pub(super) fn unfit(problem: String, hint: impl Into<String>) -> Self {
        Self {
            is_outage: false,
            problem,
            hint: hint.into(),
        }
    }
}

/// Checks that a key is valid: `/`-separated words of letters, digits and `-`.
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

/// Checks a piece to be copied, and its new key.
pub(super) fn check_copy(from: &Piece, to: &str) -> Result<(), StoreError> {
    check_key(&from.key)?;
    check_key(to)?;
    check_size(from.size_bytes)?;
    if *from.key == *to {
        return Err(StoreError::Refused(format!("{to} is no new key")));
    }
    Ok(())
}

/// Returns the error for a piece whose length differs from the one that was written.
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
