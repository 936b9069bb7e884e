//! Capacity is a promise: what the disk really holds never exceeds it.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use shoal_policy::admission::Refusal;
use shoal_policy::eviction::PolicyName;

use super::{BLOCK, Lab, RemovalReason, data, evictions, put, put_all, refusals, until, version};
use crate::{Store, StoreError};

#[tokio::test]
async fn a_full_store_makes_room_and_never_exceeds_its_capacity() {
    let lab = Lab::for_blocks(10);
    let (store, _) = lab.open();
    for number in 0..100 {
        let version = version(number, "a", BLOCK);
        put(&store, &version, 0).await.unwrap();
        assert!(lab.disk_bytes() <= lab.config.capacity_bytes);
        assert!(store.counters().taken_bytes <= lab.config.capacity_bytes);
        assert_eq!(
            store.resident(version.block(0), true).unwrap(),
            data(&version, 0),
            "the newest is here"
        );
    }
    assert!(evictions(&store, RemovalReason::Room) >= 90);
    assert_eq!(
        evictions(&store, RemovalReason::Room) + store.counters().blocks,
        100
    );
}

#[tokio::test]
async fn the_least_recently_used_block_leaves_first() {
    let lab = Lab::for_blocks(10);
    let (store, _) = lab.open();
    let first = version(0, "a", BLOCK);
    put(&store, &first, 0).await.unwrap();
    for number in 1..50 {
        put(&store, &version(number, "a", BLOCK), 0).await.unwrap();
        assert!(
            store.resident(first.block(0), true).is_some(),
            "used before each of {number} others came"
        );
    }
    assert!(!store.contains(version(1, "a", BLOCK).block(0)));
}

#[tokio::test]
async fn room_is_made_ahead_of_need() {
    let lab = Lab::for_blocks(40);
    let (store, _) = lab.open();
    for number in 0..40 {
        put_all(&store, &version(number, "a", BLOCK)).await;
    }
    let high_bytes = store.layers.room_bytes() / 20 * 19;
    until("a twentieth is free", || {
        store.counters().resident_bytes <= high_bytes
    })
    .await;
    assert!(store.counters().blocks >= 34, "but not much more");
}

/// Blocks of the full length leave as they come, so that each is chosen by what is known at that moment.
#[tokio::test]
async fn a_store_keeps_a_few_blocks_free_and_evicts_one_at_a_time() {
    const BLOCKS: u8 = 200;
    let lab = Lab::for_blocks(u64::from(BLOCKS));
    let (store, _) = lab.open();
    for number in 0..BLOCKS {
        put(&store, &version(number, "a", BLOCK), 0).await.unwrap();
    }
    let is_quiet = || !store.ground.ledger.lock().residency.room().is_crowded();
    until("some blocks are free", is_quiet).await;
    let held = store.counters().blocks;
    assert!((193..=196).contains(&held), "{held} blocks");
    for number in 0..50 {
        put(&store, &version(number, "b", BLOCK), 0).await.unwrap();
        until("a block has left for it", is_quiet).await;
        assert_eq!(store.counters().blocks, held);
        assert!(lab.disk_bytes() <= lab.config.capacity_bytes);
    }
}

/// An evictor that asks other nodes decides about many blocks at once.
#[tokio::test]
async fn with_an_evictor_of_the_node_a_share_is_kept_free() {
    let mut lab = Lab::for_blocks(200);
    lab.config.policy = Some(PolicyName::Gwf);
    let (store, _) = lab.open();
    store.evictor.evict_by(|| ());
    for number in 0..195 {
        put(&store, &version(number, "a", BLOCK), 0).await.unwrap();
    }
    let excess = store.worths.least(false, 64, &HashMap::new()).len();
    assert!((14..=16).contains(&excess), "{excess} blocks to a tenth");
}

