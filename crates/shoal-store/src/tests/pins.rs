//! Objects whose blocks stay because an operator wants it.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use shoal_base::clock;
use shoal_policy::admission::Refusal;
use shoal_policy::eviction::PolicyName;
use shoal_s3::object::Version;

use super::{BLOCK, Lab, ROOMY, disk_bytes, evictions, object, put, put_all, refusals, until, version};
use crate::{Absence, PinOrder, RemovalReason, Store};

const ORDER: PinOrder = PinOrder(7);

/// An order after all others.
const LATER: PinOrder = PinOrder(u128::MAX);

fn in_an_hour() -> SystemTime {
    clock::utc_now() + Duration::from_hours(1)
}

/// Reads through many times the room.
async fn scan(store: &Arc<Store>, blocks: u32) {
    let large = version(200, "large", BLOCK * u64::from(blocks));
    for index in 0..blocks {
        put(store, &large, index).await.unwrap();
        store.load(large.block(index), true).await;
    }
}

fn held(store: &Store, version: &Version) -> usize {
    store.blocks_of(version.id).len()
}

#[tokio::test]
async fn a_pinned_object_survives_a_scan_of_ten_times_the_room_under_every_policy() {
    for policy in PolicyName::ALL {
        let mut lab = Lab::for_blocks(20);
        lab.config.policy = Some(policy);
        let (store, _) = lab.open();
        let (before, after) = (version(1, "a", BLOCK * 3), version(2, "b", BLOCK * 3));
        put_all(&store, &before).await;
        let kept = store
            .pinning
            .pin(ORDER, in_an_hour(), vec![object(1), object(2)])
            .await
            .unwrap();
        assert_eq!((kept[0].blocks, kept[0].refusal), (3, None));
        assert_eq!((kept[1].blocks, kept[1].refusal), (0, None));
        put_all(&store, &after).await;
        scan(&store, 200).await;
        assert_eq!((held(&store, &before), held(&store, &after)), (3, 3), "{policy}");
        assert_eq!(store.counters().pins.objects, 2);
        assert!(evictions(&store, RemovalReason::Room) > 150);
        super::assert_consistent(&store);

        store.pinning.end(ORDER).await;
        assert_eq!(
            (store.counters().pins.bytes, store.counters().pins.objects),
            (0, 0)
        );
        scan(&store, 60).await;
        assert_eq!((held(&store, &before), held(&store, &after)), (0, 0), "{policy}");
        super::assert_consistent(&store);
    }
}

#[tokio::test]
async fn a_released_object_makes_room_for_a_scan_under_every_policy() {
    for policy in PolicyName::ALL {
        let mut lab = Lab::for_blocks(20);
        lab.config.policy = Some(policy);
        let (store, _) = lab.open();
        let (needed, released) = (version(1, "a", BLOCK * 3), version(2, "b", BLOCK * 6));
        put_all(&store, &needed).await;
        put_all(&store, &released).await;
        for index in 0..6 {
            store.load(released.block(index), true).await;
        }
        store
            .pinning
            .pin(ORDER, in_an_hour(), vec![object(1)])
            .await
            .unwrap();
        assert_eq!((store.release(object(1)), store.release(object(2))), (0, 6));
        store.pinning.end(ORDER).await;
        // Released blocks stay while there is room.
        scan(&store, 6).await;
        assert_eq!(
            (held(&store, &needed), held(&store, &released)),
            (3, 6),
            "{policy}"
        );
        // Now some blocks have to leave, and fewer than were released.
        scan(&store, 8).await;
        assert!(held(&store, &released) < 6, "{policy}");
        assert_eq!(held(&store, &needed), 3, "{policy}");
        super::assert_consistent(&store);
    }
}

