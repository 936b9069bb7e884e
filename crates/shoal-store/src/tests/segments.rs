//! Small blocks, which share segments.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use shoal_base::clock;
use shoal_policy::admission::Refusal;
use shoal_s3::object::Version;

use super::{BLOCK, Lab, RemovalReason, assert_consistent, close, data, evictions, newest, object, put};
use super::{put_all, until, version};
use crate::files::disk::DiskOp;
use crate::files::location::{Entry, Location};
use crate::{PinOrder, Store, appender};

/// The entry of a block in its segment.
fn entry(store: &Store, version: &Version, index: u32) -> Entry {
    match store.ground.ledger.lock().locate(version.block(index)) {
        Some(Location::Entry(entry)) => entry,
        other => panic!("block {index} lies in no segment: {other:?}"),
    }
}

fn segments(lab: &Lab) -> Vec<PathBuf> {
    let entries = fs::read_dir(lab.config.path.join("segments")).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

fn block_files(lab: &Lab) -> usize {
    let folder = |number| fs::read_dir(lab.config.path.join(format!("blocks/{number:02x}"))).unwrap();
    (0..256).map(|number| folder(number).count()).sum()
}

/// Changes a byte of a file, while no store uses it.
fn change(path: &PathBuf, position: u64, change: impl Fn(u8) -> u8) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, position).unwrap();
    file.write_all_at(&[change(byte[0])], position).unwrap();
}

async fn assert_served(store: &Store, version: &Version, index: u32) {
    let served = store.load(version.block(index), true).await;
    assert!(
        served.expect("it is here") == data(version, index),
        "block {index}"
    );
}

#[tokio::test]
async fn small_blocks_share_segments_and_are_here_after_a_restart() {
    let lab = Lab::with_segments(100);
    let (store, _) = lab.open();
    let (old, new) = (version(1, "old", BLOCK * 25 + 7), version(1, "new", 5));
    put_all(&store, &old).await;
    put_all(&store, &new).await;
    assert_eq!((block_files(&lab), segments(&lab).len()), (0, 3));
    let before = store.counters();
    assert_eq!(before.blocks, 27);
    assert!(before.resident_bytes < 27 * BLOCK * 13 / 10);
    assert!(lab.disk_bytes() <= before.taken_bytes);
    // The second restart reads tables that the first one wrote.
    let mut store = store;
    for _ in 0..2 {
        let recovery;
        (store, recovery) = lab.reopen(store).await;
        assert_eq!((recovery.blocks, recovery.bytes), (27, before.resident_bytes));
        assert_eq!(newest(&store, object(1)), Some(new.id));
        let described = store.describe(object(1)).await.unwrap();
        assert_eq!(format!("{described:?}"), format!("{new:?}"));
        assert_eq!(store.version_of(old.block(3)).await.unwrap().etag, old.etag);
        for index in 0..26 {
            assert!(
                store.resident(old.block(index), true).is_none(),
                "nothing is served unverified"
            );
            assert_served(&store, &old, index).await;
            assert!(store.resident(old.block(index), true).is_some());
        }
        assert_consistent(&store);
    }
}

#[tokio::test]
async fn a_block_that_does_not_fit_in_a_segment_is_a_file() {
    let lab = Lab {
        segment_bytes: |_| Some(8 << 10),
        ..Lab::for_blocks(20)
    };
    let (store, _) = lab.open();
    let version = version(1, "a", BLOCK * 2 + 500);
    put_all(&store, &version).await;
    assert_eq!((block_files(&lab), segments(&lab).len()), (2, 1));
    let (store, recovery) = lab.reopen(store).await;
    assert_eq!(recovery.blocks, 3);
    for index in 0..3 {
        assert_served(&store, &version, index).await;
    }
    store.removal.remove_version(version.id);
    assert_eq!((store.counters().blocks, block_files(&lab)), (0, 0));
}

#[test]
fn small_stores_have_no_segments_and_others_have_many() {
    let sizes = [0, 1, 63 << 20, 64 << 20, 100 << 20, 1 << 30, 5 << 40].map(appender::segment_bytes);
    let mib = |mib: u64| Some(mib << 20);
    assert_eq!(sizes, [None, None, None, mib(1), mib(1), mib(16), mib(16)]);
}

