//! The promises of every engine. A new engine adds one line to `main.rs`.
//!
//! Each test has an engine without keys of its own. `start` of the engine's module gives it; `None` if it
//! cannot run here.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shoal_registry::engine::{
    Engine, EngineError, OPERATIONS_MAX, Outcome, Page, Range, Revision, SessionId, Stored,
    TRANSACTION_BYTES_MAX, Transaction,
};

use crate::transactions::{Building, delete, put, put_with};

/// Runs the suite with the engine of a module, in a module of the given name.
macro_rules! conforms {
    ($name:ident: $engine:ident) => {
        conforms! { $name: $engine:
            a_value_is_read_as_it_was_put
            keys_and_values_are_any_bytes
            looks_side_by_side_each_find_their_own_key
            keys_read_together_are_as_of_one_moment
            a_condition_holds_only_while_its_key_is_as_it_was
            a_key_deleted_and_put_again_has_changed
            a_transaction_happens_as_a_whole_or_not_at_all
            a_transaction_of_the_maximum_size_is_taken_and_a_larger_one_refused
            a_range_ends_where_its_prefix_does
            a_range_is_read_in_pages
            pages_of_large_values_come_in_parts
            keys_are_counted_by_prefix
            revisions_grow_with_each_change_and_only_then
            sixteen_writers_count_exactly
            an_engine_says_how_full_it_is
            a_renewed_session_keeps_its_keys
            a_session_that_is_not_renewed_takes_its_keys_along
            a_closed_session_takes_its_keys_along_at_once
            a_key_put_without_its_session_stays
            nothing_is_put_with_a_session_that_has_ended
            transactions_side_by_side_each_have_their_own_outcome
            of_two_transactions_that_rule_each_other_out_one_happens
        }
    };
    ($name:ident: $engine:ident: $($promise:ident)*) => {
        mod $name {
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $promise() {
                    if let Some(fixture) = crate::$engine::start().await {
                        crate::conformance::$promise(fixture.engine()).await;
                    }
                }
            )*
        }
    };
}

pub(crate) use conforms;

pub(crate) type Shared = Arc<dyn Engine>;

pub(crate) async fn a_value_is_read_as_it_was_put(engine: Shared) {
    assert_eq!(engine.get(b"a").await, Ok(None));
    let first = commit(&engine, put(b"a", b"one")).await;
    assert_eq!(engine.get(b"a").await, Ok(Some(stored(b"one", first))));
    let second = commit(&engine, put(b"a", b"two")).await;
    assert_eq!(engine.get(b"a").await, Ok(Some(stored(b"two", second))));
    commit(&engine, delete(b"a")).await;
    assert_eq!(engine.get(b"a").await, Ok(None));
    commit(&engine, delete(b"a")).await;
    assert_eq!(engine.get(b"a").await, Ok(None));
}

pub(crate) async fn keys_and_values_are_any_bytes(engine: Shared) {
    let all: Vec<u8> = (0..=u8::MAX).collect();
    let keys: [&[u8]; 5] = [b"\0", b"\0\0", b"\xff", b"\xff\xff\0", &all];
    for key in keys {
        commit(&engine, put(key, &[key, &all].concat())).await;
    }
    commit(&engine, put(b"empty", b"")).await;
    for key in keys {
        assert_eq!(value(&engine, key).await, Some([key, &all].concat().into()));
    }
    assert_eq!(value(&engine, b"empty").await, Some(Bytes::new()));
    let page = engine.range(range(b"", 100)).await.unwrap();
    let expected: [&[u8]; 6] = [b"\0", b"\0\0", &all, b"empty", b"\xff", b"\xff\xff\0"];
    assert_eq!(keys_of(&page), expected);
}

