//! The conformance suite for stores of bytes. Each test runs on a new store.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use md5::{Digest as _, Md5};
use shoal_net::endpoint::BoxError;

use super::{Arc, ByteStore, StoreError, body, data, get, keys, new_key, piece, put, whole};
use crate::tier::probe;
use crate::tier::store::{PieceMd5, PutError};

/// Runs the suite on stores that `$open` opens.
macro_rules! conforms {
    ($open:path) => {
        crate::tier::tests::conformance::conforms! { $open:
            a_piece_comes_back
            the_md5_of_a_piece_is_that_of_its_bytes
            a_range_is_exactly_what_was_asked_for
            an_empty_piece_is_a_piece
            a_range_beyond_the_piece_is_an_error
            a_key_that_does_not_exist_is_missing
            a_copy_is_a_piece_of_its_own
            a_copy_of_a_key_that_does_not_exist_is_missing
            a_copy_to_a_key_in_use_is_refused_or_complete
            a_copy_of_another_length_is_refused
            a_removed_piece_is_gone_and_removing_it_again_does_no_harm
            many_pieces_are_removed_at_once
            pages_list_every_piece_once_in_order
            a_body_that_is_too_short_leaves_nothing
            a_body_that_is_too_long_leaves_nothing
            a_body_that_fails_at_its_very_end_leaves_nothing
            a_put_that_is_dropped_leaves_nothing
            a_dropped_read_does_no_harm
            a_key_that_is_none_is_refused
            the_probe_passes_and_leaves_nothing
            the_probe_of_copies_passes_and_leaves_nothing
        }
    };
    ($open:path: $($scenario:ident)*) => {$(
        #[tokio::test]
        async fn $scenario() {
            let opened = $open().await;
            crate::tier::tests::conformance::$scenario(&*opened.store).await;
        }
    )*};
}

pub(super) use conforms;

pub(super) async fn a_piece_comes_back(store: &dyn ByteStore) {
    for size_bytes in [1, 100, 256 << 10, (256 << 10) + 1, 3_000_000] {
        let (key, bytes) = (new_key(), data(size_bytes));
        put(store, &key, &bytes).await;
        assert!(
            get(store, &key, 0, size_bytes).await.unwrap() == bytes,
            "{size_bytes}"
        );
        let page = store.list(None, 100).await.unwrap();
        let listed = page.pieces.iter().find(|piece| piece.key == key).unwrap();
        assert_eq!(listed.size_bytes, size_bytes as u64);
        assert!(listed.age < Duration::from_mins(10), "{:?}", listed.age);
    }
}

pub(super) async fn the_md5_of_a_piece_is_that_of_its_bytes(store: &dyn ByteStore) {
    for size_bytes in [0, 1, (256 << 10) + 1] {
        let bytes = data(size_bytes);
        let md5 = store.put(&new_key(), size_bytes as u64, whole(&bytes)).await;
        assert_eq!(md5.unwrap(), *Md5::digest(&bytes), "{size_bytes}");
    }
}

pub(super) async fn a_range_is_exactly_what_was_asked_for(store: &dyn ByteStore) {
    const CHUNK: usize = 256 << 10;
    let (key, bytes) = (new_key(), data(3 * CHUNK + 5));
    put(store, &key, &bytes).await;
    let ends = [
        0,
        1,
        77,
        CHUNK - 1,
        CHUNK,
        CHUNK + 1,
        2 * CHUNK,
        3 * CHUNK,
        3 * CHUNK + 5,
    ];
    for start in ends {
        for end in ends.into_iter().filter(|end| *end >= start) {
            let read = get(store, &key, start, end).await.unwrap();
            assert!(read == bytes[start..end], "{start}..{end}");
        }
    }
}

pub(super) async fn an_empty_piece_is_a_piece(store: &dyn ByteStore) {
    let key = new_key();
    put(store, &key, &Bytes::new()).await;
    assert_eq!(get(store, &key, 0, 0).await, Ok(Bytes::new()));
    assert_eq!(keys(store, 10).await, std::slice::from_ref(&key));
    store.remove(std::slice::from_ref(&key)).await.unwrap();
    assert_eq!(get(store, &key, 0, 0).await, Err(StoreError::Missing));
    let refused = store.put(&key, 0, body(vec![Ok("a".into())])).await;
    assert!(matches!(refused, Err(PutError::Body(_))), "{refused:?}");
    assert!(keys(store, 10).await.is_empty());
}

pub(super) async fn a_range_beyond_the_piece_is_an_error(store: &dyn ByteStore) {
    let key = new_key();
    put(store, &key, &data(100)).await;
    for (start, end) in [(0, 101), (99, 101), (100, 101), (200, 300), (101, 101)] {
        let read = get(store, &key, start, end).await;
        assert!(
            matches!(read, Err(StoreError::Damaged(_))),
            "{start}..{end}: {read:?}"
        );
    }
}

