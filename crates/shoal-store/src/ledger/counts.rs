//! Keys that are held several times, such as blocks that several readers read.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

/// The number of holders of each key. A key is held until it was left as often as it was entered.
#[derive(Debug, Default)]
pub(crate) struct Counts<K>(HashMap<K, u32>);

impl<K: Copy + Eq + Hash> Counts<K> {
    pub(crate) fn has(&self, key: K) -> bool {
        self.0.contains_key(&key)
    }

    /// Returns the number of holders of a key.
    pub(crate) fn of(&self, key: K) -> u32 {
        self.0.get(&key).copied().unwrap_or_default()
    }

    /// Returns the number of different keys.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn enter(&mut self, key: K) {
        *self.0.entry(key).or_default() += 1;
    }

    /// Inverse of [`Counts::enter`].
    ///
    /// # Panics
    ///
    /// Panics if the key is not held.
    pub(crate) fn leave(&mut self, key: K) {
        let Entry::Occupied(mut holders) = self.0.entry(key) else {
            panic!("each holder leaves once");
        };
        *holders.get_mut() -= 1;
        if *holders.get() == 0 {
            holders.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use shoal_policy::{BlockId, VersionId};

    use super::Counts;

    const BLOCK: BlockId = BlockId {
        version: VersionId([1; 16]),
        index: 7,
    };

    #[test]
    fn a_block_is_kept_until_its_last_reader_leaves_it() {
        let mut readers = Counts::default();
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
        Counts::default().leave(BLOCK);
    }
}
