//! The store from outside, on a real folder.

mod cache_events;
mod capacity;
mod damage;
mod drafts;
mod faults;
mod gwf;
mod layers;
mod listing;
mod model;
mod pins;
mod quotas;
mod reads;
mod restart;
mod segments;
mod unflushed;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use shoal_policy::admission::Refusal;
use shoal_policy::eviction::PolicyName;
use shoal_policy::{ObjectId, VersionId};
use shoal_s3::object::Version;

use super::files::disk::{Disk, DiskFault};
use super::{Absence, BlockEvent, Recovery, RemovalReason, Store, StoreConfig, Urgency};
use crate::files::disk;
use crate::files::location::{Entry, Location};
use crate::ledger::segments::charge_bytes;
use crate::upkeep::maintenance;
use crate::upkeep::opening::{self, Conditions};

/// Size of a block in these tests: no power of two, so that blocks end in the middle of a page.
const BLOCK: u64 = 10_000;

/// Room for an empty store on common file systems, and a little more.
const ROOMY: u64 = 8 << 20;

/// A folder that holds a store, or is about to.
struct Lab {
    _folder: tempfile::TempDir,
    config: StoreConfig,
    mapped_bytes: u64,
    layers: usize,
    /// The size of segments, given the room. None are used unless a test wants some.
    segment_bytes: fn(u64) -> Option<u64>,
}

impl Lab {
    /// The file of the segment that holds an entry.
    fn segment_path(&self, entry: &Entry) -> PathBuf {
        let name = format!("{:08x}", entry.segment.number);
        self.config.path.join("segments").join(name)
    }

    fn new(capacity_bytes: u64) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let config = StoreConfig {
            path: folder.path().join("store"),
            capacity_bytes,
            policy: Some(PolicyName::Lru),
            pinned_percent: 50,
            block_bytes: BLOCK,
            quotas: Vec::new(),
        };
        Self {
            _folder: folder,
            config,
            mapped_bytes: 64 << 20,
            layers: 1,
            segment_bytes: |_| None,
        }
    }

    /// A lab whose store has room for about this many blocks, and keeps them in segments of 128 KiB.
    fn with_segments(blocks: u64) -> Self {
        Self {
            segment_bytes: |_| Some(128 << 10),
            ..Self::for_blocks(blocks)
        }
    }

    /// A lab whose store has room for about this many blocks.
    fn for_blocks(blocks: u64) -> Self {
        let mut lab = Self::new(ROOMY);
        let (store, _) = lab.open();
        let fixed_bytes = store.counters().taken_bytes;
        // The store's threads may hold the folder slightly longer than the test does.
        store
            .maintenance
            .stop(&store.writers)
            .into_iter()
            .for_each(maintenance::join);
        drop(store);
        let disk = Disk::open(&lab.config.path, None).unwrap();
        let charge_bytes = disk.charge_bytes(BLOCK + 1000);
        lab.config.capacity_bytes = fixed_bytes + blocks * charge_bytes;
        lab
    }

    fn open(&self) -> (Arc<Store>, Recovery) {
        opening::open(
            &self.config,
            self.mapped_bytes,
            self.layers,
            self.conditions(None),
        )
        .unwrap()
    }

    fn open_failing(&self, fault: Arc<DiskFault>) -> Arc<Store> {
        let conditions = self.conditions(Some(fault));
        let opened = opening::open(&self.config, self.mapped_bytes, self.layers, conditions);
        opened.unwrap().0
    }

    fn conditions(&self, fault: Option<Arc<DiskFault>>) -> Conditions {
        Conditions {
            fault,
            patience: Duration::ZERO,
            segment_bytes: self.segment_bytes,
        }
    }

    /// Stops a store as a node does, and opens it again.
    async fn reopen(&self, store: Arc<Store>) -> (Arc<Store>, Recovery) {
        close(store).await;
        self.open()
    }

    fn path(&self, version: &Version, index: u32) -> PathBuf {
        let block = version.block(index);
        let folder = format!("blocks/{:02x}", disk::folder_of(block));
        self.config.path.join(folder).join(disk::file_name(block))
    }

    fn quarantine(&self) -> usize {
        fs::read_dir(self.config.path.join("quarantine")).unwrap().count()
    }

    /// Returns the room of everything below the folder, as `du` counts it.
    fn disk_bytes(&self) -> u64 {
        disk_bytes(&self.config.path)
    }
}

