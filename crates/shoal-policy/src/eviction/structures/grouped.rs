//! Held parts grouped by their whole, and the wholes ordered by rank: the common part of LIFE and C2P.

use std::hash::Hash;

use super::order::{Order, RankId};
use super::slab::{List, Slab};
use super::slot::Slot;
use crate::PartOf;

/// The state that a policy keeps for a partly held whole, and the rank that follows from it.
pub(crate) trait WholeState<P>: Copy + Default {
    type Rank: Copy + Ord + Hash;

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

#[derive(Clone, Copy, Debug)]
struct Whole<S> {
    state: S,
    held: u32,
    by_use: List,
    /// The id of its rank in the order; `None` outside of it.
    rank_id: Option<RankId>,
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
    /// The number of held parts.
    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    /// The number of wholes with a held part.
    pub(crate) fn wholes(&self) -> usize {
        self.known.len()
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.parts.contains(key)
    }

    pub(crate) fn state(&self, whole: &K::Whole) -> Option<S> {
        self.known.slot(whole).map(|slot| self.known[slot].state)
    }

    pub(crate) fn slot(&self, whole: &K::Whole) -> Option<Slot> {
        self.known.slot(whole)
    }

    /// Adds an absent part as the most recently used of its whole.
    pub(crate) fn insert(&mut self, key: K, value: P, change: impl FnOnce(&mut S, u32)) {
        let name = key.whole();
        let whole = self.known.slot(&name).unwrap_or_else(|| {
            self.known.insert(
                name,
                Whole {
                    state: S::default(),
                    held: 0,
                    by_use: List::default(),
                    rank_id: None,
                },
            )
        });
        let part = self.parts.insert(key, Part { whole, value });
        self.parts.link_newest(&mut self.known[whole].by_use, part);
        self.known[whole].held += 1;
        self.change_slot(whole, change);
    }

    /// Records a use of a part. Ignored if the part is not held.
    pub(crate) fn touch(&mut self, key: &K, change: impl FnOnce(&mut P, &mut S)) {
        let Some(part) = self.parts.slot(key) else { return };
        let whole = self.parts[part].whole;
        self.parts.move_newest(&mut self.known[whole].by_use, part);
        change(&mut self.parts[part].value, &mut self.known[whole].state);
        self.change_slot(whole, |_, _| ());
    }

    /// Changes the state of a whole; `change` also receives the number of its held parts. Ignored if no part
    /// is held.
    pub(crate) fn change(&mut self, whole: &K::Whole, change: impl FnOnce(&mut S, u32)) {
        if let Some(slot) = self.known.slot(whole) {
            self.change_slot(slot, change);
        }
    }

    /// Forgets a part, and with the last part its whole.
    pub(crate) fn remove(&mut self, key: &K, change: impl FnOnce(&mut S, u32)) -> Option<P> {
        let part = self.parts.slot(key)?;
        let whole = self.parts[part].whole;
        self.parts.unlink(&mut self.known[whole].by_use, part);
        self.known[whole].held -= 1;
        self.change_slot(whole, change);
        if self.known[whole].held == 0 {
            self.known.remove(whole);
        }
        Some(self.parts.remove(part).1.value)
    }

    /// The wholes and their ranks, least first.
    pub(crate) fn least_first(&self) -> impl Iterator<Item = (S::Rank, Slot)> {
        self.order.least_first(&self.known)
    }

    /// The parts held of a whole, least recently used first.
    pub(crate) fn parts_of(&self, whole: Slot) -> impl Iterator<Item = (K, P)> {
        self.parts
            .oldest_first(self.known[whole].by_use)
            .map(|part| (self.parts.key(part), self.parts[part].value))
    }

    fn change_slot(&mut self, slot: Slot, change: impl FnOnce(&mut S, u32)) {
        let held = self.known[slot].held;
        change(&mut self.known[slot].state, held);
        let Whole {
            state,
            by_use,
            rank_id,
            ..
        } = self.known[slot];
        let oldest = by_use.oldest().map(|part| self.parts[part].value);
        let rank = oldest.map(|oldest| state.rank(held, &oldest));
        if rank == rank_id.map(|rank_id| self.order.rank(rank_id)) {
            return;
        }
        if let Some(rank_id) = rank_id {
            self.order.remove(&mut self.known, rank_id, slot);
        }
        let rank_id = rank.map(|rank| self.order.insert(&mut self.known, rank, slot));
        self.known[slot].rank_id = rank_id;
    }
}
