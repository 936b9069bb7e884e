//! Stories on the stores of bytes: one suite for all of them, and the faults of each.

mod conformance;
mod copies;
mod folder;
mod proven;
mod s3;
mod scripted;

use std::any::Any;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use shoal_base::chance;
use shoal_s3::range::ByteRange;
use ulid::Ulid;

use super::store::{ByteStore, ByteStream, PieceSum, StoreError};
use crate::endpoint::BoxError;

/// A store, and what has to outlive it.
struct Opened {
    store: Arc<dyn ByteStore>,
    _rest: Box<dyn Any>,
}

/// A piece of this length is to be copied.
fn of(size_bytes: u64) -> PieceSum {
    PieceSum {
        size_bytes,
        md5: None,
    }
}

/// A new key, which ends in a ULID.
fn new_key() -> Arc<str> {
    let random = u128::from(chance::bits()) << 64 | u128::from(chance::bits());
    format!("a-node/{}", Ulid::from(random)).into()
}

/// Bytes that differ from each other at every place that a mistake might shift them to.
fn data(size_bytes: usize) -> Bytes {
    (0..size_bytes)
        .map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8)
        .collect()
}

/// A body of these pieces.
fn body(pieces: Vec<Result<Bytes, BoxError>>) -> ByteStream {
    stream::iter(pieces).boxed()
}

/// The bytes as a body, in pieces of a length that divides nothing.
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

/// Reads a range. An error in the stream is returned as one of the store.
async fn get(store: &dyn ByteStore, key: &str, start: usize, end: usize) -> Result<Bytes, StoreError> {
    let (start, end) = (start as u64, end as u64);
    let stream = store.get(key, ByteRange { start, end }).await?;
    let read = collect(stream).await;
    read.map_err(|error| {
        *error
            .downcast::<StoreError>()
            .expect("a store returns its own errors")
    })
}

/// All keys of a store, in pages of `limit`.
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
