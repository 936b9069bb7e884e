//! How the layers of this node share its room, live (D3N IV-C; dissertation 4.4.3).
//!
//! Whoever answers a request for a block says which layer it was asked of and whether it was held, and how long those misses
//! took that more room would have saved. Once a period the split is found under which these requests would have waited least
//! ([`shoal_policy::partition`]), and the store's layers get their new targets; no block leaves before its room is needed. With a fixed
//! split requests are counted and nothing else.
//!
//! A request takes one lock for about 20 ns and allocates nothing (`cargo bench -p shoal-policy --bench layers`).

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shoal_policy::eviction::layered::divide;
use shoal_policy::fingerprint::Fingerprint;
use shoal_policy::mrc::{Reach, ReuseDistances};
use shoal_policy::partition::{Partition, adaptation_limit};
use shoal_policy::{BlockId, Layer};

use crate::config::{Cooperation, SplitRule};
use crate::shutdown::Shutdown;
use crate::store::Store;

/// Blocks may be this many times smaller than a full one, on average, before reuse at the far end of the room goes unseen. Where all
/// are full, the sample of them is as many times smaller.
const SMALLNESS: usize = 4;

/// The split of one node.
pub struct Split {
    store: Arc<Store>,
    period: Duration,
    room_bytes: u64,
    /// `None` when the split is fixed.
    partition: Option<Mutex<Partition>>,
    /// From L1 outwards.
    counts: Box<[Count]>,
}

#[derive(Debug, Default)]
struct Count {
    hits: AtomicU64,
    misses: AtomicU64,
}

/// What was asked of a layer since the node started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requests {
    /// Of which one.
    pub layer: Layer,
    /// Blocks asked for that it held.
    pub hits: u64,
    /// Blocks asked for that came from elsewhere.
    pub misses: u64,
}

impl Split {
    /// Gives the store's layers their first targets. A fixed split names a share for each of them, unless there is only one.
    pub fn new(store: Arc<Store>, settings: &Cooperation, block_bytes: u64) -> Self {
        let (layers, room_bytes) = (store.layers().len(), store.room_bytes());
        let (targets, partition) = match &settings.split {
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
            period: settings.period,
            room_bytes,
            partition: partition.map(Mutex::new),
            counts: (0..layers).map(|_| Count::default()).collect(),
        }
    }

    /// A block of `bytes` was asked of a layer, which held it or not.
    ///
    /// Returns whether the miss is worth timing, because a larger layer would have held the block: [`Split::missed`] is to be told
    /// when the answer is there. Who joins a fetch that is under way asks nothing: the block would have been missed at any size.
    pub fn requested(&self, layer: Layer, block: BlockId, bytes: u64, held: bool) -> bool {
        let count = &self.counts[usize::from(layer.0 - Layer::L1.0)];
        let counter = if held { &count.hits } else { &count.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        let Some(partition) = &self.partition else {
            return false;
        };
        let known = partition.lock().requested(layer, Fingerprint::from(block), bytes);
        known && !held
    }

    /// A miss that was worth timing was answered `latency` after the block was asked for, the way to the lake included.
    pub fn missed(&self, layer: Layer, latency: Duration) {
        if let Some(partition) = &self.partition {
            partition.lock().missed(layer, latency);
        }
    }

    /// Ends a period: finds the split and gives it to the store, in less than a millisecond.
    pub fn adapt(&self) {
        let Some(partition) = &self.partition else {
            return;
        };
        let targets = {
            let mut partition = partition.lock();
            partition.adapt(adaptation_limit(self.room_bytes));
            sizes(&partition, self.counts.len())
        };
        self.store.resize_layers(&targets);
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

    /// What was asked of each layer, from L1 outwards.
    pub fn requests(&self) -> Vec<Requests> {
        let layers = (1..).map(Layer).zip(&self.counts);
        let requests = |(layer, count): (Layer, &Count)| Requests {
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

/// Equal parts to begin with, which is the better valley where there are two (`shoal_policy::partition`).
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
