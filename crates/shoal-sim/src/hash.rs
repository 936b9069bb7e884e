//! Hash maps over numbers that this crate assigns itself: hashed like the maps of the policies, the same in
//! every run.
//!
//! Such a map cannot be flooded from outside: keys are dense numbers, or digests of names in a trace that its
//! owner replays.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use shoal_policy::hash::KeyHasher;

/// A map keyed by numbers of this crate. Its order of iteration means nothing and is never used.
pub(crate) type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<KeyHasher>>;
