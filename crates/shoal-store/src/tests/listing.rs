//! The cached blocks in the order of use, and the reasons why others are missing.

use shoal_policy::admission::Refusal;

use super::{Absence, BLOCK, BlockEvent, Lab, ROOMY, RemovalReason, Urgency, data, put, put_all, version};
use bytes::Bytes;

#[tokio::test]
async fn the_block_used_last_is_listed_first() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let versions = [1, 2, 3].map(|number| version(number, "a", BLOCK));
    for version in &versions {
        put_all(&store, version).await;
    }
    let [first, second, third] = versions.map(|version| version.block(0));
    store.resident(first, true).unwrap();
    assert_eq!(store.blocks_by_use(0).await, [first, third, second]);
    let (store, _) = lab.reopen(store).await;
    assert_eq!(
        store.blocks_by_use(0).await,
        [third, second, first],
        "as they were stored"
    );
    store.load(second, true).await.unwrap();
    assert_eq!(store.blocks_by_use(0).await, [second, third, first]);
}

#[tokio::test]
async fn short_blocks_are_left_out_of_a_list_and_told_with_their_length() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    store.watch(move |block, bytes, event| tell.send((block, bytes, event)).unwrap());
    let (long, short) = (version(1, "a", BLOCK + 5), version(2, "a", BLOCK - 1));
    put_all(&store, &long).await;
    put_all(&store, &short).await;
    assert_eq!(store.blocks_by_use(BLOCK).await, [long.block(0)]);
    assert_eq!(store.blocks_by_use(6).await, [short.block(0), long.block(0)]);
    store.removal.remove_object(long.object);
    let mut events = Vec::new();
    for _ in 0..5 {
        events.push(told.recv().await.unwrap());
    }
    let of = |block, bytes| [BlockEvent::Stored, BlockEvent::Removed].map(|event| (block, bytes, event));
    for known in [of(long.block(0), BLOCK), of(long.block(1), 5)].as_flattened() {
        assert!(events.contains(known), "{known:?} of {events:?}");
    }
    // Blocks that are not mapped.
    let (store, _) = lab.reopen(store).await;
    assert_eq!(store.blocks_by_use(BLOCK).await, []);
    assert_eq!(store.blocks_by_use(BLOCK - 1).await, [short.block(0)]);
}

#[tokio::test]
async fn a_block_tells_to_which_version_it_belongs() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let (old, new) = (version(1, "old", BLOCK), version(1, "new", BLOCK));
    put_all(&store, &old).await;
    put_all(&store, &new).await;
    assert_eq!(store.version_of(old.block(0)).await.unwrap().etag, old.etag);
    assert_eq!(store.version_of(new.block(0)).await.unwrap().etag, new.etag);
    assert!(store.version_of(version(2, "a", BLOCK).block(0)).await.is_none());
}

#[tokio::test]
async fn why_a_block_is_not_here_is_remembered() {
    let lab = Lab::new(ROOMY);
    let (store, _) = lab.open();
    let here = version(1, "a", 2 * BLOCK);
    assert_eq!(store.absence(here.block(0)), None, "no reader has asked for it");
    put(&store, &here, 0).await.unwrap();
    store.removal.remove_version(here.id);
    let left = Some(Absence::Removed(RemovalReason::Invalidated));
    assert_eq!(store.absence(here.block(0)), left);
    let other = Bytes::from(data(&here, 1)).slice(1..);
    let refused = store
        .publisher
        .put(here.block(1), here.clone(), vec![other], Urgency::Late)
        .await;
    assert_eq!(refused, Err(Refusal::Mismatched));
    let refused = Some(Absence::Refused(Refusal::Mismatched));
    assert_eq!(store.absence(here.block(1)), refused);
}
