//! How much room each layer of a node gets (D3N Algorithm 2).
//!
//! Once a period, a node predicts, for every split of its room, how long its requests would have waited, and
//! moves towards the best: Σ mₗ(s'ₗ) × Lₗ over the layers, where mₗ is the number of misses of layer l at
//! size s'ₗ ([`MissCurve`]) and Lₗ the cost of one of them (D3N IV-C, dissertation 4.4.3).
//!
//! `docs/explanation/partition.md` explains the reasons for this algorithm and its benefit. In short:
//!
//! - **The listing's s is s'.** The listing predicts with the present sizes on each turn of its loop, so all
//!   candidates cost the same. It means the candidate's sizes. And among equals it takes the first, the
//!   smallest L1: an idle node would lose its L1. Here the sizes nearest to the present ones win.
//! - **It looks as far as the curves reach, and goes no further than the paper at once.** The paper tries
//!   sizes within q = 5%. Files that are read whole, one after the other, are loops: a little more room saves
//!   nothing, and enough of it saves everything.
//! - mₗ are counts in one period, not ratios: the two layers have streams of different rates, and a seldom
//!   used layer must not weigh as much as a busy one.
//! - **A miss costs the time that room would save**: at the home only the way to the lake, at the reader all
//!   of the wait. Misses are timed only for blocks that the shadow list knows: first uses miss at any size.
//! - **Unanswered misses count**, for as long as they have waited. Otherwise the misses over a link that has
//!   just broken down would count only when the breakdown is over.
//! - Layers do not overlap, and each is taken to be independent of the others.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::Layer;
use crate::fingerprint::Fingerprint;
use crate::mrc::{MissCurve, ReuseDistances, STEPS};

/// How the layers of a node share its room, with the measurements that keep the split right. The node asks
/// about every request, times the misses worth timing, and adapts once a period.
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
    /// Layers of equal size, one for each of `distances`, which reach to the capacity; the remainder is L1's.
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
        self.layers[place(layer)].size_bytes
    }

    /// Records a request to a layer for a block of `bytes`, which the layer may or may not hold. If it
    /// misses, and only if this returns true, report the answer to [`Partition::missed`] when it is there: a
    /// larger layer would have had the block.
    pub fn requested(&mut self, layer: Layer, block: Fingerprint, bytes: u64) -> bool {
        self.layers[place(layer)].distances.record(block, bytes).is_some()
    }

    /// Records that a miss of a layer was answered, `latency` after it was found to be one.
    pub fn missed(&mut self, layer: Layer, latency: Duration) {
        self.layers[place(layer)].miss_latency.record(latency);
    }

    /// Ends a period: brings each layer nearer to the size that would have served the last periods best, see
    /// [`adapt`]. The holder of the blocks shrinks a layer before another grows. `pace` says how far layers
    /// move, and how fast periods are forgotten. `unanswered` gives, from L1 outwards, the total time that
    /// the misses that are worth timing and still unanswered have waited by now.
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
        for (layer, size_bytes) in self.layers.iter_mut().zip(sizes) {
            layer.size_bytes = size_bytes;
            layer.distances.decay(pace.kept);
            layer.miss_latency.decay(pace.kept);
        }
    }
}

fn place(layer: Layer) -> usize {
    usize::from(layer.0 - Layer::L1.0)
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

/// The latency of the misses of a layer: a moving average over periods, as old as the curves are.
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

    /// Ends a period: scales the records by `kept`, until little more than nothing is left. That rest stays:
    /// otherwise a layer without misses would be taken for one whose misses cost nothing, and be emptied
    /// until it has some.
    pub fn decay(&mut self, kept: f64) {
        if self.misses > 1.0 {
            let kept = kept.max(1.0 / (2.0 * self.misses));
            self.waited_seconds *= kept;
            self.misses *= kept;
        }
    }

    /// The mean; zero as long as there was no miss. Misses that are still unanswered have waited `unanswered`
    /// by now, all together.
    ///
    /// This is all the waiting over the misses that ended: if waits were memoryless, it would be their
    /// likeliest mean. Without the unanswered ones, a link that lets nothing pass would look as fast as it
    /// was before.
    pub fn mean(&self, unanswered: Duration) -> Duration {
        let waited_seconds = self.waited_seconds + unanswered.as_secs_f64();
        let ended = if self.misses == 0.0 { 1.0 } else { self.misses };
        Duration::from_secs_f64(waited_seconds / ended)
    }
}

/// How fast layers follow the demand on them.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How far a layer may grow or shrink in one period. It bounds how much must be evicted at once.
    pub limit_bytes: u64,
    /// The part of the counts up to now that remains after the period, from 0 to 1.
    pub kept: f64,
}

impl Pace {
    /// The paper's pace: q is 5% of the room that the layers share (Algorithm 2), and counts are halved (its
    /// footnote 4).
    pub const fn published(capacity_bytes: u64) -> Self {
        Self {
            limit_bytes: capacity_bytes / 20,
            kept: 0.5,
        }
    }
}

/// One step towards the sizes at which requests would have waited least in total. Returns the sizes in the
/// order of the layers, with the same sum; none differs by more than `limit_bytes` from its present size.
/// Call it once a period.
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

/// Sums of the same numbers in another order differ by less than this part.
const ROUNDING: f64 = 1e-9;

impl Demand<'_> {
    fn waiting(&self, size_bytes: u64) -> f64 {
        self.curve.misses(size_bytes) * self.miss_latency.as_secs_f64()
    }
}

/// Goes from `now` to `best` in a straight line, as far as the layer with the longest way may go.
fn towards(best: &[u64], now: &[u64], limit_bytes: u64) -> Vec<u64> {
    let ways = best.iter().zip(now).map(|(best, now)| best.abs_diff(*now));
    let longest_bytes = ways.max().unwrap_or(0);
    if longest_bytes <= limit_bytes {
        return best.to_vec();
    }
    // Rounded up: a layer that has a way to go moves, however short its part of it is.
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
/// Layers do not influence each other, so this is a knapsack: the cheapest way in which the first n layers
/// take up a given number of steps extends the cheapest ways of the first n - 1. It is exact for curves of
/// any shape, in time steps² × layers. It climbs no hills, so it cannot get stuck on one where curves are not
/// convex.
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
        // Sums that leave steps unused after the last layer are of no interest.
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
    /// A derived order has to check whether each `waiting` is a number; with it, adapting takes nine times as
    /// long.
    const fn is_less(self, other: Self) -> bool {
        self.waiting < other.waiting || (self.waiting <= other.waiting && self.way < other.way)
    }
}

/// The least cost when the layers of `least` and one more, of `costs`, have `sum` steps, and how many of them
/// the latter has.
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

    /// The size of the layer at `steps`. The remainder of its present size stays as it is.
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
