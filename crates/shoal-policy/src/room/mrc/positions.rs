//! The position of each block's last use in the order of accesses: eight bytes per slot.

/// Slots of one cache line. A look-up reads the bucket to which the block hashes, and further buckets only if
/// that one overflowed.
const BUCKET: usize = 8;

/// Slots for each 100 blocks: with fewer, more buckets overflow.
const SLOTS_PER_100_BLOCKS: usize = 125;

/// Extra buckets behind the last home bucket, for blocks that overflow.
const SPARE_BUCKETS: usize = 64;

/// A slot without a block. No access has position 0.
const FREE: u64 = 0;

/// A hash table from fingerprint to position.
///
/// A slot holds a position in its low bits and the high bits of the fingerprint in the rest; the home bucket
/// follows from these. Blocks that fall off the list are not removed: an entry whose position is before the
/// oldest living one is dead, and its slot counts as free.
#[derive(Debug)]
pub(super) struct Positions {
    buckets: Box<[Bucket]>,
    /// A bit per bucket, set if a block that hashes to it or was passed on by it is in a later bucket.
    overflowed: Box<[u64]>,
    position_bits: u32,
}

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Bucket([u64; BUCKET]);

impl Positions {
    /// Creates a table for `blocks_max` living blocks and positions below `positions`.
    pub(super) fn new(blocks_max: usize, positions: usize) -> Self {
        let buckets = (blocks_max * SLOTS_PER_100_BLOCKS).div_ceil(100 * BUCKET) + SPARE_BUCKETS;
        Self {
            buckets: vec![Bucket([FREE; BUCKET]); buckets].into_boxed_slice(),
            overflowed: vec![0; buckets.div_ceil(64)].into_boxed_slice(),
            position_bits: usize::BITS - positions.leading_zeros(),
        }
    }

    /// Records that the block with this fingerprint is now at `position`. Returns its previous position, if
    /// that is not before `oldest`.
    pub(super) fn replace(&mut self, fingerprint: u64, position: u32, oldest: u32) -> Option<u32> {
        let tag = fingerprint >> self.position_bits;
        let entry = self.entry(tag, position);
        let mut bucket = self.home(tag);
        loop {
            let slots = &mut self.buckets[bucket].0;
            if let Some(slot) = slots.iter_mut().find(|slot| **slot >> self.position_bits == tag) {
                let before = std::mem::replace(slot, entry);
                return Some(self.position(before)).filter(|&before| before >= oldest);
            }
            if !self.has_overflowed(bucket) {
                self.insert(entry, oldest);
                return None;
            }
            bucket += 1;
        }
    }

    /// Drops dead entries and replaces each living block's position by `renumbered(position)`.
    ///
    /// This works in place, from the first bucket to the last: all buckets before the current one have been
    /// processed, so no block moves further from home.
    pub(super) fn renumber(&mut self, oldest: u32, renumbered: impl Fn(u32) -> u32) {
        self.overflowed.fill(0);
        for bucket in 0..self.buckets.len() {
            for slot in 0..BUCKET {
                let entry = std::mem::replace(&mut self.buckets[bucket].0[slot], FREE);
                let position = self.position(entry);
                if position >= oldest {
                    let tag = entry >> self.position_bits;
                    self.insert(self.entry(tag, renumbered(position)), 1);
                }
            }
        }
    }

    pub(super) const fn bytes(&self) -> usize {
        size_of_val(&*self.buckets) + size_of_val(&*self.overflowed)
    }

    /// Stores `entry` in the first free or dead slot from its home bucket on. If there is none up to the end
    /// of the table, the block is dropped, and its next use looks like its first.
    fn insert(&mut self, entry: u64, oldest: u32) {
        let home = self.home(entry >> self.position_bits);
        for bucket in home..self.buckets.len() {
            let positions = (1 << self.position_bits) - 1;
            let slots = &mut self.buckets[bucket].0;
            if let Some(slot) = slots
                .iter_mut()
                .find(|slot| **slot & positions < u64::from(oldest))
            {
                *slot = entry;
                return;
            }
            if bucket + 1 < self.buckets.len() {
                self.overflowed[bucket / 64] |= 1 << (bucket % 64);
            }
        }
    }

    const fn has_overflowed(&self, bucket: usize) -> bool {
        self.overflowed[bucket / 64] >> (bucket % 64) & 1 == 1
    }

    const fn entry(&self, tag: u64, position: u32) -> u64 {
        (tag << self.position_bits) | position as u64
    }

    const fn position(&self, entry: u64) -> u32 {
        (entry & ((1 << self.position_bits) - 1)) as u32
    }

    /// Maps the tag, read as a fraction of all tags, to the same fraction of the buckets.
    const fn home(&self, tag: u64) -> usize {
        let homes = self.buckets.len() - SPARE_BUCKETS;
        (((tag << self.position_bits) as u128 * homes as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::{BUCKET, Positions};
    use crate::fingerprint::mix;

    #[test]
    fn the_table_knows_what_a_map_knows_while_blocks_die_and_are_forgotten() {
        let mut table = Positions::new(100, 1 << 20);
        let mut model: HashMap<u64, u32> = HashMap::new();
        for position in 1..20_000 {
            let fingerprint = mix(mix(u64::from(position)) % 300);
            let oldest = if position > 100 { position - 99 } else { 1 };
            if position % 1000 == 0 {
                table.renumber(oldest, |position| position);
            }
            let before = model
                .insert(fingerprint, position)
                .filter(|&before| before >= oldest);
            assert_eq!(table.replace(fingerprint, position, oldest), before);
        }
    }

    #[test]
    fn renumbering_gives_every_living_block_its_new_position() {
        let mut table = Positions::new(100, 1000);
        (1..=100).for_each(|position| assert_eq!(table.replace(mix(position.into()), position, 1), None));
        table.renumber(51, |position| position - 50);
        for position in 1..=100 {
            let living = (position > 50).then(|| position - 50);
            assert_eq!(table.replace(mix(position.into()), 200, 1), living);
        }
    }

    #[test]
    fn the_dead_make_room_before_they_are_forgotten() {
        let mut table = Positions::new(100, 1 << 20);
        for position in 1..10_000 {
            let oldest = if position > 100 { position - 99 } else { 1 };
            assert_eq!(table.replace(mix(position.into()), position, oldest), None);
        }
        for position in 9900..10_000 {
            assert_eq!(table.replace(mix(position.into()), 10_000, 9900), Some(position));
        }
    }

    #[test]
    fn blocks_of_one_home_overflow_and_come_back() {
        let mut table = Positions::new(100, 1000);
        let crowd = |number: u64| number << 32;
        (1..=50).for_each(|number| assert_eq!(table.replace(crowd(number), number as u32, 1), None));
        assert!(table.has_overflowed(50 / BUCKET - 1));
        (1..=50).for_each(|number| {
            assert_eq!(
                table.replace(crowd(number), number as u32, 1),
                Some(number as u32)
            );
        });
        table.renumber(48, |position| position - 47);
        assert!(!table.has_overflowed(0), "the last three are at home");
        assert_eq!(table.replace(crowd(50), 9, 1), Some(3));
    }

    #[test]
    fn a_block_without_a_place_is_new_again() {
        let mut table = Positions::new(8, 1000);
        let end = |number: u64| u64::MAX - (number << 32);
        let places = 65 * BUCKET as u64;
        (0..=places).for_each(|number| assert_eq!(table.replace(end(number), 1, 1), None));
        assert_eq!(table.replace(end(places - 1), 2, 1), Some(1));
        assert_eq!(table.replace(end(places), 2, 1), None);
    }
}