#[tokio::test]
async fn files_of_an_earlier_build_are_served_beside_segments_and_segments_without_new_ones() {
    let mut lab = Lab::for_blocks(150);
    let (store, _) = lab.open();
    let (one, two) = (version(1, "a", BLOCK * 2), version(2, "a", BLOCK * 2));
    put_all(&store, &one).await;
    close(store).await;
    lab.segment_bytes = |_| Some(128 << 10);
    let (store, recovery) = lab.open();
    assert_eq!(recovery.blocks, 2);
    put_all(&store, &two).await;
    assert_eq!((block_files(&lab), segments(&lab).len()), (2, 1));
    close(store).await;
    lab.segment_bytes = |_| None;
    let (store, recovery) = lab.open();
    assert_eq!(recovery.blocks, 4);
    for index in 0..2 {
        assert_served(&store, &one, index).await;
        assert_served(&store, &two, index).await;
    }
    // A segment that cannot be emptied goes with its last block.
    store.removal.remove_version(two.id);
    until("the segment is gone", || segments(&lab).is_empty()).await;
}

#[tokio::test]
async fn a_torn_tail_costs_the_torn_entry_alone() {
    let lab = Lab::with_segments(200);
    let version = version(1, "a", BLOCK * 4);
    // Before, in the middle and at the end of the last entry.
    for cut in [0, 20, 100, 5000, BLOCK] {
        let (store, _) = lab.open();
        put_all(&store, &version).await;
        let last = entry(&store, &version, 3);
        close(store).await;
        let path = segments(&lab).pop().unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        let torn = vec![0; (last.bytes - cut) as usize];
        file.write_all_at(&torn, last.offset + cut).unwrap();
        let (store, recovery) = lab.open();
        assert_eq!(recovery.blocks, 3, "cut at {cut}");
        for index in 0..3 {
            assert_served(&store, &version, index).await;
        }
        assert!(!store.contains(version.block(3)));
        put(&store, &version, 3).await.unwrap();
        assert_served(&store, &version, 3).await;
        store.removal.remove_version(version.id);
        close(store).await;
    }
}

#[tokio::test]
async fn a_flipped_bit_in_a_table_costs_nothing_and_one_in_a_head_the_segment() {
    let lab = Lab::with_segments(150);
    let (store, _) = lab.open();
    let version = version(1, "a", BLOCK * 4);
    put_all(&store, &version).await;
    let store = lab.reopen(store).await.0;
    close(store).await;
    let path = segments(&lab).pop().unwrap();
    // The magic, the checksum, the number of entries, and an entry of the table.
    for from_end in [1, 9, 17, 60] {
        change(&path, (128 << 10) - from_end, |byte| byte ^ 1);
        let (store, recovery) = lab.open();
        assert_eq!((recovery.blocks, recovery.quarantined), (4, 0));
        close(store).await;
    }
    change(&path, 17, |byte| byte ^ 1);
    let (store, recovery) = lab.open();
    assert_eq!((recovery.blocks, recovery.quarantined), (0, 1));
    assert!(lab.disk_bytes() <= store.counters().taken_bytes);
    put_all(&store, &version).await;
    assert_served(&store, &version, 0).await;
}

#[tokio::test]
async fn a_flipped_bit_in_an_entry_is_a_miss_and_the_block_can_be_stored_again() {
    let lab = Lab::with_segments(200);
    let (mut store, _) = lab.open();
    let version = version(1, "a", BLOCK * 2);
    put_all(&store, &version).await;
    // A start writes the table; without it the flip would end the search for entries.
    store = lab.reopen(store).await.0;
    for (turn, from_start) in [0, 5, 31, 32, 60, 150, 1000, BLOCK].into_iter().enumerate() {
        let damaged = entry(&store, &version, 0);
        let path = lab.segment_path(&damaged);
        close(store).await;
        change(&path, damaged.offset + from_start, |byte| byte ^ 0x10);
        store = lab.open().0;
        assert!(
            store.load(version.block(0), true).await.is_none(),
            "byte {from_start}"
        );
        assert!(!store.contains(version.block(0)));
        assert_eq!(evictions(&store, RemovalReason::Corrupt), 1);
        assert_eq!(lab.quarantine(), turn + 1);
        // A segment may go between the two looks.
        until("the quarantine is accounted for", || {
            lab.disk_bytes() <= store.counters().taken_bytes
        })
        .await;
        assert_served(&store, &version, 1).await;
        put(&store, &version, 0).await.unwrap();
        store = lab.reopen(store).await.0;
        assert_served(&store, &version, 0).await;
    }
    // The scrub finds others.
    let damaged = entry(&store, &version, 1);
    let path = lab.segment_path(&damaged);
    close(store).await;
    change(&path, damaged.offset + 3000, |byte| byte ^ 1);
    let (store, _) = lab.open();
    store.loader.scrub();
    assert!(store.contains(version.block(0)) && !store.contains(version.block(1)));
}

