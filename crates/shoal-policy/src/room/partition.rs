//! How much room each layer of a node gets (D3N Algorithm 2).
//!
//! Once a period, a node predicts, for every split of its room, how long its requests would have waited, and
//! moves towards the best: Σ mₗ(s'ₗ) × Lₗ over the layers, where mₗ is the number of misses of layer l at
//! size s'ₗ ([`MissCurve`]) and Lₗ the cost of one of them (D3N IV-C, dissertation 4.4.3).
//!
//! `docs/explanation/partition.md` explains the reasons for this algorithm and its benefit. In short:
//!
//! - **The listing's s is s'.** The listing predicts with the present sizes in each iteration of its loop, so
//!   all candidates cost the same. It means the candidate's sizes. Among equals it takes the first, which has
//!   the smallest L1, so an idle node would lose its L1. Here the sizes nearest to the present ones win.
//! - **It searches the whole range of the curves, but moves no further per period than the paper.** The paper
//!   tries sizes within q = 5%. Files that are read whole, one after the other, are loops: a little more room
//!   saves nothing, and enough of it saves everything.
//! - mₗ are counts in one period, not ratios: the two layers have different request rates, and a rarely used
//!   layer must not weigh as much as a busy one.
//! - **A miss costs the time that room would save**: at the home only the round trip to the lake, at the
//!   reader the whole wait. Only misses of blocks on the shadow list are timed, because first uses miss at
//!   any size.
//! - **Unanswered misses count**, for as long as they have waited. Otherwise misses over a broken link would
//!   count only once the link is repaired.
//! - Layers do not overlap, and are assumed to be independent of each other.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::Layer;
use crate::fingerprint::Fingerprint;
use crate::mrc::{MissCurve, ReuseDistances, STEPS};

/// How the layers of a node share its room, with the measurements that keep the split right. The node records
/// every request, times the misses worth timing, and adapts once per period.
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
    /// Creates layers of equal size, one for each of `distances`, which cover the capacity; the remainder
    /// goes to L1.
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

    /// The room of a layer.
    pub fn size_bytes(&self, layer: Layer) -> u64 {
        self.layers[layer.place()].size_bytes
    }

    /// The share of the requests to a layer that it would have missed with `size_bytes`, for each of
    /// `points` + 1 sizes, evenly spaced from nothing to the room of all layers.
    pub fn miss_ratios(&self, layer: Layer, points: u64) -> Vec<f64> {
        let room_bytes: u64 = self.layers.iter().map(|layer| layer.size_bytes).sum();
        let curve = self.layers[layer.place()].distances.curve();
        let size = |point: u64| (u128::from(room_bytes) * u128::from(point) / u128::from(points)) as u64;
        (0..=points).map(|point| curve.ratio(size(point))).collect()
    }

    /// Records a request to a layer for a block of `bytes`, which the layer may or may not hold. If this
    /// returns true and the request misses, report the answer to [`Partition::missed`] when it arrives: a
    /// larger layer would have had the block.
    pub fn requested(&mut self, layer: Layer, block: Fingerprint, bytes: u64) -> bool {
        self.layers[layer.place()]
            .distances
            .record(block, bytes)
            .is_some()
    }

    /// Records that a miss of a layer was answered `latency` after it was detected.
    pub fn missed(&mut self, layer: Layer, latency: Duration) {
        self.layers[layer.place()].miss_latency.record(latency);
    }

    /// Ends a period: moves each layer towards the size that would have served the last periods best, see
    /// [`adapt`]. `pace` determines how far layers move, and how fast earlier periods fade. `unanswered` is,
    /// from L1 outwards, the total time that timed misses without an answer have waited so far. The caller
    /// must shrink layers before others grow.
    pub fn adapt(&mut self, pace: Pace, unanswered: &[Duration]) {
        let curves: Vec<MissCurve> = self.layers.iter().map(|layer| layer.distances.curve()).collect();
        let layers = self.layers.iter().zip(&curves).zip(unanswered);
        let demands = layers.map(|((layer, curve), &unanswered)| Demand {
            curve,
            miss_latency: layer.miss_latency.mean(unanswered),
            size_bytes: layer.size_bytes,
        });
        let demands: Vec<Demand> = demands.collect();
        let sizes = adapt(&demands, pace.limit_bytes);
        let room_bytes: u64 = demands.iter().map(|demand| demand.size_bytes).sum();
        assert_eq!(
            sizes.iter().sum::<u64>(),
            room_bytes,
            "layers divide the room of all"
        );
        for (layer, size_bytes) in self.layers.iter_mut().zip(sizes) {
            layer.size_bytes = size_bytes;
            layer.distances.decay(pace.kept);
            layer.miss_latency.decay(pace.kept);
        }
    }
}

