//! The records of a bulletin and how those of two nodes become the same. Pure: no I/O, no clock, no chance.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The number of groups that two nodes compare by digest. A change costs the exchange of one group.
pub const BUCKETS: usize = 256;

/// The largest record in bytes.
pub const RECORD_BYTES_MAX: usize = 16 << 10;

/// Maximum number of records.
pub const RECORDS_MAX: usize = 32 << 10;

/// Maximum number of bytes of all records together.
pub const BYTES_MAX: usize = 16 << 20;

/// A full board makes this much room at a time.
const ROOM_MADE: usize = 16;

/// Maximum lifetime of a record: an order may pin for 400 days, and is remembered a day longer.
pub const LIFE_MAX: Duration = Duration::from_hours(402 * 24);

/// Maximum time by which the clock of a node may be ahead.
const AHEAD_MAX_MS: u64 = 3_600_000;

/// A record may have been replaced this many times, and once more in each of these intervals since its id was
/// made. No writer is quicker, and none can make a record that nobody may replace.
const COUNTER_START: u64 = 10_000;
const COUNTER_STEP_MS: u64 = 100;

/// The key of the record that says which ids are forgotten. No task has its id.
pub const FLOOR: Key = Key {
    id: 0,
    kind: Kind::Cancel,
};

/// Maximum number of ids that [`Floor`] keeps, so that its record fits.
pub const FLOOR_KEPT_MAX: usize = 700;

/// The age from which ids may be forgotten: all nodes have the orders that were accepted earlier.
pub const FLOOR_AGE: Duration = Duration::from_mins(1);

/// The ids whose records all nodes forget before their time: old ones make room for new ones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Floor {
    /// The greatest of them.
    pub below: u128,
    /// The lower ones that are kept.
    pub kept: BTreeSet<u128>,
}

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
    /// The last run of a job. It is no order, and is not forgotten with old orders.
    Job = 4,
}

/// Names a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// The id of the task; a ULID, so that later ones are greater.
    pub id: u128,
    /// The kind of the record.
    pub kind: Kind,
}

impl Key {
    /// Returns the time at which its id was made, in milliseconds since 1970.
    const fn made_ms(self) -> u64 {
        (self.id >> 80) as u64
    }
}

impl Floor {
    /// Returns true if the records of an id are forgotten.
    fn is_over(&self, key: Key) -> bool {
        key.id != FLOOR.id && key.kind != Kind::Job && key.id <= self.below && !self.kept.contains(&key.id)
    }
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

/// The reason why a record is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// An equal or a newer one is here.
    #[error("the record is not newer than the one that is known")]
    Known,
    /// All nodes have forgotten it, or will before it arrives.
    #[error("the record's time is over")]
    Expired,
    /// No node would write such a record: its expiry or its counter is beyond all bounds, or its id is.
    #[error("the record has an expiry, a counter or an id that no node writes")]
    Absurd,
    /// It is larger than a record may be.
    #[error("a record has at most {RECORD_BYTES_MAX} bytes")]
    TooLarge,
    /// There are as many records as there may be.
    #[error("there are as many records as the nodes keep")]
    Full,
}

/// The records that one node has.
#[derive(Clone, Debug)]
pub struct Board {
    records: BTreeMap<Key, Record>,
    bytes: usize,
    digests: Box<[u64; BUCKETS]>,
    floor: Floor,
    /// The authors that have room of their own. All others share the room of one.
    members: BTreeSet<u64>,
    /// The room that the records of each author take.
    rooms: BTreeMap<Option<u64>, Room>,
    /// The keys of the records that were taken, replaced or dropped since [`Board::take_changed`] was called.
    changed: BTreeSet<Key>,
}

/// The room that some records take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Their number.
    pub records: usize,
    /// Their bytes.
    pub bytes: usize,
}

impl Default for Board {
    fn default() -> Self {
        Self {
            records: BTreeMap::new(),
            bytes: 0,
            digests: Box::new([0; BUCKETS]),
            floor: Floor::default(),
            members: BTreeSet::new(),
            rooms: BTreeMap::new(),
            changed: BTreeSet::new(),
        }
    }
}

impl Board {
    /// Returns the record of this key.
    pub fn get(&self, key: Key) -> Option<&Record> {
        self.records.get(&key)
    }

