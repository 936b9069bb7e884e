//! Miss-ratio curves: how many requests a cache of each size would have missed.

/// The number of sizes, evenly spaced up to the capacity, at which a curve is known exactly. It is linear
/// between them.
pub const STEPS: usize = 1000;

/// The number of observed requests that an LRU cache of a given size would have missed, for each size from 0
/// to a capacity.
///
/// The paper's MR (dissertation 4.4.3, Algorithm 2, line 8), with two differences. The paper sums from k = i,
/// this code from k = i + 1, as the text beside the listing has it ("the sum of all HC\[i\] for i > s"): a
/// block found at place i is a hit in a cache of size i. And the curve includes requests for blocks that were
/// not on the list at all, which miss at every size: they do not change the best split, but without them the
/// curve would not be a miss ratio.
#[derive(Clone, Debug, PartialEq)]
pub struct MissCurve {
    capacity_bytes: u64,
    /// The number of requests that the curve covers; older ones count for less, see
    /// [`super::ReuseDistances::decay`].
    pub(super) accesses: f64,
    /// At size i/[`STEPS`] of the capacity; never rising.
    misses: Vec<f64>,
}

impl MissCurve {
    /// Creates a curve from a function: `ratio(size_bytes)` is the fraction of `accesses` that misses.
    pub fn from_fn(capacity_bytes: u64, accesses: f64, ratio: impl Fn(u64) -> f64) -> Self {
        let size = |step: usize| (u128::from(capacity_bytes) * step as u128 / STEPS as u128) as u64;
        Self {
            capacity_bytes,
            accesses,
            misses: (0..=STEPS).map(|step| accesses * ratio(size(step))).collect(),
        }
    }

    /// The number of requests that a cache of `size_bytes` would have missed; constant beyond the capacity.
    pub fn misses(&self, size_bytes: u64) -> f64 {
        if size_bytes >= self.capacity_bytes {
            return self.misses[STEPS];
        }
        let steps = u128::from(size_bytes) * STEPS as u128;
        let below = (steps / u128::from(self.capacity_bytes)) as usize;
        let beyond = (steps % u128::from(self.capacity_bytes)) as f64 / self.capacity_bytes as f64;
        let (left, right) = (self.misses[below], self.misses[below + 1]);
        left + (right - left) * beyond
    }

    /// The fraction of requests that a cache of `size_bytes` would have missed; 1 if there were no requests.
    pub fn ratio(&self, size_bytes: u64) -> f64 {
        if self.accesses == 0.0 {
            return 1.0;
        }
        // A sample may hold more than its share of the requests.
        (self.misses(size_bytes) / self.accesses).min(1.0)
    }
}

/// The paper's HC: the number of requests that found their block at each place in the list, counted in
/// [`STEPS`] equal bins.
#[derive(Debug)]
pub(super) struct Histogram {
    hits: Box<[f64]>,
    /// Requests for sampled blocks, found on the list or not.
    counted: f64,
    /// Requests for any block.
    accesses: f64,
    distance_max: u32,
}

impl Histogram {
    /// An empty histogram for distances from 1 to `distance_max`.
    pub(super) fn new(distance_max: u32) -> Self {
        Self {
            hits: vec![0.0; STEPS].into_boxed_slice(),
            counted: 0.0,
            accesses: 0.0,
            distance_max,
        }
    }

    /// Counts a request for a block that is not in the sample.
    pub(super) fn pass(&mut self) {
        self.accesses += 1.0;
    }

    /// Counts a request for a sampled block that was found at `distance`, or not at all.
    pub(super) fn count(&mut self, distance: Option<u32>) {
        self.accesses += 1.0;
        self.counted += 1.0;
        if let Some(distance) = distance {
            debug_assert!(
                (1..=self.distance_max).contains(&distance),
                "the list has a bound"
            );
            // A bin includes its upper edge: a block at the place where a cache ends is still in it.
            let bin = (u64::from(distance - 1) * STEPS as u64) / u64::from(self.distance_max);
            self.hits[bin as usize] += 1.0;
        }
    }

    /// Multiplies all counts by `part`.
    pub(super) fn scale(&mut self, part: f64) {
        self.hits.iter_mut().for_each(|hits| *hits *= part);
        self.counted *= part;
        self.accesses *= part;
    }

    /// The curve, where each counted request stands for `weight` requests.
    pub(super) fn curve(&self, capacity_bytes: u64, weight: f64) -> MissCurve {
        let mut left = self.counted;
        let beyond = self.hits.iter().map(|hits| {
            left -= hits;
            left.max(0.0) * weight
        });
        MissCurve {
            capacity_bytes,
            accesses: self.accesses,
            misses: std::iter::once(self.counted * weight).chain(beyond).collect(),
        }
    }
}
