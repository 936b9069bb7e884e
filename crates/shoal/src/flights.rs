//! One fetch per block, however many readers wait for it.
//!
//! A flight is a block on its way from another node or the lake. Its *pilot* brings the bytes in a separate
//! task; its *passengers* read them as they arrive. A passenger that leaves does not disturb the others; when
//! the last one leaves, the pilot is told. When the block is on disk the flight *lands*: the mapped file
//! replaces the pieces in memory, so that a slow passenger holds page cache and not heap.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::StatusCode;
use parking_lot::Mutex;
use shoal_policy::{BlockId, Layer, Source};
use tokio::sync::{Notify, OwnedSemaphorePermit};

use crate::endpoint::SharedError;

/// All flights of a node.
#[derive(Debug, Default)]
pub struct Flights {
    in_the_air: Mutex<HashMap<BlockId, Arc<Flight>, foldhash::fast::RandomState>>,
    coalesced: AtomicU64,
}

/// Why a flight did not bring its block.
#[derive(Clone, Debug, thiserror::Error)]
pub enum FlightError {
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
    /// The memory window of the read path stayed full.
    #[error("too many bytes are on their way from the lake")]
    Busy,
    /// The block left this node's disk, and was not to be fetched.
    #[error("the block is not held any more")]
    NotHeld,
    /// The pilot gave up because no passenger waited, just before this one came.
    #[error("the fetch was abandoned")]
    Abandoned,
}

/// A block to bring.
#[derive(Clone, Copy, Debug)]
pub struct Shipment {
    /// The block.
    pub id: BlockId,
    /// Its length in bytes.
    pub len: u64,
    /// The byte that arrives first: the first one that the reader of a range wants. The bytes before it
    /// follow after the last byte of the block.
    pub first: u64,
}

/// The result of [`Flights::join`].
#[derive(Debug)]
pub enum Join {
    /// The block is on its way already.
    Aboard(Passenger),
    /// The block landed in the meantime: look into the store again.
    Landed,
    /// The block is not being fetched: the caller must fetch it, in a separate task.
    Lead(Pilot, Passenger),
}

#[derive(Debug)]
struct Flight {
    shipment: Shipment,
    state: Mutex<State>,
    passengers: AtomicUsize,
    /// Tells the pilot that passengers came or went; shared by the flights of one stream.
    traffic: Arc<Notify>,
}

#[derive(Debug)]
struct State {
    /// In the order of their arrival. None holds both the last byte of the block and its first.
    pieces: Vec<Bytes>,
    received: u64,
    /// Where the bytes come from now.
    source: Source,
    /// The layer whose home the flight waits for.
    climbs: Option<Layer>,
    end: End,
    wakers: Vec<Waker>,
    /// The share of the memory window that the pieces take; given back when they are dropped.
    window: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
enum End {
    /// Bytes are still coming.
    Flying,
    /// All bytes are here, on the heap: the store did not take the block, or has not taken it yet.
    Arrived,
    /// The block is on disk; its mapping serves every byte.
    Landed(Bytes),
    /// No more bytes will come.
    Failed(FlightError),
}

impl Flights {
    /// Joins the flight of a block or starts one. `landed` looks into the store's index. It is called under
    /// the same lock under which flights are removed, so that a block is never fetched twice because it
    /// landed in between.
    pub fn join(
        self: &Arc<Self>,
        shipment: Shipment,
        traffic: &Arc<Notify>,
        landed: impl FnOnce() -> bool,
    ) -> Join {
        let mut in_the_air = self.in_the_air.lock();
        if let Some(flight) = in_the_air.get(&shipment.id) {
            let is_here = flight.is_here();
            // The reader whose own opening announced the block does not share it yet.
            let shared = flight.passengers.load(Ordering::Acquire) > 0;
            let waits = shared && !is_here;
            self.coalesced.fetch_add(u64::from(waits), Ordering::Relaxed);
            return Join::Aboard(Passenger::board(flight, is_here));
        }
        if landed() {
            return Join::Landed;
        }
        let flight = Arc::new(Flight {
            shipment,
            state: Mutex::new(State {
                pieces: Vec::new(),
                received: 0,
                source: Source::Lake,
                climbs: None,
                end: End::Flying,
                wakers: Vec::new(),
                window: None,
            }),
            passengers: AtomicUsize::new(0),
            traffic: Arc::clone(traffic),
        });
        in_the_air.insert(shipment.id, Arc::clone(&flight));
        let passenger = Passenger::board(&flight, false);
        Join::Lead(
            Pilot {
                flight,
                flights: Arc::clone(self),
            },
            passenger,
        )
    }

