//! The shadow list: blocks by last use, and the weight used since each of them.

use std::hash::BuildHasherDefault;

use crate::hash::KeyMap;

/// Positions for each 100 blocks: the number of spare ones decides how often the list is renumbered.
const POSITIONS_PER_100_BLOCKS: usize = 160;

/// The paper's SL: blocks in the order of their last use, without their data, with weights from 1 to 255.
///
/// Each access takes the next position, which replaces the block's earlier one. The distance of a block is
/// the total weight at and after its position: a prefix sum. When positions run out, the living blocks are
/// renumbered, at most once per 0.6 × `blocks_max` accesses.
#[derive(Debug)]
pub(super) struct ShadowList {
    /// The position of each block's last use. Blocks that fell off the list stay until it is renumbered;
    /// their positions are before the oldest living one.
    positions: KeyMap<u64, u32>,
    /// The weight of the block last used at each position; 0 if that block was used again or has fallen off.
    weights: Box<[u8]>,
    /// Fenwick tree: the entry of position i sums the 2^t weights up to i, where t counts the trailing ones
    /// of i.
    sums: Box<[u32]>,
    next: u32,
    /// No block on the list has a position before this one.
    oldest: u32,
    blocks: usize,
    blocks_max: usize,
    weight: u32,
    weight_max: u32,
}

impl ShadowList {
    /// An empty list that holds at most `blocks_max` blocks, with a total weight of at most `weight_max`.
    pub(super) fn new(blocks_max: usize, weight_max: u32) -> Self {
        let positions = blocks_max * POSITIONS_PER_100_BLOCKS / 100 + 2;
        Self {
            positions: KeyMap::with_capacity_and_hasher(positions, BuildHasherDefault::default()),
            weights: vec![0; positions].into_boxed_slice(),
            sums: vec![0; positions].into_boxed_slice(),
            next: 1,
            oldest: 1,
            blocks: 0,
            blocks_max,
            weight: 0,
            weight_max,
        }
    }

    /// Moves a block to the front, inserting it if it is absent. Returns the total weight from the front up
    /// to and including its former place: the least size of a cache that would have held it.
    pub(super) fn touch(&mut self, fingerprint: u64, weight: u8) -> Option<u32> {
        debug_assert!(weight > 0, "a position without a weight has no block");
        if self.next as usize == self.weights.len() {
            self.renumber();
        }
        let before = self.positions.insert(fingerprint, self.next);
        let before = before.filter(|before| *before >= self.oldest);
        let distance = before.map(|before| self.weight - self.sum_before(before));
        if let Some(before) = before {
            self.take_out(before);
        }
        self.set(self.next, weight);
        self.next += 1;
        self.blocks += 1;
        self.weight += u32::from(weight);
        self.shorten();
        distance
    }

    /// Drops the least recently used blocks until the list is within its limits.
    fn shorten(&mut self) {
        while self.blocks > self.blocks_max || self.weight > self.weight_max {
            while self.weights[self.oldest as usize] == 0 {
                self.oldest += 1;
            }
            self.take_out(self.oldest);
            self.oldest += 1;
        }
        debug_assert_eq!(
            self.weight,
            self.sum_before(self.next),
            "the weight of the list is that of its blocks"
        );
    }

    fn take_out(&mut self, position: u32) {
        self.weight -= u32::from(self.weights[position as usize]);
        self.blocks -= 1;
        self.set(position, 0);
    }

    /// Replaces the weight at `position`.
    fn set(&mut self, position: u32, weight: u8) {
        let mut place = position as usize;
        let before = std::mem::replace(&mut self.weights[place], weight);
        let change = u32::from(weight).wrapping_sub(u32::from(before));
        while let Some(sum) = self.sums.get_mut(place) {
            *sum = sum.wrapping_add(change);
            place |= place + 1;
        }
    }

    /// Sum of the weights before `position`.
    fn sum_before(&self, position: u32) -> u32 {
        let (mut sum, mut end) = (0, position as usize);
        while end > 0 {
            sum += self.sums[end - 1];
            end &= end - 1;
        }
        sum
    }

