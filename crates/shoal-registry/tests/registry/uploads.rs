//! Multipart uploads over one registry, with answers that get lost.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use shoal_registry::engine::Engine;
use shoal_registry::names::{ChangeError, Names};
use shoal_registry::session::new_id;
use shoal_registry::uploads::{FoundUpload, UploadError, UploadPart, UploadState, Uploads};
use shoal_registry::{DirtyVersion, Name, NodeList, Trash, UploadKey};
use ulid::Ulid;

use crate::support::{self, FENCE, Fault, Memory};

const NODE: u64 = 7;

struct Bed {
    engine: Arc<Memory>,
    names: Names,
    uploads: Uploads,
    name: Name,
    id: Ulid,
}

/// An open upload.
async fn bed() -> Bed {
    let engine = Arc::new(Memory::default());
    let names = Names::new(Arc::clone(&engine) as Arc<dyn Engine>, NODE, FENCE);
    let bed = Bed {
        uploads: Uploads::new(names.clone()),
        names,
        engine,
        name: Name::new("bucket", b"folder/key"),
        id: new_id(),
    };
    bed.uploads
        .begin(&bed.name, bed.id, "upload".into())
        .await
        .unwrap();
    bed
}

fn part(data: &str) -> UploadPart {
    UploadPart {
        data: data.into(),
        record: data.to_owned().into(),
    }
}

fn key_of(name: &Name, id: Ulid) -> UploadKey {
    let name = name.clone();
    UploadKey { name, id }
}

fn object(record: &str) -> DirtyVersion {
    support::version(NODE, record)
}

impl Bed {
    async fn found(&self) -> FoundUpload {
        self.uploads.find(&self.name, self.id).await.unwrap().unwrap()
    }

    async fn put(&self, number: u16, data: &str) -> Result<(), UploadError> {
        let (found, part) = (self.found().await, part(data));
        self.uploads.put_part(&found, number, &part).await
    }

    async fn complete(&self, object: &DirtyVersion, record: &str) -> Result<Bytes, UploadError> {
        let found = self.found().await;
        self.complete_found(&found, object, record).await
    }

    async fn complete_found(
        &self,
        found: &FoundUpload,
        object: &DirtyVersion,
        record: &str,
    ) -> Result<Bytes, UploadError> {
        let (record, kept) = (record.to_owned().into(), vec![(1, 2)]);
        self.uploads.complete(found, object, kept, &record).await
    }

    async fn begin(&self, key: &str) -> (Name, Ulid) {
        let (name, id) = (Name::new("bucket", key.as_bytes()), new_id());
        self.uploads
            .begin(&name, id, key.to_owned().into())
            .await
            .unwrap();
        (name, id)
    }

    async fn complete_at_lake(&self, name: &Name, id: Ulid, record: &str) -> Ulid {
        let open = self.uploads.find(name, id).await.unwrap().unwrap();
        let (version, record) = (new_id(), record.to_owned().into());
        let told = self.uploads.completed_at_lake(&open, version, record);
        told.await.unwrap();
        version
    }

    async fn list(&self, prefix: &str) -> Vec<(UploadKey, Bytes)> {
        let listed = self.uploads.list("bucket", prefix.as_bytes());
        listed.try_collect().await.unwrap()
    }

    async fn trash(&self) -> Vec<Trash> {
        let trash = self.names.trash(NODE, None, 10).await.unwrap();
        trash.into_iter().map(|(_, item)| item).collect()
    }
}

#[tokio::test]
async fn parts_stand_in_the_order_of_their_numbers_and_one_that_is_replaced_is_trash() {
    let bed = bed().await;
    for (number, data) in [(10, "ten"), (2, "two"), (1, "one"), (2, "two again")] {
        bed.put(number, data).await.unwrap();
    }
    for keys in [1, 2, 3] {
        bed.engine.give_pages_of(keys);
        let parts: Vec<_> = bed.uploads.parts(bed.id).try_collect().await.unwrap();
        let expected = [(1, part("one")), (2, part("two again")), (10, part("ten"))];
        assert_eq!(parts, expected, "{keys} a page");
    }
    assert_eq!(bed.trash().await, [Trash::Data(vec!["two".into()])]);
}

