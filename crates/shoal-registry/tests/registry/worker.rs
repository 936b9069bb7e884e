//! The worker of several nodes over one registry and a lake that may be slow, silent or refuse.

mod bed;
mod removals;
mod reservations;
mod rounds;

use std::sync::Arc;
use std::time::Duration;

use shoal_registry::engine::{Change, Engine};
use shoal_registry::entry::Kind;
use shoal_registry::names::BeginError;
use shoal_registry::session::new_id;
use shoal_registry::uploads::{UploadPart, Uploads};
use shoal_registry::worker::{NotFlushed, Pace};
use shoal_registry::{DirtyVersion, Lifetime};
use tokio::task::JoinHandle;
use tokio::time::sleep;
use ulid::Ulid;

use self::bed::{Node, PACE, SESSION, TestLake, name};
use crate::support::{FENCE, Memory, version};

#[tokio::test(start_paused = true)]
async fn objects_go_to_the_lake_and_leave_nothing_behind() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = Node::start(1, &engine, &lake).await;
    for number in 0..600 {
        node.write(&name(&number.to_string()), "bytes").await;
    }
    sleep(Duration::from_mins(5)).await;
    sleep(FENCE * 2).await;
    assert_eq!(lake.0.lock().objects.len(), 600);
    assert_eq!(lake.0.lock().writes, 600);
    assert_eq!(lake.0.lock().discarded.len(), 600);
    for prefix in ["d/", "q/", "b/", "e/", "t/"] {
        assert!(engine.keys(prefix).is_empty(), "{prefix}");
    }
}

#[tokio::test(start_paused = true)]
async fn objects_behind_a_short_page_do_not_wait_for_those_on_it() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    engine.give_pages_of(1);
    lake.0.lock().latency = Duration::from_mins(1);
    let node = Node::start(1, &engine, &lake).await;
    for key in ["a", "b", "c"] {
        node.write(&name(key), "bytes").await;
    }
    sleep(Duration::from_secs(2)).await;
    assert_eq!(engine.keys("b/").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn bytes_and_empty_entries_stay_for_the_readers_that_found_them() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = Node::start(1, &engine, &lake).await;
    node.write(&name("k"), "bytes").await;
    node.worker.flush(&name("k")).await.unwrap();
    sleep(Duration::from_secs(38)).await;
    assert!(lake.0.lock().discarded.is_empty() && engine.keys("d/").len() == 1);
    sleep(Duration::from_secs(5)).await;
    assert!(lake.0.lock().discarded.len() == 1 && engine.keys("d/").is_empty());
}

