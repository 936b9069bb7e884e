//! Brings blocks to this node: one block from the best place that has it, or a run of blocks from one
//! response of the lake.

mod carry;
mod cursor;
mod hops;
mod proof;
mod stream;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use shoal_policy::admission::Refusal;
use shoal_policy::fair::Payer;
use shoal_policy::{BlockId, Layer, NodeId};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

pub use self::cursor::{content_range, range_header, whole};
pub use self::hops::HopEnd;

use self::carry::Errand;
use self::hops::Hops;
use self::proof::Proofs;
use self::stream::Stream;
use crate::catalog::Catalog;
use crate::cooperation::Cooperation;
use crate::endpoint::{Endpoint, LakeBody, RetryBudget};
use crate::fair::Turns;
use crate::flights::{FlightError, Flights, Join, Pilot, Shipment};
use crate::origin::Origin;
use crate::s3::identity::NODE;
use crate::s3::object::Version;
use crate::s3::range::ByteRange;
use crate::split::{Split, Timing};
use crate::store::{Store, Urgency};

/// A fetch that finds the memory window full waits this long for room before it gives up with `503 SlowDown`.
const WINDOW_PATIENCE: Duration = Duration::from_secs(20);

/// The share of requests to peers, in percent, that may be given up for the lake because the peer is alive
/// but sends nothing.
const HEDGES_PERCENT: u32 = 10;

/// Brings blocks from other nodes and from the lake to waiting readers and to the store.
pub struct Fetcher {
    lake: Arc<Endpoint>,
    catalog: Arc<Catalog>,
    cooperation: Arc<Cooperation>,
    split: Arc<Split>,
    hedges: RetryBudget,
    hops: Hops,
    proofs: Proofs,
    store: Arc<Store>,
    flights: Arc<Flights>,
    /// Bytes that are on their way and not on disk; one permit a KiB.
    window: Arc<Semaphore>,
    /// The turns in which payers wait for the window.
    next_for_room: Arc<Turns>,
    window_kib: usize,
    /// The part of the window that writers may take.
    writers: Arc<Semaphore>,
    /// The number of blocks announced ahead of the one that a stream is bringing.
    ahead: u32,
}

/// Where a block may be fetched from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Wherever the route leads. This node is asked for the block in this layer.
    Route(Layer),
    /// This node, which gives the block away, and no other.
    Handover(NodeId),
}

impl Way {
    /// A node that gives a block away waits until it has arrived.
    const fn urgency(self) -> Urgency {
        match self {
            Self::Route(_) => Urgency::Late,
            Self::Handover(_) => Urgency::Now,
        }
    }
}

/// A share of the memory window for bytes that come at the pace of a client.
#[derive(Debug)]
pub struct WriterRoom {
    _of_writers: OwnedSemaphorePermit,
    _of_window: OwnedSemaphorePermit,
}

/// Keeps a stream going while its reader is there, even when the reader is slow.
#[derive(Debug)]
pub struct StreamTicket {
    /// The reader's seat in the first block of the response.
    seat: Option<Boarded>,
    _owner: Arc<()>,
    traffic: Arc<Notify>,
}

impl StreamTicket {
    /// Returns the seat that is kept for the reader, if it is one in `block`. The seat is kept only for the
    /// first block that the reader asks for.
    pub fn take_seat(&mut self, block: BlockId) -> Option<Boarded> {
        let seat = self.seat.take()?;
        (seat.passenger.block() == block).then_some(seat)
    }
}

impl Drop for StreamTicket {
    fn drop(&mut self) {
        self.traffic.notify_one();
    }
}

