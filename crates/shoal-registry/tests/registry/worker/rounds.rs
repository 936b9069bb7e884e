//! Due objects of a rule that packs, which go to the lake together.

use std::sync::Arc;
use std::time::Duration;

use shoal_registry::DirtyVersion;
use shoal_registry::entry::Kind;
use shoal_registry::names::BeginError;
use shoal_registry::session::new_id;
use shoal_registry::worker::{NotFlushed, Pace, ROUND_MAX};
use tokio::time::sleep;
use ulid::Ulid;

use super::{Node, PACE, TestLake, name};
use crate::support::{FENCE, Memory, version};

const HOUR: Duration = Duration::from_hours(1);

/// A node whose due objects wait an hour for others.
async fn patient(engine: &Arc<Memory>, lake: &TestLake) -> Node {
    lake.0.lock().idle = HOUR;
    Node::start(1, engine, lake).await
}

async fn write(node: &Node, keys: &[&str]) {
    for key in keys {
        node.write(&name(key), "bytes").await;
    }
}

/// Writes an object that is as old as if it had been written this long ago.
async fn write_aged(node: &Node, key: &str, age: Duration) {
    let id = new_id();
    let id = Ulid::from_parts(id.timestamp_ms() - age.as_millis() as u64, id.random());
    let aged = DirtyVersion {
        id,
        ..version(node.id, "bytes")
    };
    node.names.write(&name(key), aged).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn due_objects_go_together_once_the_oldest_has_waited_and_leave_nothing_behind() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = patient(&engine, &lake).await;
    write_aged(&node, "packed/a", HOUR / 2).await;
    for number in 0..300 {
        node.write(&name(&format!("packed/{number}")), "bytes").await;
    }
    sleep(Duration::from_secs(5)).await;
    assert!(lake.0.lock().rounds.is_empty(), "they wait for others");
    write_aged(&node, "packed/z", HOUR).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(lake.0.lock().rounds, [302], "the others go with the oldest");
    sleep(FENCE * 3).await;
    let lake = lake.0.lock();
    assert_eq!((lake.objects.len(), lake.writes), (302, 0));
    for prefix in ["d/", "q/", "b/", "e/", "t/"] {
        assert!(engine.keys(prefix).is_empty(), "{prefix}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_not_due_is_in_no_round() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = patient(&engine, &lake).await;
    let age = |age| node.worker.set_pace(Pace { age, ..PACE });
    age(HOUR);
    write_aged(&node, "packed/due", HOUR * 3 / 2).await;
    write(&node, &["packed/young"]).await;
    sleep(Duration::from_secs(5)).await;
    assert!(lake.0.lock().rounds.is_empty(), "it is due for half an hour");
    age(HOUR / 4);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(lake.0.lock().rounds, [1]);
    assert_eq!(engine.keys("q/").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_full_round_waits_for_no_object() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = patient(&engine, &lake).await;
    // They are due together.
    node.worker.set_pace(Pace { age: HOUR, ..PACE });
    for number in 0..ROUND_MAX + 7 {
        node.write(&name(&format!("packed/{number}")), "bytes").await;
    }
    node.worker.set_pace(PACE);
    sleep(Duration::from_secs(5)).await;
    assert_eq!(lake.0.lock().rounds, [ROUND_MAX]);
    assert_eq!(engine.keys("q/").len(), 7);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_needs_room_waits_for_no_object() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = patient(&engine, &lake).await;
    node.worker.set_pace(Pace { age: HOUR, ..PACE });
    write(&node, &["packed/a", "packed/b"]).await;
    sleep(Duration::from_secs(5)).await;
    assert!(lake.0.lock().rounds.is_empty());
    node.worker.hurry();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(lake.0.lock().rounds, [2]);
}

#[tokio::test(start_paused = true)]
async fn one_round_of_a_map_is_in_flight() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    lake.0.lock().latency = Duration::from_secs(10);
    let node = Node::start(1, &engine, &lake).await;
    write(&node, &["packed/a"]).await;
    sleep(Duration::from_secs(1)).await;
    write(&node, &["packed/b", "packed/c"]).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(engine.keys("b/").len(), 1);
    sleep(Duration::from_secs(20)).await;
    assert_eq!(lake.0.lock().rounds, [1, 2]);
    assert!(engine.keys("q/").is_empty());
}

#[tokio::test(start_paused = true)]
async fn rounds_and_objects_that_go_alone_do_not_hold_each_other_up() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    lake.0.lock().latency = Duration::from_mins(1);
    let node = Node::start(1, &engine, &lake).await;
    // More objects that go alone than may be in flight, around one for a round.
    for (age, key) in (0..7)
        .rev()
        .zip(["a", "packed/b", "c", "d", "e", "f", "packed/g"])
    {
        write_aged(&node, key, Duration::from_secs(age)).await;
    }
    sleep(Duration::from_secs(5)).await;
    assert_eq!(engine.keys("b/").len(), PACE.parallel + 2);
    write(&node, &["packed/h"]).await;
    sleep(Duration::from_mins(5)).await;
    assert_eq!(lake.0.lock().rounds, [2, 1]);
    assert_eq!(lake.0.lock().writes, 5);
}

/// The lists are read no further than needed: not to their ends while older objects wait.
#[tokio::test(start_paused = true)]
async fn the_rest_of_a_long_list_is_not_read_while_a_round_is_in_flight() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    lake.0.lock().latency = Duration::from_secs(10);
    let node = Node::start(1, &engine, &lake).await;
    node.worker.set_pace(Pace { age: HOUR, ..PACE });
    for number in 0..3 * ROUND_MAX {
        node.write(&name(&format!("packed/{number}")), "bytes").await;
    }
    write(&node, &["alone"]).await;
    node.worker.set_pace(PACE);
    sleep(Duration::from_secs(2)).await;
    assert_eq!(engine.keys("b/").len(), ROUND_MAX);
    let pages = || engine.ranges("q/0000000000000001/");
    let before = pages();
    sleep(Duration::from_secs(5)).await;
    // Ten passes over the round and as many objects as in the next one, 256 on a page.
    assert!(pages() - before <= 10 * 65, "{} pages", pages() - before);
    sleep(Duration::from_secs(30)).await;
    assert_eq!(lake.0.lock().rounds, [ROUND_MAX; 3]);
    assert_eq!(lake.0.lock().writes, 1);
}