/// The requests to one layer of a node in the last period, the cost of a miss there, and the room of the
/// layer.
#[derive(Clone, Copy, Debug)]
pub struct Demand<'a> {
    /// The number of the layer's requests that would miss at each size. Counts, not ratios: a busy layer
    /// weighs more.
    pub curve: &'a MissCurve,
    /// The average wait of a request that the layer would have served had it been larger.
    pub miss_latency: Duration,
    /// The room that the layer has now.
    pub size_bytes: u64,
}

/// The latency of the misses of a layer: a moving average over periods, with the same decay as the curves.
#[derive(Clone, Copy, Debug, Default)]
pub struct MissLatency {
    misses: f64,
    waited_seconds: f64,
}

impl MissLatency {
    /// Records a miss that was answered after `latency`.
    pub fn record(&mut self, latency: Duration) {
        self.misses += 1.0;
        self.waited_seconds += latency.as_secs_f64();
    }

    /// Ends a period: scales the records by `kept`, but never below the weight of half a miss. Otherwise the
    /// misses of a layer without recent misses would seem to cost nothing, and the layer would be emptied
    /// until it has some.
    pub fn decay(&mut self, kept: f64) {
        if self.misses > 1.0 {
            let kept = kept.max(1.0 / (2.0 * self.misses));
            self.waited_seconds *= kept;
            self.misses *= kept;
        }
    }

    /// The mean latency; zero until the first miss. `unanswered` is the total time that misses without an
    /// answer have waited so far.
    ///
    /// This divides all waiting by the number of answered misses: the maximum-likelihood estimate of the mean
    /// if waits were memoryless. Without the unanswered ones, a dead link would look as fast as before.
    pub fn mean(&self, unanswered: Duration) -> Duration {
        let waited_seconds = self.waited_seconds + unanswered.as_secs_f64();
        let ended = if self.misses == 0.0 { 1.0 } else { self.misses };
        Duration::from_secs_f64(waited_seconds / ended)
    }
}

/// How fast layers follow their demand.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The maximum change of a layer's size in one period, which bounds how much must be evicted at once.
    pub limit_bytes: u64,
    /// The factor by which earlier counts are scaled after the period, from 0 to 1.
    pub kept: f64,
}

impl Pace {
    /// The paper's pace: q is 5% of the capacity (Algorithm 2), and counts are halved (its footnote 4).
    pub const fn published(capacity_bytes: u64) -> Self {
        Self {
            limit_bytes: capacity_bytes / 20,
            kept: 0.5,
        }
    }
}

/// Computes one step towards the sizes at which requests would have waited least in total. Returns the sizes
/// in the order of the layers, with the same sum; none differs by more than `limit_bytes` from its present
/// size. Call it once per period.
///
/// Sizes are searched in steps of a thousandth of the sum, the resolution of the curves. Where nothing is
/// better by more than rounding (an idle node, a flat stretch of a curve), sizes stay as they are.
pub fn adapt(layers: &[Demand], limit_bytes: u64) -> Vec<u64> {
    let now: Vec<u64> = layers.iter().map(|layer| layer.size_bytes).collect();
    let best = best(layers);
    if waiting(layers, &best) < waiting(layers, &now) * (1.0 - ROUNDING) {
        towards(&best, &now, limit_bytes)
    } else {
        now
    }
}

/// The time in seconds that all requests of the period would wait for misses if the layers had these sizes.
pub fn waiting(layers: &[Demand], sizes_bytes: &[u64]) -> f64 {
    let layers = layers.iter().zip(sizes_bytes);
    layers.map(|(layer, &size_bytes)| layer.waiting(size_bytes)).sum()
}

/// Relative rounding error of sums of the same numbers in a different order.
const ROUNDING: f64 = 1e-9;

impl Demand<'_> {
    fn waiting(&self, size_bytes: u64) -> f64 {
        self.curve.misses(size_bytes) * self.miss_latency.as_secs_f64()
    }
}

