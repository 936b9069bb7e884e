//! One fetch per block, however many readers wait for it.
//!
//! The first reader that misses a block starts a fetch, which runs in a separate task. The task owns the
//! [`Leader`] and pushes the bytes as they arrive; each reader owns a [`Waiter`] and reads them from there. A
//! waiter that leaves does not disturb the others; when the last one leaves, the leader is notified. When the
//! block is on disk the fetch is complete: the mapped file replaces the pieces in memory, so that a slow
//! waiter holds page cache and not heap.

#[cfg(test)]
mod tests;
mod waiter;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Waker;

use bytes::Bytes;
use http::StatusCode;
use parking_lot::Mutex;
use shoal_policy::{BlockId, Layer, NodeId, Source};
use tokio::sync::{Notify, OwnedSemaphorePermit};

pub use self::waiter::Waiter;

use crate::endpoint::SharedError;
use crate::link::Transfer;

/// All block fetches of a node that are in flight.
#[derive(Debug, Default)]
pub struct SingleFlight {
    in_flight: Mutex<HashMap<BlockId, Arc<Fetch>, foldhash::fast::RandomState>>,
    coalesced: AtomicU64,
}

/// Why a fetch failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FetchError {
    /// The object is no longer the version the block belongs to.
    #[error("the object changed at the lake while it was read")]
    Changed,
    /// The lake answered with a status that is neither the block nor "changed".
    #[error("the lake answered {0} to a read of a block")]
    Status(StatusCode),
    /// The lake cannot be reached, broke off, or sent other data than it announced.
    #[error("{0}")]
    Lake(SharedError),
    /// The lake's answer differs in length, encoding or checksum from the values that the lake gives for the
    /// object.
    #[error("the lake sent other bytes than it says the object has")]
    Mismatch,
    /// The tier does not give the bytes of a dirty object.
    #[error("{0}")]
    Tier(Arc<str>),
    /// The memory window stayed full.
    #[error("too many bytes are on their way from the lake")]
    Busy,
    /// The block left this node's disk, and was not to be fetched.
    #[error("the block is not held any more")]
    NotHeld,
    /// The leader gave up because no reader waited, just before this one joined.
    #[error("the fetch was abandoned")]
    Abandoned,
}

/// A block to fetch, and the order in which its bytes arrive.
#[derive(Clone, Copy, Debug)]
pub struct BlockSpan {
    /// The block.
    pub id: BlockId,
    /// Its length in bytes.
    pub len: u64,
    /// The byte that arrives first: the first one that the reader of a range wants. The bytes before it
    /// follow after the last byte of the block.
    pub first: u64,
}

/// The result of [`SingleFlight::join`].
#[derive(Debug)]
pub enum Join {
    /// The block is in flight already.
    Joined(Waiter),
    /// The block is in the store by now: look there again.
    Stored,
    /// The block is not being fetched: the caller must fetch it, in a separate task.
    Lead(Leader, Waiter),
}

#[derive(Debug)]
struct Fetch {
    span: BlockSpan,
    state: Mutex<State>,
    waiters: AtomicUsize,
    /// Tells the leader that waiters came or went; shared by the fetches that one response fills.
    waiters_changed: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    /// In the order of their arrival. None holds both the last byte of the block and its first.
    pieces: Vec<Bytes>,
    received: u64,
    /// Where the bytes come from now.
    source: Source,
    /// The sender of these bytes, once the leader knows it.
    sender: Option<Sender>,
    /// Whether the block was on no node when it was asked for.
    is_far: bool,
    /// The other node that the leader waits for.
    awaited: Option<Awaited>,
    phase: FetchPhase,
    /// Whether the leader has gone: the phase is the last one.
    is_over: bool,
    wakers: Vec<Waker>,
    /// The transfer that fetches the block; `None` if a client's read or write began it.
    transfer: Option<Transfer>,
    /// Whether a client waits for the block, or has waited.
    is_hurried: bool,
    /// The share of the memory window that the pieces take; given back when they are dropped.
    memory: Option<BlockMemory>,
}

/// Shares of memory windows that the bytes of a block take.
#[derive(Debug)]
pub struct BlockMemory {
    /// The share of the part for blocks that no client waits for.
    pub of_background: Option<OwnedSemaphorePermit>,
    /// The share of the memory window.
    pub of_window: OwnedSemaphorePermit,
}

impl From<OwnedSemaphorePermit> for BlockMemory {
    fn from(of_window: OwnedSemaphorePermit) -> Self {
        Self {
            of_background: None,
            of_window,
        }
    }
}

/// Sender of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// Another node.
    Node(NodeId),
    /// The lake, a tier, or this node.
    Other,
}

/// Another node that brings a block, and may have to wait for a third one before it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The block's home in this layer.
    Home(Layer),
    /// The node that claims the block at the directory.
    Claimant,
}

