//! Streams the bytes of one response, block after block, in order, with a bounded window of blocks ahead.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use shoal_policy::{BlockId, Found, Source};
use shoal_s3::object::Version;
use shoal_s3::range::ByteRange;
use shoal_store::Store;

use crate::fetch::{FetchVia, Fetcher, JoinedFetch, StreamHandle};
use crate::read_context::ReadContext;
use crate::single_flight::{FetchError, Sender, Waiter};

/// The number of retries for a block whose fetch failed under another reader, or was abandoned by it.
const TRIES: u8 = 3;

/// The number of blocks of one reader that one node sends at a time: one that is read and one that comes
/// meanwhile. More would share that node's link and come late and together: the reader would wait for all of
/// them, and then its own link would be busy while that one rests.
const FROM_ONE_PEER: usize = 2;

/// Streams a range of one version; every byte comes from that version or the stream ends in an error.
pub struct BlockStream {
    reader: Arc<BlockReader>,
    /// The rest of the range, for which no slot has been opened.
    planned: ByteRange,
    slots: VecDeque<BlockSlot>,
    window: ReadAheadWindow,
    first: Option<Bytes>,
    sent: ReadTally,
    /// Keeps the response that opened the object going while this stream lasts.
    stream_handle: Option<StreamHandle>,
}

/// How many blocks are requested ahead. The number doubles with each block read, up to a bound, so that a
/// reader that asks to the end and goes away after a few KiB (as S3A does) costs one block.
#[derive(Clone, Copy, Debug)]
pub struct ReadAheadWindow {
    /// The current maximum of blocks in slots.
    pub now: usize,
    /// The bound of `now`.
    pub max: usize,
}

/// Counts of a response until now: bytes by their source, and blocks that were near or far.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadTally {
    bytes: [u64; 4],
    near: u32,
    far: u32,
}

impl ReadTally {
    /// The bytes sent until now that came from `source`.
    pub fn bytes(self, source: Source) -> u64 {
        self.bytes[source as usize]
    }

    /// Whether all, some or none of the blocks that were sent from were near, and whether they were several.
    /// `None` if there was none.
    pub fn found(self) -> Option<(Found, bool)> {
        let found = match (self.near, self.far) {
            (0, 0) => return None,
            (_, 0) => Found::Complete,
            (0, _) => Found::Nothing,
            (_, _) => Found::Partial,
        };
        Some((found, self.near + self.far > 1))
    }