#[tokio::test]
async fn a_segment_that_vanished_is_a_miss_and_strange_files_are_moved_away() {
    let lab = Lab::with_segments(150);
    let (store, _) = lab.open();
    let version = version(1, "a", BLOCK);
    put_all(&store, &version).await;
    let folder = lab.config.path.join("segments");
    fs::remove_file(segments(&lab).pop().unwrap()).unwrap();
    assert_served(&store, &version, 0).await;
    close(store).await;
    fs::write(folder.join("notes.txt"), "hello").unwrap();
    fs::write(folder.join("0000000A"), "capitals").unwrap();
    fs::write(folder.join("00000009"), "no segment").unwrap();
    fs::create_dir(folder.join("0000000b")).unwrap();
    let (store, recovery) = lab.open();
    assert_eq!(
        (recovery.blocks, recovery.quarantined, recovery.unreadable),
        (0, 3, 1)
    );
    put_all(&store, &version).await;
    assert_eq!(
        entry(&store, &version, 0).segment.number.get(),
        10,
        "no number is used twice"
    );
}

#[tokio::test]
async fn a_removed_block_stays_away_wherever_its_copies_were() {
    let lab = Lab::with_segments(150);
    let (store, _) = lab.open();
    let (gone, stays) = (version(1, "a", BLOCK * 9), version(2, "a", BLOCK * 9));
    for index in 0..9 {
        put(&store, &gone, index).await.unwrap();
        put(&store, &stays, index).await.unwrap();
    }
    store.removal.remove_version(gone.id);
    until("half-empty segments are emptied", || {
        store.ground.ledger.lock().segments.due().is_none()
    })
    .await;
    let (store, recovery) = lab.reopen(store).await;
    assert_eq!(recovery.blocks, 9);
    assert!(store.blocks_of(gone.id).is_empty());
    for index in 0..9 {
        assert_served(&store, &stays, index).await;
    }
}

#[tokio::test]
async fn a_segment_with_little_in_use_is_emptied_and_readers_keep_its_bytes() {
    let lab = Lab::with_segments(150);
    let (store, _) = lab.open();
    let (gone, stays) = (version(1, "a", BLOCK * 12), version(2, "a", BLOCK * 4));
    let mut held = Vec::new();
    for index in 0..12 {
        put(&store, &gone, index).await.unwrap();
        if index % 3 == 0 {
            held.push(put(&store, &stays, index / 3).await.unwrap());
        }
    }
    let before = (segments(&lab), entry(&store, &stays, 0));
    store.removal.remove_version(gone.id);
    until("the first segment is gone", || !before.0[0].exists()).await;
    assert_ne!(entry(&store, &stays, 0).segment.number, before.1.segment.number);
    assert_eq!(held[0], data(&stays, 0), "a reader has the former bytes");
    assert!(
        store.resident(stays.block(0), true).is_some(),
        "it is still mapped"
    );
    for index in 0..4 {
        assert_served(&store, &stays, index).await;
    }
    let taken_bytes = store.counters().taken_bytes;
    assert!(lab.disk_bytes() <= taken_bytes);
    held.clear();
    drop(before);
    until("its room is free", || store.counters().taken_bytes < taken_bytes).await;
    assert_consistent(&store);
    let (store, recovery) = lab.reopen(store).await;
    assert_eq!(recovery.blocks, 4);
    assert_served(&store, &stays, 3).await;
}

#[tokio::test]
async fn of_two_copies_of_a_block_the_later_one_counts() {
    let lab = Lab::with_segments(150);
    let (store, _) = lab.open();
    let (gone, stays) = (version(1, "a", BLOCK * 12), version(2, "a", BLOCK * 2));
    put(&store, &stays, 0).await.unwrap();
    put_all(&store, &gone).await;
    put(&store, &stays, 1).await.unwrap();
    let first = segments(&lab)[0].clone();
    let copy = fs::read(&first).unwrap();
    store.removal.remove_version(gone.id);
    until("the first segment is gone", || !first.exists()).await;
    close(store).await;
    // As if the process had died while it emptied the old segment: a block was copied and not marked, and
    // another one, in the last slot, lies there still.
    fs::write(&first, copy).unwrap();
    for slot in 1..11 {
        change(&first, 64 + slot, |_| 0xff);
    }
    let mut opened = lab.open();
    for _ in 0..2 {
        let (store, recovery) = opened;
        assert_eq!(recovery.blocks, 3);
        assert_consistent(&store);
        assert_served(&store, &stays, 0).await;
        assert_served(&store, &gone, 10).await;
        opened = lab.reopen(store).await;
    }
    // The copy that lost does not come back once the other one is removed.
    opened.0.removal.remove_version(stays.id);
    let (store, recovery) = lab.reopen(opened.0).await;
    assert_eq!((recovery.blocks, store.blocks_of(stays.id).len()), (1, 0));
}