impl Fetcher {
    /// `window_bytes` bounds the bytes on their way; `ahead` is a reader's read-ahead in blocks.
    pub fn new(
        (lake, catalog): (Arc<Endpoint>, Arc<Catalog>),
        cooperation: Arc<Cooperation>,
        split: Arc<Split>,
        store: Arc<Store>,
        flights: Arc<Flights>,
        window_bytes: u64,
        ahead: usize,
    ) -> Self {
        let window_kib = (window_bytes >> 10) as usize;
        Self {
            lake,
            catalog,
            cooperation,
            split,
            hedges: RetryBudget::new(HEDGES_PERCENT),
            hops: Hops::default(),
            proofs: Proofs::default(),
            store,
            flights,
            window: Arc::new(Semaphore::new(window_kib)),
            next_for_room: Turns::one_at_a_time(),
            window_kib,
            writers: Arc::new(Semaphore::new(window_kib / 2)),
            ahead: ahead as u32,
        }
    }

    /// Takes a share of the memory window for bytes that can do without one. Half of the window is left to
    /// reads, which wait for their share.
    pub fn spare_room(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let kib = bytes.div_ceil(1024) as u32;
        let spare = self
            .window
            .available_permits()
            .saturating_sub(self.window_kib / 2);
        if spare < kib as usize {
            return None;
        }
        Arc::clone(&self.window).try_acquire_many_owned(kib).ok()
    }

    /// Bytes of the memory window in use.
    pub fn window_used_bytes(&self) -> u64 {
        (self.window_kib.saturating_sub(self.window.available_permits()) as u64) << 10
    }

    /// The number of block requests to other nodes since the node started, by how they ended.
    pub fn hops(&self) -> [(HopEnd, u64); HopEnd::ALL.len()] {
        self.hops.counts()
    }

    /// Whether this node has every byte of the block, even if the block is not on disk yet.
    pub fn holds(&self, block: BlockId) -> bool {
        self.store.contains(block) || self.flights.holds(block, || self.store.contains(block))
    }

    /// Whether more than a quarter of the memory window would be taken with `bytes` more. If so, written data
    /// should leave the window soon, because the next writes and reads need it.
    pub fn is_filling(&self, bytes: u64) -> bool {
        let taken_kib = self.window_kib.saturating_sub(self.window.available_permits()) as u64;
        taken_kib + bytes.div_ceil(1024) > self.window_kib as u64 / 4
    }

    /// Whether half of the memory window is taken. Work that no caller waits for should then wait.
    pub fn is_busy(&self) -> bool {
        self.window.available_permits() < self.window_kib / 2
    }

    /// Joins the flight of a block; if there is none, starts one in a separate task that goes `way`. Returns
    /// `None` if the block has landed meanwhile.
    pub fn join(
        self: &Arc<Self>,
        version: &Arc<Version>,
        index: u32,
        origin: &Arc<Origin>,
        way: Way,
    ) -> Option<Boarded> {
        let traffic = Arc::new(Notify::new());
        match self.board(shipment(version, index, 0), &traffic) {
            Join::Landed => None,
            Join::Aboard(passenger) => Some(Boarded {
                passenger,
                led: false,
            }),
            Join::Lead(pilot, passenger) => {
                let errand = Errand {
                    version: Arc::clone(version),
                    index,
                    origin: Arc::clone(origin),
                    way,
                };
                let missed = self.missed(version, index);
                let this = Arc::clone(self);
                tokio::spawn(async move { this.bring(errand, missed, pilot, traffic).await });
                Some(Boarded { passenger, led: true })
            }
        }
    }

    /// Notes that a reader asked for a block that is here.
    pub fn hit(&self, version: &Version, index: u32) {
        self.requested(version, index, true);
    }

    /// Notes that a reader asked for a block that has to be brought; returns the timing of that, if it is
    /// worth measuring.
    fn missed(&self, version: &Version, index: u32) -> Option<Timing> {
        self.requested(version, index, false)
    }

    fn requested(&self, version: &Version, index: u32, held: bool) -> Option<Timing> {
        let block = version.block(index);
        let layer = self.store.layer_of(block);
        self.split.requested(layer, block, version.block_len(index), held)
    }