#[tokio::test]
async fn pins_beyond_their_share_are_refused_by_name() {
    let mut lab = Lab::for_blocks(20);
    lab.config.pinned_percent = 25;
    let (store, _) = lab.open();
    let small = version(1, "a", BLOCK * 10);
    put_all(&store, &small).await;
    let kept = store
        .pinning
        .pin(ORDER, in_an_hour(), vec![object(1)])
        .await
        .unwrap()[0];
    let places = store.counters().pins.bytes_max / (kept.bytes / kept.blocks);
    assert!((3..7).contains(&places), "{places}");
    assert_eq!((kept.blocks, kept.refusal), (places, Some(Refusal::PinsFull)));
    let coming = version(2, "b", BLOCK * 2);
    assert_eq!(
        store.pinning.admits(coming.block(0), BLOCK * 2),
        Err(Refusal::PinsFull)
    );
    assert_eq!(
        store.absence(coming.block(0)),
        Some(Absence::Refused(Refusal::PinsFull))
    );
    assert_eq!(refusals(&store, Refusal::PinsFull), 1);
    scan(&store, 100).await;
    assert_eq!(held(&store, &small) as u64, places, "the rest is like all others");
    let pins = store.counters().pins;
    assert!(pins.bytes <= pins.bytes_max && pins.bytes >= places * BLOCK);
}

#[tokio::test]
async fn a_store_without_a_share_for_pins_refuses_them_all() {
    let mut lab = Lab::for_blocks(20);
    lab.config.pinned_percent = 0;
    let (store, _) = lab.open();
    put_all(&store, &version(1, "a", BLOCK)).await;
    let kept = store
        .pinning
        .pin(ORDER, in_an_hour(), vec![object(1)])
        .await
        .unwrap()[0];
    assert_eq!((kept.blocks, kept.refusal), (0, Some(Refusal::PinsFull)));
}

#[tokio::test]
async fn pins_end_by_themselves() {
    let lab = Lab::for_blocks(20);
    let (store, _) = lab.open();
    let pinned = version(1, "a", BLOCK * 3);
    put_all(&store, &pinned).await;
    let soon = clock::utc_now() + Duration::from_millis(300);
    store.pinning.pin(ORDER, soon, vec![object(1)]).await.unwrap();
    assert_eq!(store.pinning.orders_of(object(1)).len(), 1);
    until("the pins end", || !store.pinning.contains(object(1))).await;
    assert_eq!(store.counters().pins.bytes, 0);
    scan(&store, 100).await;
    assert_eq!(held(&store, &pinned), 0);
}

#[tokio::test]
async fn an_object_is_pinned_as_long_as_one_of_its_orders_lasts() {
    let lab = Lab::for_blocks(20);
    let (store, _) = lab.open();
    put_all(&store, &version(1, "a", BLOCK * 3)).await;
    let other = PinOrder(8);
    for order in [ORDER, other] {
        store
            .pinning
            .pin(order, in_an_hour(), vec![object(1)])
            .await
            .unwrap();
    }
    store.pinning.end(ORDER).await;
    assert!(store.pinning.contains_block(version(1, "a", BLOCK * 3).block(0)));
    let freed = store
        .pinning
        .unpin(LATER, vec![object(1), object(9)])
        .await
        .unwrap();
    assert_eq!((freed[0].blocks, freed[1].blocks), (3, 0));
    assert!(!store.pinning.contains(object(1)) && store.pinning.orders().is_empty());
}

#[tokio::test]
async fn an_order_ends_pins_of_earlier_orders_alone() {
    let lab = Lab::for_blocks(20);
    let (store, _) = lab.open();
    put_all(&store, &version(1, "a", BLOCK * 3)).await;
    let (unpin, later) = (PinOrder(ORDER.0 + 1), PinOrder(ORDER.0 + 2));
    for order in [ORDER, later] {
        store
            .pinning
            .pin(order, in_an_hour(), vec![object(1)])
            .await
            .unwrap();
    }
    let freed = store.pinning.unpin(unpin, vec![object(1)]).await.unwrap();
    assert_eq!(freed[0].blocks, 0, "the later order pins them");
    let order = |store: &Store| {
        store
            .pinning
            .orders_of(object(1))
            .iter()
            .map(|pin| pin.0)
            .collect::<Vec<_>>()
    };
    assert_eq!(order(&store), [later]);
    super::close(store).await;
    let (store, _) = lab.open();
    assert_eq!(order(&store), [later], "also after a restart");
}

