//! Fills blocks one after another from one response. This is how a node that caches alone opens an object.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use futures_util::FutureExt as _;
use http::Method;
use tokio::sync::Notify;

use super::cursor::{Cursor, resumption};
use super::{Boarded, Fetcher, StreamTicket, shipment};
use crate::endpoint::{LakeBody, RepeatableGet};
use crate::flights::{FlightError, Join, Pilot, Shipment};
use crate::origin::Origin;
use crate::s3::object::Version;
use crate::s3::range::ByteRange;
use crate::store::Urgency;

/// A response that fills blocks one after another.
pub(super) struct Stream {
    fetcher: Arc<Fetcher>,
    version: Arc<Version>,
    origin: Arc<Origin>,
    /// The flights of the blocks to come, the next one first.
    announced: VecDeque<Pilot>,
    /// The first block, if the response began inside it: all of it has arrived except its head.
    headless: Option<Pilot>,
    /// The first block that is not announced yet.
    next: u32,
    /// The first byte of that block that the response brings.
    first: u64,
    /// One past the last block of the response.
    end: u32,
    owner: Weak<()>,
    traffic: Arc<Notify>,
    body: Cursor,
}

impl Stream {
    /// See [`Fetcher::stream`].
    pub(super) fn begin(
        fetcher: &Arc<Fetcher>,
        version: &Arc<Version>,
        range: ByteRange,
        body: LakeBody,
        origin: &Arc<Origin>,
    ) -> Option<StreamTicket> {
        let whole_blocks_end = if range.end == version.size_bytes {
            u64::from(version.block_count())
        } else {
            range.end / version.block_bytes
        };
        let question = RepeatableGet::of(&fetcher.lake, &origin.request(Method::GET));
        let part = range.start..range.end;
        let contradicted = fetcher.catalog.revoker(origin.caller().id(), version.object);
        let resumption = resumption(question, version, part, contradicted);
        let owner = Arc::new(());
        let mut stream = Self {
            fetcher: Arc::clone(fetcher),
            version: Arc::clone(version),
            origin: Arc::clone(origin),
            announced: VecDeque::new(),
            headless: None,
            next: (range.start / version.block_bytes) as u32,
            first: range.start % version.block_bytes,
            end: whole_blocks_end as u32,
            owner: Arc::downgrade(&owner),
            traffic: Arc::new(Notify::new()),
            body: Cursor::new(body.resumed_by(resumption)),
        };
        let ticket = StreamTicket {
            seat: Some(stream.announce()?),
            _owner: owner,
            traffic: Arc::clone(&stream.traffic),
        };
        let mut run = Box::pin(stream.run());
        // A small object has come along with the head of the response: a run that does not wait needs no
        // task.
        if run.as_mut().now_or_never().is_none() {
            tokio::spawn(run);
        }
        Some(ticket)
    }

    /// Announces blocks until the window is full. The stream ends before a block that is here already or that
    /// another flight brings: the lake is not asked to send blocks that this node has.
    ///
    /// Returns a seat in the first of them. The other passengers leave at once: a block is brought for
    /// readers, not for the stream itself.
    fn announce(&mut self) -> Option<Boarded> {
        let mut first_seat = None;
        while self.next < self.end && self.announced.len() <= self.fetcher.ahead as usize {
            let first = std::mem::take(&mut self.first);
            match self
                .fetcher
                .board(shipment(&self.version, self.next, first), &self.traffic)
            {
                Join::Lead(pilot, passenger) => {
                    // A node that caches alone has nothing to divide: its misses are counted, not timed.
                    self.fetcher.missed(&self.version, self.next);
                    self.announced.push_back(pilot);
                    first_seat.get_or_insert(Boarded {
                        passenger,
                        led: false,
                    });
                }
                Join::Aboard(_) | Join::Landed => self.end = self.next,
            }
            self.next += 1;
        }
        first_seat
    }

    async fn run(mut self) {
        while self.wait_for_demand().await {
            // Another reader wants the first block from its start.
            if self.headless.as_ref().is_some_and(Pilot::is_awaited) {
                self.complete_first();
            }
            let Some(pilot) = self.announced.pop_front() else {
                break;
            };
            // The next block is announced before this one is complete: a reader that takes its last byte
            // finds the block behind its window on its way.
            self.announce();
            if let Err(error) = self.bring(&pilot).await {
                self.announced
                    .drain(..)
                    .for_each(|pilot| pilot.fail(error.clone()));
                pilot.fail(error);
                break;
            }
            if pilot.shipment().first > 0 {
                self.headless = Some(pilot);
            } else {
                self.fetcher.land(Arc::clone(&self.version), pilot, Urgency::Late);
            }
        }
        self.complete_first();
    }

    async fn bring(&mut self, pilot: &Pilot) -> Result<(), FlightError> {
        let Shipment { len, first, .. } = pilot.shipment();
        let payer = self.origin.caller().payer();
        pilot.hold_window(self.fetcher.room(payer, len).await?);
        let proof = self.fetcher.proofs.of(&self.version, &self.origin)?;
        self.body.fill(pilot, len - first, proof.as_ref()).await
    }

    /// Asks for the head of the first block in a separate task: the rest of the block has been paid for.
    fn complete_first(&mut self) {
        let Some(pilot) = self.headless.take() else { return };
        let (fetcher, version) = (Arc::clone(&self.fetcher), Arc::clone(&self.version));
        let origin = Arc::clone(&self.origin);
        tokio::spawn(async move {
            let Shipment { id, first, .. } = pilot.shipment();
            let head = ByteRange { start: 0, end: first };
            let brought = async {
                let proof = fetcher.proofs.of(&version, &origin)?;
                fetcher
                    .ask_lake(&version, id.index, head, &origin)
                    .await?
                    .fill(&pilot, first, proof.as_ref())
                    .await
            };
            match brought.await {
                Ok(()) => fetcher.land(version, pilot, Urgency::Late),
                Err(error) => pilot.fail(error),
            }
        });
    }

    /// Returns true once a reader waits for an announced block, false if no reader will come.
    async fn wait_for_demand(&mut self) -> bool {
        loop {
            if self.announced.iter().any(Pilot::is_awaited) {
                return true;
            }
            if self.announced.is_empty() || self.owner.strong_count() == 0 {
                return false;
            }
            self.traffic.notified().await;
        }
    }
}