#[tokio::test(start_paused = true)]
async fn bytes_whose_id_is_from_a_slow_clock_are_removed_while_others_come() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = Node::start(1, &engine, &lake).await;
    for number in 0..100 {
        node.write(&name("k"), &number.to_string()).await;
        if number == 30 {
            let key = format!("t/{:016x}/{}", node.id, Ulid::from_parts(1, 1));
            // `Trash::Data` with one key.
            let late = Change::put(key.into(), b"\x02\x00\x01\x04late".as_slice().into());
            engine.commit(late.into()).await.unwrap();
        }
        sleep(Duration::from_secs(1)).await;
    }
    assert!(lake.0.lock().discarded.contains(&"late".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_short_lived_object_stays_and_its_neighbours_go() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = Node::start(1, &engine, &lake).await;
    let short = DirtyVersion {
        lifetime: Lifetime::Short,
        ..version(1, "bytes")
    };
    node.names.write(&name("short"), short).await.unwrap();
    node.write(&name("normal"), "bytes").await;
    sleep(Duration::from_secs(5)).await;
    let at_lake: Vec<_> = lake.0.lock().objects.keys().cloned().collect();
    assert_eq!(at_lake, [name("normal")]);
    node.worker.set_pace(Pace {
        short_age: Duration::ZERO,
        ..PACE
    });
    sleep(Duration::from_secs(5)).await;
    assert_eq!(lake.0.lock().objects.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn objects_that_a_run_still_reads_stay_and_others_do_not_wait_for_them() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = Node::start(1, &engine, &lake).await;
    let held: Vec<String> = (0..600).map(|number| format!("held-{number}")).collect();
    lake.0.lock().held = held.clone();
    for key in &held {
        node.write(&name(key), "bytes").await;
    }
    node.write(&name("free"), "bytes").await;
    sleep(Duration::from_secs(3)).await;
    let at_lake: Vec<_> = lake.0.lock().objects.keys().cloned().collect();
    assert_eq!(at_lake, [name("free")]);
    assert!(node.worker.held_last().is_some());
    // They are not all asked about in each pass, of which there are two a second.
    lake.0.lock().asked_held = 0;
    sleep(Duration::from_secs(10)).await;
    let asked = lake.0.lock().asked_held;
    assert!((600..=3 * 600).contains(&asked), "{asked}");
    // A tier that needs room does not wait, nor does a node that stops.
    node.worker.set_pace(Pace { holds: false, ..PACE });
    sleep(Duration::from_mins(1)).await;
    assert_eq!(
        (lake.0.lock().objects.len(), node.worker.held_last()),
        (601, None)
    );
}

#[tokio::test(start_paused = true)]
async fn a_held_object_goes_when_its_reader_is_done_when_it_is_asked_for_and_when_room_is_needed() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = Node::start(1, &engine, &lake).await;
    let keys = ["read", "asked-for", "in-need", "drained"];
    lake.0.lock().held = keys.map(ToOwned::to_owned).into();
    for key in keys {
        node.write(&name(key), "bytes").await;
    }
    let count = async || {
        sleep(Duration::from_secs(20)).await;
        lake.0.lock().writes
    };
    assert_eq!(count().await, 0);
    node.worker.flush(&name("asked-for")).await.unwrap();
    assert_eq!(count().await, 1);
    lake.0.lock().held.retain(|key| key != "read");
    assert_eq!(count().await, 2);
    node.worker.hurry();
    assert_eq!(count().await, 4);
    node.write(&name("drained"), "other").await;
    assert_eq!(count().await, 4);
    node.worker.flush_all(node.id).await;
    assert_eq!(lake.0.lock().writes, 5);
}

#[tokio::test(start_paused = true)]
async fn a_pace_that_changes_holds_for_the_objects_that_wait() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = Node::start(1, &engine, &lake).await;
    let pace = |age, parallel| {
        node.worker.set_pace(Pace {
            age,
            parallel,
            ..PACE
        });
    };
    pace(Duration::from_hours(1), 1);
    lake.0.lock().latency = Duration::from_secs(10);
    for number in 0..9 {
        node.write(&name(&number.to_string()), "bytes").await;
    }
    sleep(Duration::from_secs(5)).await;
    assert!(engine.keys("b/").is_empty(), "none is due");
    for (parallel, under_way) in [(1, 1), (4, 4), (2, 4)] {
        pace(Duration::ZERO, parallel);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(engine.keys("b/").len(), under_way, "{parallel} at a time");
    }
    // The one of the first second is over, then the three of the next.
    sleep(Duration::from_secs(10)).await;
    assert_eq!(engine.keys("b/").len(), 2);
    assert_eq!(lake.0.lock().objects.len(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_refused_flush_is_shown_and_tried_again() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    lake.0.lock().next = vec![NotFlushed::Refused("403".into()); 2];
    let node = Node::start(1, &engine, &lake).await;
    node.write(&name("k"), "bytes").await;
    sleep(Duration::from_secs(2)).await;
    let failed = node.worker.failed();
    assert_eq!((&failed[0].name, &*failed[0].error), (&name("k"), "403"));
    sleep(Duration::from_secs(10)).await;
    assert!(node.worker.failed().is_empty() && lake.0.lock().objects.len() == 1);
}

#[tokio::test(start_paused = true)]
async fn a_silent_lake_keeps_the_name_busy_until_the_fence_has_passed() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    lake.0.lock().next = vec![NotFlushed::Unknown("no answer".into())];
    let node = Node::start(1, &engine, &lake).await;
    node.write(&name("k"), "bytes").await;
    let flushed = node.worker.flush(&name("k")).await;
    assert_eq!(flushed, Err(NotFlushed::Unknown("no answer".into())));
    let busy = node.begin("k", Kind::Delete).await;
    assert!(matches!(busy, Err(BeginError::Busy(_))));
    sleep(FENCE).await;
    let free = node.begin("k", Kind::Delete).await;
    free.unwrap().refused().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dropped_change_is_given_up_after_the_fence() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = Node::start(1, &engine, &lake).await;
    let change = node.begin("k", Kind::Write).await.unwrap();
    assert!(change.permit().may_send());
    drop(change);
    sleep(Duration::from_secs(35)).await;
    assert_eq!(engine.keys("b/").len(), 1);
    sleep(Duration::from_secs(6)).await;
    assert!(engine.keys("b/").is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_objects_of_a_dead_node_are_adopted_once_its_requests_can_no_longer_land() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let dying = Node::start(1, &engine, &lake).await;
    lake.0.lock().latency = Duration::from_hours(1);
    dying.write(&name("flushing"), "bytes").await;
    sleep(Duration::from_secs(2)).await;
    assert_eq!(engine.keys("b/").len(), 1);
    dying.write(&name("waiting"), "bytes").await;
    let dead = dying.kill();
    lake.0.lock().latency = Duration::ZERO;

    let others = [
        Node::start(2, &engine, &lake).await,
        Node::start(3, &engine, &lake).await,
    ];
    sleep(SESSION).await;
    engine.expire(dead);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(
        others
            .iter()
            .filter(|node| node.worker.adopted() == [dead])
            .count(),
        1
    );
    assert_eq!(
        lake.0.lock().objects.keys().collect::<Vec<_>>(),
        [&name("waiting")]
    );
    sleep(FENCE).await;
    sleep(Duration::from_secs(5)).await;
    assert_eq!(lake.0.lock().objects.len(), 2);
    sleep(FENCE * 3).await;
    assert!(others.iter().all(|node| node.worker.adopted().is_empty()));
    assert_eq!(engine.keys("m/").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_returns_and_dies_again_is_adopted_again() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let others = [
        Node::start(2, &engine, &lake).await,
        Node::start(3, &engine, &lake).await,
    ];
    let adoptions = || {
        others
            .iter()
            .map(|node| node.worker.adopted().len())
            .sum::<usize>()
    };
    let first_life = Node::start(1, &engine, &lake).await;
    first_life.write(&name("first"), "first").await;
    first_life.worker.flush(&name("first")).await.unwrap();
    // The bytes of the object wait for its readers.
    first_life.die(&engine);
    sleep(Duration::from_secs(10)).await;
    assert_eq!(adoptions(), 1);

    let second_life = Node::start(1, &engine, &lake).await;
    sleep(FENCE * 2).await;
    assert_eq!(adoptions(), 0);
    assert!(engine.keys("a/").is_empty());
    assert_eq!(lake.0.lock().discarded, ["first"]);

    second_life.write(&name("second"), "second").await;
    second_life.die(&engine);
    sleep(FENCE * 2).await;
    assert!(lake.0.lock().objects.contains_key(&name("second")));
    assert_eq!(adoptions(), 0);
    assert_eq!(engine.keys("m/").len(), 2);
    assert_eq!(lake.0.lock().discarded, ["first", "second"]);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_later_life_is_given_up_after_the_death_that_ends_that_life() {
    for lives_on in [Duration::from_millis(2800), FENCE * 2] {
        let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
        let adopter = Node::start(2, &engine, &lake).await;
        let first_life = Node::start(1, &engine, &lake).await;
        first_life.write(&name("first"), "first").await;
        first_life.worker.flush(&name("first")).await.unwrap();
        first_life.die(&engine);
        sleep(Duration::from_millis(9100)).await;
        assert_eq!(adopter.worker.adopted(), [1]);

        // The adopter sees the change before it sees that the node is back.
        let second_life = Node::start(1, &engine, &lake).await;
        std::mem::forget(second_life.begin("k", Kind::Write).await.unwrap());
        sleep(lives_on).await;
        second_life.die(&engine);
        // A second less than the fence.
        sleep(Duration::from_secs(39)).await;
        assert_eq!(engine.keys("b/").len(), 1, "{lives_on:?}");
        sleep(Duration::from_secs(6)).await;
        assert!(engine.keys("b/").is_empty(), "{lives_on:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_takes_its_session_over_writes_at_once_and_leaves_old_changes_until_their_fence() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let folder = tempfile::tempdir().unwrap();
    let start = async || Node::start_kept(folder.path(), &engine, &lake).await;
    let killed = start().await;
    std::mem::forget(killed.begin("old", Kind::Write).await.unwrap());
    killed.kill();
    let next = start().await;
    next.write(&name("new"), "bytes").await;
    next.worker.flush(&name("new")).await.unwrap();
    assert_eq!(engine.keys("b/").len(), 1);
    // A second less than the session of the earlier life, which lasts for ten, and the fence.
    sleep(FENCE + Duration::from_secs(9)).await;
    assert_eq!(engine.keys("b/").len(), 1);
    sleep(Duration::from_secs(3)).await;
    assert!(engine.keys("b/").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_hurried_worker_looks_for_dead_nodes_no_more_often() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = Node::start(1, &engine, &lake).await;
    sleep(Duration::from_secs(1)).await;
    for _ in 0..100 {
        node.worker.set_pace(PACE);
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(engine.ranges("m/"), 1);
    sleep(Duration::from_secs(9)).await;
    assert_eq!(engine.ranges("m/"), 4);
}

#[tokio::test(start_paused = true)]
async fn a_restarted_node_gives_up_the_changes_of_its_earlier_life() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let first = Node::start(1, &engine, &lake).await;
    let change = first.begin("k", Kind::Write).await.unwrap();
    std::mem::forget(change);
    first.die(&engine);
    let second = Node::start(1, &engine, &lake).await;
    let busy = second.begin("k", Kind::Write).await;
    assert!(matches!(busy, Err(BeginError::Busy(_))));
    sleep(FENCE).await;
    sleep(Duration::from_secs(2)).await;
    let free = second.begin("k", Kind::Write).await;
    free.unwrap().done().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_without_a_session_begins_nothing_and_sends_nothing() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = Node::start(1, &engine, &lake).await;
    let change = node.begin("k", Kind::Write).await.unwrap();
    // The keeping of the session stops, as in a process that is frozen.
    node.tasks.iter().for_each(JoinHandle::abort);
    sleep(SESSION).await;
    assert!(!change.permit().may_send() && node.session.owner().is_none());
    let begun = node.begin("other", Kind::Write).await;
    assert_eq!(begun.unwrap_err(), BeginError::NoSession);
}

/// An upload that began long ago; it is in use if a part is recent.
async fn old_upload(node: &Node, number: u16, part_at: Option<Ulid>) -> Ulid {
    let (uploads, name) = (Uploads::new(node.names.clone()), name(&number.to_string()));
    let id = Ulid::from_parts(1, number.into());
    uploads.begin(&name, id, "".into()).await.unwrap();
    if let Some(part_at) = part_at {
        let found = uploads.find(&name, id).await.unwrap().unwrap();
        let part = UploadPart {
            data: format!("part-{part_at}").into(),
            record: "".into(),
        };
        uploads.put_part(&found, 1, &part).await.unwrap();
    }
    id
}

#[tokio::test(start_paused = true)]
async fn old_uploads_that_are_in_use_do_not_hide_those_that_are_not() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = Node::start(1, &engine, &lake).await;
    for number in 0..600 {
        old_upload(&node, number, Some(new_id())).await;
    }
    let ended = old_upload(&node, 600, None).await;
    let ended_with_parts = old_upload(&node, 601, Some(Ulid::from_parts(1, 1))).await;
    old_upload(&node, 602, Some(new_id())).await;
    sleep(Duration::from_secs(5)).await;
    let left = engine.keys("u/");
    assert_eq!(left.len(), 601);
    for id in [ended, ended_with_parts] {
        assert!(!left.iter().any(|key| key.ends_with(&id.to_string())), "{id}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_is_completed_while_it_expires_is_forgotten_later() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    let node = Node::start(1, &engine, &lake).await;
    let id = old_upload(&node, 7, None).await;
    let (uploads, name) = (Uploads::new(node.names.clone()), name("7"));
    let open = uploads.find(&name, id).await.unwrap().unwrap();
    let release = engine.hold_request();
    sleep(Duration::from_secs(1)).await;
    let told = uploads.completed_at_lake(&open, new_id(), "".into());
    told.await.unwrap();
    release.send(()).unwrap();
    sleep(Duration::from_secs(5)).await;
    assert!(engine.keys("u/").is_empty() && engine.keys("o/").is_empty());
}

#[tokio::test(start_paused = true)]
async fn parts_that_no_object_keeps_are_discarded_over_many_pages() {
    let (engine, lake) = (Arc::new(Memory::default()), TestLake::default());
    engine.give_pages_of(50);
    let node = Node::start(1, &engine, &lake).await;
    let (uploads, name, id) = (Uploads::new(node.names.clone()), name("k"), new_id());
    uploads.begin(&name, id, "".into()).await.unwrap();
    for number in 1..=130_u16 {
        let found = uploads.find(&name, id).await.unwrap().unwrap();
        let part = UploadPart {
            data: number.to_string().into(),
            record: "".into(),
        };
        uploads.put_part(&found, number, &part).await.unwrap();
    }
    let found = uploads.find(&name, id).await.unwrap().unwrap();
    let (object, kept, record) = (version(1, "object"), vec![(2, 2), (70, 80)], "".into());
    uploads.complete(&found, &object, kept, &record).await.unwrap();
    sleep(Duration::from_mins(5)).await;
    assert!(engine.keys("p/").is_empty() && engine.keys("t/").is_empty());
    let discarded: Vec<_> = lake
        .0
        .lock()
        .discarded
        .iter()
        .filter_map(|key| key.parse::<u16>().ok())
        .collect();
    let expected: Vec<_> = (1..=130_u16)
        .filter(|number| *number != 2 && !(70..=80).contains(number))
        .collect();
    assert_eq!(discarded, expected);
}