#[derive(Debug)]
enum FetchPhase {
    /// Bytes are still coming.
    Receiving,
    /// All bytes are here, on the heap: the store did not take the block, or has not taken it yet.
    Received,
    /// The block is on disk; its mapping serves every byte.
    Stored(Bytes),
    /// No more bytes will come.
    Failed(FetchError),
}

impl SingleFlight {
    /// Joins the fetch of a block or starts one. `is_stored` looks into the store's index. It is called under
    /// the same lock under which fetches are removed, so that a block is never fetched twice because it
    /// was stored in between.
    pub fn join(
        self: &Arc<Self>,
        span: BlockSpan,
        waiters_changed: &Arc<Notify>,
        is_stored: impl FnOnce() -> bool,
    ) -> Join {
        let mut in_flight = self.in_flight.lock();
        if let Some(fetch) = in_flight.get(&span.id) {
            let is_here = fetch.is_here();
            // A block that a response announced has no reader yet: the first one does not share it.
            let shared = fetch.waiters.load(Ordering::Acquire) > 0;
            let waits = shared && !is_here;
            self.coalesced.fetch_add(u64::from(waits), Ordering::Relaxed);
            return Join::Joined(Waiter::new(fetch, is_here));
        }
        if is_stored() {
            return Join::Stored;
        }
        let fetch = Arc::new(Fetch {
            span,
            state: Mutex::new(State {
                pieces: Vec::new(),
                received: 0,
                source: Source::Lake,
                sender: None,
                is_far: false,
                awaited: None,
                phase: FetchPhase::Receiving,
                is_over: false,
                wakers: Vec::new(),
                transfer: None,
                is_hurried: false,
                memory: None,
            }),
            waiters: AtomicUsize::new(0),
            waiters_changed: Arc::clone(waiters_changed),
        });
        in_flight.insert(span.id, Arc::clone(&fetch));
        let waiter = Waiter::new(&fetch, false);
        Join::Lead(
            Leader {
                fetch,
                single_flight: Arc::clone(self),
            },
            waiter,
        )
    }

    /// Whether this node has every byte of the block, in memory or on disk. `is_stored` as
    /// for [`SingleFlight::join`].
    pub fn holds(&self, id: BlockId, is_stored: impl FnOnce() -> bool) -> bool {
        let in_flight = self.in_flight.lock();
        match in_flight.get(&id) {
            Some(fetch) => fetch.is_here(),
            None => is_stored(),
        }
    }

    /// Joins the fetch of a block whose bytes are all here and wait for the disk.
    pub fn join_whole(&self, id: BlockId) -> Option<Waiter> {
        let in_flight = self.in_flight.lock();
        let fetch = in_flight.get(&id).filter(|fetch| fetch.is_here())?;
        Some(Waiter::new(fetch, true))
    }

    /// Joins the fetch of a block that is in flight, or waits for the disk.
    pub fn join_running(&self, id: BlockId) -> Option<Waiter> {
        let in_flight = self.in_flight.lock();
        let fetch = in_flight.get(&id)?;
        Some(Waiter::new(fetch, fetch.is_here()))
    }

    /// Whether the block is in flight, or waits for the disk.
    pub fn contains(&self, block: BlockId) -> bool {
        self.in_flight.lock().contains_key(&block)
    }

    /// The other node that a block in flight waits for.
    pub fn awaited(&self, block: BlockId) -> Option<Awaited> {
        let fetch = self.in_flight.lock().get(&block).cloned();
        fetch.and_then(|fetch| fetch.state.lock().awaited)
    }

    /// The number of reads that waited for a fetch that another read had started.
    pub fn coalesced(&self) -> u64 {
        self.coalesced.load(Ordering::Relaxed)
    }

    /// The number of blocks in flight now.
    pub fn count(&self) -> usize {
        self.in_flight.lock().len()
    }

    fn remove(&self, fetch: &Arc<Fetch>) {
        let id = fetch.span.id;
        let mut in_flight = self.in_flight.lock();
        if in_flight
            .get(&id)
            .is_some_and(|current| Arc::ptr_eq(current, fetch))
        {
            in_flight.remove(&id);
        }
    }
}

impl Fetch {
    /// Whether all bytes of the block are here, though the disk may not have them yet. To a waiter that joins
    /// now, the block comes from this node.
    fn is_here(&self) -> bool {
        matches!(
            self.state.lock().phase,
            FetchPhase::Received | FetchPhase::Stored(_)
        )
    }
}

/// The producing end of a fetch. If it is dropped before the end, the fetch fails as abandoned.
#[derive(Debug)]
pub struct Leader {
    fetch: Arc<Fetch>,
    single_flight: Arc<SingleFlight>,
}

impl Leader {
    /// The block to fetch.
    pub fn span(&self) -> BlockSpan {
        self.fetch.span
    }