    /// Lands a complete block that was written here: readers find it from now on, and the store has it when
    /// the returned future ends. Returns `None` if the block is already here or on its way.
    ///
    /// A late block waits for the next writes to be over, as a block that was read waits for readers, unless
    /// much is waiting.
    pub fn land_written(
        self: &Arc<Self>,
        version: &Arc<Version>,
        index: u32,
        (pieces, room): (Vec<Bytes>, OwnedSemaphorePermit),
        urgency: Urgency,
    ) -> Option<impl Future<Output = ()> + use<>> {
        let pilot = self.lead(version, index)?;
        pilot.hold_window(room);
        for piece in pieces {
            pilot.push(piece);
        }
        let urgency = if self.is_filling(0) { Urgency::Now } else { urgency };
        let (store, version) = (Arc::clone(&self.store), Arc::clone(version));
        Some(async move {
            let stored = store.put(version.block(index), version, pilot.pieces(), urgency);
            end(pilot, stored.await);
        })
    }

    /// Returns a seat in the flight of a block that is completely here and waits for the disk.
    pub fn join_whole(&self, block: BlockId) -> Option<Boarded> {
        let passenger = self.flights.board_whole(block)?;
        Some(Boarded {
            passenger,
            led: false,
        })
    }

    /// Starts the flight of a block that is neither here nor on its way; it has no reader yet.
    fn lead(&self, version: &Version, index: u32) -> Option<Pilot> {
        match self.board(shipment(version, index, 0), &Arc::default()) {
            Join::Lead(pilot, _reader) => Some(pilot),
            Join::Aboard(_) | Join::Landed => None,
        }
    }

    /// Whether a block on its way here waits for its home in a layer no wider than `layer`. The node that
    /// asks this one as that layer's home may be the very node that the block waits for.
    pub fn waits_for_home(&self, block: BlockId, layer: Layer) -> bool {
        self.flights.climbs(block).is_some_and(|climbs| climbs <= layer)
    }

    /// Fills blocks from a response that starts at byte `range.start` of the version and ends at `range.end`.
    /// If it starts inside a block, the bytes before it are requested afterwards, by `origin`: the reader's
    /// bytes come first.
    ///
    /// Announces the first blocks before it returns, so that their readers join instead of asking the lake
    /// again. Returns `None` if these blocks are already on their way; the response is dropped.
    pub fn stream(
        self: &Arc<Self>,
        version: &Arc<Version>,
        range: ByteRange,
        body: LakeBody,
        origin: &Arc<Origin>,
    ) -> Option<StreamTicket> {
        Stream::begin(self, version, range, body, origin)
    }

    /// Runs one block's fetch from start to end.
    async fn bring(
        self: Arc<Self>,
        errand: Errand,
        missed: Option<Timing>,
        pilot: Pilot,
        traffic: Arc<Notify>,
    ) {
        let carried = tokio::select! {
            carried = self.carry(&errand, &pilot) => carried,
            // Dropping the response closes its connection.
            () = abandoned(&pilot, &traffic) => return,
        };
        match carried {
            Ok(()) => {
                if let Some(missed) = missed {
                    missed.answered();
                }
                self.land(errand.version, pilot, errand.way.urgency());
            }
            Err(error) => pilot.fail(error),
        }
    }

    fn board(&self, shipment: Shipment, traffic: &Arc<Notify>) -> Join {
        self.flights
            .join(shipment, traffic, || self.store.contains(shipment.id))
    }

    /// Starts writing a complete block to disk beside its readers' streams.
    fn land(&self, version: Arc<Version>, pilot: Pilot, urgency: Urgency) {
        let (block, pieces) = (pilot.shipment().id, pilot.pieces());
        self.store
            .put_then(block, version, pieces, urgency, |stored| end(pilot, stored));
    }