#[tokio::test]
async fn a_completion_makes_the_object_once_and_every_later_one_tells_the_same() {
    let bed = bed().await;
    bed.names.write(&bed.name, object("older")).await.unwrap();
    bed.put(1, "one").await.unwrap();
    let open = bed.found().await;
    let first = object("one");
    assert_eq!(bed.complete(&first, "first").await.unwrap(), "first");
    assert_eq!(bed.names.take_deaths().len(), 1, "the older object");

    let second = object("one");
    let again = bed.complete_found(&open, &second, "second").await;
    assert_eq!(again.unwrap(), "first");
    let found = bed.names.find(&bed.name).await.unwrap();
    assert_eq!(found.entry.current, Some(first));
    let trash = bed.trash().await;
    let parts = Trash::Parts {
        upload: bed.id,
        kept: vec![(1, 2)],
    };
    assert_eq!(trash.len(), 2);
    assert!(trash.contains(&parts) && trash.contains(&Trash::Data(vec!["older".into()])));
}

#[tokio::test]
async fn a_part_that_comes_after_the_end_is_refused() {
    let bed = bed().await;
    let open = bed.found().await;
    bed.complete(&object("one"), "done").await.unwrap();
    let late = bed.uploads.put_part(&open, 3, &part("late")).await;
    assert_eq!(late, Err(UploadError::Ended));
    assert!(bed.engine.keys("p/").is_empty());
}

#[tokio::test]
async fn an_aborted_upload_is_gone_and_its_parts_are_trash() {
    let bed = bed().await;
    bed.put(1, "one").await.unwrap();
    let open = bed.found().await;
    bed.uploads.abort(&open).await.unwrap();
    assert!(bed.uploads.find(&bed.name, bed.id).await.unwrap().is_none());
    assert_eq!(bed.uploads.abort(&open).await, Err(UploadError::Ended));
    let completed = bed.complete_found(&open, &object("one"), "").await;
    assert_eq!(completed, Err(UploadError::Ended));
    let parts = Trash::Parts {
        upload: bed.id,
        kept: Vec::new(),
    };
    assert_eq!(bed.trash().await, [parts]);
    assert_eq!(bed.names.find(&bed.name).await.unwrap().entry.current, None);
}

#[tokio::test]
async fn a_lost_answer_makes_no_second_part_and_no_second_object() {
    for faults in [vec![Fault::AnswerLost], vec![Fault::RequestLost]] {
        let bed = bed().await;
        bed.engine.fail(&faults);
        bed.put(1, "one").await.unwrap();
        assert!(bed.trash().await.is_empty(), "{faults:?}");
        bed.engine.fail(&faults);
        let object = object("one");
        assert_eq!(bed.complete(&object, "done").await.unwrap(), "done");
        let found = bed.names.find(&bed.name).await.unwrap();
        assert_eq!(found.entry.current, Some(object), "{faults:?}");
        assert_eq!(bed.engine.keys("q/").len(), 1);
    }
}

#[tokio::test]
async fn a_part_that_was_replaced_before_its_answer_was_lost_stays_replaced() {
    let bed = bed().await;
    bed.engine.fail(&[Fault::AnswerLost]);
    let answer = bed.engine.hold_answer();
    let second = async {
        bed.put(1, "second").await.unwrap();
        answer.send(()).unwrap();
    };
    let (first, ()) = tokio::join!(bed.put(1, "first"), second);
    assert_eq!(first, Err(ChangeError::OutcomeUnknown.into()));
    let parts: Vec<_> = bed.uploads.parts(bed.id).try_collect().await.unwrap();
    assert_eq!(parts, [(1, part("second"))]);
    assert_eq!(bed.trash().await, [Trash::Data(vec!["first".into()])]);
}

