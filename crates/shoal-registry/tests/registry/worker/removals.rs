//! Tombstones, which go to the lake many at a time.

use std::sync::Arc;
use std::time::Duration;

use shoal_registry::entry::Kind;
use shoal_registry::worker::{NotFlushed, Pace, REMOVALS_MAX};
use shoal_registry::{Death, Lifetime};
use tokio::time::sleep;

use super::{Node, PACE, TestLake, name};
use crate::support::{FENCE, Memory, tombstone};

/// A node whose tombstones are due after an hour.
async fn patient(engine: &Arc<Memory>, lake: &TestLake) -> Node {
    let node = Node::start(1, engine, lake).await;
    node.worker.set_pace(Pace {
        age: Duration::from_hours(1),
        ..PACE
    });
    node
}

async fn remove(node: &Node, key: &str) {
    let tombstone = tombstone(node.id);
    node.names.write(&name(key), tombstone).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn tombstones_go_in_one_request_and_leave_nothing_behind() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = patient(&engine, &lake).await;
    for number in 0..300 {
        let key = number.to_string();
        node.write(&name(&key), "bytes").await;
        remove(&node, &key).await;
    }
    assert_eq!(engine.keys("x/").len(), 300);
    let deaths = node.names.take_deaths();
    let death = |death: &Death| death.lifetime == Lifetime::Normal;
    assert!(
        deaths.len() == 256 && deaths.iter().all(death),
        "the objects died, and no tombstone"
    );
    sleep(Duration::from_secs(5)).await;
    assert!(lake.0.lock().removals.is_empty(), "none is due");
    node.worker.set_pace(PACE);
    sleep(FENCE * 3).await;
    let lake = lake.0.lock();
    assert_eq!(lake.removals, [300]);
    assert_eq!((lake.writes, lake.discarded.len()), (0, 300));
    drop(lake);
    for prefix in ["d/", "q/", "x/", "b/", "e/", "t/"] {
        assert!(engine.keys(prefix).is_empty(), "{prefix}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_request_goes_before_its_tombstones_are_due() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = patient(&engine, &lake).await;
    for number in 0..REMOVALS_MAX + 7 {
        remove(&node, &number.to_string()).await;
    }
    sleep(Duration::from_secs(5)).await;
    assert_eq!(lake.0.lock().removals, [REMOVALS_MAX]);
    assert_eq!(engine.keys("x/").len(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_tombstone_that_a_client_waits_for_takes_the_others_along() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = patient(&engine, &lake).await;
    for key in ["a", "b", "c"] {
        remove(&node, key).await;
    }
    node.worker.flush(&name("b")).await.unwrap();
    assert_eq!(lake.0.lock().removals, [3]);
    assert!(engine.keys("x/").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_refused_tombstone_stays_is_shown_and_is_tried_again() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = patient(&engine, &lake).await;
    remove(&node, "a").await;
    remove(&node, "b").await;
    lake.0.lock().next = vec![NotFlushed::Refused("403".into())];
    assert!(node.worker.flush(&name("b")).await.is_err());
    let failed = node.worker.failed();
    assert_eq!((&failed[0].name, failed[0].is_refused), (&name("b"), true));
    let found = node.names.find(&name("b")).await.unwrap().entry.current;
    assert!(
        found.is_some_and(|version| version.is_tombstone),
        "it is not dropped"
    );
    sleep(Duration::from_secs(10)).await;
    assert!(node.worker.failed().is_empty() && engine.keys("x/").is_empty());
    assert_eq!(lake.0.lock().removals, [2, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_put_over_a_tombstone_waits_for_the_removal_on_its_way() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = patient(&engine, &lake).await;
    remove(&node, "k").await;
    lake.0.lock().next = vec![NotFlushed::Unknown("no answer".into())];
    assert!(node.worker.flush(&name("k")).await.is_err());
    // The removal may still reach the lake.
    let newer = node.write(&name("k"), "newer").await;
    assert!(engine.keys("x/").is_empty(), "its tombstone is replaced");
    node.worker.set_pace(PACE);
    sleep(FENCE.saturating_sub(Duration::from_secs(3))).await;
    assert_eq!(lake.0.lock().writes, 0);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(lake.0.lock().objects.get(&name("k")), Some(&newer));
    assert!(node.worker.failed().is_empty());
}

#[tokio::test(start_paused = true)]
async fn tombstones_of_a_dead_node_are_carried_out_by_another() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let dying = patient(&engine, &lake).await;
    for key in ["a", "b"] {
        remove(&dying, key).await;
    }
    let change = dying.begin("b", Kind::Flush).await.unwrap();
    std::mem::forget(change);
    dying.die(&engine);
    let _other = Node::start(2, &engine, &lake).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(lake.0.lock().removals, [1], "the other may still be on its way");
    sleep(FENCE * 2).await;
    assert_eq!(lake.0.lock().removals, [1, 1]);
    assert!(engine.keys("x/").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_brings_its_tombstones_to_the_lake() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = patient(&engine, &lake).await;
    for key in ["a", "b"] {
        remove(&node, key).await;
    }
    node.worker.flush_all(node.id).await;
    assert_eq!(lake.0.lock().removals, [2]);
    assert!(engine.keys("x/").is_empty());
}
