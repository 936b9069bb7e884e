//! Lets a node that is to leave give its blocks away, so that the cluster does not lose them.
//!
//! The node says by gossip that it is home to no block any more, stays up, and asks the new home of each
//! block to take the block over: the most recently used blocks first, a few at a time, and only while the new
//! homes have room for blocks that no reader waits for. Nothing is removed here: until it stops, the node
//! serves the blocks that it has.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use http::StatusCode;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_policy::BlockId;
use shoal_policy::route::Hierarchy;

use crate::cooperation::Cooperation;
use crate::dirty::DirtyObjects;
use crate::membership::{Herald, State};
use crate::peer::{BlockRequest, PeerError};
use crate::s3::object::Version;
use crate::shutdown::Shutdown;
use crate::store::Store;

/// The number of blocks on their way to new homes at a time.
const PARALLEL: usize = 4;

/// While the first blocks go, others come from nodes that have not heard yet: the node goes through its
/// blocks this many times.
const ROUNDS: usize = 2;

/// The pause before objects that could not be flushed are tried again.
const FLUSH_PAUSE: Duration = Duration::from_secs(1);

/// The number of times that a new home is asked if it is too busy or out of reach; the pause between them
/// doubles.
const TRIES: u32 = 8;
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Gives a node's blocks away, on order.
pub struct Handoff {
    store: Arc<Store>,
    cooperation: Arc<Cooperation>,
    dirty: Arc<DirtyObjects>,
    herald: Herald,
    stopping: Shutdown,
    /// Held while the others are told, so that they hear orders in the order in which they were given.
    orders: tokio::sync::Mutex<()>,
    now: Mutex<Now>,
}

#[derive(Debug, Default)]
struct Now {
    /// Counts orders: work for an earlier order ends.
    order: u64,
    progress: Progress,
}

/// The progress of a handoff, as `/status` shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// The phase of the node.
    pub state: Phase,
    /// Objects that the lake does not have yet and of which this node keeps a part. The node drains until
    /// there are none.
    #[serde(default)]
    pub objects_dirty: u64,
    /// Blocks that have not been looked at.
    pub blocks_left: u64,
    /// Blocks that their new homes have.
    pub blocks_given: u64,
    /// Bytes of these blocks.
    pub bytes_given: u64,
    /// Blocks that no node took: no other node could be reached, or none had room in time.
    pub blocks_kept: u64,
}

/// The phase of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The node is home to its share of the blocks.
    #[default]
    Serving,
    /// The node gives away the blocks that it holds.
    Draining,
    /// The node has given away all blocks that others take. It may stop.
    Drained,
}

/// The outcome of giving a block away.
enum Fate {
    Given {
        bytes: u64,
    },
    Kept,
    /// The block left the disk before its turn came.
    Gone,
}

impl fmt::Debug for Handoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handoff")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

impl Handoff {
    /// Makes the handoff of a node that serves.
    pub fn new(
        store: Arc<Store>,
        cooperation: Arc<Cooperation>,
        dirty: Arc<DirtyObjects>,
        herald: Herald,
        stopping: Shutdown,
    ) -> Self {
        Self {
            store,
            cooperation,
            dirty,
            herald,
            stopping,
            orders: tokio::sync::Mutex::default(),
            now: Mutex::default(),
        }
    }

    /// The progress of the handoff.
    pub fn progress(&self) -> Progress {
        self.now.lock().progress
    }

    /// Begins to give blocks away, in a separate task, unless it has begun already.
    pub async fn begin(self: &Arc<Self>) {
        let _order = self.orders.lock().await;
        let Some(order) = self.becomes(Phase::Draining) else {
            return;
        };
        // Read before the others are told: as long as this node counts itself in, it knows what it was home
        // to.
        let before = self.cooperation.hierarchy();
        self.herald.tell(State::Draining).await;
        tracing::info!("draining: this node is home to nothing any more and gives away what it holds");
        let this = Arc::clone(self);
        tokio::spawn(async move { this.run(order, before).await });
    }

