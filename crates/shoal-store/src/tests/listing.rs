//! The blocks that are here in the order of use, and the reasons why others are not.

use shoal_policy::admission::Refusal;

use super::{Absence, BLOCK, Lab, ROOMY, RemovalReason, Urgency, data, put, put_all, version};
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
    store.get_resident(first).unwrap();
    assert_eq!(store.blocks_by_use().await, [first, third, second]);
    let (store, _) = lab.reopen(store).await;
    assert_eq!(
        store.blocks_by_use().await,
        [third, second, first],
        "as they were stored"
    );
    store.load(second).await.unwrap();
    assert_eq!(store.blocks_by_use().await, [second, third, first]);
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
    store.remove_version(here.id);
    let left = Some(Absence::Removed(RemovalReason::Invalidated));
    assert_eq!(store.absence(here.block(0)), left);
    let other = Bytes::from(data(&here, 1)).slice(1..);
    let refused = store
        .put(here.block(1), here.clone(), vec![other], Urgency::Late)
        .await;
    assert_eq!(refused, Err(Refusal::Mismatched));
    let refused = Some(Absence::Refused(Refusal::Mismatched));
    assert_eq!(store.absence(here.block(1)), refused);
}