    /// Returns all records, in the order of their keys.
    pub fn records(&self) -> impl Iterator<Item = (Key, &Record)> {
        self.records.iter().map(|(key, record)| (*key, record))
    }

    /// Returns the number of records.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Returns the bytes of all records.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the ids that are forgotten.
    pub const fn floor(&self) -> &Floor {
        &self.floor
    }

    /// Gives each of these authors room of its own.
    pub fn set_members(&mut self, members: BTreeSet<u64>) {
        if members == self.members {
            return;
        }
        self.members = members;
        self.rooms.clear();
        let records = self.records.values();
        let sizes: Vec<_> = records
            .map(|record| (record.stamp.node, record.body.len()))
            .collect();
        for (author, bytes) in sizes {
            let room = self.room_mut(author);
            room.records += 1;
            room.bytes += bytes;
        }
    }

    /// Returns the number of authors that have room of their own.
    pub fn member_count(&self) -> usize {
        self.members.len()
    }

    /// Returns the room that the records of an author take. Authors that are no members share one room.
    pub fn room_of(&self, author: u64) -> Room {
        self.rooms.get(&self.owner(author)).copied().unwrap_or_default()
    }

    fn room_mut(&mut self, author: u64) -> &mut Room {
        self.rooms.entry(self.owner(author)).or_default()
    }

    /// Returns the owner of the room for the records of an author: itself if it is a member.
    fn owner(&self, author: u64) -> Option<u64> {
        self.members.contains(&author).then_some(author)
    }

    /// Returns the stamp of a record that `node` writes now in place of the one of this key.
    pub fn next_stamp(&self, key: Key, node: u64) -> Stamp {
        let counter = self.get(key).map_or(0, |record| record.stamp.counter);
        Stamp {
            counter: counter.saturating_add(1),
            node,
        }
    }

    /// Takes a record, written here or by another node, if it is newer than the known one.
    ///
    /// # Errors
    ///
    /// Fails if the record is not taken.
    pub fn take(&mut self, key: Key, record: Record, now_ms: u64) -> Result<(), NotTaken> {
        let before = self.records.get(&key);
        if record.expires_ms <= now_ms {
            return Err(NotTaken::Expired);
        }
        if before.is_some_and(|before| before.stamp >= record.stamp) {
            return Err(NotTaken::Known);
        }
        if self.floor.is_over(key) {
            return Err(NotTaken::Expired);
        }
        if record.body.len() > RECORD_BYTES_MAX {
            return Err(NotTaken::TooLarge);
        }
        let floor = checked(key, &record, now_ms)?;
        let grows = record
            .body
            .len()
            .saturating_sub(before.map_or(0, |before| before.body.len()));
        if self.bytes + grows > BYTES_MAX || (before.is_none() && self.records.len() >= RECORDS_MAX) {
            self.make_room(key, record.stamp.node)?;
        }
        self.drop_record(key);
        self.digests[bucket(key)] ^= digest(key, record.stamp);
        self.bytes += record.body.len();
        let room = self.room_mut(record.stamp.node);
        room.records += 1;
        room.bytes += record.body.len();
        self.records.insert(key, record);
        self.changed.insert(key);
        if let Some(floor) = floor {
            self.floor = floor;
            self.drop_where(|floor, key, _| floor.is_over(key));
        }
        debug_assert!(
            self.bytes <= BYTES_MAX && self.records.len() <= RECORDS_MAX,
            "the records stay within their bounds"
        );
        debug_assert_eq!(
            self.rooms.values().map(|room| room.bytes).sum::<usize>(),
            self.bytes,
            "each byte is in the room of one author"
        );
        Ok(())
    }