#[tokio::test(start_paused = true)]
async fn objects_that_fail_in_a_round_are_shown_and_retried_in_a_round() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = patient(&engine, &lake).await;
    lake.0.lock().next = vec![NotFlushed::Refused("403".into()), NotFlushed::Lake("500".into())];
    write(&node, &["packed/a", "packed/b", "packed/c"]).await;
    node.worker.hurry();
    sleep(Duration::from_millis(900)).await;
    let failed = node.worker.failed();
    let refused = failed.iter().filter(|failed| failed.is_refused);
    assert_eq!((failed.len(), refused.count()), (2, 1));
    // Long after the hurry.
    sleep(Duration::from_mins(1)).await;
    assert_eq!(lake.0.lock().rounds, [3, 2]);
    assert!(node.worker.failed().is_empty() && engine.keys("q/").is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_with_another_change_in_flight_holds_no_round_up() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = patient(&engine, &lake).await;
    write(&node, &["packed/a", "packed/b"]).await;
    let change = node.begin("packed/a", Kind::Delete).await.unwrap();
    node.worker.hurry();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(lake.0.lock().rounds, [1]);
    change.refused().await.unwrap();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(lake.0.lock().rounds, [1, 1]);
    assert!(node.worker.failed().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_written_again_in_a_round_stays_dirty() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    lake.0.lock().latency = Duration::from_secs(10);
    let node = Node::start(1, &engine, &lake).await;
    write(&node, &["packed/a"]).await;
    sleep(Duration::from_secs(1)).await;
    let newer = node.write(&name("packed/a"), "newer").await;
    sleep(Duration::from_secs(12)).await;
    let found = node.names.find(&name("packed/a")).await.unwrap();
    assert_eq!(found.entry.current.as_ref(), Some(&newer));
    sleep(Duration::from_secs(12)).await;
    assert_eq!(lake.0.lock().objects.get(&name("packed/a")), Some(&newer));
    assert_eq!(lake.0.lock().rounds, [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_a_client_waits_for_goes_alone() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = patient(&engine, &lake).await;
    write(&node, &["packed/a", "packed/b"]).await;
    node.worker.flush(&name("packed/a")).await.unwrap();
    assert_eq!(lake.0.lock().writes, 1);
    assert!(lake.0.lock().rounds.is_empty() && engine.keys("q/").len() == 1);

    // If it is in a round, the client waits for that.
    lake.0.lock().latency = Duration::from_secs(30);
    node.worker.hurry();
    sleep(Duration::from_secs(1)).await;
    node.worker.flush(&name("packed/b")).await.unwrap();
    let lake = lake.0.lock();
    assert_eq!((lake.writes, lake.rounds.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_packs_what_is_dirty() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = patient(&engine, &lake).await;
    let short = DirtyVersion {
        lifetime: shoal_registry::Lifetime::Short,
        ..version(1, "bytes")
    };
    node.names.write(&name("packed/short"), short).await.unwrap();
    write(&node, &["packed/a", "packed/b", "alone"]).await;
    sleep(Duration::from_secs(1)).await;
    node.worker.flush_all(node.id).await;
    assert_eq!(lake.0.lock().rounds, [2, 1]);
    assert_eq!(lake.0.lock().writes, 1);
    assert!(engine.keys("q/").is_empty() && engine.keys("s/").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_stops_begins_no_second_round() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    lake.0.lock().latency = Duration::from_secs(10);
    let node = Node::start(1, &engine, &lake).await;
    write(&node, &["packed/a"]).await;
    sleep(Duration::from_secs(1)).await;
    write(&node, &["packed/b"]).await;
    node.worker.flush_all(node.id).await;
    assert_eq!(engine.keys("b/").len(), 1);
    assert!(node.worker.failed().is_empty());
    sleep(Duration::from_secs(20)).await;
    assert_eq!(lake.0.lock().rounds, [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn objects_of_a_dead_node_go_in_a_round_of_another() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let dying = patient(&engine, &lake).await;
    write(&dying, &["packed/a", "packed/b", "packed/c"]).await;
    std::mem::forget(dying.begin("packed/c", Kind::Flush).await.unwrap());
    dying.die(&engine);
    lake.0.lock().idle = Duration::ZERO;
    let other = Node::start(2, &engine, &lake).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(lake.0.lock().rounds, [2]);
    let busy = other.begin("packed/c", Kind::Delete).await;
    assert!(matches!(busy, Err(BeginError::Busy(_))));
    sleep(FENCE * 3).await;
    assert_eq!(lake.0.lock().rounds, [2, 1]);
    assert!(other.worker.adopted().is_empty());
}