pub(crate) async fn a_condition_holds_only_while_its_key_is_as_it_was(engine: Shared) {
    let first = engine.commit(put(b"a", b"1").if_absent(b"a")).await.unwrap();
    let Outcome::Committed(first) = first else {
        panic!("there was no key")
    };
    assert_eq!(
        engine.commit(put(b"a", b"2").if_absent(b"a")).await,
        Ok(Outcome::Conflict)
    );
    assert_eq!(value(&engine, b"a").await, Some(Bytes::from_static(b"1")));
    let second = engine.commit(put(b"a", b"2").if_at(b"a", first)).await.unwrap();
    assert!(matches!(second, Outcome::Committed(second) if second > first));
    assert_eq!(
        engine.commit(put(b"a", b"3").if_at(b"a", first)).await,
        Ok(Outcome::Conflict)
    );
    assert_eq!(
        engine.commit(delete(b"a").if_at(b"a", first)).await,
        Ok(Outcome::Conflict)
    );
    assert_eq!(value(&engine, b"a").await, Some(Bytes::from_static(b"2")));
    // A condition may be about a key that the transaction does not change.
    assert_eq!(
        engine.commit(put(b"b", b"").if_absent(b"a")).await,
        Ok(Outcome::Conflict)
    );
    assert_eq!(
        engine.commit(put(b"b", b"").if_at(b"missing", first)).await,
        Ok(Outcome::Conflict)
    );
    assert_eq!(engine.get(b"b").await, Ok(None));
    let outcome = engine
        .commit(Transaction::default().if_absent(b"b").if_absent(b"c"))
        .await;
    assert!(matches!(outcome, Ok(Outcome::Committed(_))));
}

pub(crate) async fn a_key_deleted_and_put_again_has_changed(engine: Shared) {
    let first = commit(&engine, put(b"a", b"same")).await;
    commit(&engine, delete(b"a")).await;
    let second = commit(&engine, put(b"a", b"same")).await;
    assert_ne!(first, second);
    assert_eq!(
        engine.commit(delete(b"a").if_at(b"a", first)).await,
        Ok(Outcome::Conflict)
    );
    assert!(matches!(
        engine.commit(delete(b"a").if_at(b"a", second)).await,
        Ok(Outcome::Committed(_))
    ));
    assert_eq!(
        engine.commit(put(b"a", b"").if_at(b"a", second)).await,
        Ok(Outcome::Conflict)
    );
}

pub(crate) async fn a_transaction_happens_as_a_whole_or_not_at_all(engine: Shared) {
    let before = commit(&engine, put(b"old", b"")).await;
    let both = put(b"x", b"1").and(put(b"y", b"2")).and(delete(b"old"));
    let outcome = engine
        .commit(both.clone().if_absent(b"x").if_absent(b"old"))
        .await;
    assert_eq!(outcome, Ok(Outcome::Conflict));
    assert_eq!(keys_of(&engine.range(range(b"", 9)).await.unwrap()), [b"old"]);
    let revision = commit(&engine, both.if_absent(b"x").if_at(b"old", before)).await;
    let page = engine.range(range(b"", 9)).await.unwrap();
    assert_eq!(keys_of(&page), [b"x", b"y"]);
    assert!(page.entries.iter().all(|(_, stored)| stored.revision == revision));
    let twice = engine.commit(put(b"z", b"1").and(put(b"z", b"2"))).await;
    assert!(matches!(twice, Err(EngineError::Refused(_))), "{twice:?}");
    assert_eq!(engine.get(b"z").await, Ok(None));
}

pub(crate) async fn a_transaction_of_the_maximum_size_is_taken_and_a_larger_one_refused(engine: Shared) {
    let many = |count: usize| {
        let keys = (0..count).map(|number| format!("{number:03}"));
        keys.fold(Transaction::default(), |all, key| {
            all.and(put(key.as_bytes(), b"")).if_absent(key.as_bytes())
        })
    };
    let refused = engine.commit(many(OPERATIONS_MAX + 1)).await;
    assert!(matches!(refused, Err(EngineError::Refused(_))), "{refused:?}");
    commit(&engine, many(OPERATIONS_MAX)).await;
    assert_eq!(engine.count(b"").await, Ok(OPERATIONS_MAX as u64));

    let refused = engine.commit(put(b"big", &vec![1; TRANSACTION_BYTES_MAX])).await;
    assert!(matches!(refused, Err(EngineError::Refused(_))), "{refused:?}");
    for size in [64 << 10, 1 << 20, TRANSACTION_BYTES_MAX - 3] {
        commit(&engine, put(b"big", &vec![1; size])).await;
        assert_eq!(value(&engine, b"big").await.map(|value| value.len()), Some(size));
    }
}

