//! Tests of the stores of bytes: one suite for all, and the failures of each.

mod conformance;
mod copies;
mod folder;
mod proven;
mod s3;
pub(crate) mod scripted;

use std::any::Any;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use shoal_base::chance;
use shoal_net::endpoint::BoxError;
use shoal_s3::range::ByteRange;
use ulid::Ulid;

use super::store::{ByteStore, ByteStream, StoreError};
use super::{ChunkDigester, Piece};

/// A store, and what must outlive it.
struct Opened {
    store: Arc<dyn ByteStore>,
    _rest: Box<dyn Any>,
}

/// Returns a piece of this length, without an MD5. Its digests are those of no bytes: copies ignore them.
fn piece(key: &str, size_bytes: u64) -> Piece {
    Piece {
        key: key.into(),
        size_bytes,
        md5: None,
        digests: ChunkDigester::default().finish(),
    }
}

/// Returns a new key, which ends in a ULID.
fn new_key() -> Arc<str> {
    let random = u128::from(chance::bits()) << 64 | u128::from(chance::bits());
    format!("a-node/{}", Ulid::from(random)).into()
}

/// Returns bytes that reveal any shift in position.
fn data(size_bytes: usize) -> Bytes {
    (0..size_bytes)
        .map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8)
        .collect()
}

/// Returns a body of these frames.
fn body(pieces: Vec<Result<Bytes, BoxError>>) -> ByteStream {
    stream::iter(pieces).boxed()
}

/// Returns the bytes as a body, in frames of a length that divides nothing.
fn whole(bytes: &Bytes) -> ByteStream {
    body(
        bytes
            .chunks(60_013)
            .map(|piece| Ok(bytes.slice_ref(piece)))
            .collect(),
    )
}

async fn put(store: &dyn ByteStore, key: &str, bytes: &Bytes) {
    store.put(key, bytes.len() as u64, whole(bytes)).await.unwrap();
}

async fn collect(stream: ByteStream) -> Result<Bytes, BoxError> {
    let all = stream.try_fold(BytesMut::new(), |mut all, bytes| async move {
        all.extend_from_slice(&bytes);
        Ok(all)
    });
    all.await.map(BytesMut::freeze)
}

/// Reads a range. An error in the stream is returned as a store error.
async fn get(store: &dyn ByteStore, key: &str, start: usize, end: usize) -> Result<Bytes, StoreError> {
    let (start, end) = (start as u64, end as u64);
    let stream = store.get(key, ByteRange::new(start, end)).await?;
    let read = collect(stream).await;
    read.map_err(|error| {
        *error
            .downcast::<StoreError>()
            .expect("a store returns its own errors")
    })
}

/// Returns all keys of a store, listed in pages of `limit`.
async fn keys(store: &dyn ByteStore, limit: usize) -> Vec<Arc<str>> {
    let mut keys: Vec<Arc<str>> = Vec::new();
    loop {
        let page = store.list(keys.last().map(|key| &**key), limit).await.unwrap();
        assert!(page.pieces.len() <= limit);
        keys.extend(page.pieces.into_iter().map(|piece| piece.key));
        if page.is_last {
            return keys;
        }
    }
}
