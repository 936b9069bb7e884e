//! The shadow list: blocks by last use, and the weight used since each of them.

use super::positions::Positions;
use super::recency::Recency;

/// Positions for each 100 blocks: the number of spare ones decides how often the list is renumbered.
const POSITIONS_PER_100_BLOCKS: usize = 160;

/// The paper's SL: blocks in the order of their last use, without their data, with weights from 1 to 255.
///
/// Each access takes the next position, which replaces the block's earlier one. The distance of a block is
/// the total weight at and after its position. When positions run out, the living blocks are renumbered, at
/// most once per 0.6 × `blocks_max` accesses.
#[derive(Debug)]
pub(super) struct ShadowList {
    positions: Positions,
    recency: Recency,
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
        let recency = Recency::new(blocks_max * POSITIONS_PER_100_BLOCKS / 100 + 2);
        Self {
            positions: Positions::new(blocks_max, recency.positions()),
            recency,
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
        if self.next as usize == self.recency.positions() {
            self.renumber();
        }
        let before = self.positions.replace(fingerprint, self.next, self.oldest);
        let distance = before.map(|before| self.weight - self.recency.sum_before(before));
        if let Some(before) = before {
            self.take_out(before);
        }
        self.recency.set(self.next, weight);
        self.next += 1;
        self.blocks += 1;
        self.weight += u32::from(weight);
        self.shorten();
        distance
    }

    pub(super) const fn bytes(&self) -> usize {
        self.positions.bytes() + self.recency.bytes()
    }

    /// Drops the least recently used blocks until the list is within its limits.
    fn shorten(&mut self) {
        while self.blocks > self.blocks_max || self.weight > self.weight_max {
            while self.recency.weight(self.oldest) == 0 {
                self.oldest += 1;
            }
            self.take_out(self.oldest);
            self.oldest += 1;
        }
    }

    fn take_out(&mut self, position: u32) {
        self.weight -= u32::from(self.recency.weight(position));
        self.blocks -= 1;
        self.recency.set(position, 0);
    }

    fn renumber(&mut self) {
        let (positions, oldest) = (&mut self.positions, self.oldest);
        self.next = self
            .recency
            .compact(|renumbered| positions.renumber(oldest, renumbered));
        self.oldest = 1;
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
