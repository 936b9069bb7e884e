//! The blocks that must not be evicted because they are being read from the disk.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use shoal_policy::BlockId;

/// Reader counts by block. A block is protected until its last reader leaves.
#[derive(Debug, Default)]
pub(crate) struct Readers(HashMap<BlockId, u32>);

impl Readers {
    pub(crate) fn has(&self, block: BlockId) -> bool {
        self.0.contains_key(&block)
    }

    pub(crate) fn enter(&mut self, block: BlockId) {
        *self.0.entry(block).or_default() += 1;
    }

    /// Inverse of [`Readers::enter`].
    ///
    /// # Panics
    ///
    /// Panics if the block has no reader.
    pub(crate) fn leave(&mut self, block: BlockId) {
        let Entry::Occupied(mut readers) = self.0.entry(block) else {
            panic!("each reader leaves once");
        };
        *readers.get_mut() -= 1;
        if *readers.get() == 0 {
            readers.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use shoal_policy::{BlockId, VersionId};

    use super::Readers;

    const BLOCK: BlockId = BlockId {
        version: VersionId([1; 16]),
        index: 7,
    };

    #[test]
    fn a_block_is_kept_until_its_last_reader_leaves_it() {
        let mut readers = Readers::default();
        readers.enter(BLOCK);
        readers.enter(BLOCK);
        readers.leave(BLOCK);
        assert!(readers.has(BLOCK));
        readers.leave(BLOCK);
        assert!(!readers.has(BLOCK));
        assert!(readers.0.is_empty(), "no count of zero is left behind");
    }

    #[test]
    #[should_panic(expected = "once")]
    fn a_reader_leaves_once() {
        Readers::default().leave(BLOCK);
    }
}