    /// Whether this node has every byte of the block, in memory or on disk. `landed` as for
    /// [`Flights::join`].
    pub fn holds(&self, id: BlockId, landed: impl FnOnce() -> bool) -> bool {
        let in_the_air = self.in_the_air.lock();
        match in_the_air.get(&id) {
            Some(flight) => flight.is_here(),
            None => landed(),
        }
    }

    /// Returns a seat in the flight of a block that is completely here and waits for the disk.
    pub fn board_whole(&self, id: BlockId) -> Option<Passenger> {
        let in_the_air = self.in_the_air.lock();
        let flight = in_the_air.get(&id).filter(|flight| flight.is_here())?;
        Some(Passenger::board(flight, true))
    }

    /// Whether the block is on its way, or waits for the disk.
    pub fn brings(&self, block: BlockId) -> bool {
        self.in_the_air.lock().contains_key(&block)
    }

    /// The layer whose home a block on its way waits for.
    pub fn climbs(&self, block: BlockId) -> Option<Layer> {
        let flight = self.in_the_air.lock().get(&block).cloned();
        flight.and_then(|flight| flight.state.lock().climbs)
    }

    /// The number of reads that waited for a fetch that another read had started.
    pub fn coalesced(&self) -> u64 {
        self.coalesced.load(Ordering::Relaxed)
    }

    /// The number of blocks on their way now.
    pub fn count(&self) -> usize {
        self.in_the_air.lock().len()
    }

    fn remove(&self, flight: &Arc<Flight>) {
        let id = flight.shipment.id;
        let mut in_the_air = self.in_the_air.lock();
        if in_the_air
            .get(&id)
            .is_some_and(|current| Arc::ptr_eq(current, flight))
        {
            in_the_air.remove(&id);
        }
    }
}

impl Flight {
    /// Whether the block is completely here, though the disk may not have it yet. For a passenger that boards
    /// now, the block comes from this node.
    fn is_here(&self) -> bool {
        matches!(self.state.lock().end, End::Arrived | End::Landed(_))
    }
}

/// Brings a block. If it is dropped before the end, the flight fails as abandoned.
#[derive(Debug)]
pub struct Pilot {
    flight: Arc<Flight>,
    flights: Arc<Flights>,
}

impl Pilot {
    /// The block to bring.
    pub fn shipment(&self) -> Shipment {
        self.flight.shipment
    }

    /// Whether any passenger waits for the block.
    pub fn is_awaited(&self) -> bool {
        self.flight.passengers.load(Ordering::Acquire) > 0
    }

    /// Takes a share of the memory window for the bytes to come.
    pub fn hold_window(&self, window: OwnedSemaphorePermit) {
        self.flight.state.lock().window = Some(window);
    }

    /// Sets where the bytes to come are from.
    pub fn comes_from(&self, source: Source) {
        self.flight.state.lock().source = source;
    }

    /// Notes that the block waits for its home in `layer`, until the returned value is dropped.
    pub fn climbing(&self, layer: Layer) -> Climbing<'_> {
        self.flight.state.lock().climbs = Some(layer);
        Climbing(&self.flight)
    }

    /// The number of bytes that have arrived.
    pub fn received(&self) -> u64 {
        self.flight.state.lock().received
    }

    /// Hands on bytes that arrived; together they must be exactly the block, from the shipment's first byte
    /// to the one before it.
    pub fn push(&self, piece: Bytes) {
        self.change(|state| {
            state.received += piece.len() as u64;
            assert!(
                state.received <= self.flight.shipment.len,
                "a pilot pushes no more than its block"
            );
            state.pieces.push(piece);
            if state.received == self.flight.shipment.len {
                state.end = End::Arrived;
            }
        });
    }

    /// The whole block from its first byte to its last, to be written to disk.
    pub fn pieces(&self) -> Vec<Bytes> {
        self.pieces_and(None)
    }

