//! Stored blocks come back, from memory and from disk, described and by name.

use std::sync::Arc;

use bytes::Bytes;
use shoal_policy::admission::Refusal;
use shoal_s3::object::Version;

use super::{
    BLOCK, Lab, ROOMY, RemovalReason, Urgency, data, evictions, newest, object, put, put_all, refusals,
    version,
};

#[tokio::test]
async fn blocks_of_every_length_come_back_as_they_were_put() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    for size_bytes in [
        1,
        4095,
        4096,
        4097,
        BLOCK - 1,
        BLOCK,
        BLOCK + 1,
        3 * BLOCK,
        3 * BLOCK + 17,
    ] {
        let version = version(1, "a", size_bytes);
        for index in 0..version.block_count() {
            let expected = data(&version, index);
            assert_eq!(put(&store, &version, index).await.unwrap(), expected);
            assert_eq!(store.resident(version.block(index), true).unwrap(), expected);
            assert_eq!(store.load(version.block(index), true).await.unwrap(), expected);
        }
    }
}

#[tokio::test]
async fn a_block_that_is_not_here_is_none_everywhere() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let (here, absent) = (version(1, "a", BLOCK * 2), version(2, "a", BLOCK));
    put(&store, &here, 0).await.unwrap();
    for block in [here.block(1), absent.block(0)] {
        assert!(!store.contains(block));
        assert!(store.resident(block, true).is_none());
        assert!(store.load(block, true).await.is_none());
    }
    assert_eq!(newest(&store, object(2)), None);
    assert!(store.describe(object(2)).await.is_none());
    assert!(store.blocks_of(absent.id).is_empty());
}

#[tokio::test]
async fn a_hit_is_a_slice_of_one_mapping() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let version = version(1, "a", BLOCK);
    let stored = put(&store, &version, 0).await.unwrap();
    let hit = store.resident(version.block(0), true).unwrap();
    assert_eq!(hit.as_ptr(), stored.as_ptr());
    assert_eq!(hit.slice(100..200), &data(&version, 0)[100..200]);
    assert_eq!(store.counters().mapped_blocks, 1);
}

#[tokio::test]
async fn bytes_that_are_not_the_block_they_claim_to_be_are_refused() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let right = version(1, "a", BLOCK + 5);
    let other = version(1, "b", BLOCK + 5);
    let whole = |length: u64| vec![Bytes::from(vec![1; length as usize])];
    let wrong_size = Arc::new(Version {
        block_bytes: BLOCK * 2,
        ..(*right).clone()
    });
    let wrong_etag = Arc::new(Version {
        etag: "\"z\"".into(),
        ..(*right).clone()
    });
    let empty = version(1, "a", 0);
    for (block, version, pieces) in [
        (right.block(0), &right, whole(BLOCK - 1)),
        (right.block(0), &right, whole(BLOCK + 1)),
        (right.block(0), &right, Vec::new()),
        (right.block(1), &right, whole(BLOCK)),
        (right.block(2), &right, whole(0)),
        (right.block(u32::MAX), &right, whole(1)),
        (right.block(0), &other, whole(BLOCK)),
        (right.block(0), &wrong_size, whole(BLOCK)),
        (right.block(0), &wrong_etag, whole(BLOCK)),
        (empty.block(0), &empty, whole(0)),
        (empty.block(0), &empty, Vec::new()),
    ] {
        let put = store
            .publisher
            .put(block, Arc::clone(version), pieces, Urgency::Late);
        let refusal = put.await.unwrap_err();
        assert_eq!(refusal, Refusal::Mismatched);
    }
    assert_eq!(refusals(&store, Refusal::Mismatched), 11);
    assert_eq!(store.counters().blocks, 0);
}

