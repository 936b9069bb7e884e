//! Keys that leave before all others.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Keys in the order in which they were released.
#[derive(Clone, Debug)]
pub(super) struct Released<K> {
    /// The latest number of each key.
    numbers: HashMap<K, u64>,
    /// All numbers in order. One that is not the latest of its key is void.
    order: VecDeque<(u64, K)>,
    next: u64,
}

impl<K> Default for Released<K> {
    fn default() -> Self {
        Self {
            numbers: HashMap::new(),
            order: VecDeque::new(),
            next: 0,
        }
    }
}

impl<K: Copy + Eq + Hash> Released<K> {
    /// Adds a key behind all others, unless it is there.
    pub(super) fn add(&mut self, key: K) {
        if self.numbers.contains_key(&key) {
            return;
        }
        self.numbers.insert(key, self.next);
        self.order.push_back((self.next, key));
        self.next += 1;
        // Otherwise a key that is released and used in turns would fill the queue.
        if self.order.len() > 2 * self.numbers.len() + 64 {
            let numbers = &self.numbers;
            self.order
                .retain(|(number, key)| numbers.get(key) == Some(number));
        }
    }

    pub(super) fn remove(&mut self, key: &K) {
        if !self.numbers.is_empty() {
            self.numbers.remove(key);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &K> {
        let valid = |(number, key): &&(u64, K)| self.numbers.get(key) == Some(number);
        self.order.iter().filter(valid).map(|(_, key)| key)
    }

    /// Returns the number of places that are taken.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the first key that may leave. It stays.
    pub(super) fn first(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<K> {
        while let Some((number, key)) = self.order.front()
            && self.numbers.get(key) != Some(number)
        {
            self.order.pop_front();
        }
        self.iter().find(|key| may_leave(key)).copied()
    }
}