    /// Waits in the turn of `payer` for a share of the memory window. Fails if the window stays full.
    pub async fn room(&self, payer: Payer, bytes: u64) -> Result<OwnedSemaphorePermit, FlightError> {
        let _next = self
            .next_for_room
            .turn(payer, bytes.div_ceil(1024))
            .await
            .map_err(|_| FlightError::Busy)?;
        acquire(&self.window, bytes, self.window_kib).await
    }

    /// Waits for a share of the memory window for bytes that a client sends. All writers together get half of
    /// the window: a client may be slow, and reads must not wait for it.
    ///
    /// A caller that waits for a share must not keep another one that only its client could set free.
    ///
    /// # Errors
    ///
    /// Fails if the window stays full.
    pub async fn room_of_writer(&self, bytes: u64) -> Result<WriterRoom, FlightError> {
        Ok(WriterRoom {
            _of_writers: acquire(&self.writers, bytes, self.window_kib / 2).await?,
            _of_window: self.room(NODE, bytes).await?,
        })
    }
}

/// Ends the flight of a complete block, whether the store has taken it or not.
fn end(pilot: Pilot, stored: Result<Bytes, Refusal>) {
    match stored {
        Ok(mapped) => pilot.land(mapped),
        // A block that is not stored costs speed, never a read; the store has counted the reason.
        Err(_refused) => pilot.keep(),
    }
}

/// Waits for memory; a request for more than the whole window takes all of it.
async fn acquire(
    window: &Arc<Semaphore>,
    bytes: u64,
    window_kib: usize,
) -> Result<OwnedSemaphorePermit, FlightError> {
    let kib = bytes.div_ceil(1024).min(window_kib as u64) as u32;
    let room = Arc::clone(window).acquire_many_owned(kib);
    match tokio::time::timeout(WINDOW_PATIENCE, room).await {
        Ok(permit) => Ok(permit.expect("the window is never closed")),
        Err(_) => Err(FlightError::Busy),
    }
}

/// A seat in a flight.
#[derive(Debug)]
pub struct Boarded {
    /// Reads the block.
    pub passenger: crate::flights::Passenger,
    /// Whether this reader started the fetch. If so, a failure of the fetch is the reader's own failure.
    pub led: bool,
}

/// Waits until the last reader has left before the block's first byte came. Once the first byte is here, the
/// rest comes along: most of it is paid for, and a reader of a few bytes leaves long before the block is
/// complete.
async fn abandoned(pilot: &Pilot, traffic: &Notify) {
    while pilot.is_awaited() || pilot.received() > 0 {
        traffic.notified().await;
    }
}

fn shipment(version: &Version, index: u32, first: u64) -> Shipment {
    Shipment {
        id: version.block(index),
        len: version.block_len(index),
        first,
    }
}

#[cfg(test)]
mod tests {
    use shoal_policy::VersionId;

    use super::*;

    fn block(index: u32) -> BlockId {
        let version = VersionId([7; 16]);
        BlockId { version, index }
    }

    fn ticket() -> StreamTicket {
        let shipment = Shipment {
            id: block(3),
            len: 6,
            first: 0,
        };
        let Join::Lead(_pilot, passenger) =
            Arc::<Flights>::default().join(shipment, &Arc::default(), || false)
        else {
            panic!("nobody else flies");
        };
        StreamTicket {
            seat: Some(Boarded {
                passenger,
                led: false,
            }),
            _owner: Arc::default(),
            traffic: Arc::default(),
        }
    }

    #[test]
    fn the_seat_is_for_whoever_asks_first_and_wants_that_block() {
        let mut wanted = ticket();
        assert!(wanted.take_seat(block(3)).is_some());
        assert!(wanted.take_seat(block(3)).is_none(), "there is one");
        let mut another = ticket();
        assert!(another.take_seat(block(4)).is_none());
        assert!(
            another.take_seat(block(3)).is_none(),
            "who reads on does not come back"
        );
    }
}
