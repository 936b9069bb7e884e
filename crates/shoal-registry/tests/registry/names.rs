//! The changes of names, with answers that get lost at any of them.

use std::sync::Arc;
use std::time::Duration;

use shoal_registry::engine::{Change, Engine, EngineError, Range};
use shoal_registry::entry::{Kind, Owner};
use shoal_registry::names::{
    BeginError, BegunChange, ChangeError, ChangedObject, End, Ended, Found, Listed, Names,
};
use shoal_registry::session::{Session, new_id};
use shoal_registry::{DirtyVersion, Lifetime, MapName, Name, NodeList, Trash};
use ulid::Ulid;

use crate::support::{self, FENCE, Fault, Memory};

const NODE: u64 = 7;
const OTHER: u64 = 8;

struct Bed {
    engine: Arc<Memory>,
    names: Names,
    name: Name,
}

fn bed() -> Bed {
    let engine = Arc::new(Memory::default());
    Bed {
        names: Names::new(Arc::clone(&engine) as Arc<dyn Engine>, NODE, FENCE),
        engine,
        name: Name::new("bucket", b"folder/key"),
    }
}

fn owner(node: u64) -> Owner {
    Owner {
        node,
        life: Ulid::from_parts(1, node.into()),
    }
}

fn version(record: &str) -> DirtyVersion {
    support::version(NODE, record)
}

fn range(prefix: &'static str, after: &'static str) -> Range {
    Range {
        prefix: prefix.into(),
        after: after.into(),
        limit: 10,
    }
}

impl Bed {
    async fn current(&self) -> Option<DirtyVersion> {
        self.names.find(&self.name).await.unwrap().entry.current
    }

    async fn write(&self, record: &str) -> DirtyVersion {
        let version = version(record);
        self.names.write(&self.name, version.clone()).await.unwrap();
        version
    }

    /// Begins a change of a dirty object for a node.
    async fn begin(&self, node: u64, kind: Kind, of: &DirtyVersion) -> Result<BegunChange, BeginError> {
        let of = ChangedObject::Exactly(Some(of.id));
        let names = &self.names;
        names
            .begin(&self.name, kind, of, owner(node), new_id(), None)
            .await
    }

    /// Begins a change of a name without a dirty object.
    async fn begin_on_nothing(&self, kind: Kind) -> BegunChange {
        let nothing = ChangedObject::Exactly(None);
        let begun = self
            .names
            .begin(&self.name, kind, nothing, owner(NODE), new_id(), None);
        begun.await.unwrap()
    }

    async fn delete(&self, of: &DirtyVersion) {
        let begun = self.begin(NODE, Kind::Delete, of).await.unwrap();
        self.names.end(&begun, End::Done, || true).await.unwrap();
    }

    async fn empty_entry(&self) -> Listed {
        let page = self.names.listed(NodeList::Empty, NODE, None, 10).await;
        page.unwrap().names.remove(0)
    }