async fn close(store: Arc<Store>) {
    store.shutdown().await;
    assert_eq!(Arc::strong_count(&store), 1, "the test alone holds the store");
}

fn disk_bytes(path: &Path) -> u64 {
    // A file may be renamed or unlinked during the walk.
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return 0;
    };
    let below: u64 = match fs::read_dir(path) {
        Ok(entries) if metadata.is_dir() => entries.map(|entry| disk_bytes(&entry.unwrap().path())).sum(),
        _ => 0,
    };
    metadata.blocks() * 512 + below
}

/// The latest stored version of `object` that still has a block in the store.
fn newest(store: &Store, object: ObjectId) -> Option<VersionId> {
    store.ground.ledger.lock().index.newest(object)
}

/// Asserts that index, layers, residency and segments agree, as they must whenever the lock is free.
fn assert_consistent(store: &Store) {
    let state = &*store.ground.ledger.lock();
    let (residency, rooms) = (&state.residency, state.residency.policy().rooms());
    let used_bytes: u64 = rooms.iter().map(|room| room.used_bytes).sum();
    let blocks: usize = rooms.iter().map(|room| room.keys).sum();
    let versions = state.index.versions().into_iter();
    let indexed: Vec<_> = versions
        .flat_map(|(_, version)| state.index.ids_of(version))
        .collect();
    assert_eq!(indexed.len(), residency.held());
    let pinned = indexed
        .iter()
        .filter_map(|block| residency.pins().bytes_of(block));
    let pinned: Vec<u64> = pinned.collect();
    assert_eq!(pinned.iter().sum::<u64>(), residency.pins().bytes());
    assert_eq!(
        used_bytes + residency.pins().bytes(),
        residency.room().used_bytes()
    );
    assert_eq!(blocks + pinned.len(), residency.held());
    assert!(residency.room().taken_bytes() <= residency.room().capacity_bytes());
    let charges = indexed.iter().filter_map(|block| match state.locate(*block)? {
        Location::File => None,
        Location::Entry(entry) => Some(charge_bytes(entry.bytes)),
    });
    assert_eq!(charges.sum::<u64>(), state.segments.charged_bytes());
}

fn object(number: u8) -> ObjectId {
    ObjectId([number; 16])
}

/// Returns a version of object `number`; `etag` distinguishes its versions.
fn version(number: u8, etag: &str, size_bytes: u64) -> Arc<Version> {
    let etag = format!("\"{etag}\"");
    let mut headers = HeaderMap::new();
    headers.append("content-type", HeaderValue::from_static("text/plain"));
    headers.append("x-amz-meta-number", HeaderValue::from(u16::from(number)));
    Arc::new(Version {
        id: Version::id_of(object(number), &etag, size_bytes),
        object: object(number),
        etag: etag.into(),
        size_bytes,
        block_bytes: BLOCK,
        last_modified: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)),
        headers,
    })
}

/// Returns the bytes of a block: different for each block, and at each position in it.
fn data(version: &Version, index: u32) -> Vec<u8> {
    let mut state = u64::from_le_bytes(version.id.0[..8].try_into().unwrap()) ^ u64::from(index);
    let words = std::iter::from_fn(|| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        Some((state >> 56) as u8)
    });
    words.take(version.block_len(index) as usize).collect()
}

/// Stores a block in several pieces.
async fn put(store: &Arc<Store>, version: &Arc<Version>, index: u32) -> Result<Bytes, Refusal> {
    let pieces = data(version, index)
        .chunks(3000)
        .map(Bytes::copy_from_slice)
        .collect();
    store
        .publisher
        .put(version.block(index), Arc::clone(version), pieces, Urgency::Late)
        .await
}

async fn put_all(store: &Arc<Store>, version: &Arc<Version>) {
    for index in 0..version.block_count() {
        put(store, version, index).await.unwrap();
    }
}

fn evictions(store: &Store, reason: RemovalReason) -> u64 {
    store.counters().evictions[reason.as_str()]
}

fn refusals(store: &Store, reason: Refusal) -> u64 {
    store.counters().refusals[reason.as_str()]
}

/// Waits until the background threads have done something.
async fn until(what: &str, mut happened: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if happened() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: it did not happen");
}
