//! Reservations whose owner is gone.

use std::sync::Arc;
use std::time::Duration;

use shoal_registry::entry::Kind;
use shoal_registry::roots::{MapTable, Purpose, ReserveError, Reserved, Root, TakenOver};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::bed::map;
use super::{Node, SESSION, TestLake, name};
use crate::support::{FENCE, Fault, Memory};

const SECOND: Duration = Duration::from_secs(1);

fn table(number: u64) -> MapTable {
    MapTable {
        number,
        size_bytes: 100 * number,
        checksum: number,
    }
}

async fn reserve(node: &Node) -> Reserved {
    node.roots.create(&map()).await.unwrap();
    node.roots.reserve(&map(), Purpose::Packing).await.unwrap()
}

async fn root(node: &Node) -> Root {
    node.roots.read(&map()).await.unwrap().unwrap()
}

/// A node that dies with a reservation and a change of `packed/a`, and one that adopts it.
async fn orphaned(engine: &Arc<Memory>, lake: &TestLake) -> Node {
    let dying = Node::start(1, engine, lake).await;
    std::mem::forget(reserve(&dying).await);
    std::mem::forget(dying.begin("packed/a", Kind::Write).await.unwrap());
    dying.die(engine);
    Node::start(2, engine, lake).await
}

#[tokio::test(start_paused = true)]
async fn a_table_that_a_dead_node_has_written_is_named_before_its_changes_end() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    lake.0.lock().tables.insert(1, vec![table(1), table(7)]);
    let other = orphaned(&engine, &lake).await;
    sleep(FENCE.saturating_sub(SECOND)).await;
    assert!(
        lake.0.lock().asked_tables.is_empty(),
        "it may still be on its way"
    );
    let busy = other.roots.reserve(&map(), Purpose::Upkeep).await;
    assert!(matches!(busy, Err(ReserveError::Busy(reservation)) if reservation.owner.node == 1));
    assert_eq!(engine.keys("b/").len(), 1);
    let release = engine.hold_request();
    sleep(SECOND * 10).await;
    assert_eq!(lake.0.lock().asked_tables, [1]);
    assert_eq!(engine.keys("b/").len(), 1, "the root comes first");
    release.send(()).unwrap();
    sleep(SECOND).await;
    assert!(engine.keys("b/").is_empty());
    let root = root(&other).await;
    assert_eq!((root.number, root.next, root.reservation), (1, 2, None));
    assert_eq!(root.tables, [table(1), table(7)]);
    assert_eq!(other.roots.number(&map()).await, Ok(Some(1)));
}

#[tokio::test(start_paused = true)]
async fn a_number_whose_table_a_dead_node_has_not_written_is_not_used() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let other = orphaned(&engine, &lake).await;
    sleep(FENCE + SECOND * 10).await;
    assert!(engine.keys("b/").is_empty());
    let root = root(&other).await;
    assert_eq!((root.number, root.next, root.reservation), (0, 2, None));
    assert_eq!(other.roots.number(&map()).await, Ok(None));
    let reserved = reserve(&other).await;
    assert_eq!(reserved.number(), 2);
}

