//! Index of resident blocks by version and by object, with the place of each block's bytes.

use std::hash::{BuildHasher as _, BuildHasherDefault, Hash};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use shoal_policy::hash::KeyHasher;
use shoal_policy::{BlockId, ObjectId, VersionId};
use shoal_s3::object::Extent;

use crate::files::footer::StoredBlock;
use crate::files::place::{Address, Place};

/// The position of a version's record, for as long as one of its blocks is resident.
pub(crate) type Position = u32;

/// Ends a chain of records.
const NONE: Position = Position::MAX;

/// The versions with resident blocks, by version ID and by object.
///
/// Most versions are small objects of one block, so a record is 72 bytes, and both tables hold positions.
#[derive(Debug)]
pub(crate) struct Index {
    /// Size of every block except the last of a version, in bytes.
    block_bytes: u64,
    versions: HashTable<Position>,
    /// The first record of each object. Its other versions follow in a chain.
    objects: HashTable<Position>,
    records: Vec<Record>,
    /// Records without a version, chained.
    free: Position,
}

#[derive(Debug)]
struct Record {
    version: VersionId,
    object: ObjectId,
    /// The sequence number of the version's latest stored block. Orders the versions of an object.
    sequence: u64,
    size_bytes: u64,
    blocks: Blocks,
    /// Another version of the object, or another free record.
    next: Position,
}

/// The resident blocks of a version.
#[derive(Debug)]
enum Blocks {
    One(u32, Place),
    Many(Box<Many>),
}

#[derive(Debug, Default)]
struct Many {
    set: BlockSet,
    /// The blocks that lie in segments, by index. The others are files.
    entries: Vec<(u32, Address)>,
}

/// A set of block indexes, 64 per word. A whole object takes two bits per block, a single block of a large
/// object one entry.
#[derive(Debug, Default)]
struct BlockSet(Vec<(u32, u64)>);

impl Index {
    /// Creates an empty index of versions with blocks of `block_bytes`.
    pub(crate) fn new(block_bytes: u64) -> Self {
        Self {
            block_bytes,
            versions: HashTable::new(),
            objects: HashTable::new(),
            records: Vec::new(),
            free: NONE,
        }
    }

    /// Adds a block. Returns the position of its version's record.
    pub(crate) fn insert(&mut self, stored: &StoredBlock, place: Place) -> Position {
        let StoredBlock {
            id, object, extent, ..
        } = *stored;
        debug_assert_eq!(
            extent.block_bytes, self.block_bytes,
            "a store has blocks of one size"
        );
        debug_assert!(id.index < extent.block_count(), "a block is a part of its object");
        if let Some(position) = self.position(id.version) {
            let record = &mut self.records[position as usize];
            debug_assert_eq!(record.object, object, "a version is of one object");
            record.sequence = record.sequence.max(stored.sequence);
            record.blocks.insert(id.index, place);
            return position;
        }
        let position = self.add(Record {
            version: id.version,
            object,
            sequence: stored.sequence,
            size_bytes: extent.size_bytes,
            blocks: Blocks::One(id.index, place),
            next: NONE,
        });
        let records = &mut self.records;
        let is_of_object = |&first: &Position| records[first as usize].object == object;
        if let Some(first) = self.objects.find(hash(&object), is_of_object) {
            // Behind the first, so that the table stays as it is.
            let second = std::mem::replace(&mut records[*first as usize].next, position);
            records[position as usize].next = second;
        } else {
            let hash_of = |&first: &Position| hash(&records[first as usize].object);
            self.objects.insert_unique(hash(&object), position, hash_of);
        }
        position
    }

    /// Removes a block. Returns the place of its bytes; `None` if it was not in the index.
    pub(crate) fn remove(&mut self, block: BlockId) -> Option<Place> {
        let position = self.position(block.version)?;
        let record = &mut self.records[position as usize];
        let place = record.blocks.place(block.index)?;
        if record.blocks.remove(block.index) {
            self.forget(position);
        }
        Some(place)
    }

    /// Returns where the bytes of a block lie. `None` if it is not in the index.
    pub(crate) fn place(&self, block: BlockId) -> Option<Place> {
        self.record(block.version)?.blocks.place(block.index)
    }

    /// Changes the place of a resident block. Returns the position of its version's record.
    pub(crate) fn set_place(&mut self, block: BlockId, place: Place) -> Position {
        let position = self
            .position(block.version)
            .expect("a block that moves is resident");
        let blocks = &mut self.records[position as usize].blocks;
        blocks.remove_place(block.index);
        blocks.insert(block.index, place);
        position
    }

