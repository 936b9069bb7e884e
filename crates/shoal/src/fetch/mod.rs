//! How blocks come here: one block from the best place that has it, or a run of blocks from one response of the lake.

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
use crate::endpoint::{Budget, Endpoint, LakeBody};
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

/// Peers that live but send nothing may be given up for the lake, in percent of requests to peers.
const HEDGES_PERCENT: u32 = 10;

/// Brings blocks from other nodes and from the lake to those who wait and to the store.
pub struct Fetcher {
    lake: Arc<Endpoint>,
    catalog: Arc<Catalog>,
    cooperation: Arc<Cooperation>,
    split: Arc<Split>,
    hedges: Budget,
    hops: Hops,
    proofs: Proofs,
    store: Arc<Store>,
    flights: Arc<Flights>,
    /// Bytes on their way and not yet on disk; one permit a KiB.
    window: Arc<Semaphore>,
    /// Whose turn it is to wait for the window.
    next_for_room: Arc<Turns>,
    window_kib: usize,
    /// What writers may take of the window.
    writers: Arc<Semaphore>,
    /// Blocks announced ahead of the one that a stream is bringing.
    ahead: u32,
}

/// From where a block may be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From wherever the route leads, as this node is asked for it in this layer.
    Route(Layer),
    /// From this node, which gives it away, or not at all.
    Handover(NodeId),
}

impl Way {
    /// Whoever gives a block away waits until it has arrived.
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
    /// The reader's place in the first block of the response.
    seat: Option<Boarded>,
    _owner: Arc<()>,
    traffic: Arc<Notify>,
}

impl StreamTicket {
    /// The place that is kept for the reader, if it is one in `block`. It is kept for the first block that the reader asks for, and not longer.
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
            hedges: Budget::new(HEDGES_PERCENT),
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

    /// A share of the memory window for bytes that could do without. Half of the window is left to reads, which wait for theirs.
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

    /// How many requests for blocks to other nodes ended how, since the node started.
    pub fn hops(&self) -> [(HopEnd, u64); HopEnd::ALL.len()] {
        self.hops.counts()
    }

    /// Whether this node has every byte of the block, though perhaps not on disk yet.
    pub fn holds(&self, block: BlockId) -> bool {
        self.store.contains(block) || self.flights.holds(block, || self.store.contains(block))
    }

    /// Whether more than a quarter of the memory window is taken when so many bytes come. What is written should leave it soon then: the next
    /// writes and reads need it.
    pub fn is_filling(&self, bytes: u64) -> bool {
        let taken_kib = self.window_kib.saturating_sub(self.window.available_permits()) as u64;
        taken_kib + bytes.div_ceil(1024) > self.window_kib as u64 / 4
    }

    /// Whether half of the memory window is taken: what nobody waits for should wait.
    pub fn is_busy(&self) -> bool {
        self.window.available_permits() < self.window_kib / 2
    }

    /// Joins the flight of a block; when there is none, starts one in a task of its own that goes `way`. `None`: it landed meanwhile.
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

    /// A block was asked for that is here.
    pub fn hit(&self, version: &Version, index: u32) {
        self.requested(version, index, true);
    }

    /// A block was asked for that has to be brought; what times that, if it is worth it.
    fn missed(&self, version: &Version, index: u32) -> Option<Timing> {
        self.requested(version, index, false)
    }

    fn requested(&self, version: &Version, index: u32, held: bool) -> Option<Timing> {
        let block = version.block(index);
        let layer = self.store.layer_of(block);
        self.split.requested(layer, block, version.block_len(index), held)
    }

    /// A complete block that was written here: readers find it from now on, and the store has it when what is returned has ended. `None`: it
    /// is here already, or on its way.
    ///
    /// A late one waits for the next writes to be over, as a block that was read waits for readers, unless much is waiting.
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

    /// A place in the flight of a block that is here as a whole and waits for the disk.
    pub fn join_whole(&self, block: BlockId) -> Option<Boarded> {
        let passenger = self.flights.board_whole(block)?;
        Some(Boarded {
            passenger,
            led: false,
        })
    }

    /// The flight of a block that is neither here nor on its way, without a reader yet.
    fn lead(&self, version: &Version, index: u32) -> Option<Pilot> {
        match self.board(shipment(version, index, 0), &Arc::default()) {
            Join::Lead(pilot, _reader) => Some(pilot),
            Join::Aboard(_) | Join::Landed => None,
        }
    }

    /// Whether a block on its way here waits for its home in a layer no wider than `layer`. Whoever asks for it as that layer's home may be
    /// the one that is waited for.
    pub fn waits_for_home(&self, block: BlockId, layer: Layer) -> bool {
        self.flights.climbs(block).is_some_and(|climbs| climbs <= layer)
    }

    /// Fills blocks from a response that starts at byte `range.start` of the version and ends at `range.end`. Where it starts inside
    /// a block, what comes before is asked for afterwards, by `origin`: the reader's bytes come first.
    ///
    /// The first blocks are announced before this returns, so that their readers join instead of asking the lake again.
    /// `None`: others bring these blocks already, the response is dropped.
    pub fn stream(
        self: &Arc<Self>,
        version: &Arc<Version>,
        range: ByteRange,
        body: LakeBody,
        origin: &Arc<Origin>,
    ) -> Option<StreamTicket> {
        Stream::begin(self, version, range, body, origin)
    }

    /// The life of one block's fetch.
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

    /// Has a complete block written beside its readers' streams.
    fn land(&self, version: Arc<Version>, pilot: Pilot, urgency: Urgency) {
        let (block, pieces) = (pilot.shipment().id, pilot.pieces());
        self.store
            .put_then(block, version, pieces, urgency, |stored| end(pilot, stored));
    }

    /// A share of the memory window, waited for in the turn of `payer`. Errors: it stays full.
    pub async fn room(&self, payer: Payer, bytes: u64) -> Result<OwnedSemaphorePermit, FlightError> {
        let _next = self
            .next_for_room
            .turn(payer, bytes.div_ceil(1024))
            .await
            .map_err(|_| FlightError::Busy)?;
        acquire(&self.window, bytes, self.window_kib).await
    }

    /// A share of the memory window for bytes that a client sends, waited for. All writers together get half of the window: a client may be
    /// slow, and reads must not wait for it. Errors: it stays full.
    ///
    /// Who waits for a share must not keep another that only its client could set free.
    pub async fn room_of_writer(&self, bytes: u64) -> Result<WriterRoom, FlightError> {
        Ok(WriterRoom {
            _of_writers: acquire(&self.writers, bytes, self.window_kib / 2).await?,
            _of_window: self.room(NODE, bytes).await?,
        })
    }
}

/// Ends the flight of a complete block that the store has taken, or not.
fn end(pilot: Pilot, stored: Result<Bytes, Refusal>) {
    match stored {
        Ok(mapped) => pilot.land(mapped),
        // Not storing costs speed, never a read; the store has counted the reason.
        Err(_refused) => pilot.keep(),
    }
}

/// Waits for memory; more than there can be is all of it.
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

/// A place in a flight.
#[derive(Debug)]
pub struct Boarded {
    /// Reads the block.
    pub passenger: crate::flights::Passenger,
    /// Whether this reader started the fetch: its failure is then its own.
    pub led: bool,
}

/// Waits until the last reader has left before the block's first byte came. Once that is here the rest comes along: most of it is paid for,
/// and who reads a few bytes of a block is done long before the block is.
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