pub(super) async fn a_key_that_does_not_exist_is_missing(store: &dyn ByteStore) {
    for end in [0, 1, 1 << 20] {
        assert_eq!(get(store, &new_key(), 0, end).await, Err(StoreError::Missing));
    }
}

pub(super) async fn a_removed_piece_is_gone_and_removing_it_again_does_no_harm(store: &dyn ByteStore) {
    let (removed, kept) = (new_key(), new_key());
    put(store, &removed, &data(10)).await;
    put(store, &kept, &data(10)).await;
    for _ in 0..2 {
        store.remove(&[Arc::clone(&removed), new_key()]).await.unwrap();
        assert_eq!(get(store, &removed, 0, 10).await, Err(StoreError::Missing));
        assert_eq!(keys(store, 10).await, std::slice::from_ref(&kept));
    }
    store.remove(&[]).await.unwrap();
}

pub(super) async fn many_pieces_are_removed_at_once(store: &dyn ByteStore) {
    let mut removed = Vec::new();
    for _ in 0..20 {
        let key = new_key();
        put(store, &key, &data(1)).await;
        removed.push(key);
    }
    // More than S3 removes with one request.
    removed.extend((0..1_200).map(|_| new_key()));
    let kept = new_key();
    put(store, &kept, &data(1)).await;
    store.remove(&removed).await.unwrap();
    assert_eq!(keys(store, 10).await, [kept]);
}

pub(super) async fn pages_list_every_piece_once_in_order(store: &dyn ByteStore) {
    let page = store.list(None, 10).await.unwrap();
    assert!(page.pieces.is_empty() && page.is_last);
    // Slashes and hyphens must sort by their bytes.
    let mut all: Vec<Arc<str>> = vec![
        "a/1".into(),
        "a-1".into(),
        "a0".into(),
        "B".into(),
        "b/c/d".into(),
    ];
    all.extend((0..12).map(|_| new_key()));
    for key in &all {
        put(store, key, &data(3)).await;
    }
    all.sort();
    for limit in [1, 5, all.len(), 1_000] {
        assert_eq!(keys(store, limit).await, all, "{limit}");
    }
    let behind = store.list(Some("a0"), 1_000).await.unwrap();
    assert!(behind.pieces.iter().all(|piece| &*piece.key > "a0") && behind.is_last);
    let nothing = store.list(Some("zzz"), 1_000).await.unwrap();
    assert!(nothing.pieces.is_empty() && nothing.is_last);
}

pub(super) async fn a_body_that_is_too_short_leaves_nothing(store: &dyn ByteStore) {
    for (got, size_bytes) in [(0, 10), (9, 10), (400_000, 500_000)] {
        let key = new_key();
        let failed = store.put(&key, size_bytes, whole(&data(got))).await;
        let expected = format!("the body ended after {got} of {size_bytes} bytes");
        assert_eq!(of_body(failed), expected);
        assert_nothing_at(store, &key).await;
    }
}

pub(super) async fn a_body_that_is_too_long_leaves_nothing(store: &dyn ByteStore) {
    for (got, size_bytes) in [(11, 10), (60_014, 60_013), (500_000, 400_000)] {
        let key = new_key();
        let failed = store.put(&key, size_bytes, whole(&data(got))).await;
        let expected = format!("the body has more than the announced {size_bytes} bytes");
        assert_eq!(of_body(failed), expected);
        assert_nothing_at(store, &key).await;
    }
}

pub(super) async fn a_body_that_fails_at_its_very_end_leaves_nothing(store: &dyn ByteStore) {
    #[derive(Debug, thiserror::Error)]
    #[error("the client's checksum is wrong")]
    struct OfTheClient;
    for size_bytes in [0, 10, 2_000_000] {
        let key = new_key();
        let pieces = vec![Ok(data(size_bytes)), Err(OfTheClient.into())];
        match store.put(&key, size_bytes as u64, body(pieces)).await {
            Err(PutError::Body(error)) => assert!(error.is::<OfTheClient>(), "{error}"),
            other => panic!("{size_bytes}: {other:?}"),
        }
        assert_nothing_at(store, &key).await;
    }
}

pub(super) async fn a_put_that_is_dropped_leaves_nothing(store: &dyn ByteStore) {
    let key = new_key();
    let (started, has_started) = tokio::sync::oneshot::channel();
    let mut started = Some(started);
    let beginning = stream::iter([Ok::<_, BoxError>(data(3 << 20))]);
    let silence = stream::poll_fn(move |_| {
        if let Some(started) = started.take() {
            // The receiver is gone if the test has already failed.
            let _ = started.send(());
        }
        std::task::Poll::Pending
    });
    let put = store.put(&key, 4 << 20, beginning.chain(silence).boxed());
    tokio::select! {
        done = put => panic!("a body without end was stored: {done:?}"),
        began = has_started => began.unwrap(),
    }
    assert_nothing_at(store, &key).await;
}

