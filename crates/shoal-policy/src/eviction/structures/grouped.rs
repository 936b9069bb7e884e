//! Held parts grouped by their whole, and the wholes ordered by rank: the common part of LIFE and C2P.

use std::hash::Hash;

use super::order::Order;
use super::slab::{List, Slab, Slot};
use crate::PartOf;

/// The state that a policy keeps for a partly held whole, and the rank that follows from it.
pub(crate) trait WholeState<P>: Copy + Default {
    type Rank: Copy + Default + Ord + Hash;

    /// The rank of a whole with `held` held parts; `oldest` is the value of the least recently used one.
    fn rank(&self, held: u32, oldest: &P) -> Self::Rank;
}

/// Held parts and their wholes. A whole without held parts is forgotten, so memory is bounded by the parts.
#[derive(Debug)]
pub(crate) struct Grouped<K: PartOf, P, S: WholeState<P>> {
    parts: Slab<K, Part<P>>,
    known: Slab<K::Whole, Whole<S>>,
    order: Order<S::Rank>,
}

#[derive(Clone, Copy, Debug)]
struct Part<P> {
    whole: Slot,
    value: P,
}

#[derive(Clone, Copy, Debug, Default)]
struct Whole<S> {
    state: S,
    held: u32,
    by_use: List,
    /// The place of its rank in the order; `None` outside of it.
    place: Option<Slot>,
}

impl<K: PartOf, P, S: WholeState<P>> Default for Grouped<K, P, S> {
    fn default() -> Self {
        Self {
            parts: Slab::default(),
            known: Slab::default(),
            order: Order::default(),
        }
    }
}

impl<K: Copy + Eq + Hash + PartOf, P: Copy, S: WholeState<P>> Grouped<K, P, S> {
    /// Returns the number of held parts.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// Returns the number of wholes with a held part.
    pub(crate) fn wholes(&self) -> usize {
        self.known.len()
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.parts.contains(key)
    }

    /// Adds an absent part as the most recently used of its whole.
    pub(crate) fn insert(&mut self, key: K, value: P) {
        let name = key.whole();
        let known = self.known.slot(&name);
        let whole = known.unwrap_or_else(|| self.known.insert(name, Whole::default()));
        let part = self.parts.insert(key, Part { whole, value });
        self.parts.link_newest(&mut self.known[whole].by_use, part);
        self.known[whole].held += 1;
        self.rerank(whole);
    }

    /// Records a use of a part, and changes its value. Ignored if the part is not held.
    pub(crate) fn touch(&mut self, key: &K, change: impl FnOnce(&mut P)) {
        let Some(part) = self.parts.slot(key) else { return };
        let whole = self.parts[part].whole;
        self.parts.move_newest(&mut self.known[whole].by_use, part);
        change(&mut self.parts[part].value);
        self.rerank(whole);
    }

    /// Changes the state of a whole. Ignored if no part is held.
    pub(crate) fn change(&mut self, whole: &K::Whole, change: impl FnOnce(&mut S)) {
        if let Some(slot) = self.known.slot(whole) {
            change(&mut self.known[slot].state);
            self.rerank(slot);
        }
    }

    /// Forgets a part, and with the last part its whole.
    pub(crate) fn remove(&mut self, key: &K) -> Option<P> {
        let part = self.parts.slot(key)?;
        let whole = self.parts[part].whole;
        self.parts.unlink(&mut self.known[whole].by_use, part);
        debug_assert!(self.known[whole].held > 0, "a whole counts its held parts");
        self.known[whole].held -= 1;
        self.rerank(whole);
        if self.known[whole].held == 0 {
            self.known.remove(whole);
        }
        Some(self.parts.remove(part).1.value)
    }

    /// Returns the ranks of the wholes, least first, each with the held parts, least recently used first.
    pub(crate) fn least_first(&self) -> impl Iterator<Item = (S::Rank, impl Iterator<Item = (K, P)>)> {
        let wholes = self.order.least_first(&self.known);
        wholes.map(move |(rank, whole)| {
            let parts = self.parts.oldest_first(self.known[whole].by_use);
            (
                rank,
                parts.map(move |part| (self.parts.key(part), self.parts[part].value)),
            )
        })
    }

    /// Moves a whole to the rank that follows from its state and its parts.
    fn rerank(&mut self, slot: Slot) {
        let before = self.known[slot];
        let oldest = before.by_use.oldest().map(|part| self.parts[part].value);
        let rank = oldest.map(|oldest| before.state.rank(before.held, &oldest));
        if rank == before.place.map(|place| self.order.rank(place)) {
            return;
        }
        if let Some(place) = before.place {
            self.order.remove(&mut self.known, place, slot);
        }
        let place = rank.map(|rank| self.order.insert(&mut self.known, rank, slot));
        self.known[slot].place = place;
    }
}
