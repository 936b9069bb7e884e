//! Tests of the board.

use proptest::collection::vec;
use proptest::prelude::{any, proptest};

use super::{
    AHEAD_MAX_MS, BYTES_MAX, Board, COUNTER_START, COUNTER_STEP_MS, FLOOR, Floor, Key, Kind, LIFE_MAX,
    NotTaken, RECORD_BYTES_MAX, RECORDS_MAX, Record, Stamp,
};

fn key(id: u128) -> Key {
    Key {
        id,
        kind: Kind::Progress,
    }
}

fn record(counter: u64, node: u64, text: &str) -> Record {
    Record {
        stamp: Stamp { counter, node },
        expires_ms: 1_000,
        body: text.as_bytes().into(),
    }
}

#[test]
fn the_later_record_wins_and_of_equally_late_ones_that_of_the_greater_node() {
    let mut board = Board::default();
    board.take(key(1), record(2, 5, "second"), 0).unwrap();
    assert_eq!(board.take(key(1), record(1, 9, "first"), 0), Err(NotTaken::Known));
    assert_eq!(board.take(key(1), record(2, 5, "again"), 0), Err(NotTaken::Known));
    board.take(key(1), record(2, 6, "beside"), 0).unwrap();
    assert_eq!(&*board.get(key(1)).unwrap().body, b"beside");
    assert_eq!(board.next_stamp(key(1), 3), Stamp { counter: 3, node: 3 });
}

#[test]
fn records_whose_time_is_over_are_forgotten_and_not_taken_again() {
    let mut board = Board::default();
    board.take(key(1), record(1, 1, "a"), 999).unwrap();
    assert!(!board.forget_expired(999));
    assert!(board.forget_expired(1_000));
    assert_eq!((board.len(), board.bytes()), (0, 0));
    assert_eq!(board.digests(), Board::default().digests());
    assert_eq!(
        board.take(key(1), record(1, 1, "a"), 1_000),
        Err(NotTaken::Expired)
    );
}

#[test]
fn records_are_bounded_in_size_and_number_and_known_ones_change_in_a_full_board() {
    let mut board = Board::default();
    let large = "x".repeat(RECORD_BYTES_MAX + 1);
    assert_eq!(
        board.take(key(0), record(1, 1, &large), 0),
        Err(NotTaken::TooLarge)
    );
    for id in 0..RECORDS_MAX as u128 {
        board.take(key(id), record(1, 1, ""), 0).unwrap();
    }
    let one_more = key(RECORDS_MAX as u128);
    assert_eq!(board.take(one_more, record(1, 1, ""), 0), Err(NotTaken::Full));
    board.take(key(7), record(2, 1, "changed"), 0).unwrap();

    let (mut board, largest) = (Board::default(), &large[1..]);
    let fitting = BYTES_MAX / largest.len();
    for id in 0..fitting as u128 {
        board.take(key(id), record(1, 1, largest), 0).unwrap();
    }
    assert_eq!(
        board.take(one_more, record(1, 1, largest), 0),
        Err(NotTaken::Full)
    );
    assert_eq!(board.take(key(7), record(2, 1, largest), 0), Ok(()));
}

/// Returns the key of an id that was made at this time.
fn made_at(ms: u64, number: u64) -> Key {
    key(u128::from(ms) << 80 | u128::from(number))
}

