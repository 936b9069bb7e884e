//! Streams the bytes of one response, block after block, in order, with a bounded window of blocks ahead.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use shoal_policy::{NodeId, Source};

use crate::blocks::placement::Placement;
use crate::fetch::{FetchVia, Fetcher, JoinedFetch, StreamHandle};
use crate::read_context::ReadContext;
use crate::s3::object::Version;
use crate::s3::range::ByteRange;
use crate::single_flight::{FetchError, Waiter};
use crate::store::Store;

/// The number of retries for a block whose fetch failed under another reader, or was abandoned by it.
const TRIES: u8 = 3;

/// The number of blocks of one reader that one node sends at a time: one that is read and one that comes
/// meanwhile. More would share that node's link and come late and together: the reader would wait for all of
/// them, and then its own link would be busy while that one rests.
const FROM_ONE_PEER: usize = 2;

/// Streams a range of one version; every byte comes from that version or the stream ends in an error.
pub struct BlockStream {
    shelf: Arc<Shelf>,
    /// The rest of the range, for which no slot has been opened.
    planned: ByteRange,
    slots: VecDeque<Slot>,
    window: Window,
    first: Option<Bytes>,
    tally: Tally,
    /// Keeps the opening response alive while this reader is there.
    stream_handle: Option<StreamHandle>,
}

/// How many blocks are requested ahead. The number doubles with each block read, up to a bound, so that a
/// reader that asks to the end and goes away after a few KiB (as S3A does) costs one block.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// The current maximum of blocks in slots.
    pub now: usize,
    /// The bound of `now`.
    pub max: usize,
}

/// The sources that the bytes of a response came from.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally([u64; 4]);

impl Tally {
    /// The bytes sent until now that came from `source`.
    pub fn bytes(self, source: Source) -> u64 {
        self.0[source as usize]
    }

    fn add(&mut self, source: Source, bytes: usize) {
        self.0[source as usize] += bytes as u64;
    }
}

/// Where blocks of one version are found, and the caller in whose name they are fetched.
pub struct Shelf {
    /// Blocks on this node's disk.
    pub store: Arc<Store>,
    /// Blocks at the lake.
    pub fetcher: Arc<Fetcher>,
    /// The pinned version.
    pub version: Arc<Version>,
    /// The caller that asks the lake.
    pub context: Arc<ReadContext>,
    /// How blocks that are not here are fetched.
    pub plan: FetchPlan,
}

/// How blocks that are not here are fetched.
#[derive(Clone, Debug)]
pub enum FetchPlan {
    /// Not at all: only blocks that this node holds are given, on disk or waiting for it.
    None,
    /// All in one way.
    All(FetchVia),
    /// Each from the node that holds it, or not at all: the lake does not have them yet.
    Placed(Arc<Placement>),
}

impl FetchPlan {
    fn to(&self, index: u32) -> Option<FetchVia> {
        match self {
            Self::None => None,
            Self::All(way) => Some(*way),
            Self::Placed(placement) => placement.holder(index).map(FetchVia::Handover),
        }
    }
}

/// One block's share of the response.
struct Slot {
    index: u32,
    /// The bytes of the block that remain to be sent, counted from its start.
    wanted: ByteRange,
    tries: u8,
    state: SlotState,
    /// The node that the fetch asks first.
    peer: Option<NodeId>,
}

enum SlotState {
    Resident(Bytes),
    Boarding(Pin<Box<dyn Future<Output = Found> + Send>>),
    Aboard(JoinedFetch),
    /// The block was here when the reader asked for it, and is no longer.
    Nowhere,
}

impl SlotState {
    fn aboard(mut boarded: JoinedFetch, wanted: ByteRange) -> Self {
        boarded.waiter.seek(wanted.start);
        Self::Aboard(boarded)
    }
}

enum Found {
    Resident(Bytes),
    Aboard(JoinedFetch),
    Nowhere,
}

impl Shelf {
    /// Finds the block on this node's disk, or takes a seat in its flight.
    async fn find(self: Arc<Self>, index: u32) -> Found {
        let id = self.version.block(index);
        loop {
            // Checked first: a block that no longer waits for the disk is on it.
            if self.plan.to(index).is_none()
                && let Some(waiting) = self.fetcher.join_whole(id)
            {
                return Found::Aboard(waiting);
            }
            if self.store.contains(id)
                && let Some(block) = self.store.load(id).await
            {
                self.fetcher.hit(&self.version, index);
                return Found::Resident(block);
            }
            let Some(way) = self.plan.to(index) else {
                return Found::Nowhere;
            };
            if let Some(boarded) = self.fetcher.join(&self.version, index, &self.context, way) {
                return Found::Aboard(boarded);
            }
        }
    }
}

impl BlockStream {
    /// Plans the stream of `range`; nothing is fetched before the first poll.
    pub fn new(
        shelf: Arc<Shelf>,
        range: ByteRange,
        window: Window,
        stream_handle: Option<StreamHandle>,
    ) -> Self {
        Self {
            shelf,
            planned: range,
            slots: VecDeque::new(),
            window,
            first: None,
            tally: Tally::default(),
            stream_handle,
        }
    }

    /// Waits until the first bytes are at hand, so that an error before them can still become a status.
    pub async fn first_piece(&mut self) -> Result<(), FetchError> {
        self.first = poll_fn(|cx| self.poll_piece(cx)).await.transpose()?;
        Ok(())
    }

