//! Fetches blocks to this node: one block from the best source, or a run of blocks from one response of the
//! lake.

mod block_fetch;
mod body_reader;
mod hops;
mod integrity;
mod peers;
pub mod read_context;
mod response_stream;
mod wanted_block;
mod window;

use std::sync::Arc;

use bytes::Bytes;
use shoal_policy::eviction::gwf::Worth;
use shoal_policy::quotas::QuotaIds;
use shoal_policy::{BlockId, Layer, Source};
use shoal_s3::object::Version;
use shoal_store::{Ranks, Store, Storing, Urgency};
use tokio::sync::{Notify, OwnedSemaphorePermit};

pub use self::body_reader::{range_header, sent_range};
pub use self::hops::HopOutcome;
pub use self::response_stream::StreamHandle;
pub use self::window::MemoryWindow;
use shoal_net::endpoint::Endpoint;
use shoal_net::link::Transfer;
use shoal_net::metrics::WordCounts;
use shoal_net::trace;

use self::peers::PeerSource;
use self::wanted_block::WantedBlock;
use crate::early::EarlyBlocks;
use crate::fetch::read_context::{Purpose, ReadContext};
use crate::grants::Grants;
use crate::held::HeldObjects;
use crate::job_reads::JobReads;
use crate::nodes::cooperation::Cooperation;
use crate::nodes::directory::{BlockDirectory, Claim};
use crate::nodes::obtain::Obtain;
use crate::quotas::{ChargedQuotas, Quotas};
use crate::single_flight::{Awaited, BlockSpan, Join, Leader, Sender, SingleFlight, Waiter};
use crate::split::{MissTimer, Split};

/// Fetches blocks from peers and from the lake for waiting readers and for the store.
pub struct Fetcher {
    /// The parts of the node, which readers and writers reach through the fetcher.
    pub parts: CacheParts,
    peers: PeerSource,
    /// The memory for bytes that are not on disk yet.
    pub memory: MemoryWindow,
    /// True if the store evicts by GWF.
    has_gwf: bool,
}

/// The parts of a node that reads and writes of blocks share.
pub struct CacheParts {
    /// The lake behind this node.
    pub lake: Arc<Endpoint>,
    /// Grants, which an answer of the lake may revoke.
    pub grants: Arc<Grants>,
    /// The homes of blocks.
    pub cooperation: Arc<Cooperation>,
    /// The block directory, if configured.
    pub directory: Option<Arc<BlockDirectory>>,
    /// Counts hits and misses of each layer.
    pub split: Arc<Split>,
    /// Blocks on disk.
    pub store: Arc<Store>,
    /// Blocks in flight.
    pub single_flight: Arc<SingleFlight>,
    /// Blocks that orders brought before their readers.
    pub early: EarlyBlocks,
    /// The reads of jobs of the plan in force.
    pub job_reads: JobReads,
    /// Objects of tiers that runs still read.
    pub held: HeldObjects,
    /// The quotas of identities and prefixes.
    pub quotas: Quotas,
    /// Maximum read-ahead of one reader, in blocks; a response of the lake announces as many ahead of the one
    /// that it is filling.
    pub ahead: usize,
    /// Block size in bytes.
    pub block_bytes: u64,
}

/// Initial weight of a block that has arrived, if the store evicts by GWF.
#[derive(Clone, Copy, Debug)]
enum Arrival {
    /// The weight of a first use.
    Used,
    /// Zero until it is used: the node that served it keeps the block's weight (Algorithm 3, lines 9-24).
    Copy,
    /// The worth stated by the node that evicted the block.
    Pushed(Worth),
    /// The weight of a first use, although no reader asked for it here.
    Given,
}

impl Fetcher {
    /// Creates a fetcher that keeps at most `window_bytes` in flight.
    pub fn new(parts: CacheParts, window_bytes: u64) -> Self {
        Self {
            peers: PeerSource::new(Arc::clone(&parts.cooperation), parts.directory.clone()),
            memory: MemoryWindow::new(window_bytes),
            has_gwf: parts.store.worths.ranks().is_some(),
            parts,
        }
    }

    /// Returns the number of block requests to peers since the node started, by outcome.
    pub fn hops(&self) -> WordCounts {
        self.peers.hops.by_word()
    }

    /// Returns true if this node has every byte of the block, even if it is not on disk yet.
    pub fn holds(&self, block: BlockId) -> bool {
        self.parts.store.contains(block)
            || self
                .parts
                .single_flight
                .holds(block, || self.parts.store.contains(block))
    }

    /// Returns true if a block in flight waits for its home in `layer` or a narrower one, or for the node
    /// that claims it. A peer that asks this node as the home in `layer` may be the very node that the block
    /// waits for.
    pub fn waits_for_home(&self, block: BlockId, layer: Layer) -> bool {
        match self.parts.single_flight.awaited(block) {
            Some(Awaited::Home(awaited)) => awaited <= layer,
            Some(Awaited::Claimant) => true,
            None => false,
        }
    }

