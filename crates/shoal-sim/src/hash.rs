//! Hash maps over numbers that this crate hands out itself: one multiplication a key, the same in every run.
//!
//! Nobody can flood such a map from outside: keys are dense numbers, or digests of names in a trace that its owner replays.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map from our own numbers. Its order of iteration means nothing and is never used.
pub(crate) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<Multiplied>>;

/// A set of our own numbers; see [`NumberMap`].
pub(crate) type NumberSet<K> = HashSet<K, BuildHasherDefault<Multiplied>>;

/// Folds the numbers of a key by multiplication (Fibonacci hashing).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Multiplied(u64);

impl Hasher for Multiplied {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}
