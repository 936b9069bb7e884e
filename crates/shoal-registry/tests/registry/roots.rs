//! The roots of maps: two nodes that commit tables, and answers that get lost at each step.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use shoal_registry::engine::{Engine, EngineError, Revision};
use shoal_registry::entry::{Kind, Owner};
use shoal_registry::names::{ChangedObject, End, Names};
use shoal_registry::roots::{MapRoot, MapTable, Purpose, RebuildError, ReserveError, Root, Roots};
use shoal_registry::session::{Session, new_id};
use shoal_registry::{MapName, Name};
use ulid::Ulid;

use crate::support::{FENCE, Fault, Memory, inline};

const FAULTS: [Fault; 3] = [Fault::AnswerLost, Fault::RequestLost, Fault::Conflict];

fn map() -> MapName {
    MapName::new("bucket", b"packed/")
}

fn table(number: u64) -> MapTable {
    MapTable {
        number,
        size_bytes: 4096,
        checksum: u64::MAX - number,
    }
}

async fn node(engine: &Arc<Memory>, id: u64) -> Roots {
    let engine = Arc::clone(engine) as Arc<dyn Engine>;
    let session = Session::new(Arc::clone(&engine), id, Duration::from_secs(10));
    session.keep().await.unwrap();
    Roots::new(Names::new(engine, id, FENCE), Arc::new(session))
}

/// Two nodes, and a map without tables.
async fn bed() -> (Arc<Memory>, [Roots; 2]) {
    let engine = Arc::new(Memory::default());
    let nodes = [node(&engine, 1).await, node(&engine, 2).await];
    nodes[0].create(&map()).await.unwrap();
    (engine, nodes)
}

async fn read(roots: &Roots) -> Root {
    roots.read(&map()).await.unwrap().unwrap()
}

/// Commits the next table on top of those that the map has.
async fn commit(roots: &Roots, purpose: Purpose) -> Root {
    let reserved = roots.reserve(&map(), purpose).await.unwrap();
    let tables = [&[table(reserved.number())], &reserved.root().tables[..]].concat();
    roots.commit(&reserved, tables).await.unwrap().root
}

#[tokio::test]
async fn a_map_has_a_number_once_it_has_a_table() {
    let (engine, [one, other]) = bed().await;
    assert_eq!(other.number(&map()).await, Ok(None));
    assert_eq!(read(&other).await, Root::default());
    let reserved = one.reserve(&map(), Purpose::Packing).await.unwrap();
    assert_eq!((reserved.number(), reserved.map()), (1, &map()));
    assert!(reserved.permit().may_send());
    assert_eq!(other.number(&map()).await, Ok(None), "it is not committed");
    let committed = one.commit(&reserved, vec![table(1)]).await.unwrap();
    assert_eq!(committed.root, read(&other).await);
    assert_eq!(other.number(&map()).await, Ok(Some(1)));
    assert_eq!(commit(&other, Purpose::Upkeep).await.tables, [table(2), table(1)]);
    assert_eq!(one.number(&map()).await, Ok(Some(2)));
    let all = one.all().await.unwrap();
    let root = read(&one).await;
    assert_eq!(all, [MapRoot { map: map(), root }]);
    assert_eq!(engine.keys("g/"), ["g/bucket/packed/"]);
}

#[tokio::test]
async fn one_of_two_nodes_commits_at_a_time() {
    let (_, [one, other]) = bed().await;
    let reserved = one.reserve(&map(), Purpose::Packing).await.unwrap();
    let busy = other.reserve(&map(), Purpose::Packing).await.unwrap_err();
    assert!(matches!(busy, ReserveError::Busy(by) if by.number == 1 && by.owner.node == 1));
    // A node does not have two reservations either.
    let busy = one.reserve(&map(), Purpose::Packing).await;
    assert!(matches!(busy, Err(ReserveError::Busy(_))));
    one.commit(&reserved, vec![table(1)]).await.unwrap();
    let next = other.reserve(&map(), Purpose::Packing).await.unwrap();
    assert_eq!((next.number(), &next.root().tables[..]), (2, &[table(1)][..]));
    other.release(&next).await;
    // A number is not used twice.
    let after = one.reserve(&map(), Purpose::Packing).await.unwrap();
    assert_eq!((after.number(), after.root().number), (3, 1));
}