    fn add(&mut self, source: Source, bytes: usize) {
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

/// Opens blocks of one version, on behalf of one caller.
pub struct BlockReader {
    /// Blocks on this node's disk.
    pub store: Arc<Store>,
    /// Blocks at the lake.
    pub fetcher: Arc<Fetcher>,
    /// The pinned version.
    pub version: Arc<Version>,
    /// The context of the read, for requests to the lake.
    pub context: Arc<ReadContext>,
    /// How blocks that are not here are fetched.
    pub plan: FetchPlan,
}

/// How blocks that are not here are fetched.
#[derive(Clone, Debug)]
pub enum FetchPlan {
    /// Not at all: only blocks that this node holds are given, on disk or waiting for it.
    None,
    /// Not by this reader: blocks that this node holds are given, and those that it fetches already.
    Join,
    /// All in one way.
    All(FetchVia),
}

impl FetchPlan {
    fn via(&self) -> Option<&FetchVia> {
        match self {
            Self::None | Self::Join => None,
            Self::All(via) => Some(via),
        }
    }
}

/// One block's share of the response.
struct BlockSlot {
    index: u32,
    /// The bytes of the block that remain to be sent, counted from its start.
    wanted: ByteRange,
    tries: u8,
    state: BlockState,
    /// The sender that the fetch asks first, if it is known before the fetch begins.
    sender: Option<Sender>,
    /// Whether the block has been counted as near or not.
    is_counted: bool,
}

enum BlockState {
    Resident(Bytes),
    Opening(Pin<Box<dyn Future<Output = OpenedBlock> + Send>>),
    Fetching(JoinedFetch),
    /// The block was here when its slot was planned, and is no longer.
    NotHeld,
}

impl BlockState {
    fn fetching(mut joined: JoinedFetch, wanted: ByteRange) -> Self {
        joined.waiter.seek(wanted.start);
        Self::Fetching(joined)
    }
}

enum OpenedBlock {
    Resident(Bytes),
    Fetching(JoinedFetch),
    NotHeld,
}

impl BlockReader {
    /// Whether the block is used elsewhere: another node asks for what this one has, and counts the use.
    fn is_used_elsewhere(&self, id: BlockId) -> bool {
        let block_bytes = self.version.block_len(id.index);
        matches!(self.plan, FetchPlan::None | FetchPlan::Join)
            && self.fetcher.counts_uses_by_reader(block_bytes)
    }

    /// The block, if its bytes can be had without waiting for the disk.
    fn resident(&self, id: BlockId) -> Option<Bytes> {
        if self.is_used_elsewhere(id) {
            self.store.peek_resident(id)
        } else {
            self.store.get_resident(id)
        }
    }

    /// The block, read from the disk.
    async fn load(&self, id: BlockId) -> Option<Bytes> {
        if self.is_used_elsewhere(id) {
            self.store.peek(id).await
        } else {
            self.store.load(id).await
        }
    }

    /// Opens the block on this node's disk, or joins its fetch.
    async fn open(self: Arc<Self>, index: u32) -> OpenedBlock {
        let id = self.version.block(index);
        loop {
            // Checked first: a block that no longer waits for the disk is on it.
            let running = match self.plan {
                FetchPlan::None => self.fetcher.join_whole(id),
                FetchPlan::Join => self.fetcher.join_running(id, &self.context),
                FetchPlan::All(_) => None,
            };
            if let Some(running) = running {
                return OpenedBlock::Fetching(running);
            }
            if self.store.contains(id)
                && let Some(block) = self.load(id).await
            {
                self.fetcher.hit(&self.version, index);
                return OpenedBlock::Resident(block);
            }
            let Some(via) = self.plan.via() else {
                return OpenedBlock::NotHeld;
            };
            if let Some(joined) = self
                .fetcher
                .join(&self.version, index, &self.context, via.clone())
            {
                return OpenedBlock::Fetching(joined);
            }
        }
    }
}

impl BlockStream {
    /// Plans the stream of `range`; nothing is fetched before the first poll.
    pub fn new(
        reader: Arc<BlockReader>,
        range: ByteRange,
        window: ReadAheadWindow,
        stream_handle: Option<StreamHandle>,
    ) -> Self {
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

    /// Waits until the first bytes are at hand, so that an error before them can still become a status.
    ///
    /// # Errors
    ///
    /// Fails if the block with the first bytes cannot be read.
    pub async fn first_piece(&mut self) -> Result<(), FetchError> {
        self.first = poll_fn(|cx| self.poll_piece(cx)).await.transpose()?;
        Ok(())
    }

    /// Counts of the bytes and blocks that were given until now.
    pub fn tally(&self) -> ReadTally {
        self.sent
    }

    /// The next bytes; `None` at the end of the range.
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
            slot.wanted.start += piece.len() as u64;
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

    /// Plans slots up to the window, and polls those behind the front, so that their fetches start.
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

    /// Plans the next block's share, unless enough is on its way from the node that has it.
    fn plan_slot(&mut self) -> Option<BlockSlot> {
        let version = &self.reader.version;
        let index = (self.planned.start / version.block_bytes) as u32;
        let block_start = u64::from(index) * version.block_bytes;
        let end = self.planned.end.min(block_start + version.block_bytes);
        let wanted = ByteRange {
            start: self.planned.start - block_start,
            end: end - block_start,
        };
        let block = version.block(index);
        let first = self
            .stream_handle
            .as_mut()
            .and_then(|stream_handle| stream_handle.take_first(block));
        let (state, sender) = if let Some(joined) = first {
            (BlockState::fetching(joined, wanted), Some(Sender::Other))
        } else if let Some(block) = self.reader.resident(block) {
            self.reader.fetcher.hit(version, index);
            (BlockState::Resident(block), Some(Sender::Other))
        } else {
            let via = self.reader.plan.via();
            let sender = via.map_or(Some(Sender::Other), |via| {
                self.reader.fetcher.first_sender(version, index, via)
            });
            if is_busy(
                sender,
                self.slots
                    .iter()
                    .filter(|slot| slot.is_fetched())
                    .map(BlockSlot::sender),
            ) {
                return None;
            }
            let opening = Arc::clone(&self.reader).open(index);
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

    /// Whether the block was near when it was wanted, as far as that is known by its first byte.
    fn was_near(&self) -> bool {
        match &self.state {
            BlockState::Fetching(joined) => joined.waiter.was_near(),
            BlockState::Resident(_) | BlockState::Opening(_) | BlockState::NotHeld => true,
        }
    }

    /// Sender of the block, if it is known.
    fn sender(&self) -> Option<Sender> {
        match &self.state {
            BlockState::Fetching(joined) => joined.waiter.sender().or(self.sender),
            BlockState::Opening(_) | BlockState::Resident(_) | BlockState::NotHeld => self.sender,
        }
    }

    /// Takes over the result of an opening that has finished.
    fn advance(&mut self, cx: &mut Context<'_>) {
        let BlockState::Opening(opening) = &mut self.state else {
            return;
        };
        if let Poll::Ready(opened) = opening.as_mut().poll(cx) {
            self.state = match opened {
                OpenedBlock::Resident(block) => BlockState::Resident(block),
                OpenedBlock::Fetching(joined) => BlockState::fetching(joined, self.wanted),
                OpenedBlock::NotHeld => BlockState::NotHeld,
            };
        }
    }

    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        reader: &Arc<BlockReader>,
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
                BlockState::Fetching(joined) => {
                    let (own, source) = (joined.led, joined.waiter.source());
                    match ready!(poll_waiter(&mut joined.waiter, cx)) {
                        Ok(mut piece) => {
                            piece.truncate(piece.len().min(self.wanted.len() as usize));
                            return Poll::Ready(Ok((piece, source)));
                        }
                        Err(error) if self.tries > 0 && is_anothers(&error, own) => {
                            self.tries -= 1;
                            self.state = BlockState::Opening(Box::pin(Arc::clone(reader).open(self.index)));
                        }
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
            }
        }
    }
}

/// Whether a node already sends its maximum for one response at a time. `asked` are the senders of the blocks
/// before this one, as far as they are known. If the sender of this block is not known, it is taken to be the
/// last sender that is known: most often one node holds all blocks of an object.
fn is_busy(sender: Option<Sender>, asked: impl DoubleEndedIterator<Item = Option<Sender>> + Clone) -> bool {
    let likely = sender.or_else(|| asked.clone().rev().flatten().next());
    if likely == Some(Sender::Other) {
        return false;
    }
    let counts = |asked: &Option<Sender>| *asked == likely || (sender.is_none() && asked.is_none());
    asked.filter(counts).count() >= FROM_ONE_PEER
}

fn poll_waiter(waiter: &mut Waiter, cx: &mut Context<'_>) -> Poll<Result<Bytes, FetchError>> {
    waiter
        .poll_piece(cx)
        .map(|piece| piece.expect("a slot wants no byte past its block"))
}

/// Whether a failure can be retried because another reader's fetch failed: it may succeed on behalf of this
/// one.
fn is_anothers(error: &FetchError, own: bool) -> bool {
    match error {
        FetchError::Abandoned => true,
        FetchError::Changed | FetchError::Busy | FetchError::Mismatch => false,
        // A lake that was silent to one reader is silent to all, and this reader has waited as long.
        FetchError::Lake(trouble) if trouble.kind().is_timeout() => false,
        // The block was to be taken over from a node that no longer has it: a reader may fetch it from
        // elsewhere.
        FetchError::NotHeld | FetchError::Status(_) | FetchError::Lake(_) | FetchError::Tier(_) => !own,
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