#[tokio::test(start_paused = true)]
async fn nothing_ends_while_the_lake_does_not_say_if_it_has_the_table() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    lake.0.lock().is_silent = true;
    let other = orphaned(&engine, &lake).await;
    sleep(FENCE * 2).await;
    assert!(root(&other).await.reservation.is_some());
    assert_eq!(engine.keys("b/").len(), 1);
    let asked = lake.0.lock().asked_tables.len();
    assert!((5..=20).contains(&asked), "{asked} questions in 40 seconds");
    // Other objects go on.
    other.write(&name("b"), "bytes").await;
    sleep(SECOND).await;
    assert_eq!(lake.0.lock().writes, 1);
    lake.0.lock().is_silent = false;
    sleep(SECOND * 4).await;
    assert!(root(&other).await.reservation.is_none() && engine.keys("b/").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_living_owner_keeps_its_reservation() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let nodes = [
        Node::start(1, &engine, &lake).await,
        Node::start(2, &engine, &lake).await,
    ];
    let reserved = reserve(&nodes[0]).await;
    // Another change of this node, with an unknown outcome, does not matter.
    drop(nodes[0].begin("k", Kind::Write).await.unwrap());
    sleep(FENCE * 3).await;
    assert!(lake.0.lock().asked_tables.is_empty());
    assert_eq!(&root(&nodes[1]).await, reserved.root());
    assert!(engine.keys("b/").is_empty());
    nodes[0].roots.release(&reserved).await;
    assert!(root(&nodes[1]).await.reservation.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_reservation_that_a_living_node_has_dropped_ends_after_the_fence() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    lake.0.lock().tables.insert(1, vec![table(1)]);
    let node = Node::start(1, &engine, &lake).await;
    drop(reserve(&node).await);
    sleep(FENCE.saturating_sub(SECOND)).await;
    assert!(root(&node).await.reservation.is_some());
    sleep(SECOND * 3).await;
    assert_eq!(root(&node).await.tables, [table(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_change_that_a_living_node_has_dropped_ends_after_its_reservation() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    lake.0.lock().is_silent = true;
    let node = Node::start(1, &engine, &lake).await;
    let change = node.begin("packed/a", Kind::Write).await.unwrap();
    drop((reserve(&node).await, change));
    sleep(FENCE * 2).await;
    assert_eq!(engine.keys("b/").len(), 1);
    lake.0.lock().is_silent = false;
    sleep(SECOND * 4).await;
    assert!(engine.keys("b/").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_reservation_alone_is_reason_enough_to_adopt_a_dead_node() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let dying = Node::start(1, &engine, &lake).await;
    std::mem::forget(reserve(&dying).await);
    dying.die(&engine);
    let other = Node::start(2, &engine, &lake).await;
    sleep(FENCE / 2).await;
    assert_eq!(other.worker.adopted(), [1]);
    sleep(FENCE).await;
    assert!(root(&other).await.reservation.is_none());
    assert!(other.worker.adopted().is_empty() && engine.keys("m/").len() == 1);
}

/// The commit arrives when nothing of the node was left, and its membership had ended.
#[tokio::test(start_paused = true)]
async fn a_late_reservation_of_a_dead_node_is_found() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let dying = Node::start(1, &engine, &lake).await;
    dying.roots.create(&map()).await.unwrap();
    let late = engine.hold_request();
    let roots = dying.roots.clone();
    let reserving = tokio::spawn(async move { roots.reserve(&map(), Purpose::Packing).await });
    sleep(SECOND).await;
    dying.die(&engine);
    let other = Node::start(2, &engine, &lake).await;
    sleep(SECOND * 10).await;
    assert_eq!(engine.keys("m/").len(), 1);
    late.send(()).unwrap();
    std::mem::forget(reserving.await.unwrap().unwrap());
    assert!(root(&other).await.reservation.is_some());
    sleep(FENCE + SECOND * 10).await;
    assert!(root(&other).await.reservation.is_none());
    assert_eq!(engine.keys("m/").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_takes_its_session_over_leaves_old_reservations_until_their_fence() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let folder = tempfile::tempdir().unwrap();
    let start = async || Node::start_kept(folder.path(), &engine, &lake).await;
    let killed = start().await;
    std::mem::forget(reserve(&killed).await);
    killed.kill();
    let next = start().await;
    // A second less than the session of the earlier life, and the fence.
    sleep((FENCE + SESSION).saturating_sub(SECOND)).await;
    assert!(root(&next).await.reservation.is_some());
    sleep(SECOND * 3).await;
    assert!(root(&next).await.reservation.is_none());
}

/// A node that was frozen finds out what another one has decided.
#[tokio::test(start_paused = true)]
async fn a_node_whose_session_has_ended_commits_only_what_is_in_the_root() {
    for is_there in [true, false] {
        let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
        if is_there {
            lake.0.lock().tables.insert(1, vec![table(1)]);
        }
        let frozen = Node::start(1, &engine, &lake).await;
        let reserved = reserve(&frozen).await;
        frozen.tasks.iter().for_each(JoinHandle::abort);
        engine.expire(1);
        let other = Node::start(2, &engine, &lake).await;
        sleep(FENCE + SECOND * 10).await;
        assert!(!reserved.permit().may_send());
        let committed = frozen.roots.commit(&reserved, vec![table(1)]).await;
        if is_there {
            assert_eq!(committed.unwrap().root, root(&other).await);
        } else {
            assert_eq!(committed, Err(TakenOver));
            assert!(root(&other).await.tables.is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_reservation_is_resolved_although_answers_are_lost() {
    for fault in [
        Fault::AnswerLost,
        Fault::RequestLost,
        Fault::Unreached,
        Fault::Conflict,
    ] {
        let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
        lake.0.lock().tables.insert(1, vec![table(1)]);
        let node = Node::start(1, &engine, &lake).await;
        drop(reserve(&node).await);
        sleep(FENCE / 2).await;
        if fault != Fault::Unreached {
            engine.fail(&[fault]);
        }
        sleep(FENCE).await;
        let root = root(&node).await;
        assert_eq!(
            (root.number, root.next, root.reservation),
            (1, 2, None),
            "{fault:?}"
        );
        assert_eq!(root.tables, [table(1)]);
    }
}