#[tokio::test]
async fn nodes_that_reserve_at_once_commit_one_after_the_other() {
    let (engine, nodes) = bed().await;
    engine.give_way();
    let packer = async |roots: &Roots| {
        for _ in 0..20 {
            loop {
                match roots.reserve(&map(), Purpose::Packing).await {
                    Ok(reserved) => {
                        let tables = [&[table(reserved.number())], &reserved.root().tables[..]].concat();
                        tokio::task::yield_now().await;
                        roots.commit(&reserved, tables).await.unwrap();
                        break;
                    }
                    Err(ReserveError::Busy(_)) => tokio::task::yield_now().await,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    };
    tokio::join!(packer(&nodes[0]), packer(&nodes[1]));
    let numbers: Vec<_> = read(&nodes[0])
        .await
        .tables
        .iter()
        .map(|table| table.number)
        .collect();
    let expected: Vec<_> = (1..=40).rev().collect();
    assert_eq!(
        numbers, expected,
        "each table is there once, and the newest is first"
    );
}

#[tokio::test(start_paused = true)]
async fn a_reservation_whose_answer_is_lost_is_one_reservation() {
    for fault in FAULTS {
        let (engine, [one, other]) = bed().await;
        engine.fail(&[fault, fault]);
        let reserved = one.reserve(&map(), Purpose::Packing).await.unwrap();
        assert_eq!((reserved.number(), read(&other).await.next), (1, 2), "{fault:?}");
        one.commit(&reserved, vec![table(1)]).await.unwrap();
    }
    let (engine, [one, other]) = bed().await;
    engine.fail(&[Fault::Unreached]);
    let failed = one.reserve(&map(), Purpose::Packing).await.unwrap_err();
    assert!(matches!(
        failed,
        ReserveError::Engine(EngineError::Unavailable(_))
    ));
    assert_eq!(read(&other).await, Root::default());
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_answer_is_lost_is_sent_until_it_is_known() {
    for fault in FAULTS.into_iter().chain([Fault::Unreached]) {
        let (engine, [one, other]) = bed().await;
        let reserved = one.reserve(&map(), Purpose::Packing).await.unwrap();
        engine.fail(&[fault, fault]);
        let committed = one.commit(&reserved, vec![table(1)]).await.unwrap();
        let root = read(&other).await;
        assert_eq!(committed.root, root);
        assert_eq!(
            (root.number, root.next, root.reservation),
            (1, 2, None),
            "{fault:?}"
        );
        assert_eq!(other.number(&map()).await, Ok(Some(1)));
    }
}

/// Another node commits before the first one has found out that its own commit has happened.
#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_known_although_others_have_committed_since() {
    let (engine, [one, other]) = bed().await;
    let reserved = one.reserve(&map(), Purpose::Packing).await.unwrap();
    engine.fail(&[Fault::AnswerLost]);
    let release = engine.hold_answer();
    let committing = tokio::spawn(async move { one.commit(&reserved, vec![table(1)]).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let next = other.reserve(&map(), Purpose::Upkeep).await.unwrap();
    // It merges the first table into its own.
    other.commit(&next, vec![table(2)]).await.unwrap();
    release.send(()).unwrap();
    assert_eq!(committing.await.unwrap().unwrap().root.tables, [table(2)]);
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_answer_is_lost_is_sent_until_it_is_known() {
    for fault in FAULTS.into_iter().chain([Fault::Unreached]) {
        let (engine, [one, other]) = bed().await;
        let reserved = one.reserve(&map(), Purpose::Packing).await.unwrap();
        engine.fail(&[fault, fault]);
        one.release(&reserved).await;
        let root = read(&other).await;
        assert_eq!(
            (root.number, root.next, root.reservation),
            (0, 2, None),
            "{fault:?}"
        );
        assert_eq!(commit(&other, Purpose::Packing).await.number, 2);
    }
}

#[tokio::test]
async fn a_map_that_is_ending_takes_no_more_objects_and_is_removed_when_it_is_empty() {
    let (engine, [one, other]) = bed().await;
    commit(&one, Purpose::Packing).await;
    let reserved = one.reserve(&map(), Purpose::Packing).await.unwrap();
    engine.fail(&[Fault::AnswerLost]);
    other.end(&map()).await.unwrap();
    other.end(&map()).await.unwrap();
    assert_eq!(other.remove(&map(), 1).await, Ok(false), "a table may follow");
    let tables = vec![table(2), table(1)];
    let committed = one.commit(&reserved, tables).await.unwrap();
    assert!(committed.root.is_ending && committed.root.number == 2);
    let ending = one.reserve(&map(), Purpose::Packing).await.unwrap_err();
    assert_eq!(ending, ReserveError::Ending);

    let empty = commit(&one, Purpose::Upkeep).await.number;
    assert_eq!(other.remove(&map(), 2).await, Ok(false), "the map has changed");
    engine.fail(&[Fault::AnswerLost]);
    assert_eq!(other.remove(&map(), empty).await, Ok(true));
    assert_eq!(other.remove(&map(), empty).await, Ok(true));
    assert_eq!(one.read(&map()).await, Ok(None));
    assert_eq!(one.number(&map()).await, Ok(None));
    assert_eq!(one.all().await, Ok(Vec::new()));
    // Nobody begins it by accident.
    one.create(&map()).await.unwrap();
    for purpose in [Purpose::Upkeep, Purpose::Packing] {
        let over = one.reserve(&map(), purpose).await.unwrap_err();
        assert_eq!(over, ReserveError::Ending);
    }
    let given_out = async |number| one.has_given_out(&map(), number).await.unwrap();
    assert!(given_out(empty).await && !given_out(empty + 1).await);

    // A new map of the same prefix does not use its numbers again.
    engine.fail(&[Fault::AnswerLost]);
    one.begin_again(&map()).await.unwrap();
    assert!(!read(&one).await.is_ending);
    assert_eq!(commit(&other, Purpose::Packing).await.tables, [table(4)]);
    assert_eq!(one.number(&map()).await, Ok(Some(4)));
}

#[tokio::test]
async fn a_map_that_ends_before_its_first_table_is_over_when_no_table_can_follow() {
    let (_, [one, other]) = bed().await;
    let reserved = one.reserve(&map(), Purpose::Packing).await.unwrap();
    other.end(&map()).await.unwrap();
    assert!(read(&other).await.is_ending);
    assert_eq!(other.remove(&map(), 0).await, Ok(false));
    one.release(&reserved).await;
    assert_eq!(other.read(&map()).await, Ok(None));
    assert_eq!(other.remove(&map(), 0).await, Ok(true));
}

#[tokio::test]
async fn a_map_that_has_objects_is_not_removed() {
    let (_, [one, _]) = bed().await;
    commit(&one, Purpose::Packing).await;
    assert_eq!(one.remove(&map(), 1).await, Ok(false), "it is not ending");
    assert_eq!(read(&one).await.tables, [table(1)]);
    // There is one root, whoever creates it.
    one.create(&map()).await.unwrap();
    assert_eq!(read(&one).await.tables, [table(1)]);
}

#[tokio::test]
async fn a_node_without_a_session_or_a_map_reserves_nothing() {
    let (engine, [one, _]) = bed().await;
    let other_map = MapName::new("bucket", b"");
    let reserved = one.reserve(&other_map, Purpose::Packing).await.unwrap_err();
    assert_eq!(reserved, ReserveError::NoRoot);
    one.end(&other_map).await.unwrap();
    assert_eq!(one.remove(&other_map, 0).await, Ok(true));
    assert_eq!(one.read(&other_map).await, Ok(None));

    let engine = engine as Arc<dyn Engine>;
    let session = Arc::new(Session::new(Arc::clone(&engine), 3, Duration::from_secs(10)));
    let sleeper = Roots::new(Names::new(engine, 3, FENCE), session);
    let reserved = sleeper.reserve(&map(), Purpose::Packing).await.unwrap_err();
    assert_eq!(reserved, ReserveError::NoSession);
}

#[tokio::test]
async fn a_map_that_the_registry_has_lost_is_made_from_its_tables() {
    let engine = Arc::new(Memory::default());
    let roots = node(&engine, 1).await;
    engine.fail(&[Fault::AnswerLost]);
    roots
        .rebuild(&map(), &[table(8), table(9), table(3)], 1)
        .await
        .unwrap();
    let root = read(&roots).await;
    assert_eq!((root.number, root.next, root.rebuilds), (9, 10, 1));
    assert_eq!(root.tables, [table(8), table(9), table(3)]);
    assert_eq!(roots.number(&map()).await, Ok(Some(9)));

    // Table 10 was reserved, and is not in the map.
    let reserved = roots.reserve(&map(), Purpose::Packing).await.unwrap();
    let busy = roots.rebuild(&map(), &[table(10)], 2).await.unwrap_err();
    assert!(matches!(busy, RebuildError::Busy(by) if by.number == 10));
    roots.release(&reserved).await;
    let lost_nothing = roots.rebuild(&map(), &[table(10)], 2).await;
    let (number, next) = (10, 11);
    assert_eq!(lost_nothing, Err(RebuildError::NotOlder { number, next }));
    assert_eq!(read(&roots).await.tables.len(), 3);
    roots.rebuild(&map(), &[table(11)], 2).await.unwrap();
    assert_eq!(
        commit(&roots, Purpose::Packing).await.tables,
        [table(12), table(11)]
    );
}

#[test]
fn an_object_is_newer_than_those_from_before_a_rebuild() {
    let root = |rebuilds| Root {
        rebuilds,
        ..Root::default()
    };
    assert_eq!(root(0).sequence(Revision(7)), 7);
    assert!(root(1).sequence(Revision(1)) > root(0).sequence(Revision((1 << 48) - 1)));
}

#[tokio::test]
async fn an_entry_is_found_with_the_number_of_its_map_by_one_request() {
    let (engine, [one, _]) = bed().await;
    let names = Names::new(Arc::clone(&engine) as Arc<dyn Engine>, 1, FENCE);
    let (name, map) = (Name::new("bucket", b"packed/a"), map());
    let found = names.find_with_number(&name, &map).await.unwrap();
    assert!(found.number.is_none() && found.found.entry.is_empty());
    commit(&one, Purpose::Packing).await;
    let gets = engine.gets();
    names.write(&name, inline(1, "a")).await.unwrap();
    let found = names.find_with_number(&name, &map).await.unwrap();
    assert_eq!(found.number, Some(1));
    assert!(found.found.entry.current.unwrap().content.is_some());
    assert_eq!(engine.gets(), gets + 2, "the second one is for the bytes");
}

/// A reader that finds no object in the entry also finds the number of the table that has it.
#[tokio::test]
async fn a_number_is_as_new_as_the_entry_that_was_found_with_it() {
    let (engine, [one, _]) = bed().await;
    let names = Names::new(Arc::clone(&engine) as Arc<dyn Engine>, 1, FENCE);
    let (name, map) = (Name::new("bucket", b"packed/a"), map());
    engine.give_way();
    let owner = Owner {
        node: 1,
        life: Ulid(1),
    };
    // The number of the table that has the object which left the entry last.
    let left = Cell::new(0);
    let packing = async {
        for _ in 0..200 {
            names.write(&name, inline(1, "a")).await.unwrap();
            let begun = names.begin(&name, Kind::Flush, ChangedObject::Current, owner, new_id(), None);
            let begun = begun.await.unwrap();
            let number = commit(&one, Purpose::Packing).await.number;
            names.end(&begun, End::Done, || true).await.unwrap();
            left.set(number);
            tokio::task::yield_now().await;
        }
    };
    let reading = async {
        let mut absent = 0;
        while left.get() < 200 {
            let found = names.find_with_number(&name, &map).await.unwrap();
            if found.found.entry.is_empty() {
                absent += 1;
                assert!(found.number.unwrap_or_default() >= left.get());
            }
        }
        assert!(absent > 20, "{absent} reads found no object");
    };
    tokio::join!(packing, reading);
}
