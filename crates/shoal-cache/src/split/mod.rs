//! Decides how the layers of this node share its room, live (D3N IV-C; dissertation 4.4.3).
//!
//! The code that answers a request for a block reports the layer that was asked and whether it held the
//! block, and times the misses that more room would have avoided ([`MissTimer`]). Once per period the node
//! finds the split that would have minimized the waiting time of these requests ([`shoal_policy::partition`])
//! and sets new targets for the store's layers; no block is evicted before its room is needed. With a fixed
//! split, requests are only counted.
//!
//! A request takes one lock for about 20 ns and allocates nothing (`cargo bench -p shoal-policy --bench
//! layers`).

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shoal_net::clock;
use shoal_net::shutdown::Shutdown;
use shoal_policy::eviction::layered::divide;
use shoal_policy::fingerprint::Fingerprint;
use shoal_policy::mrc::{Reach, ReuseDistances};
use shoal_policy::partition::{Pace, Partition};
use shoal_policy::{BlockId, Layer};
use shoal_store::Store;

/// How much smaller than a full block the average block may be before reuse distances near the full room are
/// missed. If all blocks are full, the sample is smaller by this factor.
const SMALLNESS: usize = 4;

/// How the layers of a node share its disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitRule {
    /// By demand, and by the latency of fetching a missing block.
    Adaptive,
    /// In these percentages, from L1 outwards.
    Fixed(Vec<u8>),
}

/// How far a layer may grow or shrink per period, in percent of the node's room (q of D3N's Algorithm 2).
/// With a twentieth a layer moves through all of it in half an hour, and one odd period does no harm.
const STEP_PERCENT: u64 = 5;

/// The weight that past demand keeps after each period. With a half, five periods ago counts as little as
/// noise.
const KEPT: f64 = 0.5;

/// Shares the room of one node among its layers.
pub struct Split {
    store: Arc<Store>,
    period: Duration,
    pace: Pace,
    began: Instant,
    /// `None` when the split is fixed.
    partition: Option<Mutex<Adaptive>>,
    /// From L1 outwards.
    counts: Box<[LayerCounters]>,
}

/// The state from which an adaptive split is found.
struct Adaptive {
    partition: Partition,
    /// From L1 outwards.
    pending: Box<[PendingMisses]>,
}

/// Misses of a layer that are being timed and have not been answered yet.
#[derive(Clone, Debug, Default)]
struct PendingMisses {
    misses: u32,
    /// Sum of their start times, relative to the start of the split.
    began: Duration,
}

impl PendingMisses {
    /// Returns their total waiting time at `now`.
    fn waited(&self, now: Duration) -> Duration {
        (now * self.misses).saturating_sub(self.began)
    }
}

/// Times one miss, from the request to the answer. If it is dropped without an answer, the miss is not
/// counted.
#[must_use = "dropping it gives the miss up"]
pub struct MissTimer {
    split: Arc<Split>,
    layer: Layer,
    began: Duration,
}

impl MissTimer {
    /// Records that the block has arrived, from the lake or from another node.
    pub fn answered(self) {
        let latency = self.split.now().saturating_sub(self.began);
        if let Some(adaptive) = &self.split.partition {
            adaptive.lock().partition.missed(self.layer, latency);
        }
    }
}

impl Drop for MissTimer {
    fn drop(&mut self) {
        if let Some(adaptive) = &self.split.partition {
            let pending = &mut adaptive.lock().pending[self.layer.place()];
            assert!(pending.misses > 0, "a miss that is timed is pending");
            pending.misses -= 1;
            pending.began -= self.began;
        }
    }
}

#[derive(Debug, Default)]
struct LayerCounters {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// Requests to a layer since the node started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerRequests {
    /// The layer.
    pub layer: Layer,
    /// Requested blocks that the layer held.
    pub hits: u64,
    /// Requested blocks that were fetched from elsewhere.
    pub misses: u64,
}

