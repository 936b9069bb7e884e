//! Eviction policies: which block to evict when room is needed. Each policy has its own file.
//!
//! A policy knows keys and their sizes, the time that the caller sets ([`Eviction::advance`]), and nothing
//! else: no capacity, no disk, no clock. [`crate::residency`] requests a victim from it when room is short. A
//! policy that needs to know more (a directory's weights, the size of an object, other nodes' events) has
//! additional methods for that.
//!
//! Every policy runs the suite in `tests.rs`; adding one takes one line there. `tests/golden.rs` counts
//! misses on a real trace.
//!
//! The table gives the time complexity of a use and of an eviction; `bench/results/policies.md` has
//! nanoseconds and bytes, by `cargo bench -p shoal-policy --bench eviction`.
//!
//! | policy | a use, a victim |
//! |---|---|
//! | [`Lru`] | O(1) |
//! | [`Sieve`] | O(1) amortised |
//! | [`S3Fifo`] | O(1) amortised |
//! | [`Duel`] | O(1) amortised |
//! | [`Lfu`] | O(log d) for d different ranks |
//! | [`Lfuda`] | O(log d) |
//! | [`Gwf`] | O(log d) |
//! | [`Belady`] | O(log n); and 4 bytes for each access to come |
//! | [`Life`] | O(log o), o objects |
//! | [`C2p`] | as below it; O(log o), at most [`c2p::CANDIDATES`] compared, if objects are incomplete |

pub mod c2p;
mod classic;
pub mod gwf;
pub mod layered;
mod life;
mod named;
mod structures;

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::fmt::Debug;
use std::time::Duration;

pub use c2p::C2p;
pub use classic::belady::Belady;
pub use classic::duel::Duel;
pub use classic::lfu::{LeastUsed, Lfu, Lfuda};
pub use classic::lru::Lru;
pub use classic::s3_fifo::S3Fifo;
pub use classic::sieve::Sieve;
pub use gwf::Gwf;
pub use layered::Layered;
pub use life::Life;
pub use named::{Named, PolicyName};

use crate::PartOf;

/// The order in which keys are evicted from a cache.
pub trait Eviction<K>: Debug {
    /// Adds a key that was absent and takes `bytes`.
    fn insert(&mut self, key: K, bytes: u64);

    /// Adds a key that this policy did not hold but the cache already does, in another layer or since before
    /// a restart. No reader has requested it.
    fn bring(&mut self, key: K, bytes: u64) {
        self.insert(key, bytes);
    }

    /// Records a use of a held key. An absent key is ignored, because uses are reported late and the key may
    /// have left.
    fn touch(&mut self, key: &K);

    /// Removes `key` because it is no longer valid, and returns its size in bytes.
    ///
    /// This is not a decision of the policy and must not age it: an invalidated block is no evidence for how
    /// long blocks live here.
    fn remove(&mut self, key: &K) -> Option<u64>;

    /// Exempts a held key from eviction while it stays in the cache, and returns its size in bytes.
    /// [`Eviction::take_back`] or [`Eviction::left_aside`] ends the exemption.
    fn set_aside(&mut self, key: &K) -> Option<u64> {
        self.remove(key)
    }

    /// Makes a key that was set aside evictable again, as if it was just used.
    fn take_back(&mut self, key: K, bytes: u64)
    where
        K: Copy,
    {
        self.insert(key, bytes);
        self.touch(&key);
    }

    /// Records that a key that was set aside has left the cache.
    fn left_aside(&mut self, _key: &K) {}

    /// Chooses the next victim among the keys that `may_leave` allows. It stays. Returns `None` if no key may
    /// leave.
    ///
    /// `may_leave` may be called for several keys, and more than once for the same key.
    fn victim(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<K>;

    /// Evicts a held key that this policy or a rule above it, such as C2P, has chosen, and returns its size
    /// in bytes. A policy that ages does so here.
    fn evict_key(&mut self, key: &K) -> Option<u64> {
        self.remove(key)
    }

    /// Evicts the next victim among the keys that `may_leave` allows, as for [`Eviction::victim`].
    fn evict(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<(K, u64)> {
        let key = self.victim(may_leave)?;
        let bytes = self.evict_key(&key).expect("a victim is held");
        Some((key, bytes))
    }

    /// Compares two held keys for a rule above: this policy prefers to evict the lesser. Returns `Equal` if
    /// only the time of the last use distinguishes them.
    fn compare(&self, _one: &K, _other: &K) -> Ordering {
        Ordering::Equal
    }

    /// Sets the time to `now`, counted from an origin of the caller's choice. Time never goes backwards.
    /// Policies that do not need it ignore it.
    fn advance(&mut self, _now: Duration) {}

    /// Records that the object of a held key has `blocks` blocks in all. Policies that do not need it ignore
    /// it.
    fn observe(&mut self, _key: &K, _blocks: u32) {}

    /// Returns true if `key` is held.
    fn contains(&self, key: &K) -> bool;

    /// The number of held keys.
    fn len(&self) -> usize;

    /// Returns true if no key is held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The policy if it is GWF or stands above GWF, for methods that only it has. Layers have one each.
    fn gwf(&self) -> Option<&Gwf<K>> {
        None
    }

    /// As [`Eviction::gwf`], mutable.
    fn gwf_mut(&mut self) -> Option<&mut Gwf<K>> {
        None
    }

    /// The policy if it is C2P, for methods that only it has.
    fn c2p(&self) -> Option<&C2p<K>>
    where
        K: PartOf,
    {
        None
    }

    /// As [`Eviction::c2p`], mutable.
    fn c2p_mut(&mut self) -> Option<&mut C2p<K>>
    where
        K: PartOf,
    {
        None
    }
}