    /// Returns the block `index` of the version at a position, if it is resident, and where its bytes lie.
    pub(crate) fn block_at(&self, position: Position, index: u32) -> Option<(BlockId, Place)> {
        let record = self.records.get(position as usize)?;
        let place = record.blocks.place(index)?;
        let version = record.version;
        Some((BlockId { version, index }, place))
    }

    /// Returns the latest stored version of `object` that has a resident block.
    pub(crate) fn newest(&self, object: ObjectId) -> Option<VersionId> {
        let newest = self.versions_of(object).max_by_key(|record| record.sequence)?;
        Some(newest.version)
    }

    /// Returns true if several versions of `object` have resident blocks.
    pub(crate) fn has_older(&self, object: ObjectId) -> bool {
        self.versions_of(object).nth(1).is_some()
    }

    /// Returns the indexes of the resident blocks of `version`, ascending.
    pub(crate) fn blocks_of(&self, version: VersionId) -> Vec<u32> {
        let record = self.record(version);
        record.map(|record| record.blocks.indexes()).unwrap_or_default()
    }

    /// As [`Index::blocks_of`], as IDs.
    pub(crate) fn ids_of(&self, version: VersionId) -> Vec<BlockId> {
        let indexes = self.blocks_of(version).into_iter();
        indexes.map(|index| BlockId { version, index }).collect()
    }

    /// Returns the resident blocks of all versions of `object`.
    pub(crate) fn ids_of_object(&self, object: ObjectId) -> Vec<BlockId> {
        let versions = self.versions_of(object);
        versions.flat_map(|record| self.ids_of(record.version)).collect()
    }

    /// Returns the total number of blocks of a version; 0 if none of them is resident.
    pub(crate) fn blocks_in_all(&self, version: VersionId) -> u32 {
        self.extent(version).map_or(0, Extent::block_count)
    }

    /// Returns the length of a block in bytes; 0 if no block of its version is resident.
    pub(crate) fn block_len(&self, block: BlockId) -> u64 {
        let extent = self.extent(block.version);
        extent.map_or(0, |extent| extent.block_len(block.index))
    }

    /// Returns all versions, each with the sequence number of its latest stored block.
    pub(crate) fn versions(&self) -> Vec<(u64, VersionId)> {
        let records = self
            .versions
            .iter()
            .map(|&position| &self.records[position as usize]);
        records.map(|record| (record.sequence, record.version)).collect()
    }

    /// Returns a resident block of `version`, if there is one.
    pub(crate) fn any_block_of(&self, version: VersionId) -> Option<BlockId> {
        let index = *self.record(version)?.blocks.indexes().first()?;
        Some(BlockId { version, index })
    }

    fn extent(&self, version: VersionId) -> Option<Extent> {
        Some(Extent {
            size_bytes: self.record(version)?.size_bytes,
            block_bytes: self.block_bytes,
        })
    }

    fn versions_of(&self, object: ObjectId) -> impl Iterator<Item = &Record> {
        let is_of_object = |&first: &Position| self.records[first as usize].object == object;
        let first = self.objects.find(hash(&object), is_of_object);
        let record = |position: Position| self.records.get(position as usize);
        std::iter::successors(first.and_then(|&first| record(first)), move |before| {
            record(before.next)
        })
    }

    fn record(&self, version: VersionId) -> Option<&Record> {
        Some(&self.records[self.position(version)? as usize])
    }

    fn position(&self, version: VersionId) -> Option<Position> {
        let is_it = |&position: &Position| self.records[position as usize].version == version;
        self.versions.find(hash(&version), is_it).copied()
    }

    /// Adds a record that is in no chain yet.
    fn add(&mut self, record: Record) -> Position {
        let version = record.version;
        let position = if self.free == NONE {
            self.records.push(record);
            Position::try_from(self.records.len() - 1).expect("fewer than four billion versions are held")
        } else {
            let position = self.free;
            self.free = std::mem::replace(&mut self.records[position as usize], record).next;
            position
        };
        let records = &self.records;
        let hash_of = |&position: &Position| hash(&records[position as usize].version);
        self.versions.insert_unique(hash(&version), position, hash_of);
        position
    }

