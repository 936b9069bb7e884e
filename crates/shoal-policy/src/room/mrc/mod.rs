//! Reuse distances and miss-ratio curves: the misses of a larger or smaller cache (D3N Algorithm 1).
//!
//! D3N IV-C and dissertation 4.4.3 keep a shadow LRU list for each layer, as a skip list of full object
//! names: 264 MB for two layers of 10⁶ blocks. Here a block is a fingerprint, and its depth in the list is a
//! prefix sum:
//!
//! | two layers of 10⁶ blocks | memory | an access | error of the miss ratio |
//! |---|---|---|---|
//! | [`ReuseDistances::exact`] | 87 MB | 144–344 ns | none |
//! | [`ReuseDistances::sampled`], for nodes | 2.8 MB | 4–6 ns | 0.003 on average, 0.011 at worst |
//!
//! Memory is the allocator's count, with 8 MB and 0.3 MB more while a list is renumbered (`tests/memory.rs`).
//! Time is processor time and error is over all sizes, both over uniform, skewed and scanning accesses
//! (`cargo bench -p shoal-policy --bench layers`; a Xeon on which a random read of 10 MB takes 74 ns).
//!
//! **Unit.** Distances are in bytes, with each block rounded up to 1/128 of a full one: a list counted in
//! blocks would count the many small objects of a lake as full blocks, and predict misses where the cache has
//! room for all of them. Where all blocks are full this is the paper's count of blocks. LRU over blocks of
//! different sizes is a stack algorithm except for the last block, which may not fit; the sizes of a curve
//! are inexact by that much.

mod curve;
mod shadow;

pub use curve::{MissCurve, STEPS};

use crate::fingerprint::Fingerprint;
use curve::Histogram;
use shadow::ShadowList;

/// The weight of a full block: sizes are rounded to 1/128 of it.
const FULL_BLOCK: u64 = 128;

/// The number of blocks that a sample tracks.
const SAMPLED_BLOCKS: usize = 1 << 15;

/// The range that a list covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The paper's S<sub>t</sub>: the room that the layers share, and so the largest size that a layer can
    /// reach.
    pub capacity_bytes: u64,
    /// The size of a full block; none is larger.
    pub block_bytes: u64,
    /// The number of blocks on the list, of whatever size; this determines the memory taken.
    ///
    /// `capacity_bytes / block_bytes` is enough when all are full. If blocks are smaller than assumed, the
    /// list ends before the capacity does, and blocks used longer ago count as misses at every size.
    pub blocks_max: usize,
}

impl Reach {
    /// Covers as many full blocks as fit into `capacity_bytes`.
    pub const fn of_full_blocks(capacity_bytes: u64, block_bytes: u64) -> Self {
        Self {
            capacity_bytes,
            block_bytes,
            blocks_max: capacity_bytes.div_ceil(block_bytes) as usize,
        }
    }
}

/// Measures how far back the blocks of one layer's requests were used before.
///
/// Record every request to the layer, hits and misses alike.
#[derive(Debug)]
pub struct ReuseDistances {
    list: ShadowList,
    histogram: Histogram,
    reach: Reach,
    unit_bytes: u64,
    /// A block is tracked if the low 32 bits of its fingerprint are less than this.
    threshold: u64,
}

impl ReuseDistances {
    /// Tracks every block.
    pub fn exact(reach: Reach) -> Self {
        Self::new(reach, reach.blocks_max)
    }

    /// Tracks a fixed sample of the blocks, chosen by fingerprint, so that the list holds 32,768 of them:
    /// each stands for `blocks_max` / 32,768 (fixed-rate spatial sampling, SHARDS, Waldspurger et al. 2015).
    /// Exact if `blocks_max` is not larger.
    ///
    /// As in SHARDS-adj, misses are divided by all requests and not by the sampled ones, so a few very hot
    /// blocks do not shift the curve, in the sample or not.
    pub fn sampled(reach: Reach) -> Self {
        Self::new(reach, reach.blocks_max.min(SAMPLED_BLOCKS))
    }

