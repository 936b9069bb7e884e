//! Objects whose bytes the registry keeps itself.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use shoal_registry::engine::{Change, Engine, EngineError, Range, Transaction};
use shoal_registry::entry::{Kind, Owner};
use shoal_registry::names::{ChangedObject, End, Names};
use shoal_registry::references::Reference;
use shoal_registry::session::new_id;
use shoal_registry::uploads::Uploads;
use shoal_registry::{Content, DirtyVersion, Name, NodeList};
use ulid::Ulid;

use crate::support::{FENCE, Fault, Memory, inline, version};

const NODE: u64 = 7;

fn bed() -> (Arc<Memory>, Names, Name) {
    let engine = Arc::new(Memory::default());
    let names = Names::new(Arc::clone(&engine) as Arc<dyn Engine>, NODE, FENCE);
    (engine, names, Name::new("bucket", b"folder/key"))
}

async fn current(names: &Names, name: &Name) -> Option<DirtyVersion> {
    names.find(name).await.unwrap().entry.current
}

async fn write(names: &Names, name: &Name, version: &DirtyVersion) {
    names.write(name, version.clone()).await.unwrap();
}

/// Begins a change of the dirty object and ends it.
async fn change(names: &Names, name: &Name, kind: Kind, end: End) {
    let owner = Owner {
        node: NODE,
        life: Ulid(1),
    };
    let begun = names.begin(name, kind, ChangedObject::Current, owner, new_id(), None);
    let begun = begun.await.unwrap();
    assert!(
        current(names, name)
            .await
            .is_some_and(|dirty| dirty.content.is_some())
    );
    names.end(&begun, end, || true).await.unwrap();
}

#[tokio::test]
async fn a_small_object_is_found_with_its_bytes_and_lists_leave_them_out() {
    let (engine, names, name) = bed();
    let small = inline(NODE, "small");
    write(&names, &name, &small).await;
    assert_eq!(current(&names, &name).await, Some(small.clone()));
    assert_eq!(names.content_bytes().bytes(), 5);
    let listed = DirtyVersion {
        content: None,
        ..small
    };
    let range = Range {
        prefix: "".into(),
        after: Bytes::new(),
        limit: 10,
    };
    let page = names.list("bucket", range).await.unwrap();
    assert_eq!(page.objects, [(name.clone(), listed.clone())]);
    let references: Vec<_> = names.references(10).try_collect().await.unwrap();
    assert_eq!(references, [Reference::Object(name, Box::new(listed))]);
    assert_eq!(engine.keys("c/"), ["c/bucket/folder/key"]);
}

#[tokio::test]
async fn the_bytes_stay_while_the_object_is_current_and_go_with_it_at_once() {
    for (kind, end, is_left) in [
        (Kind::Flush, End::Refused, true),
        (Kind::Flush, End::Done, false),
        (Kind::Delete, End::GivenUp, true),
        (Kind::Delete, End::Done, false),
    ] {
        let (engine, names, name) = bed();
        let small = inline(NODE, "small");
        write(&names, &name, &small).await;
        change(&names, &name, kind, end).await;
        let left = is_left.then_some(small);
        assert_eq!(current(&names, &name).await, left, "{kind:?} {end:?}");
        let count = usize::from(is_left);
        assert_eq!(engine.keys("c/").len(), count, "{kind:?} {end:?}");
        assert_eq!(names.content_bytes().bytes(), 5 * count as u64);
        assert!(engine.keys("t/").is_empty(), "there is nothing in the store");
    }
}

