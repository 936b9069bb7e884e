//! The work of a node for tasks, whichever node runs them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, StatusCode};
use scopeguard::guard;
use shoal_cache::job_reads::{ReadBlocks, TooManyReads};
use shoal_cache::obtain::Obtain;
use shoal_cache::peer::{BlockRequest, CallerName};
use shoal_cache::read_context::{Purpose, ReadContext};
use shoal_cache::single_flight::FetchError;
use shoal_net::link::{JobBytes, PromiseToJob, TooManyPromises};
use shoal_policy::admission::Refusal;
use shoal_policy::{BlockId, Layer, ObjectId, Source, VersionId};
use shoal_s3::object::Version;
use shoal_store::{Absence, Kept, PinOrder, Store};

use super::TaskParts;
use super::messages::{
    Answer, BlockBits, EarlyAnswer, Evicted, Fill, NotFilled, Pin, PromisedRead, Question,
};
use super::planned_rates::PlannedRates;

/// Answers the questions of tasks to this node.
pub struct TaskHelper {
    pub(super) parts: Arc<TaskParts>,
    rates: PlannedRates,
    /// Bytes on their way to be pinned.
    pinned_bytes_coming: AtomicU64,
}

impl TaskHelper {
    /// Creates the helper of a node with these parts.
    pub fn new(parts: TaskParts) -> Self {
        Self {
            parts: Arc::new(parts),
            rates: PlannedRates::default(),
            pinned_bytes_coming: AtomicU64::new(0),
        }
    }

    /// Answers a question.
    pub async fn answer(&self, question: Question) -> Answer {
        let pinning = &self.parts.cache().store.pinning;
        let kept = |kept: Result<Vec<Kept>, Refusal>| match kept {
            Ok(kept) => Ok(Answer::Kept(kept.into_iter().map(Into::into).collect())),
            Err(refusal) => Err(refusal.to_string()),
        };
        let answer = match question {
            Question::Fill(fill) => self.fill(*fill).await,
            Question::Held(versions) => {
                let held = versions.into_iter().map(|(version, count)| {
                    BlockBits::new(&self.parts.cache().store.blocks_of(VersionId(version)), count)
                });
                Ok(Answer::Bits(held.collect()))
            }
            Question::Pin(pin, objects) => kept(self.pin(pin, objects).await),
            Question::Unpin(before, objects) => kept(pinning.unpin(PinOrder(before), objects).await),
            Question::Manifest(id, offset) => {
                let part = self.parts.order_files.part(id, offset).await;
                part.map(Answer::Manifest).ok_or("it does not have it".into())
            }
            Question::Evict(objects) => {
                let store = Arc::clone(&self.parts.cache().store);
                // Files of thousands of objects may be removed.
                let evict = move || objects.into_iter().map(|object| evict(&store, object)).collect();
                let evicted = tokio::task::spawn_blocking(evict).await;
                evicted.map(Answer::Evicted).map_err(|error| error.to_string())
            }
            Question::Promise(read, objects) => self.promise(*read, objects),
            Question::Observe(job, objects) => {
                let reads = &self.parts.cache().job_reads;
                let read = reads.observe(job, &objects);
                let read = read.map(|read| read.iter().map(read_of).collect());
                read.map(Answer::Reads)
                    .map_err(|TooManyReads| "it counts too many reads".into())
            }
            Question::Blocks(objects) => {
                let store = &self.parts.cache().store;
                let held = objects.into_iter().map(|object| {
                    let blocks = store.newest_blocks_of(object);
                    let count = blocks.last().map_or(0, |last| last.saturating_add(1));
                    BlockBits::new(&blocks, count)
                });
                Ok(Answer::Bits(held.collect()))
            }
            Question::Pinned(objects) => {
                let pinned = objects.into_iter().map(|object| pinning.contains(object));
                Ok(Answer::Pinned(pinned.collect()))
            }
            Question::Release(objects) => {
                let store = Arc::clone(&self.parts.cache().store);
                let release = move || objects.into_iter().map(|object| store.release(object)).sum();
                let released = tokio::task::spawn_blocking(release).await;
                released.map(Answer::Released).map_err(|error| error.to_string())
            }
            Question::Early(orders) => {
                let cache = self.parts.cache();
                let orders = orders.into_iter().map(|order| cache.early.counts(order));
                Ok(Answer::Early(EarlyAnswer {
                    capacity_bytes: cache.store.counters().capacity_bytes,
                    orders: orders.collect(),
                }))
            }
        };
        answer.unwrap_or_else(Answer::Refused)
    }