    /// Returns true if a read of a block of this length for a peer is counted by that peer, in the directory
    /// entry of the block, and not here.
    pub fn counts_uses_by_reader(&self, block_bytes: u64) -> bool {
        self.has_gwf && BlockDirectory::enters(block_bytes)
    }

    /// Returns true if this node accepts a pushed block of this worth: memory is not busy, and the block is
    /// worth more than the average block here.
    pub fn takes_push(&self, worth: Worth) -> bool {
        let is_worth_it = |ranks: Ranks| worth.rank() > ranks.average;
        !self.memory.is_busy() && self.parts.store.worths.ranks().is_some_and(is_worth_it)
    }

    /// Returns true if blocks of this length are located by their homes and not by the directory.
    pub fn uses_homes(&self, block_bytes: u64) -> bool {
        let directory = self.peers.directory_for(block_bytes);
        directory.is_none_or(|directory| !directory.answers())
    }

    /// Returns the node that a fetch of a missing block asks first; `None` if only the directory knows, which
    /// is queried during the fetch.
    pub fn first_sender(&self, version: &Version, index: u32, obtain: &Obtain) -> Option<Sender> {
        self.peers.first_sender(version, index, obtain)
    }

    /// Joins the fetch of a block, or starts one in a separate task. Returns `None` if the block is in the
    /// store by now.
    pub fn join(
        self: &Arc<Self>,
        version: &Arc<Version>,
        index: u32,
        context: &Arc<ReadContext>,
        obtain: Obtain,
    ) -> Option<Waiter> {
        assert!(
            !obtain.is_passive(),
            "only a read that may ask others starts a fetch"
        );
        let waiters_changed = Arc::new(Notify::new());
        match self.join_or_lead(span_of(version, index, 0), &waiters_changed) {
            Join::Stored => None,
            Join::Joined(waiter) => {
                if context.purpose.is_client() {
                    self.parts.early.requested(version.block(index), false);
                }
                Some(self.hurried(waiter, context))
            }
            Join::Lead(leader, mut waiter) => {
                waiter.led = true;
                let transfer = self.transfer(context);
                if let Some(transfer) = &transfer {
                    leader.carried_by(transfer.clone());
                }
                let is_read = context.purpose.is_client();
                if is_read {
                    self.parts.early.requested(version.block(index), false);
                }
                let missed = is_read.then(|| self.requested(version, index, false)).flatten();
                let fetch = WantedBlock {
                    transfer,
                    version: Arc::clone(version),
                    context: Arc::clone(context),
                    obtain,
                    leader,
                };
                trace::spawn(Arc::clone(self).run(fetch, missed, waiters_changed));
                Some(waiter)
            }
        }
    }

    /// Joins the fetch of a block that is in flight or waits to be written to disk, for a read in `context`.
    pub fn join_running(&self, block: BlockId, context: &ReadContext) -> Option<Waiter> {
        let waiter = self.parts.single_flight.join_running(block)?;
        Some(self.hurried(waiter, context))
    }

    /// Returns the transfer that carries bytes from the lake for a read; `None` if a client waits for them
    /// and they keep no rate.
    pub fn transfer(&self, context: &ReadContext) -> Option<Transfer> {
        let rates = self.quotas_of(context).rates();
        context.purpose.transfer_within(rates)
    }

    /// Returns the quotas that a read falls under.
    fn quotas_of(&self, context: &ReadContext) -> ChargedQuotas {
        self.parts.quotas.of(&context.caller, context.name.as_ref())
    }

    /// Returns the waiter of a read that joined a fetch. If a client reads, the fetch continues in the
    /// client's class, and at the rates of the quotas that both fall under.
    fn hurried(&self, waiter: Waiter, context: &ReadContext) -> Waiter {
        waiter.hurry_for(&context.purpose, &self.quotas_of(context).rates());
        waiter
    }

    /// Takes a complete block that was written here: readers find it immediately, and it is on disk when the
    /// returned future completes. Returns `None` if the block is already cached or in flight.
    ///
    /// A late block is written after the writes in progress, just as a block that was read is written after
    /// its readers are served, unless much data is waiting.
    pub fn insert_written(
        self: &Arc<Self>,
        version: &Arc<Version>,
        index: u32,
        (pieces, memory): (Vec<Bytes>, OwnedSemaphorePermit),
        Storing { urgency, quotas }: Storing,
    ) -> Option<impl Future<Output = ()> + use<>> {
        let leader = match self.join_or_lead(span_of(version, index, 0), &Arc::default()) {
            Join::Lead(leader, _no_reader_yet) => leader,
            Join::Joined(_) | Join::Stored => return None,
        };
        leader.hold_memory(vec![memory]);
        for piece in pieces {
            leader.push(piece);
        }
        let urgency = if self.memory.is_filling(0) {
            Urgency::Now
        } else {
            urgency
        };
        let (store, version) = (Arc::clone(&self.parts.store), Arc::clone(version));
        Some(async move {
            let block = version.block(index);
            let stored = store
                .publisher
                .put(block, version, leader.pieces(), Storing { urgency, quotas })
                .await;
            store.cache_events.added(block);
            // A block that was not stored costs time but fails no read; the store has counted the reason.
            leader.complete(stored.ok());
        })
    }