#[tokio::test]
async fn pins_survive_a_restart_and_hold_before_the_first_eviction() {
    let lab = Lab::for_blocks(20);
    let (store, _) = lab.open();
    let (pinned, unpinned) = (version(1, "a", BLOCK * 3), version(2, "b", BLOCK * 3));
    put_all(&store, &pinned).await;
    put_all(&store, &unpinned).await;
    store
        .pinning
        .pin(ORDER, in_an_hour(), vec![object(1), object(2)])
        .await
        .unwrap();
    store.pinning.unpin(LATER, vec![object(2)]).await.unwrap();
    store
        .pinning
        .pin(PinOrder(8), in_an_hour(), vec![object(3)])
        .await
        .unwrap();
    store.pinning.end(PinOrder(8)).await;
    let soon = clock::utc_now() + Duration::from_millis(50);
    store
        .pinning
        .pin(PinOrder(9), soon, vec![object(2)])
        .await
        .unwrap();
    let before = store.counters().pins;
    super::close(store).await;
    tokio::time::sleep(Duration::from_millis(60)).await;

    let mut smaller = lab;
    // There is no more room for all blocks: the pinned ones are older than the others.
    smaller.config.capacity_bytes -= 16 * BLOCK;
    let (store, recovery) = smaller.open();
    assert!(recovery.over_capacity > 0 || recovery.blocks < 6, "{recovery:?}");
    assert_eq!((held(&store, &pinned), store.counters().pins.objects), (3, 1));
    assert!(
        store.pinning.contains(object(1))
            && !store.pinning.contains(object(2))
            && !store.pinning.contains(object(3))
    );
    assert_eq!(
        store.counters().pins.bytes * 2,
        before.bytes,
        "of two objects one is still pinned"
    );
    scan(&store, 100).await;
    assert_eq!(held(&store, &pinned), 3);
}

#[tokio::test]
async fn a_pin_follows_the_newest_version() {
    let lab = Lab::for_blocks(20);
    let (store, _) = lab.open();
    let (old, new) = (version(1, "old", BLOCK * 2), version(1, "new", BLOCK * 2));
    put_all(&store, &old).await;
    store
        .pinning
        .pin(ORDER, in_an_hour(), vec![object(1)])
        .await
        .unwrap();
    put(&store, &new, 0).await.unwrap();
    assert!(!store.pinning.contains_block(old.block(0)) && store.pinning.contains_block(new.block(0)));
    super::assert_consistent(&store);
    scan(&store, 100).await;
    assert_eq!((held(&store, &old), held(&store, &new)), (0, 1));
}

#[tokio::test]
async fn what_is_no_longer_valid_goes_although_it_is_pinned() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let (written, damaged) = (version(1, "a", BLOCK), version(2, "b", BLOCK));
    for version in [&written, &damaged] {
        put_all(&store, version).await;
    }
    store
        .pinning
        .pin(ORDER, in_an_hour(), vec![object(1), object(2)])
        .await
        .unwrap();
    store.removal.remove_version(written.id);
    assert_eq!(held(&store, &written), 0);
    drop(fs::remove_file(lab.path(&damaged, 0)));
    let (store, _) = lab.reopen(store).await;
    assert_eq!((held(&store, &damaged), store.counters().pins.bytes), (0, 0));
    put_all(&store, &damaged).await;
    assert!(
        store.pinning.contains_block(damaged.block(0)),
        "the pin outlives its blocks"
    );
    super::assert_consistent(&store);
}

#[tokio::test]
async fn the_journal_of_pins_counts_as_taken_and_stays_short() {
    let lab = Lab::new(64 << 20);
    let (store, _) = lab.open();
    let taken = store.counters().taken_bytes;
    let objects = |from: u16| {
        (from..from + 5000).map(|number| {
            let mut id = [0; 16];
            id[..2].copy_from_slice(&number.to_le_bytes());
            shoal_policy::ObjectId(id)
        })
    };
    for round in 0..40 {
        let order = PinOrder(round);
        store
            .pinning
            .pin(order, in_an_hour(), objects(0).collect())
            .await
            .unwrap();
        assert!(lab.disk_bytes() <= store.counters().taken_bytes, "round {round}");
        store.pinning.end(order).await;
    }
    assert!(
        store.counters().taken_bytes - taken < 400 << 10,
        "5000 objects of 16 bytes, and as much again"
    );
    assert!(disk_bytes(&lab.config.path.join("node")) < 400 << 10);
    store
        .pinning
        .pin(ORDER, in_an_hour(), objects(9000).collect())
        .await
        .unwrap();
    let (store, _) = lab.reopen(store).await;
    assert_eq!(store.counters().pins.objects, 5000);
}