    /// Makes room for a record of `author`: drops records of the author that has most of them, unless that is
    /// this one.
    fn make_room(&mut self, key: Key, author: u64) -> Result<(), NotTaken> {
        let mine = self.owner(author);
        let share = |room: &Room| (room.bytes * RECORDS_MAX).max(room.records * BYTES_MAX);
        let heaviest = self.rooms.iter().max_by_key(|(_, room)| share(room));
        let heaviest = heaviest.map(|(owner, _)| *owner).filter(|owner| *owner != mine);
        let heaviest = heaviest.ok_or(NotTaken::Full)?;
        // The latest of them came last.
        let latest = self.records.iter().rev();
        let of_heaviest =
            latest.filter(|(other, record)| self.owner(record.stamp.node) == heaviest && **other != key);
        let (mut records, mut bytes) = (0, 0);
        let enough = of_heaviest.take_while(|(_, record)| {
            let is_wanted = records < RECORDS_MAX / ROOM_MADE && bytes < BYTES_MAX / ROOM_MADE;
            (records, bytes) = (records + 1, bytes + record.body.len());
            is_wanted
        });
        let dropped: Vec<Key> = enough.map(|(key, _)| *key).collect();
        for other in dropped {
            self.drop_record(other);
        }
        let fits = self.bytes + RECORD_BYTES_MAX <= BYTES_MAX && self.records.len() < RECORDS_MAX;
        if fits { Ok(()) } else { Err(NotTaken::Full) }
    }

    /// Returns the keys of the records that have changed since the last call.
    pub fn take_changed(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.changed)
    }

    /// Forgets the records whose time is over. Returns true if there were any.
    pub fn forget_expired(&mut self, now_ms: u64) -> bool {
        self.drop_where(|_, _, record| record.expires_ms <= now_ms)
    }

    /// Drops records. Returns true if there were any.
    fn drop_where(&mut self, is_over: impl Fn(&Floor, Key, &Record) -> bool) -> bool {
        let records = self.records.iter();
        let over = records.filter(|(key, record)| is_over(&self.floor, **key, record));
        let over: Vec<Key> = over.map(|(key, _)| *key).collect();
        for key in &over {
            self.drop_record(*key);
        }
        !over.is_empty()
    }

    /// Returns the digests of all groups; two nodes with the same records have the same digests.
    pub fn digests(&self) -> &[u64; BUCKETS] {
        &self.digests
    }

    /// Returns the groups whose digests differ from another node's.
    pub fn differing(&self, others: &[u64]) -> Vec<u8> {
        let pairs = self.digests.iter().zip(others).zip(0..=u8::MAX);
        pairs
            .filter(|((mine, theirs), _)| mine != theirs)
            .map(|(_, bucket)| bucket)
            .collect()
    }

    /// Returns the keys and stamps of a group.
    pub fn stamps(&self, of: u8) -> impl Iterator<Item = (Key, Stamp)> {
        let records = self.records.iter();
        records
            .filter(move |(key, _)| bucket(**key) == usize::from(of))
            .map(|(key, record)| (*key, record.stamp))
    }

    fn drop_record(&mut self, key: Key) {
        if let Some(record) = self.records.remove(&key) {
            self.changed.insert(key);
            self.digests[bucket(key)] ^= digest(key, record.stamp);
            assert!(
                self.bytes >= record.body.len(),
                "the bytes of all records are counted"
            );
            self.bytes -= record.body.len();
            let room = self.room_mut(record.stamp.node);
            room.records -= 1;
            room.bytes -= record.body.len();
        }
    }
}

/// Checks the numbers of a record, which may come from another node. Returns its floor, if it has one.
fn checked(key: Key, record: &Record, now_ms: u64) -> Result<Option<Floor>, NotTaken> {
    let is_floor = key == FLOOR;
    let made_ms = if is_floor { now_ms } else { key.made_ms() };
    let life_ms = LIFE_MAX.as_millis() as u64 + AHEAD_MAX_MS;
    let replaced_max = COUNTER_START + now_ms.saturating_sub(key.made_ms()) / COUNTER_STEP_MS;
    if made_ms > now_ms + AHEAD_MAX_MS
        || record.expires_ms > made_ms.saturating_add(life_ms)
        || record.stamp.counter > replaced_max
    {
        return Err(NotTaken::Absurd);
    }
    if !is_floor {
        return Ok(None);
    }
    let floor: Floor = postcard::from_bytes(&record.body).map_err(|_| NotTaken::Absurd)?;
    let lowest_ms = (floor.below >> 80) as u64;
    // An order that was accepted lately may not be known here.
    if lowest_ms + FLOOR_AGE.as_millis() as u64 > now_ms + AHEAD_MAX_MS || floor.kept.len() > FLOOR_KEPT_MAX {
        return Err(NotTaken::Absurd);
    }
    Ok(Some(floor))
}

/// Returns the group of a key. It depends on the random part of the id, so that groups are equally large.
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
mod tests;
