//! Fills blocks one after another from one response. This is how a node that caches alone opens an object.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use futures_util::FutureExt as _;
use http::Method;
use tokio::sync::Notify;

use super::body_reader::{Cursor, resumption};
use super::{Fetcher, JoinedFetch, StreamTicket, span};
use crate::endpoint::{LakeBody, Question};
use crate::read_context::Origin;
use crate::s3::object::Version;
use crate::s3::range::ByteRange;
use crate::single_flight::{BlockSpan, FetchError, Join, Leader};
use crate::store::Urgency;

/// A response that fills blocks one after another.
pub(super) struct Stream {
    fetcher: Arc<Fetcher>,
    version: Arc<Version>,
    origin: Arc<Origin>,
    /// The leaders of the blocks to come, the next one first.
    announced: VecDeque<Leader>,
    /// The first block, if the response began inside it: all of it has arrived except its head.
    headless: Option<Leader>,
    /// The first block that is not announced yet.
    next: u32,
    /// The first byte of that block that the response brings.
    first: u64,
    /// One past the last block of the response.
    end: u32,
    owner: Weak<()>,
    waiters_changed: Arc<Notify>,
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
        let question = Question::of(&fetcher.lake, &origin.request(Method::GET));
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
            waiters_changed: Arc::new(Notify::new()),
            body: Cursor::new(body.resumed_by(resumption)),
        };
        let ticket = StreamTicket {
            seat: Some(stream.announce()?),
            _owner: owner,
            waiters_changed: Arc::clone(&stream.waiters_changed),
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
    /// another fetch brings: the lake is not asked to send blocks that this node has.
    ///
    /// Returns a seat in the first of them. The other waiters leave at once: a block is brought for
    /// readers, not for the stream itself.
    fn announce(&mut self) -> Option<JoinedFetch> {
        let mut first_seat = None;
        while self.next < self.end && self.announced.len() <= self.fetcher.ahead as usize {
            let first = std::mem::take(&mut self.first);
            match self
                .fetcher
                .board(span(&self.version, self.next, first), &self.waiters_changed)
            {
                Join::Lead(leader, waiter) => {
                    // A node that caches alone has nothing to divide: its misses are counted, not timed.
                    self.fetcher.missed(&self.version, self.next);
                    self.announced.push_back(leader);
                    first_seat.get_or_insert(JoinedFetch { waiter, led: false });
                }
                Join::Joined(_) | Join::Stored => self.end = self.next,
            }
            self.next += 1;
        }
        first_seat
    }

    async fn run(mut self) {
        while self.wait_for_demand().await {
            // Another reader wants the first block from its start.
            if self.headless.as_ref().is_some_and(Leader::has_waiters) {
                self.complete_first();
            }
            let Some(leader) = self.announced.pop_front() else {
                break;
            };
            // The next block is announced before this one is complete: a reader that takes its last byte
            // finds the block behind its window on its way.
            self.announce();
            if let Err(error) = self.bring(&leader).await {
                self.announced
                    .drain(..)
                    .for_each(|leader| leader.fail(error.clone()));
                leader.fail(error);
                break;
            }
            if leader.span().first > 0 {
                self.headless = Some(leader);
            } else {
                self.fetcher
                    .land(Arc::clone(&self.version), leader, Urgency::Late);
            }
        }
        self.complete_first();
    }

    async fn bring(&mut self, leader: &Leader) -> Result<(), FetchError> {
        let BlockSpan { len, first, .. } = leader.span();
        let payer = self.origin.caller().payer();
        leader.hold_memory(self.fetcher.room(payer, len).await?);
        let proof = self.fetcher.proofs.of(&self.version, &self.origin)?;
        self.body.fill(leader, len - first, proof.as_ref()).await
    }

    /// Asks for the head of the first block in a separate task: the rest of the block has been paid for.
    fn complete_first(&mut self) {
        let Some(leader) = self.headless.take() else {
            return;
        };
        let (fetcher, version) = (Arc::clone(&self.fetcher), Arc::clone(&self.version));
        let origin = Arc::clone(&self.origin);
        tokio::spawn(async move {
            let BlockSpan { id, first, .. } = leader.span();
            let head = ByteRange { start: 0, end: first };
            let brought = async {
                let proof = fetcher.proofs.of(&version, &origin)?;
                fetcher
                    .ask_lake(&version, id.index, head, &origin)
                    .await?
                    .fill(&leader, first, proof.as_ref())
                    .await
            };
            match brought.await {
                Ok(()) => fetcher.land(version, leader, Urgency::Late),
                Err(error) => leader.fail(error),
            }
        });
    }

    /// Returns true once a reader waits for an announced block, false if no reader will come.
    async fn wait_for_demand(&mut self) -> bool {
        loop {
            if self.announced.iter().any(Leader::has_waiters) {
                return true;
            }
            if self.announced.is_empty() || self.owner.strong_count() == 0 {
                return false;
            }
            self.waiters_changed.notified().await;
        }
    }
}
