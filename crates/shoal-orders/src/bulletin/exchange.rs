//! The exchange by which two nodes make their bulletins the same: the bodies of a `QUERY` of [`BULLETIN`],
//! serialized by `postcard`.
//!
//! One node sends digests of its groups. The other answers with the stamps of the groups that differ. The
//! first then gives its newer records, and asks for those that it lacks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use shoal_base::encoding::Malformed;

use super::board::{BUCKETS, Board, Key, RECORD_BYTES_MAX, Record, Stamp};

/// The path at which a node answers.
pub const BULLETIN: &str = "/bulletin";

/// The number of bytes of records after which a message takes no further record.
const RECORDS_BYTES: usize = 512 << 10;

/// The longest message or answer in bytes.
pub const MESSAGE_BYTES_MAX: usize = 2 << 20;

/// Maximum number of stamps in one answer. Groups that do not fit wait for the next round.
const STAMPS_MAX: usize = 16 << 10;

/// A message from one node to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// The digests of all groups.
    Compare(Vec<u64>),
    /// Records that are newer than those of the other node, and the keys of records wanted from it.
    Trade {
        /// To take.
        given: Vec<(Key, Record)>,
        /// To answer with.
        wanted: Vec<Key>,
    },
}

/// The answer to [`Message::Compare`]: the groups that differ, and what the other node has of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comparison {
    /// The groups.
    pub buckets: Vec<u8>,
    /// The stamps of their records.
    pub stamps: Vec<(Key, Stamp)>,
}

/// Reads a message or an answer.
///
/// # Errors
///
/// Fails if the bytes are not one, or are one of a later release.
pub fn read<T: for<'a> Deserialize<'a>>(bytes: &[u8]) -> Result<T, Malformed> {
    match postcard::take_from_bytes(bytes) {
        Ok((read, [])) => Ok(read),
        _ => Err(Malformed),
    }
}

/// Writes a message or an answer.
pub fn written(message: &impl Serialize) -> Vec<u8> {
    postcard::to_stdvec(message).expect("memory takes every message")
}

/// Compares the digests of another node with those of `board`.
pub fn compare(board: &Board, digests: &[u64]) -> Comparison {
    let mut comparison = Comparison::default();
    if digests.len() != BUCKETS {
        return comparison;
    }
    for bucket in board.differing(digests) {
        let before = comparison.stamps.len();
        comparison.stamps.extend(board.stamps(bucket));
        if comparison.stamps.len() > STAMPS_MAX && before > 0 {
            comparison.stamps.truncate(before);
            break;
        }
        comparison.buckets.push(bucket);
    }
    comparison
}

/// Returns the [`Message::Trade`] that follows a comparison: the records that are newer here, and the keys of
/// those that are newer at the other node.
pub fn trade(board: &Board, comparison: &Comparison) -> Message {
    let theirs: BTreeMap<Key, Stamp> = comparison.stamps.iter().copied().collect();
    let wanted = theirs.iter().filter(|(key, stamp)| {
        let mine = board.get(**key);
        mine.is_none_or(|mine| mine.stamp < **stamp)
    });
    let wanted = wanted.map(|(key, _)| *key).collect();
    let mine = comparison.buckets.iter().flat_map(|bucket| board.stamps(*bucket));
    let newer = mine.filter(|(key, stamp)| theirs.get(key).is_none_or(|theirs| theirs < stamp));
    Message::Trade {
        given: records(board, newer.map(|(key, _)| key)),
        wanted,
    }
}

/// Returns the records of some keys, as many as fit into a message.
pub fn records(board: &Board, keys: impl IntoIterator<Item = Key>) -> Vec<(Key, Record)> {
    let (mut records, mut bytes) = (Vec::new(), 0);
    for key in keys {
        let Some(record) = board.get(key) else { continue };
        // A key, a stamp and the lengths take less than this.
        bytes += record.body.len() + 64;
        records.push((key, record.clone()));
        if bytes > RECORDS_BYTES {
            break;
        }
    }
    records
}

const _: () = assert!(RECORDS_BYTES + RECORD_BYTES_MAX + STAMPS_MAX * 40 < MESSAGE_BYTES_MAX);

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, proptest};

    use super::super::board::Kind;
    use super::*;

    fn board(writes: &[(u128, u64, u64)]) -> Board {
        let mut board = Board::default();
        for &(id, counter, node) in writes {
            let record = Record {
                stamp: Stamp { counter, node },
                expires_ms: 1_000,
                body: format!("{id} {counter} {node}").into_bytes().into(),
            };
            let kind = Kind::Progress;
            let _ = board.take(Key { id, kind }, record, 0);
        }
        board
    }

    /// Runs one round, started by `one`, over messages as they are sent.
    fn round(one: &mut Board, other: &mut Board) {
        let Message::Compare(digests) = read(&written(&Message::Compare(one.digests().to_vec()))).unwrap()
        else {
            panic!("it was another message");
        };
        let comparison: Comparison = read(&written(&compare(other, &digests))).unwrap();
        let Message::Trade { given, wanted } = read(&written(&trade(one, &comparison))).unwrap() else {
            panic!("it was another message");
        };
        let answered = records(other, wanted);
        for (board, records) in [(other, given), (one, answered)] {
            for (key, record) in records {
                let _ = board.take(key, record, 0);
            }
        }
    }

    #[test]
    fn many_records_travel_in_several_rounds() {
        let writes: Vec<_> = (0..20_000).map(|id| (id, 1, 1)).collect();
        let (mut full, mut new) = (board(&writes), Board::default());
        let mut rounds = 0;
        while new.len() < full.len() {
            round(&mut new, &mut full);
            rounds += 1;
            assert!(rounds < 20, "{}", new.len());
        }
        assert!(rounds > 1, "one message does not carry all of them");
        assert_eq!(new.digests(), full.digests());
    }

    #[test]
    fn digests_of_another_release_are_answered_with_nothing() {
        assert_eq!(compare(&board(&[(1, 1, 1)]), &[0; 3]), Comparison::default());
    }

    proptest! {
        #[test]
        fn two_nodes_know_the_same_after_a_round(
            writes in vec((0..2000_u128, 1..4_u64, 0..3_u64), 0..40),
            others in vec((0..2000_u128, 1..4_u64, 0..3_u64), 0..40),
        ) {
            let (mut one, mut other) = (board(&writes), board(&others));
            round(&mut one, &mut other);
            assert!(one.records().eq(other.records()));
            let all: Vec<_> = writes.into_iter().chain(others).collect();
            assert_eq!(one.digests(), board(&all).digests());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
            let _ = read::<Message>(&bytes);
            let _ = read::<Comparison>(&bytes);
        }
    }
}