    /// The same block once `last` has been pushed, too.
    pub fn pieces_and(&self, last: Option<Bytes>) -> Vec<Bytes> {
        let mut pieces = self.flight.state.lock().pieces.clone();
        pieces.extend(last);
        let Shipment { len, first, .. } = self.flight.shipment;
        let mut before_the_turn = len - first;
        let turn = pieces.iter().position(|piece| {
            let is_turn = before_the_turn == 0;
            before_the_turn = before_the_turn.saturating_sub(piece.len() as u64);
            is_turn
        });
        pieces.rotate_left(turn.unwrap_or(0));
        pieces
    }

    /// Lands the block, which is in the store now: its mapping replaces the pieces.
    pub fn land(self, mapped: Bytes) {
        assert_eq!(
            mapped.len() as u64,
            self.flight.shipment.len,
            "what landed is the whole block"
        );
        self.change(|state| {
            state.pieces = Vec::new();
            state.window = None;
            state.end = End::Landed(mapped);
        });
    }

    /// Keeps the block, which the store did not take, in memory: its passengers read it from there, and no
    /// others board.
    pub fn keep(self) {
        let state = self.flight.state.lock();
        assert_eq!(
            state.received, self.flight.shipment.len,
            "only a complete block is kept"
        );
    }

    /// Fails the flight: no more bytes will come.
    pub fn fail(self, error: FlightError) {
        self.end_with(error);
    }

    fn end_with(&self, error: FlightError) {
        self.change(|state| {
            state.pieces = Vec::new();
            state.window = None;
            state.end = End::Failed(error);
        });
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let wakers = {
            let mut state = self.flight.state.lock();
            change(&mut state);
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// Marks that a block waits for another node, which must not wait for it.
#[derive(Debug)]
#[must_use = "a block waits for its home until this is dropped"]
pub struct Climbing<'a>(&'a Flight);

impl Drop for Climbing<'_> {
    fn drop(&mut self) {
        self.0.state.lock().climbs = None;
    }
}

impl Drop for Pilot {
    fn drop(&mut self) {
        self.flights.remove(&self.flight);
        let unfinished = matches!(self.flight.state.lock().end, End::Flying);
        if unfinished {
            self.end_with(FlightError::Abandoned);
        }
    }
}

/// A reader of a block as it arrives, wherever it comes from.
#[derive(Debug)]
pub struct Passenger {
    flight: Arc<Flight>,
    /// Whether the whole block was here when this passenger boarded.
    found_here: bool,
    /// The next byte to read, counted from the start of the block.
    offset: u64,
    /// A piece that arrived no later than that byte, and the number of bytes that had arrived before that
    /// piece.
    piece: (usize, u64),
}

impl Passenger {
    fn board(flight: &Arc<Flight>, found_here: bool) -> Self {
        flight.passengers.fetch_add(1, Ordering::AcqRel);
        flight.traffic.notify_one();
        Self {
            flight: Arc::clone(flight),
            found_here,
            offset: 0,
            piece: (0, 0),
        }
    }

    /// The block that is read.
    pub fn block(&self) -> BlockId {
        self.flight.shipment.id
    }

    /// Continues reading at this byte of the block.
    pub fn seek(&mut self, offset: u64) {
        self.offset = offset;
        self.piece = (0, 0);
    }

    /// Where the bytes that arrive now come from: this node, if it had the whole block before this passenger
    /// boarded.
    pub fn source(&self) -> Source {
        if self.found_here {
            Source::Local
        } else {
            self.flight.state.lock().source
        }
    }

    /// The next bytes of the block, as many as are at hand in one piece; `None` at its end.
    pub fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, FlightError>>> {
        if self.offset == self.flight.shipment.len {
            return Poll::Ready(None);
        }
        let flight = Arc::clone(&self.flight);
        let mut state = flight.state.lock();
        let piece = match &state.end {
            End::Failed(error) => return Poll::Ready(Some(Err(error.clone()))),
            End::Landed(block) => Some(block.slice(self.offset as usize..)),
            End::Flying | End::Arrived => self.find(&state.pieces),
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
        let Shipment { len, first, .. } = self.flight.shipment;
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

impl Drop for Passenger {
    fn drop(&mut self) {
        self.flight.passengers.fetch_sub(1, Ordering::AcqRel);
        self.flight.traffic.notify_one();
    }
}