#[test]
fn numbers_that_no_node_writes_are_refused_and_no_record_becomes_final() {
    let mut board = Board::default();
    let now = 1 << 40;
    let life = LIFE_MAX.as_millis() as u64;
    let of = |counter, expires_ms| Record {
        expires_ms,
        ..record(counter, 9, "{}")
    };
    for (key, record) in [
        (made_at(now, 1), of(1, u64::MAX)),
        (made_at(now, 1), of(1, now + 2 * life)),
        (made_at(now, 1), of(u64::MAX, now + life)),
        (made_at(now + 2 * AHEAD_MAX_MS, 1), of(1, now + life)),
        (
            Key {
                id: u128::MAX,
                ..FLOOR
            },
            of(1, now + life),
        ),
        (FLOOR, of(1, now + life)),
    ] {
        assert_eq!(
            board.take(key, record.clone(), now),
            Err(NotTaken::Absurd),
            "{record:?}"
        );
    }
    // The greatest counter that is taken now can be replaced a moment later.
    let key = made_at(now - 1_000, 1);
    let greatest = COUNTER_START + 1_000 / COUNTER_STEP_MS;
    assert_eq!(
        board.take(key, of(greatest + 1, now + life), now),
        Err(NotTaken::Absurd)
    );
    board.take(key, of(greatest, now + life), now).unwrap();
    let stamp = board.next_stamp(key, 1);
    let mine = Record {
        stamp,
        ..of(1, now + life)
    };
    assert_eq!(board.take(key, mine.clone(), now), Err(NotTaken::Absurd));
    board.take(key, mine, now + COUNTER_STEP_MS).unwrap();
}

#[test]
fn an_author_that_fills_the_board_makes_room_for_the_others() {
    let mut board = Board::default();
    board.set_members([1, 2].into());
    board.take(key(0), record(1, 1, "an order"), 0).unwrap();
    // Names of nodes that are none share one room.
    for id in 1..RECORDS_MAX as u128 {
        let author = 3 + id as u64;
        board.take(key(id), record(1, author, ""), 0).unwrap();
    }
    let more = |id: usize| key((RECORDS_MAX + id) as u128);
    assert_eq!(board.take(more(0), record(1, 77, ""), 0), Err(NotTaken::Full));
    for id in 0..100 {
        board.take(more(id), record(1, 2, "another order"), 0).unwrap();
    }
    assert_eq!((board.room_of(1).records, board.room_of(2).records), (1, 100));
    assert!(board.get(key(0)).is_some() && board.len() <= RECORDS_MAX);
}

#[test]
fn the_records_of_forgotten_ids_go_and_do_not_come_back() {
    let mut board = Board::default();
    let now = 1_000_000;
    let of = |counter| Record {
        expires_ms: now + 1_000,
        ..record(counter, 1, "{}")
    };
    for number in 1..=4 {
        board.take(made_at(0, number), of(1), now).unwrap();
    }
    let floor = Floor {
        below: made_at(0, 3).id,
        kept: [made_at(0, 2).id].into(),
    };
    let put = |floor: &Floor, counter| Record {
        body: postcard::to_stdvec(floor).unwrap().into(),
        ..of(counter)
    };
    let young = Floor {
        below: made_at(now + AHEAD_MAX_MS, 1).id,
        ..Floor::default()
    };
    assert_eq!(board.take(FLOOR, put(&young, 1), now), Err(NotTaken::Absurd));
    board.take(FLOOR, put(&floor, 1), now).unwrap();
    let left: Vec<u128> = board.records().map(|(key, _)| key.id).collect();
    assert_eq!(left, [0, 2, 4]);
    assert_eq!(board.take(made_at(0, 1), of(9), now), Err(NotTaken::Expired));
    board.take(made_at(0, 2), of(2), now).unwrap();
    assert_eq!(board.room_of(1).records, board.len());
}

proptest! {
    #[test]
    fn boards_that_received_the_same_records_in_any_order_are_equal(
        writes in vec((0..40_u128, 1..5_u64, 0..3_u64), 0..60),
        seed in any::<u64>(),
    ) {
        let mut shuffled = writes.clone();
        fastrand::Rng::with_seed(seed).shuffle(&mut shuffled);
        let [one, other] = [writes, shuffled].map(|writes| {
            let mut board = Board::default();
            for (id, counter, node) in writes {
                let _ = board.take(key(id), record(counter, node, "body"), 0);
            }
            board
        });
        assert!(one.records().eq(other.records()));
        assert_eq!(one.digests(), other.digests());
        assert!(one.differing(&other.digests()[..]).is_empty());
    }
}
