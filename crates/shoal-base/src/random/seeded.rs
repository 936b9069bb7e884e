//! Random numbers from a seed: xoshiro256++ (Blackman and Vigna, 2019), seeded through SplitMix64.
//!
//! The generator is written here instead of taken from a crate, so that a seed gives the same numbers in
//! every version and on every machine.

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct Chance {
    state: [u64; 4],
}

/// One step of SplitMix64: a well-mixed number for each `seed`.
pub const fn split_mix(seed: u64) -> u64 {
    let mixed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

impl Chance {
    /// The stream of `seed`.
    pub fn new(seed: u64) -> Self {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        Self {
            state: std::array::from_fn(|i| split_mix(seed.wrapping_add(STEP.wrapping_mul(i as u64)))),
        }
    }

    /// The stream number `stream` of `seed`. Streams are independent, so adding one does not change the
    /// numbers of others.
    pub fn stream(seed: u64, stream: u64) -> Self {
        Self::new(split_mix(seed) ^ split_mix(!stream))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        debug_assert_ne!(self.state, [0; 4], "a state of zeros would draw nothing else");
        let drawn = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        drawn
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// A whole number in `0..bound`; the bias of the multiplication is below `bound` / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is something to choose from");
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns true with probability `p`.
    pub fn happens(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// Shuffles `items` (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// Ranks drawn by Zipf's law: rank `k` of `1..=n` has a probability proportional to `k^-exponent`.
///
/// A rank is drawn by a binary search in the cumulative sums: exact, 8 bytes per rank.
#[derive(Clone, Debug)]
pub struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    /// The law over `ranks` ranks. Exponent 0 is uniform; 1 is the classic law.
    pub fn new(ranks: u32, exponent: f64) -> Self {
        assert!(ranks > 0, "there is something to choose from");
        let mut sum = 0.0;
        let weigh = |rank: u32| {
            sum += f64::from(rank).powf(-exponent);
            sum
        };
        Self {
            cumulative: (1..=ranks).map(weigh).collect(),
        }
    }

    /// Draws a rank, counted from 0.
    pub fn draw(&self, chance: &mut Chance) -> u32 {
        let total = self.cumulative.last().expect("there is a rank");
        let at = chance.unit() * total;
        let rank = self.cumulative.partition_point(|&sum| sum <= at);
        rank.min(self.cumulative.len() - 1) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::{Chance, Zipf, split_mix};

    #[test]
    fn the_numbers_of_a_seed_never_change() {
        // SplitMix64 and xoshiro256++ as published: seed 0 of SplitMix64 begins with this number.
        assert_eq!(split_mix(0), 0xe220_a839_7b1d_cdaf);
        let mut chance = Chance { state: [1, 2, 3, 4] };
        let drawn: Vec<_> = (0..4).map(|_| chance.bits()).collect();
        assert_eq!(
            drawn,
            [
                41_943_041,
                58_720_359,
                3_588_806_011_781_223,
                3_591_011_842_654_386
            ]
        );
    }

    #[test]
    fn whole_numbers_are_even_over_their_range() {
        let mut chance = Chance::new(7);
        let mut seen = [0_u32; 10];
        (0..100_000).for_each(|_| seen[chance.below(10) as usize] += 1);
        assert!(seen.iter().all(|&count| count.abs_diff(10_000) < 400), "{seen:?}");
    }

    #[test]
    fn streams_of_a_seed_differ() {
        assert_ne!(Chance::stream(1, 0).bits(), Chance::stream(1, 1).bits());
        assert_ne!(Chance::stream(1, 0).bits(), Chance::stream(2, 0).bits());
    }

    #[test]
    fn ranks_are_drawn_as_often_as_the_law_says() {
        let (zipf, mut chance) = (Zipf::new(100, 1.0), Chance::new(3));
        let draws = 200_000;
        let mut seen = vec![0_u32; 100];
        (0..draws).for_each(|_| seen[zipf.draw(&mut chance) as usize] += 1);
        let harmonic: f64 = (1..=100).map(|k| 1.0 / f64::from(k)).sum();
        for rank in [0, 1, 9, 99] {
            let expected = f64::from(draws) / harmonic / (rank as f64 + 1.0);
            let error = (f64::from(seen[rank]) - expected).abs();
            assert!(
                error < 5.0 * expected.sqrt(),
                "rank {rank}: {} of {expected}",
                seen[rank]
            );
        }
    }

    #[test]
    fn a_shuffle_keeps_everything() {
        let mut items: Vec<_> = (0..50).collect();
        Chance::new(1).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