#[tokio::test]
async fn a_half_empty_segment_is_emptied_although_there_is_room() {
    let lab = Lab::with_segments(250);
    let (store, _) = lab.open();
    let (gone, stays, others) = (
        version(1, "a", BLOCK * 6),
        version(2, "a", BLOCK * 6),
        version(3, "a", BLOCK * 120),
    );
    put_all(&store, &gone).await;
    put_all(&store, &stays).await;
    // Full segments, whose blocks are charged more than the segments take.
    put_all(&store, &others).await;
    let first = segments(&lab)[0].clone();
    store.removal.remove_version(gone.id);
    until("the first segment is gone", || !first.exists()).await;
    assert_eq!(store.counters().blocks, 126);
    assert_served(&store, &stays, 5).await;
}

#[tokio::test]
async fn a_full_store_of_small_blocks_makes_room_and_never_exceeds_its_capacity() {
    let lab = Lab::with_segments(120);
    let (store, _) = lab.open();
    for number in 0..250 {
        let version = version(number, "a", BLOCK - u64::from(number) * 30);
        put(&store, &version, 0).await.unwrap();
        assert!(lab.disk_bytes() <= lab.config.capacity_bytes);
        assert!(store.counters().taken_bytes <= lab.config.capacity_bytes);
        assert_consistent(&store);
        assert_eq!(store.resident(version.block(0), true).unwrap(), data(&version, 0));
        // Some are used again and again, so that every segment keeps a few.
        for used in (0..=number).step_by(7) {
            store.resident(
                super::version(used, "a", BLOCK - u64::from(used) * 30).block(0),
                true,
            );
        }
    }
    let counters = store.counters();
    assert_eq!(evictions(&store, RemovalReason::Room) + counters.blocks, 250);
    assert!(counters.blocks >= 60, "{} blocks are kept", counters.blocks);
    assert_eq!(counters.io_errors + counters.corrupt_blocks, 0);
    let (store, recovery) = lab.reopen(store).await;
    assert_eq!((recovery.blocks, recovery.over_capacity), (counters.blocks, 0));
    assert_consistent(&store);
}

#[tokio::test]
async fn room_that_removed_blocks_left_behind_is_won_back_before_another_block_leaves() {
    let lab = Lab::with_segments(120);
    let (store, _) = lab.open();
    for number in 0..96 {
        put(&store, &version(number, "a", BLOCK), 0).await.unwrap();
    }
    // Every segment keeps two thirds of its blocks.
    for number in (0..96).step_by(3) {
        store.removal.remove_version(version(number, "a", BLOCK).id);
    }
    for number in 100..124 {
        put(&store, &version(number, "a", BLOCK), 0).await.unwrap();
        assert!(lab.disk_bytes() <= lab.config.capacity_bytes);
    }
    assert_eq!(
        (evictions(&store, RemovalReason::Room), store.counters().blocks),
        (0, 88)
    );
}

#[tokio::test]
async fn pinned_small_blocks_stay_while_their_segments_are_emptied() {
    let lab = Lab::with_segments(100);
    let (store, _) = lab.open();
    let pinned = version(1, "a", BLOCK * 6);
    let end = clock::utc_now() + Duration::from_hours(1);
    store
        .pinning
        .pin(PinOrder(1), end, vec![object(1)])
        .await
        .unwrap();
    for number in 0..120 {
        if number % 5 == 0 && number < 30 {
            put(&store, &pinned, u32::from(number) / 5).await.unwrap();
        }
        put(&store, &version(number + 10, "b", BLOCK), 0).await.unwrap();
    }
    let (store, _) = lab.reopen(store).await;
    for index in 0..6 {
        assert!(store.pinning.contains_block(pinned.block(index)));
        assert_served(&store, &pinned, index).await;
    }
}

#[tokio::test]
async fn a_smaller_capacity_keeps_the_segments_filled_last() {
    let mut lab = Lab::with_segments(100);
    let (store, _) = lab.open();
    let versions: Vec<_> = (0..60).map(|number| version(number, "a", BLOCK)).collect();
    for version in &versions {
        put(&store, version, 0).await.unwrap();
    }
    close(store).await;
    lab.config.capacity_bytes -= 60 * BLOCK;
    let (store, recovery) = lab.open();
    assert_eq!(recovery.blocks + recovery.over_capacity, 60);
    assert!(
        recovery.blocks >= 5 && recovery.over_capacity >= 5,
        "{recovery:?}"
    );
    assert!(lab.disk_bytes() <= store.counters().taken_bytes);
    assert!(store.contains(versions[59].block(0)) && !store.contains(versions[0].block(0)));
    for version in &versions {
        put(&store, version, 0).await.unwrap();
        assert!(lab.disk_bytes() <= lab.config.capacity_bytes);
    }
}

