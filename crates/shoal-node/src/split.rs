//! Decides how the layers of this node share its room, live (D3N IV-C; dissertation 4.4.3).
//!
//! The code that answers a request for a block reports the layer that was asked and whether it held the
//! block, and times those misses that more room would have saved ([`MissTimer`]). Once a period the node
//! finds the split under which these requests would have waited least ([`shoal_policy::partition`]) and gives
//! the store's layers their new targets; no block leaves before its room is needed. With a fixed split,
//! requests are only counted.
//!
//! A request takes one lock for about 20 ns and allocates nothing (`cargo bench -p shoal-policy --bench
//! layers`).

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shoal_policy::eviction::layered::divide;
use shoal_policy::fingerprint::Fingerprint;
use shoal_policy::mrc::{Reach, ReuseDistances};
use shoal_policy::partition::{Pace, Partition};
use shoal_policy::{BlockId, Layer};
use shoal_store::Store;

use crate::clock;
use crate::shutdown::Shutdown;

/// How many times smaller than a full block the blocks may be, on average, before reuse at the far end of the
/// room goes unnoticed. If all blocks are full, the sample of them is smaller by this factor.
const SMALLNESS: usize = 4;

/// How the layers of a node share its room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SplitRule {
    /// By demand, and by how long it takes to fetch a block that the node does not hold.
    Adaptive,
    /// In these percents, from L1 outwards.
    Fixed(Vec<u8>),
}

/// How the split is found, and how fast it changes.
#[derive(Clone, Debug)]
pub struct SplitConfig {
    /// How layers share the room of this node.
    pub rule: SplitRule,
    /// How often the node recomputes the split.
    pub period: Duration,
    /// How far a layer may grow or shrink per period, in percent of the node's room.
    pub step_percent: u32,
    /// The weight that past demand loses after each period, in percent.
    pub decay_percent: u32,
}

/// The split of one node.
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

/// The misses of a layer that are worth timing and not answered yet.
#[derive(Clone, Debug, Default)]
struct PendingMisses {
    misses: u32,
    /// The sum of the times at which they began, counted since the split began.
    began: Duration,
}

impl PendingMisses {
    /// How long they have waited at `now`, in total.
    fn waited(&self, now: Duration) -> Duration {
        (now * self.misses).saturating_sub(self.began)
    }
}

/// A miss that is worth timing, from the request to the answer. A miss that is dropped without an answer was
/// given up and is not counted.
#[derive(Debug)]
#[must_use = "dropping it gives the miss up"]
pub struct MissTimer {
    split: Arc<Split>,
    layer: Layer,
    began: Duration,
}

impl MissTimer {
    /// Notes that the block has come, the way to the lake included.
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
            let pending = &mut adaptive.lock().pending[index_of(self.layer)];
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

/// The requests to a layer since the node started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerRequests {
    /// The layer.
    pub layer: Layer,
    /// Requested blocks that the layer held.
    pub hits: u64,
    /// Requested blocks that came from elsewhere.
    pub misses: u64,
}

impl Split {
    /// Gives the store's layers their first targets. A fixed split names a share for each layer, unless there
    /// is only one.
    pub fn new(store: Arc<Store>, config: &SplitConfig, block_bytes: u64) -> Self {
        let (layers, room_bytes) = (store.layers().len(), store.room_bytes());
        let (targets, partition) = match &config.rule {
            _ if layers == 1 => (vec![room_bytes], None),
            SplitRule::Fixed(percents) => (divide(room_bytes, percents), None),
            SplitRule::Adaptive => {
                let partition = partition(layers, room_bytes, block_bytes);
                (sizes(&partition, layers), Some(partition))
            }
        };
        store.resize_layers(&targets);
        Self {
            store,
            period: config.period,
            pace: Pace {
                limit_bytes: percent_of(room_bytes, config.step_percent),
                kept: 1.0 - f64::from(config.decay_percent) / 100.0,
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

    /// Notes that a block of `bytes` was requested from a layer, which held it or not.
    ///
    /// Returns the timing of the miss, if it is worth measuring because a larger layer would have held the
    /// block. A reader that joins a fetch under way does not call this: the block would have been missed at
    /// any size.
    pub fn requested(
        self: &Arc<Self>,
        layer: Layer,
        block: BlockId,
        bytes: u64,
        held: bool,
    ) -> Option<MissTimer> {
        let count = &self.counts[index_of(layer)];
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
        let pending = &mut adaptive.pending[index_of(layer)];
        pending.misses += 1;
        pending.began += began;
        Some(MissTimer {
            split: Arc::clone(self),
            layer,
            began,
        })
    }

    /// Ends a period: finds the split and gives it to the store. Finding it takes 0.04 ms for two layers and
    /// 0.4 ms for three (`cargo bench`).
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
        self.store.resize_layers(&targets);
    }

    fn now(&self) -> Duration {
        clock::instant().saturating_duration_since(self.began)
    }

    /// Adapts once a period until the node stops.
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

    /// The requests to each layer, from L1 outwards.
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

impl std::fmt::Debug for Split {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let adaptive = self.partition.is_some();
        f.debug_struct("Split")
            .field("adaptive", &adaptive)
            .finish_non_exhaustive()
    }
}

/// Starts with equal parts, which is the better valley if there are two (`shoal_policy::partition`).
fn partition(layers: usize, room_bytes: u64, block_bytes: u64) -> Partition {
    let full = Reach::of_full_blocks(room_bytes.max(block_bytes), block_bytes);
    let reach = Reach {
        blocks_max: full.blocks_max * SMALLNESS,
        ..full
    };
    let distances = (0..layers).map(|_| ReuseDistances::sampled(reach));
    Partition::even(room_bytes, distances.collect())
}

/// `percent` of the room.
fn percent_of(room_bytes: u64, percent: u32) -> u64 {
    (u128::from(room_bytes) * u128::from(percent) / 100) as u64
}

fn index_of(layer: Layer) -> usize {
    usize::from(layer.0 - Layer::L1.0)
}

fn sizes(partition: &Partition, layers: usize) -> Vec<u64> {
    let layers = (1..).map(Layer).take(layers);
    layers.map(|layer| partition.size_bytes(layer)).collect()
}