    /// Removes the record of a version without blocks.
    fn forget(&mut self, position: Position) {
        let Record {
            version,
            object,
            next,
            ..
        } = self.records[position as usize];
        let entry = self
            .versions
            .find_entry(hash(&version), |&other| other == position);
        entry.expect("a held version is in the table").remove();
        let records = &mut self.records;
        let is_of_object = |&first: &Position| records[first as usize].object == object;
        let hash_of = |&first: &Position| hash(&records[first as usize].object);
        let Entry::Occupied(mut first) = self.objects.entry(hash(&object), is_of_object, hash_of) else {
            unreachable!("the object of a held version is in the table");
        };
        if *first.get() != position {
            let mut before = *first.get();
            while records[before as usize].next != position {
                before = records[before as usize].next;
            }
            records[before as usize].next = next;
        } else if next == NONE {
            first.remove();
        } else {
            *first.get_mut() = next;
        }
        // No slot of a segment finds a block here.
        records[position as usize].blocks = Blocks::One(u32::MAX, Place::File);
        records[position as usize].next = self.free;
        self.free = position;
    }
}

/// Versions and objects are digests.
fn hash(key: &impl Hash) -> u64 {
    BuildHasherDefault::<KeyHasher>::default().hash_one(key)
}

impl Blocks {
    fn place(&self, index: u32) -> Option<Place> {
        match self {
            Self::One(one, place) => (*one == index).then_some(*place),
            Self::Many(many) => many.set.contains(index).then(|| many.place(index)),
        }
    }

    fn insert(&mut self, index: u32, place: Place) {
        if let Self::One(one, old) = *self {
            if one == index {
                *self = Self::One(index, place);
                return;
            }
            let mut many = Box::<Many>::default();
            many.insert(one, old);
            *self = Self::Many(many);
        }
        if let Self::Many(many) = self {
            many.insert(index, place);
        }
    }

    /// Removes a block that is here. Returns true if it was the last one.
    fn remove(&mut self, index: u32) -> bool {
        self.remove_place(index);
        match self {
            Self::One(..) => true,
            Self::Many(many) => {
                many.set.remove(index);
                many.set.0.is_empty()
            }
        }
    }

    /// Forgets in which segment a block lies.
    fn remove_place(&mut self, index: u32) {
        if let Self::Many(many) = self
            && let Ok(at) = many.entries.binary_search_by_key(&index, |entry| entry.0)
        {
            many.entries.remove(at);
        }
    }

    fn indexes(&self) -> Vec<u32> {
        match self {
            Self::One(index, _) => vec![*index],
            Self::Many(many) => many.set.iter().collect(),
        }
    }
}

impl Many {
    fn insert(&mut self, index: u32, place: Place) {
        self.set.insert(index);
        if let Place::Entry(address) = place {
            match self.entries.binary_search_by_key(&index, |entry| entry.0) {
                Ok(at) => self.entries[at].1 = address,
                Err(at) => self.entries.insert(at, (index, address)),
            }
        }
    }

    fn place(&self, index: u32) -> Place {
        let at = self.entries.binary_search_by_key(&index, |entry| entry.0);
        at.map_or(Place::File, |at| Place::Entry(self.entries[at].1))
    }
}

impl BlockSet {
    fn contains(&self, index: u32) -> bool {
        let at = self.0.binary_search_by_key(&(index / 64), |(word, _)| *word);
        at.is_ok_and(|at| self.0[at].1 & (1 << (index % 64)) != 0)
    }

    fn insert(&mut self, index: u32) {
        let (word, bit) = (index / 64, 1 << (index % 64));
        match self.0.binary_search_by_key(&word, |(word, _)| *word) {
            Ok(position) => self.0[position].1 |= bit,
            Err(position) => {
                // Most objects are one block or are read front to back. Growing by exactly one word keeps the
                // many small sets small.
                if self.0.len() < 4 {
                    self.0.reserve_exact(1);
                }
                self.0.insert(position, (word, bit));
            }
        }
    }

    fn remove(&mut self, index: u32) {
        let Ok(position) = self.0.binary_search_by_key(&(index / 64), |(word, _)| *word) else {
            return;
        };
        let bits = &mut self.0[position].1;
        *bits &= !(1 << (index % 64));
        if *bits == 0 {
            self.0.remove(position);
        }
    }

    fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().flat_map(|&(word, bits)| {
            (0..64)
                .filter(move |bit| bits & (1 << bit) != 0)
                .map(move |bit| word * 64 + bit)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::num::NonZeroU32;

    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, any, proptest};
    use shoal_policy::quotas::QuotaIds;
    use shoal_policy::{BlockId, ObjectId, VersionId};

    use super::{Address, BlockSet, Extent, Index, Place, Record, StoredBlock};

    const OBJECT: ObjectId = ObjectId([1; 16]);
    /// Of ten blocks, the last of which is short.
    const EXTENT: Extent = Extent {
        size_bytes: 75,
        block_bytes: 8,
    };

    fn block(version: u8, index: u32) -> BlockId {
        BlockId {
            version: VersionId([version; 16]),
            index,
        }
    }

    fn stored(id: BlockId, sequence: u64) -> StoredBlock {
        StoredBlock {
            id,
            object: OBJECT,
            extent: EXTENT,
            sequence,
            quotas: QuotaIds::default(),
        }
    }

    fn index_of(blocks: &[(u8, u32)]) -> Index {
        let mut index = Index::new(EXTENT.block_bytes);
        for (sequence, &(version, at)) in blocks.iter().enumerate() {
            index.insert(&stored(block(version, at), sequence as u64), Place::File);
        }
        index
    }

    #[test]
    fn a_record_is_small() {
        assert_eq!(size_of::<Record>(), 72);
    }

    #[test]
    fn the_version_stored_last_is_the_newest_until_its_last_block_leaves() {
        let mut index = index_of(&[(1, 0), (2, 0), (2, 9)]);
        assert_eq!(index.newest(OBJECT), Some(VersionId([2; 16])));
        assert_eq!(index.remove(block(2, 0)), Some(Place::File));
        assert_eq!(index.remove(block(2, 0)), None);
        assert_eq!(index.newest(OBJECT), Some(VersionId([2; 16])));
        index.remove(block(2, 9));
        assert_eq!(index.newest(OBJECT), Some(VersionId([1; 16])));
        index.remove(block(1, 0));
        assert_eq!(index.newest(OBJECT), None);
        assert!(
            index.objects.is_empty() && index.versions.is_empty(),
            "nothing is left behind"
        );
    }

    #[test]
    fn a_version_stored_again_is_the_newest_again() {
        let index = index_of(&[(1, 0), (2, 0), (1, 1)]);
        assert_eq!(index.newest(OBJECT), Some(VersionId([1; 16])));
        assert_eq!(index.blocks_of(VersionId([1; 16])), [0, 1]);
        assert_eq!(index.blocks_in_all(VersionId([1; 16])), 10);
        let lengths = [(1, 0), (1, 9), (3, 0)].map(|(version, at)| index.block_len(block(version, at)));
        assert_eq!(lengths, [8, 3, 0]);
        assert_eq!(index.versions_of(OBJECT).count(), 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_block_set_is_a_set(steps in vec((any::<bool>(), 0..300_u32), 0..200)) {
            let (mut set, mut model) = (BlockSet::default(), BTreeSet::new());
            for (insert, index) in steps {
                if insert { set.insert(index); model.insert(index); } else { set.remove(index); model.remove(&index); }
                assert!(set.iter().eq(model.iter().copied()));
                assert!((0..300).all(|index| set.contains(index) == model.contains(&index)));
                assert!(set.0.iter().all(|(_, bits)| *bits != 0));
            }
        }

        /// Blocks of some versions of some objects come, move and leave.
        #[test]
        fn an_index_knows_the_place_of_each_block(steps in vec((0..5_u8, 0..6_u8, 0..10_u32, 0..4_u32), 0..200)) {
            let mut index = Index::new(EXTENT.block_bytes);
            let mut model = BTreeMap::new();
            for (time, (step, version, at, segment)) in steps.into_iter().enumerate() {
                let (id, object) = (block(version, at), ObjectId([version / 3; 16]));
                let address = |segment| Address { segment, slot: time as u32 };
                let place = NonZeroU32::new(segment).map_or(Place::File, |segment| Place::Entry(address(segment)));
                if step == 0 {
                    assert_eq!(index.remove(id), model.remove(&id));
                } else if let Some(before) = model.get_mut(&id) {
                    let position = index.set_place(id, place);
                    *before = place;
                    assert_eq!(index.block_at(position, at), Some((id, place)));
                } else {
                    let position = index.insert(&StoredBlock { object, ..stored(id, time as u64) }, place);
                    model.insert(id, place);
                    assert_eq!(index.block_at(position, at), Some((id, place)));
                }
                for (version, at) in (0..6).flat_map(|version| (0..10).map(move |at| (version, at))) {
                    assert_eq!(index.place(block(version, at)), model.get(&block(version, at)).copied());
                }
                for number in 0..2 {
                    let of_object = model.keys().filter(|id| id.version.0[0] / 3 == number);
                    let mut blocks = index.ids_of_object(ObjectId([number; 16]));
                    blocks.sort_unstable();
                    assert!(blocks.iter().eq(of_object));
                }
            }
        }
    }
}
