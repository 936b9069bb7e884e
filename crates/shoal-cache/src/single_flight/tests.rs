//! Tests how fetches are joined, complete and fail.

use std::future::poll_fn;

use shoal_policy::VersionId;

use super::*;

const ID: BlockId = BlockId {
    version: VersionId([7; 16]),
    index: 0,
};

fn span(len: u64, first: u64) -> BlockSpan {
    BlockSpan { id: ID, len, first }
}

fn lead(single_flight: &Arc<SingleFlight>, len: u64) -> (Leader, Waiter) {
    lead_from(single_flight, len, 0)
}

fn lead_from(single_flight: &Arc<SingleFlight>, len: u64, first: u64) -> (Leader, Waiter) {
    match single_flight.join(span(len, first), &Arc::default(), || false) {
        Join::Lead(leader, waiter) => (leader, waiter),
        other => panic!("no other fetch is in flight: {other:?}"),
    }
}

fn follow(single_flight: &Arc<SingleFlight>) -> Waiter {
    match single_flight.join(span(6, 0), &Arc::default(), || false) {
        Join::Joined(waiter) => waiter,
        other => panic!("the block is in flight: {other:?}"),
    }
}

async fn next(waiter: &mut Waiter) -> Option<Result<Bytes, FetchError>> {
    poll_fn(|cx| waiter.poll_piece(cx)).await
}

async fn rest(mut waiter: Waiter) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(piece) = next(&mut waiter).await {
        bytes.extend_from_slice(&piece.unwrap());
    }
    bytes
}

#[tokio::test]
async fn all_waiters_read_the_same_bytes_as_they_arrive() {
    let single_flight = Arc::<SingleFlight>::default();
    let (leader, mut first) = lead(&single_flight, 6);
    let second = tokio::spawn(rest(follow(&single_flight)));
    leader.push(Bytes::from_static(b"abc"));
    assert_eq!(
        next(&mut first).await.unwrap().unwrap(),
        "abc",
        "before the block is complete"
    );
    leader.push(Bytes::from_static(b"def"));
    assert_eq!(second.await.unwrap(), b"abcdef");
    assert_eq!(single_flight.coalesced(), 1);
}

#[tokio::test]
async fn a_reader_of_a_complete_block_waits_for_nothing_and_reads_from_this_node() {
    let single_flight = Arc::<SingleFlight>::default();
    let holds = |single_flight: &SingleFlight| single_flight.holds(ID, || false);
    let (leader, first) = lead(&single_flight, 6);
    leader.push(Bytes::from_static(b"abc"));
    let early = follow(&single_flight);
    assert!(!holds(&single_flight));
    assert!(single_flight.join_whole(ID).is_none());
    leader.push(Bytes::from_static(b"def"));
    let late = follow(&single_flight);
    let latest = single_flight.join_whole(ID).expect("it is whole");
    assert!(holds(&single_flight));
    let sources = [&first, &early, &late, &latest].map(Waiter::source);
    assert_eq!(
        sources,
        [Source::Lake, Source::Lake, Source::Local, Source::Local]
    );
    assert_eq!(single_flight.coalesced(), 1, "the late one waits for nothing");
    assert_eq!(rest(late).await, b"abcdef");
    leader.complete(None);
    assert!(!holds(&single_flight), "the disk did not take it");
    assert!(single_flight.holds(ID, || true), "the store knows what it holds");
}

#[tokio::test]
async fn a_stored_block_serves_the_rest_from_its_mapping() {
    let single_flight = Arc::<SingleFlight>::default();
    let (leader, mut waiter) = lead(&single_flight, 6);
    leader.push(Bytes::from_static(b"ab"));
    assert_eq!(next(&mut waiter).await.unwrap().unwrap(), "ab");
    leader.push(Bytes::from_static(b"cdef"));
    leader.complete(Some(Bytes::from_static(b"ABCDEF")));
    assert_eq!(rest(waiter).await, b"CDEF");
    assert_eq!(single_flight.count(), 0);
    assert!(matches!(
        single_flight.join(span(6, 0), &Arc::default(), || true),
        Join::Stored
    ));
}

#[tokio::test]
async fn a_waiter_may_start_in_the_middle() {
    let single_flight = Arc::<SingleFlight>::default();
    let (leader, mut waiter) = lead(&single_flight, 6);
    waiter.seek(4);
    leader.push(Bytes::from_static(b"abc"));
    leader.push(Bytes::from_static(b"def"));
    leader.complete(None);
    assert_eq!(rest(waiter).await, b"ef");
}

#[tokio::test]
async fn a_block_may_arrive_from_its_middle_on() {
    let single_flight = Arc::<SingleFlight>::default();
    let (leader, mut ranged) = lead_from(&single_flight, 6, 4);
    let whole = tokio::spawn(rest(follow(&single_flight)));
    ranged.seek(4);
    leader.push(Bytes::from_static(b"e"));
    assert_eq!(next(&mut ranged).await.unwrap().unwrap(), "e", "it came first");
    for piece in ["f", "ab", "cd"] {
        leader.push(Bytes::from_static(piece.as_bytes()));
    }
    assert_eq!(rest(ranged).await, b"f");
    assert_eq!(leader.pieces().concat(), b"abcdef");
    assert_eq!(whole.await.unwrap(), b"abcdef", "in its own order for all others");
}

#[tokio::test]
async fn an_error_reaches_all_waiters_and_the_next_reader_may_try_again() {
    let single_flight = Arc::<SingleFlight>::default();
    let (leader, mut first) = lead(&single_flight, 6);
    let mut second = follow(&single_flight);
    leader.push(Bytes::from_static(b"abc"));
    leader.fail(FetchError::Changed);
    assert!(matches!(next(&mut first).await, Some(Err(FetchError::Changed))));
    assert!(matches!(next(&mut second).await, Some(Err(FetchError::Changed))));
    lead(&single_flight, 6);
}

#[tokio::test]
async fn the_first_to_leave_cancels_nothing_and_the_last_is_noticed() {
    let single_flight = Arc::<SingleFlight>::default();
    let (leader, first) = lead(&single_flight, 6);
    let second = follow(&single_flight);
    drop(first);
    assert!(leader.has_waiters());
    drop(second);
    assert!(!leader.has_waiters());
}

#[tokio::test]
async fn a_leader_that_is_dropped_fails_its_fetch() {
    let single_flight = Arc::<SingleFlight>::default();
    let (leader, mut waiter) = lead(&single_flight, 6);
    drop(leader);
    assert!(matches!(
        next(&mut waiter).await,
        Some(Err(FetchError::Abandoned))
    ));
    assert_eq!(single_flight.count(), 0);
}
