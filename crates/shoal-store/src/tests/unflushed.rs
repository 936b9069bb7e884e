//! Dirty objects that an earlier build kept in the store.

use std::fs;
use std::path::PathBuf;

use shoal_s3::object::Version;

use super::{BLOCK, Lab, ROOMY, data, put, put_all, version};

/// Puts the record of a version where an earlier build kept it.
fn keep_record(lab: &Lab, version: &Version) -> PathBuf {
    let folder = lab.config.path.join("dirty");
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join(version.id.to_string());
    fs::write(&path, "record").unwrap();
    path
}

#[tokio::test]
async fn objects_that_an_earlier_build_did_not_flush_stay_on_the_disk() {
    let lab = Lab::for_blocks(12);
    let (store, _) = lab.open();
    let dirty = version(1, "dirty", BLOCK * 2);
    put_all(&store, &dirty).await;
    let record = keep_record(&lab, &dirty);
    let (mut store, mut recovery) = lab.reopen(store).await;
    let others = version(2, "others", BLOCK * 40);
    for _ in 0..2 {
        assert_eq!(recovery.unflushed, 1);
        assert!(
            !store.contains(dirty.block(0)),
            "they are not blocks of this build"
        );
        for index in 0..40 {
            put(&store, &others, index).await.unwrap();
            assert!(lab.disk_bytes() <= lab.config.capacity_bytes);
        }
        for index in 0..2 {
            let file = fs::read(lab.path(&dirty, index)).unwrap();
            assert!(file.starts_with(&data(&dirty, index)));
        }
        assert_eq!(fs::read(&record).unwrap(), b"record");
        (store, recovery) = lab.reopen(store).await;
    }
    fs::remove_file(record).unwrap();
    let (store, recovery) = lab.reopen(store).await;
    assert_eq!(recovery.unflushed, 0);
    assert!(
        store.contains(dirty.block(0)),
        "without its record it is a version like others"
    );
}

#[tokio::test]
async fn their_blocks_stay_although_this_build_cuts_blocks_otherwise() {
    let mut lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let dirty = version(1, "dirty", BLOCK);
    put_all(&store, &dirty).await;
    keep_record(&lab, &dirty);
    super::close(store).await;
    lab.config.block_bytes = 2 * BLOCK;
    let (_store, recovery) = lab.open();
    assert_eq!((recovery.unflushed, recovery.other_block_size), (1, 0));
    assert!(lab.path(&dirty, 0).exists());
}

#[tokio::test]
async fn an_empty_folder_of_an_earlier_build_goes_and_takes_no_room() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let before = store.counters().taken_bytes;
    let folder = lab.config.path.join("dirty");
    fs::create_dir(&folder).unwrap();
    let (store, recovery) = lab.reopen(store).await;
    assert_eq!((recovery.unflushed, store.counters().taken_bytes), (0, before));
    assert!(!folder.exists());
}
