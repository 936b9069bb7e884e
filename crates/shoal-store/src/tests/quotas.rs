//! Quotas: what is brought in for one replaces its own blocks, and those of no other.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shoal_base::clock;
use shoal_policy::admission::Refusal;
use shoal_policy::eviction::PolicyName;
use shoal_policy::quotas::{QuotaId, QuotaIds};
use shoal_s3::object::Version;

use super::{
    Absence, BLOCK, Lab, RemovalReason, Store, Urgency, assert_consistent, data, evictions, object, put_all,
    refusals, until, version,
};
use crate::files::disk::Disk;
use crate::{PinOrder, Storing};

fn id(number: u64) -> QuotaId {
    QuotaId(NonZeroU64::new(number).unwrap())
}

fn of_identity(number: u64) -> QuotaIds {
    QuotaIds {
        of_identity: Some(id(number)),
        of_prefix: None,
    }
}

async fn put_in(
    store: &Arc<Store>,
    version: &Arc<Version>,
    index: u32,
    quotas: QuotaIds,
) -> Result<Bytes, Refusal> {
    let pieces = vec![data(version, index).into()];
    let urgency = Urgency::Late;
    let storing = Storing { urgency, quotas };
    let block = version.block(index);
    store
        .publisher
        .put(block, Arc::clone(version), pieces, storing)
        .await
}

/// The room that a block takes.
fn charge_bytes(lab: &Lab) -> u64 {
    Disk::open(&lab.config.path.with_extension("other"), None)
        .unwrap()
        .charge_bytes(BLOCK + 1000)
}

fn used_bytes(store: &Store) -> u64 {
    let rooms = store.quota_rooms();
    assert!(rooms.iter().all(|room| room.used_bytes <= room.room_bytes));
    rooms.iter().map(|room| room.used_bytes).sum()
}

/// A lab with one quota, which has room for `quota` of its `blocks`.
fn lab(blocks: u64, quota: u64) -> Lab {
    let mut lab = Lab::for_blocks(blocks);
    lab.config.quotas = vec![(id(1), quota * charge_bytes(&lab))];
    lab
}

#[tokio::test]
async fn a_scan_under_a_quota_replaces_its_own_blocks_and_no_others_under_every_policy() {
    for policy in PolicyName::ALL {
        let mut lab = lab(60, 8);
        lab.config.policy = Some(policy);
        let (store, _) = lab.open();
        let (others, scanned) = (version(1, "a", BLOCK * 30), version(2, "b", BLOCK * 200));
        put_all(&store, &others).await;
        for index in 0..8 {
            put_in(&store, &scanned, index, of_identity(1)).await.unwrap();
        }
        // A use counts, also under a quota.
        store.load(scanned.block(0), true).await.unwrap();
        put_in(&store, &scanned, 8, of_identity(1)).await.unwrap();
        assert_eq!(store.blocks_of(scanned.id), [0, 2, 3, 4, 5, 6, 7, 8], "{policy}");
        assert_eq!(
            store.absence(scanned.block(1)),
            Some(Absence::Removed(RemovalReason::Quota))
        );
        for index in 9..200 {
            put_in(&store, &scanned, index, of_identity(1)).await.unwrap();
            used_bytes(&store);
        }
        assert_eq!(store.blocks_of(others.id).len(), 30, "{policy}");
        assert_eq!(
            store.blocks_of(scanned.id),
            (192..200).collect::<Vec<_>>(),
            "{policy}"
        );
        assert_eq!(evictions(&store, RemovalReason::Quota), 192);
        assert_eq!(evictions(&store, RemovalReason::Room), 0);
        assert_consistent(&store);
    }
}

#[tokio::test]
async fn blocks_in_segments_count_in_quotas_too() {
    let mut lab = Lab::with_segments(60);
    lab.config.quotas = vec![(id(1), 6 * BLOCK)];
    let (store, _) = lab.open();
    let others = version(1, "a", 20 * BLOCK);
    put_all(&store, &others).await;
    for number in 2..60 {
        let small = version(number, "b", BLOCK / 2);
        put_in(&store, &small, 0, of_identity(1)).await.unwrap();
        used_bytes(&store);
    }
    assert!(store.contains(version(59, "b", BLOCK / 2).block(0)));
    assert!(evictions(&store, RemovalReason::Quota) > 40);
    assert_eq!(store.blocks_of(others.id).len(), 20);
    assert_consistent(&store);
}

#[tokio::test]
async fn a_block_is_refused_if_the_others_of_its_quota_are_pinned_or_if_it_is_larger_than_the_quota() {
    let mut lab = lab(40, 3);
    lab.config.quotas.push((id(2), 100));
    let (store, _) = lab.open();
    let (pinned, more) = (version(1, "a", BLOCK * 3), version(2, "b", BLOCK));
    for index in 0..3 {
        put_in(&store, &pinned, index, of_identity(1)).await.unwrap();
    }
    let (order, until) = (PinOrder(7), clock::utc_now() + Duration::from_hours(1));
    store.pinning.pin(order, until, vec![object(1)]).await.unwrap();
    for quota in [1, 2] {
        let refused = put_in(&store, &more, 0, of_identity(quota)).await;
        assert_eq!(refused, Err(Refusal::QuotaFull));
    }
    assert_eq!(refusals(&store, Refusal::QuotaFull), 2);
    assert_eq!(store.blocks_of(pinned.id).len(), 3);
    store.pinning.end(order).await;
    put_in(&store, &more, 0, of_identity(1)).await.unwrap();
    assert_eq!(store.blocks_of(pinned.id).len(), 2);
    used_bytes(&store);
}

