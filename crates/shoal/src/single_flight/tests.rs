//! Tests how flights are boarded, land and fail.

use std::future::poll_fn;

use shoal_policy::VersionId;

use super::*;

const ID: BlockId = BlockId {
    version: VersionId([7; 16]),
    index: 0,
};

fn shipment(len: u64, first: u64) -> Shipment {
    Shipment { id: ID, len, first }
}

fn lead(flights: &Arc<Flights>, len: u64) -> (Pilot, Passenger) {
    lead_from(flights, len, 0)
}

fn lead_from(flights: &Arc<Flights>, len: u64, first: u64) -> (Pilot, Passenger) {
    match flights.join(shipment(len, first), &Arc::default(), || false) {
        Join::Lead(pilot, passenger) => (pilot, passenger),
        other => panic!("nobody else flies: {other:?}"),
    }
}

fn follow(flights: &Arc<Flights>) -> Passenger {
    match flights.join(shipment(6, 0), &Arc::default(), || false) {
        Join::Aboard(passenger) => passenger,
        other => panic!("the block is on its way: {other:?}"),
    }
}

async fn next(passenger: &mut Passenger) -> Option<Result<Bytes, FlightError>> {
    poll_fn(|cx| passenger.poll_piece(cx)).await
}

async fn rest(mut passenger: Passenger) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(piece) = next(&mut passenger).await {
        bytes.extend_from_slice(&piece.unwrap());
    }
    bytes
}

#[tokio::test]
async fn everyone_aboard_reads_the_same_bytes_as_they_arrive() {
    let flights = Arc::<Flights>::default();
    let (pilot, mut first) = lead(&flights, 6);
    let second = tokio::spawn(rest(follow(&flights)));
    pilot.push(Bytes::from_static(b"abc"));
    assert_eq!(
        next(&mut first).await.unwrap().unwrap(),
        "abc",
        "before the block is complete"
    );
    pilot.push(Bytes::from_static(b"def"));
    assert_eq!(second.await.unwrap(), b"abcdef");
    assert_eq!(flights.coalesced(), 1);
}

#[tokio::test]
async fn a_block_that_is_here_as_a_whole_is_nobodys_wait_and_this_nodes_own() {
    let flights = Arc::<Flights>::default();
    let holds = |flights: &Flights| flights.holds(ID, || false);
    let (pilot, leader) = lead(&flights, 6);
    pilot.push(Bytes::from_static(b"abc"));
    let early = follow(&flights);
    assert!(!holds(&flights));
    assert!(flights.board_whole(ID).is_none());
    pilot.push(Bytes::from_static(b"def"));
    let late = follow(&flights);
    let latest = flights.board_whole(ID).expect("it is whole");
    assert!(holds(&flights));
    let sources = [&leader, &early, &late, &latest].map(Passenger::source);
    assert_eq!(
        sources,
        [Source::Lake, Source::Lake, Source::Local, Source::Local]
    );
    assert_eq!(flights.coalesced(), 1, "the late one waits for nothing");
    assert_eq!(rest(late).await, b"abcdef");
    pilot.keep();
    assert!(!holds(&flights), "the disk did not take it");
    assert!(
        flights.holds(ID, || true),
        "what has landed is the store's to know"
    );
}

#[tokio::test]
async fn a_landed_block_serves_the_rest_from_its_mapping() {
    let flights = Arc::<Flights>::default();
    let (pilot, mut passenger) = lead(&flights, 6);
    pilot.push(Bytes::from_static(b"ab"));
    assert_eq!(next(&mut passenger).await.unwrap().unwrap(), "ab");
    pilot.push(Bytes::from_static(b"cdef"));
    pilot.land(Bytes::from_static(b"ABCDEF"));
    assert_eq!(rest(passenger).await, b"CDEF");
    assert_eq!(flights.count(), 0);
    assert!(matches!(
        flights.join(shipment(6, 0), &Arc::default(), || true),
        Join::Landed
    ));
}

#[tokio::test]
async fn a_passenger_may_start_in_the_middle() {
    let flights = Arc::<Flights>::default();
    let (pilot, mut passenger) = lead(&flights, 6);
    passenger.seek(4);
    pilot.push(Bytes::from_static(b"abc"));
    pilot.push(Bytes::from_static(b"def"));
    pilot.keep();
    assert_eq!(rest(passenger).await, b"ef");
}

#[tokio::test]
async fn a_block_may_arrive_from_its_middle_on() {
    let flights = Arc::<Flights>::default();
    let (pilot, mut ranged) = lead_from(&flights, 6, 4);
    let whole = tokio::spawn(rest(follow(&flights)));
    ranged.seek(4);
    pilot.push(Bytes::from_static(b"e"));
    assert_eq!(next(&mut ranged).await.unwrap().unwrap(), "e", "it came first");
    for piece in ["f", "ab", "cd"] {
        pilot.push(Bytes::from_static(piece.as_bytes()));
    }
    assert_eq!(rest(ranged).await, b"f");
    assert_eq!(pilot.pieces().concat(), b"abcdef");
    assert_eq!(
        whole.await.unwrap(),
        b"abcdef",
        "in its own order for everybody else"
    );
}

#[tokio::test]
async fn an_error_is_an_error_for_everyone_and_the_next_may_try_again() {
    let flights = Arc::<Flights>::default();
    let (pilot, mut first) = lead(&flights, 6);
    let mut second = follow(&flights);
    pilot.push(Bytes::from_static(b"abc"));
    pilot.fail(FlightError::Changed);
    assert!(matches!(next(&mut first).await, Some(Err(FlightError::Changed))));
    assert!(matches!(next(&mut second).await, Some(Err(FlightError::Changed))));
    lead(&flights, 6);
}

#[tokio::test]
async fn the_first_to_leave_cancels_nothing_and_the_last_is_noticed() {
    let flights = Arc::<Flights>::default();
    let (pilot, first) = lead(&flights, 6);
    let second = follow(&flights);
    drop(first);
    assert!(pilot.is_awaited());
    drop(second);
    assert!(!pilot.is_awaited());
}

#[tokio::test]
async fn a_pilot_that_vanishes_fails_its_flight() {
    let flights = Arc::<Flights>::default();
    let (pilot, mut passenger) = lead(&flights, 6);
    drop(pilot);
    assert!(matches!(
        next(&mut passenger).await,
        Some(Err(FlightError::Abandoned))
    ));
    assert_eq!(flights.count(), 0);
}