    /// Whether any reader waits for the block.
    pub fn has_waiters(&self) -> bool {
        self.fetch.waiters.load(Ordering::Acquire) > 0
    }

    /// Keeps a share of the memory window for the bytes to come, until they are dropped.
    pub fn hold_memory(&self, memory: impl Into<BlockMemory>) {
        self.fetch.state.lock().memory = Some(memory.into());
    }

    /// Notes the transfer that fetches the block. The transfer goes on as a client's when a client comes.
    pub fn carried_by(&self, transfer: Transfer) {
        let mut state = self.fetch.state.lock();
        if state.is_hurried {
            transfer.hurry();
        }
        state.transfer = Some(transfer);
    }

    /// Sets the source of the bytes to come.
    pub fn set_source(&self, source: Source) {
        self.fetch.state.lock().source = source;
    }

    /// Notes the sender of the bytes to come. Waiters may ask for further blocks then.
    pub fn set_sender(&self, sender: Sender) {
        self.change(|state| state.sender = Some(sender));
    }

    /// Notes that the node that sends the block did not have it, either.
    pub fn set_far(&self) {
        self.fetch.state.lock().is_far = true;
    }

    /// The source of the bytes that came last.
    pub fn source(&self) -> Source {
        self.fetch.state.lock().source
    }

    /// Notes that the block waits for another node, until the returned value is dropped.
    pub fn awaits(&self, awaited: Awaited) -> PeerWait<'_> {
        self.fetch.state.lock().awaited = Some(awaited);
        PeerWait(&self.fetch)
    }

    /// The number of bytes that have arrived.
    pub fn received(&self) -> u64 {
        self.fetch.state.lock().received
    }

    /// Hands bytes that arrived to the waiters. Together they must be exactly the block, from the span's
    /// first byte to the one before it.
    ///
    /// # Panics
    ///
    /// Panics if there are more bytes than the block has.
    pub fn push(&self, piece: Bytes) {
        self.change(|state| {
            state.received += piece.len() as u64;
            assert!(
                state.received <= self.fetch.span.len,
                "a leader pushes no more than its block"
            );
            state.pieces.push(piece);
            if state.received == self.fetch.span.len {
                state.phase = FetchPhase::Received;
            }
        });
    }

    /// The whole block from its first byte to its last, to be written to disk.
    pub fn pieces(&self) -> Vec<Bytes> {
        self.pieces_with(None)
    }

    /// The pieces of the block as they will be once `last` has been pushed.
    pub fn pieces_with(&self, last: Option<Bytes>) -> Vec<Bytes> {
        let mut pieces = self.fetch.state.lock().pieces.clone();
        pieces.extend(last);
        let BlockSpan { len, first, .. } = self.fetch.span;
        let mut before_the_turn = len - first;
        let turn = pieces.iter().position(|piece| {
            let is_turn = before_the_turn == 0;
            before_the_turn = before_the_turn.saturating_sub(piece.len() as u64);
            is_turn
        });
        pieces.rotate_left(turn.unwrap_or(0));
        pieces
    }

    /// Completes the fetch of a block that is in the store now: its mapping replaces the pieces.
    ///
    /// # Panics
    ///
    /// Panics if the mapping has another length than the block.
    pub fn complete(self, mapped: Bytes) {
        assert_eq!(
            mapped.len() as u64,
            self.fetch.span.len,
            "a stored block is whole"
        );
        self.change(|state| {
            state.pieces = Vec::new();
            state.memory = None;
            state.phase = FetchPhase::Stored(mapped);
        });
    }

    /// Completes the fetch of a block that the store did not take: its waiters read it from memory, and no
    /// others join.
    ///
    /// # Panics
    ///
    /// Panics if bytes are missing.
    pub fn complete_unstored(self) {
        let state = self.fetch.state.lock();
        assert_eq!(
            state.received, self.fetch.span.len,
            "only a complete block serves its waiters"
        );
    }

    /// Fails the fetch for all waiters: no more bytes will come.
    pub fn fail(self, error: FetchError) {
        self.end_with(error);
    }

    fn end_with(&self, error: FetchError) {
        self.change(|state| {
            state.pieces = Vec::new();
            state.memory = None;
            state.phase = FetchPhase::Failed(error);
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let wakers = {
            let mut state = self.fetch.state.lock();
            change(&mut state);
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Marks that a block waits for another node, which must not wait for this one.
#[derive(Debug)]
#[must_use = "a block waits for another node until this is dropped"]
pub struct PeerWait<'a>(&'a Fetch);

impl Drop for PeerWait<'_> {
    fn drop(&mut self) {
        self.0.state.lock().awaited = None;
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.single_flight.remove(&self.fetch);
        let unfinished = matches!(self.fetch.state.lock().phase, FetchPhase::Receiving);
        if unfinished {
            self.end_with(FetchError::Abandoned);
        }
        self.change(|state| state.is_over = true);
    }
}
