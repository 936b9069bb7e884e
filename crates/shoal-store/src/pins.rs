//! The blocks that must not leave to make room, because they are being read from the disk.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use shoal_policy::BlockId;

/// Counts of readers. A block is kept until its last reader releases it.
#[derive(Debug, Default)]
pub(super) struct Pins(HashMap<BlockId, u32>);

impl Pins {
    pub(super) fn contains(&self, block: BlockId) -> bool {
        self.0.contains_key(&block)
    }

    pub(super) fn pin(&mut self, block: BlockId) {
        *self.0.entry(block).or_default() += 1;
    }

    /// Inverse of [`Pins::pin`].
    ///
    /// # Panics
    ///
    /// Panics if the block is not pinned.
    pub(super) fn unpin(&mut self, block: BlockId) {
        let Entry::Occupied(mut readers) = self.0.entry(block) else {
            panic!("each reader releases what it holds once");
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

    use super::Pins;

    const BLOCK: BlockId = BlockId {
        version: VersionId([1; 16]),
        index: 7,
    };

    #[test]
    fn a_block_is_kept_until_its_last_reader_releases_it() {
        let mut pins = Pins::default();
        pins.pin(BLOCK);
        pins.pin(BLOCK);
        pins.unpin(BLOCK);
        assert!(pins.contains(BLOCK));
        pins.unpin(BLOCK);
        assert!(!pins.contains(BLOCK));
        assert!(pins.0.is_empty(), "no count of zero is left behind");
    }

    #[test]
    #[should_panic(expected = "once")]
    fn a_pin_is_released_once() {
        Pins::default().unpin(BLOCK);
    }
}
