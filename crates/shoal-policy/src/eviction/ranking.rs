//! Comparison of two keys by a policy, for a rule above it.

use std::cmp::Ordering;
use std::fmt::Debug;

use super::{Eviction, Gwf};

/// A policy below another rule, such as C2P. The rule selects the keys to evict first, and this policy
/// chooses among them, or among all keys if the rule selects none.
pub trait Ranking<K>: Eviction<K> + Debug {
    /// Compares two held keys: this policy prefers to evict the lesser. Returns `Equal` if only the time of
    /// the last use distinguishes them.
    fn compare(&self, one: &K, other: &K) -> Ordering;

    /// Evicts a held key that the rule above has chosen, and returns its size in bytes. As in
    /// [`Eviction::evict`], a policy that ages does so here.
    fn evict_key(&mut self, key: &K) -> Option<u64>;

    /// The policy if it is GWF, for methods that only it has.
    fn gwf(&self) -> Option<&Gwf<K>> {
        None
    }

    /// As [`Ranking::gwf`], mutable.
    fn gwf_mut(&mut self) -> Option<&mut Gwf<K>> {
        None
    }
}

impl<K, P: Ranking<K> + ?Sized> Ranking<K> for Box<P> {
    fn compare(&self, one: &K, other: &K) -> Ordering {
        (**self).compare(one, other)
    }

    fn evict_key(&mut self, key: &K) -> Option<u64> {
        (**self).evict_key(key)
    }

    fn gwf(&self) -> Option<&Gwf<K>> {
        (**self).gwf()
    }

    fn gwf_mut(&mut self) -> Option<&mut Gwf<K>> {
        (**self).gwf_mut()
    }
}

impl<K, P: Eviction<K> + ?Sized> Eviction<K> for Box<P> {
    fn insert(&mut self, key: K, bytes: u64) {
        (**self).insert(key, bytes);
    }

    fn bring(&mut self, key: K, bytes: u64) {
        (**self).bring(key, bytes);
    }

    fn touch(&mut self, key: &K) {
        (**self).touch(key);
    }

    fn remove(&mut self, key: &K) -> Option<u64> {
        (**self).remove(key)
    }

    fn set_aside(&mut self, key: &K) -> Option<u64> {
        (**self).set_aside(key)
    }

    fn take_back(&mut self, key: K, bytes: u64)
    where
        K: Copy,
    {
        (**self).take_back(key, bytes);
    }

    fn left_aside(&mut self, key: &K) {
        (**self).left_aside(key);
    }

    fn evict(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<(K, u64)> {
        (**self).evict(may_leave)
    }

    fn advance(&mut self, now: std::time::Duration) {
        (**self).advance(now);
    }

    fn contains(&self, key: &K) -> bool {
        (**self).contains(key)
    }

    fn len(&self) -> usize {
        (**self).len()
    }
}