    /// Gives the reads of a job the rates that a plan has for them.
    fn promise(&self, read: PromisedRead, objects: Vec<ObjectId>) -> Result<Answer, String> {
        let lake = &self.parts.cache().lake;
        let promise = PromiseToJob {
            id: read.job,
            names: read.names,
            rates: read.rates,
            life: Duration::from_millis(read.life_ms),
        };
        if promise.life.is_zero() {
            lake.promises().end(promise.id);
            return Ok(Answer::Promised(JobBytes::default()));
        }
        let given = lake.promises().give(lake.link(), promise, objects);
        let bytes = given.map_err(|TooManyPromises| "it has promised rates to too many reads")?;
        Ok(Answer::Promised(bytes))
    }

    /// Brings a block here, and pins its object if an order keeps it.
    async fn fill(&self, fill: Fill) -> Result<Answer, String> {
        let BlockRequest {
            version,
            index,
            caller,
            name,
            ..
        } = fill.block;
        if version.block_bytes != self.parts.cache().block_bytes {
            return Err("its blocks have another size: [store] block_size differs".into());
        }
        let access_key = match &caller {
            CallerName::Anonymous => None,
            CallerName::AccessKey(key) => Some(&**key),
            CallerName::Unverified => return Err("a task needs an identity that the node knows".into()),
        };
        let caller = self.parts.caller(access_key).map_err(|why| format!("it {why}"))?;
        let name = name.ok_or("it has no name of the object")?;
        let account = self.parts.cache().lake.account_for(&caller);
        let context = ReadContext::of_peer(account, caller, Some(name), HeaderMap::new());
        let purpose = match fill.planned {
            Some(planned) => Purpose::Planned(self.rates.of(planned, self.parts.cache().lake.link())),
            None => Purpose::Prefetch,
        };
        let (context, version) = (Arc::new(context.with_purpose(purpose)), Arc::new(version));
        let filled = async {
            let mut obtain = Obtain::FromHomes(Layer(fill.layer));
            if !self.parts.cache().store.contains(version.block(index)) {
                if fill.pack.is_some() {
                    self.has_room_for(version.block(index), version.block_len(index), fill.pin)?;
                }
                let kept = self.parts.lake.kept(&context, &version, fill.pack).await;
                obtain = kept?.map_or(obtain, Obtain::Kept);
            }
            let _coming = match fill.pin {
                Some(pin) => Some(self.pin_block(pin, &version, index).await?),
                None => None,
            };
            // The blocks of a plan have readers by plan.
            let is_of_plan = fill.planned.is_some_and(|planned| !planned.is_of_hint());
            let order = fill.pin.filter(|_| !is_of_plan).map(|pin| pin.order);
            self.bring_early(&version, index, obtain, &context, order).await
        };
        Ok(filled.await.into())
    }

    async fn pin(&self, pin: Pin, objects: Vec<ObjectId>) -> Result<Vec<Kept>, Refusal> {
        // No order lasts that long; a time that far ahead cannot be computed with.
        let until = Duration::from_millis(pin.until_ms.min(u64::from(u32::MAX) * 1000));
        let pinning = &self.parts.cache().store.pinning;
        pinning
            .pin(PinOrder(pin.order), UNIX_EPOCH + until, objects)
            .await
    }

