//! Sweeps of a store whose pieces have the ages that a test gives them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use shoal_base::clock;
use shoal_registry::engine::embedded::Embedded;
use shoal_registry::engine::{Change, Transaction};
use shoal_registry::names::Names;
use shoal_registry::receipts::{ReceiptError, ReceiptId, ReceiptStore};
use shoal_registry::session::new_id;
use shoal_registry::uploads::{UploadPart, Uploads};
use shoal_registry::{DirtyVersion, Lifetime, Name};
use shoal_s3::range::ByteRange;
use ulid::Ulid;

use super::{Sizes, SweepError, Sweeper, Swept, TierStore};
use crate::tier::{
    ByteStore, ByteStream, KeyPage, ListedPiece, Piece, PieceMd5, ProbeError, PutError, StoreError,
};

const NODE: u64 = 7;
const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);
const PIECE_BYTES: u64 = 100;
const SIZES: Sizes = Sizes {
    page: 2,
    old: 3,
    batch: 2,
};

/// Keys whose ages are set by a test. A full page is always followed by another one, even if that is empty.
#[derive(Debug, Default)]
struct Shelf {
    ages: Mutex<BTreeMap<Arc<str>, Duration>>,
    /// An object that another node writes during the listing of pieces.
    writes: Mutex<Option<(Names, DirtyVersion)>>,
    /// The number of removals before the store fails, if it does.
    removals_left: Mutex<Option<u32>>,
}

#[async_trait]
impl ByteStore for Shelf {
    async fn put(&self, _: &str, _: u64, _: ByteStream) -> Result<PieceMd5, PutError> {
        unreachable!("a sweep writes no piece")
    }

    async fn get(&self, _: &str, _: ByteRange) -> Result<ByteStream, StoreError> {
        unreachable!("a sweep reads no piece")
    }

    async fn copy(&self, _: &Piece, _: &str) -> Result<(), StoreError> {
        unreachable!("a sweep copies no piece")
    }

    async fn remove(&self, keys: &[Arc<str>]) -> Result<(), StoreError> {
        if let Some(left) = &mut *self.removals_left.lock() {
            let away = || StoreError::Unavailable("it is away".into());
            *left = left.checked_sub(1).ok_or_else(away)?;
        }
        self.ages.lock().retain(|key, _| !keys.contains(key));
        Ok(())
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<KeyPage, StoreError> {
        let pieces: Vec<_> = {
            let ages = self.ages.lock();
            let behind = ages
                .iter()
                .filter(|(key, _)| after.is_none_or(|after| ***key > *after));
            let pieces = behind.take(limit).map(|(key, age)| ListedPiece {
                key: Arc::clone(key),
                size_bytes: PIECE_BYTES,
                age: *age,
            });
            pieces.collect()
        };
        let writes = self.writes.lock().take();
        if let Some((names, version)) = writes {
            names.write(&Name::new("b", b"late"), version).await.unwrap();
        }
        let is_last = pieces.len() < limit;
        Ok(KeyPage { pieces, is_last })
    }

    async fn check_settings(&self) -> Result<(), ProbeError> {
        unreachable!("a sweep does not probe")
    }

    fn place(&self) -> String {
        unreachable!("a sweep does not probe")
    }
}

/// A registry that was created a week ago, and a store.
struct Bed {
    names: Names,
    shelf: Arc<Shelf>,
    sweeper: Sweeper,
    _folder: tempfile::TempDir,
}

async fn bed() -> Bed {
    let folder = tempfile::tempdir().unwrap();
    let engine = Arc::new(Embedded::open(folder.path()).unwrap());
    let began = Change::put("r".into(), id(7 * DAY).to_string().into());
    let names = Names::new(engine, NODE, Duration::from_secs(40));
    names.engine().commit(Transaction::from(began)).await.unwrap();
    let shelf = Arc::<Shelf>::default();
    let store = Arc::clone(&shelf) as Arc<dyn ByteStore>;
    Bed {
        sweeper: Sweeper::new(
            Arc::new(TierStore::new("t".into(), store, u64::MAX, Arc::default())),
            names.clone(),
        ),
        names,
        shelf,
        _folder: folder,
    }
}

/// Returns a new id with a creation time `ago`.
fn id(ago: Duration) -> Ulid {
    let now = new_id();
    Ulid::from_parts(now.timestamp_ms() - ago.as_millis() as u64, now.random())
}

impl Bed {
    /// Puts a piece into the store whose write began `ago`, and whose age in the store is `age`.
    fn piece(&self, ago: Duration, age: Duration) -> Arc<str> {
        let key: Arc<str> = format!("{PIECE_BYTES:x}-{}", id(ago)).into();
        self.shelf.ages.lock().insert(Arc::clone(&key), age);
        key
    }

    fn old_piece(&self) -> Arc<str> {
        self.piece(25 * HOUR, 25 * HOUR)
    }

    fn here(&self, key: &str) -> bool {
        self.shelf.ages.lock().contains_key(key)
    }

    async fn write(&self, key: &str, data: &Arc<str>) {
        let name = Name::new("b", key.as_bytes());
        self.names.write(&name, object(data)).await.unwrap();
    }

    async fn sweep(&self) -> Result<Swept, SweepError> {
        self.sweeper.sweep(clock::utc_now(), DAY, SIZES).await
    }
}

fn object(data: &Arc<str>) -> DirtyVersion {
    DirtyVersion {
        id: new_id(),
        node: NODE,
        size_bytes: PIECE_BYTES,
        lifetime: Lifetime::Normal,
        is_tombstone: false,
        data: vec![Arc::clone(data)],
        record: Bytes::new(),
        content: None,
    }
}

/// Has entries list receipts, and stores none.
#[derive(Debug)]
struct ListedOnly;

#[async_trait]
impl ReceiptStore for ListedOnly {
    fn are_written(&self) -> bool {
        true
    }

