//! Keyed entries in one vector, threaded into doubly linked lists by index.
//!
//! It needs no allocation per key and no unsafe code. Keys are stored once: the table that finds them holds
//! only their slots. Links have 32 bits, which limits a slab to four billion keys. One slab serves any number
//! of lists; an entry is in one of them at a time. A slab with two chains keeps two orders of its keys: each
//! list belongs to one chain, and an entry is in at most one list per chain.

use std::hash::Hash;
use std::ops;

use hashbrown::HashTable;

use crate::hash::hash;

/// Identifies a slab entry while its key is held.
pub(crate) type Slot = u32;

/// Ends a chain of nodes.
const NONE: Slot = Slot::MAX;

#[derive(Debug)]
pub(crate) struct Slab<K, V, const CHAINS: usize = 1> {
    slots: HashTable<Slot>,
    nodes: Vec<Node<K, V, CHAINS>>,
    /// Nodes without a key, chained by the `older` of the first chain.
    free: Slot,
}

#[derive(Debug)]
struct Node<K, V, const CHAINS: usize> {
    key: K,
    links: [Links; CHAINS],
    value: V,
}

/// The neighbours of an entry in a list.
#[derive(Clone, Copy, Debug)]
struct Links {
    newer: Slot,
    older: Slot,
}

/// The links of an entry that is in no list.
const UNLINKED: Links = Links {
    newer: NONE,
    older: NONE,
};

/// The two ends of a list through the nodes of a slab, in one of its chains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct List<const CHAIN: usize = 0> {
    newest: Slot,
    oldest: Slot,
}

impl<const CHAIN: usize> Default for List<CHAIN> {
    fn default() -> Self {
        Self {
            newest: NONE,
            oldest: NONE,
        }
    }
}

impl<const CHAIN: usize> List<CHAIN> {
    pub(crate) fn oldest(self) -> Option<Slot> {
        some(self.oldest)
    }
}

fn some(slot: Slot) -> Option<Slot> {
    (slot != NONE).then_some(slot)
}

impl<K, V, const CHAINS: usize> Default for Slab<K, V, CHAINS> {
    fn default() -> Self {
        Self {
            slots: HashTable::new(),
            nodes: Vec::new(),
            free: NONE,
        }
    }
}

impl<K: Copy + Eq + Hash, V: Copy, const CHAINS: usize> Slab<K, V, CHAINS> {
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.slot(key).is_some()
    }

    pub(crate) fn slot(&self, key: &K) -> Option<Slot> {
        let is_it = |slot: &Slot| self.nodes[*slot as usize].key == *key;
        self.slots.find(hash(key), is_it).copied()
    }

    pub(crate) fn key(&self, slot: Slot) -> K {
        self.nodes[slot as usize].key
    }

    /// Adds an absent key, which is in no list at first.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Slot {
        let node = Node {
            key,
            links: [UNLINKED; CHAINS],
            value,
        };
        debug_assert!(!self.contains(&key), "a key is inserted when it is absent");
        let slot = self.place(node);
        let nodes = &self.nodes;
        self.slots
            .insert_unique(hash(&key), slot, |&slot| hash(&nodes[slot as usize].key));
        slot
    }

    /// Forgets the key of a slot that is in no list.
    pub(crate) fn remove(&mut self, slot: Slot) -> (K, V) {
        let node = &mut self.nodes[slot as usize];
        node.links[0].older = self.free;
        self.free = slot;
        let entry = self.slots.find_entry(hash(&node.key), |&other| other == slot);
        entry.expect("a held key is in the table").remove();
        (node.key, node.value)
    }

    fn place(&mut self, node: Node<K, V, CHAINS>) -> Slot {
        if self.free == NONE {
            let slot = Slot::try_from(self.nodes.len()).expect("fewer than four billion keys are held");
            self.nodes.push(node);
            return slot;
        }
        let slot = self.free;
        self.free = self.nodes[slot as usize].links[0].older;
        self.nodes[slot as usize] = node;
        slot
    }
}

