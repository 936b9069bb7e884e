//! Which block leaves when room is needed. One policy a file.
//!
//! A policy knows keys and their sizes, the time if it is told ([`Eviction::advance`]), and nothing else: no capacity, no disk, no
//! clock. [`crate::residency`] asks it for a victim when room is short. What a policy may know beyond that (a directory's
//! weights, the size of an object, other nodes' events) comes in through methods of its own.
//!
//! Every policy runs the suite in `conformance.rs`; adding one is one line there. `tests/golden.rs` counts misses on a real trace.
//!
//! What a use or a victim costs in steps; `docs/design/eviction.md` has nanoseconds and bytes, by `cargo bench -p shoal-policy --bench eviction`.
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
//! | [`C2p`] | O(log o), at most [`c2p::CANDIDATES`] compared |

mod belady;
pub mod c2p;
mod duel;
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
mod s3_fifo;
mod sieve;
mod slab;
mod wholes;

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
pub use named::{Named, PolicyName};
pub use s3_fifo::S3Fifo;
pub use sieve::Sieve;

/// The order in which what a cache holds should leave it.
pub trait Eviction<K> {
    /// A key that was absent is now held and takes `bytes`.
    fn insert(&mut self, key: K, bytes: u64);

    /// A held key was used. An absent key is ignored: the notice of a use may arrive after the key has left.
    fn touch(&mut self, key: &K);

    /// Forgets `key` because it is no longer valid, and says how many bytes it took.
    ///
    /// This is not a decision of the policy and must not age it: an invalidated block says nothing about how long blocks
    /// live here.
    fn remove(&mut self, key: &K) -> Option<u64>;

    /// Chooses who leaves to make room, among those `may_leave` allows, and forgets it; a policy that ages does so
    /// here. `None` when nobody may leave.
    ///
    /// `may_leave` may be asked about several keys, and about one key more than once.
    fn evict(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<(K, u64)>;

    /// Time has come to be `now`, counted from an origin of the caller's choice, and never goes back. Policies that do without
    /// it ignore it.
    fn advance(&mut self, _now: Duration) {}

    /// Whether `key` is held.
    fn contains(&self, key: &K) -> bool;

    /// How many keys are held.
    fn len(&self) -> usize;

    /// Whether nothing is held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
