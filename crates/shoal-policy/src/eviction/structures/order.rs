//! Slab entries ordered by rank; entries of equal rank in the order in which they reached it.

use std::collections::BTreeMap;
use std::hash::Hash;

use super::slab::{List, Slab, Slot};

/// One list for each rank. Where ranks count uses, many entries share one rank and the tree is small; it
/// changes only when a rank appears or disappears. An entry keeps the place of its rank, which takes four
/// bytes whatever a rank takes.
#[derive(Debug, Default)]
pub(crate) struct Order<R> {
    lists: Slab<R, List>,
    places: BTreeMap<R, Slot>,
}

impl<R: Copy + Ord + Hash> Order<R> {
    /// Appends a slot that is in no list to the list of `rank`. Returns the place of the rank.
    pub(crate) fn insert<K, V>(&mut self, slab: &mut Slab<K, V>, rank: R, slot: Slot) -> Slot {
        let place = self.lists.slot(&rank).unwrap_or_else(|| {
            let place = self.lists.insert(rank, List::default());
            self.places.insert(rank, place);
            place
        });
        slab.link_newest(&mut self.lists[place], slot);
        place
    }

    /// Removes a slot from the list of the rank at `place`.
    pub(crate) fn remove<K, V>(&mut self, slab: &mut Slab<K, V>, place: Slot, slot: Slot) {
        let list = &mut self.lists[place];
        slab.unlink(list, slot);
        if list.oldest().is_none() {
            let (rank, _) = self.lists.remove(place);
            self.places.remove(&rank);
        }
    }

    /// Returns the rank at a place.
    pub(crate) fn rank(&self, place: Slot) -> R {
        self.lists.key(place)
    }

    /// Returns the slots and their ranks, least first.
    pub(crate) fn least_first<K, V>(&self, slab: &Slab<K, V>) -> impl Iterator<Item = (R, Slot)> {
        let places = self.places.iter();
        places.flat_map(|(&rank, &place)| {
            let list = self.lists[place];
            slab.oldest_first(list).map(move |slot| (rank, slot))
        })
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
                if let Some((slot, place)) = ranks.remove(&key) {
                    let before = order.rank(place);
                    order.remove(&mut slab, place, slot);
                    slab.remove(slot);
                    model.retain(|&(rank, _), other| rank != before || *other != key);
                }
                if rank < 50 {
                    let slot = slab.insert(key, ());
                    let place = order.insert(&mut slab, rank, slot);
                    ranks.insert(key, (slot, place));
                    model.insert((rank, time), key);
                }
                let ordered = order.least_first(&slab).map(|(rank, slot)| (rank, slab.key(slot)));
                assert!(ordered.eq(model.iter().map(|(&(rank, _), &key)| (rank, key))));
                assert_eq!(order.places.len(), order.lists.len());
                assert!(order.places.len() <= model.len(), "a rank without entries is forgotten");
            }
        }
    }
}
