//! The bytes that a registry names.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream::{Stream, TryStreamExt};
use shoal_registry::engine::{Change, Engine, EngineError, Transaction};
use shoal_registry::names::Names;
use shoal_registry::references::Reference;
use shoal_registry::session::new_id;
use shoal_registry::uploads::{UploadPart, Uploads};
use shoal_registry::{DirtyVersion, Name};

use crate::support::{self, FENCE, Memory};

const NODE: u64 = 7;

fn names() -> (Arc<Memory>, Names) {
    let engine = Arc::new(Memory::default());
    let names = Names::new(Arc::clone(&engine) as Arc<dyn Engine>, NODE, FENCE);
    (engine, names)
}

fn name(key: &str) -> Name {
    Name::new("bucket", key.as_bytes())
}

fn object(data: &[&str]) -> DirtyVersion {
    DirtyVersion {
        data: data.iter().map(|key| Arc::from(*key)).collect(),
        ..support::version(NODE, "")
    }
}

fn part(data: &str) -> UploadPart {
    UploadPart {
        data: data.into(),
        record: Bytes::new(),
    }
}

/// Every key that the rest of the references have.
async fn named(references: impl Stream<Item = Result<Reference, EngineError>>) -> BTreeSet<String> {
    let references: Vec<_> = references.try_collect().await.unwrap();
    let keys = references.iter().flat_map(Reference::keys);
    keys.map(ToString::to_string).collect()
}

#[tokio::test]
async fn bytes_of_objects_of_parts_and_in_the_trash_are_named() {
    let (_, names) = names();
    assert!(named(names.references(2)).await.is_empty());
    for number in 0..5 {
        let data = object(&[&format!("a{number}"), &format!("b{number}")]);
        names.write(&name(&number.to_string()), data).await.unwrap();
    }
    names.write(&name("0"), object(&["c"])).await.unwrap();
    let (uploads, id) = (Uploads::new(names.clone()), new_id());
    uploads.begin(&name("u"), id, Bytes::new()).await.unwrap();
    let found = uploads.find(&name("u"), id).await.unwrap().unwrap();
    for number in 1..4 {
        let part = part(&format!("p{number}"));
        uploads.put_part(&found, number, &part).await.unwrap();
    }
    uploads.put_part(&found, 2, &part("p9")).await.unwrap();
    let expected = "a0 a1 a2 a3 a4 b0 b1 b2 b3 b4 c p1 p2 p3 p9";
    let expected: BTreeSet<_> = expected.split(' ').map(String::from).collect();
    assert_eq!(named(names.references(2)).await, expected);
}

#[tokio::test]
async fn a_part_that_becomes_an_object_while_references_are_read_is_among_them() {
    // The number of references that are read before the upload is complete: none, the part, the other entry.
    for before in 0..3 {
        let (_, names) = names();
        let (uploads, id) = (Uploads::new(names.clone()), new_id());
        uploads.begin(&name("u"), id, Bytes::new()).await.unwrap();
        let found = uploads.find(&name("u"), id).await.unwrap().unwrap();
        uploads.put_part(&found, 1, &part("p")).await.unwrap();
        names.write(&name("a"), object(&["a"])).await.unwrap();
        let (mut references, mut all) = (pin!(names.references(1)), BTreeSet::new());
        for _ in 0..before {
            let reference = references.try_next().await.unwrap().unwrap();
            all.extend(reference.keys().iter().map(ToString::to_string));
        }
        let (version, record) = (object(&["p"]), Bytes::new());
        let completed = uploads.complete(&found, &version, vec![(1, 1)], &record);
        completed.await.unwrap();
        uploads.forget_parts(id, std::iter::once(1)).await.unwrap();
        all.extend(named(references).await);
        assert!(all.contains("p"), "after {before} references");
    }
}

#[tokio::test]
async fn an_entry_that_cannot_be_read_is_an_error() {
    let (engine, names) = names();
    let strange = Change::put("d/bucket/strange".into(), "\u{9}".into());
    engine.commit(Transaction::from(strange)).await.unwrap();
    let references: Result<Vec<_>, _> = names.references(10).try_collect().await;
    assert!(matches!(references, Err(EngineError::Refused(_))));
}

#[tokio::test]
async fn an_empty_page_before_the_end_is_an_error() {
    let (engine, names) = names();
    names.write(&name("a"), object(&["a"])).await.unwrap();
    engine.give_pages_of(0);
    let references: Result<Vec<_>, _> = names.references(10).try_collect().await;
    assert!(
        matches!(references, Err(EngineError::Unavailable(_))),
        "{references:?}"
    );
}

#[tokio::test]
async fn a_registry_remembers_when_it_was_new() {
    let (engine, names) = names();
    let began = names.began(new_id()).await.unwrap();
    let other = Names::new(engine as Arc<dyn Engine>, NODE + 1, FENCE);
    assert_eq!(other.began(new_id()).await.unwrap(), began);
}