    async fn write(&self, _: &Name, _: &DirtyVersion) -> Result<(), ReceiptError> {
        Ok(())
    }

    async fn exist(&self) -> Result<bool, ReceiptError> {
        Ok(true)
    }

    async fn remove(&self, _: &[ReceiptId]) -> Result<(), ReceiptError> {
        Ok(())
    }
}

#[tokio::test]
async fn receipts_that_no_entry_lists_are_removed_once_their_commits_cannot_happen_any_more() {
    let bed = bed().await;
    let receipt = |ago: Duration, age: Duration| {
        let receipt = ReceiptId {
            id: id(ago),
            node: NODE,
        };
        bed.shelf.ages.lock().insert(receipt.key(), age);
        receipt
    };
    let minute = Duration::from_mins(1);
    let names = bed.names.clone().with_receipts(Arc::new(ListedOnly));
    let mut listed = Vec::new();
    // The second one replaces the first, whose receipt stays until the second is flushed.
    for ago in [4 * minute, 3 * minute] {
        let of_entry = receipt(ago, ago);
        let version = DirtyVersion {
            id: of_entry.id,
            ..object(&bed.piece(ago, ago))
        };
        names.write(&Name::new("b", b"k"), version).await.unwrap();
        listed.push(of_entry);
    }
    let young = [receipt(minute, 3 * minute), receipt(3 * minute, minute)];
    let orphans: Vec<_> = (0..5).map(|_| receipt(3 * minute, 3 * minute)).collect();
    let age = Duration::from_secs(80);
    let swept = bed.sweeper.sweep_receipts(clock::utc_now(), age, SIZES);
    swept.await.unwrap();
    assert!(
        listed
            .iter()
            .chain(&young)
            .all(|receipt| bed.here(&receipt.key()))
    );
    assert!(!orphans.iter().any(|receipt| bed.here(&receipt.key())));
}

#[tokio::test]
async fn old_pieces_that_nothing_names_are_removed_and_all_others_stay() {
    let bed = bed().await;
    let (of_object, of_part, replaced) = (bed.old_piece(), bed.old_piece(), bed.old_piece());
    bed.write("replaced", &replaced).await;
    bed.write("replaced", &of_object).await;
    let (uploads, upload) = (Uploads::new(bed.names.clone()), new_id());
    let name = Name::new("b", b"upload");
    uploads.begin(&name, upload, Bytes::new()).await.unwrap();
    let found = uploads.find(&name, upload).await.unwrap().unwrap();
    let part = UploadPart {
        data: Arc::clone(&of_part),
        record: Bytes::new(),
    };
    uploads.put_part(&found, 1, &part).await.unwrap();
    let kept = [
        of_object,
        of_part,
        replaced,
        bed.piece(25 * HOUR, 23 * HOUR),
        bed.piece(23 * HOUR, 25 * HOUR),
        bed.piece(8 * DAY, 8 * DAY),
    ];
    let strange: Arc<str> = "strange".into();
    bed.shelf.ages.lock().insert(Arc::clone(&strange), 25 * HOUR);
    let orphans: Vec<_> = (0..7).map(|_| bed.old_piece()).collect();
    let swept = bed.sweep().await.unwrap();
    let expected = Swept {
        pieces: 7,
        bytes: 7 * PIECE_BYTES,
    };
    assert_eq!(swept, expected);
    assert_eq!(bed.sweeper.total(), expected);
    assert!(orphans.iter().all(|key| !bed.here(key)));
    for (number, key) in kept.iter().chain([&strange]).enumerate() {
        assert!(bed.here(key), "piece {number}");
    }
    assert_eq!(bed.sweep().await.unwrap(), Swept::default());
    assert_eq!(bed.sweeper.total(), expected, "the total stays");
}

#[tokio::test]
async fn the_total_counts_what_a_sweep_removed_before_it_broke_off() {
    let bed = bed().await;
    for _ in 0..3 {
        bed.old_piece();
    }
    // A batch has two pieces.
    *bed.shelf.removals_left.lock() = Some(1);
    assert!(matches!(bed.sweep().await, Err(SweepError::Store(_))));
    let of_a_batch = Swept {
        pieces: 2,
        bytes: 2 * PIECE_BYTES,
    };
    assert_eq!(bed.sweeper.total(), of_a_batch);
    *bed.shelf.removals_left.lock() = None;
    assert_eq!(bed.sweep().await.unwrap().pieces, 1);
    let of_both = Swept {
        pieces: 3,
        bytes: 3 * PIECE_BYTES,
    };
    assert_eq!(bed.sweeper.total(), of_both);
}

#[tokio::test]
async fn a_piece_that_gets_its_name_after_it_was_listed_stays() {
    let bed = bed().await;
    let (late, orphan) = (bed.old_piece(), bed.old_piece());
    *bed.shelf.writes.lock() = Some((bed.names.clone(), object(&late)));
    assert_eq!(bed.sweep().await.unwrap().pieces, 1);
    assert!(bed.here(&late) && !bed.here(&orphan));
}

#[tokio::test]
async fn nothing_is_removed_unless_all_names_were_read() {
    let bed = bed().await;
    let orphan = bed.old_piece();
    let unreadable = Change::put("d/b/unreadable".into(), "\u{9}".into());
    bed.names
        .engine()
        .commit(Transaction::from(unreadable))
        .await
        .unwrap();
    assert!(matches!(bed.sweep().await, Err(SweepError::Registry(_))));
    assert!(bed.here(&orphan));
}
