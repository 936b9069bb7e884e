//! A hash table that hashes fast and alike in each run.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

use foldhash::fast::FixedState;

/// A hash table.
pub(crate) type Table<K, V> = HashMap<K, V, FixedState>;

/// The hash that identifies states. Two states share one in a search of ten million with a
/// probability of 1 in 300,000.
pub(crate) fn fingerprint(value: &impl Hash) -> u64 {
    FixedState::with_seed(13).hash_one(value)
}
