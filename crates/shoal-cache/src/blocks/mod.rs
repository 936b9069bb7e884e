//! Streams the bytes of one response, block by block and in order, with a bounded read-ahead.

mod reading;

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use shoal_policy::{BlockId, Found, Source};
use shoal_s3::object::Version;
use shoal_s3::range::ByteRange;
use shoal_store::Store;

pub use self::reading::{Reading, cached};

use crate::fetch::read_context::ReadContext;
use crate::fetch::{Fetcher, StreamHandle};
use crate::nodes::obtain::Obtain;
use crate::single_flight::{FetchError, Sender, Waiter};

/// Retries of a block whose fetch, started by another reader, failed or was abandoned.
const TRIES: u8 = 3;

/// Blocks that one peer sends to one reader at a time: one being read and one arriving. With more, the blocks
/// would share the peer's link and all arrive late: the reader would wait for every one of them and then
/// leave that link idle.
const FROM_ONE_PEER: usize = 2;

/// Streams a range of one version; every byte comes from that version or the stream ends in an error.
pub struct BlockStream {
    reader: BlockReader,
    /// The end of the range, for which no slot is open yet.
    planned: ByteRange,
    slots: VecDeque<BlockSlot>,
    window: ReadAheadWindow,
    first: Option<Bytes>,
    /// The bytes and blocks sent so far.
    pub sent: ReadTally,
    /// Keeps the response that opened the object running while this stream exists.
    stream_handle: Option<StreamHandle>,
}

/// Number of blocks requested ahead. It doubles with each block read, up to `max`, so that an open-ended read
/// that stops after a few KiB (as S3A's do) costs one block.
#[derive(Clone, Copy, Debug)]
pub struct ReadAheadWindow {
    /// Current maximum of open slots.
    pub now: usize,
    /// Upper bound of `now`.
    pub max: usize,
}

/// Bytes sent by one response so far, by source, and its blocks that were near or far.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadTally {
    bytes: [u64; 4],
    near: u32,
    far: u32,
}

impl ReadTally {
    /// Returns the bytes sent so far that came from `source`.
    pub fn bytes(self, source: Source) -> u64 {
        self.bytes[source as usize]
    }

    /// Returns how many of the blocks sent were near (all, some or none), and true if there were several
    /// blocks. Returns `None` if no block was sent.
    pub fn found(self) -> Option<(Found, bool)> {
        let found = match (self.near, self.far) {
            (0, 0) => return None,
            (_, 0) => Found::Complete,
            (0, _) => Found::Nothing,
            (_, _) => Found::Partial,
        };
        Some((found, self.near + self.far > 1))
    }

    pub(crate) fn add(&mut self, source: Source, bytes: usize) {
        self.bytes[source as usize] += bytes as u64;
    }

    fn count(&mut self, was_near: bool) {
        if was_near {
            self.near += 1;
        } else {
            self.far += 1;
        }
    }
}

/// Opens blocks of one version on behalf of one caller.
#[derive(Clone)]
pub struct BlockReader {
    /// Fetches blocks that are not on the disk of its store.
    pub fetcher: Arc<Fetcher>,
    /// The pinned version.
    pub version: Arc<Version>,
    /// The context of the read, for requests to the lake.
    pub context: Arc<ReadContext>,
    /// How missing blocks are obtained.
    pub obtain: Obtain,
}

/// The part of a response that one block has.
struct BlockShare {
    index: u32,
    /// Relative to the start of the block.
    wanted: ByteRange,
    /// One past its last byte, relative to the start of the object.
    end: u64,
}

/// One block's share of the response.
struct BlockSlot {
    index: u32,
    /// Bytes of the block that remain to be sent, relative to the start of the block.
    wanted: ByteRange,
    tries: u8,
    state: BlockState,
    /// Node that the fetch asks first, if known before the fetch begins.
    sender: Option<Sender>,
    /// True once the block has been counted as near or far.
    is_counted: bool,
}

enum BlockState {
    Resident(Bytes),
    /// Being opened; the future returns another state.
    Opening(Pin<Box<dyn Future<Output = Self> + Send>>),
    Fetching(Waiter),
    /// The block was cached when its slot was planned, and has been evicted since.
    NotHeld,
}

