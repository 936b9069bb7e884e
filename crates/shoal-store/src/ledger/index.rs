//! Index of resident blocks by version and by object.

use std::collections::HashMap;

use shoal_policy::{BlockId, ObjectId, VersionId};
use shoal_s3::object::Extent;

use crate::files::footer::StoredBlock;

/// The versions with resident blocks, by version ID and by object.
#[derive(Debug, Default)]
pub(crate) struct Index {
    versions: HashMap<VersionId, Held>,
    objects: HashMap<ObjectId, Vec<VersionId>>,
}

#[derive(Debug)]
struct Held {
    object: ObjectId,
    /// The sequence number of the version's latest stored block. Orders the versions of an object.
    sequence: u64,
    extent: Extent,
    blocks: BlockSet,
}

/// A set of block indexes, 64 per word. A whole object takes two bits per block, a single block of a large
/// object one entry.
#[derive(Debug, Default)]
struct BlockSet(Vec<(u32, u64)>);

impl Index {
    pub(crate) fn insert(&mut self, stored: &StoredBlock) {
        let StoredBlock { id, object, .. } = *stored;
        let held = self.versions.entry(id.version).or_insert_with(|| {
            self.objects.entry(object).or_default().push(id.version);
            Held {
                object,
                sequence: stored.sequence,
                extent: stored.extent,
                blocks: BlockSet::default(),
            }
        });
        debug_assert_eq!(held.object, object, "a version is of one object");
        debug_assert!(
            id.index < stored.extent.block_count(),
            "a block is a part of its object"
        );
        held.sequence = held.sequence.max(stored.sequence);
        held.blocks.insert(id.index);
    }

    /// Removes a block. Returns true if it was in the index.
    pub(crate) fn remove(&mut self, block: BlockId) -> bool {
        let Some(held) = self.versions.get_mut(&block.version) else {
            return false;
        };
        let was_here = held.blocks.remove(block.index);
        if held.blocks.0.is_empty() {
            let versions = self
                .objects
                .get_mut(&held.object)
                .expect("a version's object is known");
            versions.retain(|other| *other != block.version);
            if versions.is_empty() {
                self.objects.remove(&held.object);
            }
            self.versions.remove(&block.version);
        }
        was_here
    }

    /// Returns the latest stored version of `object` that has a resident block.
    pub(crate) fn newest(&self, object: ObjectId) -> Option<VersionId> {
        self.objects
            .get(&object)?
            .iter()
            .copied()
            .max_by_key(|version| self.versions[version].sequence)
    }

    /// Returns true if several versions of `object` have resident blocks.
    pub(crate) fn has_older(&self, object: ObjectId) -> bool {
        self.objects
            .get(&object)
            .is_some_and(|versions| versions.len() > 1)
    }

    /// Returns the indexes of the resident blocks of `version`, ascending.
    pub(crate) fn blocks_of(&self, version: VersionId) -> Vec<u32> {
        self.versions
            .get(&version)
            .map(|held| held.blocks.iter().collect())
            .unwrap_or_default()
    }

    /// As [`Index::blocks_of`], as IDs.
    pub(crate) fn ids_of(&self, version: VersionId) -> Vec<BlockId> {
        let indexes = self.blocks_of(version).into_iter();
        indexes.map(|index| BlockId { version, index }).collect()
    }

    /// Returns the resident blocks of all versions of `object`.
    pub(crate) fn ids_of_object(&self, object: ObjectId) -> Vec<BlockId> {
        let versions = self.objects.get(&object).into_iter().flatten();
        versions.flat_map(|version| self.ids_of(*version)).collect()
    }

    /// Returns the total number of blocks of a version; 0 if none of them is resident.
    pub(crate) fn blocks_in_all(&self, version: VersionId) -> u32 {
        let held = self.versions.get(&version);
        held.map_or(0, |held| held.extent.block_count())
    }

    /// Returns the length of a block in bytes; 0 if no block of its version is resident.
    pub(crate) fn block_len(&self, block: BlockId) -> u64 {
        let held = self.versions.get(&block.version);
        held.map_or(0, |held| held.extent.block_len(block.index))
    }

    /// Returns all versions, each with the sequence number of its latest stored block.
    pub(crate) fn versions(&self) -> Vec<(u64, VersionId)> {
        let numbered = self
            .versions
            .iter()
            .map(|(&version, held)| (held.sequence, version));
        numbered.collect()
    }

    /// Returns a resident block of `version`, if there is one.
    pub(crate) fn any_block_of(&self, version: VersionId) -> Option<BlockId> {
        let index = self.versions.get(&version)?.blocks.iter().next()?;
        Some(BlockId { version, index })
    }
}

impl BlockSet {
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

    /// Returns true if the index was in the set.
    fn remove(&mut self, index: u32) -> bool {
        let Ok(position) = self.0.binary_search_by_key(&(index / 64), |(word, _)| *word) else {
            return false;
        };
        let (bits, bit) = (&mut self.0[position].1, 1 << (index % 64));
        let was_here = *bits & bit != 0;
        *bits &= !bit;
        if *bits == 0 {
            self.0.remove(position);
        }
        was_here
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
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, any, proptest};
    use shoal_policy::{BlockId, ObjectId, VersionId};

    use super::{BlockSet, Extent, Index, StoredBlock};

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
        }
    }

    #[test]
    fn the_version_stored_last_is_the_newest_until_its_last_block_leaves() {
        let mut index = Index::default();
        index.insert(&stored(block(1, 0), 1));
        index.insert(&stored(block(2, 0), 2));
        index.insert(&stored(block(2, 9), 3));
        assert_eq!(index.newest(OBJECT), Some(VersionId([2; 16])));
        index.remove(block(2, 0));
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
        let mut index = Index::default();
        index.insert(&stored(block(1, 0), 1));
        index.insert(&stored(block(2, 0), 2));
        index.insert(&stored(block(1, 1), 3));
        assert_eq!(index.newest(OBJECT), Some(VersionId([1; 16])));
        assert_eq!(index.blocks_of(VersionId([1; 16])), [0, 1]);
        assert_eq!(index.blocks_in_all(VersionId([1; 16])), 10);
        let lengths = [(1, 0), (1, 9), (3, 0)].map(|(version, at)| index.block_len(block(version, at)));
        assert_eq!(lengths, [8, 3, 0]);
        assert_eq!(index.objects[&OBJECT].len(), 2);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_block_set_is_a_set(steps in vec((any::<bool>(), 0..300_u32), 0..200)) {
            let (mut set, mut model) = (BlockSet::default(), BTreeSet::new());
            for (insert, index) in steps {
                if insert { set.insert(index); model.insert(index); } else { assert_eq!(set.remove(index), model.remove(&index)); }
                assert!(set.iter().eq(model.iter().copied()));
                assert!(set.0.iter().all(|(_, bits)| *bits != 0));
            }
        }
    }
}
