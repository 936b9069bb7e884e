//! Damaged and strange files: never served, never fatal, counted.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt as _, symlink};
use std::path::Path;
use std::sync::Arc;

use shoal_s3::object::Version;

use super::{BLOCK, Lab, ROOMY, RemovalReason, close, data, evictions, object, put, put_all, version};
use crate::Store;

/// Drops the mappings, so that the next read asks the disk.
async fn cold(lab: &Lab, store: Arc<Store>) -> Arc<Store> {
    lab.reopen(store).await.0
}

fn flip(path: &Path, position: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, position).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], position).unwrap();
}

fn file_bytes(lab: &Lab, version: &Version, index: u32) -> u64 {
    fs::metadata(lab.path(version, index)).unwrap().len()
}

#[tokio::test]
async fn a_flipped_bit_in_any_region_is_a_miss_and_the_block_can_be_stored_again() {
    let lab = Lab::new(ROOMY);
    let (mut store, _) = lab.open();
    let version = version(1, "a", BLOCK * 2);
    put_all(&store, &version).await;
    let length = file_bytes(&lab, &version, 0);
    // First, middle and last byte of the data; object, version, index, length, checksum, headers; the tail's
    // fields.
    let regions = [0, 5000, 9999, 10_000, 10_016, 10_032, 10_036, 10_044, 10_120]
        .into_iter()
        .chain([24, 20, 16, 8, 1].map(|from_end| length - from_end));
    let mut quarantined = 0;
    for position in regions {
        store = cold(&lab, store).await;
        flip(&lab.path(&version, 0), position);
        assert!(
            store.load(version.block(0), true).await.is_none(),
            "position {position}"
        );
        assert!(!store.contains(version.block(0)));
        assert_eq!(store.counters().corrupt_blocks, 1);
        assert_eq!(evictions(&store, RemovalReason::Corrupt), 1);
        quarantined += 1;
        assert_eq!(lab.quarantine(), quarantined);
        assert_eq!(
            store.load(version.block(1), true).await.unwrap(),
            data(&version, 1),
            "its neighbour is well"
        );
        assert_eq!(put(&store, &version, 0).await.unwrap(), data(&version, 0));
        assert!(
            lab.disk_bytes() <= store.counters().taken_bytes,
            "the quarantine is accounted for"
        );
    }
}

#[tokio::test]
async fn a_flipped_bit_in_a_footer_is_found_at_start_and_one_in_the_data_when_it_is_loaded() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let version = version(1, "a", BLOCK * 3);
    put_all(&store, &version).await;
    close(store).await;
    flip(&lab.path(&version, 0), BLOCK + 3);
    flip(&lab.path(&version, 1), 3);
    let (store, recovery) = lab.open();
    assert_eq!((recovery.blocks, recovery.quarantined), (2, 1));
    assert!(store.load(version.block(0), true).await.is_none());
    assert!(store.load(version.block(1), true).await.is_none());
    assert_eq!(
        store.load(version.block(2), true).await.unwrap(),
        data(&version, 2)
    );
    assert_eq!(
        (store.counters().quarantined, store.counters().corrupt_blocks),
        (2, 1)
    );
}

#[tokio::test]
async fn a_file_cut_or_lengthened_anywhere_is_quarantined_at_start() {
    let lab = Lab::new(ROOMY);
    let (mut store, _) = lab.open();
    let version = version(1, "a", BLOCK * 2);
    put_all(&store, &version).await;
    let length = file_bytes(&lab, &version, 0);
    let lengths = [
        0,
        1,
        4096,
        BLOCK - 1,
        BLOCK,
        BLOCK + 1,
        length - 24,
        length - 8,
        length - 1,
        length + 1,
        length + 4096,
    ];
    for (turn, cut) in lengths.into_iter().enumerate() {
        close(store).await;
        OpenOptions::new()
            .write(true)
            .open(lab.path(&version, 0))
            .unwrap()
            .set_len(cut)
            .unwrap();
        let recovery;
        (store, recovery) = lab.open();
        assert_eq!((recovery.blocks, recovery.quarantined), (1, 1), "cut to {cut}");
        assert_eq!(lab.quarantine(), turn + 1);
        assert!(store.load(version.block(0), true).await.is_none());
        put(&store, &version, 0).await.unwrap();
    }
}

#[tokio::test]
async fn a_file_cut_while_the_store_runs_is_a_miss() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let version = version(1, "a", BLOCK);
    put_all(&store, &version).await;
    let store = cold(&lab, store).await;
    OpenOptions::new()
        .write(true)
        .open(lab.path(&version, 0))
        .unwrap()
        .set_len(20)
        .unwrap();
    assert!(store.load(version.block(0), true).await.is_none());
    assert_eq!(store.counters().corrupt_blocks, 1);
}

