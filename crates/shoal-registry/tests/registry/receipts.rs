//! Receipts: when they are stored and removed, and how a lost registry is recovered from them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use shoal_registry::engine::checked::Checked;
use shoal_registry::engine::{Change, Engine, EngineError, Transaction};
use shoal_registry::entry::{Kind, Owner};
use shoal_registry::names::{BegunChange, ChangeError, ChangedObject, End, Names, Restored};
use shoal_registry::receipts::{REPLACED_MAX, ReceiptError, ReceiptId, ReceiptStore};
use shoal_registry::session::{new_id, new_id_after};
use shoal_registry::{Content, DirtyVersion, Name};
use ulid::Ulid;

use crate::support::{self, FENCE, Fault, Memory};

const NODE: u64 = 7;

/// The receipts of a test.
#[derive(Debug, Default)]
struct Stored(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    receipts: BTreeMap<ReceiptId, (Name, DirtyVersion)>,
    /// The receipts of each request to remove some.
    removals: Vec<Vec<Ulid>>,
    is_away: bool,
    refuses_writes: bool,
}

impl Stored {
    fn ids(&self) -> Vec<Ulid> {
        self.0.lock().receipts.keys().map(|receipt| receipt.id).collect()
    }

    fn check(&self) -> Result<(), ReceiptError> {
        let is_away = self.0.lock().is_away;
        if is_away {
            Err(ReceiptError("the store is away".into()))
        } else {
            Ok(())
        }
    }
}

#[async_trait]
impl ReceiptStore for Stored {
    fn are_written(&self) -> bool {
        true
    }

    async fn write(&self, name: &Name, version: &DirtyVersion) -> Result<(), ReceiptError> {
        self.check()?;
        if self.0.lock().refuses_writes {
            return Err(ReceiptError("the store is full".into()));
        }
        let stored = (name.clone(), version.clone());
        self.0.lock().receipts.insert(version.receipt(), stored);
        Ok(())
    }

    async fn exist(&self) -> Result<bool, ReceiptError> {
        self.check()?;
        Ok(!self.0.lock().receipts.is_empty())
    }

    async fn remove(&self, receipts: &[ReceiptId]) -> Result<(), ReceiptError> {
        self.check()?;
        let mut state = self.0.lock();
        state
            .removals
            .push(receipts.iter().map(|receipt| receipt.id).collect());
        state.receipts.retain(|receipt, _| !receipts.contains(receipt));
        Ok(())
    }
}

struct Bed {
    engine: Arc<Memory>,
    stored: Arc<Stored>,
    names: Names,
}

fn bed() -> Bed {
    let (engine, stored) = (Arc::new(Memory::default()), Arc::new(Stored::default()));
    let names = Names::new(Arc::clone(&engine) as Arc<dyn Engine>, NODE, FENCE);
    Bed {
        engine,
        names: names.with_receipts(Arc::clone(&stored) as Arc<dyn ReceiptStore>),
        stored,
    }
}

fn name() -> Name {
    Name::new("bucket", b"key")
}

impl Bed {
    async fn write(&self) -> DirtyVersion {
        let version = support::version(NODE, "bytes");
        self.names.write(&name(), version.clone()).await.unwrap();
        version
    }

    async fn begin(&self, of: &DirtyVersion) -> BegunChange {
        let owner = Owner {
            node: NODE,
            life: Ulid::from_parts(1, 1),
        };
        let (name, of) = (name(), ChangedObject::Exactly(Some(of.id)));
        let begun = self.names.begin(&name, Kind::Flush, of, owner, new_id(), None);
        begun.await.unwrap()
    }

    /// Removes all keys.
    async fn lose_registry(&self) {
        let all = self.engine.keys("").into_iter();
        let loss = Transaction {
            conditions: Vec::new(),
            changes: all.map(|key| Change::delete(key.into())).collect(),
        };
        self.engine.commit(loss).await.unwrap();
    }

