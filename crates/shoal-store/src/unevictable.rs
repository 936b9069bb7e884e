//! The blocks that must not leave to make room: pinned ones, and those of protected versions.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use shoal_policy::{BlockId, VersionId};

/// Counts of holders. A block or version is kept until its last holder releases it.
#[derive(Debug, Default)]
pub(super) struct Unevictable {
    /// Blocks being read from disk, with the number of readers of each.
    pins: HashMap<BlockId, u32>,
    /// Versions that the lake does not have, with the number of holders that protect each.
    protected: HashMap<VersionId, u32>,
}

impl Unevictable {
    pub(super) fn contains(&self, block: BlockId) -> bool {
        self.pins.contains_key(&block) || self.protected.contains_key(&block.version)
    }

    pub(super) fn pin(&mut self, block: BlockId) {
        *self.pins.entry(block).or_default() += 1;
    }

    /// Inverse of [`Unevictable::pin`].
    ///
    /// # Panics
    ///
    /// Panics if the block is not pinned.
    pub(super) fn unpin(&mut self, block: BlockId) {
        release(&mut self.pins, block);
    }

    pub(super) fn protect(&mut self, version: VersionId) {
        *self.protected.entry(version).or_default() += 1;
    }

    /// Inverse of [`Unevictable::protect`].
    ///
    /// # Panics
    ///
    /// Panics if the version is not protected.
    pub(super) fn unprotect(&mut self, version: VersionId) {
        release(&mut self.protected, version);
    }

    pub(super) fn is_protected(&self, version: VersionId) -> bool {
        self.protected.contains_key(&version)
    }

    /// Whether any version is protected.
    pub(super) fn has_protected(&self) -> bool {
        !self.protected.is_empty()
    }
}

fn release<K: Eq + Hash>(holders: &mut HashMap<K, u32>, key: K) {
    let Entry::Occupied(mut held) = holders.entry(key) else {
        panic!("each holder releases what it holds once");
    };
    *held.get_mut() -= 1;
    if *held.get() == 0 {
        held.remove();
    }
}

#[cfg(test)]
mod tests {
    use shoal_policy::{BlockId, VersionId};

    use super::Unevictable;

    #[test]
    fn a_block_is_kept_until_its_last_holder_releases_it() {
        let version = VersionId([1; 16]);
        let block = BlockId { version, index: 7 };
        let mut kept = Unevictable::default();
        kept.pin(block);
        kept.pin(block);
        kept.protect(version);
        kept.unpin(block);
        kept.unpin(block);
        assert!(kept.contains(block), "its version is protected");
        kept.unprotect(version);
        assert!(!kept.contains(block) && !kept.has_protected());
        assert!(kept.pins.is_empty(), "no count of zero is left behind");
    }

    #[test]
    #[should_panic(expected = "once")]
    fn a_pin_is_released_once() {
        let block = BlockId {
            version: VersionId([1; 16]),
            index: 7,
        };
        Unevictable::default().unpin(block);
    }
}
