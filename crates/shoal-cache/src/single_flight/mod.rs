//! One fetch per block, however many readers wait for it.
//!
//! The first reader that misses a block starts a fetch, which runs in a separate task. The task owns the
//! [`Leader`] and pushes bytes as they arrive; each reader owns a [`Waiter`] and reads them. A waiter that
//! leaves does not disturb the others; when the last one leaves, the leader is notified. The fetch completes
//! once the block is on disk: the mapped file then replaces the pieces in memory, so that a slow waiter holds
//! page cache and not heap.

#[cfg(test)]
mod tests;
mod underway;
mod waiter;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Waker};

use bytes::Bytes;
use http::StatusCode;
use parking_lot::Mutex;
use shoal_policy::{BlockId, Layer, NodeId, Source};
use tokio::sync::{Notify, OwnedSemaphorePermit};

pub use self::underway::{Ended, Underway, Work};
pub use self::waiter::Waiter;
use shoal_net::endpoint::SharedError;
use shoal_net::link::Transfer;

/// All block fetches of a node that are in flight.
#[derive(Debug, Default)]
pub struct SingleFlight {
    in_flight: Mutex<HashMap<BlockId, Arc<Fetch>, foldhash::fast::RandomState>>,
    coalesced: AtomicU64,
}

/// Why a fetch failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FetchError {
    /// The object is no longer the version that the block belongs to.
    #[error("the object changed at the lake while it was read")]
    Changed,
    /// The lake answered a read of a block with this error status.
    #[error("the lake answered {0} to a read of a block")]
    Status(StatusCode),
    /// The lake could not be reached, broke off, or sent other data than announced.
    #[error("{0}")]
    Lake(SharedError),
    /// The lake's response differs in length, encoding or checksum from what the lake reports for the object.
    #[error("the lake sent other bytes than it says the object has")]
    Mismatch,
    /// The place where the bytes are kept failed to return them.
    #[error("{0}")]
    Kept(Arc<str>),
    /// The memory window stayed full.
    #[error("too many bytes are on their way from the lake")]
    Busy,
    /// The block is not on disk, and the reader did not want it fetched.
    #[error("the block is not held any more")]
    NotHeld,
    /// The leader stopped for lack of readers just before this one joined.
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
    /// Offset of the byte that arrives first: the start of the reader's range. The bytes before it arrive
    /// after the last byte of the block.
    pub first: u64,
}

/// The result of [`SingleFlight::join`].
#[derive(Debug)]
pub enum Join {
    /// The block is already in flight.
    Joined(Waiter),
    /// The block has just been stored: look in the store again.
    Stored,
    /// The caller must fetch the block, in a separate task.
    Lead(Leader, Waiter),
}

#[derive(Debug)]
struct Fetch {
    span: BlockSpan,
    state: Mutex<State>,
    waiters: AtomicUsize,
    /// Notifies the leader when waiters join or leave; shared by the fetches that one response fills.
    waiters_changed: Arc<Notify>,
}

#[derive(Debug, Default)]
struct State {
    /// In order of arrival. No piece holds both the last byte of the block and the first.
    pieces: Vec<Bytes>,
    received: u64,
    /// Current source of bytes: the lake, until another one is set.
    source: Source,
    /// Sender of these bytes, once known.
    sender: Option<Sender>,
    /// True if no node held the block when it was requested.
    is_far: bool,
    /// The other node that the leader waits for.
    awaited: Option<Awaited>,
    phase: FetchPhase,
    /// True once the leader has been dropped: the phase is final.
    is_over: bool,
    wakers: Vec<Waker>,
    /// The transfer that fetches the block; `None` if a client's read or write started it.
    transfer: Option<Transfer>,
    /// True once a client has waited for the block.
    is_hurried: bool,
    /// Shares of the memory window that the pieces occupy; released when they are dropped.
    memory: Vec<OwnedSemaphorePermit>,
}