    /// The bytes given until now, by source.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// The next bytes; `None` at the end of the range.
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
            let (piece, source) = match ready!(slot.poll_piece(cx, &self.shelf)) {
                Ok(piece) => piece,
                Err(error) => return Poll::Ready(Some(Err(error))),
            };
            slot.wanted.start += piece.len() as u64;
            if slot.wanted.is_empty() {
                self.slots.pop_front();
                self.window.now = (self.window.now * 2).min(self.window.max);
            }
            self.tally.add(source, piece.len());
            if !piece.is_empty() {
                return Poll::Ready(Some(Ok(piece)));
            }
        }
    }

    /// Opens slots up to the window, and lets those behind the front start their fetch.
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
    fn plan_slot(&mut self) -> Option<Slot> {
        let version = &self.shelf.version;
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
        let (state, peer) = if let Some(boarded) = first {
            (SlotState::aboard(boarded, wanted), None)
        } else if let Some(block) = self.shelf.store.get_resident(block) {
            self.shelf.fetcher.hit(version, index);
            (SlotState::Resident(block), None)
        } else {
            let way = self.shelf.plan.to(index);
            let peer = way.and_then(|way| self.shelf.fetcher.first_peer(block, way));
            if is_busy(peer, self.slots.iter().map(|slot| slot.peer)) {
                return None;
            }
            let search = Arc::clone(&self.shelf).find(index);
            (SlotState::Boarding(Box::pin(search)), peer)
        };
        self.planned.start = end;
        Some(Slot {
            index,
            wanted,
            tries: TRIES,
            state,
            peer,
        })
    }
}

impl Slot {
    /// Turns a finished search into the state that it found.
    fn advance(&mut self, cx: &mut Context<'_>) {
        let SlotState::Boarding(search) = &mut self.state else {
            return;
        };
        if let Poll::Ready(found) = search.as_mut().poll(cx) {
            self.state = match found {
                Found::Resident(block) => SlotState::Resident(block),
                Found::Aboard(boarded) => SlotState::aboard(boarded, self.wanted),
                Found::Nowhere => SlotState::Nowhere,
            };
        }
    }

    fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        shelf: &Arc<Shelf>,
    ) -> Poll<Result<(Bytes, Source), FetchError>> {
        loop {
            self.advance(cx);
            match &mut self.state {
                SlotState::Resident(block) => {
                    let piece = block.slice(self.wanted.start as usize..self.wanted.end as usize);
                    return Poll::Ready(Ok((piece, Source::Local)));
                }
                SlotState::Boarding(_) => return Poll::Pending,
                SlotState::Nowhere => return Poll::Ready(Err(FetchError::NotHeld)),
                SlotState::Aboard(boarded) => {
                    let (own, source) = (boarded.led, boarded.waiter.source());
                    match ready!(poll_passenger(&mut boarded.waiter, cx)) {
                        Ok(mut piece) => {
                            piece.truncate(piece.len().min(self.wanted.len() as usize));
                            return Poll::Ready(Ok((piece, source)));
                        }
                        Err(error) if self.tries > 0 && is_anothers(&error, own) => {
                            self.tries -= 1;
                            self.state = SlotState::Boarding(Box::pin(Arc::clone(shelf).find(self.index)));
                        }
                        Err(error) => return Poll::Ready(Err(error)),
                    }
                }
            }
        }
    }
}

/// Whether a node already brings its maximum for one response at a time; `asked` are the nodes that bring the
/// rest.
fn is_busy(peer: Option<NodeId>, asked: impl Iterator<Item = Option<NodeId>>) -> bool {
    peer.is_some() && asked.filter(|asked| *asked == peer).count() >= FROM_ONE_PEER
}

fn poll_passenger(waiter: &mut Waiter, cx: &mut Context<'_>) -> Poll<Result<Bytes, FetchError>> {
    waiter
        .poll_piece(cx)
        .map(|piece| piece.expect("a slot wants no byte past its block"))
}

/// Whether another reader's failure can be retried: a fetch that failed under another reader's name may
/// succeed under this one's.
fn is_anothers(error: &FetchError, own: bool) -> bool {
    match error {
        FetchError::Abandoned => true,
        FetchError::Changed | FetchError::Busy | FetchError::Mismatch => false,
        // A lake that was silent to one reader is silent to all, and this reader has waited as long.
        FetchError::Lake(trouble) if trouble.kind().is_timeout() => false,
        // The block was to be taken over, and was gone there: a reader may fetch it from elsewhere.
        FetchError::NotHeld | FetchError::Status(_) | FetchError::Lake(_) => !own,
    }
}

#[cfg(test)]
mod tests {
    use shoal_policy::NodeId;

    use super::is_busy;

    #[test]
    fn a_node_brings_two_blocks_of_a_response_at_a_time_and_the_lake_any_number() {
        let (this, other) = (Some(NodeId(1)), Some(NodeId(2)));
        let asked = [this, None, other, None, None];
        assert!(!is_busy(this, asked.into_iter()));
        assert!(!is_busy(None, asked.into_iter()));
        assert!(is_busy(this, asked.into_iter().chain([this])));
        assert!(!is_busy(other, asked.into_iter().chain([this])));
    }
}
pub mod placement;