#[tokio::test]
async fn an_overwrite_replaces_the_bytes_whichever_way_the_next_ones_go() {
    let (engine, names, name) = bed();
    write(&names, &name, &version(NODE, "in the store")).await;
    write(&names, &name, &inline(NODE, "first")).await;
    let (second, third) = (inline(NODE, "second"), version(NODE, "in the store"));
    assert_eq!(engine.keys("t/").len(), 1, "the piece is trash");
    write(&names, &name, &second).await;
    assert_eq!(current(&names, &name).await, Some(second));
    assert_eq!(names.content_bytes().bytes(), 6);
    write(&names, &name, &third).await;
    assert_eq!(current(&names, &name).await, Some(third));
    assert!(engine.keys("c/").is_empty());
    assert_eq!(names.content_bytes().bytes(), 0);
    assert_eq!(names.count(NodeList::Dirty, NODE).await, Ok(1));
}

#[tokio::test]
async fn an_object_in_parts_replaces_a_small_one() {
    let (engine, names, name) = bed();
    write(&names, &name, &inline(NODE, "small")).await;
    let (uploads, id) = (Uploads::new(names.clone()), new_id());
    uploads.begin(&name, id, Bytes::new()).await.unwrap();
    let found = uploads.find(&name, id).await.unwrap().unwrap();
    let (whole, record) = (version(NODE, "parts"), Bytes::new());
    let completed = uploads.complete(&found, &whole, vec![(1, 1)], &record);
    completed.await.unwrap();
    assert_eq!(current(&names, &name).await, Some(whole));
    assert!(engine.keys("c/").is_empty());
    assert_eq!(names.content_bytes().bytes(), 0);
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_has_its_bytes_and_no_others() {
    for fault in [Fault::AnswerLost, Fault::RequestLost, Fault::Conflict] {
        let (engine, names, name) = bed();
        write(&names, &name, &inline(NODE, "before")).await;
        let small = inline(NODE, "after");
        engine.fail(&[Fault::Conflict, fault]);
        names.write(&name, small.clone()).await.unwrap();
        assert_eq!(current(&names, &name).await, Some(small), "{fault:?}");
    }
}

/// A reader that has found one object never gets the bytes of another one.
#[tokio::test]
async fn objects_are_found_with_their_own_bytes_while_they_are_overwritten() {
    let (engine, names, name) = bed();
    engine.give_way();
    write(&names, &name, &inline(NODE, "a")).await;
    let writing = async {
        for content in ["b", "cc", "ddd"].into_iter().cycle().take(300) {
            write(&names, &name, &inline(NODE, content)).await;
            tokio::task::yield_now().await;
        }
    };
    let reading = async {
        for _ in 0..300 {
            let found = current(&names, &name).await.unwrap();
            let Content(content) = found.content.expect("an object that is overwritten is not lost");
            assert_eq!(content, found.record);
        }
    };
    tokio::join!(writing, reading);
}

#[tokio::test]
async fn lost_bytes_or_those_of_another_object_are_none() {
    let (engine, names, name) = bed();
    let small = inline(NODE, "small");
    write(&names, &name, &small).await;
    let key = Bytes::from("c/bucket/folder/key");
    let stored = engine.get(&key).await.unwrap().unwrap().value;
    let mut of_another = stored.to_vec();
    of_another[16] ^= 1;
    let changes = [
        Change::delete(key.clone()),
        Change::put(key.clone(), of_another.into()),
        Change::put(key, Bytes::new()),
    ];
    for change in changes {
        engine.commit(Transaction::from(change)).await.unwrap();
        let lost = DirtyVersion {
            content: None,
            ..small.clone()
        };
        assert_eq!(current(&names, &name).await, Some(lost));
    }
}

#[tokio::test]
async fn builds_without_small_objects_in_the_registry_do_not_read_their_entries() {
    let (engine, names, name) = bed();
    write(&names, &name, &inline(NODE, "small")).await;
    let key = Bytes::from("d/bucket/folder/key");
    let mut entry = engine.get(&key).await.unwrap().unwrap().value.to_vec();
    assert_eq!(entry[0], 2, "they know format 1 only");
    entry[0] = 1;
    let commit = engine.commit(Transaction::from(Change::put(key, entry.into())));
    commit.await.unwrap();
    let found = names.find(&name).await;
    assert!(matches!(found, Err(EngineError::Refused(_))), "{found:?}");
}