    async fn listed(&self, list: NodeList) -> Vec<Ulid> {
        let page = self.names.listed(list, NODE, None, 10).await.unwrap();
        page.names.into_iter().map(|listed| listed.id).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn two_nodes_of_one_id_have_no_session_at_the_same_time() {
    let bed = bed();
    let (one, other) = (session(&bed, NODE), session(&bed, NODE));
    one.keep().await.unwrap();
    assert!(matches!(other.keep().await, Err(EngineError::Refused(_))));
    assert!(other.owner().is_none());
    let first = one.owner().unwrap();
    bed.engine.expire(NODE);
    one.keep().await.unwrap();
    assert_ne!(
        one.owner(),
        Some(first),
        "its own earlier life does not keep it out"
    );
    one.close().await.unwrap();
    other.keep().await.unwrap();
    assert!(other.owner().is_some());
}

#[tokio::test]
async fn a_write_is_found_listed_and_due_and_the_one_before_it_is_trash() {
    let bed = bed();
    let first = bed.write("first").await;
    assert_eq!(bed.listed(NodeList::Dirty).await, [first.id]);
    let second = bed.write("second").await;
    assert_eq!(bed.current().await, Some(second.clone()));
    assert_eq!(bed.listed(NodeList::Dirty).await, [second.id]);
    let (id, discarded) = bed.names.trash(NODE, None, 10).await.unwrap().remove(0);
    assert_eq!(discarded, Trash::Data(first.data));
    bed.names.unlist(NodeList::Trash, NODE, &[id]).await.unwrap();
    assert!(bed.names.trash(NODE, None, 10).await.unwrap().is_empty());
    let page = bed.names.list("bucket", range("folder/", "")).await.unwrap();
    assert_eq!(page.objects, [(bed.name.clone(), second)]);
    let behind = bed.names.list("bucket", range("", "folder/key")).await.unwrap();
    assert!(behind.objects.is_empty() && behind.next.is_none());
}

#[tokio::test]
async fn a_flushed_object_leaves_an_empty_entry_that_is_removed_later() {
    let bed = bed();
    let version = bed.write("bytes").await;
    let begun = bed.begin(NODE, Kind::Flush, &version).await.unwrap();
    assert_eq!(bed.listed(NodeList::Busy).await, [begun.busy.token]);
    assert_eq!(bed.names.end(&begun, End::Done, || true).await, Ok(Ended::Ended));
    assert_eq!(bed.current().await, None);
    assert!(bed.listed(NodeList::Busy).await.is_empty() && bed.listed(NodeList::Dirty).await.is_empty());
    assert_eq!(bed.engine.keys("d/").len(), 1);

    let found = bed.names.find(&bed.name).await.unwrap();
    assert!(bed.names.is_as_found(&bed.name, &found).await.unwrap());
    let empty = bed.empty_entry().await;
    assert_eq!(empty.name, bed.name);
    bed.names.remove_empty(&empty, NODE).await.unwrap();
    assert!(!bed.names.is_as_found(&bed.name, &found).await.unwrap());
    assert!(bed.engine.keys("d/").is_empty() && bed.engine.keys("e/").is_empty());
}

#[tokio::test]
async fn a_change_that_was_refused_leaves_nothing_where_nothing_was() {
    let bed = bed();
    for kind in [Kind::Delete, Kind::Write] {
        let begun = bed.begin_on_nothing(kind).await;
        assert_eq!(
            bed.names.end(&begun, End::Refused, || true).await,
            Ok(Ended::Ended)
        );
        assert_eq!(bed.engine.keys(""), [""; 0], "{kind:?}");
        // The answer to the end is lost.
        let begun = bed.begin_on_nothing(kind).await;
        bed.engine.fail(&[Fault::AnswerLost]);
        assert_eq!(
            bed.names.end(&begun, End::Refused, || true).await,
            Ok(Ended::Ended)
        );
        assert_eq!(bed.engine.keys(""), [""; 0], "{kind:?}");
    }
}

#[tokio::test]
async fn a_change_leaves_an_entry_if_it_may_have_happened_or_something_else_did() {
    let bed = bed();
    let left = || (bed.engine.keys("d/").len(), bed.engine.keys("e/").len());
    let begun = bed.begin_on_nothing(Kind::Write).await;
    bed.names.end(&begun, End::GivenUp, || true).await.unwrap();
    assert_eq!(left(), (1, 1), "it may have been carried out");
    // There is an entry already.
    let begun = bed.begin_on_nothing(Kind::Write).await;
    bed.names.end(&begun, End::Refused, || true).await.unwrap();
    assert_eq!(left(), (1, 2));

    let bed = self::bed();
    bed.engine.fail(&[Fault::AnswerLost]);
    let begun = bed.begin_on_nothing(Kind::Write).await;
    bed.names.end(&begun, End::Refused, || true).await.unwrap();
    assert_eq!(bed.engine.keys("d/").len(), 1, "it may begin once more");

    let bed = self::bed();
    let begun = bed.begin_on_nothing(Kind::Delete).await;
    let version = bed.write("bytes").await;
    bed.names.end(&begun, End::Refused, || true).await.unwrap();
    assert_eq!(bed.current().await, Some(version));
}

#[tokio::test]
async fn an_empty_entry_that_was_written_again_is_not_removed() {
    let bed = bed();
    let first = bed.write("first").await;
    bed.delete(&first).await;
    let empty = bed.empty_entry().await;
    let second = bed.write("second").await;
    bed.names.remove_empty(&empty, NODE).await.unwrap();
    assert_eq!(bed.current().await, Some(second.clone()));
    assert!(bed.listed(NodeList::Empty).await.is_empty());

    // The fence of the second time is not over when that of the first time is.
    bed.delete(&second).await;
    bed.names.remove_empty(&empty, NODE).await.unwrap();
    assert_eq!(bed.engine.keys("d/").len(), 1);
}

#[tokio::test]
async fn a_change_of_an_entry_that_is_as_it_was_seen_needs_no_look() {
    let bed = bed();
    let found = [bed.names.find(&bed.name).await.unwrap(), {
        bed.write("first").await;
        bed.names.find(&bed.name).await.unwrap()
    }];
    let begin = async |found: &Found| {
        let (of, found) = (ChangedObject::Current, Some(found.clone()));
        let begun = bed
            .names
            .begin(&bed.name, Kind::Delete, of, owner(NODE), new_id(), found);
        begun.await.unwrap()
    };
    let looks = bed.engine.gets();
    let begun = begin(&found[1]).await;
    assert_eq!(bed.names.end(&begun, End::Done, || true).await, Ok(Ended::Ended));
    assert_eq!(bed.engine.gets(), looks);
    assert_eq!(bed.current().await, None);
    // The entry has changed since both looks.
    let second = bed.write("second").await;
    for found in &found {
        let begun = begin(found).await;
        assert_eq!(begun.busy.of, Some(second.id));
        bed.names.end(&begun, End::GivenUp, || true).await.unwrap();
    }
    let begun = begin(&bed.names.find(&bed.name).await.unwrap()).await;
    let third = bed.write("third").await;
    assert_eq!(bed.names.end(&begun, End::Done, || true).await, Ok(Ended::Ended));
    assert_eq!(bed.current().await, Some(third));
}

#[tokio::test]
async fn one_change_of_a_name_is_on_its_way_at_a_time_and_a_newer_object_stays() {
    let bed = bed();
    let first = bed.write("first").await;
    let begun = bed.begin(NODE, Kind::Flush, &first).await.unwrap();
    let other = bed.begin(OTHER, Kind::Delete, &first).await;
    assert_eq!(other.unwrap_err(), BeginError::Busy(begun.busy));
    let second = bed.write("second").await;
    assert_eq!(bed.names.end(&begun, End::Done, || true).await, Ok(Ended::Ended));
    assert_eq!(bed.current().await, Some(second));
    let stale = bed.begin(NODE, Kind::Flush, &first).await;
    assert_eq!(stale.unwrap_err(), BeginError::Changed);
}

#[tokio::test]
async fn a_change_that_another_node_gave_up_leaves_the_object_dirty() {
    let bed = bed();
    let version = bed.write("bytes").await;
    let begun = bed.begin(NODE, Kind::Flush, &version).await.unwrap();
    let adopter = Names::new(Arc::clone(&bed.engine) as Arc<dyn Engine>, OTHER, FENCE);
    assert_eq!(adopter.end(&begun, End::GivenUp, || true).await, Ok(Ended::Ended));
    assert_eq!(
        bed.names.end(&begun, End::Done, || false).await,
        Ok(Ended::TakenOver)
    );
    assert_eq!(bed.current().await, Some(version.clone()));

    // Nor does the entry tell once that node has flushed the object.
    let flush = bed.begin(OTHER, Kind::Flush, &version).await.unwrap();
    adopter.end(&flush, End::Done, || true).await.unwrap();
    assert_eq!(
        bed.names.end(&begun, End::Done, || false).await,
        Ok(Ended::TakenOver)
    );
}

#[tokio::test(start_paused = true)]
async fn an_absence_that_is_older_than_the_fence_proves_nothing() {
    let bed = bed();
    let found = bed.names.find(&bed.name).await.unwrap();
    assert!(bed.names.is_as_found(&bed.name, &found).await.unwrap());
    tokio::time::advance(FENCE).await;
    assert!(!bed.names.is_as_found(&bed.name, &found).await.unwrap());
}

#[tokio::test]
async fn a_lost_answer_changes_no_outcome() {
    for faults in [
        vec![Fault::AnswerLost],
        vec![Fault::RequestLost],
        vec![Fault::RequestLost, Fault::AnswerLost],
    ] {
        let bed = bed();
        let version = version("bytes");
        bed.engine.fail(&faults);
        assert_eq!(
            bed.names.write(&bed.name, version.clone()).await,
            Ok(()),
            "{faults:?}"
        );
        assert_eq!(bed.current().await, Some(version.clone()));
        bed.engine.fail(&faults);
        let begun = bed.begin(NODE, Kind::Flush, &version).await.unwrap();
        bed.engine.fail(&faults);
        assert_eq!(
            bed.names.end(&begun, End::Done, || true).await,
            Ok(Ended::Ended),
            "{faults:?}"
        );
        assert_eq!(bed.current().await, None);
    }
}

#[tokio::test]
async fn a_write_whose_outcome_cannot_be_told_is_not_tried_again() {
    let bed = bed();
    bed.write("older").await;
    // The first try, which hopes for no entry, is lost. Whether it happened before the older write cannot be
    // told from the older write's entry.
    bed.engine.fail(&[Fault::RequestLost]);
    let written = bed.names.write(&bed.name, version("newer")).await;
    assert_eq!(written, Err(ChangeError::OutcomeUnknown));
    assert_eq!(bed.current().await.unwrap().record, "older");
}

#[tokio::test]
async fn an_error_after_a_lost_answer_does_not_say_that_nothing_was_written() {
    let bed = bed();
    bed.engine.fail(&[Fault::RequestLost, Fault::Unreached]);
    let written = bed.names.write(&bed.name, version("bytes")).await;
    assert_eq!(written, Err(ChangeError::OutcomeUnknown));
    bed.engine.fail(&[Fault::Unreached]);
    let written = bed.names.write(&bed.name, version("bytes")).await;
    assert!(matches!(written, Err(ChangeError::Engine(_))));
}

#[tokio::test]
async fn a_write_that_meets_nothing_but_conflicts_ends() {
    let bed = bed();
    bed.engine.fail(&[Fault::Conflict; 1000]);
    let written = bed.names.write(&bed.name, version("bytes")).await;
    assert_eq!(written, Err(ChangeError::Contended));
}

#[tokio::test]
async fn a_conflict_after_a_lost_answer_may_be_with_the_same_write() {
    let bed = bed();
    bed.engine.fail(&[Fault::RequestLost, Fault::Conflict]);
    let written = bed.names.write(&bed.name, version("bytes")).await;
    assert_eq!(written, Err(ChangeError::OutcomeUnknown));
}

#[tokio::test]
async fn an_entry_of_another_format_is_refused() {
    let bed = bed();
    let change = Change::put("d/bucket/folder/key".into(), b"\x02later".as_slice().into());
    bed.engine.commit(change.into()).await.unwrap();
    let found = bed.names.find(&bed.name).await;
    assert!(matches!(found, Err(EngineError::Refused(_))));
}

fn session(bed: &Bed, node: u64) -> Session {
    let engine = Arc::clone(&bed.engine) as Arc<dyn Engine>;
    Session::new(engine, node, Duration::from_mins(1))
}

#[tokio::test]
async fn one_node_acts_for_a_dead_one_until_that_is_back_or_nothing_is_left() {
    let bed = bed();
    let [dead, adopter, third] = [NODE, OTHER, 9].map(|node| session(&bed, node));
    for session in [&dead, &adopter, &third] {
        session.keep().await.unwrap();
    }
    let first_life = dead.owner().unwrap();
    assert!(adopter.dead_nodes().await.unwrap().is_empty());
    assert!(!adopter.adopt(NODE).await.unwrap());

    bed.engine.expire(NODE);
    assert_eq!(adopter.dead_nodes().await.unwrap(), [NODE]);
    assert!(adopter.adopt(NODE).await.unwrap() && adopter.acts_for(NODE).await.unwrap());
    assert!(!third.adopt(NODE).await.unwrap() && !third.acts_for(NODE).await.unwrap());

    dead.keep().await.unwrap();
    assert!(!dead.is_of(first_life) && dead.owner().is_some());
    assert!(!adopter.acts_for(NODE).await.unwrap());
    adopter.step_down(NODE).await.unwrap();
    assert!(bed.engine.keys("a/").is_empty());

    dead.close().await.unwrap();
    assert!(dead.owner().is_none());
    assert!(third.adopt(NODE).await.unwrap());
    let membership = third.membership(NODE).await.unwrap();
    assert!(third.release(NODE, membership).await.unwrap());
    assert!(third.dead_nodes().await.unwrap().is_empty());
    assert_eq!(bed.engine.keys("m/").len(), 2);
}

#[tokio::test]
async fn a_dead_node_that_was_back_in_the_meantime_remains_a_member() {
    let bed = bed();
    let [dead, adopter] = [NODE, OTHER].map(|node| session(&bed, node));
    dead.keep().await.unwrap();
    adopter.keep().await.unwrap();
    bed.engine.expire(NODE);
    assert!(adopter.adopt(NODE).await.unwrap());
    let membership = adopter.membership(NODE).await.unwrap();
    dead.keep().await.unwrap();
    assert!(!adopter.release(NODE, membership.clone()).await.unwrap());
    bed.write("bytes").await;
    bed.engine.expire(NODE);
    assert!(!adopter.release(NODE, membership.clone()).await.unwrap());
    assert_eq!(adopter.dead_nodes().await.unwrap(), [NODE]);
    assert!(adopter.acts_for(NODE).await.unwrap());
}

#[tokio::test]
async fn a_node_ends_no_adoption_but_its_own() {
    let bed = bed();
    let [dead, former, adopter] = [NODE, OTHER, 9].map(|node| session(&bed, node));
    for session in [&dead, &former, &adopter] {
        session.keep().await.unwrap();
    }
    bed.engine.expire(NODE);
    assert!(former.adopt(NODE).await.unwrap());
    let membership = former.membership(NODE).await.unwrap();
    // It does not know yet that its session has ended.
    bed.engine.expire(OTHER);
    assert!(adopter.adopt(NODE).await.unwrap());
    former.step_down(NODE).await.unwrap();
    assert!(!former.release(NODE, membership).await.unwrap());
    assert!(adopter.acts_for(NODE).await.unwrap());
}

#[tokio::test]
async fn an_adoption_whose_answer_was_lost_is_known_at_the_next_try() {
    let bed = bed();
    let [dead, adopter] = [NODE, OTHER].map(|node| session(&bed, node));
    dead.keep().await.unwrap();
    adopter.keep().await.unwrap();
    bed.engine.expire(NODE);
    bed.engine.fail(&[Fault::AnswerLost]);
    adopter.adopt(NODE).await.unwrap_err();
    assert!(adopter.adopt(NODE).await.unwrap());
}

#[tokio::test]
async fn a_session_that_was_not_renewed_in_time_is_over_for_its_node() {
    let bed = bed();
    let engine = Arc::clone(&bed.engine) as Arc<dyn Engine>;
    let session = Session::new(engine, NODE, Duration::ZERO);
    session.keep().await.unwrap();
    assert_eq!(session.owner(), None);
}

#[tokio::test]
async fn every_dead_node_is_found_though_the_engine_gives_short_pages() {
    let bed = bed();
    for node in 1..=6 {
        session(&bed, node).keep().await.unwrap();
    }
    for dead in [2, 3, 6] {
        bed.engine.expire(dead);
    }
    bed.engine.give_pages_of(2);
    let looking = session(&bed, 1);
    assert_eq!(looking.dead_nodes().await.unwrap(), [2, 3, 6]);
}

#[tokio::test]
async fn an_object_that_is_overwritten_or_removed_dies_and_one_that_is_flushed_does_not() {
    let bed = bed();
    let deaths = || {
        let deaths = bed.names.take_deaths().into_iter();
        deaths
            .map(|death| (death.lifetime, death.age.as_secs()))
            .collect::<Vec<_>>()
    };
    let old = DirtyVersion {
        id: Ulid::from_parts(new_id().timestamp_ms() - 7_500, 1),
        lifetime: Lifetime::Short,
        ..version("first")
    };
    bed.names.write(&bed.name, old).await.unwrap();
    assert_eq!(deaths(), []);
    let second = bed.write("second").await;
    assert_eq!(deaths(), [(Lifetime::Short, 7)]);

    let flush = bed.begin(NODE, Kind::Flush, &second).await.unwrap();
    bed.names.end(&flush, End::Done, || true).await.unwrap();
    assert_eq!(deaths(), []);

    let third = bed.write("third").await;
    let refused = bed.begin(NODE, Kind::Delete, &third).await.unwrap();
    bed.names.end(&refused, End::GivenUp, || true).await.unwrap();
    assert_eq!(deaths(), []);
    let removal = bed.begin(NODE, Kind::Delete, &third).await.unwrap();
    bed.names.end(&removal, End::Done, || true).await.unwrap();
    assert_eq!(deaths(), [(Lifetime::Normal, 0)]);
}

#[tokio::test]
async fn one_node_keeps_a_map_while_its_session_lasts() {
    let bed = bed();
    let [keeper, other] = [NODE, OTHER].map(|node| Arc::new(session(&bed, node)));
    let [map, other_map] = [&b"a/"[..], b"b/"].map(|prefix| MapName::new("bucket", prefix));
    assert!(!keeper.keep_map(&map).await.unwrap(), "it has no session");
    assert!(keeper.permit().is_none());
    for session in [&keeper, &other] {
        session.keep().await.unwrap();
    }
    // The answer to its commit is lost.
    bed.engine.fail(&[Fault::AnswerLost]);
    keeper.keep_map(&map).await.unwrap_err();
    for _ in 0..2 {
        assert!(keeper.keep_map(&map).await.unwrap() && !other.keep_map(&map).await.unwrap());
    }
    assert!(
        other.keep_map(&other_map).await.unwrap(),
        "each map has a keeper of its own"
    );

    let permit = keeper.permit().unwrap();
    assert!(permit.may_send());
    bed.engine.expire(NODE);
    assert!(other.keep_map(&map).await.unwrap() && !keeper.keep_map(&map).await.unwrap());
    keeper.keep().await.unwrap();
    assert!(!permit.may_send(), "the permission is of the life that has ended");
    assert!(!keeper.keep_map(&map).await.unwrap());
}
