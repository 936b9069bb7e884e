//! Fills a run of blocks from one response. A node that caches alone opens objects in this way.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use futures_util::FutureExt as _;
use http::Method;
use shoal_net::endpoint::{LakeBody, RepeatableGet};
use shoal_net::link::Transfer;
use shoal_net::trace;
use shoal_policy::BlockId;
use shoal_s3::object::Version;
use shoal_s3::range::ByteRange;
use shoal_store::{Storing, Urgency};
use tokio::sync::Notify;

use super::body_reader::{BodyReader, resumption};
use super::{Arrival, Fetcher, span_of};
use crate::fetch::read_context::ReadContext;
use crate::single_flight::{BlockSpan, FetchError, Join, Leader, Waiter};

/// A response of the lake that fills a run of blocks.
struct ResponseStream {
    fetcher: Arc<Fetcher>,
    version: Arc<Version>,
    context: Arc<ReadContext>,
    /// The transfer that carries the response; `None` if it keeps no rate.
    transfer: Option<Transfer>,
    /// Leaders of the announced blocks, in order.
    announced: VecDeque<Leader>,
    /// The first block, if the response began inside it: everything but its head has arrived.
    headless: Option<Leader>,
    /// Index of the first block that is not announced yet.
    next: u32,
    /// First byte of that block that the response carries.
    first: u64,
    /// One past the index of the last block of the response.
    end: u32,
    owner: Weak<()>,
    waiters_changed: Arc<Notify>,
    body: BodyReader,
}

/// Keeps a response running while its reader exists, however slow the reader is.
#[derive(Debug)]
pub struct StreamHandle {
    /// The reader's handle of the first block of the response.
    first: Option<Waiter>,
    _owner: Arc<()>,
    waiters_changed: Arc<Notify>,
}

impl StreamHandle {
    /// Returns the kept handle if it belongs to `block`. It is offered only for the first block that the
    /// reader asks for.
    pub fn take_first(&mut self, block: BlockId) -> Option<Waiter> {
        let first = self.first.take()?;
        (first.block() == block).then_some(first)
    }
}

impl Drop for StreamHandle {
    fn drop(&mut self) {
        self.waiters_changed.notify_one();
    }
}

impl Fetcher {
    /// Fills blocks from a response that starts at byte `range.start` of the version and ends at `range.end`.
    /// If it starts inside a block, the bytes before it are requested later, in `context`, because the
    /// reader's bytes come first. `transfer` carries the response if it keeps a rate. Announces the first
    /// blocks before returning, so that their readers join instead of asking the lake again. Returns `None`
    /// and drops the response if these blocks are in flight already.
    pub fn stream(
        self: &Arc<Self>,
        version: &Arc<Version>,
        range: ByteRange,
        body: LakeBody,
        context: &Arc<ReadContext>,
        transfer: Option<Transfer>,
    ) -> Option<StreamHandle> {
        assert!(
            range.end <= version.size_bytes,
            "a response lies within its version"
        );
        let whole_blocks_end = if range.end == version.size_bytes {
            u64::from(version.block_count())
        } else {
            range.end / version.block_bytes
        };
        let question = RepeatableGet::of(&self.parts.lake, &context.request(Method::GET));
        let question = question.within(transfer.as_ref());
        let part = range.start..range.end;
        let contradicted = self.parts.grants.revoker(context.caller.id(), version.object);
        let resumption = resumption(question, version, part, contradicted);
        let owner = Arc::new(());
        let mut stream = ResponseStream {
            fetcher: Arc::clone(self),
            version: Arc::clone(version),
            context: Arc::clone(context),
            transfer,
            announced: VecDeque::new(),
            headless: None,
            next: (range.start / version.block_bytes) as u32,
            first: range.start % version.block_bytes,
            end: whole_blocks_end as u32,
            owner: Arc::downgrade(&owner),
            waiters_changed: Arc::new(Notify::new()),
            body: BodyReader::new(body.resumed_by(resumption)),
        };
        let handle = StreamHandle {
            first: Some(stream.announce()?),
            _owner: owner,
            waiters_changed: Arc::clone(&stream.waiters_changed),
        };
        let mut run = Box::pin(stream.run());
        // A small object arrives with the head of the response: a run that does not wait needs no task.
        if run.as_mut().now_or_never().is_none() {
            trace::spawn(run);
        }
        Some(handle)
    }
}

