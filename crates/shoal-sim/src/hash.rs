//! Hash maps over numbers that this crate hands out itself: hashed as the policies hash theirs, the same in every run.
//!
//! Nobody can flood such a map from outside: keys are dense numbers, or digests of names in a trace that its owner replays.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use shoal_policy::hash::KeyHasher;

/// A map from our own numbers. Its order of iteration means nothing and is never used.
pub(crate) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<KeyHasher>>;
