//! Copies the bytes of a write while they pass. They are cut into blocks, which stay in memory if there is
//! plenty of it for all of them, and otherwise go to disk as they come.
//!
//! The bytes are not known to be right, and not known to stay: no reader can find any of them until the lake
//! has committed the write and the blocks get their names.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use shoal_base::piece_buffer::PieceBuffer;
use shoal_policy::admission::Refusal;
use shoal_store::{Draft, Store};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinHandle;

use super::Uncached;
use crate::fetch::Fetcher;

/// A copy of one write's bytes; clones share it.
#[derive(Clone)]
pub struct BodyCopy(Arc<Mutex<State>>);

struct State {
    store: Arc<Store>,
    fetcher: Arc<Fetcher>,
    size_bytes: u64,
    block_bytes: u64,
    received_bytes: u64,
    /// The blocks whose bytes are on disk, or soon will be.
    drafts: Drafts,
    /// The blocks behind those, all complete except the last one.
    in_memory: Vec<InMemory>,
    /// Why copying has stopped.
    lost: Option<Uncached>,
}

/// A block on its way to the disk, in memory until then.
pub(super) type Drafting = JoinHandle<Result<Draft, Refusal>>;

/// The first blocks of a write, if they had to leave memory.
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

/// A block in memory, whole or growing.
pub(super) struct InMemory {
    pieces: PieceBuffer,
    missing_bytes: u64,
    room: OwnedSemaphorePermit,
}

/// All bytes that were written, in order.
pub(super) struct CopiedBody {
    pub(super) size_bytes: u64,
    pub(super) drafts: Drafts,
    /// The blocks behind those.
    pub(super) in_memory: Vec<InMemory>,
}

impl BodyCopy {
    /// Gathers an object of `size_bytes` in blocks of `block_bytes`.
    pub(super) fn new(store: Arc<Store>, fetcher: Arc<Fetcher>, size_bytes: u64, block_bytes: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            store,
            fetcher,
            size_bytes,
            block_bytes,
            received_bytes: 0,
            drafts: Drafts::default(),
            in_memory: Vec::new(),
            lost: None,
        })))
    }

    /// Takes the next bytes. Never waits: if there is no room for them, the whole copy is given up.
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

    /// Returns the copied bytes, if they are the complete object.
    pub(super) fn finish(&self) -> Result<CopiedBody, Uncached> {
        let mut state = self.0.lock();
        if let Some(why) = state.lost {
            return Err(why);
        }
        if state.received_bytes != state.size_bytes {
            return Err(Uncached::Incomplete);
        }
        Ok(CopiedBody {
            size_bytes: state.size_bytes,
            drafts: std::mem::take(&mut state.drafts),
            in_memory: std::mem::take(&mut state.in_memory),
        })
    }
}

impl fmt::Debug for BodyCopy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyCopy").finish_non_exhaustive()
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

    /// The block that the next bytes belong to.
    fn growing(&mut self) -> Result<&mut InMemory, Uncached> {
        let is_growing = self.in_memory.last().is_some_and(|last| last.missing_bytes > 0);
        if !is_growing {
            // An object that will not fit begins to move to disk at once, which leaves it more time.
            if self
                .fetcher
                .memory()
                .is_filling(self.size_bytes - self.received_bytes)
            {
                self.set_aside();
            }
            let next = self.begin_block()?;
            self.in_memory.push(next);
        }
        Ok(self.in_memory.last_mut().expect("a block was just begun"))
    }

    fn begin_block(&self) -> Result<InMemory, Uncached> {
        let missing_bytes = self.block_bytes.min(self.size_bytes - self.received_bytes);
        if missing_bytes == 0 {
            return Err(Uncached::Incomplete);
        }
        let room = self
            .fetcher
            .memory()
            .try_reserve_spare(missing_bytes)
            .ok_or(Uncached::NoMemory)?;
        Ok(InMemory {
            pieces: PieceBuffer::default(),
            missing_bytes,
            room,
        })
    }

    /// Sends the blocks to disk, which are all complete, and frees their memory when they are there.
    fn set_aside(&mut self) {
        for complete in self.in_memory.drain(..) {
            let store = Arc::clone(&self.store);
            let (pieces, room) = complete.into_pieces();
            self.drafts.0.push(tokio::spawn(async move {
                let draft = store.draft(pieces).await;
                drop(room);
                draft
            }));
        }
    }

    fn lose(&mut self, why: Uncached) {
        self.lost = Some(why);
        self.in_memory.clear();
        self.drafts = Drafts::default();
    }
}

impl InMemory {
    fn push(&mut self, piece: Bytes) {
        self.missing_bytes -= piece.len() as u64;
        self.pieces.push(piece);
    }

    /// The bytes, and the memory that they take.
    pub(super) fn into_pieces(self) -> (Vec<Bytes>, OwnedSemaphorePermit) {
        (self.pieces.into_vec(), self.room)
    }
}