pub(crate) async fn a_range_ends_where_its_prefix_does(engine: Shared) {
    let keys: [&[u8]; 8] = [
        b"a",
        b"a\xff",
        b"a\xff\xff",
        b"a\xff\xffz",
        b"b",
        b"b\0",
        b"\xff",
        b"\xff\xff",
    ];
    for key in keys {
        commit(&engine, put(key, b"")).await;
    }
    let found = async |prefix: &[u8], after: &[u8]| {
        let after = Bytes::copy_from_slice(after);
        let page = engine
            .range(Range {
                after,
                ..range(prefix, 100)
            })
            .await
            .unwrap();
        keys_of(&page).concat()
    };
    assert_eq!(found(b"a\xff", b"").await, keys[1..4].concat());
    assert_eq!(found(b"a", b"").await, keys[..4].concat());
    assert_eq!(found(b"\xff", b"").await, keys[6..].concat());
    assert_eq!(found(b"", b"").await, keys.concat());
    assert_eq!(found(b"a", b"a\xff").await, keys[2..4].concat());
    assert_eq!(found(b"b", b"b").await, keys[5]);
    // Before, behind and beside the prefix.
    assert_eq!(found(b"b", b"a").await, keys[4..6].concat());
    assert_eq!(found(b"a", b"b").await, b"");
    assert_eq!(found(b"a", b"a\xff\xffz").await, b"");
    assert_eq!(found(b"a", b"a\xff\xff\xff").await, b"");
    assert_eq!(found(b"c", b"").await, b"");
}

pub(crate) async fn a_range_is_read_in_pages(engine: Shared) {
    let keys: Vec<Vec<u8>> = (0..10).map(|number| format!("k{number}").into_bytes()).collect();
    for key in &keys {
        commit(&engine, put(key, key)).await;
    }
    commit(&engine, put(b"l", b"")).await;
    let first = engine.range(range(b"k", 4)).await.unwrap();
    assert_eq!(keys_of(&first), keys[..4]);
    assert!(first.has_more);
    let exact = engine.range(range(b"k", 10)).await.unwrap();
    assert_eq!((exact.entries.len(), exact.has_more), (10, false));
    let one = engine.range(range(b"k", 1)).await.unwrap();
    assert_eq!((keys_of(&one), one.has_more), (vec![keys[0].as_slice()], true));
    assert_eq!(keys_of(&all_pages(&engine, range(b"k", 3)).await), keys);
    let nothing = engine.range(range(b"m", 4)).await.unwrap();
    assert!(nothing.entries.is_empty() && !nothing.has_more);
}

pub(crate) async fn pages_of_large_values_come_in_parts(engine: Shared) {
    for number in 0..24_u8 {
        commit(&engine, put(&[number], &vec![number; 1 << 20])).await;
    }
    let all = all_pages(&engine, range(b"", 1000)).await;
    assert_eq!(all.entries.len(), 24);
    for (number, (key, stored)) in (0..).zip(&all.entries) {
        assert_eq!(
            (&key[..], &stored.value[..]),
            (&[number][..], &vec![number; 1 << 20][..])
        );
    }
}

pub(crate) async fn looks_side_by_side_each_find_their_own_key(engine: Shared) {
    for number in 0..40_u8 {
        commit(&engine, put(&[number], &[number; 100])).await;
    }
    // Together they are more than one answer may hold.
    for number in 200..224_u8 {
        commit(&engine, put(&[number], &vec![number; 1 << 20])).await;
    }
    let looks = (0..=255_u8).flat_map(|number| [number, number % 50]);
    let looks = looks.map(|number| {
        let engine = Arc::clone(&engine);
        async move { (number, engine.get(&[number]).await.unwrap()) }
    });
    for (number, found) in futures_util::future::join_all(looks).await {
        let expected = match number {
            0..40 => Some(vec![number; 100]),
            200..224 => Some(vec![number; 1 << 20]),
            _ => None,
        };
        let found = found.map(|stored| stored.value.to_vec());
        assert!(found == expected, "key {number}");
    }
}