    /// Closes the gaps: the n-th position with a block moves to n, counted from 1.
    fn renumber(&mut self) {
        let empty = vec![0; self.weights.len()].into_boxed_slice();
        let weights = std::mem::replace(&mut self.weights, empty);
        let mut numbers = vec![0; weights.len()];
        self.sums.fill(0);
        (self.next, self.oldest) = (1, 1);
        for (number, &weight) in numbers
            .iter_mut()
            .zip(&weights)
            .filter(|(_, weight)| **weight > 0)
        {
            *number = self.next;
            self.set(self.next, weight);
            self.next += 1;
        }
        assert_eq!(
            self.next as usize,
            self.blocks + 1,
            "each block on the list has one position"
        );
        self.positions.retain(|_, position| {
            *position = numbers[*position as usize];
            *position > 0
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{Strategy, prop_oneof};
    use proptest::proptest;

    use super::ShadowList;
    use crate::fingerprint::mix;

    /// The list in its plainest form: front first.
    struct Naive {
        list: Vec<(u64, u8)>,
        blocks_max: usize,
        weight_max: u32,
    }

    impl Naive {
        fn touch(&mut self, block: u64, weight: u8) -> Option<u32> {
            let place = self.list.iter().position(|&(other, _)| other == block);
            let distance = place.map(|place| total(&self.list[..=place]));
            if let Some(place) = place {
                self.list.remove(place);
            }
            self.list.insert(0, (block, weight));
            while self.list.len() > self.blocks_max || total(&self.list) > self.weight_max {
                self.list.pop();
            }
            distance
        }
    }

    fn total(list: &[(u64, u8)]) -> u32 {
        list.iter().map(|&(_, weight)| u32::from(weight)).sum()
    }

    fn agree(blocks_max: usize, weight_max: u32, blocks: impl IntoIterator<Item = u64>) {
        let mut list = ShadowList::new(blocks_max, weight_max);
        let mut naive = Naive {
            list: Vec::new(),
            blocks_max,
            weight_max,
        };
        for (time, block) in blocks.into_iter().enumerate() {
            let weight = (block % 7) as u8 + 1;
            let expected = naive.touch(block, weight);
            assert_eq!(
                list.touch(mix(block), weight),
                expected,
                "access {time}, block {block}"
            );
            assert_eq!((list.blocks, list.weight), (naive.list.len(), total(&naive.list)));
        }
    }

    #[test]
    fn distances_of_a_hand_made_trace() {
        let mut list = ShadowList::new(3, 100);
        let mut touch = |block, weight| list.touch(mix(block), weight);
        assert_eq!(touch(1, 10), None);
        assert_eq!(touch(1, 10), Some(10), "a block alone");
        assert_eq!(touch(2, 20), None);
        assert_eq!(touch(3, 30), None);
        assert_eq!(touch(1, 10), Some(60), "its own weight counts");
        assert_eq!(touch(4, 40), None);
        assert_eq!(touch(2, 20), None, "the fourth block fell off");
    }

    #[test]
    fn loops_and_scans_of_every_length_around_the_bound() {
        for length in [1, 2, 49, 50, 51, 52, 100, 1000] {
            agree(50, u32::MAX, (0..2000).map(|time| time % length));
            agree(1000, 120, (0..2000).map(|time| time % length));
        }
    }

    #[test]
    fn a_hot_set_under_a_scan() {
        agree(
            50,
            u32::MAX,
            (0..5000).map(|time| if time % 3 == 0 { time } else { mix(time) % 20 }),
        );
    }

    #[test]
    fn back_and_forth() {
        agree(64, 300, (0..4000_u64).map(|time| (time % 200).abs_diff(100)));
    }

    fn trace() -> impl Strategy<Value = Vec<u64>> {
        prop_oneof![vec(0..30_u64, 0..600), vec(0..200_u64, 0..600)]
    }

    proptest! {
        #![proptest_config(proptest::test_runner::Config { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_trace_at_any_bound(trace in trace(), blocks_max in 1..100_usize, weight_max in 7..400_u32) {
            agree(blocks_max, weight_max, trace);
        }
    }
}