impl Split {
    /// Sets the initial targets of the store's layers by `rule`. A fixed split has one share per layer,
    /// unless there is only one layer; an adaptive one is computed again after each `period`.
    pub fn new(store: Arc<Store>, rule: &SplitRule, period: Duration, block_bytes: u64) -> Self {
        let (layers, room_bytes) = (store.layers.rooms().len(), store.layers.room_bytes());
        let (targets, partition) = match rule {
            _ if layers == 1 => (vec![room_bytes], None),
            SplitRule::Fixed(percents) => (divide(room_bytes, percents), None),
            SplitRule::Adaptive => {
                let partition = partition(layers, room_bytes, block_bytes);
                (sizes(&partition, layers), Some(partition))
            }
        };
        store.layers.resize(&targets);
        Self {
            store,
            period,
            pace: Pace {
                limit_bytes: (u128::from(room_bytes) * u128::from(STEP_PERCENT) / 100) as u64,
                kept: KEPT,
            },
            began: clock::instant(),
            partition: partition.map(|partition| {
                Mutex::new(Adaptive {
                    partition,
                    pending: vec![PendingMisses::default(); layers].into(),
                })
            }),
            counts: (0..layers).map(|_| LayerCounters::default()).collect(),
        }
    }

    /// Records a request to a layer for a block of `bytes`, and whether the layer held it.
    ///
    /// Returns a timer if a larger layer would have held the block. Not called for a reader that joins a
    /// fetch in flight, because that block would have been missed at any size.
    pub fn requested(
        self: &Arc<Self>,
        layer: Layer,
        block: BlockId,
        bytes: u64,
        held: bool,
    ) -> Option<MissTimer> {
        let count = &self.counts[layer.place()];
        let counter = if held { &count.hits } else { &count.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        let mut adaptive = self.partition.as_ref()?.lock();
        let known = adaptive
            .partition
            .requested(layer, Fingerprint::from(block), bytes);
        if held || !known {
            return None;
        }
        let began = self.now();
        let pending = &mut adaptive.pending[layer.place()];
        pending.misses += 1;
        pending.began += began;
        Some(MissTimer {
            split: Arc::clone(self),
            layer,
            began,
        })
    }

    /// Ends a period: computes the split and applies it to the store. Takes 0.04 ms for two layers and 0.4 ms
    /// for three (`cargo bench`).
    pub fn adapt(&self) {
        let Some(adaptive) = &self.partition else {
            return;
        };
        let targets = {
            let now = self.now();
            let Adaptive { partition, pending } = &mut *adaptive.lock();
            let pending = pending.iter().map(|layer| layer.waited(now));
            let pending: Vec<Duration> = pending.collect();
            partition.adapt(self.pace, &pending);
            sizes(partition, self.counts.len())
        };
        self.store.layers.resize(&targets);
    }

    fn now(&self) -> Duration {
        clock::instant().saturating_duration_since(self.began)
    }

    /// Adapts once per period until the node stops.
    pub async fn run(self: Arc<Self>, stopping: Shutdown) {
        if self.partition.is_none() {
            return;
        }
        loop {
            tokio::select! {
                () = stopping.begun() => return,
                () = tokio::time::sleep(self.period) => self.adapt(),
            }
        }
    }

    /// Returns the miss-ratio curve of each layer, from L1 outwards: the share of its requests that it would
    /// have missed lately with `points` + 1 sizes, evenly spaced from nothing to the room of the node. Empty
    /// if the split is fixed.
    pub fn miss_ratios(&self, points: u64) -> Vec<Vec<f64>> {
        let Some(adaptive) = &self.partition else {
            return Vec::new();
        };
        let partition = &adaptive.lock().partition;
        let layers = (1..).map(Layer).take(self.counts.len());
        layers.map(|layer| partition.miss_ratios(layer, points)).collect()
    }

    /// Returns the requests to each layer, from L1 outwards.
    pub fn requests(&self) -> Vec<LayerRequests> {
        let layers = (1..).map(Layer).zip(&self.counts);
        let requests = |(layer, count): (Layer, &LayerCounters)| LayerRequests {
            layer,
            hits: count.hits.load(Ordering::Relaxed),
            misses: count.misses.load(Ordering::Relaxed),
        };
        layers.map(requests).collect()
    }
}

/// Starts with equal shares, the better of two local minima if there are two (`shoal_policy::partition`).
fn partition(layers: usize, room_bytes: u64, block_bytes: u64) -> Partition {
    let full = Reach::of_full_blocks(room_bytes.max(block_bytes), block_bytes);
    let reach = Reach {
        blocks_max: full.blocks_max * SMALLNESS,
        ..full
    };
    let distances = (0..layers).map(|_| ReuseDistances::sampled(reach));
    Partition::even(room_bytes, distances.collect())
}

fn sizes(partition: &Partition, layers: usize) -> Vec<u64> {
    let layers = (1..).map(Layer).take(layers);
    layers.map(|layer| partition.size_bytes(layer)).collect()
}
