//! The cost of a hit, a load and a put in the store alone:
//! `cargo run --profile release --example store -- FOLDER`.

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::HeaderMap;
use shoal_base::clock;
use shoal_policy::{BlockId, ObjectId};
use shoal_s3::object::Version;
use shoal_store::{Store, StoreConfig, Urgency};

const BLOCK_BYTES: u64 = 4 << 20;

#[tokio::main]
async fn main() {
    let folder = tempfile::tempdir_in(std::env::args().nth(1).unwrap_or_else(|| ".".into()))
        .expect("the folder given can be written");
    let config = StoreConfig {
        path: folder.path().join("store"),
        capacity_bytes: 2 << 30,
        block_bytes: BLOCK_BYTES,
        ..StoreConfig::default()
    };
    let store = Store::open(&config, 1 << 30, 1).expect("a new folder opens").0;
    for (size_bytes, count) in [(4 << 10, 1000), (64 << 10, 1000), (4 << 20, 64)] {
        measure(&store, size_bytes, count).await;
    }
    put_many(&store, 100, 20_000, "index").await;
    store.shutdown().await;
    drop(store);

    let (memory, start) = (resident_bytes(), clock::instant());
    let (store, recovery) = Store::open(&config, 1 << 30, 1).expect("our folder opens again");
    let took = clock::instant() - start;
    let each_bytes = (resident_bytes() - memory) / recovery.blocks;
    println!(
        "start with {} blocks, most of objects of one block: {took:?}, {each_bytes} bytes of memory a block",
        recovery.blocks
    );
    store.shutdown().await;
    drop(store);
    for size_bytes in [4 << 10, 64 << 10, 4 << 20] {
        measure_full(folder.path(), size_bytes).await;
    }
}

/// The cost of a put while there is room, and when a block leaves for each that comes.
async fn measure_full(folder: &Path, size_bytes: u64) {
    let config = StoreConfig {
        path: folder.join(size_bytes.to_string()),
        capacity_bytes: 1 << 30,
        block_bytes: BLOCK_BYTES,
        ..StoreConfig::default()
    };
    let store = Store::open(&config, 1 << 30, 1).expect("a new folder opens").0;
    let count = (config.capacity_bytes * 3 / 4 / size_bytes) as u32;
    let (_, with_room) = put_many(&store, size_bytes, count, "first").await;
    put_many(&store, size_bytes, count, "second").await;
    let (_, full) = put_many(&store, size_bytes, count, "third").await;
    println!(
        "{size_bytes:>8} B: put {:.0} ns while there is room, {:.0} into a full store",
        nanos_each(with_room, count),
        nanos_each(full, count),
    );
    store.shutdown().await;
}

async fn measure(store: &Arc<Store>, size_bytes: u64, count: u32) {
    let (versions, put) = put_many(store, size_bytes, count, "a").await;
    let blocks: Vec<_> = versions.iter().map(|version| version.block(0)).collect();
    let hits = 1_000_000;
    let one = timed(|| hit(store, &blocks[..1], hits));
    let many = timed(|| hit(store, &blocks, hits));
    let two = timed(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| hit(store, &blocks[..1], hits));
            hit(store, &blocks[..1], hits);
        });
    });
    // Longer than a mapping is assumed to stay in memory, so that every hit calls `mincore`.
    std::thread::sleep(Duration::from_millis(60));
    let asking = timed(|| hit(store, &blocks, count));
    println!(
        "{size_bytes:>8} B: put {:.0} ns; a hit {:.0} ns on one block, {:.0} on {count}, {:.0} of two threads on one, {:.0} asking the kernel",
        nanos_each(put, count),
        nanos_each(one, hits),
        nanos_each(many, hits),
        nanos_each(two, hits),
        nanos_each(asking, count),
    );
}

fn hit(store: &Store, blocks: &[BlockId], hits: u32) {
    for block in blocks.iter().cycle().take(hits as usize) {
        let bytes = store.resident(*block, true);
        assert!(black_box(bytes).is_some(), "the block is mapped");
    }
}

fn nanos_each(elapsed: Duration, operations: u32) -> f64 {
    elapsed.as_secs_f64() * 1e9 / f64::from(operations)
}

async fn put_many(
    store: &Arc<Store>,
    size_bytes: u64,
    count: u32,
    etag: &str,
) -> (Vec<Arc<Version>>, Duration) {
    let data = Bytes::from(vec![7; size_bytes as usize]);
    let versions: Vec<_> = (0..count)
        .map(|number| version(number, etag, size_bytes))
        .collect();
    let start = clock::instant();
    for version in &versions {
        let pieces = vec![data.clone()];
        let stored = store
            .publisher
            .put(version.block(0), Arc::clone(version), pieces, Urgency::Now)
            .await;
        stored.expect("there is room");
    }
    (versions, clock::instant() - start)
}

fn version(number: u32, etag: &str, size_bytes: u64) -> Arc<Version> {
    let mut object = ObjectId([0; 16]);
    object.0[..4].copy_from_slice(&number.to_le_bytes());
    Arc::new(Version {
        id: Version::id_of(object, etag, size_bytes),
        object,
        etag: etag.into(),
        size_bytes,
        block_bytes: BLOCK_BYTES,
        last_modified: Some(SystemTime::UNIX_EPOCH),
        headers: HeaderMap::new(),
    })
}

/// Returns the processor time that this thread spends on `work`, because other processes may use the machine
/// too.
fn timed(work: impl FnOnce()) -> Duration {
    let before = processor_time();
    work();
    processor_time().saturating_sub(before)
}

fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells");
    let nanos = stat
        .split_whitespace()
        .next()
        .and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.expect("a number of nanoseconds"))
}

/// Anonymous memory of this process.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status
        .lines()
        .find(|line| line.starts_with("RssAnon:"))
        .expect("a known line");
    let kib: u64 = line
        .split_whitespace()
        .nth(1)
        .and_then(|kib| kib.parse().ok())
        .expect("a number of KiB");
    kib << 10
}