    /// Counts a reader's request for a block that this node holds.
    pub fn hit(&self, version: &Version, index: u32, purpose: &Purpose) {
        if purpose.is_client() {
            self.parts.early.requested(version.block(index), true);
        }
        self.requested(version, index, true);
    }

    /// Counts a reader's request for a block, which this node holds or must fetch. Returns a timer if it is a
    /// miss that is to be measured.
    fn requested(&self, version: &Version, index: u32, held: bool) -> Option<MissTimer> {
        let block = version.block(index);
        let layer = self.parts.store.layers.layer_of(block);
        self.parts
            .split
            .requested(layer, block, version.block_len(index), held)
    }

    /// Runs the fetch of one block from start to end.
    async fn run(
        self: Arc<Self>,
        fetch: WantedBlock,
        missed: Option<MissTimer>,
        waiters_changed: Arc<Notify>,
    ) {
        let fetched = tokio::select! {
            fetched = self.fetch_block(&fetch) => fetched,
            // Dropping the response closes its connection.
            () = abandoned(&fetch.leader, &waiters_changed) => return,
        };
        match fetched {
            Ok(claim) => {
                if let Some(missed) = missed {
                    missed.answered();
                }
                // A node that hands a block over waits until it is written to disk, and so does a task.
                let urgency = match (&fetch.obtain, &fetch.context.purpose) {
                    (Obtain::Handover(_) | Obtain::Push(..), _)
                    | (_, Purpose::Prefetch | Purpose::Planned(_)) => Urgency::Now,
                    _ => Urgency::Late,
                };
                let arrival = self.arrival(&fetch);
                let quotas = match fetch.obtain {
                    // No caller of this node brings the block.
                    Obtain::Handover(_) | Obtain::Push(..) => QuotaIds::default(),
                    _ => self.quotas_of(&fetch.context).ids(),
                };
                let storing = Storing { urgency, quotas };
                self.write_to_store(fetch.version, fetch.leader, storing, arrival, claim);
            }
            Err(error) => fetch.leader.fail(error),
        }
    }

    /// Returns the initial weight of a block that has arrived. Reports the use of a peer's copy to the
    /// directory.
    fn arrival(&self, fetch: &WantedBlock) -> Arrival {
        match fetch.obtain {
            Obtain::Push(_, worth) => Arrival::Pushed(worth),
            Obtain::Handover(_) => Arrival::Given,
            // An operator wants the block here, whatever its source, and no client has used it.
            _ if matches!(fetch.context.purpose, Purpose::Prefetch | Purpose::Planned(_)) => Arrival::Used,
            _ if self.has_gwf && fetch.leader.source() == Source::Peer => {
                let BlockSpan { id, len, .. } = fetch.leader.span();
                if let Some(directory) = self.peers.directory_for(len) {
                    // With additive ageing, every use has the same weight.
                    directory.used(id, 1);
                }
                Arrival::Copy
            }
            _ => Arrival::Used,
        }
    }

    fn join_or_lead(&self, span: BlockSpan, waiters_changed: &Arc<Notify>) -> Join {
        let is_stored = || self.parts.store.contains(span.id);
        self.parts.single_flight.join(span, waiters_changed, is_stored)
    }

    /// Starts writing a complete block to disk while its readers are still being served. Its claim ends when
    /// the write does.
    fn write_to_store(
        &self,
        version: Arc<Version>,
        leader: Leader,
        storing: Storing,
        arrival: Arrival,
        claim: Option<Claim>,
    ) {
        let BlockSpan { id: block, len, .. } = leader.span();
        assert_eq!(leader.received(), len, "a block that was fetched is whole");
        let pieces = leader.pieces();
        let store = Arc::clone(&self.parts.store);
        self.parts
            .store
            .publisher
            .put_then(block, version, pieces, storing, move |stored| {
                match arrival {
                    Arrival::Used => {}
                    Arrival::Copy => store.worths.weigh_as_copy(block),
                    Arrival::Pushed(worth) => store.worths.weigh(block, worth),
                    Arrival::Given => store.cache_events.added(block),
                }
                if let Some(claim) = claim
                    && stored.is_ok()
                {
                    claim.stored();
                }
                leader.complete(stored.ok());
            });
    }
}

/// Resolves once the last reader has left before the first byte arrived. After the first byte the fetch runs
/// to its end: most of its cost is paid, and a reader of a few bytes leaves long before the block is
/// complete.
async fn abandoned(leader: &Leader, waiters_changed: &Notify) {
    while leader.has_waiters() || leader.received() > 0 {
        waiters_changed.notified().await;
    }
}

fn span_of(version: &Version, index: u32, first: u64) -> BlockSpan {
    BlockSpan {
        id: version.block(index),
        len: version.block_len(index),
        first,
    }
}