#[tokio::test]
async fn a_part_of_a_completed_upload_whose_answer_was_lost_may_be_in_the_object() {
    let bed = bed().await;
    bed.engine.fail(&[Fault::AnswerLost]);
    let answer = bed.engine.hold_answer();
    let completion = async {
        let found = bed.found().await;
        let parts = vec![(1, 1)];
        let made = bed
            .uploads
            .complete(&found, &object("first"), parts, &"done".into())
            .await;
        made.unwrap();
        answer.send(()).unwrap();
    };
    let (put, ()) = tokio::join!(bed.put(1, "first"), completion);
    assert_eq!(put, Err(ChangeError::OutcomeUnknown.into()));
}

#[tokio::test]
async fn no_object_is_made_of_a_part_that_was_replaced_since_the_upload_was_found() {
    let bed = bed().await;
    bed.put(1, "first").await.unwrap();
    let (found, put_found) = (bed.found().await, bed.found().await);
    bed.put(2, "new").await.unwrap();
    assert_eq!(
        bed.found().await.state,
        found.state,
        "a new part changes no other"
    );
    bed.uploads
        .put_part(&put_found, 1, &part("second"))
        .await
        .unwrap();
    let made = bed
        .uploads
        .complete(&found, &object("first"), vec![(1, 1)], &"done".into())
        .await;
    assert_eq!(made, Err(UploadError::Changed));
    // A part that was on its way at the same time still comes.
    bed.uploads.put_part(&found, 3, &part("third")).await.unwrap();
    let found = bed.found().await;
    let made = bed
        .uploads
        .complete(&found, &object("second"), vec![(1, 1)], &"done".into())
        .await;
    assert_eq!(made, Ok("done".into()));
}

#[tokio::test]
async fn an_error_after_a_lost_answer_does_not_say_that_nothing_happened() {
    let bed = bed().await;
    let faults = [Fault::RequestLost, Fault::Unreached];
    let unknown = UploadError::from(ChangeError::OutcomeUnknown);
    bed.engine.fail(&faults);
    assert_eq!(bed.put(1, "one").await, Err(unknown.clone()));
    bed.engine.fail(&faults);
    assert_eq!(bed.complete(&object("one"), "done").await, Err(unknown));
    bed.engine.fail(&faults[1..]);
    let unreached = bed.put(1, "one").await.unwrap_err();
    assert!(matches!(unreached, UploadError::Change(ChangeError::Engine(_))));
}

#[tokio::test]
async fn an_upload_that_the_lake_completed_tells_so_and_leaves_no_object_here() {
    let bed = bed().await;
    bed.put(1, "one").await.unwrap();
    let version = bed.complete_at_lake(&bed.name, bed.id, "at the lake").await;
    let found = bed.found().await;
    let record = "at the lake".into();
    assert_eq!(found.state, UploadState::Complete { version, record });
    assert_eq!(bed.names.find(&bed.name).await.unwrap().entry.current, None);
}

#[tokio::test]
async fn open_uploads_are_listed_by_key_and_age() {
    let bed = bed().await;
    let (other, later) = bed.begin("folder/a").await;
    let (ended, id) = bed.begin("folder/z").await;
    bed.complete_at_lake(&ended, id, "").await;
    let listed = bed.list("folder/").await;
    let both = [
        (key_of(&other, later), "folder/a".into()),
        (key_of(&bed.name, bed.id), "upload".into()),
    ];
    assert_eq!(listed, both);
    assert_eq!(bed.list("").await, both);
    assert!(bed.list("else").await.is_empty());
    assert_eq!(bed.names.count(NodeList::Uploads, NODE).await.unwrap(), 3);
}

#[tokio::test]
async fn uploads_that_have_ended_do_not_hide_those_that_follow() {
    let bed = bed().await;
    for key in ["a", "b", "c"] {
        let (name, id) = bed.begin(key).await;
        bed.complete_at_lake(&name, id, "").await;
    }
    let open = (key_of(&bed.name, bed.id), "upload".into());
    for keys in 1..5 {
        bed.engine.give_pages_of(keys);
        assert_eq!(bed.list("").await, std::slice::from_ref(&open), "{keys} a page");
    }
}