    /// Makes the node serve again. It asks the new homes for the blocks that it has given away, as a newcomer
    /// does.
    pub async fn end(&self) {
        let _order = self.orders.lock().await;
        if self.becomes(Phase::Serving).is_some() {
            self.herald.tell(State::Serving).await;
            tracing::info!("no longer draining");
        }
    }

    /// Starts a new order; returns `None` if the node is in that phase already.
    fn becomes(&self, phase: Phase) -> Option<u64> {
        let mut now = self.now.lock();
        if (now.progress.state == Phase::Serving) == (phase == Phase::Serving) {
            return None;
        }
        now.order += 1;
        now.progress = Progress {
            state: phase,
            ..Progress::default()
        };
        Some(now.order)
    }

    async fn run(&self, order: u64, before: Arc<Hierarchy>) {
        // Objects that the lake does not have come first, and are not left behind.
        loop {
            let objects_dirty = self.dirty.drain_round().await;
            self.note(order, |progress| progress.objects_dirty = objects_dirty);
            if objects_dirty == 0 || !self.is_current(order) {
                break;
            }
            tokio::select! {
                () = tokio::time::sleep(FLUSH_PAUSE) => {}
                () = self.stopping.begun() => return,
            }
        }
        let mut seen = HashSet::new();
        for _ in 0..ROUNDS {
            let mut blocks = self.store.held().await;
            blocks.retain(|block| seen.insert(*block));
            self.note(order, |progress| progress.blocks_left = blocks.len() as u64);
            let gifts = futures_util::stream::iter(blocks)
                .take_while(|_| std::future::ready(self.is_current(order)))
                .map(|block| self.give(block, &before));
            let noted = gifts.buffer_unordered(PARALLEL).for_each(|fate| {
                self.note(order, |progress| progress.count(&fate));
                std::future::ready(())
            });
            tokio::select! {
                () = noted => {}
                () = self.stopping.begun() => return,
            }
        }
        self.note(order, |progress| progress.state = Phase::Drained);
        if self.is_current(order) {
            tracing::info!(progress = ?self.progress(), "drained: this node may stop");
        }
    }

    fn is_current(&self, order: u64) -> bool {
        self.now.lock().order == order
    }

    fn note(&self, order: u64, change: impl FnOnce(&mut Progress)) {
        let mut now = self.now.lock();
        if now.order == order {
            change(&mut now.progress);
        }
    }

    async fn give(&self, block: BlockId, before: &Hierarchy) -> Fate {
        let Some(version) = self.store.version_of(block).await else {
            return Fate::Gone;
        };
        let mut pause = PAUSE_MIN;
        for _ in 0..TRIES {
            match self.offer(block, &version, before).await {
                Ok(true) => {
                    let bytes = version.block_len(block.index);
                    return Fate::Given { bytes };
                }
                Ok(false) => return Fate::Kept,
                Err(PeerError::Refused { status, .. }) if status != StatusCode::SERVICE_UNAVAILABLE => {
                    return Fate::Kept;
                }
                Err(error) => tracing::debug!(?block, %error, "a block was not taken over"),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
        Fate::Kept
    }

    /// Asks every new home of a block to take it over; a home that already has the block says so at once.
    /// Returns `false` if there is no new home.
    async fn offer(&self, block: BlockId, version: &Version, before: &Hierarchy) -> Result<bool, PeerError> {
        let request = BlockRequest::offer(version, block.index, self.cooperation.me());
        let heirs = self.cooperation.heirs(before, block);
        for heir in &heirs {
            heir.offer(&request).await?;
        }
        Ok(!heirs.is_empty())
    }
}

impl Progress {
    fn count(&mut self, fate: &Fate) {
        self.blocks_left = self.blocks_left.saturating_sub(1);
        match fate {
            Fate::Given { bytes } => {
                self.blocks_given += 1;
                self.bytes_given += bytes;
            }
            Fate::Kept => self.blocks_kept += 1,
            Fate::Gone => {}
        }
    }
}