/// Moves from `now` towards `best` in a straight line, until the layer with the largest change reaches
/// `limit_bytes`.
fn towards(best: &[u64], now: &[u64], limit_bytes: u64) -> Vec<u64> {
    let ways = best.iter().zip(now).map(|(best, now)| best.abs_diff(*now));
    let longest_bytes = ways.max().unwrap_or(0);
    if longest_bytes <= limit_bytes {
        return best.to_vec();
    }
    // Rounded up, so that every layer that should move does.
    let part = |way: u64| {
        let scaled = (u128::from(way) * u128::from(limit_bytes)).div_ceil(u128::from(longest_bytes));
        scaled as u64
    };
    let growth = |best: u64, now: u64| part(best.saturating_sub(now));
    let layers = || best.iter().copied().zip(now.iter().copied());
    let wanted_bytes: u64 = layers().map(|(best, now)| growth(best, now)).sum();
    let spare_bytes: u64 = layers().map(|(best, now)| growth(now, best)).sum();
    let mut gained = wanted_bytes.min(spare_bytes);
    let mut given = gained;
    let next = layers().map(|(best, now)| {
        let (gain, gift) = (growth(best, now).min(gained), growth(now, best).min(given));
        gained -= gain;
        given -= gift;
        now + gain - gift
    });
    next.collect()
}

/// The sizes with the least waiting, and of those the nearest to the present ones.
///
/// Layers are independent, so this is a knapsack: the cheapest way for the first n layers to use a given
/// number of steps extends the cheapest ways of the first n - 1. It is exact for curves of any shape, convex
/// or not, in time O(steps² × layers).
fn best(layers: &[Demand]) -> Vec<u64> {
    let capacity_bytes: u64 = layers.iter().map(|layer| layer.size_bytes).sum();
    let step_bytes = (capacity_bytes / STEPS as u64).max(1);
    let all_steps = layers.iter().map(|layer| layer.steps(step_bytes)).sum();
    let mut least = vec![Cost::default()];
    let mut chosen: Vec<Vec<usize>> = Vec::new();
    for (layer, number) in layers.iter().zip(1..) {
        let costs: Vec<Cost> = (0..=all_steps)
            .map(|steps| layer.cost(steps, step_bytes))
            .collect();
        // The last layer has to use up all steps, so smaller sums need not be computed.
        let first = if number == layers.len() { all_steps } else { 0 };
        let (sums, places) = (0..=all_steps)
            .map(|sum| {
                if sum < first {
                    (Cost::default(), 0)
                } else {
                    cheapest(&least, &costs, sum)
                }
            })
            .unzip();
        least = sums;
        chosen.push(places);
    }
    let mut left = all_steps;
    let mut sizes: Vec<u64> = layers
        .iter()
        .zip(chosen)
        .rev()
        .map(|(layer, chosen)| {
            let steps = chosen[left];
            left -= steps;
            layer.size_at(steps, step_bytes)
        })
        .collect();
    sizes.reverse();
    sizes
}

/// The cost of a choice of sizes: the seconds waited and, among equals, the distance from the present sizes.
#[derive(Clone, Copy, Debug, Default)]
struct Cost {
    waiting: f64,
    way: usize,
}

impl Cost {
    /// `partial_cmp` has to check for NaN, which makes adapting nine times slower.
    const fn is_less(self, other: Self) -> bool {
        self.waiting < other.waiting || (self.waiting <= other.waiting && self.way < other.way)
    }
}

/// Returns the least cost of distributing `sum` steps over the layers of `least` and one more with `costs`,
/// and the number of steps of the latter.
fn cheapest(least: &[Cost], costs: &[Cost], sum: usize) -> (Cost, usize) {
    let fewest = (sum + 1).saturating_sub(least.len());
    let others = least[..=sum - fewest].iter().rev();
    let choices = (fewest..).zip(&costs[fewest..=sum]).zip(others);
    choices
        .map(|((steps, own), others)| {
            let cost = Cost {
                waiting: others.waiting + own.waiting,
                way: others.way + own.way,
            };
            (cost, steps)
        })
        .reduce(|cheapest, choice| {
            if choice.0.is_less(cheapest.0) {
                choice
            } else {
                cheapest
            }
        })
        .expect("all steps may be one layer's")
}

impl Demand<'_> {
    const fn steps(&self, step_bytes: u64) -> usize {
        (self.size_bytes / step_bytes) as usize
    }

    /// The size of the layer with `steps` steps, keeping the remainder of its present size.
    const fn size_at(&self, steps: usize, step_bytes: u64) -> u64 {
        self.size_bytes % step_bytes + steps as u64 * step_bytes
    }

    fn cost(&self, steps: usize, step_bytes: u64) -> Cost {
        Cost {
            waiting: self.waiting(self.size_at(steps, step_bytes)),
            way: steps.abs_diff(self.steps(step_bytes)),
        }
    }
}
