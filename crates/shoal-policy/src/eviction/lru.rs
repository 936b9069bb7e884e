//! The least recently used leaves first.

use std::collections::HashMap;
use std::hash::Hash;

use super::Eviction;

/// Ends a chain of [`Node`]s.
const NONE: u32 = u32::MAX;

/// Least recently used, every operation in O(1).
///
/// The order is a doubly linked list threaded through a vector by index: no allocation per key, no unsafe code, and
/// 32-bit links, which bound it to four billion keys.
#[derive(Debug)]
pub struct Lru<K> {
    slots: HashMap<K, u32>,
    nodes: Vec<Node<K>>,
    /// Most recently used.
    newest: u32,
    /// Least recently used: the first to leave.
    oldest: u32,
    /// Nodes without a key, chained by `older`.
    free: u32,
}

#[derive(Debug)]
struct Node<K> {
    key: K,
    newer: u32,
    older: u32,
    bytes: u64,
}

impl<K> Default for Lru<K> {
    fn default() -> Self {
        Self {
            slots: HashMap::new(),
            nodes: Vec::new(),
            newest: NONE,
            oldest: NONE,
            free: NONE,
        }
    }
}

impl<K: Copy + Eq + Hash> Eviction<K> for Lru<K> {
    fn insert(&mut self, key: K, bytes: u64) {
        let node = Node {
            key,
            newer: NONE,
            older: NONE,
            bytes,
        };
        let slot = self.place(node);
        let before = self.slots.insert(key, slot);
        debug_assert!(before.is_none(), "a key is inserted when it is absent");
        self.link_newest(slot);
    }

    fn touch(&mut self, key: &K) {
        let Some(&slot) = self.slots.get(key) else { return };
        if slot != self.newest {
            self.unlink(slot);
            self.link_newest(slot);
        }
    }

    fn remove(&mut self, key: &K) -> Option<u64> {
        let slot = self.slots.remove(key)?;
        Some(self.release(slot))
    }

    fn evict(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<(K, u64)> {
        let mut slot = self.oldest;
        while slot != NONE {
            let Node { key, newer, .. } = self.nodes[slot as usize];
            if may_leave(&key) {
                self.slots.remove(&key);
                return Some((key, self.release(slot)));
            }
            slot = newer;
        }
        None
    }

    fn contains(&self, key: &K) -> bool {
        self.slots.contains_key(key)
    }

    fn len(&self) -> usize {
        self.slots.len()
    }
}

impl<K> Lru<K> {
    fn place(&mut self, node: Node<K>) -> u32 {
        if self.free == NONE {
            let slot = u32::try_from(self.nodes.len()).expect("fewer than four billion keys are held");
            self.nodes.push(node);
            return slot;
        }
        let slot = self.free;
        self.free = self.nodes[slot as usize].older;
        self.nodes[slot as usize] = node;
        slot
    }

    fn release(&mut self, slot: u32) -> u64 {
        self.unlink(slot);
        let node = &mut self.nodes[slot as usize];
        node.older = self.free;
        self.free = slot;
        node.bytes
    }

    fn link_newest(&mut self, slot: u32) {
        let second = self.newest;
        self.nodes[slot as usize].newer = NONE;
        self.nodes[slot as usize].older = second;
        match second {
            NONE => self.oldest = slot,
            second => self.nodes[second as usize].newer = slot,
        }
        self.newest = slot;
    }

    fn unlink(&mut self, slot: u32) {
        let Node { newer, older, .. } = self.nodes[slot as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.nodes[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.nodes[older as usize].newer = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Eviction, Lru};

    fn leaving_order(mut policy: Lru<u32>) -> Vec<u32> {
        std::iter::from_fn(|| policy.evict(&mut |_| true))
            .map(|(key, _)| key)
            .collect()
    }

    fn holding(keys: impl IntoIterator<Item = u32>) -> Lru<u32> {
        let mut policy = Lru::default();
        keys.into_iter().for_each(|key| policy.insert(key, 1));
        policy
    }

    #[test]
    fn untouched_keys_leave_in_the_order_they_came() {
        assert_eq!(leaving_order(holding([3, 1, 2])), [3, 1, 2]);
    }

    #[test]
    fn a_touched_key_leaves_last_wherever_it_stood() {
        for (touched, order) in [(1, [2, 3, 1]), (2, [1, 3, 2]), (3, [1, 2, 3])] {
            let mut policy = holding([1, 2, 3]);
            policy.touch(&touched);
            assert_eq!(leaving_order(policy), order);
        }
    }

    #[test]
    fn a_key_that_may_not_leave_keeps_its_place() {
        let mut policy = holding([1, 2, 3]);
        assert_eq!(policy.evict(&mut |&key| key != 1), Some((2, 1)));
        assert_eq!(leaving_order(policy), [1, 3]);
    }

    #[test]
    fn slots_of_keys_that_left_are_used_again() {
        let mut policy = holding(0..4);
        for key in 4..1000 {
            policy.evict(&mut |_| true);
            policy.insert(key, 1);
        }
        assert_eq!(policy.nodes.len(), 4);
        assert_eq!(leaving_order(policy), [996, 997, 998, 999]);
    }
}
