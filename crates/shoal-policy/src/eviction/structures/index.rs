//! Slots by the hashes of their keys: open addressing, with the keys stored elsewhere.
//!
//! The standard map would hold each key a second time, and a look-up would touch one more line of memory.

use super::slot::{NONE, Slot};

/// A table whose number of buckets is a power of two, at most three quarters full, probed linearly.
#[derive(Debug, Default)]
pub(crate) struct Index {
    buckets: Vec<Bucket>,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Rules out most other keys without reading them, and gives the bucket's home position.
    hash: u32,
    /// `NONE` in an empty bucket.
    slot: Slot,
}

const EMPTY: Bucket = Bucket { hash: 0, slot: NONE };

/// The number of buckets of the first table.
const BUCKETS_MIN: usize = 8;

impl Index {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// Returns the slot with this hash for which `is_it` returns true.
    pub(crate) fn find(&self, hash: u32, is_it: impl Fn(Slot) -> bool) -> Option<Slot> {
        self.position(hash, is_it)
            .map(|position| self.buckets[position].slot)
    }

    /// Adds a slot that is absent.
    pub(crate) fn insert(&mut self, hash: u32, slot: Slot) {
        if 4 * (self.len + 1) > 3 * self.buckets.len() {
            self.grow();
        }
        self.place(Bucket { hash, slot });
        self.len += 1;
    }

    /// Removes a slot that is present.
    pub(crate) fn remove(&mut self, hash: u32, slot: Slot) {
        let mut hole = self
            .position(hash, |other| other == slot)
            .expect("a held key is in the index");
        // Each following bucket moves up into the hole unless the hole lies before its home position, so that
        // no probe stops early at the hole.
        let mut next = self.after(hole);
        while self.buckets[next].slot != NONE {
            let home = self.home(self.buckets[next].hash);
            if self.distance(home, next) >= self.distance(hole, next) {
                self.buckets[hole] = self.buckets[next];
                hole = next;
            }
            next = self.after(next);
        }
        self.buckets[hole] = EMPTY;
        self.len -= 1;
    }

    fn position(&self, hash: u32, is_it: impl Fn(Slot) -> bool) -> Option<usize> {
        if self.buckets.is_empty() {
            return None;
        }
        let mut position = self.home(hash);
        loop {
            let bucket = self.buckets[position];
            if bucket.slot == NONE {
                return None;
            }
            if bucket.hash == hash && is_it(bucket.slot) {
                return Some(position);
            }
            position = self.after(position);
        }
    }

    fn place(&mut self, bucket: Bucket) {
        let mut position = self.home(bucket.hash);
        while self.buckets[position].slot != NONE {
            position = self.after(position);
        }
        self.buckets[position] = bucket;
    }

    fn grow(&mut self) {
        let len = BUCKETS_MIN.max(2 * self.buckets.len());
        let before = std::mem::replace(&mut self.buckets, vec![EMPTY; len]);
        for bucket in before.into_iter().filter(|bucket| bucket.slot != NONE) {
            self.place(bucket);
        }
    }

    const fn home(&self, hash: u32) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    const fn after(&self, position: usize) -> usize {
        (position + 1) & (self.buckets.len() - 1)
    }

    /// The number of steps forward from one position to another.
    const fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.buckets.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, any, proptest};

    use super::Index;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Few hashes, so that they collide and wrap around the end of the table.
        #[test]
        fn any_history_finds_what_a_map_finds(steps in vec((any::<bool>(), 0..40u32), 0..300)) {
            let hash = |key: u32| if key < 20 { 6 } else { key / 8 };
            let (mut index, mut model) = (Index::default(), BTreeSet::new());
            for (is_insert, key) in steps {
                match (is_insert, model.contains(&key)) {
                    (true, false) => {
                        index.insert(hash(key), key);
                        model.insert(key);
                    }
                    (false, true) => {
                        index.remove(hash(key), key);
                        model.remove(&key);
                    }
                    _ => {}
                }
                assert_eq!(index.len(), model.len());
                for key in 0..40 {
                    let found = index.find(hash(key), |slot| slot == key);
                    assert_eq!(found, model.contains(&key).then_some(key));
                }
            }
        }
    }
}
