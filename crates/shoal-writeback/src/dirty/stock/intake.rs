//! Streams the bytes of a write into a tier's store, or small ones into memory.

use std::pin::Pin;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, StreamExt};
use http_body::Body;
use http_body_util::BodyExt;
use shoal_net::endpoint::BoxError;
use shoal_s3::error::S3Error;
use shoal_s3::payload;
use tokio::sync::mpsc;

use crate::dirty::record::writing::WriteError;
use crate::tier::{ByteStore, ChunkDigester, ChunkDigests, PieceMd5, PutError, StoreError, TierUnavailable};

/// Number of frames of a body that may be queued for the store.
const WAITING: usize = 4;

/// Bytes that the store has written, with their digests.
pub(crate) struct Received {
    pub(crate) md5: PieceMd5,
    pub(crate) digests: ChunkDigests,
}

/// Writes a body under a new key. `each` is called with every frame.
///
/// # Errors
///
/// The store keeps nothing that could be read as the whole body.
pub(crate) async fn receive<B>(
    store: &dyn ByteStore,
    key: &str,
    size_bytes: u64,
    mut body: Pin<&mut B>,
    mut each: impl FnMut(&Bytes),
) -> Result<Received, WriteError>
where
    B: Body<Data = Bytes, Error = S3Error>,
{
    let (sender, mut receiver) = mpsc::channel::<Result<Bytes, BoxError>>(WAITING);
    let pieces = stream::poll_fn(move |cx| receiver.poll_recv(cx));
    let stored = store.put(key, size_bytes, pieces.boxed());
    let passed = async move {
        let pass = async {
            let mut digester = ChunkDigester::default();
            while let Some(frame) = body.frame().await {
                let Ok(data) = frame?.into_data() else {
                    continue;
                };
                digester.update(&data);
                each(&data);
                // The store has failed and returns its own error below.
                if sender.send(Ok(data)).await.is_err() {
                    break;
                }
            }
            Ok::<_, S3Error>(digester.finish())
        };
        let passed = pass.await;
        if passed.is_err() {
            // The store must keep nothing of an incomplete body.
            let _ = sender.send(Err("the body of the request broke off".into())).await;
        }
        passed
    };
    let (stored, passed) = tokio::join!(stored, passed);
    let digests = passed?;
    let md5 = stored.map_err(|error| match error {
        PutError::Store(StoreError::Full(why)) => {
            tracing::warn!(%why, "a tier has no room");
            WriteError::Full
        }
        // The body itself has not failed, so it has another length than was announced.
        PutError::Body(_) => wrong_length().into(),
        PutError::Store(error) => WriteError::Unavailable(TierUnavailable::because(&error)),
    })?;
    Ok(Received { md5, digests })
}

/// Reads a small body into memory, with its digests unless it is empty.
///
/// # Errors
///
/// The body has another length, or does not match the request's headers.
pub(crate) async fn receive_content<B>(
    size_bytes: u64,
    mut body: Pin<&mut B>,
) -> Result<(Bytes, Option<ChunkDigests>), WriteError>
where
    B: Body<Data = Bytes, Error = S3Error>,
{
    let mut content = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        if (content.len() + data.len()) as u64 > size_bytes {
            return Err(wrong_length().into());
        }
        content.extend_from_slice(&data);
    }
    if content.len() as u64 != size_bytes {
        return Err(wrong_length().into());
    }
    let digests = (size_bytes > 0).then(|| {
        let mut digester = ChunkDigester::default();
        digester.update(&content);
        digester.finish()
    });
    Ok((content.freeze(), digests))
}

/// Returns the error for a body whose length differs from the one announced.
fn wrong_length() -> S3Error {
    payload::wrong_length().closing()
}