impl BlockState {
    /// Returns the same state, in which bytes are read from the beginning of `wanted`.
    fn at(mut self, wanted: ByteRange) -> Self {
        if let Self::Fetching(waiter) = &mut self {
            waiter.seek(wanted.start);
        }
        self
    }
}

impl BlockReader {
    /// Returns false if this read serves another node, which counts the use itself.
    fn is_used_here(&self, id: BlockId) -> bool {
        let block_bytes = self.version.block_len(id.index);
        !self.obtain.is_passive() || !self.fetcher.counts_uses_by_reader(block_bytes)
    }

    fn store(&self) -> &Store {
        &self.fetcher.parts.store
    }

    /// Returns the block if it is in memory, which counts as a hit.
    fn resident(&self, index: u32) -> Option<Bytes> {
        let id = self.version.block(index);
        let block = self.store().resident(id, self.is_used_here(id))?;
        Some(self.hit(index, block))
    }

    /// Counts bytes of a block for the jobs of a plan.
    fn note_sent(&self, index: u32, bytes: usize) {
        if self.context.is_of_client() {
            let reads = &self.fetcher.parts.job_reads;
            reads.sent(&self.version, index, bytes, || self.context.job());
        }
    }

    /// Counts a hit of a block that was found on the disk.
    fn hit(&self, index: u32, block: Bytes) -> Bytes {
        assert_eq!(
            block.len() as u64,
            self.version.block_len(index),
            "a stored block is whole"
        );
        self.fetcher.hit(&self.version, index, &self.context.purpose);
        block
    }

    /// Opens the block on this node's disk, or joins its fetch.
    async fn open(self, index: u32) -> BlockState {
        let id = self.version.block(index);
        loop {
            // Checked before the store: a block that leaves the in-flight table is on disk by then.
            let running = match self.obtain {
                Obtain::Locally => self.fetcher.parts.single_flight.join_whole(id),
                Obtain::Join => self.fetcher.join_running(id, &self.context),
                _ => None,
            };
            if let Some(running) = running {
                return BlockState::Fetching(running);
            }
            if self.store().contains(id)
                && let Some(block) = self.store().load(id, self.is_used_here(id)).await
            {
                return BlockState::Resident(self.hit(index, block));
            }
            if self.obtain.is_passive() {
                return BlockState::NotHeld;
            }
            let obtain = self.obtain.clone();
            if let Some(joined) = self.fetcher.join(&self.version, index, &self.context, obtain) {
                return BlockState::Fetching(joined);
            }
        }
    }
}

impl BlockStream {
    /// Creates the stream of `range`. Nothing is fetched before the first poll.
    pub fn new(
        reader: BlockReader,
        range: ByteRange,
        window: ReadAheadWindow,
        stream_handle: Option<StreamHandle>,
    ) -> Self {
        assert!(
            range.end <= reader.version.size_bytes,
            "a response lies within its version"
        );
        Self {
            reader,
            planned: range,
            slots: VecDeque::new(),
            window,
            first: None,
            sent: ReadTally::default(),
            stream_handle,
        }
    }

    /// Waits for the first bytes, so that an earlier error can still set the response status.
    ///
    /// # Errors
    ///
    /// Fails if the block with the first bytes cannot be read.
    pub async fn first_piece(&mut self) -> Result<(), FetchError> {
        if self.first.is_none() {
            self.first = poll_fn(|cx| self.poll_piece(cx)).await.transpose()?;
        }
        Ok(())
    }

    /// Takes the range at once if it lies in one block that is in memory, as most do. Returns true if it did.
    pub(crate) fn begin_in_memory(&mut self) -> bool {
        debug_assert!(self.first.is_none(), "a stream begins once");
        self.first = self.take_from_memory();
        self.first.is_some()
    }

