//! Blocks that are on the disk before they have a name.

use std::fs;
use std::sync::Arc;

use bytes::Bytes;
use shoal_policy::admission::Refusal;
use shoal_policy::quotas::QuotaIds;
use shoal_s3::object::Version;

use super::{BLOCK, Lab, data, put, refusals, version};
use crate::{Draft, Store};

async fn draft(store: &Arc<Store>, version: &Version, index: u32) -> Result<Draft, Refusal> {
    let pieces = data(version, index)
        .chunks(3000)
        .map(Bytes::copy_from_slice)
        .collect();
    store.publisher.draft(pieces).await
}

fn aside(lab: &Lab) -> usize {
    fs::read_dir(lab.config.path.join("aside")).unwrap().count()
}

#[tokio::test]
async fn a_draft_becomes_a_block_like_any_other() {
    let lab = Lab::new(super::ROOMY);
    let (store, _) = lab.open();
    let version = version(1, "a", 2 * BLOCK + 1);
    for index in 0..3 {
        let draft = draft(&store, &version, index).await.unwrap();
        assert!(
            !store.contains(version.block(index)),
            "no reader finds it before it has a name"
        );
        draft
            .name(Arc::clone(&version), index, QuotaIds::default())
            .await
            .unwrap();
        assert_eq!(
            store.resident(version.block(index), true).unwrap(),
            data(&version, index)
        );
    }
    let (store, recovery) = lab.reopen(store).await;
    assert_eq!(recovery.blocks, 3);
    for index in 0..3 {
        assert_eq!(
            store.load(version.block(index), true).await.unwrap(),
            data(&version, index)
        );
    }
    assert_eq!(
        store.describe(version.object).await.unwrap().headers,
        version.headers
    );
}

#[tokio::test]
async fn a_draft_that_gets_no_name_leaves_nothing() {
    let lab = Lab::new(super::ROOMY);
    let (store, _) = lab.open();
    let before = store.counters().taken_bytes;
    let version = version(1, "a", BLOCK);
    let unnamed = draft(&store, &version, 0).await.unwrap();
    assert!(store.counters().taken_bytes > before, "it takes room");
    assert_eq!(aside(&lab), 1);
    drop(unnamed);
    assert_eq!((store.counters().taken_bytes, aside(&lab)), (before, 0));
}

#[tokio::test]
async fn drafts_make_room_among_blocks_and_none_among_themselves() {
    let lab = Lab::for_blocks(10);
    let (store, _) = lab.open();
    for number in 0..10 {
        put(&store, &version(number, "a", BLOCK), 0).await.unwrap();
    }
    let large = version(100, "a", 20 * BLOCK);
    let mut drafts = Vec::new();
    let refusal = loop {
        match draft(&store, &large, drafts.len() as u32).await {
            Ok(draft) => drafts.push(draft),
            Err(refusal) => break refusal,
        }
        assert!(lab.disk_bytes() <= lab.config.capacity_bytes);
    };
    assert_eq!(refusal, Refusal::NoRoom);
    assert!(drafts.len() >= 9, "{} drafts", drafts.len());
    assert_eq!(refusals(&store, Refusal::NoRoom), 1);
}

#[tokio::test]
async fn a_draft_is_not_named_what_it_is_not() {
    let lab = Lab::new(super::ROOMY);
    let (store, _) = lab.open();
    let (short, long) = (version(1, "a", BLOCK - 1), version(2, "a", BLOCK));
    let drafted = draft(&store, &short, 0).await.unwrap();
    assert_eq!(
        drafted.name(Arc::clone(&long), 0, QuotaIds::default()).await,
        Err(Refusal::Mismatched)
    );
    assert_eq!((store.counters().blocks, aside(&lab)), (0, 0));
}

#[tokio::test]
async fn a_draft_of_a_block_that_is_here_gives_way() {
    let lab = Lab::new(super::ROOMY);
    let (store, _) = lab.open();
    let version = version(1, "a", BLOCK);
    let late = draft(&store, &version, 0).await.unwrap();
    let held = put(&store, &version, 0).await.unwrap();
    late.name(Arc::clone(&version), 0, QuotaIds::default())
        .await
        .unwrap();
    assert_eq!((store.counters().blocks, aside(&lab)), (1, 0));
    assert_eq!(held, data(&version, 0), "readers of the first are not disturbed");
}