impl ResponseStream {
    /// Announces blocks until the window is full. The stream ends before a block that is cached or in flight
    /// already, so that the lake does not send blocks that this node has.
    ///
    /// Returns the handle of the first block. The handles of the others are dropped at once, because a block
    /// is fetched for its readers and not for the stream itself.
    fn announce(&mut self) -> Option<Waiter> {
        let mut first = None;
        while self.next < self.end && self.announced.len() <= self.fetcher.parts.ahead {
            let first_byte = std::mem::take(&mut self.first);
            match self.fetcher.join_or_lead(
                span_of(&self.version, self.next, first_byte),
                &self.waiters_changed,
            ) {
                Join::Lead(leader, waiter) => {
                    if let Some(transfer) = &self.transfer {
                        leader.carried_by(transfer.clone());
                    }
                    // A node without peers has no capacity to split between layers: misses are counted but
                    // not timed.
                    self.fetcher.requested(&self.version, self.next, false);
                    self.announced.push_back(leader);
                    first.get_or_insert(waiter);
                }
                Join::Joined(_) | Join::Stored => self.end = self.next,
            }
            self.next += 1;
        }
        first
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
            // Announce the next block before this one is complete, so that a reader that takes its last byte
            // finds the next one in flight.
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
                self.fetcher.write_to_store(
                    Arc::clone(&self.version),
                    leader,
                    self.storing(),
                    Arrival::Used,
                    None,
                );
            }
        }
        self.complete_first();
    }

    fn storing(&self) -> Storing {
        Storing {
            urgency: Urgency::Late,
            quotas: self.fetcher.quotas_of(&self.context).ids(),
        }
    }

    async fn bring(&mut self, leader: &Leader) -> Result<(), FetchError> {
        let BlockSpan { len, first, .. } = leader.span();
        let memory = self.fetcher.reserve(&self.context, self.transfer.as_ref(), len);
        leader.hold_memory(memory.await?);
        let check = self.fetcher.peers.integrity.of(&self.version, &self.context)?;
        self.body.fill(leader, len - first, check.as_ref()).await
    }

    /// Requests the head of the first block in a separate task, because the rest of the block has already
    /// been paid for.
    fn complete_first(&mut self) {
        let Some(leader) = self.headless.take() else {
            return;
        };
        let (fetcher, version) = (Arc::clone(&self.fetcher), Arc::clone(&self.version));
        let (context, storing) = (Arc::clone(&self.context), self.storing());
        let transfer = self.transfer.clone();
        trace::spawn(async move {
            let BlockSpan { id, first, .. } = leader.span();
            let head = ByteRange { start: 0, end: first };
            let brought = async {
                let check = fetcher.peers.integrity.of(&version, &context)?;
                fetcher
                    .ask_lake(&version, id.index, head, &context, transfer.as_ref())
                    .await?
                    .fill(&leader, first, check.as_ref())
                    .await
            };
            match brought.await {
                Ok(()) => fetcher.write_to_store(version, leader, storing, Arrival::Used, None),
                Err(error) => leader.fail(error),
            }
        });
    }

    /// Returns true once a reader waits for an announced block, or false if no reader will come.
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

#[cfg(test)]
mod tests {
    use shoal_policy::VersionId;

    use super::*;
    use crate::single_flight::SingleFlight;

    fn block(index: u32) -> BlockId {
        let version = VersionId([7; 16]);
        BlockId { version, index }
    }

    fn handle() -> StreamHandle {
        let span = BlockSpan {
            id: block(3),
            len: 6,
            first: 0,
        };
        let Join::Lead(_leader, waiter) =
            Arc::<SingleFlight>::default().join(span, &Arc::default(), || false)
        else {
            panic!("no other fetch is in flight");
        };
        StreamHandle {
            first: Some(waiter),
            _owner: Arc::default(),
            waiters_changed: Arc::default(),
        }
    }

    #[test]
    fn the_first_block_is_kept_for_a_reader_that_begins_with_it() {
        let mut wanted = handle();
        assert!(wanted.take_first(block(3)).is_some());
        assert!(wanted.take_first(block(3)).is_none(), "it is given once");
        let mut another = handle();
        assert!(another.take_first(block(4)).is_none());
        assert!(
            another.take_first(block(3)).is_none(),
            "a reader does not go back"
        );
    }
}