#[tokio::test]
async fn a_block_put_twice_is_stored_once() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let version = version(1, "a", BLOCK);
    let first = put(&store, &version, 0).await.unwrap();
    let before = store.counters();
    let second = put(&store, &version, 0).await.unwrap();
    assert_eq!(first.as_ptr(), second.as_ptr());
    assert_eq!(store.counters(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_puts_of_one_block_all_get_it_and_store_it_once() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    for round in 0..20 {
        let version = version(round, "a", BLOCK);
        let puts: Vec<_> = (0..8)
            .map(|_| {
                let (store, version) = (Arc::clone(&store), Arc::clone(&version));
                tokio::spawn(async move { put(&store, &version, 0).await })
            })
            .collect();
        for put in puts {
            assert_eq!(put.await.unwrap().unwrap(), data(&version, 0));
        }
    }
    assert_eq!(store.counters().stored_blocks, 20);
    assert_eq!(
        std::fs::read_dir(lab.config.path.join("aside")).unwrap().count(),
        0,
        "losers clean up"
    );
}

#[tokio::test]
async fn the_version_stored_last_is_recalled_and_described() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let (old, new) = (version(1, "old", BLOCK * 2), version(1, "new", BLOCK + 1));
    put_all(&store, &old).await;
    assert_eq!(newest(&store, object(1)), Some(old.id));
    put(&store, &new, 1).await.unwrap();
    assert_eq!(newest(&store, object(1)), Some(new.id));
    let described = store.describe(object(1)).await.unwrap();
    assert_eq!(format!("{described:?}"), format!("{new:?}"));
    assert_eq!(store.blocks_of(old.id), [0, 1]);
    assert_eq!(store.blocks_of(new.id), [1]);
    store.removal.remove_version(new.id);
    assert_eq!(
        newest(&store, object(1)),
        Some(old.id),
        "the version before is still here"
    );
}

#[tokio::test]
async fn invalidation_forgets_at_once_and_spares_others() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let (one, two, other) = (
        version(1, "a", BLOCK * 3),
        version(1, "b", BLOCK * 2),
        version(2, "a", BLOCK),
    );
    for version in [&one, &two, &other] {
        put_all(&store, version).await;
    }
    store.removal.remove_version(one.id);
    assert!(store.resident(one.block(0), true).is_none());
    assert!(!lab.path(&one, 0).exists());
    assert!(store.contains(two.block(1)));
    store.removal.remove_version(two.id);
    assert_eq!(newest(&store, object(1)), None);
    assert_eq!(store.resident(other.block(0), true).unwrap(), data(&other, 0));
    assert_eq!(evictions(&store, RemovalReason::Invalidated), 5);
    put_all(&store, &one).await;
    assert_eq!(
        store.load(one.block(2), true).await.unwrap(),
        data(&one, 2),
        "what was invalidated may return"
    );
}

#[tokio::test]
async fn a_reader_keeps_the_bytes_of_a_block_that_was_removed_and_its_room_until_it_is_done() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let version = version(1, "a", BLOCK);
    let empty = store.counters().taken_bytes;
    let held = put(&store, &version, 0).await.unwrap();
    let full = store.counters().taken_bytes;
    store.removal.remove_version(version.id);
    assert!(!lab.path(&version, 0).exists());
    assert_eq!(held, data(&version, 0));
    assert_eq!(store.counters().resident_bytes, 0);
    assert_eq!(store.counters().taken_bytes, full, "the disk still holds it");
    drop(held);
    super::until("its room is free", || store.counters().taken_bytes == empty).await;
}

#[tokio::test]
async fn mappings_are_bounded_and_blocks_beyond_are_loaded_again() {
    let mut lab = Lab::new(ROOMY);
    lab.mapped_bytes = 3 * BLOCK;
    let (store, _) = lab.open();
    let version = version(1, "a", BLOCK * 10);
    put_all(&store, &version).await;
    assert_eq!(store.counters().mapped_bytes, 3 * BLOCK);
    assert!(
        store.resident(version.block(0), true).is_none(),
        "the first was unmapped for the others"
    );
    assert!(store.resident(version.block(9), true).is_some());
    assert_eq!(
        store.load(version.block(0), true).await.unwrap(),
        data(&version, 0)
    );
    assert!(store.resident(version.block(0), true).is_some());
    assert_eq!(store.counters().mapped_blocks, 3);
}

#[tokio::test]
async fn blocks_that_readers_hold_stay_mapped_beyond_the_bound() {
    let mut lab = Lab::new(ROOMY);
    lab.mapped_bytes = 0;
    let (store, _) = lab.open();
    let version = version(1, "a", BLOCK * 3);
    let held = [
        put(&store, &version, 0).await.unwrap(),
        put(&store, &version, 1).await.unwrap(),
    ];
    assert!(store.resident(version.block(0), true).is_some());
    drop(held);
    put(&store, &version, 2).await.unwrap();
    assert!(store.resident(version.block(0), true).is_none());
}
