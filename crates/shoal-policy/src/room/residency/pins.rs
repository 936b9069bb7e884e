//! The keys that must not be evicted.

use std::collections::HashMap;
use std::hash::Hash;

use crate::admission::Refusal;

/// Pinned keys with their sizes, which have a limit in all.
#[derive(Debug)]
pub struct Pins<K> {
    keys: HashMap<K, u64>,
    bytes: u64,
    bytes_max: u64,
}

impl<K> Pins<K> {
    pub(super) fn at_most(bytes_max: u64) -> Self {
        Self {
            keys: HashMap::new(),
            bytes: 0,
            bytes_max,
        }
    }

    /// The room that pinned keys take.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The room that pinned keys may take.
    pub const fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Checks that `bytes` more can be pinned.
    ///
    /// # Errors
    ///
    /// Fails with [`Refusal::PinsFull`] if pinned keys would exceed their limit.
    pub const fn admit(&self, bytes: u64) -> Result<(), Refusal> {
        if self.bytes.saturating_add(bytes) > self.bytes_max {
            return Err(Refusal::PinsFull);
        }
        Ok(())
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
}

impl<K: Copy + Eq + Hash> Pins<K> {
    /// Returns true if `key` is held and pinned.
    pub fn contains(&self, key: &K) -> bool {
        self.keys.contains_key(key)
    }

    /// The size of a pinned key; `None` if it is not pinned.
    pub fn bytes_of(&self, key: &K) -> Option<u64> {
        self.keys.get(key).copied()
    }

    pub(super) fn insert(&mut self, key: K, bytes: u64) {
        self.keys.insert(key, bytes);
        self.bytes += bytes;
        debug_assert!(self.bytes <= self.bytes_max, "pins are admitted first");
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<u64> {
        let bytes = self.keys.remove(key)?;
        self.bytes -= bytes;
        Some(bytes)
    }
}