impl State {
    /// Wakes the task at the next change.
    fn wake_later(&mut self, cx: &Context<'_>) {
        if !self.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.wakers.push(cx.waker().clone());
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

/// A peer that fetches a block for this node, and may itself wait for another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The block's home in this layer.
    Home(Layer),
    /// The node that holds the claim to the block in the directory.
    Claimant,
}

#[derive(Debug, Default)]
enum FetchPhase {
    /// Bytes are still coming.
    #[default]
    Receiving,
    /// All bytes are in memory: the store has not taken the block yet, or refused it.
    Received,
    /// The block is on disk; its mapping serves every byte.
    Stored(Bytes),
    /// No more bytes will come.
    Failed(FetchError),
}

impl SingleFlight {
    /// Joins the fetch of a block or starts one. `is_stored` looks up the store's index. It is called under
    /// the lock under which fetches are removed, so that a block stored in between is not fetched twice.
    pub fn join(
        self: &Arc<Self>,
        span: BlockSpan,
        waiters_changed: &Arc<Notify>,
        is_stored: impl FnOnce() -> bool,
    ) -> Join {
        let mut in_flight = self.in_flight.lock();
        if let Some(fetch) = in_flight.get(&span.id) {
            let is_here = fetch.is_here();
            // A block that a response announced has no reader yet; its first reader is not counted as
            // coalesced.
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
            state: Mutex::default(),
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

    /// Returns true if this node has every byte of the block, in memory or on disk. For `is_stored`, see
    /// [`SingleFlight::join`].
    pub fn holds(&self, id: BlockId, is_stored: impl FnOnce() -> bool) -> bool {
        let in_flight = self.in_flight.lock();
        match in_flight.get(&id) {
            Some(fetch) => fetch.is_here(),
            None => is_stored(),
        }
    }

    /// Joins the fetch of a block that has arrived completely and waits to be written to disk.
    pub fn join_whole(&self, id: BlockId) -> Option<Waiter> {
        let in_flight = self.in_flight.lock();
        let fetch = in_flight.get(&id).filter(|fetch| fetch.is_here())?;
        Some(Waiter::new(fetch, true))
    }

    /// Joins the fetch of a block that is in flight or waits to be written to disk.
    pub fn join_running(&self, id: BlockId) -> Option<Waiter> {
        let in_flight = self.in_flight.lock();
        let fetch = in_flight.get(&id)?;
        Some(Waiter::new(fetch, fetch.is_here()))
    }

    /// Returns true if the block is in flight or waits to be written to disk.
    pub fn contains(&self, block: BlockId) -> bool {
        self.in_flight.lock().contains_key(&block)
    }

    /// Returns the other node that a block in flight waits for.
    pub fn awaited(&self, block: BlockId) -> Option<Awaited> {
        let fetch = self.in_flight.lock().get(&block).cloned();
        fetch.and_then(|fetch| fetch.state.lock().awaited)
    }

    /// Returns the number of reads that waited for a fetch started by another read.
    pub fn coalesced(&self) -> u64 {
        self.coalesced.load(Ordering::Relaxed)
    }

    /// Returns the number of blocks in flight.
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
    /// Returns true if all bytes of the block have arrived, on disk or not. For a waiter that joins now, the
    /// source of the block is this node.
    fn is_here(&self) -> bool {
        matches!(
            self.state.lock().phase,
            FetchPhase::Received | FetchPhase::Stored(_)
        )
    }
}

/// The producing end of a fetch. If it is dropped early, the fetch fails with `Abandoned`.
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

    /// Returns true if any reader waits for the block.
    pub fn has_waiters(&self) -> bool {
        self.fetch.waiters.load(Ordering::Acquire) > 0
    }

    /// Holds shares of the memory window for the bytes to come until they are dropped.
    pub fn hold_memory(&self, shares: Vec<OwnedSemaphorePermit>) {
        self.fetch.state.lock().memory = shares;
    }

    /// Sets the transfer that fetches the block. It moves to the client class when a client joins.
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

    /// Sets the sender of the bytes to come. Waiters may then request further blocks.
    pub fn set_sender(&self, sender: Sender) {
        self.change(|state| state.sender = Some(sender));
    }

    /// Records that the sender had to fetch the block, too.
    pub fn set_far(&self) {
        self.fetch.state.lock().is_far = true;
    }

    /// Returns the source of the most recent bytes.
    pub fn source(&self) -> Source {
        self.fetch.state.lock().source
    }

    /// Records that the block waits for another node, until the returned value is dropped.
    pub fn awaits(&self, awaited: Awaited) -> PeerWait<'_> {
        self.fetch.state.lock().awaited = Some(awaited);
        PeerWait(&self.fetch)
    }

    /// Returns the number of bytes that have arrived.
    pub fn received(&self) -> u64 {
        self.fetch.state.lock().received
    }

    /// Passes bytes to the waiters. In total they must be exactly the block, from the span's first byte to
    /// the one before it.
    ///
    /// # Panics
    ///
    /// Panics if more bytes arrive than the block has.
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

    /// Returns the whole block, in order, to be written to disk.
    pub fn pieces(&self) -> Vec<Bytes> {
        self.pieces_with(None)
    }

    /// Returns the pieces of the block as they will be once `last` has been pushed.
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

    /// Completes the fetch of a block whose bytes have all arrived. If it is now in the store, its mapping
    /// replaces the pieces. Otherwise current waiters read it from memory, and no new ones join.
    ///
    /// # Panics
    ///
    /// Panics if bytes are missing, or the mapping has another length than the block.
    pub fn complete(self, stored: Option<Bytes>) {
        let len = self.fetch.span.len;
        assert_eq!(self.received(), len, "only a complete block serves its waiters");
        let Some(mapped) = stored else { return };
        assert_eq!(mapped.len() as u64, len, "a stored block is whole");
        self.change(|state| {
            state.pieces = Vec::new();
            state.memory = Vec::new();
            state.phase = FetchPhase::Stored(mapped);
        });
    }

    /// Fails the fetch for all waiters: no more bytes will come.
    pub fn fail(self, error: FetchError) {
        self.end_with(error);
    }

    fn end_with(&self, error: FetchError) {
        self.change(|state| {
            state.pieces = Vec::new();
            state.memory = Vec::new();
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

/// Marks a block as waiting for another node, which must not wait for this one.
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
