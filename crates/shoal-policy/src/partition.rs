//! How much room each layer of a node gets (D3N Algorithm 2).
//!
//! Once a period a node predicts, for every split of its room within reach of the present one, how long its requests would
//! have waited, and takes the best: Σ mₗ(s'ₗ) × Lₗ over the layers, with mₗ the misses of layer l at size s'ₗ ([`MissCurve`]) and Lₗ
//! what one of them costs (D3N IV-C, dissertation 4.4.3).
//!
//! # Where the listing is not followed
//!
//! - It predicts with the present sizes s on each turn of its loop, so that all candidates cost the same. The candidate's, s',
//!   are meant. And among equals it takes the first, the smallest L1: an idle node would lose its L1. Here equals change nothing.
//! - It tries 2q sizes of two layers. Here any number of layers is solved exactly, by dynamic programming over a thousandth
//!   of the room: no hill climbing, so no hill to be stuck on where curves are not convex.
//! - mₗ are counts in one period, not ratios: the two layers have streams of different rates, and a seldom used layer must
//!   not weigh as much as a busy one.
//!
//! # What a layer's requests are, and how its misses are timed
//!
//! **Layers do not overlap.** A block belongs, on a node, to the widest layer in which the node is its home, and to L1 if it is
//! at home elsewhere ([`crate::route::Hierarchy::layer_here`]). A request of a local client for a block at home here is a request
//! to L2, and never one to L1. So a block is stored once ("unified", dissertation 4.4.1) without being counted twice, sizes add up
//! to the node's capacity, and an L1 hit saves the way to another node and nothing else. In D3N such a block is a member of both
//! layers and leaves when it has left both; the room of what both hold is then used by neither. Measured as below, requests
//! wait up to 7% less this way where nodes share data, and up to 9% more where each reads Zipf-like data of its own: the 1/N
//! of it that is at home here competes with what other nodes keep twice.
//!
//! **Layers are taken to be independent**, as in D3N: the size of one is assumed not to change the requests of another. L2
//! sees what the L1s of *other* nodes let through, and 1/N of its own clients' requests, which no L1 filters. A node's choice does
//! not change what it sees itself, so each curve is right about its own layer. What is lost is the effect on others: of what a
//! larger L1 here takes off the L2s elsewhere, a node sees only that its own misses are gone.
//!
//! **So the time of an L1 miss must be that of the misses that room would save, and all of it.** Count from asking to the
//! answer, the way to the lake included if the home had to go there: a saved miss saves that. The hop alone, which adds up exactly
//! over the whole system, is wrong for each of its nodes. But average only over misses of blocks that the shadow list knows:
//! first uses miss at any size, and are those that go to the lake most. The paper takes the mean response time of all misses.
//! Mean wait in relation to the best of eleven fixed splits, all nodes alike; 8 nodes, the worst of three lakes that are 2, 5 and 20 hops away
//! (`cargo bench -p shoal-policy --bench adaptation`):
//!
//! | what clients read; a node has room for 1,000 blocks | halves, fixed | by the hop | by every miss | by known misses |
//! |---|---|---|---|---|
//! | all the same 7,000, evenly | +975% | −0.5% | −0.5% | −0.5% |
//! | all the same 8,192, Zipf | +140% | +0.5% | +1.3% | +0.5% |
//! | all the same 32,768, Zipf | +37% | +0.1% | +8.6% | +0.1% |
//! | each node its own 1,100, evenly | +411% | +262% | −24% | −24% |
//! | each node its own 8,192, Zipf | +22% | +14% | +0.1% | +0.1% |
//! | half 4,000 of all, half its own 4,096, Zipf | +108% | +0.1% | +4.7% | +0.1% |
//! | a fifth 16,384 of all, Zipf, the rest its own 400 | +47% | +23% | −0.6% | +5.1% |
//! | a third read once, the rest 8,192 of all, Zipf | +8% | 0.0% | +5.7% | 0.0% |
//!
//! **What no node can see by itself.** Over all fixed splits the wait may have two valleys: private data kept in each L1, or all
//! of it in L2 where every node finds it. Nodes walk down into the nearer one, as with the paper's rule. Begun without any L1 the
//! fourth row ends at +320% and the seventh at +27%, therefore nodes begin with equal parts. To see the other valley an L2 would
//! have to know of the hits that L1s keep from it.