    fn new(reach: Reach, blocks_tracked: usize) -> Self {
        assert!(
            reach.blocks_max > 0 && 0 < reach.block_bytes && reach.block_bytes <= reach.capacity_bytes,
            "a cache has room for a block"
        );
        let unit_bytes = reach.block_bytes.div_ceil(FULL_BLOCK);
        let weight_max =
            u128::from(reach.capacity_bytes / unit_bytes) * blocks_tracked as u128 / reach.blocks_max as u128;
        let weight_max =
            u32::try_from(weight_max).expect("a cache has room for less than 33 million full blocks");
        Self {
            list: ShadowList::new(blocks_tracked, weight_max),
            histogram: Histogram::new(weight_max),
            reach,
            unit_bytes,
            threshold: ((blocks_tracked as u64) << 32) / reach.blocks_max as u64,
        }
    }

    /// The paper's MEASURE: records a request for a block of `bytes`. Returns its reuse distance in bytes:
    /// the least size of the layer at which this is a hit. `None` when the block is not on the list or not in
    /// the sample.
    pub fn record(&mut self, block: Fingerprint, bytes: u64) -> Option<u64> {
        if block.0 & u64::from(u32::MAX) >= self.threshold {
            self.histogram.pass();
            return None;
        }
        let weight = bytes.div_ceil(self.unit_bytes).clamp(1, 2 * FULL_BLOCK - 1);
        let distance = self.list.touch(block.0, weight as u8);
        self.histogram.count(distance);
        distance.map(|distance| (u64::from(distance) << 32) / self.threshold * self.unit_bytes)
    }

    /// The misses that each size of the layer would have had up to now.
    pub fn curve(&self) -> MissCurve {
        let blocks_per_tracked = (1_u64 << 32) as f64 / self.threshold as f64;
        self.histogram
            .curve(self.reach.capacity_bytes, blocks_per_tracked)
    }

    /// Ends a period: scales all counts by `kept`, so that the curve is a moving average.
    ///
    /// With one half, the counts of a steady layer approach twice those of one period, in all layers (the
    /// paper's footnote 4). The paper decays when sizes have changed. Here every period decays; otherwise a
    /// layer that was steady for a day would take another day to adapt.
    pub fn decay(&mut self, kept: f64) {
        self.histogram.scale(kept);
    }
}

