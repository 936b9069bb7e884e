//! Bytes that leave a tier are verified, whatever its store returns.

use std::sync::Arc;

use bytes::Bytes;
use shoal_net::endpoint::BoxError;
use shoal_s3::range::ByteRange;
use tempfile::TempDir;

use shoal_cache::obtain::KeptBytes as _;

use super::{collect, data, new_key, put};
use crate::tier::{
    ByteStore, ChunkDigester, ChunkDigests, Damages, FolderStore, Piece, Place, StoreError, TierBytes,
};

const CHUNK: usize = 256 << 10;

fn digests(bytes: &[u8]) -> ChunkDigests {
    let mut digester = ChunkDigester::default();
    digester.update(bytes);
    digester.finish()
}

/// Stores each of `stored` as a piece whose entry has the digests of `acknowledged`.
async fn object(
    store: &Arc<dyn ByteStore>,
    stored: &[&[u8]],
    acknowledged: &[&[u8]],
) -> (TierBytes, Arc<Damages>) {
    let mut pieces = Vec::new();
    for (stored, acknowledged) in stored.iter().zip(acknowledged) {
        let key = new_key();
        put(&**store, &key, &Bytes::copy_from_slice(stored)).await;
        pieces.push(Piece {
            key,
            size_bytes: acknowledged.len() as u64,
            md5: None,
            digests: digests(acknowledged),
        });
    }
    let damages = Arc::<Damages>::default();
    let bytes = TierBytes::new(
        "s3://b/k",
        Place::Store(Arc::clone(store)),
        pieces,
        Arc::clone(&damages),
    );
    (bytes, damages)
}

async fn read(bytes: &TierBytes, start: usize, end: usize) -> Result<Bytes, BoxError> {
    let (start, end) = (start as u64, end as u64);
    collect(bytes.read(ByteRange::new(start, end))).await
}

async fn folder() -> (TempDir, Arc<dyn ByteStore>) {
    let folder = TempDir::new().unwrap();
    let store = FolderStore::open(folder.path().into()).await.unwrap();
    (folder, Arc::new(store))
}

#[tokio::test]
async fn every_range_of_pieces_of_any_length_is_proven_and_whole() {
    let (_folder, store) = folder().await;
    let whole = data(5 * CHUNK + 700);
    let (one, two, three) = (CHUNK + 5, 2 * CHUNK, 4 * CHUNK + 9);
    let pieces = [
        &whole[..one],
        &whole[one..two],
        &whole[two..three],
        &whole[three..],
    ];
    let (bytes, damages) = object(&store, &pieces, &pieces).await;
    let places = [
        0,
        1,
        CHUNK - 1,
        CHUNK,
        one - 1,
        one,
        two,
        two + 1,
        three,
        whole.len() - 1,
        whole.len(),
    ];
    for (number, start) in places.iter().enumerate() {
        for end in &places[number + 1..] {
            assert!(
                read(&bytes, *start, *end).await.unwrap() == whole[*start..*end],
                "{start} to {end}"
            );
        }
    }
    assert!(damages.objects().is_empty());
}

#[tokio::test]
async fn bytes_that_differ_and_pieces_that_are_cut_are_never_given_and_are_noted() {
    let (_folder, store) = folder().await;
    let right = data(3 * CHUNK);
    let mut wrong = right.to_vec();
    wrong[CHUNK + 3] ^= 1;
    for stored in [&wrong[..], &right[..CHUNK + 3], &[&right[..], b"x"].concat()] {
        let (bytes, damages) = object(&store, &[stored, b"rest"], &[&right, b"rest"]).await;
        // Correct bytes are returned.
        assert!(read(&bytes, 9, 12).await.unwrap() == right[9..12]);
        assert!(read(&bytes, 3 * CHUNK, 3 * CHUNK + 4).await.unwrap() == b"rest"[..]);
        let is_longer = stored.len() > right.len();
        for (start, end) in [(CHUNK, CHUNK + 1), (0, 3 * CHUNK)] {
            let read = read(&bytes, start, end).await;
            if is_longer {
                assert!(read.unwrap() == right[start..end]);
                continue;
            }
            let error = *read.unwrap_err().downcast::<StoreError>().unwrap();
            assert!(matches!(error, StoreError::Damaged(_)), "{error}");
        }
        assert_eq!(damages.objects().len(), usize::from(!is_longer));
    }
}