#[tokio::test]
async fn a_file_that_vanished_is_a_miss_and_no_failure_of_the_disk() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let version = version(1, "a", BLOCK * 2);
    put_all(&store, &version).await;
    let store = cold(&lab, store).await;
    fs::remove_file(lab.path(&version, 0)).unwrap();
    assert!(store.load(version.block(0), true).await.is_none());
    assert_eq!(evictions(&store, RemovalReason::Unreadable), 1);
    assert_eq!(store.counters().io_errors, 0);
    put(&store, &version, 0).await.expect("fills go on");
}

#[tokio::test]
async fn a_block_under_the_name_of_another_is_not_served_for_it() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let version = version(1, "a", BLOCK * 3);
    put_all(&store, &version).await;
    let store = cold(&lab, store).await;
    fs::copy(lab.path(&version, 1), lab.path(&version, 0)).unwrap();
    assert!(
        store.load(version.block(0), true).await.is_none(),
        "while it runs"
    );
    fs::copy(lab.path(&version, 1), lab.path(&version, 2)).unwrap();
    let (_store, recovery) = lab.reopen(store).await;
    assert_eq!((recovery.blocks, recovery.quarantined), (1, 1), "at start");
}

#[tokio::test]
async fn strange_files_are_moved_out_of_the_way_and_the_rest_is_served() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let version = version(1, "a", BLOCK);
    put_all(&store, &version).await;
    close(store).await;
    let blocks = lab.config.path.join("blocks");
    let whole = lab.path(&version, 0);
    let name = whole.file_name().unwrap().to_str().unwrap();
    let elsewhere = if whole.starts_with(blocks.join("00")) {
        "01"
    } else {
        "00"
    };
    fs::write(blocks.join("00/notes.txt"), "hello").unwrap();
    fs::write(
        blocks
            .join("00")
            .join(name.replacen(char::is_alphanumeric, "+", 1)),
        "a sign is no digit",
    )
    .unwrap();
    fs::write(blocks.join("00/0000000000000000000000000000000000000000X"), "").unwrap();
    fs::copy(&whole, blocks.join(elsewhere).join(name)).unwrap();
    symlink(&whole, blocks.join("00/link")).unwrap();
    fs::create_dir(blocks.join("00/folder")).unwrap();
    let (store, recovery) = lab.open();
    assert_eq!(
        (recovery.blocks, recovery.quarantined, recovery.unreadable),
        (1, 5, 1),
        "{recovery:?}"
    );
    assert_eq!(
        store.load(version.block(0), true).await.unwrap(),
        data(&version, 0)
    );
    assert_eq!(lab.quarantine(), 5);
    assert!(
        blocks.join("00/folder").exists(),
        "a folder may hold an operator's work and is left alone"
    );
}

#[tokio::test]
async fn the_quarantine_is_bounded_and_survives_restarts_in_order() {
    let lab = Lab::new(ROOMY);
    let (mut store, _) = lab.open();
    let version = version(1, "a", BLOCK * 50);
    for round in 0..2 {
        put_all(&store, &version).await;
        store = cold(&lab, store).await;
        for index in 0..50 {
            flip(&lab.path(&version, index), 0);
            assert!(store.load(version.block(index), true).await.is_none());
        }
        assert_eq!(lab.quarantine(), 32, "round {round}");
        assert!(lab.disk_bytes() <= store.counters().taken_bytes);
    }
    let mut names: Vec<_> = fs::read_dir(lab.config.path.join("quarantine"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert!(
        names[31].ends_with("-00000031"),
        "the last one is kept: {}",
        names[31]
    );
    assert!(
        names[0].starts_with("0000000000000044"),
        "32 of 100, the oldest are gone: {}",
        names[0]
    );
}

#[tokio::test]
async fn the_scrub_finds_what_has_rotted() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let version = version(1, "a", BLOCK * 20);
    put_all(&store, &version).await;
    let store = cold(&lab, store).await;
    flip(&lab.path(&version, 3), 77);
    flip(&lab.path(&version, 4), BLOCK + 77);
    assert_eq!(store.loader.scrub(), 18);
    assert!(!store.contains(version.block(3)) && !store.contains(version.block(4)));
    let counters = store.counters();
    assert_eq!(
        (counters.corrupt_blocks, counters.blocks, counters.scrub.passes),
        (2, 18, 1)
    );
    assert_eq!(counters.scrub.percent, 100);
    assert_eq!(store.loader.scrub(), 18);
}

#[tokio::test]
async fn a_damaged_description_is_replaced_by_that_of_another_block() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let (old, new) = (version(1, "old", BLOCK), version(1, "new", BLOCK * 3));
    put_all(&store, &old).await;
    put_all(&store, &new).await;
    let store = cold(&lab, store).await;
    flip(&lab.path(&new, 0), BLOCK + 50);
    flip(&lab.path(&new, 1), BLOCK + 50);
    assert_eq!(store.describe(object(1)).await.unwrap().id, new.id);
    flip(&lab.path(&new, 2), BLOCK + 50);
    assert_eq!(store.describe(object(1)).await.unwrap().id, old.id);
    assert_eq!(store.counters().corrupt_blocks, 3);
}