#[cfg(test)]
mod tests {
    #![expect(
        clippy::float_cmp,
        reason = "requests are counted in whole numbers and halves of them"
    )]

    use super::{Reach, ReuseDistances, STEPS};
    use crate::eviction::{Eviction, Lru};
    use crate::fingerprint::{Fingerprint, mix};

    const BLOCK_BYTES: u64 = 4 << 20;

    /// Half of the requests go to a sixteenth of `blocks`, a quarter to a 256th, and so on.
    fn skewed(time: u64, blocks: u64) -> u64 {
        let part = |fraction: u64, of: u64| ((u128::from(fraction) * u128::from(of)) >> 64) as u64;
        let square = part(mix(time), mix(time));
        part(part(square, square), blocks)
    }

    fn record(distances: &mut ReuseDistances, trace: impl IntoIterator<Item = u64>) {
        for block in trace {
            distances.record(Fingerprint::of_number(block), BLOCK_BYTES);
        }
    }

    fn misses_of_lru(blocks: usize, trace: impl IntoIterator<Item = u64>) -> u32 {
        let mut cache = Lru::default();
        let mut misses = 0;
        for block in trace {
            if cache.contains(&block) {
                cache.touch(&block);
            } else {
                misses += 1;
                cache.insert(block, BLOCK_BYTES);
            }
            if cache.len() > blocks {
                cache.evict(&mut |_| true);
            }
        }
        misses
    }

    #[test]
    fn the_curve_says_what_caches_of_each_size_miss() {
        let trace = || (0..20_000).map(|time| skewed(time, 1500));
        let mut distances = ReuseDistances::exact(Reach::of_full_blocks(500 * BLOCK_BYTES, BLOCK_BYTES));
        record(&mut distances, trace());
        let curve = distances.curve();
        for blocks in [0, 1, 2, 10, 100, 250, 499, 500] {
            let expected = f64::from(misses_of_lru(blocks, trace()));
            let misses = curve.misses(blocks as u64 * BLOCK_BYTES);
            assert!(
                (misses - expected).abs() < 1e-6,
                "{blocks} blocks: {misses}, not {expected}"
            );
        }
        assert_eq!(curve.accesses, 20_000.0);
        assert_eq!(
            curve.misses(u64::MAX),
            curve.misses(500 * BLOCK_BYTES),
            "beyond the reach nothing is known"
        );
    }

    #[test]
    fn a_loop_misses_until_all_of_it_fits() {
        let mut distances = ReuseDistances::exact(Reach::of_full_blocks(200 * BLOCK_BYTES, BLOCK_BYTES));
        record(&mut distances, (0..1000).map(|time| time % 100));
        let curve = distances.curve();
        assert_eq!(curve.ratio(99 * BLOCK_BYTES), 1.0);
        assert_eq!(
            curve.ratio(100 * BLOCK_BYTES),
            0.1,
            "a block found at place i is a hit at size i"
        );
    }

    #[test]
    fn small_blocks_take_the_room_they_take() {
        let reach = Reach {
            capacity_bytes: 10 * BLOCK_BYTES,
            block_bytes: BLOCK_BYTES,
            blocks_max: 1000,
        };
        let mut distances = ReuseDistances::exact(reach);
        for time in 0..1000 {
            distances.record(Fingerprint::of_number(time % 100), BLOCK_BYTES / 128);
        }
        assert_eq!(
            distances.curve().ratio(BLOCK_BYTES),
            0.1,
            "a hundred of them fit into one full block"
        );
        let distance = distances.record(Fingerprint::of_number(0), BLOCK_BYTES / 128);
        assert_eq!(distance, Some(100 * BLOCK_BYTES / 128));
    }

    #[test]
    fn counts_fade_and_the_list_stays() {
        let mut distances = ReuseDistances::exact(Reach::of_full_blocks(100 * BLOCK_BYTES, BLOCK_BYTES));
        record(&mut distances, (0..100).chain(0..100));
        let before = distances.curve();
        distances.decay(0.5);
        let after = distances.curve();
        assert_eq!(after.accesses, before.accesses / 2.0);
        for size_bytes in (0..=100).map(|blocks| blocks * BLOCK_BYTES) {
            assert_eq!(after.misses(size_bytes), before.misses(size_bytes) / 2.0);
        }
        assert_eq!(
            distances.record(Fingerprint::of_number(99), BLOCK_BYTES),
            Some(BLOCK_BYTES)
        );
    }

    #[test]
    fn a_sample_of_an_eighth_is_as_good_as_the_whole() {
        let reach = Reach::of_full_blocks((1 << 18) * BLOCK_BYTES, BLOCK_BYTES);
        let (mut exact, mut sampled) = (ReuseDistances::exact(reach), ReuseDistances::sampled(reach));
        for block in (0..1_000_000).map(|time| skewed(time, 1 << 20)) {
            let block = Fingerprint::of_number(block);
            exact.record(block, BLOCK_BYTES);
            sampled.record(block, BLOCK_BYTES);
        }
        let (exact, sampled) = (exact.curve(), sampled.curve());
        assert_eq!(exact.accesses, sampled.accesses);
        for step in 1..=STEPS as u64 {
            let size_bytes = step * reach.capacity_bytes / STEPS as u64;
            let error = (exact.ratio(size_bytes) - sampled.ratio(size_bytes)).abs();
            assert!(error < 0.01, "{error} at step {step}");
        }
    }

    #[test]
    fn a_sample_that_holds_every_block_is_exact() {
        let reach = Reach::of_full_blocks(1000 * BLOCK_BYTES, BLOCK_BYTES);
        let (mut exact, mut sampled) = (ReuseDistances::exact(reach), ReuseDistances::sampled(reach));
        record(&mut exact, (0..10_000).map(|time| skewed(time, 3000)));
        record(&mut sampled, (0..10_000).map(|time| skewed(time, 3000)));
        assert_eq!(exact.curve(), sampled.curve());
    }

    #[test]
    fn nothing_seen_is_nothing_known() {
        let curve = ReuseDistances::exact(Reach::of_full_blocks(BLOCK_BYTES, BLOCK_BYTES)).curve();
        assert_eq!(
            (curve.accesses, curve.misses(0), curve.ratio(BLOCK_BYTES)),
            (0.0, 0.0, 1.0)
        );
    }
}
