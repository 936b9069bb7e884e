//! Entries of a slab in the order of a rank, equals in the order they came to it.

use std::collections::BTreeMap;

use super::slab::{List, Slab, Slot};

/// One list for each rank that somebody has: ranks are compared in a tree that is small when many entries share a rank, as
/// they do where ranks count uses.
#[derive(Debug)]
pub(super) struct Order<R> {
    lists: BTreeMap<R, List>,
}

impl<R> Default for Order<R> {
    fn default() -> Self {
        Self {
            lists: BTreeMap::new(),
        }
    }
}

impl<R: Copy + Ord> Order<R> {
    /// Enters a slot that is in no list, behind those of the same rank.
    pub(super) fn insert<K, V>(&mut self, slab: &mut Slab<K, V>, rank: R, slot: Slot) {
        slab.link_newest(self.lists.entry(rank).or_default(), slot);
    }

    /// Takes out a slot that was entered with `rank`.
    pub(super) fn remove<K, V>(&mut self, slab: &mut Slab<K, V>, rank: R, slot: Slot) {
        let list = self
            .lists
            .get_mut(&rank)
            .expect("a slot leaves by the rank it came with");
        slab.unlink(list, slot);
        if list.oldest().is_none() {
            self.lists.remove(&rank);
        }
    }

    /// The slots and their ranks, least first.
    pub(super) fn least_first<K, V>(&self, slab: &Slab<K, V>) -> impl Iterator<Item = (R, Slot)> {
        self.lists
            .iter()
            .flat_map(|(&rank, &list)| slab.oldest_first(list).map(move |slot| (rank, slot)))
    }
}
