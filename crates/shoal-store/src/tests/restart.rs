//! State that survives a restart, and state that does not.

use std::fs;

use super::{BLOCK, Lab, ROOMY, data, newest, object, put, put_all, version};
use crate::{Recovery, Store, StoreError};

#[tokio::test]
async fn a_restart_is_warm() {
    let lab = Lab::new(ROOMY);
    let (store, recovery) = lab.open();
    assert_eq!(recovery, Recovery::default());
    let (old, new) = (version(1, "old", BLOCK * 2), version(1, "new", BLOCK * 3 + 1));
    put_all(&store, &old).await;
    put_all(&store, &new).await;
    let before = store.counters();
    let (store, recovery) = lab.reopen(store).await;
    assert_eq!(
        recovery,
        Recovery {
            blocks: 6,
            bytes: before.resident_bytes,
            ..Recovery::default()
        }
    );
    assert_eq!(store.counters().taken_bytes, before.taken_bytes);
    assert_eq!(newest(&store, object(1)), Some(new.id));
    assert_eq!(
        format!("{:?}", store.describe(object(1)).await.unwrap()),
        format!("{new:?}")
    );
    assert_eq!(store.blocks_of(old.id), [0, 1]);
    for version in [&old, &new] {
        for index in 0..version.block_count() {
            assert!(
                store.resident(version.block(index), true).is_none(),
                "nothing is served unverified"
            );
            assert_eq!(
                store.load(version.block(index), true).await.unwrap(),
                data(version, index)
            );
        }
    }
}

#[tokio::test]
async fn the_order_of_versions_survives_a_restart() {
    let lab = Lab::new(ROOMY);
    let (mut store, _) = lab.open();
    for round in 0..5 {
        let version = version(1, &format!("{round}"), BLOCK);
        put_all(&store, &version).await;
        store = lab.reopen(store).await.0;
        assert_eq!(newest(&store, object(1)), Some(version.id));
    }
}

#[tokio::test]
async fn half_written_files_are_removed() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let stored = version(1, "a", BLOCK);
    put_all(&store, &stored).await;
    super::close(store).await;
    for number in 0..3 {
        fs::write(
            lab.config.path.join(format!("aside/{number:016x}")),
            vec![7; 5000],
        )
        .unwrap();
    }
    let (store, recovery) = lab.open();
    assert_eq!((recovery.half_written, recovery.blocks), (3, 1));
    assert_eq!(fs::read_dir(lab.config.path.join("aside")).unwrap().count(), 0);
    put_all(&store, &version(2, "a", BLOCK * 4)).await;
}

#[tokio::test]
async fn a_smaller_capacity_keeps_what_was_stored_last() {
    let mut lab = Lab::for_blocks(30);
    let (store, _) = lab.open();
    let versions: Vec<_> = (0..20).map(|number| version(number, "a", BLOCK)).collect();
    for version in &versions {
        put_all(&store, version).await;
    }
    super::close(store).await;
    lab.config.capacity_bytes = Lab::for_blocks(10).config.capacity_bytes;
    let (store, recovery) = lab.open();
    assert_eq!(recovery.blocks + recovery.over_capacity, 20);
    assert!((8..=10).contains(&recovery.blocks), "{recovery:?}");
    assert!(lab.disk_bytes() <= lab.config.capacity_bytes);
    assert!(!store.contains(versions[0].block(0)));
    assert_eq!(
        store.load(versions[19].block(0), true).await.unwrap(),
        data(&versions[19], 0)
    );
}

#[tokio::test]
async fn blocks_of_another_size_are_removed() {
    let mut lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let version = version(1, "a", BLOCK * 3);
    put_all(&store, &version).await;
    super::close(store).await;
    lab.config.block_bytes = BLOCK * 2;
    let (store, recovery) = lab.open();
    assert_eq!((recovery.blocks, recovery.other_block_size), (0, 3));
    assert!(
        !store.contains(version.block(0)),
        "its bytes would not be those of the larger block"
    );
    assert_eq!(newest(&store, object(1)), None);
    assert!(!lab.path(&version, 0).exists());
}

#[tokio::test]
async fn two_stores_do_not_share_a_folder() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    assert!(matches!(
        Store::open(&lab.config, 0, 1),
        Err(StoreError::Locked { .. })
    ));
    put(&store, &version(1, "a", BLOCK), 0)
        .await
        .expect("the first is none the worse for it");
    let (_store, recovery) = lab.reopen(store).await;
    assert_eq!(recovery.blocks, 1);
}

#[tokio::test]
async fn a_stopped_store_takes_no_more_blocks() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    store.shutdown().await;
    put(&store, &version(1, "a", BLOCK), 0).await.unwrap_err();
}

#[tokio::test]
async fn a_store_that_is_dropped_without_shutdown_ends_its_threads_and_frees_its_folder() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    drop(store);
    super::until("the folder is free", || Store::open(&lab.config, 0, 1).is_ok()).await;
}