#[tokio::test]
async fn a_restart_keeps_the_quotas_of_blocks_in_files() {
    let mut lab = lab(40, 8);
    let (store, _) = lab.open();
    let version = version(1, "a", BLOCK * 20);
    let quotas = QuotaIds {
        of_identity: Some(id(2)),
        of_prefix: Some(id(1)),
    };
    for index in 0..20 {
        put_in(&store, &version, index, quotas).await.unwrap();
    }
    let before = store.quota_rooms();
    let (store, recovery) = lab.reopen(store).await;
    assert_eq!((recovery.blocks, store.quota_rooms()), (8, before));
    assert_eq!(
        store.quotas_of(version.block(19)).of_identity,
        None,
        "no such quota"
    );
    // The room is smaller after the next restart, and there is a quota of the identity.
    let charge_bytes = charge_bytes(&lab);
    lab.config.quotas = vec![(id(1), 5 * charge_bytes), (id(2), 100 * charge_bytes)];
    let (store, _) = lab.reopen(store).await;
    until("the quota fits", || store.blocks_of(version.id).len() == 5).await;
    assert_eq!(store.blocks_of(version.id), [15, 16, 17, 18, 19]);
    assert_eq!(store.quotas_of(version.block(19)), quotas);
    assert_eq!(used_bytes(&store), 10 * charge_bytes);
    assert_consistent(&store);
}

#[tokio::test]
async fn a_quota_that_changes_while_the_store_is_open_is_kept_from_then_on() {
    let lab = lab(40, 8);
    let (store, _) = lab.open();
    let version = version(1, "a", BLOCK * 8);
    for index in 0..8 {
        put_in(&store, &version, index, of_identity(1)).await.unwrap();
    }
    let charge_bytes = charge_bytes(&lab);
    store.set_quotas(&[(id(1), 3 * charge_bytes)]);
    until("the quota fits", || store.blocks_of(version.id).len() == 3).await;
    assert_eq!(store.blocks_of(version.id), [5, 6, 7]);
    store.set_quotas(&[]);
    assert_eq!((store.blocks_of(version.id).len(), used_bytes(&store)), (3, 0));
    put_in(&store, &version, 0, of_identity(1)).await.unwrap();
    assert!(store.quotas_of(version.block(0)).is_empty());
}

#[tokio::test]
async fn a_draft_counts_in_the_quota_of_its_writer_once_it_has_a_name() {
    let lab = lab(40, 3);
    let (store, _) = lab.open();
    let version = version(1, "a", BLOCK * 6);
    for index in 0..6 {
        let draft = store.publisher.draft(vec![data(&version, index).into()]);
        let draft = draft.await.unwrap();
        draft
            .name(Arc::clone(&version), index, of_identity(1))
            .await
            .unwrap();
    }
    assert_eq!(store.blocks_of(version.id), [3, 4, 5]);
    used_bytes(&store);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn blocks_that_come_at_the_same_time_never_exceed_their_quota() {
    let lab = lab(200, 4);
    let (store, _) = lab.open();
    let version = version(1, "a", BLOCK * 100);
    let puts: Vec<_> = (0..100)
        .map(|index| {
            let (store, version) = (Arc::clone(&store), Arc::clone(&version));
            tokio::spawn(async move { put_in(&store, &version, index, of_identity(1)).await.is_ok() })
        })
        .collect();
    let mut stored = 0;
    for put in puts {
        stored += u64::from(put.await.unwrap());
        used_bytes(&store);
    }
    // A block that finds all others on their way is not stored.
    assert!(stored >= 4 && stored + refusals(&store, Refusal::QuotaFull) == 100);
    assert!(store.blocks_of(version.id).len() <= 4);
    // No reservation is left behind.
    for index in 0..4 {
        put_in(&store, &version, index, of_identity(1)).await.unwrap();
    }
    assert_eq!(store.blocks_of(version.id), [0, 1, 2, 3]);
    assert_consistent(&store);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_pinned_object_may_fill_its_quota_whole() {
    for _ in 0..20 {
        let lab = lab(40, 8);
        let (store, _) = lab.open();
        let version = version(1, "a", BLOCK * 8);
        let until = clock::utc_now() + Duration::from_hours(1);
        let pinned = store.pinning.pin(PinOrder(7), until, vec![object(1)]);
        pinned.await.unwrap();
        let puts: Vec<_> = (0..8)
            .map(|index| {
                let (store, version) = (Arc::clone(&store), Arc::clone(&version));
                tokio::spawn(async move { put_in(&store, &version, index, of_identity(1)).await })
            })
            .collect();
        for put in puts {
            put.await.unwrap().unwrap();
        }
        assert_consistent(&store);
    }
}
