//! Versions that the lake does not have: their records outlive the node, and their blocks do not make room
//! for others.

use std::fs;

use super::{BLOCK, Lab, ROOMY, put, put_all, version};

fn record_path(lab: &Lab, version: &shoal_s3::object::Version) -> std::path::PathBuf {
    lab.config.path.join("dirty").join(version.id.to_string())
}

#[tokio::test]
async fn a_record_outlives_the_node_until_it_is_dropped() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let (one, other) = (version(1, "one", BLOCK), version(2, "other", BLOCK));
    let before = store.counters().taken_bytes;
    store.keep_record(one.id, b"first".to_vec()).await.unwrap();
    store.keep_record(one.id, b"second".to_vec()).await.unwrap();
    store.keep_record(other.id, Vec::new()).await.unwrap();
    let taken = store.counters().taken_bytes;
    assert!(taken > before, "records take room");
    let (store, _) = lab.reopen(store).await;
    assert_eq!(store.counters().taken_bytes, taken);
    let mut records = store.records().await;
    records.sort();
    let mut expected = [(one.id, b"second".to_vec()), (other.id, Vec::new())];
    expected.sort();
    assert_eq!(records, expected);
    store.drop_record(one.id).await.unwrap();
    store.drop_record(other.id).await.unwrap();
    assert_eq!(store.counters().taken_bytes, before, "and give it back");
    let (store, _) = lab.reopen(store).await;
    assert!(store.records().await.is_empty());
}

#[tokio::test]
async fn blocks_with_a_record_stay_when_room_is_short_also_after_a_restart() {
    let lab = Lab::for_blocks(8);
    let (store, _) = lab.open();
    let dirty = version(1, "dirty", BLOCK * 2);
    store.keep_record(dirty.id, b"record".to_vec()).await.unwrap();
    put_all(&store, &dirty).await;
    let others = version(2, "others", BLOCK * 40);
    for index in 0..20 {
        put(&store, &others, index).await.unwrap();
    }
    assert_eq!(store.blocks_of(dirty.id), [0, 1]);
    let (store, _) = lab.reopen(store).await;
    for index in 20..40 {
        put(&store, &others, index).await.unwrap();
    }
    assert_eq!(store.blocks_of(dirty.id), [0, 1]);
    store.drop_record(dirty.id).await.unwrap();
    for index in 0..20 {
        put(&store, &others, index).await.unwrap();
    }
    assert!(store.blocks_of(dirty.id).is_empty(), "they are like all others");
}

#[tokio::test]
async fn when_only_dirty_blocks_could_leave_the_task_that_flushes_them_is_woken() {
    let lab = Lab::for_blocks(8);
    let (store, _) = lab.open();
    let dirty = version(1, "dirty", BLOCK * 20);
    let protection = store.protect(dirty.id);
    let mut refused = 0;
    for index in 0..20 {
        refused += u32::from(put(&store, &dirty, index).await.is_err());
    }
    assert!(refused > 0, "there is no room for all");
    store.pressed().await;
    drop(protection);
    put(&store, &version(2, "other", BLOCK), 0).await.unwrap();
}

#[tokio::test]
async fn a_torn_record_is_none() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let whole = version(1, "whole", BLOCK);
    store.keep_record(whole.id, b"record".to_vec()).await.unwrap();
    let written = fs::read(record_path(&lab, &whole)).unwrap();
    let mut store = store;
    for torn in [
        &written[..written.len() - 1],
        &written[..3],
        b"",
        b"reCord12345678",
    ] {
        fs::write(record_path(&lab, &whole), torn).unwrap();
        (store, _) = lab.reopen(store).await;
        assert!(store.records().await.is_empty());
        assert!(!record_path(&lab, &whole).exists());
    }
}
