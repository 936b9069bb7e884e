//! A hasher for keys that are digests or small integers.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A map by digests or small integers. Its order of iteration means nothing, but is the same in every run.
pub type KeyMap<K, V> = HashMap<K, V, BuildHasherDefault<KeyHasher>>;

/// The hash of a key.
pub(crate) fn hash(key: &impl Hash) -> u64 {
    let mut hasher = KeyHasher::default();
    key.hash(&mut hasher);
    hasher.finish()
}

/// Multiplies each word into the state and folds the product: the same on every machine and in every run.
///
/// It is not keyed. Block names are digests: an attacker has to compute one digest per attempt to find
/// collisions, and gains only longer probes for their own blocks. The standard, keyed hasher costs more than
/// the policy itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyHasher(u64);

/// An odd constant with well mixed bits: the golden ratio, as in Fibonacci hashing.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

const fn fold(word: u64) -> u64 {
    let product = word as u128 * MULTIPLIER as u128;
    product as u64 ^ (product >> 64) as u64
}

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        fold(self.0)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = fold(self.0 ^ word ^ MULTIPLIER);
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::hash;
    use crate::{BlockId, VersionId};

    /// How many of 65,536 places stay empty, by the low bits or by the high ones. Chance leaves 1/e of them:
    /// 24,109.
    fn empty_places(key: impl Fn(u32) -> u64) -> usize {
        let empty = |place: fn(u64) -> u64| {
            let taken: HashSet<_> = (0..1 << 16).map(|i| place(key(i))).collect();
            (1 << 16) - taken.len()
        };
        empty(|hash| hash & 0xffff).max(empty(|hash| hash >> 48))
    }

    #[test]
    fn neighbours_scatter_like_chance() {
        let block = |index| BlockId {
            version: VersionId([7; 16]),
            index,
        };
        assert!(empty_places(|i| hash(&i)) < 25_000);
        assert!(empty_places(|i| hash(&u64::from(i))) < 25_000);
        assert!(empty_places(|i| hash(&(u64::from(i) << 32))) < 25_000);
        assert!(empty_places(|i| hash(&block(i))) < 25_000);
    }

    #[test]
    fn the_order_and_the_length_of_words_matter() {
        assert_ne!(hash(&(1u64, 2u64)), hash(&(2u64, 1u64)));
        assert_ne!(hash(&[0u8; 8]), hash(&[0u8; 16]));
    }
}
