//! Slab entries ordered by rank; entries of equal rank in the order in which they reached it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hash::Hash;

use super::slab::{List, Slab};
use super::slot::Slot;
use crate::hash::KeyMap;

/// Identifies a rank, in use or vacant. A vacant rank lost its last entry and is kept for reuse.
pub(crate) type RankId = u32;

/// One list for each rank. The list of a rank is found by hashing, so an entry changes its rank in O(1). Only
/// the least rank is ever needed, which a heap of the ranks yields. Where ranks count uses, many entries
/// share one rank and the heap is small.
///
/// A rank that becomes vacant keeps its id, because an entry may soon reach it again. It is dropped when it
/// is the least rank, or when most ranks are vacant, so memory is bounded by the ranks in use.
#[derive(Debug)]
pub(crate) struct Order<R> {
    /// Each rank with its entries.
    lists: Vec<(R, List)>,
    /// The id of each rank in `lists`.
    ids: KeyMap<R, RankId>,
    /// Every rank of `ids`, the least on top; the top rank is not vacant.
    ranks: BinaryHeap<Reverse<(R, RankId)>>,
    /// Unused ids.
    free: Vec<RankId>,
    /// The number of vacant ranks in `ids`.
    vacant: usize,
}

/// Vacant ranks are not searched for below this number of them.
const VACANT_MIN: usize = 16;

impl<R> Default for Order<R> {
    fn default() -> Self {
        Self {
            lists: Vec::new(),
            ids: KeyMap::default(),
            ranks: BinaryHeap::new(),
            free: Vec::new(),
            vacant: 0,
        }
    }
}

impl<R: Copy + Ord + Hash> Order<R> {
    /// Appends a slot that is in no list to the list of `rank`; returns the rank's id.
    pub(crate) fn insert<K, V>(&mut self, slab: &mut Slab<K, V>, rank: R, slot: Slot) -> RankId {
        let id = self.id_of(rank);
        let list = &mut self.lists[id as usize].1;
        self.vacant -= usize::from(list.oldest().is_none());
        slab.link_newest(list, slot);
        id
    }

    /// Removes a slot from the rank `id`.
    pub(crate) fn remove<K, V>(&mut self, slab: &mut Slab<K, V>, id: RankId, slot: Slot) {
        let list = &mut self.lists[id as usize].1;
        slab.unlink(list, slot);
        if list.oldest().is_none() {
            self.vacant += 1;
            self.forget_least();
            if self.vacant > VACANT_MIN + self.ids.len() / 2 {
                self.forget_vacant();
            }
        }
    }

    /// The rank with this id.
    pub(crate) fn rank(&self, id: RankId) -> R {
        self.lists[id as usize].0
    }

    /// The slots and their ranks, least first.
    pub(crate) fn least_first<K, V>(&self, slab: &Slab<K, V>) -> impl Iterator<Item = (R, Slot)> {
        self.ids_least_first().flat_map(|id| {
            let (rank, list) = self.lists[id as usize];
            slab.oldest_first(list).map(move |slot| (rank, slot))
        })
    }

    /// Returns the id of `rank`, adding it as vacant if it is new.
    fn id_of(&mut self, rank: R) -> RankId {
        let Self { lists, ids, free, .. } = self;
        let id = ids.entry(rank).or_insert_with(|| {
            let id = free.pop().unwrap_or_else(|| {
                lists.push((rank, List::default()));
                (lists.len() - 1) as RankId
            });
            self.ranks.push(Reverse((rank, id)));
            self.vacant += 1;
            lists[id as usize].0 = rank;
            id
        });
        *id
    }

    /// All ids on the heap, least rank first. The children of a rank are queued only after the rank was
    /// returned, so only the ranks that are consumed get sorted.
    fn ids_least_first(&self) -> impl Iterator<Item = RankId> {
        let heap = self.ranks.as_slice();
        // Allocates nothing for a caller that takes only the least.
        let (mut next, mut passed) = (BinaryHeap::new(), None);
        std::iter::from_fn(move || {
            let (Reverse((_, id)), position) = match passed {
                None => (*heap.first()?, 0),
                Some(parent) => {
                    let children = 2 * parent + 1..2 * parent + 3;
                    next.extend(children.filter_map(|child| heap.get(child).map(|rank| (*rank, child))));
                    next.pop()?
                }
            };
            passed = Some(position);
            Some(id)
        })
    }

    /// Drops vacant ranks from the top of the heap until the top has entries.
    fn forget_least(&mut self) {
        while let Some(&Reverse((rank, id))) = self.ranks.peek() {
            if self.lists[id as usize].1.oldest().is_some() {
                break;
            }
            self.ranks.pop();
            self.ids.remove(&rank);
            self.free.push(id);
            self.vacant -= 1;
        }
    }

    fn forget_vacant(&mut self) {
        let Self {
            lists,
            ids,
            ranks,
            free,
            vacant,
        } = self;
        ranks.retain(|Reverse((rank, id))| {
            let is_taken = lists[*id as usize].1.oldest().is_some();
            if !is_taken {
                ids.remove(rank);
                free.push(*id);
                *vacant -= 1;
            }
            is_taken
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, proptest};

    use super::{Order, VACANT_MIN};
    use crate::eviction::structures::slab::Slab;

    #[test]
    fn a_rank_that_rises_for_ever_leaves_nothing_behind() {
        let (mut slab, mut order) = (Slab::default(), Order::default());
        for slot in [0, 1].map(|key| slab.insert(key, ())) {
            let mut id = order.insert(&mut slab, 0, slot);
            for rank in 1..1_000 {
                order.remove(&mut slab, id, slot);
                id = order.insert(&mut slab, rank, slot);
                assert!(order.lists.len() <= 2 * VACANT_MIN + 4);
            }
        }
        assert_eq!(order.ids.len(), order.ranks.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// A key enters, gets another rank, or leaves.
        #[test]
        fn any_history_is_in_the_order_of_rank_and_arrival(steps in vec((0..30u32, 0..60u32), 0..400)) {
            let (mut slab, mut order) = (Slab::default(), Order::default());
            let mut model = BTreeMap::new();
            let mut ids = BTreeMap::new();
            for (time, (key, rank)) in steps.into_iter().enumerate() {
                if let Some((slot, id)) = ids.remove(&key) {
                    let before = order.rank(id);
                    order.remove(&mut slab, id, slot);
                    slab.remove(slot);
                    model.retain(|&(rank, _), other| rank != before || *other != key);
                }
                if rank < 50 {
                    let slot = slab.insert(key, ());
                    ids.insert(key, (slot, order.insert(&mut slab, rank, slot)));
                    model.insert((rank, time), key);
                }
                let ordered = order.least_first(&slab).map(|(rank, slot)| (rank, slab.key(slot)));
                assert!(ordered.eq(model.iter().map(|(&(rank, _), &key)| (rank, key))));
            }
        }
    }
}