use std::time::Duration;

use crate::Layer;
use crate::fingerprint::Fingerprint;
use crate::mrc::{MissCurve, ReuseDistances, STEPS};

/// How the layers of a node share its room, and what it takes to keep that right: ask about every request, time the misses
/// worth timing, adapt once a period.
#[derive(Debug)]
pub struct Partition {
    /// From L1 outwards.
    layers: Vec<Share>,
}

#[derive(Debug)]
struct Share {
    size_bytes: u64,
    distances: ReuseDistances,
    miss_latency: MissLatency,
}

impl Partition {
    /// Layers of equal size, one for each of `distances`, which reach to the capacity; what does not divide is L1's.
    pub fn even(capacity_bytes: u64, distances: Vec<ReuseDistances>) -> Self {
        assert!(!distances.is_empty(), "a node has an L1");
        let layers = distances.len() as u64;
        let size_bytes = capacity_bytes / layers;
        let shares = distances.into_iter().map(|distances| Share {
            size_bytes,
            distances,
            miss_latency: MissLatency::default(),
        });
        let mut shares: Vec<Share> = shares.collect();
        shares[0].size_bytes += capacity_bytes - size_bytes * layers;
        Self { layers: shares }
    }

    /// How much room a layer has.
    pub fn size_bytes(&self, layer: Layer) -> u64 {
        self.layers[place(layer)].size_bytes
    }

    /// A block of `bytes` is requested from a layer, which may or may not hold it. Should it miss, and only if this returns
    /// true, tell [`Partition::missed`] when the answer is there: a larger layer would have had the block.
    pub fn requested(&mut self, layer: Layer, block: Fingerprint, bytes: u64) -> bool {
        self.layers[place(layer)].distances.record(block, bytes).is_some()
    }

    /// A miss of a layer has been answered, `latency` after it was found to be one.
    pub fn missed(&mut self, layer: Layer, latency: Duration) {
        self.layers[place(layer)].miss_latency.record(latency);
    }

    /// Ends a period: gives each layer the size that would have served the last periods best, see [`adapt`]. Who holds the blocks
    /// shrinks a layer before another grows.
    pub fn adapt(&mut self, limit_bytes: u64) {
        let curves: Vec<MissCurve> = self.layers.iter().map(|layer| layer.distances.curve()).collect();
        let demands = self.layers.iter().zip(&curves).map(|(layer, curve)| Demand {
            curve,
            miss_latency: layer.miss_latency.mean(),
            size_bytes: layer.size_bytes,
        });
        let demands: Vec<Demand> = demands.collect();
        let sizes = adapt(&demands, limit_bytes);
        for (layer, size_bytes) in self.layers.iter_mut().zip(sizes) {
            layer.size_bytes = size_bytes;
            layer.distances.decay();
            layer.miss_latency.decay();
        }
    }
}

fn place(layer: Layer) -> usize {
    usize::from(layer.0 - Layer::L1.0)
}

/// What one layer of a node was asked for in the last period, what a miss there costs, and how much room it has.
#[derive(Clone, Copy, Debug)]
pub struct Demand<'a> {
    /// How many of the layer's requests would miss at which size. Counts, not ratios: a busy layer weighs more.
    pub curve: &'a MissCurve,
    /// How long a request waits on average that the layer would have served had it been larger.
    pub miss_latency: Duration,
    /// How much room the layer has now.
    pub size_bytes: u64,
}

/// How long the misses of a layer take: a moving average over periods, as old as the curves are.
#[derive(Clone, Copy, Debug, Default)]
pub struct MissLatency {
    misses: f64,
    waited_seconds: f64,
}

