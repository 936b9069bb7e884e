//! The reading end of a fetch.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use shoal_net::link::{Purpose, QuotaRate};
use shoal_policy::{BlockId, Source};

use super::{BlockSpan, Fetch, FetchError, FetchPhase, Sender};

/// The reading end of a fetch: one reader of a block, as its bytes arrive.
#[derive(Debug)]
pub struct Waiter {
    fetch: Arc<Fetch>,
    /// True if its reader started the fetch. A failure of the fetch is then final for the reader.
    pub led: bool,
    /// True if the whole block had arrived when this waiter joined.
    found_here: bool,
    /// Next byte to read, relative to the start of the block.
    offset: u64,
    /// Index of a piece that starts at or before that byte, and the number of bytes that arrived before that
    /// piece.
    piece: (usize, u64),
}

impl Waiter {
    pub(super) fn new(fetch: &Arc<Fetch>, found_here: bool) -> Self {
        fetch.waiters.fetch_add(1, Ordering::AcqRel);
        fetch.waiters_changed.notify_one();
        Self {
            fetch: Arc::clone(fetch),
            led: false,
            found_here,
            offset: 0,
            piece: (0, 0),
        }
    }

    /// Returns the block being read.
    pub fn block(&self) -> BlockId {
        self.fetch.span.id
    }

    /// Marks the fetch as awaited by a read for this purpose, which is charged to quotas with these rates.
    pub fn hurry_for(&self, purpose: &Purpose, quotas: &[Arc<QuotaRate>]) {
        let mut state = self.fetch.state.lock();
        match &state.transfer {
            Some(transfer) => transfer.hurry_for(purpose, quotas),
            None => state.is_hurried |= purpose.is_client(),
        }
    }

    /// Continues reading at this byte of the block.
    pub fn seek(&mut self, offset: u64) {
        debug_assert!(offset <= self.fetch.span.len, "a reader wants bytes of its block");
        self.offset = offset;
        self.piece = (0, 0);
    }

    /// Returns the current source of bytes: this node, if it had the whole block before this waiter joined.
    pub fn source(&self) -> Source {
        if self.found_here {
            Source::Local
        } else {
            self.fetch.state.lock().source
        }
    }

    /// Returns true if the block was near when it was requested: on this node, on a peer, or in a tier.
    pub fn was_near(&self) -> bool {
        if self.found_here {
            return true;
        }
        let state = self.fetch.state.lock();
        state.source != Source::Lake && !state.is_far
    }

    /// Returns the sender of the block, if known.
    pub fn sender(&self) -> Option<Sender> {
        if self.found_here {
            Some(Sender::Other)
        } else {
            self.fetch.state.lock().sender
        }
    }

    /// Returns the next bytes of the block, as many as one piece has; `None` at its end.
    ///
    /// # Errors
    ///
    /// Fails with the error of the fetch.
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
        state.wake_later(cx);
        Poll::Pending
    }

    /// Waits until the fetch has ended. Returns true if the store then has the block.
    ///
    /// # Errors
    ///
    /// Fails with the error of the fetch.
    pub async fn is_stored(&self) -> Result<bool, FetchError> {
        poll_fn(|cx| {
            let mut state = self.fetch.state.lock();
            match &state.phase {
                FetchPhase::Failed(error) => return Poll::Ready(Err(error.clone())),
                FetchPhase::Stored(_) => return Poll::Ready(Ok(true)),
                FetchPhase::Received if state.is_over => return Poll::Ready(Ok(false)),
                FetchPhase::Receiving | FetchPhase::Received => {}
            }
            state.wake_later(cx);
            Poll::Pending
        })
        .await
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
        let before = self.fetch.waiters.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "a waiter leaves once");
        self.fetch.waiters_changed.notify_one();
    }
}
