//! Copies the bytes of a write while they pass through the node. The copy is cut into blocks, which stay in
//! memory if there is plenty for all of them, and are otherwise written to disk as they fill.
//!
//! Until the lake has committed the write, the bytes may be wrong or may be discarded: no reader finds them
//! before the blocks get their names.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use shoal_base::piece_buffer::PieceBuffer;
use shoal_policy::admission::Refusal;
use shoal_policy::quotas::QuotaIds;
use shoal_store::Draft;
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;

use super::Uncached;
use crate::fetch::Fetcher;

/// A copy of one write's bytes. Clones share it.
#[derive(Clone)]
pub struct BodyCopy(Arc<Mutex<State>>);

struct State {
    fetcher: Arc<Fetcher>,
    received_bytes: u64,
    /// The bytes copied until now; the last of the blocks in memory may be incomplete.
    copied: CopiedBody,
    /// The reason why copying has stopped.
    lost: Option<Uncached>,
}

/// A block that is being written to disk, in memory until then.
pub(super) type Drafting = JoinHandle<Result<Draft, Refusal>>;

/// The first blocks of a write, if they did not stay in memory.
#[derive(Default)]
pub(super) struct Drafts(pub(super) Vec<Drafting>);

impl Drop for Drafts {
    fn drop(&mut self) {
        let drafts = std::mem::take(&mut self.0);
        // Dropping a draft deletes a file.
        if let (false, Ok(runtime)) = (drafts.is_empty(), tokio::runtime::Handle::try_current()) {
            runtime.spawn_blocking(move || drop(drafts));
        }
    }
}

/// A block in memory, complete or growing.
pub(super) struct InMemory {
    pieces: PieceBuffer,
    missing_bytes: u64,
    room: OwnedSemaphorePermit,
}

/// The bytes of the write, in order.
#[derive(Default)]
pub(crate) struct CopiedBody {
    /// The number of bytes that it has once it is complete.
    pub(super) size_bytes: u64,
    /// The quotas of its writer and of its name.
    pub(super) quotas: QuotaIds,
    /// The blocks that are on disk or being written there.
    pub(super) drafts: Drafts,
    /// The blocks after the drafts.
    pub(super) in_memory: Vec<InMemory>,
}

impl BodyCopy {
    /// Copies an object of `size_bytes` in blocks that count in these quotas.
    pub(super) fn new(fetcher: Arc<Fetcher>, size_bytes: u64, quotas: QuotaIds) -> Self {
        Self(Arc::new(Mutex::new(State {
            fetcher,
            received_bytes: 0,
            copied: CopiedBody {
                size_bytes,
                quotas,
                ..CopiedBody::default()
            },
            lost: None,
        })))
    }

    /// Adds the next bytes. Never waits: if there is no room for them, the whole copy is discarded.
    pub fn add(&self, data: Vec<Bytes>) {
        let mut state = self.0.lock();
        for piece in data {
            if state.lost.is_some() {
                return;
            }
            if let Err(why) = state.add(piece) {
                state.lose(why);
            }
        }
    }

    /// Returns the copied bytes if they are the complete object.
    pub(crate) fn finish(&self) -> Result<CopiedBody, Uncached> {
        let mut state = self.0.lock();
        if let Some(why) = state.lost {
            return Err(why);
        }
        if state.received_bytes != state.copied.size_bytes {
            state.lose(Uncached::Incomplete);
            return Err(Uncached::Incomplete);
        }
        let copied = std::mem::take(&mut state.copied);
        let blocks = copied.drafts.0.len() + copied.in_memory.len();
        assert_eq!(
            blocks as u64,
            copied.size_bytes.div_ceil(state.fetcher.parts.block_bytes),
            "a copy has every block of its object"
        );
        let is_whole = copied.in_memory.iter().all(|block| block.missing_bytes == 0);
        assert!(is_whole, "a complete copy has whole blocks");
        Ok(copied)
    }
}

impl State {
    fn add(&mut self, mut piece: Bytes) -> Result<(), Uncached> {
        while !piece.is_empty() {
            let growing = self.growing()?;
            let taken = growing.missing_bytes.min(piece.len() as u64);
            growing.push(piece.split_to(taken as usize));
            self.received_bytes += taken;
        }
        Ok(())
    }

    /// Returns the block that the next bytes belong to.
    fn growing(&mut self) -> Result<&mut InMemory, Uncached> {
        let last = self.copied.in_memory.last();
        let is_growing = last.is_some_and(|last| last.missing_bytes > 0);
        if !is_growing {
            // None are left once the copy was taken.
            let left_bytes = self.copied.size_bytes.saturating_sub(self.received_bytes);
            // An object that will not fit in memory starts to move to disk at once, which gives the disk more
            // time.
            if self.fetcher.memory.is_filling(left_bytes) {
                self.set_aside();
            }
            let next = self.begin_block(left_bytes)?;
            self.copied.in_memory.push(next);
        }
        let last = self.copied.in_memory.last_mut();
        Ok(last.expect("a block was just begun"))
    }

    fn begin_block(&self, left_bytes: u64) -> Result<InMemory, Uncached> {
        let missing_bytes = self.fetcher.parts.block_bytes.min(left_bytes);
        if missing_bytes == 0 {
            return Err(Uncached::Incomplete);
        }
        let room = self
            .fetcher
            .memory
            .try_reserve_spare(missing_bytes)
            .ok_or(Uncached::NoMemory)?;
        Ok(InMemory {
            pieces: PieceBuffer::default(),
            missing_bytes,
            room,
        })
    }

    /// Writes the complete blocks to disk, which frees their memory once they are there.
    fn set_aside(&mut self) {
        for complete in self.copied.in_memory.drain(..) {
            let store = Arc::clone(&self.fetcher.parts.store);
            let (pieces, room) = complete.into_pieces();
            self.copied.drafts.0.push(tokio::spawn(async move {
                let draft = store.publisher.draft(pieces).await;
                drop(room);
                draft
            }));
        }
    }

    fn lose(&mut self, why: Uncached) {
        self.lost = Some(why);
        self.copied = CopiedBody::default();
    }
}

impl InMemory {
    fn push(&mut self, piece: Bytes) {
        self.missing_bytes -= piece.len() as u64;
        self.pieces.push(piece);
    }

    /// Returns the bytes, and the reservation of their memory.
    pub(super) fn into_pieces(self) -> (Vec<Bytes>, OwnedSemaphorePermit) {
        (self.pieces.into_vec(), self.room)
    }
}
