//! The total weight used since a given access: the order-statistics structure of the list.

/// The number of positions whose weights are summed one by one; the tree keeps the sums of whole lines.
const LINE: usize = 64;

/// The weight of the block last used at each position; 0 if that block was used again or has fallen off the
/// list.
///
/// The sum over a prefix takes one line of 64 weights, which the processor adds with SIMD, and a walk up a
/// Fenwick tree over the lines. This takes a byte and half a bit per position; a tree over positions would
/// take four bytes.
#[derive(Debug)]
pub(super) struct Recency {
    weights: Box<[u8]>,
    /// Fenwick tree: the entry of line i sums the 2^t lines up to i, where t counts the trailing ones of i.
    lines: Box<[u32]>,
}

impl Recency {
    /// Positions 0 to `positions`, rounded up, all of weight 0.
    pub(super) fn new(positions: usize) -> Self {
        let lines = positions.div_ceil(LINE);
        Self {
            weights: vec![0; lines * LINE].into_boxed_slice(),
            lines: vec![0; lines].into_boxed_slice(),
        }
    }

    pub(super) const fn positions(&self) -> usize {
        self.weights.len()
    }

    pub(super) const fn bytes(&self) -> usize {
        self.weights.len() + self.lines.len() * size_of::<u32>()
    }

    pub(super) const fn weight(&self, position: u32) -> u8 {
        self.weights[position as usize]
    }

    /// Replaces the weight at `position`.
    pub(super) fn set(&mut self, position: u32, weight: u8) {
        let before = std::mem::replace(&mut self.weights[position as usize], weight);
        let change = u32::from(weight).wrapping_sub(u32::from(before));
        let mut line = position as usize / LINE;
        while line < self.lines.len() {
            self.lines[line] = self.lines[line].wrapping_add(change);
            line |= line + 1;
        }
    }

    /// Sum of the weights before `position`.
    pub(super) fn sum_before(&self, position: u32) -> u32 {
        let line = position as usize / LINE;
        let weights = &self.weights[line * LINE..position as usize];
        let mut sum = weights.iter().map(|&weight| u32::from(weight)).sum();
        let mut lines = line;
        while lines > 0 {
            sum += self.lines[lines - 1];
            lines &= lines - 1;
        }
        sum
    }

    /// Closes the gaps: the n-th position with a weight moves to n, counted from 1. `moved` is called once
    /// with a function from old to new positions. Returns the first unused position.
    pub(super) fn compact(&mut self, moved: impl FnOnce(&dyn Fn(u32) -> u32)) -> u32 {
        let ranks = Ranks::from_weights(&self.weights);
        moved(&|position| 1 + ranks.used_before(position));
        let mut next = 1;
        for position in 1..self.weights.len() {
            let weight = std::mem::take(&mut self.weights[position]);
            if weight != 0 {
                self.weights[next] = weight;
                next += 1;
            }
        }
        self.sum_lines();
        next as u32
    }

    fn sum_lines(&mut self) {
        for (sum, line) in self.lines.iter_mut().zip(self.weights.chunks_exact(LINE)) {
            *sum = line.iter().map(|&weight| u32::from(weight)).sum();
        }
        for line in 0..self.lines.len() {
            let parent = line | (line + 1);
            if parent < self.lines.len() {
                self.lines[parent] += self.lines[line];
            }
        }
    }
}

/// The number of positions with a weight before each one: a bit for each position and a count for each line.
struct Ranks(Vec<(u64, u32)>);

impl Ranks {
    fn from_weights(weights: &[u8]) -> Self {
        let mut before = 0;
        let lines = weights.chunks_exact(LINE).map(|line| {
            let used = line
                .iter()
                .rev()
                .fold(0, |bits, &weight| bits << 1 | u64::from(weight != 0));
            let rank = (used, before);
            before += used.count_ones();
            rank
        });
        Self(lines.collect())
    }

    fn used_before(&self, position: u32) -> u32 {
        let (used, before) = self.0[position as usize / LINE];
        before + (used & ((1 << (position as usize % LINE)) - 1)).count_ones()
    }
}

#[cfg(test)]
mod tests {
    use super::Recency;
    use crate::fingerprint::mix;

    fn filled(positions: u32) -> Recency {
        let mut recency = Recency::new(positions as usize);
        (1..positions).for_each(|position| recency.set(position, mix(u64::from(position)) as u8 % 3));
        recency
    }

    #[test]
    fn sums_are_those_of_the_weights_one_by_one() {
        let mut recency = filled(700);
        recency.set(65, 200);
        let mut sum = 0;
        for position in 0..700 {
            assert_eq!(recency.sum_before(position), sum);
            sum += u32::from(recency.weight(position));
        }
    }

    #[test]
    fn compaction_keeps_the_order_and_tells_the_new_numbers() {
        let mut recency = filled(700);
        let used: Vec<u32> = (0..700)
            .filter(|&position| recency.weight(position) != 0)
            .collect();
        let weights: Vec<u8> = used.iter().map(|&position| recency.weight(position)).collect();
        let next = recency.compact(|renumbered| {
            let numbers: Vec<u32> = used.iter().map(|&position| renumbered(position)).collect();
            assert_eq!(numbers, (1..=used.len() as u32).collect::<Vec<_>>());
        });
        assert_eq!(next as usize, used.len() + 1);
        assert_eq!(
            (1..next)
                .map(|position| recency.weight(position))
                .collect::<Vec<_>>(),
            weights
        );
        let mut sum = 0;
        for position in 0..700 {
            assert_eq!(recency.sum_before(position), sum);
            sum += u32::from(recency.weight(position));
        }
    }
}