impl<K, V, const CHAINS: usize> Slab<K, V, CHAINS> {
    /// The entries of a list, oldest first.
    pub(crate) fn oldest_first<const CHAIN: usize>(&self, list: List<CHAIN>) -> impl Iterator<Item = Slot> {
        std::iter::successors(list.oldest(), move |&slot| self.newer(list, slot))
    }

    /// The next entry of a list on the way from its oldest to its newest.
    pub(crate) fn newer<const CHAIN: usize>(&self, _list: List<CHAIN>, slot: Slot) -> Option<Slot> {
        some(self.nodes[slot as usize].links[CHAIN].newer)
    }

    /// Adds an entry that is in no list of this chain at the newest end of `list`.
    pub(crate) fn link_newest<const CHAIN: usize>(&mut self, list: &mut List<CHAIN>, slot: Slot) {
        debug_assert_ne!(list.newest, slot, "an entry is linked once");
        let second = std::mem::replace(&mut list.newest, slot);
        *self.links::<CHAIN>(slot) = Links {
            newer: NONE,
            older: second,
        };
        match second {
            NONE => list.oldest = slot,
            second => self.links::<CHAIN>(second).newer = slot,
        }
    }

    pub(crate) fn unlink<const CHAIN: usize>(&mut self, list: &mut List<CHAIN>, slot: Slot) {
        let Links { newer, older } = *self.links::<CHAIN>(slot);
        match newer {
            NONE => list.newest = older,
            newer => self.links::<CHAIN>(newer).older = older,
        }
        match older {
            NONE => list.oldest = newer,
            older => self.links::<CHAIN>(older).newer = newer,
        }
    }

    pub(crate) fn move_newest<const CHAIN: usize>(&mut self, list: &mut List<CHAIN>, slot: Slot) {
        if list.newest != slot {
            self.unlink(list, slot);
            self.link_newest(list, slot);
        }
    }

    fn links<const CHAIN: usize>(&mut self, slot: Slot) -> &mut Links {
        &mut self.nodes[slot as usize].links[CHAIN]
    }
}

impl<K, V, const CHAINS: usize> ops::Index<Slot> for Slab<K, V, CHAINS> {
    type Output = V;

    fn index(&self, slot: Slot) -> &V {
        &self.nodes[slot as usize].value
    }
}

impl<K, V, const CHAINS: usize> ops::IndexMut<Slot> for Slab<K, V, CHAINS> {
    fn index_mut(&mut self, slot: Slot) -> &mut V {
        &mut self.nodes[slot as usize].value
    }
}

#[cfg(test)]
mod tests {
    use super::{List, Slab, Slot};

    fn keys(slab: &Slab<u32, ()>, list: List) -> Vec<u32> {
        slab.oldest_first(list).map(|slot| slab.key(slot)).collect()
    }

    fn listed(slab: &mut Slab<u32, ()>, list: &mut List, key: u32) -> Slot {
        let slot = slab.insert(key, ());
        slab.link_newest(list, slot);
        slot
    }

    #[test]
    fn an_entry_moves_and_leaves_wherever_it_stands() {
        for (at, moved, left) in [
            (0, [2, 3, 1], [2, 3]),
            (1, [1, 3, 2], [1, 3]),
            (2, [1, 2, 3], [1, 2]),
        ] {
            let (mut slab, mut list) = (Slab::default(), List::default());
            let slots = [1, 2, 3].map(|key| listed(&mut slab, &mut list, key));
            slab.move_newest(&mut list, slots[at]);
            assert_eq!(keys(&slab, list), moved);
            slab.unlink(&mut list, slots[at]);
            assert_eq!(keys(&slab, list), left);
        }
    }

    #[test]
    fn slots_of_keys_that_left_are_used_again() {
        let (mut slab, mut list) = (Slab::default(), List::default());
        (0..4).for_each(|key| _ = listed(&mut slab, &mut list, key));
        for key in 4..1000 {
            let oldest = list.oldest().unwrap();
            slab.unlink(&mut list, oldest);
            assert_eq!(slab.remove(oldest), (key - 4, ()));
            listed(&mut slab, &mut list, key);
        }
        assert_eq!(slab.nodes.len(), 4);
        assert_eq!(keys(&slab, list), [996, 997, 998, 999]);
    }
}