impl MissLatency {
    /// A miss has been answered after `latency`.
    pub fn record(&mut self, latency: Duration) {
        self.misses += 1.0;
        self.waited_seconds += latency.as_secs_f64();
    }

    /// Ends a period: what was recorded counts half from now on, until little more than nothing is left. That stays: a layer without
    /// misses would else be taken for one whose misses cost nothing, and be emptied until it has some.
    pub fn decay(&mut self) {
        if self.misses > 1.0 {
            self.waited_seconds /= 2.0;
            self.misses /= 2.0;
        }
    }

    /// The mean; nothing before the first miss.
    pub fn mean(&self) -> Duration {
        if self.misses == 0.0 {
            return Duration::ZERO;
        }
        Duration::from_secs_f64(self.waited_seconds / self.misses)
    }
}

/// How far a layer may grow or shrink in one period: the paper's q, 5% of the room that the layers share. It bounds what
/// must be evicted at once.
pub const fn adaptation_limit(capacity_bytes: u64) -> u64 {
    capacity_bytes / 20
}

/// The sizes, in the order of the layers and with the same sum, at which requests would have waited least in all, among those
/// where no layer differs by more than `limit_bytes` from what it has. Call it once a period.
///
/// Sizes change in steps of a thousandth of the sum, the resolution of the curves. Where nothing is better by more than
/// rounding (an idle node, a flat stretch of a curve) sizes stay as they are.
pub fn adapt(layers: &[Demand], limit_bytes: u64) -> Vec<u64> {
    let now: Vec<u64> = layers.iter().map(|layer| layer.size_bytes).collect();
    let capacity_bytes: u64 = now.iter().sum();
    let step_bytes = (capacity_bytes / STEPS as u64).max(1);
    let steps = limit_bytes.min(capacity_bytes) / step_bytes;
    let sizes = now
        .iter()
        .map(|&size_bytes| Sizes::around(size_bytes, steps, step_bytes));
    let sizes: Vec<Sizes> = sizes.collect();
    let best: Vec<u64> = cheapest(layers, &sizes)
        .iter()
        .zip(&sizes)
        .map(|(&place, sizes)| sizes.at(place).expect("an impossible size is not the cheapest"))
        .collect();
    let better = waiting(layers, &best) < waiting(layers, &now) * (1.0 - ROUNDING);
    if better { best } else { now }
}

/// How long all requests of the period would wait for misses, were the layers of these sizes: in seconds.
pub fn waiting(layers: &[Demand], sizes_bytes: &[u64]) -> f64 {
    let layers = layers.iter().zip(sizes_bytes);
    layers.map(|(layer, &size_bytes)| layer.waiting(size_bytes)).sum()
}

/// Sums of the same numbers in another order differ by less than this part.
const ROUNDING: f64 = 1e-9;

impl Demand<'_> {
    fn waiting(&self, size_bytes: u64) -> f64 {
        self.curve.misses(size_bytes) * self.miss_latency.as_secs_f64()
    }
}

/// The sizes one layer may choose from, smallest first; the one it has is in the middle.
struct Sizes {
    size_bytes: u64,
    steps: u64,
    step_bytes: u64,
}

impl Sizes {
    const fn around(size_bytes: u64, steps: u64, step_bytes: u64) -> Self {
        Self {
            size_bytes,
            steps,
            step_bytes,
        }
    }

    const fn places(&self) -> usize {
        2 * self.steps as usize + 1
    }

    /// `None` below nothing.
    const fn at(&self, place: usize) -> Option<u64> {
        let grown_bytes = self.size_bytes + place as u64 * self.step_bytes;
        grown_bytes.checked_sub(self.steps * self.step_bytes)
    }
}

