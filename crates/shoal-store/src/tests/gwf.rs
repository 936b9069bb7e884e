//! Room that an evictor makes, by the worth of blocks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};

use shoal_policy::eviction::PolicyName;
use shoal_policy::eviction::gwf::{Weight, Worth};

use super::*;

const BLOCKS: u8 = 40;

/// A store of GWF with room for some blocks.
fn lab() -> Lab {
    let mut lab = Lab::for_blocks(u64::from(BLOCKS));
    lab.config.policy = Some(PolicyName::Gwf);
    lab
}

fn worth(weight: u64, since: u64) -> Worth {
    Worth {
        weight: Weight::from(weight),
        since: Weight::from(since),
    }
}

/// Stores one block of each of these objects.
async fn fill(store: &Arc<Store>, numbers: std::ops::Range<u8>) {
    for number in numbers {
        put(store, &version(number, "v", BLOCK), 0).await.unwrap();
    }
}

fn block(number: u8) -> shoal_policy::BlockId {
    version(number, "v", BLOCK).block(0)
}

#[tokio::test]
async fn an_evictor_is_called_when_room_is_short_and_decides_what_is_evicted() {
    let lab = lab();
    let (store, _) = lab.open();
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    store.evictor.evict_by(move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let nothing = HashMap::new();
    fill(&store, 0..30).await;
    assert_eq!(calls.load(Ordering::Relaxed), 0, "there is room");
    assert!(store.worths.least(false, 64, &nothing).is_empty());
    fill(&store, 30..BLOCKS).await;
    until("the evictor is called", || calls.load(Ordering::Relaxed) > 0).await;
    assert!(store.contains(block(0)), "nothing left without the evictor");
    // A use adds to the weight; the least are those that were not used.
    store.resident(block(0), true).unwrap();
    let least = store.worths.least(false, 64, &nothing);
    assert!(!least.is_empty() && least.len() < 10, "{least:?}");
    assert_eq!((least[0].block, least[0].worth), (block(1), worth(1, 1)));
    assert!(least.iter().all(|least| least.bytes > BLOCK));
    assert_eq!(store.worths.least(false, 2, &nothing).len(), 2);
    assert_eq!(store.worths.worth(block(0)), Some(worth(2, 1)));

    // Blocks that are leaving already count as room, and are not proposed again.
    let spared: HashMap<_, _> = least.iter().map(|least| (least.block, least.bytes)).collect();
    assert!(store.worths.least(true, 64, &spared).is_empty());
    let candidate = store.worths.candidate(&spared).unwrap().candidate;
    assert!(!spared.contains_key(&candidate.key));

    let reader = store.resident(least[1].block, true).unwrap();
    let parting = [RemovalReason::Copied, RemovalReason::Pushed];
    let parting = least
        .iter()
        .zip(parting)
        .map(|(least, reason)| (least.block, reason));
    let kept = store.removal.part_with(parting.collect()).await;
    assert_eq!(kept, [least[1].block], "a reader holds it");
    assert!(!store.contains(least[0].block));
    assert_eq!(
        store.absence(least[0].block),
        Some(Absence::Removed(RemovalReason::Copied))
    );
    drop(reader);
    close(store).await;
}

#[tokio::test]
async fn without_an_evictor_and_without_room_the_least_leaves_at_once() {
    let lab = lab();
    let (store, _) = lab.open();
    fill(&store, 0..30).await;
    store.resident(block(0), true).unwrap();
    fill(&store, 30..BLOCKS).await;
    store.evictor.evict_ahead().await;
    assert!(store.contains(block(0)) && !store.contains(block(1)));
    assert!(
        store.worths.ranks().unwrap().age >= Weight::from(2),
        "the rank of a victim is the age"
    );

    // An evictor that does nothing costs no write.
    store.evictor.evict_by(|| ());
    fill(&store, BLOCKS..2 * BLOCKS).await;
    assert!(store.contains(block(2 * BLOCKS - 1)));
    close(store).await;
}

#[tokio::test]
async fn a_block_without_room_waits_for_an_evictor_that_decides_in_time() {
    let lab = lab();
    let (store, _) = lab.open();
    let (call, mut calls) = tokio::sync::mpsc::unbounded_channel();
    store.evictor.evict_by(move || call.send(()).unwrap());
    // The store has decided about all of its room before the evictor decides about any.
    fill(&store, 0..BLOCKS).await;
    let evictor = tokio::spawn({
        let store = Arc::clone(&store);
        async move {
            calls.recv().await.unwrap();
            tokio::time::sleep(Duration::from_millis(20)).await;
            let chosen = (10..20).map(|number| (block(number), RemovalReason::Copied));
            store.removal.part_with(chosen.collect()).await;
        }
    });
    fill(&store, BLOCKS..BLOCKS + 5).await;
    evictor.await.unwrap();
    assert!(
        (0..10).all(|number| store.contains(block(number))),
        "the least stay"
    );
    let removed = store.absence(block(0));
    assert_eq!(removed, None, "no block was evicted: {removed:?}");
    close(store).await;
}

#[tokio::test]
async fn uses_that_count_elsewhere_and_copies_weigh_nothing() {
    let mut lab = lab();
    lab.mapped_bytes = 0;
    let (store, _) = lab.open();
    fill(&store, 0..3).await;
    for _ in 0..3 {
        drop(store.resident(block(0), false));
        store.load(block(0), false).await.unwrap();
    }
    assert_eq!(store.worths.worth(block(0)), Some(worth(1, 1)));
    store.load(block(0), true).await.unwrap();
    drop(store.worths.least(true, 1, &HashMap::new()));
    assert_eq!(store.worths.worth(block(0)), Some(worth(2, 1)));

    store.worths.learn_age(Weight::from(9));
    store.worths.weigh_as_copy(block(1));
    assert_eq!(store.worths.worth(block(1)), Some(worth(0, 9)));
    store.worths.weigh(block(2), worth(4, 5));
    let ranks = store.worths.ranks().unwrap();
    assert_eq!(
        (ranks.age, ranks.average),
        (Weight::from(9), Weight::from((3 + 9 + 9) / 3))
    );
    assert_eq!(store.worths.worth(block(3)), None);
    close(store).await;
}

#[tokio::test]
async fn a_store_of_another_policy_knows_no_worth() {
    let lab = Lab::for_blocks(10);
    let (store, _) = lab.open();
    fill(&store, 0..2).await;
    store.worths.weigh(block(0), worth(4, 5));
    store.worths.weigh_as_copy(block(1));
    store.worths.learn_age(Weight::from(9));
    assert_eq!((store.worths.ranks(), store.worths.worth(block(0))), (None, None));
    let nothing = HashMap::new();
    assert!(store.worths.least(true, 64, &nothing).is_empty() && store.worths.candidate(&nothing).is_none());
    close(store).await;
}
