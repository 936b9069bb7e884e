//! The records of a bulletin and how those of two nodes become the same. Pure: no I/O, no clock, no chance.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The number of groups that two nodes compare by digest. A change costs the exchange of one group.
pub const BUCKETS: usize = 256;

/// The largest record in bytes.
pub const RECORD_BYTES_MAX: usize = 16 << 10;

/// The most records.
pub const RECORDS_MAX: usize = 32 << 10;

/// The most bytes of all records together.
pub const BYTES_MAX: usize = 16 << 20;

/// Kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u8)]
pub enum Kind {
    /// An operator's order. It is written once.
    Order = 1,
    /// The progress of an order, from the node that carries it out.
    Progress = 2,
    /// The early end of an order. It is written once, so that it wins over all progress.
    Cancel = 3,
}

/// Names a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// The id of the task or plan; a ULID, so that later ones are greater.
    pub id: u128,
    /// The kind of the record.
    pub kind: Kind,
}

/// The age of a record. Of two records with one key, the one with the greater stamp is right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stamp {
    /// One more than that of the record that it replaced.
    pub counter: u64,
    /// The node that wrote it.
    pub node: u64,
}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its age.
    pub stamp: Stamp,
    /// When every node forgets it, in milliseconds since 1970.
    pub expires_ms: u64,
    /// Its content.
    pub body: Arc<[u8]>,
}

/// Why a record is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// An equal or a newer one is here.
    #[error("the record is not newer than the one that is known")]
    Known,
    /// All nodes have forgotten it, or will before it arrives.
    #[error("the record's time is over")]
    Expired,
    /// It is larger than a record may be.
    #[error("a record has at most {RECORD_BYTES_MAX} bytes")]
    TooLarge,
    /// There are as many records as there may be.
    #[error("there are as many records as the nodes keep")]
    Full,
}

/// The records that one node knows.
#[derive(Clone, Debug)]
pub struct Board {
    records: BTreeMap<Key, Record>,
    bytes: usize,
    digests: Box<[u64; BUCKETS]>,
}

impl Default for Board {
    fn default() -> Self {
        Self {
            records: BTreeMap::new(),
            bytes: 0,
            digests: Box::new([0; BUCKETS]),
        }
    }
}

impl Board {
    /// The record of this key.
    pub fn get(&self, key: Key) -> Option<&Record> {
        self.records.get(&key)
    }

    /// All records, in the order of their keys.
    pub fn records(&self) -> impl Iterator<Item = (Key, &Record)> {
        self.records.iter().map(|(key, record)| (*key, record))
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// The bytes of all records.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// The stamp of a record that `node` writes now in place of the one of this key.
    pub fn next_stamp(&self, key: Key, node: u64) -> Stamp {
        let counter = self.get(key).map_or(0, |record| record.stamp.counter);
        Stamp {
            counter: counter.saturating_add(1),
            node,
        }
    }

    /// Takes a record, written here or by another node, if it is newer than the one that is here.
    ///
    /// # Errors
    ///
    /// Says why the record is not taken.
    pub fn take(&mut self, key: Key, record: Record, now_ms: u64) -> Result<(), NotTaken> {
        let before = self.records.get(&key);
        if record.expires_ms <= now_ms {
            return Err(NotTaken::Expired);
        }
        if before.is_some_and(|before| before.stamp >= record.stamp) {
            return Err(NotTaken::Known);
        }
        if record.body.len() > RECORD_BYTES_MAX {
            return Err(NotTaken::TooLarge);
        }
        let bytes = self.bytes - before.map_or(0, |before| before.body.len()) + record.body.len();
        if bytes > BYTES_MAX || (before.is_none() && self.records.len() >= RECORDS_MAX) {
            return Err(NotTaken::Full);
        }
        self.drop_record(key);
        self.digests[bucket(key)] ^= digest(key, record.stamp);
        self.bytes += record.body.len();
        self.records.insert(key, record);
        Ok(())
    }

    /// Forgets the records whose time is over. Returns whether there were any.
    pub fn forget_expired(&mut self, now_ms: u64) -> bool {
        let expired = self
            .records
            .iter()
            .filter(|(_, record)| record.expires_ms <= now_ms);
        let expired: Vec<Key> = expired.map(|(key, _)| *key).collect();
        for key in &expired {
            self.drop_record(*key);
        }
        !expired.is_empty()
    }

    /// Digests of all groups; two nodes with the same records have the same.
    pub fn digests(&self) -> &[u64; BUCKETS] {
        &self.digests
    }

    /// The groups whose digests differ from another node's.
    pub fn differing(&self, others: &[u64]) -> Vec<u8> {
        let pairs = self.digests.iter().zip(others).zip(0..=u8::MAX);
        pairs
            .filter(|((mine, theirs), _)| mine != theirs)
            .map(|(_, bucket)| bucket)
            .collect()
    }

    /// The keys and stamps of a group.
    pub fn stamps(&self, of: u8) -> impl Iterator<Item = (Key, Stamp)> {
        let records = self.records.iter();
        records
            .filter(move |(key, _)| bucket(**key) == usize::from(of))
            .map(|(key, record)| (*key, record.stamp))
    }

    fn drop_record(&mut self, key: Key) {
        if let Some(record) = self.records.remove(&key) {
            self.digests[bucket(key)] ^= digest(key, record.stamp);
            self.bytes -= record.body.len();
        }
    }
}

/// The group of a key: by the random part of its id, so that groups are equally large.
fn bucket(key: Key) -> usize {
    (key.id % BUCKETS as u128) as usize
}

fn digest(key: Key, stamp: Stamp) -> u64 {
    let mut hasher = Sha256::new();
    hasher.update(key.id.to_le_bytes());
    hasher.update([key.kind as u8]);
    hasher.update(stamp.counter.to_le_bytes());
    hasher.update(stamp.node.to_le_bytes());
    let digest = hasher.finalize();
    u64::from_le_bytes(*digest.first_chunk().expect("SHA-256 has 32 bytes"))
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{any, proptest};

    use super::{BYTES_MAX, Board, Key, Kind, NotTaken, RECORD_BYTES_MAX, RECORDS_MAX, Record, Stamp};

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
    fn what_has_had_its_time_is_forgotten_and_not_taken_again() {
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

    proptest! {
        #[test]
        fn boards_that_heard_the_same_in_any_order_are_equal(
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
}
