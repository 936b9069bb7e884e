//! Many objects of 4 KiB: their room on the disk, their memory, and the start of a store that holds them.
//!
//! ```text
//! small_objects FOLDER fill 1000000     stores them, and ends as if it was killed
//! small_objects FOLDER start            opens the store, and reads some
//! ```

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use shoal_base::clock;
use shoal_policy::ObjectId;
use shoal_s3::object::Version;
use shoal_store::{Store, StoreConfig, Urgency};

const OBJECT_BYTES: u64 = 4 << 10;

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, action, rest @ ..] = &arguments[..] else {
        panic!("usage: small_objects FOLDER fill COUNT | start");
    };
    let config = StoreConfig {
        path: folder.into(),
        capacity_bytes: 16 << 30,
        ..StoreConfig::default()
    };
    let (memory_bytes, start) = (resident_bytes(), clock::instant());
    let (store, recovery) = Store::open(&config, 1 << 30, 1).expect("the folder is a store or empty");
    let took = clock::instant() - start;
    if action == "fill" {
        let count = rest.first().and_then(|count| count.parse().ok());
        fill(&store, count.expect("a number of objects")).await;
        let (blocks, disk_bytes) = (store.counters().blocks, disk_bytes(&config.path));
        let ratio = disk_bytes as f64 / (blocks * OBJECT_BYTES) as f64;
        println!("{blocks} blocks: {ratio:.3} bytes on disk a byte");
        std::process::abort();
    }
    let each_bytes = (resident_bytes() - memory_bytes) as f64 / recovery.blocks as f64;
    println!(
        "start with {} blocks: {took:?}, {each_bytes:.0} bytes of memory each",
        recovery.blocks
    );
    let reads = recovery.blocks.min(10_000) as u32;
    let start = clock::instant();
    for number in 0..reads {
        let block = version(number).block(0);
        assert!(store.load(block, true).await.is_some(), "what was stored is here");
    }
    println!("{:?} a first read", (clock::instant() - start) / reads);
    store.shutdown().await;
}

async fn fill(store: &Arc<Store>, count: u32) {
    let data = Bytes::from(vec![7; OBJECT_BYTES as usize]);
    let start = clock::instant();
    for number in 0..count {
        let version = version(number);
        let block = version.block(0);
        let stored = store
            .publisher
            .put(block, version, vec![data.clone()], Urgency::Now)
            .await;
        stored.expect("there is room");
    }
    println!("{:?} a put", (clock::instant() - start) / count);
}

fn version(number: u32) -> Arc<Version> {
    let mut object = ObjectId([0; 16]);
    object.0[..8].copy_from_slice(
        &u64::from(number)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .to_le_bytes(),
    );
    let mut headers = HeaderMap::new();
    headers.insert(
        "content-type",
        HeaderValue::from_static("application/octet-stream"),
    );
    headers.insert(
        "x-amz-meta-origin",
        HeaderValue::from_static("sensor-17/2026-11-28"),
    );
    let etag = format!("\"{number:032x}\"");
    Arc::new(Version {
        id: Version::id_of(object, &etag, OBJECT_BYTES),
        object,
        etag: etag.into(),
        size_bytes: OBJECT_BYTES,
        block_bytes: StoreConfig::default().block_bytes,
        last_modified: Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)),
        headers,
    })
}

/// The room of everything below a folder.
fn disk_bytes(path: &Path) -> u64 {
    let room = fs::symlink_metadata(path).map_or(0, |metadata| metadata.blocks() * 512);
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    room + entries.map(|entry| disk_bytes(&entry.path())).sum::<u64>()
}

/// Anonymous memory of this process.
fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with("RssAnon:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.expect("a number of KiB") << 10
}
