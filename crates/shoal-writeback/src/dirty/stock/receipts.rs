//! The receipts in a tier's store, from which a lost registry is recovered.
//!
//! A receipt is a piece whose bytes end with the MD5 of those before: a restoration must not read wrong ones.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::stream::{self, Stream, TryStreamExt};
use md5::{Digest, Md5};
use shoal_registry::receipts::{
    RECEIPTS, ReceiptError, ReceiptId, ReceiptStore, decoded_receipt, encoded_receipt,
};
use shoal_registry::{DirtyVersion, Name};
use shoal_s3::range::ByteRange;

use crate::tier::{ByteStore, ListedPiece, PieceMd5, StoreError};

/// The bytes of the MD5 at the end of a receipt.
const MD5_BYTES: usize = size_of::<PieceMd5>();

/// Number of receipts on a page of the store's listing.
const PAGE: usize = 1000;

/// The receipts in the store of a tier.
#[derive(Debug)]
pub(crate) struct StoredReceipts {
    store: Arc<dyn ByteStore>,
    are_written: bool,
}

impl StoredReceipts {
    /// Creates the receipts in a store. New versions get some if `are_written`.
    pub(crate) fn new(store: Arc<dyn ByteStore>, are_written: bool) -> Self {
        Self { store, are_written }
    }

    /// Reads the receipt under a listed key.
    ///
    /// # Errors
    ///
    /// The store does not answer, or has no whole receipt there.
    pub(crate) async fn read(&self, piece: &ListedPiece) -> Result<(Name, DirtyVersion), ReceiptError> {
        let range = ByteRange {
            start: 0,
            end: piece.size_bytes,
        };
        let stream = self
            .store
            .get(&piece.key, range)
            .await
            .map_err(|error| error_of(&error))?;
        let bytes = stream.try_fold(BytesMut::new(), async |mut all, data| {
            all.extend_from_slice(&data);
            Ok(all)
        });
        let bytes = bytes.await.map_err(|error| error_of(&error))?.freeze();
        let end = bytes.len().checked_sub(MD5_BYTES);
        let end = end.filter(|end| Md5::digest(&bytes[..*end])[..] == bytes[*end..]);
        let end = end.ok_or_else(|| ReceiptError("one has other bytes than were written".into()))?;
        decoded_receipt(&bytes.slice(..end))
    }

    /// Returns the receipts whose keys begin with `prefix`.
    pub(crate) fn below(
        &self,
        prefix: String,
    ) -> impl Stream<Item = Result<ListedPiece, StoreError>> + Send + '_ {
        pieces_below(&self.store, prefix)
    }
}

/// Returns the pieces whose keys begin with `prefix`, ascending.
pub(crate) fn pieces_below(
    store: &Arc<dyn ByteStore>,
    prefix: String,
) -> impl Stream<Item = Result<ListedPiece, StoreError>> + Send + '_ {
    let pages = stream::try_unfold(
        Some(Arc::from(prefix.as_str())),
        move |after: Option<Arc<str>>| {
            let prefix = prefix.clone();
            async move {
                let Some(after) = after else { return Ok(None) };
                let mut page = store.list(Some(&after), PAGE).await?;
                let listed = page.pieces.len();
                page.pieces.retain(|piece| piece.key.starts_with(&prefix));
                let is_last = page.is_last || page.pieces.len() < listed;
                let last = page.pieces.last().filter(|_| !is_last);
                let next = last.map(|last| Arc::clone(&last.key));
                Ok::<_, StoreError>(Some((stream::iter(page.pieces.into_iter().map(Ok)), next)))
            }
        },
    );
    pages.try_flatten()
}

#[async_trait]
impl ReceiptStore for StoredReceipts {
    fn are_written(&self) -> bool {
        self.are_written
    }

    async fn write(&self, name: &Name, version: &DirtyVersion) -> Result<(), ReceiptError> {
        let receipt = encoded_receipt(name, version);
        let bytes: Bytes = [&receipt[..], &Md5::digest(&receipt)].concat().into();
        let size_bytes = bytes.len() as u64;
        let body = Box::pin(stream::once(async { Ok(bytes) }));
        let stored = self.store.put(&version.receipt().key(), size_bytes, body).await;
        stored.map(drop).map_err(|error| error_of(&error))
    }

    async fn exist(&self) -> Result<bool, ReceiptError> {
        let page = self
            .store
            .list(Some(RECEIPTS), 1)
            .await
            .map_err(|error| error_of(&error))?;
        Ok(page.pieces.iter().any(|piece| piece.key.starts_with(RECEIPTS)))
    }

    async fn remove(&self, receipts: &[ReceiptId]) -> Result<(), ReceiptError> {
        let keys: Vec<_> = receipts.iter().copied().map(ReceiptId::key).collect();
        self.store.remove(&keys).await.map_err(|error| error_of(&error))
    }
}

fn error_of(error: &impl ToString) -> ReceiptError {
    ReceiptError(error.to_string().into())
}