pub(super) async fn a_dropped_read_does_no_harm(store: &dyn ByteStore) {
    let (key, bytes) = (new_key(), data(2 << 20));
    put(store, &key, &bytes).await;
    let range = super::ByteRange::new(0, bytes.len() as u64);
    let mut stream = store.get(&key, range).await.unwrap();
    stream.next().await.unwrap().unwrap();
    // A second poll that is not awaited leaves work in flight.
    let _ = stream.next().now_or_never();
    drop(stream);
    assert!(get(store, &key, 0, bytes.len()).await.unwrap() == bytes);
}

pub(super) async fn a_copy_is_a_piece_of_its_own(store: &dyn ByteStore) {
    for size_bytes in [0, 1, 256 << 10, 3_000_000] {
        let (from, to, bytes) = (new_key(), new_key(), data(size_bytes));
        put(store, &from, &bytes).await;
        store.copy(&piece(&from, size_bytes as u64), &to).await.unwrap();
        assert!(get(store, &from, 0, size_bytes).await.unwrap() == bytes);
        store.remove(&[from]).await.unwrap();
        assert!(
            get(store, &to, 0, size_bytes).await.unwrap() == bytes,
            "{size_bytes}"
        );
        assert_eq!(keys(store, 10).await, std::slice::from_ref(&to));
        store.remove(&[to]).await.unwrap();
    }
}

pub(super) async fn a_copy_of_a_key_that_does_not_exist_is_missing(store: &dyn ByteStore) {
    for size_bytes in [0, 1, 1 << 20] {
        let to = new_key();
        let copied = store.copy(&piece(&new_key(), size_bytes), &to).await;
        assert_eq!(copied, Err(StoreError::Missing));
        assert_nothing_at(store, &to).await;
    }
}

/// Keys are never reused, so a store need not check.
pub(super) async fn a_copy_to_a_key_in_use_is_refused_or_complete(store: &dyn ByteStore) {
    let (from, to) = (new_key(), new_key());
    let (bytes, others) = (data(100), data(77));
    put(store, &from, &bytes).await;
    put(store, &to, &others).await;
    match store.copy(&piece(&from, 100), &to).await {
        Ok(()) => assert!(get(store, &to, 0, 100).await.unwrap() == bytes),
        Err(StoreError::Refused(_)) => assert!(get(store, &to, 0, 77).await.unwrap() == others),
        other => panic!("{other:?}"),
    }
    let onto_itself = store.copy(&piece(&from, 100), &from).await;
    assert!(
        matches!(onto_itself, Err(StoreError::Refused(_))),
        "{onto_itself:?}"
    );
    assert!(get(store, &from, 0, 100).await.unwrap() == bytes);
}

pub(super) async fn a_copy_of_another_length_is_refused(store: &dyn ByteStore) {
    let (from, to) = (new_key(), new_key());
    put(store, &from, &data(100)).await;
    for size_bytes in [0, 99, 101] {
        let copied = store.copy(&piece(&from, size_bytes), &to).await;
        assert!(
            matches!(copied, Err(StoreError::Damaged(_))),
            "{size_bytes}: {copied:?}"
        );
    }
    assert_eq!(keys(store, 10).await, std::slice::from_ref(&from));
}

pub(super) async fn a_key_that_is_none_is_refused(store: &dyn ByteStore) {
    for key in ["", "../a", "a b", "a//b"] {
        let put = store.put(key, 1, whole(&data(1))).await;
        assert!(
            matches!(put, Err(PutError::Store(StoreError::Refused(_)))),
            "{put:?}"
        );
        let read = get(store, key, 0, 1).await;
        assert!(matches!(read, Err(StoreError::Refused(_))), "{read:?}");
        let removed = store.remove(&[key.into()]).await;
        assert!(matches!(removed, Err(StoreError::Refused(_))), "{removed:?}");
    }
}

pub(super) async fn the_probe_passes_and_leaves_nothing(store: &dyn ByteStore) {
    put(store, "a", &data(1)).await;
    put(store, "z", &data(1)).await;
    probe::probe(store).await.unwrap();
    assert_eq!(keys(store, 10).await, ["a", "z"].map(Arc::<str>::from));
}

pub(super) async fn the_probe_of_copies_passes_and_leaves_nothing(store: &dyn ByteStore) {
    put(store, "a", &data(1)).await;
    put(store, "z", &data(1)).await;
    probe::probe_copy(store).await.unwrap();
    assert_eq!(keys(store, 10).await, ["a", "z"].map(Arc::<str>::from));
}

async fn assert_nothing_at(store: &dyn ByteStore, key: &str) {
    assert_eq!(get(store, key, 0, 1).await, Err(StoreError::Missing));
    let listed = keys(store, 100).await;
    assert!(listed.is_empty(), "{listed:?}");
}

/// Returns the text of a body's error.
fn of_body(failed: Result<PieceMd5, PutError>) -> String {
    match failed {
        Err(PutError::Body(error)) => error.to_string(),
        other => panic!("{other:?}"),
    }
}