    async fn current(&self) -> Option<Ulid> {
        self.names.find(&name()).await.unwrap().entry.current_id()
    }
}

#[tokio::test]
async fn a_version_is_committed_after_its_receipt_is_stored() {
    let bed = bed();
    let release = bed.engine.hold_request();
    let names = bed.names.clone();
    let version = support::version(NODE, "bytes");
    let written = tokio::spawn({
        let version = version.clone();
        async move { names.write(&name(), version).await }
    });
    while bed.stored.ids().is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(bed.engine.keys("d/").is_empty(), "it is not committed yet");
    drop(release);
    written.await.unwrap().unwrap();
    assert_eq!(
        (bed.current().await, bed.stored.ids()),
        (Some(version.id), vec![version.id])
    );

    bed.stored.0.lock().refuses_writes = true;
    let refused = bed.names.write(&name(), support::version(NODE, "more")).await;
    assert!(matches!(refused, Err(ChangeError::Receipt(_))), "{refused:?}");
    assert_eq!(
        (bed.current().await, bed.stored.ids()),
        (Some(version.id), vec![version.id])
    );
}

#[tokio::test]
async fn the_receipt_of_a_write_goes_if_it_did_not_happen_and_stays_if_it_may_have() {
    let bed = bed();
    let write = |bed: &Bed| {
        let names = bed.names.clone();
        async move { names.write(&name(), support::version(NODE, "bytes")).await }
    };
    bed.engine.fail(&[Fault::Unreached]);
    assert!(matches!(write(&bed).await, Err(ChangeError::Engine(_))));
    assert!(bed.stored.ids().is_empty());
    bed.engine.fail(&[Fault::RequestLost, Fault::Unreached]);
    assert_eq!(write(&bed).await, Err(ChangeError::OutcomeUnknown));
    assert_eq!(bed.stored.ids().len(), 1);
}

