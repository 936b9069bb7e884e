//! Probes of a store. One writes, reads, lists and removes a piece; a second one copies a piece.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use shoal_base::chance;
use shoal_registry::session::new_id;
use shoal_s3::range::ByteRange;

use super::store::{ByteStore, ByteStream, ProbeError, PutError, StoreError};
use super::{ChunkDigester, Piece};

/// Length of the probe piece, and the range of it that is read back.
const PIECE_BYTES: u64 = 8192;
const RANGE: ByteRange = ByteRange::new(1000, 5096);

/// The remedy to show to operators of a store that does not copy.
const HINT_ON_COPIES: &str = "copies and renames below the rules of this tier wait for the lake, which gets their sources \
     first; let the node's account copy within the bucket, or use a store that has CopyObject, and restart the node";

/// A piece that was just written must not appear older than this.
const AGE_MAX: Duration = Duration::from_mins(10);

/// Checks that a store supports what a tier needs: its settings, and that it writes a piece, reads a range
/// of it, lists and removes it.
///
/// # Errors
///
/// The store fails one of these, or has settings with which it would lose pieces or keep removed ones.
pub async fn probe(store: &dyn ByteStore) -> Result<(), ProbeError> {
    store.check_settings().await?;
    check(store).await
}

/// Checks that a store that has passed [`probe`] still writes, reads, lists and removes pieces.
///
/// # Errors
///
/// The store fails one of these.
pub async fn check(store: &dyn ByteStore) -> Result<(), ProbeError> {
    let place = &store.place();
    let key: Arc<str> = new_key().into();
    let bytes = new_bytes();
    let tried = async {
        let written = store.put(&key, PIECE_BYTES, body(&bytes)).await;
        written.map_err(|error| not_written(place, "does not take a piece", error))?;
        check_read(store, place, &key, &bytes).await?;
        check_listed(store, place, &key).await
    };
    let tried = tried.await;
    let removed = store.remove(&[Arc::clone(&key)]).await;
    tried?;
    removed.map_err(|error| unusable(place, "does not remove a piece", &error))?;
    match store.get(&key, RANGE).await {
        Err(StoreError::Missing) => Ok(()),
        Err(error) => Err(unusable(place, "does not answer about a removed piece", &error)),
        Ok(_) => Err(broken(place, "still has a piece that it has removed")),
    }
}

/// Checks that a store can [copy](ByteStore::copy) a piece, and that the copy outlives its source. A store
/// that cannot is still usable as a tier; the lake then makes all copies.
///
/// # Errors
///
/// The store cannot copy, or does not answer.
pub async fn probe_copy(store: &dyn ByteStore) -> Result<(), ProbeError> {
    let place = &store.place();
    let [from, to] = [(); 2].map(|()| Arc::<str>::from(new_key()));
    let bytes = new_bytes();
    let tried = async {
        let written = store.put(&from, PIECE_BYTES, body(&bytes)).await;
        written.map_err(|error| not_written(place, "does not take a piece", error))?;
        let mut digester = ChunkDigester::default();
        digester.update(&bytes);
        let piece = Piece {
            key: Arc::clone(&from),
            size_bytes: PIECE_BYTES,
            md5: None,
            digests: digester.finish(),
        };
        let copied = store.copy(&piece, &to).await;
        copied.map_err(|error| uncopied(unusable(place, "does not copy a piece", &error)))?;
        // A rename removes its source. A copy that is only a link to it would be lost.
        let removed = store.remove(std::slice::from_ref(&from)).await;
        removed.map_err(|error| unusable(place, "does not remove a piece", &error))?;
        let place = format!("{place} says that it has copied a piece, and then");
        check_read(store, &place, &to, &bytes).await.map_err(uncopied)
    };
    let tried = tried.await;
    let removed = store.remove(&[from, to]).await;
    tried?;
    removed.map_err(|error| unusable(place, "does not remove a piece", &error))
}

/// Adds to an error of a copy what it means to the operator.
fn uncopied(error: ProbeError) -> ProbeError {
    if error.is_outage {
        return error;
    }
    ProbeError::unfit(error.problem, HINT_ON_COPIES)
}

async fn check_read(store: &dyn ByteStore, place: &str, key: &str, bytes: &Bytes) -> Result<(), ProbeError> {
    let stream = store.get(key, RANGE).await;
    let stream = stream.map_err(|error| unusable(place, "does not return a piece", &error))?;
    match stream.try_collect::<BytesMut>().await {
        Ok(read) if read == bytes[RANGE.start as usize..RANGE.end as usize] => Ok(()),
        Ok(_) => Err(broken(place, "returns other bytes than it was given")),
        Err(error) => Err(broken(place, &format!("does not return a piece: {error}"))),
    }
}

async fn check_listed(store: &dyn ByteStore, place: &str, key: &str) -> Result<(), ProbeError> {
    let before = &key[..key.len() - 1];
    let page = store.list(Some(before), 1).await;
    let page = page.map_err(|error| unusable(place, "does not list its pieces", &error))?;
    let problem = match page.pieces.first().filter(|piece| *piece.key == *key) {
        None => "does not list a piece that it has",
        Some(piece) if piece.size_bytes != PIECE_BYTES => "lists a piece with another length than it has",
        Some(piece) if piece.age > AGE_MAX => {
            "lists a new piece as an old one, so sweeping would remove pieces in use"
        }
        Some(_) => return Ok(()),
    };
    Err(broken(place, problem))
}

/// Returns a key that no other piece has. It encodes the size of a probe's piece, as the keys of other pieces
/// do.
pub(crate) fn new_key() -> String {
    format!("probe/{PIECE_BYTES:x}-{}", new_id())
}

/// Returns random bytes, which no earlier probe has written.
pub(super) fn new_bytes() -> Bytes {
    let words = (0..PIECE_BYTES / 8).flat_map(|_| chance::bits().to_le_bytes());
    words.collect()
}

/// Returns the bytes as the body of a piece.
pub(super) fn body(bytes: &Bytes) -> ByteStream {
    stream::iter([Ok(bytes.clone())]).boxed()
}

/// Returns the error for a store that failed an operation, with a hint for the operator.
pub(super) fn unusable(place: &str, problem: &str, error: &StoreError) -> ProbeError {
    let hint = match error {
        StoreError::Full(_) => "make room, or raise the quota",
        StoreError::Unavailable(_) => "check that the store runs, and that this machine reaches it",
        StoreError::Refused(_) => {
            "check its name and its settings, and that the node may read, write, list and remove there"
        }
        StoreError::Missing | StoreError::Damaged(_) => {
            "do not use this store: it does not keep what it acknowledges"
        }
    };
    ProbeError {
        is_outage: matches!(error, StoreError::Unavailable(_) | StoreError::Full(_)),
        problem: format!("{place} {problem}: {error}"),
        hint: hint.into(),
    }
}

/// Returns the error for a probe whose piece was not written.
pub(super) fn not_written(place: &str, problem: &str, error: PutError) -> ProbeError {
    match error {
        PutError::Store(error) => unusable(place, problem, &error),
        PutError::Body(error) => broken(place, &format!("{problem}: {error}")),
    }
}

fn broken(place: &str, problem: &str) -> ProbeError {
    ProbeError::unfit(format!("{place} {problem}"), "do not use this store as a tier")
}

/// Returns the error for a read beyond the end of a piece: the piece is shorter than its entry says.
pub(super) fn beyond_the_piece(range: ByteRange, size_bytes: u64) -> StoreError {
    StoreError::Damaged(format!(
        "it has {size_bytes} bytes, and bytes {} to {} were asked for",
        range.start, range.end
    ))
}