/// The places in `sizes` with the least waiting whose sizes have the sum that the middle ones have.
///
/// Layers do not influence each other, see the module, so this is a knapsack: the cheapest way in which the first n layers
/// take up a given number of steps extends the cheapest ways of the first n - 1. Exact, whatever the curves look like, in
/// time (2 × steps + 1)² × layers².
fn cheapest(layers: &[Demand], sizes: &[Sizes]) -> Vec<usize> {
    let mut least = vec![0.0];
    let mut chosen: Vec<Vec<usize>> = Vec::new();
    for (layer, sizes) in layers.iter().zip(sizes) {
        let waiting: Vec<f64> = (0..sizes.places())
            .map(|place| {
                sizes
                    .at(place)
                    .map_or(f64::INFINITY, |size_bytes| layer.waiting(size_bytes))
            })
            .collect();
        let (sums, places) = extend(&least, &waiting);
        least = sums;
        chosen.push(places);
    }
    let mut sum: usize = sizes.iter().map(|sizes| sizes.steps as usize).sum();
    let mut places: Vec<usize> = chosen
        .iter()
        .rev()
        .map(|chosen| {
            let place = chosen[sum];
            sum -= place;
            place
        })
        .collect();
    places.reverse();
    places
}

/// For each sum of a place of one more layer and of those before it: the least waiting, and that layer's place in it.
fn extend(least: &[f64], waiting: &[f64]) -> (Vec<f64>, Vec<usize>) {
    let sums = 0..least.len() + waiting.len() - 1;
    sums.map(|sum| {
        let first = (sum + 1).saturating_sub(least.len());
        let last = sum.min(waiting.len() - 1);
        (first..=last)
            .map(|place| (least[sum - place] + waiting[place], place))
            .min_by(|(left, _), (right, _)| left.total_cmp(right))
            .expect("a sum up to the largest is the sum of two places")
    })
    .unzip()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::{any, prop_assert, prop_assert_eq};
    use proptest::{collection, proptest};

    use super::{Demand, MissLatency, Partition, adapt, adaptation_limit, waiting};
    use crate::Layer;
    use crate::fingerprint::{Fingerprint, mix};
    use crate::mrc::{MissCurve, Reach, ReuseDistances};

    const CAPACITY_BYTES: u64 = 1_000_000;

    fn demand(curve: &MissCurve, miss_millis: u64, size_bytes: u64) -> Demand<'_> {
        Demand {
            curve,
            miss_latency: Duration::from_millis(miss_millis),
            size_bytes,
        }
    }

    /// `accesses` go evenly to blocks that together take `set_bytes`.
    fn uniform(accesses: f64, set_bytes: u64) -> MissCurve {
        MissCurve::of(CAPACITY_BYTES, accesses, |size_bytes| {
            1.0 - size_bytes.min(set_bytes) as f64 / set_bytes as f64
        })
    }

    /// A loop over `set_bytes`: everything misses until all of it fits.
    fn looping(accesses: f64, set_bytes: u64) -> MissCurve {
        MissCurve::of(CAPACITY_BYTES, accesses, |size_bytes| {
            f64::from(u8::from(size_bytes < set_bytes))
        })
    }

    #[test]
    fn a_node_learns_from_its_requests_which_layer_needs_room() {
        let reach = Reach::of_full_blocks(1000, 1);
        let mut partition = Partition::even(
            1001,
            vec![ReuseDistances::exact(reach), ReuseDistances::exact(reach)],
        );
        assert_eq!(
            (partition.size_bytes(Layer::L1), partition.size_bytes(Layer::L2)),
            (501, 500)
        );
        for time in 0..6000 {
            // L1 is asked for 800 blocks in turn, L2 for as many that are never asked for again.
            let known = partition.requested(Layer::L1, Fingerprint::of_number(time % 800), 1);
            assert_eq!(known, time >= 800);
            if known {
                partition.missed(Layer::L1, Duration::from_millis(1));
            }
            assert!(!partition.requested(Layer::L2, Fingerprint::of_number(1000 + time), 1));
            if time % 1000 == 999 {
                partition.adapt(adaptation_limit(1001));
            }
        }
        assert_eq!(
            partition.size_bytes(Layer::L1),
            501,
            "600 blocks of a loop of 800 are of no use"
        );
        for time in 0..6000 {
            if partition.requested(Layer::L1, Fingerprint::of_number(mix(time) % 800), 1) {
                partition.missed(Layer::L1, Duration::from_millis(1));
            }
            if time % 1000 == 999 {
                partition.adapt(adaptation_limit(1001));
            }
        }
        assert_eq!(
            (partition.size_bytes(Layer::L1), partition.size_bytes(Layer::L2)),
            (801, 200)
        );
    }

    #[test]
    fn room_goes_where_requests_wait_longest_and_no_further_than_the_limit() {
        let (local, shared) = (
            uniform(1000.0, 2 * CAPACITY_BYTES),
            uniform(1000.0, 2 * CAPACITY_BYTES),
        );
        let layers = |miss_millis| [demand(&local, miss_millis, 500_000), demand(&shared, 10, 500_000)];
        assert_eq!(
            adapt(&layers(2), adaptation_limit(CAPACITY_BYTES)),
            [450_000, 550_000]
        );
        assert_eq!(
            adapt(&layers(50), adaptation_limit(CAPACITY_BYTES)),
            [550_000, 450_000]
        );
        assert_eq!(adapt(&layers(50), CAPACITY_BYTES), [1_000_000, 0]);
    }

    #[test]
    fn latencies_are_a_moving_average_that_outlasts_a_period_without_misses() {
        let mut latency = MissLatency::default();
        assert_eq!(latency.mean(), Duration::ZERO);
        (0..6).for_each(|_| latency.record(Duration::from_millis(10)));
        latency.decay();
        (0..3).for_each(|_| latency.record(Duration::from_millis(30)));
        assert_eq!(latency.mean(), Duration::from_millis(20));
        (0..5000).for_each(|_| latency.decay());
        assert_eq!(latency.mean(), Duration::from_millis(20));
    }

    #[test]
    fn a_busy_layer_outweighs_a_slow_one() {
        let (local, shared) = (
            uniform(9000.0, 2 * CAPACITY_BYTES),
            uniform(1000.0, 2 * CAPACITY_BYTES),
        );
        let layers = [demand(&local, 2, 500_000), demand(&shared, 10, 500_000)];
        assert_eq!(adapt(&layers, 50_000), [550_000, 450_000]);
    }

    #[test]
    fn what_would_change_nothing_is_not_done() {
        let idle = uniform(0.0, CAPACITY_BYTES);
        let layers = [demand(&idle, 0, 300_000), demand(&idle, 0, 700_000)];
        assert_eq!(adapt(&layers, CAPACITY_BYTES), [300_000, 700_000]);
        let even = uniform(1000.0, 2 * CAPACITY_BYTES);
        let layers = [demand(&even, 3, 300_000), demand(&even, 3, 700_000)];
        assert_eq!(adapt(&layers, CAPACITY_BYTES), [300_000, 700_000], "equal slopes");
    }

    #[test]
    fn a_loop_gets_all_the_room_it_needs_or_none() {
        let (local, shared) = (looping(1000.0, 600_000), uniform(100.0, CAPACITY_BYTES));
        let layers = [demand(&local, 1, 500_000), demand(&shared, 1, 500_000)];
        assert_eq!(
            adapt(&layers, 50_000),
            [450_000, 550_000],
            "out of reach, it is no use trying"
        );
        assert_eq!(adapt(&layers, 100_000), [600_000, 400_000]);
    }

    #[test]
    fn the_predicted_sizes_are_the_candidates_and_not_the_present_ones() {
        // As printed, Algorithm 2 gives each candidate the cost of the present sizes, and takes the first.
        let (local, shared) = (uniform(1000.0, CAPACITY_BYTES), uniform(10.0, CAPACITY_BYTES));
        let layers = [demand(&local, 1, 500_000), demand(&shared, 1, 500_000)];
        assert_eq!(adapt(&layers, 50_000), [550_000, 450_000]);
    }

    #[test]
    fn a_node_without_room_and_a_layer_without_rival_stay_as_they_are() {
        let curve = uniform(1000.0, CAPACITY_BYTES);
        assert_eq!(adapt(&[demand(&curve, 1, 0), demand(&curve, 1, 0)], 0), [0, 0]);
        assert_eq!(adapt(&[demand(&curve, 1, 700)], 700), [700]);
        assert!(adapt(&[], 0).is_empty());
    }

    /// Falls by random amounts at random places: convex where the falls are sorted.
    fn random_curve(seed: u64, convex: bool) -> MissCurve {
        let mut falls: Vec<u64> = (0..1000).map(|place| mix(seed ^ mix(place)) % 1000).collect();
        // Long flat stretches and cliffs, where a search that looks around itself stays.
        falls
            .iter_mut()
            .filter(|fall| **fall < 900)
            .for_each(|fall| *fall /= 100);
        if convex {
            falls.sort_unstable_by(|left, right| right.cmp(left));
        }
        let total: u64 = falls.iter().sum();
        MissCurve::of(CAPACITY_BYTES, total as f64, |size_bytes| {
            let places = (size_bytes / 1000) as usize;
            1.0 - falls[..places].iter().sum::<u64>() as f64 / total as f64
        })
    }

    /// The least waiting over every combination within reach, by trying each.
    fn exhaustive(layers: &[Demand], limit_bytes: u64) -> f64 {
        fn try_all(layers: &[Demand], sizes: &mut Vec<u64>, left_bytes: u64, limit_bytes: u64) -> f64 {
            let Some(layer) = layers.get(sizes.len()) else {
                return if left_bytes == 0 {
                    waiting(layers, sizes)
                } else {
                    f64::INFINITY
                };
            };
            let last = sizes.len() + 1 == layers.len();
            let mut least = f64::INFINITY;
            let from = if last {
                left_bytes
            } else {
                layer.size_bytes.saturating_sub(limit_bytes)
            };
            let to = if last {
                left_bytes
            } else {
                left_bytes.min(layer.size_bytes + limit_bytes)
            };
            if last && left_bytes.abs_diff(layer.size_bytes) > limit_bytes {
                return least;
            }
            for size_bytes in (from..=to).step_by(1000) {
                sizes.push(size_bytes);
                least = least.min(try_all(layers, sizes, left_bytes - size_bytes, limit_bytes));
                sizes.pop();
            }
            least
        }
        let capacity_bytes = layers.iter().map(|layer| layer.size_bytes).sum();
        try_all(layers, &mut Vec::new(), capacity_bytes, limit_bytes)
    }

    proptest! {
        #![proptest_config(proptest::test_runner::Config { failure_persistence: None, cases: 64, ..Default::default() })]

        #[test]
        fn no_combination_is_better(
            seeds in collection::vec((any::<u64>(), any::<bool>(), 1..100_u64), 2..=4),
            limit_steps in 0..12_u64,
            shares in collection::vec(0..250_u64, 4),
        ) {
            let curves: Vec<MissCurve> = seeds.iter().map(|&(seed, convex, _)| random_curve(seed, convex)).collect();
            let layers: Vec<Demand> = curves
                .iter()
                .zip(&seeds)
                .zip(&shares)
                .map(|((curve, &(_, _, miss_millis)), &share)| demand(curve, miss_millis, share * 1000))
                .collect();
            // The step is a thousandth of the sum: the last layer takes what is left of a million.
            let mut layers = layers;
            let others: u64 = layers[1..].iter().map(|layer| layer.size_bytes).sum();
            layers[0].size_bytes = CAPACITY_BYTES - others;
            let limit_bytes = limit_steps * 1000;

            let sizes = adapt(&layers, limit_bytes);

            prop_assert_eq!(sizes.iter().sum::<u64>(), CAPACITY_BYTES);
            for (layer, &size_bytes) in layers.iter().zip(&sizes) {
                prop_assert!(size_bytes.abs_diff(layer.size_bytes) <= limit_bytes);
            }
            let (found, best) = (waiting(&layers, &sizes), exhaustive(&layers, limit_bytes));
            prop_assert!(found <= best * (1.0 + 2e-9), "{found} instead of {best}");
        }
    }
}
