//! Hands the blocks of a draining node over to their new homes, so that the cluster keeps them.
//!
//! The node announces by gossip that it is no longer home to any block, keeps running, and asks the new home
//! of each block to take it over: the most recently used blocks first, a few at a time, and only while the
//! new homes have room for blocks without readers. Nothing is deleted here: until it stops, the node serves
//! the blocks that it has.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use http::StatusCode;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_cache::lake::Lake;
use shoal_cache::peer::{BlockRequest, PeerError};
use shoal_net::membership::{Announcer, State};
use shoal_net::pauses::Pauses;
use shoal_net::shutdown::Shutdown;
use shoal_policy::BlockId;
use shoal_policy::route::Hierarchy;
use shoal_s3::object::Version;

use crate::core::Core;

/// Number of blocks handed over concurrently.
const PARALLEL: usize = 4;

/// Passes over the blocks of the node. Nodes that have not received the announcement still send new blocks
/// during the first pass, so a second one is needed.
const ROUNDS: usize = 2;

/// Pause before objects that could not be flushed are retried.
const FLUSH_PAUSE: Duration = Duration::from_secs(1);

/// How often a new home is asked if it is busy or unreachable, with pauses in between.
const TRIES: u32 = 8;
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Drains a node on an operator's order, and lets it serve again.
pub struct Handoff {
    core: Arc<Core>,
    lake: Arc<dyn Lake>,
    announcer: Announcer,
    stopping: Shutdown,
    /// Held during an announcement, so that announcements are sent in the order in which they were requested.
    orders: tokio::sync::Mutex<()>,
    current: Mutex<Current>,
}

#[derive(Default)]
struct Current {
    /// Number of the current order; work for an earlier order stops.
    order: u64,
    progress: HandoffProgress,
}

/// The progress of a handoff, as `/status` shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoffProgress {
    /// The phase of the node.
    pub state: HandoffPhase,
    /// Dirty objects of which this node keeps a part. The node keeps draining until none is left.
    #[serde(default)]
    pub objects_dirty: u64,
    /// Blocks that have not been offered yet.
    pub blocks_left: u64,
    /// Blocks that their new homes have stored.
    pub blocks_given: u64,
    /// Bytes of those blocks.
    pub bytes_given: u64,
    /// Blocks that no node took: no other node was reachable, or none had room in time.
    pub blocks_kept: u64,
}

/// The phase of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HandoffPhase {
    /// The node is home to its share of the blocks.
    #[default]
    Serving,
    /// The node hands its blocks to other nodes.
    Draining,
    /// Other nodes have all the blocks that they accepted. The node may stop.
    Drained,
}

impl Handoff {
    /// Creates the handoff of a serving node.
    pub fn new(core: Arc<Core>, lake: Arc<dyn Lake>, announcer: Announcer, stopping: Shutdown) -> Self {
        Self {
            core,
            lake,
            announcer,
            stopping,
            orders: tokio::sync::Mutex::default(),
            current: Mutex::default(),
        }
    }

    /// Returns the progress of the handoff.
    pub fn progress(&self) -> HandoffProgress {
        self.current.lock().progress
    }

    /// Starts to hand blocks over, in a separate task, unless the node is already draining.
    pub async fn begin(self: &Arc<Self>) {
        let _order = self.orders.lock().await;
        let Some(order) = self.becomes(HandoffPhase::Draining) else {
            return;
        };
        // Read before the announcement, because this node's hierarchy contains the node itself until then.
        let before = self.core.cooperation.hierarchy();
        self.announcer.announce(State::Draining).await;
        tracing::info!("draining: this node is no longer home to any block and hands its blocks over");
        let this = Arc::clone(self);
        tokio::spawn(async move { this.run(order, before).await });
    }

    /// Makes the node serve again. Like a new node, it asks other nodes for the blocks that it handed over.
    pub async fn end(&self) {
        let _order = self.orders.lock().await;
        if self.becomes(HandoffPhase::Serving).is_some() {
            self.announcer.announce(State::Serving).await;
            tracing::info!("no longer draining");
        }
    }

    /// Starts a new order; returns `None` if the node is already in that phase.
    fn becomes(&self, phase: HandoffPhase) -> Option<u64> {
        let mut current = self.current.lock();
        if (current.progress.state == HandoffPhase::Serving) == (phase == HandoffPhase::Serving) {
            return None;
        }
        current.order += 1;
        current.progress = HandoffProgress {
            state: phase,
            ..HandoffProgress::default()
        };
        Some(current.order)
    }

    async fn run(&self, order: u64, before: Arc<Hierarchy>) {
        // Dirty objects first: the node must not stop before they are in the lake.
        loop {
            let objects_dirty = self.lake.drain_round().await;
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
            let mut blocks = self.core.store.blocks_by_use(0).await;
            blocks.retain(|block| seen.insert(*block));
            self.note(order, |progress| progress.blocks_left = blocks.len() as u64);
            let given = futures_util::stream::iter(blocks)
                .take_while(|_| std::future::ready(self.is_current(order)))
                .map(|block| self.give(order, block, &before))
                .buffer_unordered(PARALLEL)
                .collect();
            tokio::select! {
                () = given => {}
                () = self.stopping.begun() => return,
            }
        }
        self.note(order, |progress| progress.state = HandoffPhase::Drained);
        if self.is_current(order) {
            tracing::info!(progress = ?self.progress(), "drained: this node may stop");
        }
    }

    fn is_current(&self, order: u64) -> bool {
        self.current.lock().order == order
    }

    fn note(&self, order: u64, change: impl FnOnce(&mut HandoffProgress)) {
        let mut current = self.current.lock();
        if current.order == order {
            change(&mut current.progress);
        }
    }

    /// Hands a block over, unless it was evicted meanwhile.
    async fn give(&self, order: u64, block: BlockId, before: &Hierarchy) {
        let version = self.core.store.version_of(block).await;
        let is_taken = match &version {
            Some(version) => self.is_taken(block, version, before).await,
            None => false,
        };
        self.note(order, |progress| {
            assert!(
                progress.blocks_left > 0,
                "no more blocks are handed over than were left"
            );
            progress.blocks_left -= 1;
            match version {
                Some(version) if is_taken => {
                    progress.blocks_given += 1;
                    progress.bytes_given += version.block_len(block.index);
                }
                Some(_) => progress.blocks_kept += 1,
                None => {}
            }
        });
    }

    /// Offers a block to its new homes until they take it; returns false if they do not.
    async fn is_taken(&self, block: BlockId, version: &Version, before: &Hierarchy) -> bool {
        let mut pauses = Pauses::new(PAUSE_MIN, PAUSE_MAX);
        for _ in 0..TRIES {
            match self.offer(block, version, before).await {
                Ok(is_taken) => return is_taken,
                Err(PeerError::Refused { status, .. }) if status != StatusCode::SERVICE_UNAVAILABLE => {
                    return false;
                }
                Err(error) => tracing::debug!(?block, %error, "a block was not handed over"),
            }
            pauses.wait().await;
        }
        false
    }

    /// Asks every new home of a block to take it over; a home that already has the block answers at once.
    /// Returns `false` if the block has no new home.
    async fn offer(&self, block: BlockId, version: &Version, before: &Hierarchy) -> Result<bool, PeerError> {
        let request = BlockRequest::offer(version, block.index, self.core.cooperation.me);
        let successors = self.core.cooperation.successors(before, block);
        for successor in &successors {
            successor.offer(&request).await?;
        }
        Ok(!successors.is_empty())
    }
}