    /// Returns the next bytes; `None` at the end of the range.
    ///
    /// # Errors
    ///
    /// Fails if a block cannot be read.
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, FetchError>>> {
        match self.first.take() {
            Some(piece) => Poll::Ready(Some(Ok(piece))),
            None => self.poll_piece(cx),
        }
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, FetchError>>> {
        loop {
            self.fill_window(cx);
            let Some(slot) = self.slots.front_mut() else {
                return Poll::Ready(None);
            };
            let (piece, source) = match ready!(slot.poll_piece(cx, &self.reader)) {
                Ok(piece) => piece,
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            if !slot.is_counted && !piece.is_empty() {
                slot.is_counted = true;
                self.sent.count(slot.was_near());
            }
            assert!(
                piece.len() as u64 <= slot.wanted.len(),
                "a response has no bytes past its range"
            );
            slot.wanted.start += piece.len() as u64;
            self.reader.note_sent(slot.index, piece.len());
            if slot.wanted.is_empty() {
                self.slots.pop_front();
                self.window.now = (self.window.now * 2).min(self.window.max);
            }
            self.sent.add(source, piece.len());
            if !piece.is_empty() {
                return Poll::Ready(Some(Ok(piece)));
            }
        }
    }

    /// Returns all of the range if it lies in one block that is in memory. Such a response needs no slot.
    fn take_from_memory(&mut self) -> Option<Bytes> {
        if self.planned.is_empty() || self.stream_handle.is_some() {
            return None;
        }
        let share = self.next_share();
        if share.end != self.planned.end {
            return None;
        }
        let mut block = self.reader.resident(share.index)?;
        block.truncate(share.wanted.end as usize);
        block.advance(share.wanted.start as usize);
        self.planned.start = share.end;
        self.sent.count(true);
        self.sent.add(Source::Local, block.len());
        self.reader.note_sent(share.index, block.len());
        Some(block)
    }

    /// Returns the first block of what is planned, and its share of it.
    fn next_share(&self) -> BlockShare {
        let version = &self.reader.version;
        let index = (self.planned.start / version.block_bytes) as u32;
        let block_start = u64::from(index) * version.block_bytes;
        let end = self.planned.end.min(block_start + version.block_bytes);
        let wanted = ByteRange::new(self.planned.start - block_start, end - block_start);
        debug_assert!(
            wanted.end <= version.block_len(index),
            "a share lies within its block"
        );
        BlockShare { index, wanted, end }
    }

    /// Opens slots up to the window, and polls all but the first, so that their fetches start.
    fn fill_window(&mut self, cx: &mut Context<'_>) {
        while self.slots.len() < self.window.now
            && !self.planned.is_empty()
            && let Some(slot) = self.plan_slot()
        {
            self.slots.push_back(slot);
        }
        for slot in &mut self.slots {
            slot.advance(cx);
        }
    }

    /// Opens a slot for the next block, unless its sender already sends the maximum.
    fn plan_slot(&mut self) -> Option<BlockSlot> {
        let version = &self.reader.version;
        let BlockShare { index, wanted, end } = self.next_share();
        let block = version.block(index);
        let first = self
            .stream_handle
            .as_mut()
            .and_then(|stream_handle| stream_handle.take_first(block));
        let (state, sender) = if let Some(joined) = first {
            (BlockState::Fetching(joined).at(wanted), Some(Sender::Other))
        } else if let Some(block) = self.reader.resident(index) {
            (BlockState::Resident(block), Some(Sender::Other))
        } else {
            let sender = self
                .reader
                .fetcher
                .first_sender(version, index, &self.reader.obtain);
            if is_busy(
                sender,
                self.slots
                    .iter()
                    .filter(|slot| slot.is_fetched())
                    .map(BlockSlot::sender),
            ) {
                return None;
            }
            let opening = self.reader.clone().open(index);
            (BlockState::Opening(Box::pin(opening)), sender)
        };
        self.planned.start = end;
        Some(BlockSlot {
            index,
            wanted,
            tries: TRIES,
            state,
            sender,
            is_counted: false,
        })
    }
}

impl BlockSlot {
    const fn is_fetched(&self) -> bool {
        matches!(self.state, BlockState::Fetching(_) | BlockState::Opening(_))
    }

    /// Returns true if the block was near, as far as is known when its first byte is sent.
    fn was_near(&self) -> bool {
        match &self.state {
            BlockState::Fetching(waiter) => waiter.was_near(),
            BlockState::Resident(_) | BlockState::Opening(_) | BlockState::NotHeld => true,
        }
    }

    /// Returns the sender of the block, if known.
    fn sender(&self) -> Option<Sender> {
        match &self.state {
            BlockState::Fetching(waiter) => waiter.sender().or(self.sender),
            BlockState::Opening(_) | BlockState::Resident(_) | BlockState::NotHeld => self.sender,
        }
    }

    /// Takes the result of an `Opening` that has finished.
    fn advance(&mut self, cx: &mut Context<'_>) {
        let BlockState::Opening(opening) = &mut self.state else {
            return;
        };
        if let Poll::Ready(opened) = opening.as_mut().poll(cx) {
            self.state = opened.at(self.wanted);
        }
    }

    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        reader: &BlockReader,
    ) -> Poll<Result<(Bytes, Source), FetchError>> {
        loop {
            self.advance(cx);
            match &mut self.state {
                BlockState::Resident(block) => {
                    let piece = block.slice(self.wanted.start as usize..self.wanted.end as usize);
                    return Poll::Ready(Ok((piece, Source::Local)));
                }
                BlockState::Opening(_) => return Poll::Pending,
                BlockState::NotHeld => return Poll::Ready(Err(FetchError::NotHeld)),
                BlockState::Fetching(waiter) => {
                    let (own, source) = (waiter.led, waiter.source());
                    let piece = ready!(waiter.poll_piece(cx));
                    match piece.expect("a slot wants no byte past its block") {
                        Ok(mut piece) => {
                            piece.truncate(piece.len().min(self.wanted.len() as usize));
                            return Poll::Ready(Ok((piece, source)));
                        }
                        Err(error) if self.tries > 0 && is_anothers(&error, own) => {
                            self.tries -= 1;
                            self.state = BlockState::Opening(Box::pin(reader.clone().open(self.index)));
                        }
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
            }
        }
    }
}

/// Returns true if a peer already sends its maximum for one response. `asked` lists the senders of the
/// preceding blocks, where known. An unknown `sender` is assumed to be the last known one, because usually
/// one node holds all blocks of an object.
fn is_busy(sender: Option<Sender>, asked: impl DoubleEndedIterator<Item = Option<Sender>> + Clone) -> bool {
    let likely = sender.or_else(|| asked.clone().rev().flatten().next());
    if likely == Some(Sender::Other) {
        return false;
    }
    let counts = |asked: &Option<Sender>| *asked == likely || (sender.is_none() && asked.is_none());
    asked.filter(counts).count() >= FROM_ONE_PEER
}

/// Returns true if the fetch failed for another reader and a retry may succeed for this one.
fn is_anothers(error: &FetchError, own: bool) -> bool {
    match error {
        FetchError::Abandoned => true,
        FetchError::Changed | FetchError::Busy | FetchError::Mismatch => false,
        // A lake that timed out for one reader times out for all, and this reader has waited as long.
        FetchError::Lake(trouble) if trouble.kind().is_timeout() => false,
        // The node that offered the block no longer has it; a reader can fetch it from elsewhere.
        FetchError::NotHeld | FetchError::Status(_) | FetchError::Lake(_) | FetchError::Kept(_) => !own,
    }
}

#[cfg(test)]
mod tests {
    use shoal_policy::NodeId;

    use super::{Sender, is_busy};

    #[test]
    fn a_node_brings_two_blocks_of_a_response_at_a_time_and_the_lake_any_number() {
        let (this, other) = (Some(Sender::Node(NodeId(1))), Some(Sender::Node(NodeId(2))));
        let lake = Some(Sender::Other);
        let asked = [this, lake, other, lake, lake];
        assert!(!is_busy(this, asked.into_iter()));
        assert!(!is_busy(lake, asked.into_iter()));
        assert!(is_busy(this, asked.into_iter().chain([this])));
        assert!(!is_busy(other, asked.into_iter().chain([this])));
    }

    #[test]
    fn a_block_whose_sender_is_to_be_found_out_is_taken_for_one_of_the_same_node() {
        let (this, other) = (Some(Sender::Node(NodeId(1))), Some(Sender::Node(NodeId(2))));
        let (lake, unknown) = (Some(Sender::Other), None);
        let is_busy = |asked: &[Option<Sender>]| is_busy(unknown, asked.iter().copied());
        assert!(!is_busy(&[]) && !is_busy(&[unknown]) && !is_busy(&[this]));
        assert!(is_busy(&[unknown, unknown]) && is_busy(&[this, unknown]) && is_busy(&[this, this]));
        assert!(
            !is_busy(&[this, this, other]),
            "the last block came from elsewhere"
        );
        assert!(!is_busy(&[lake, unknown, unknown]) && !is_busy(&[this, this, lake]));
    }
}