pub(crate) async fn keys_read_together_are_as_of_one_moment(engine: Shared) {
    const ROUNDS: u64 = 150;
    let first = commit(&engine, put(b"a", b"1").and(put(b"b", b"2"))).await;
    let keys = |keys: &[&'static str]| keys.iter().map(|key| Bytes::from(*key)).collect::<Vec<_>>();
    assert_eq!(
        engine.get_together(&keys(&["b", "absent", "a", "b"])).await,
        Ok(vec![
            Some(stored(b"2", first)),
            None,
            Some(stored(b"1", first)),
            Some(stored(b"2", first)),
        ])
    );
    assert_eq!(engine.get_together(&[]).await, Ok(Vec::new()));

    let (writer, pair) = (Arc::clone(&engine), keys(&["b", "a"]));
    let writing = tokio::spawn(async move {
        for number in 0..ROUNDS {
            let number = number.to_be_bytes();
            commit(&writer, put(b"a", &number).and(put(b"b", &number))).await;
        }
    });
    let mut reads = 0;
    while !writing.is_finished() {
        let looks = (0..8).map(|_| engine.get_together(&pair));
        for found in futures_util::future::join_all(looks).await {
            let revisions: Vec<_> = found
                .unwrap()
                .into_iter()
                .map(|stored| stored.unwrap().revision)
                .collect();
            assert_eq!(revisions[0], revisions[1]);
            reads += 1;
        }
    }
    writing.await.unwrap();
    assert!(reads > ROUNDS / 10, "{reads} reads beside {ROUNDS} writes");
}

pub(crate) async fn keys_are_counted_by_prefix(engine: Shared) {
    for key in [&b"a"[..], b"a\xff", b"a\xff1", b"b"] {
        commit(&engine, put(key, b"")).await;
    }
    for (prefix, expected) in [(&b""[..], 4), (b"a", 3), (b"a\xff", 2), (b"b", 1), (b"c", 0)] {
        assert_eq!(engine.count(prefix).await, Ok(expected), "{prefix:?}");
    }
    commit(&engine, delete(b"a")).await;
    assert_eq!(engine.count(b"a").await, Ok(2));
}

pub(crate) async fn revisions_grow_with_each_change_and_only_then(engine: Shared) {
    let mut last = Revision(0);
    for change in [
        put(b"a", b"1"),
        put(b"b", b"1"),
        put(b"a", b"1"),
        delete(b"a"),
        put(b"a", b"1"),
    ] {
        let revision = commit(&engine, change).await;
        assert!(revision > last, "{revision:?} after {last:?}");
        last = revision;
    }
    let stored = engine.get(b"b").await.unwrap().unwrap();
    assert!(stored.revision < last, "b has not changed since");
    // The value is the same, but the key has changed.
    assert_eq!(engine.get(b"a").await.unwrap().unwrap().revision, last);
}

pub(crate) async fn sixteen_writers_count_exactly(engine: Shared) {
    const ROUNDS: u64 = 20;
    let writers: Vec<_> = (0..16)
        .map(|_| {
            let engine = Arc::clone(&engine);
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    while !increment(&engine).await.unwrap() {}
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(counter(&engine).await, 16 * ROUNDS);
}

pub(crate) async fn an_engine_says_how_full_it_is(engine: Shared) {
    for number in 0..8 {
        commit(&engine, put(&[number], &vec![number; 1 << 20])).await;
    }
    let room = engine.room().await.unwrap();
    assert!(
        room.used_bytes > 8 << 20 && room.used_bytes < room.quota_bytes,
        "{room:?}"
    );
}

pub(crate) async fn a_renewed_session_keeps_its_keys(engine: Shared) {
    let session = engine.open_session(TIME_TO_LIVE).await.unwrap();
    commit(&engine, put_with(b"node", session)).await;
    for _ in 0..8 {
        tokio::time::sleep(TIME_TO_LIVE / 4).await;
        engine.renew_session(session).await.unwrap();
    }
    assert!(value(&engine, b"node").await.is_some());
}

pub(crate) async fn a_session_that_is_not_renewed_takes_its_keys_along(engine: Shared) {
    // Longer than the next requests take on a busy machine.
    let time_to_live = TIME_TO_LIVE * 3;
    let session = engine.open_session(time_to_live).await.unwrap();
    let other = engine.open_session(TIME_TO_LIVE * 30).await.unwrap();
    let before = commit(
        &engine,
        put_with(b"a", session)
            .and(put_with(b"b", session))
            .and(put_with(b"c", other)),
    )
    .await;
    tokio::time::sleep(time_to_live / 2).await;
    assert_eq!(engine.count(b"").await, Ok(3));
    // etcd looks for dead sessions twice a second, and rounds up to seconds.
    for _ in 0..150 {
        let page = engine.range(range(b"", 9)).await.unwrap();
        if page.entries.len() == 3 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        }
        assert_eq!(keys_of(&page), [b"c"], "all keys of a session go together");
        assert!(commit(&engine, put(b"d", b"")).await.0 > before.0 + 1);
        assert_eq!(
            engine.renew_session(session).await,
            Err(EngineError::SessionEnded)
        );
        engine.renew_session(other).await.unwrap();
        return;
    }
    panic!("the keys are still there");
}

pub(crate) async fn a_closed_session_takes_its_keys_along_at_once(engine: Shared) {
    let session = engine.open_session(TIME_TO_LIVE * 30).await.unwrap();
    commit(&engine, put_with(b"a", session).and(put(b"b", b""))).await;
    engine.close_session(session).await.unwrap();
    assert_eq!(keys_of(&engine.range(range(b"", 9)).await.unwrap()), [b"b"]);
    assert_eq!(
        engine.close_session(session).await,
        Err(EngineError::SessionEnded)
    );
    assert_eq!(
        engine.renew_session(session).await,
        Err(EngineError::SessionEnded)
    );
}

pub(crate) async fn a_key_put_without_its_session_stays(engine: Shared) {
    let session = engine.open_session(TIME_TO_LIVE * 30).await.unwrap();
    let next = engine.open_session(TIME_TO_LIVE * 30).await.unwrap();
    commit(
        &engine,
        put_with(b"a", session)
            .and(put_with(b"b", session))
            .and(put_with(b"c", session)),
    )
    .await;
    commit(
        &engine,
        put(b"a", b"").and(delete(b"b")).and(put_with(b"c", next)),
    )
    .await;
    commit(&engine, put(b"b", b"")).await;
    engine.close_session(session).await.unwrap();
    assert_eq!(
        keys_of(&engine.range(range(b"", 9)).await.unwrap()),
        [b"a", b"b", b"c"]
    );
    engine.close_session(next).await.unwrap();
    assert_eq!(keys_of(&engine.range(range(b"", 9)).await.unwrap()), [b"a", b"b"]);
}

pub(crate) async fn nothing_is_put_with_a_session_that_has_ended(engine: Shared) {
    let session = engine.open_session(TIME_TO_LIVE).await.unwrap();
    engine.close_session(session).await.unwrap();
    for ended in [session, SessionId(0x7fff_ffff_0000)] {
        let outcome = engine.commit(put_with(b"a", ended).and(put(b"b", b""))).await;
        assert_eq!(outcome, Err(EngineError::SessionEnded));
    }
    assert_eq!(engine.count(b"").await, Ok(0));
}

pub(crate) async fn transactions_side_by_side_each_have_their_own_outcome(engine: Shared) {
    const EACH: u8 = 40;
    commit(&engine, put(b"taken", b"")).await;
    let ended = engine.open_session(TIME_TO_LIVE).await.unwrap();
    engine.close_session(ended).await.unwrap();
    let transactions = (0..EACH).flat_map(|number| {
        let own = |kind: u8| vec![kind, number];
        [
            put(&own(b'a'), &vec![number; 20 << 10]).if_absent(&own(b'a')),
            put(&own(b'b'), b"").if_absent(b"taken"),
            put_with(&own(b'c'), ended),
            put(&own(b'd'), b"").and(put(b"one", &[number]).if_absent(b"one")),
        ]
    });
    let commits = transactions.map(|transaction| engine.commit(transaction));
    let outcomes = futures_util::future::join_all(commits).await;
    let mut happened = Vec::new();
    for (number, outcomes) in (0..EACH).zip(outcomes.chunks(4)) {
        assert!(
            matches!(outcomes[0], Ok(Outcome::Committed(_))),
            "{:?}",
            outcomes[0]
        );
        assert_eq!(outcomes[1], Ok(Outcome::Conflict));
        assert_eq!(outcomes[2], Err(EngineError::SessionEnded));
        for (kind, outcome) in b"abcd".iter().zip(outcomes) {
            let found = engine.get(&[*kind, number]).await.unwrap();
            let revision = match outcome {
                Ok(Outcome::Committed(revision)) => Some(*revision),
                _ => None,
            };
            assert_eq!(found.map(|stored| stored.revision), revision);
        }
        happened.extend(matches!(outcomes[3], Ok(Outcome::Committed(_))).then_some(number));
    }
    let one = value(&engine, b"one").await.unwrap();
    assert_eq!(happened, *one, "one of them put the key");
}

pub(crate) async fn of_two_transactions_that_rule_each_other_out_one_happens(engine: Shared) {
    let commits = (0..60_u8).flat_map(|number| {
        let [left, right] = [[number, 0], [number, 1]];
        let pair = [
            put(&left, b"").if_absent(&right),
            put(&right, b"").if_absent(&left),
        ];
        pair.map(|transaction| engine.commit(transaction))
    });
    let outcomes = futures_util::future::join_all(commits).await;
    for pair in outcomes.chunks(2) {
        let happened = pair.iter().filter(|outcome| **outcome != Ok(Outcome::Conflict));
        assert_eq!(happened.count(), 1, "{pair:?}");
    }
}

/// The shortest that etcd grants.
const TIME_TO_LIVE: Duration = Duration::from_secs(2);

/// Adds one to a counter, unless another writer does at the same time.
pub(crate) async fn increment(engine: &Shared) -> Result<bool, EngineError> {
    let before = engine.get(b"counter").await?;
    let count = before.as_ref().map_or(0, |stored| number(&stored.value));
    let mut transaction = put(b"counter", &(count + 1).to_be_bytes());
    transaction = match before {
        Some(stored) => transaction.if_at(b"counter", stored.revision),
        None => transaction.if_absent(b"counter"),
    };
    Ok(matches!(engine.commit(transaction).await?, Outcome::Committed(_)))
}

/// The counter of [`increment`].
pub(crate) async fn counter(engine: &Shared) -> u64 {
    value(engine, b"counter").await.map_or(0, |value| number(&value))
}

fn number(value: &[u8]) -> u64 {
    u64::from_be_bytes(value.try_into().unwrap())
}

/// Carries out a transaction whose conditions hold.
pub(crate) async fn commit(engine: &Shared, transaction: Transaction) -> Revision {
    match engine.commit(transaction).await.unwrap() {
        Outcome::Committed(revision) => revision,
        Outcome::Conflict => panic!("a condition does not hold"),
    }
}

pub(crate) async fn value(engine: &Shared, key: &[u8]) -> Option<Bytes> {
    Some(engine.get(key).await.unwrap()?.value)
}

fn stored(value: &'static [u8], revision: Revision) -> Stored {
    Stored {
        value: Bytes::from_static(value),
        revision,
    }
}

pub(crate) fn range(prefix: &[u8], limit: usize) -> Range {
    Range {
        prefix: Bytes::copy_from_slice(prefix),
        after: Bytes::new(),
        limit,
    }
}

/// Reads all pages.
pub(crate) async fn all_pages(engine: &Shared, mut range: Range) -> Page {
    let mut all = engine.range(range.clone()).await.unwrap();
    while all.has_more {
        range.after = all
            .entries
            .last()
            .expect("a page with more has entries")
            .0
            .clone();
        let page = engine.range(range.clone()).await.unwrap();
        all.entries.extend(page.entries);
        all.has_more = page.has_more;
    }
    all
}

pub(crate) fn keys_of(page: &Page) -> Vec<&[u8]> {
    page.entries.iter().map(|(key, _)| &key[..]).collect()
}