#[tokio::test]
async fn blocks_in_use_do_not_leave_and_what_finds_no_room_is_refused() {
    let lab = Lab::for_blocks(8);
    let (store, _) = lab.open();
    let mut held = Vec::new();
    let refusal = loop {
        match put(&store, &version(held.len() as u8, "a", BLOCK), 0).await {
            Ok(bytes) => held.push(bytes),
            Err(refusal) => break refusal,
        }
    };
    assert_eq!(refusal, Refusal::NoRoom);
    assert_eq!(refusals(&store, Refusal::NoRoom), 1);
    assert_eq!(store.counters().blocks, held.len() as u64);
    assert!(lab.disk_bytes() <= lab.config.capacity_bytes);
    for (number, bytes) in held.iter().enumerate() {
        assert_eq!(*bytes, data(&version(number as u8, "a", BLOCK), 0));
    }
    held.clear();
    put(&store, &version(200, "a", BLOCK), 0)
        .await
        .expect("readers are done, there is room");
}

#[tokio::test]
async fn a_capacity_that_holds_nothing_is_refused_with_one_that_would_do() {
    let mut lab = Lab::new(1000);
    let Err(StoreError::TooSmall { least_bytes, .. }) = Store::open(&lab.config, 0, 1) else {
        panic!("too small a store opens");
    };
    lab.config.capacity_bytes = least_bytes;
    let (store, _) = lab.open();
    put(&store, &version(1, "a", BLOCK), 0).await.unwrap();
}

/// A lower bound of the bytes that the disk held at one moment, although files come and go during the walks.
///
/// A file found by the first walk and again by the second was there between the two. A number that is used
/// again for another file comes with another time.
fn held_bytes(path: &Path) -> u64 {
    let (before, after) = (walk(path), walk(path));
    before
        .iter()
        .filter_map(|(file, bytes)| after.get(file).map(|later| later.min(bytes)))
        .sum()
}

fn walk(path: &Path) -> BTreeMap<(u64, i64), u64> {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return BTreeMap::new();
    };
    let written_ns = if metadata.is_dir() {
        0
    } else {
        metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec()
    };
    let mut found = BTreeMap::from([((metadata.ino(), written_ns), metadata.blocks() * 512)]);
    for entry in fs::read_dir(path).into_iter().flatten() {
        found.extend(walk(&entry.unwrap().path()));
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_puts_at_capacity_keep_the_promise() {
    let lab = Lab::for_blocks(12);
    let (store, _) = lab.open();
    let done = Arc::new(AtomicBool::new(false));
    let watch = {
        let (path, capacity_bytes, done) = (
            lab.config.path.clone(),
            lab.config.capacity_bytes,
            Arc::clone(&done),
        );
        std::thread::spawn(move || {
            let mut looks = 0;
            while !done.load(Ordering::Relaxed) || looks == 0 {
                assert!(
                    held_bytes(&path) <= capacity_bytes,
                    "the disk holds more than it may"
                );
                looks += 1;
            }
        })
    };
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for round in 0..40 {
                    // Writers share some blocks, and each has some that no other writes.
                    let version = version(round * 3 + writer % 3, "a", BLOCK - u64::from(round) * 50);
                    if let Ok(bytes) = put(&store, &version, 0).await {
                        assert_eq!(bytes, data(&version, 0));
                    }
                    if let Some(bytes) = store.load(version.block(0), true).await {
                        assert_eq!(bytes, data(&version, 0));
                    }
                    if round % 7 == 0 {
                        store.removal.remove_version(version.id);
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    watch.join().unwrap();
    until("everything that left is gone", || !store.removal.has_pending()).await;
    let counters = store.counters();
    assert!(
        lab.disk_bytes() <= counters.taken_bytes,
        "the books cover what is there"
    );
    assert!(counters.stored_blocks > 40);
    assert_eq!(counters.io_errors + counters.corrupt_blocks, 0);
    let files: usize = (0..256)
        .map(|folder| {
            fs::read_dir(lab.config.path.join(format!("blocks/{folder:02x}")))
                .unwrap()
                .count()
        })
        .sum();
    assert_eq!(files as u64, counters.blocks, "index and disk agree");
}