#[tokio::test]
async fn a_write_whose_receipt_may_remain_has_an_unknown_outcome() {
    let bed = bed();
    let release = bed.engine.hold_request();
    bed.engine.fail(&[Fault::Unreached]);
    let names = bed.names.clone();
    let written = tokio::spawn(async move { names.write(&name(), support::version(NODE, "bytes")).await });
    while bed.stored.ids().is_empty() {
        tokio::task::yield_now().await;
    }
    bed.stored.0.lock().is_away = true;
    drop(release);
    assert_eq!(written.await.unwrap(), Err(ChangeError::OutcomeUnknown));
    assert_eq!(bed.stored.ids().len(), 1);
    // It is not known either if the store has stored the next one.
    let refused = bed.names.write(&name(), support::version(NODE, "bytes")).await;
    assert_eq!(refused, Err(ChangeError::OutcomeUnknown));
    assert!(bed.current().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn no_commit_is_sent_once_its_receipt_may_be_swept() {
    let bed = bed();
    bed.write().await;
    let release = bed.engine.hold_request();
    bed.engine.fail(&[Fault::Conflict]);
    let names = bed.names.clone();
    let written = tokio::spawn(async move { names.write(&name(), support::version(NODE, "bytes")).await });
    while bed.stored.ids().len() < 2 {
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(FENCE).await;
    drop(release);
    let refused = written.await.unwrap();
    assert!(matches!(refused, Err(ChangeError::Receipt(_))), "{refused:?}");
    assert_eq!(bed.stored.ids().len(), 1);
}

#[tokio::test]
async fn the_ids_of_an_entry_ascend() {
    let bed = bed();
    let first = bed.write().await;
    let older = DirtyVersion {
        id: Ulid::from_parts(first.id.timestamp_ms() - 1, 0),
        ..support::version(NODE, "older")
    };
    let refused = bed.names.write(&name(), older.clone()).await;
    assert_eq!(refused, Err(ChangeError::Outdated(first.id)));
    assert_eq!(
        (bed.current().await, bed.stored.ids()),
        (Some(first.id), vec![first.id])
    );
    let newer = DirtyVersion {
        id: new_id_after(first.id),
        ..older
    };
    bed.names.write(&name(), newer.clone()).await.unwrap();
    assert_eq!(bed.stored.ids(), [first.id, newer.id]);
}

#[tokio::test]
async fn a_flush_removes_receipts_of_replaced_versions_first_and_then_its_own_before_it_ends() {
    let bed = bed();
    let (first, second) = (bed.write().await, bed.write().await);
    let change = bed.begin(&second).await;
    let third = bed.write().await;
    bed.stored.0.lock().is_away = true;
    let ended = bed.names.end(&change, End::Done, || true).await;
    assert!(matches!(ended, Err(ChangeError::Receipt(_))), "{ended:?}");
    assert_eq!(bed.engine.keys("b/").len(), 1, "the change is still in flight");
    bed.stored.0.lock().is_away = false;
    bed.names.end(&change, End::Done, || true).await.unwrap();
    assert_eq!(bed.stored.0.lock().removals, [[first.id], [second.id]]);
    assert_eq!(
        (bed.current().await, bed.stored.ids()),
        (Some(third.id), vec![third.id])
    );

    let change = bed.begin(&third).await;
    bed.names.end(&change, End::Refused, || true).await.unwrap();
    assert_eq!(bed.stored.ids(), [third.id], "the lake does not have it");
    let change = bed.begin(&third).await;
    bed.names.end(&change, End::Done, || true).await.unwrap();
    assert!(bed.current().await.is_none() && bed.stored.ids().is_empty());
}

#[tokio::test]
async fn a_name_that_is_written_again_and_again_has_few_receipts() {
    let bed = bed();
    let mut last = bed.write().await;
    for _ in 0..5 * REPLACED_MAX {
        last = bed.write().await;
        assert!(
            bed.stored.ids().len() <= REPLACED_MAX + 2,
            "{}",
            bed.stored.ids().len()
        );
        assert_eq!(bed.stored.ids().last(), Some(&last.id));
    }
    let change = bed.begin(&last).await;
    bed.names.end(&change, End::Done, || true).await.unwrap();
    assert!(bed.stored.ids().is_empty());
}

/// Recovers a registry from receipts in this order.
async fn restored(receipts: &[(Name, DirtyVersion)]) -> (Arc<Memory>, Names) {
    let engine = Arc::new(Memory::default());
    let names = Names::new(Arc::clone(&engine) as Arc<dyn Engine>, 0, FENCE);
    for (name, version) in receipts {
        names.restore(name, version).await.unwrap();
    }
    (engine, names)
}

#[tokio::test]
async fn receipts_in_any_order_make_the_same_registry() {
    let bed = bed();
    let other = Name::new("bucket", b"other");
    for name in [name(), other.clone()] {
        bed.names
            .write(&name, support::version(NODE, "old"))
            .await
            .unwrap();
        let tiny = DirtyVersion {
            node: NODE + 1,
            ..support::inline(NODE, "tiny")
        };
        bed.names.write(&name, tiny).await.unwrap();
    }
    bed.names.write(&other, support::tombstone(NODE)).await.unwrap();
    let mut receipts: Vec<_> = bed.stored.0.lock().receipts.values().cloned().collect();
    for _ in 0..receipts.len() {
        receipts.rotate_left(1);
        let (engine, names) = restored(&receipts).await;
        let found = names.find(&name()).await.unwrap().entry.current.unwrap();
        assert_eq!(found.content, Some(Content("tiny".into())));
        assert!(
            names
                .find(&other)
                .await
                .unwrap()
                .entry
                .current
                .unwrap()
                .is_tombstone
        );
        // The lists of the nodes that have accepted the versions, which are members.
        let counts = ["q/", "x/", "m/", "c/", "b/"].map(|prefix| engine.keys(prefix).len());
        assert_eq!(counts, [1, 1, 2, 1, 0]);
        let unchanged = engine.keys("");
        for (name, version) in &receipts {
            assert_eq!(names.restore(name, version).await, Ok(Restored::Known));
        }
        assert_eq!(engine.keys(""), unchanged);
    }
}

#[tokio::test]
async fn a_flush_after_a_restoration_removes_the_receipts_of_all_versions() {
    let bed = bed();
    let (_, last) = (bed.write().await, bed.write().await);
    let receipts: Vec<_> = bed.stored.0.lock().receipts.values().cloned().collect();
    let (_, names) = restored(&receipts).await;
    let again = Bed {
        names: names.with_receipts(Arc::clone(&bed.stored) as Arc<dyn ReceiptStore>),
        ..bed
    };
    let change = again.begin(&last).await;
    again.names.end(&change, End::Done, || true).await.unwrap();
    assert!(again.stored.ids().is_empty());
}

fn checked(engine: &Arc<Memory>, stored: &Arc<Stored>) -> (Arc<Checked>, Names) {
    let (engine, receipts) = (Arc::clone(engine), Arc::clone(stored));
    let checked = Arc::new(Checked::new(engine, receipts, "shoal tier recover t".into()));
    let names = Names::new(Arc::clone(&checked) as Arc<dyn Engine>, NODE, FENCE);
    (checked, names)
}

#[tokio::test]
async fn a_new_registry_beside_receipts_is_not_used_before_it_is_recovered() {
    let bed = bed();
    let (checked, names) = checked(&bed.engine, &bed.stored);
    names.find(&name()).await.unwrap();
    assert_eq!(bed.engine.keys("r"), ["r"], "without receipts it begins");
    bed.write().await;

    let session = checked.open_session(Duration::from_secs(10)).await.unwrap();
    bed.lose_registry().await;
    bed.engine.close_session(session).await.unwrap();
    assert_eq!(
        checked.renew_session(session).await,
        Err(EngineError::SessionEnded)
    );
    let refused = names.find(&name()).await;
    let Err(EngineError::Refused(why)) = refused else {
        panic!("{refused:?}")
    };
    assert!(why.contains("run `shoal tier recover t`"), "{why}");
    let refused = names.write(&name(), support::version(NODE, "bytes")).await;
    assert!(
        matches!(refused, Err(ChangeError::Engine(EngineError::Refused(_)))),
        "{refused:?}"
    );
    assert!(checked.open_session(Duration::from_secs(10)).await.is_err());

    let itself = Names::new(Arc::clone(&bed.engine) as Arc<dyn Engine>, NODE, FENCE);
    itself.began(new_id()).await.unwrap();
    names.find(&name()).await.unwrap();
}

#[tokio::test]
async fn each_request_finds_out_that_another_registry_answers() {
    for reads in [true, false] {
        let bed = bed();
        let (_, names) = checked(&bed.engine, &bed.stored);
        names.find(&name()).await.unwrap();
        bed.write().await;
        bed.lose_registry().await;
        let refused = if reads {
            names.find(&name()).await.map(drop).map_err(ChangeError::from)
        } else {
            names.write(&name(), support::version(NODE, "bytes")).await
        };
        assert!(
            matches!(refused, Err(ChangeError::Engine(EngineError::Refused(_)))),
            "{refused:?}"
        );
        assert!(bed.engine.keys("").is_empty(), "nothing is written to it");
    }
}

#[tokio::test]
async fn a_store_that_is_away_leaves_a_new_registry_unused() {
    let bed = bed();
    let (_, names) = checked(&bed.engine, &bed.stored);
    bed.stored.0.lock().is_away = true;
    assert!(matches!(
        names.find(&name()).await,
        Err(EngineError::Unavailable(_))
    ));
    bed.stored.0.lock().is_away = false;
    names.find(&name()).await.unwrap();
}