#[tokio::test]
async fn segments_of_blocks_of_another_size_are_removed() {
    let mut lab = Lab::with_segments(150);
    let (store, _) = lab.open();
    let version = version(1, "a", BLOCK * 3);
    put_all(&store, &version).await;
    store.removal.remove_version(super::version(9, "none", BLOCK).id);
    close(store).await;
    lab.config.block_bytes = BLOCK * 2;
    let (store, recovery) = lab.open();
    assert_eq!((recovery.blocks, recovery.other_block_size), (0, 3));
    assert!(!store.contains(version.block(0)) && segments(&lab).is_empty());
}

#[tokio::test]
async fn a_disk_that_takes_no_writes_pauses_fills_and_loses_no_room() {
    let lab = Lab::with_segments(100);
    let faults = Arc::new(Mutex::new(None));
    let hook = Arc::clone(&faults);
    let store = lab.open_failing(Arc::new(move |op| match *hook.lock() {
        Some((failing, errno)) if failing == op => Err(io::Error::from_raw_os_error(errno)),
        _ => Ok(()),
    }));
    let version = version(1, "a", BLOCK * 20);
    let empty = store.counters().taken_bytes;
    // The first block begins a segment, the second is appended.
    for (index, op) in [(0, DiskOp::Write), (0, DiskOp::Publish), (1, DiskOp::Write)] {
        let before = store.counters().taken_bytes;
        for errno in [libc::ENOSPC, libc::EIO] {
            *faults.lock() = Some((op, errno));
            assert_eq!(put(&store, &version, index).await.unwrap_err(), Refusal::Paused);
            assert_eq!(store.counters().taken_bytes, before, "no room is lost");
            *faults.lock() = None;
            store.probe();
        }
        *faults.lock() = Some((op, libc::EMFILE));
        assert_eq!(
            put(&store, &version, index).await.unwrap_err(),
            Refusal::Exhausted
        );
        *faults.lock() = None;
        if op == DiskOp::Publish {
            put(&store, &version, 0).await.unwrap();
        }
    }
    put_all(&store, &version).await;
    // A removal that cannot be written is tried again, so that the block does not come back.
    *faults.lock() = Some((DiskOp::Remove, libc::EIO));
    store.removal.remove_version(version.id);
    assert!(store.removal.has_pending());
    *faults.lock() = None;
    until("it is removed", || !store.removal.has_pending()).await;
    until("all room is free", || {
        segments(&lab).len() <= 1 && store.counters().blocks == 0
    })
    .await;
    assert!(store.counters().taken_bytes >= empty);
    let (store, recovery) = lab.reopen(store).await;
    assert_eq!((recovery.blocks, store.counters().taken_bytes), (0, empty));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_writers_and_emptying_do_not_disturb_each_other() {
    let lab = Lab::with_segments(120);
    let (store, _) = lab.open();
    let tasks: Vec<_> = (0..8_u8)
        .map(|task| {
            let store = Arc::clone(&store);
            tokio::spawn(async move {
                for round in 0..60_u8 {
                    let version = version(
                        round.wrapping_mul(3) + task % 3,
                        "a",
                        BLOCK - u64::from(round) * 50,
                    );
                    if let Ok(bytes) = put(&store, &version, 0).await {
                        assert_eq!(bytes, data(&version, 0));
                    }
                    let other = super::version(round.wrapping_mul(2), "a", BLOCK - u64::from(round) * 50);
                    for version in [&version, &other] {
                        if let Some(bytes) = store.load(version.block(0), true).await {
                            assert_eq!(bytes, data(version, 0));
                        }
                    }
                    if round % 3 == 0 {
                        store.removal.remove_version(version.id);
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
        assert!(lab.disk_bytes() <= lab.config.capacity_bytes);
    }
    until("everything that left is gone", || !store.removal.has_pending()).await;
    assert_consistent(&store);
    let counters = store.counters();
    assert!(
        lab.disk_bytes() <= counters.taken_bytes,
        "the books cover what is there"
    );
    assert_eq!(counters.io_errors + counters.corrupt_blocks, 0);
    let (store, recovery) = lab.reopen(store).await;
    assert_eq!(recovery.blocks, counters.blocks);
    for block in store.blocks_by_use(0).await {
        assert!(store.load(block, true).await.is_some());
    }
}
