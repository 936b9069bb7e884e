//! Slab entries ordered by rank; entries of equal rank in the order in which they reached it.

use std::collections::BTreeMap;

use super::slab::{List, Slab, Slot};

/// One list for each rank. Where ranks count uses, many entries share one rank and the tree is small.
#[derive(Debug)]
pub(crate) struct Order<R>(BTreeMap<R, List>);

impl<R> Default for Order<R> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<R: Copy + Ord> Order<R> {
    /// Appends a slot that is in no list to the list of `rank`.
    pub(crate) fn insert<K, V>(&mut self, slab: &mut Slab<K, V>, rank: R, slot: Slot) {
        slab.link_newest(self.0.entry(rank).or_default(), slot);
    }

    /// Removes a slot from the list of `rank`.
    pub(crate) fn remove<K, V>(&mut self, slab: &mut Slab<K, V>, rank: R, slot: Slot) {
        let list = self.0.get_mut(&rank).expect("the rank of a held key has a list");
        slab.unlink(list, slot);
        if list.oldest().is_none() {
            self.0.remove(&rank);
        }
    }

    /// The slots and their ranks, least first.
    pub(crate) fn least_first<K, V>(&self, slab: &Slab<K, V>) -> impl Iterator<Item = (R, Slot)> {
        let lists = self.0.iter();
        lists.flat_map(|(&rank, &list)| slab.oldest_first(list).map(move |slot| (rank, slot)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, proptest};

    use super::Order;
    use crate::eviction::structures::slab::Slab;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// A key enters, gets another rank, or leaves.
        #[test]
        fn any_history_is_in_the_order_of_rank_and_arrival(steps in vec((0..30u32, 0..60u32), 0..400)) {
            let (mut slab, mut order) = (Slab::default(), Order::default());
            let mut model = BTreeMap::new();
            let mut ranks = BTreeMap::new();
            for (time, (key, rank)) in steps.into_iter().enumerate() {
                if let Some((slot, before)) = ranks.remove(&key) {
                    order.remove(&mut slab, before, slot);
                    slab.remove(slot);
                    model.retain(|&(rank, _), other| rank != before || *other != key);
                }
                if rank < 50 {
                    let slot = slab.insert(key, ());
                    order.insert(&mut slab, rank, slot);
                    ranks.insert(key, (slot, rank));
                    model.insert((rank, time), key);
                }
                let ordered = order.least_first(&slab).map(|(rank, slot)| (rank, slab.key(slot)));
                assert!(ordered.eq(model.iter().map(|(&(rank, _), &key)| (rank, key))));
                assert!(order.0.len() <= model.len(), "a rank without entries is forgotten");
            }
        }
    }
}
