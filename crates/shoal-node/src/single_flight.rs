//! One fetch per block, however many readers wait for it.
//!
//! The first reader that misses a block starts a fetch, which runs in a separate task. The task owns the
//! [`Leader`] and pushes the bytes as they arrive; each reader owns a [`Waiter`] and reads them from there. A
//! waiter that leaves does not disturb the others; when the last one leaves, the leader is notified. When the
//! block is on disk the fetch is complete: the mapped file replaces the pieces in memory, so that a slow
//! waiter holds page cache and not heap.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::StatusCode;
use parking_lot::Mutex;
use shoal_policy::{BlockId, Layer, NodeId, Source};
use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::endpoint::SharedError;

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
    /// What sends them, once the leader knows.
    sender: Option<Sender>,
    /// The other node that the leader waits for.
    awaited: Option<Awaited>,
    phase: FetchPhase,
    wakers: Vec<Waker>,
    /// The share of the memory window that the pieces take; given back when they are dropped.
    window: Option<OwnedSemaphorePermit>,
}

/// What sends a block.
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
                awaited: None,
                phase: FetchPhase::Receiving,
                wakers: Vec::new(),
                window: None,
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
    pub fn hold_memory(&self, window: OwnedSemaphorePermit) {
        self.fetch.state.lock().window = Some(window);
    }

    /// Sets the source of the bytes to come.
    pub fn set_source(&self, source: Source) {
        self.fetch.state.lock().source = source;
    }

    /// Notes what sends the bytes to come. Waiters may ask for further blocks then.
    pub fn set_sender(&self, sender: Sender) {
        self.change(|state| state.sender = Some(sender));
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
            state.window = None;
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
            state.window = None;
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
    }
}

/// The reading end of a fetch: one reader of a block, as its bytes arrive.
#[derive(Debug)]
pub struct Waiter {
    fetch: Arc<Fetch>,
    /// Whether the whole block was here when this waiter joined.
    found_here: bool,
    /// The next byte to read, counted from the start of the block.
    offset: u64,
    /// A piece that arrived no later than that byte, and the number of bytes that had arrived before that
    /// piece.
    piece: (usize, u64),
}

impl Waiter {
    fn new(fetch: &Arc<Fetch>, found_here: bool) -> Self {
        fetch.waiters.fetch_add(1, Ordering::AcqRel);
        fetch.waiters_changed.notify_one();
        Self {
            fetch: Arc::clone(fetch),
            found_here,
            offset: 0,
            piece: (0, 0),
        }
    }

    /// The block that is read.
    pub fn block(&self) -> BlockId {
        self.fetch.span.id
    }

    /// Continues reading at this byte of the block.
    pub fn seek(&mut self, offset: u64) {
        self.offset = offset;
        self.piece = (0, 0);
    }

    /// The source of the bytes that arrive now: this node, if it had the whole block before this waiter
    /// joined.
    pub fn source(&self) -> Source {
        if self.found_here {
            Source::Local
        } else {
            self.fetch.state.lock().source
        }
    }

    /// What sends the block, if that is known.
    pub fn sender(&self) -> Option<Sender> {
        if self.found_here {
            Some(Sender::Other)
        } else {
            self.fetch.state.lock().sender
        }
    }

    /// The next bytes of the block, as many as are at hand in one piece; `None` at its end.
    ///
    /// # Errors
    ///
    /// Fails as the fetch has failed.
    pub fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, FetchError>>> {
        if self.offset == self.fetch.span.len {
            return Poll::Ready(None);
        }
        let fetch = Arc::clone(&self.fetch);
        let mut state = fetch.state.lock();
        let piece = match &state.phase {
            FetchPhase::Failed(error) => return Poll::Ready(Some(Err(error.clone()))),
            FetchPhase::Stored(block) => Some(block.slice(self.offset as usize..)),
            FetchPhase::Receiving | FetchPhase::Received => self.find(&state.pieces),
        };
        if let Some(piece) = piece {
            self.offset += piece.len() as u64;
            return Poll::Ready(Some(Ok(piece)));
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            state.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    fn find(&mut self, pieces: &[Bytes]) -> Option<Bytes> {
        let BlockSpan { len, first, .. } = self.fetch.span;
        let arrives = (self.offset + len - first) % len;
        let (mut index, mut start) = if arrives < self.piece.1 {
            (0, 0)
        } else {
            self.piece
        };
        let found = loop {
            let piece = pieces.get(index)?;
            let end = start + piece.len() as u64;
            if arrives < end {
                break piece.slice((arrives - start) as usize..);
            }
            (index, start) = (index + 1, end);
        };
        self.piece = (index, start);
        Some(found)
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.fetch.waiters.fetch_sub(1, Ordering::AcqRel);
        self.fetch.waiters_changed.notify_one();
    }
}
