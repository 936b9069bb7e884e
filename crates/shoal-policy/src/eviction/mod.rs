//! Eviction policies: which block leaves when room is needed. Each policy has its own file.
//!
//! A policy knows keys and their sizes, the time if the caller tells it ([`Eviction::advance`]), and nothing
//! else: no capacity, no disk, no clock. [`crate::residency`] asks it for a victim when room is short. A
//! policy that needs to know more (a directory's weights, the size of an object, other nodes' events) has
//! additional methods for that.
//!
//! Every policy runs the suite in `conformance.rs`; adding one takes one line there. `tests/golden.rs` counts
//! misses on a real trace.
//!
//! The table gives the cost of a use and of a victim in steps; `bench/results/policies.md` has nanoseconds
//! and bytes, by `cargo bench -p shoal-policy --bench eviction`.
//!
//! | policy | a use, a victim |
//! |---|---|
//! | [`Lru`] | O(1) |
//! | [`Sieve`] | O(1) amortised |
//! | [`S3Fifo`] | O(1) amortised |
//! | [`Duel`] | O(1) amortised |
//! | [`Lfu`] | O(1), O(log d) for d different ranks |
//! | [`Lfuda`] | O(1), O(log d) |
//! | [`Gwf`] | O(1), O(log d) |
//! | [`Belady`] | O(log n); and 4 bytes for each access to come |
//! | [`Life`] | O(log o), o objects |
//! | [`C2p`] | as below it; O(log o), at most [`c2p::CANDIDATES`] compared, if objects are incomplete |

mod belady;
pub mod c2p;
mod duel;
mod grouped;
pub mod gwf;
mod index;
pub mod layered;
mod lfu;
mod lfuda;
mod life;
mod lru;
mod named;
mod order;
mod ranked;
mod ranking;
mod s3_fifo;
mod sieve;
mod slab;
mod slot;

#[cfg(test)]
mod conformance;

use std::time::Duration;

pub use belady::Belady;
pub use c2p::C2p;
pub use duel::Duel;
pub use gwf::Gwf;
pub use layered::Layered;
pub use lfu::Lfu;
pub use lfuda::Lfuda;
pub use life::Life;
pub use lru::Lru;
pub use named::{Below, Named, PolicyName};
pub use ranking::Ranking;
pub use s3_fifo::S3Fifo;
pub use sieve::Sieve;

/// The order in which keys should leave a cache.
pub trait Eviction<K> {
    /// Adds a key that was absent and takes `bytes`.
    fn insert(&mut self, key: K, bytes: u64);

    /// Adds a key that was absent here and that the cache holds already, in another layer or since before a
    /// restart. No reader asks for it now.
    fn bring(&mut self, key: K, bytes: u64) {
        self.insert(key, bytes);
    }

    /// Records a use of a held key. An absent key is ignored: the notice of a use may arrive after the key
    /// has left.
    fn touch(&mut self, key: &K);

    /// Forgets `key` because it is no longer valid, and returns how many bytes it took.
    ///
    /// This is not a decision of the policy and must not age it: an invalidated block says nothing about how
    /// long blocks live here.
    fn remove(&mut self, key: &K) -> Option<u64>;

    /// Takes a held key out of the order although it stays in the cache, and returns how many bytes it takes.
    /// [`Eviction::take_back`] or [`Eviction::left_aside`] ends that.
    fn set_aside(&mut self, key: &K) -> Option<u64> {
        self.remove(key)
    }

    /// Puts a key that was set aside back into the order, as one just used.
    fn take_back(&mut self, key: K, bytes: u64)
    where
        K: Copy,
    {
        self.insert(key, bytes);
        self.touch(&key);
    }

    /// Notes that a key that was set aside is no longer in the cache.
    fn left_aside(&mut self, _key: &K) {}

    /// Chooses a victim to make room, among the keys that `may_leave` allows, and forgets it; a policy that
    /// ages does so here. `None` when no key may leave.
    ///
    /// `may_leave` may be asked about several keys, and about one key more than once.
    fn evict(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<(K, u64)>;

    /// Sets the time to `now`, counted from an origin of the caller's choice. Time never goes back. Policies
    /// that do not need it ignore it.
    fn advance(&mut self, _now: Duration) {}

    /// Whether `key` is held.
    fn contains(&self, key: &K) -> bool;

    /// The number of held keys.
    fn len(&self) -> usize;

    /// Whether no key is held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