    /// Pins the object of a block that is about to come, if the store can keep the block: otherwise it is not
    /// worth a request to the lake. Its bytes count as on their way until the result is dropped.
    async fn pin_block(&self, pin: Pin, version: &Version, index: u32) -> Result<impl Sized, Refusal> {
        self.pin(pin, vec![version.object]).await?;
        let (block, bytes) = (version.block(index), version.block_len(index));
        let count = &self.pinned_bytes_coming;
        let all_bytes = count.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let coming = guard((), move |()| {
            let before = count.fetch_sub(bytes, Ordering::Relaxed);
            debug_assert!(before >= bytes, "bytes that come are counted before");
        });
        let store = &self.parts.cache().store;
        if !store.contains(block) {
            store.pinning.admits(block, all_bytes)?;
        }
        Ok(coming)
    }

    /// Checks that a block would be taken, before blocks of its pack are read.
    fn has_room_for(&self, block: BlockId, bytes: u64, pin: Option<Pin>) -> Result<(), NotFilled> {
        if self.parts.fetcher.memory.is_busy() {
            return Err(NotFilled::Busy);
        }
        if pin.is_some() {
            self.parts.cache().store.pinning.admits(block, bytes)?;
        }
        Ok(())
    }

    /// Brings a block here as [`bring`](Self::bring) does, and follows it until a reader asks for it, if an
    /// order keeps it.
    async fn bring_early(
        &self,
        version: &Arc<Version>,
        index: u32,
        obtain: Obtain,
        context: &Arc<ReadContext>,
        order: Option<u128>,
    ) -> Result<Option<Source>, NotFilled> {
        let (block, bytes) = (version.block(index), version.block_len(index));
        let cache = self.parts.cache();
        // A block that a reader waits for already is not brought by the order.
        let is_here = cache.store.contains(block) || cache.single_flight.contains(block);
        let Some(order) = order.filter(|_| !is_here) else {
            return self.bring(version, index, obtain, context).await;
        };
        cache.early.expect(block, bytes, order);
        let brought = self.bring(version, index, obtain, context).await;
        cache
            .early
            .came(block, bytes, order, matches!(brought, Ok(Some(_))));
        brought
    }

    /// Brings a block here in this way. Returns when it is on disk, with the source from which it came;
    /// `None` if it was there.
    async fn bring(
        &self,
        version: &Arc<Version>,
        index: u32,
        obtain: Obtain,
        context: &Arc<ReadContext>,
    ) -> Result<Option<Source>, NotFilled> {
        let (block, fetcher) = (version.block(index), &self.parts.fetcher);
        let store = &fetcher.parts.store;
        let waiter = loop {
            if store.contains(block) {
                return Ok(None);
            }
            if fetcher.memory.is_busy() {
                return Err(NotFilled::Busy);
            }
            if let Some(waiter) = fetcher.join(version, index, context, obtain.clone()) {
                break waiter;
            }
        };
        Err(match waiter.is_stored().await {
            Ok(true) => return Ok(Some(waiter.source())),
            Ok(false) => NotFilled::from(match store.absence(block) {
                Some(Absence::Refused(refusal)) => refusal,
                _ => Refusal::NoRoom,
            }),
            Err(
                FetchError::Status(StatusCode::TOO_MANY_REQUESTS) | FetchError::Busy | FetchError::Abandoned,
            ) => NotFilled::Busy,
            Err(FetchError::Status(status)) if status.is_client_error() => NotFilled::Denied(status),
            Err(FetchError::Changed) => NotFilled::Changed,
            Err(error) => NotFilled::Failed(error.to_string()),
        })
    }
}

fn read_of(read: &ReadBlocks) -> (BlockBits, u64) {
    let whole = read.whole();
    let count = whole.last().map_or(0, |last| last + 1);
    (BlockBits::new(&whole, count), read.partial_bytes())
}

/// Removes an object from the disk, unless it is pinned.
fn evict(store: &Store, object: ObjectId) -> Evicted {
    let is_pinned = store.pinning.contains(object);
    let (blocks, bytes) = if is_pinned {
        (0, 0)
    } else {
        store.removal.remove_object(object)
    };
    Evicted {
        blocks,
        bytes,
        is_pinned,
    }
}
