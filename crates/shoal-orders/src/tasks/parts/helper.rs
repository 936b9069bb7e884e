//! The work of a node for tasks, whichever node runs them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::HeaderMap;
use shoal_cache::fetch::Fetcher;
use shoal_cache::lake::{Lake, LakeRefusal};
use shoal_cache::obtain::Obtain;
use shoal_cache::peer::CallerName;
use shoal_cache::read_context::{Purpose, ReadContext};
use shoal_net::endpoint::Endpoint;
use shoal_net::link::TooManyPromises;
use shoal_policy::ObjectId;
use shoal_s3::identity::{Caller, Identities};
use shoal_store::Store;

use super::fill::{Filler, NotFilled};
use super::manifests::Manifests;
use super::messages::{Answer, BlockBits, Evicted, Fill, PromisedRead, Question};
use super::planned_rates::PlannedRates;

/// Answers the questions of tasks to this node.
pub struct TaskHelper {
    store: Arc<Store>,
    filler: Filler,
    identities: Arc<Identities>,
    lake: Arc<dyn Lake>,
    endpoint: Arc<Endpoint>,
    manifests: Arc<Manifests>,
    rates: PlannedRates,
    block_bytes: u64,
    /// Bytes on their way to be pinned.
    pinned_bytes_coming: AtomicU64,
}

/// Bytes on their way to be pinned, until it is dropped.
struct Coming<'a> {
    bytes: u64,
    /// These, and all that were on their way before.
    all_bytes: u64,
    count: &'a AtomicU64,
}

impl<'a> Coming<'a> {
    fn of(count: &'a AtomicU64, bytes: u64) -> Self {
        Self {
            bytes,
            all_bytes: count.fetch_add(bytes, Ordering::Relaxed) + bytes,
            count,
        }
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl TaskHelper {
    /// The helper of a node with these parts.
    pub fn new(
        store: &Arc<Store>,
        fetcher: &Arc<Fetcher>,
        identities: &Arc<Identities>,
        (lake, endpoint): (&Arc<dyn Lake>, &Arc<Endpoint>),
        manifests: &Arc<Manifests>,
        block_bytes: u64,
    ) -> Self {
        Self {
            store: Arc::clone(store),
            filler: Filler::new(store, fetcher),
            identities: Arc::clone(identities),
            lake: Arc::clone(lake),
            endpoint: Arc::clone(endpoint),
            manifests: Arc::clone(manifests),
            rates: PlannedRates::default(),
            block_bytes,
            pinned_bytes_coming: AtomicU64::new(0),
        }
    }

    /// Does what is asked.
    pub async fn answer(&self, question: Question) -> Answer {
        match question {
            Question::Fill(fill) => self.fill(*fill).await,
            Question::Held(versions) => Answer::Held(
                versions
                    .into_iter()
                    .map(|(version, count)| BlockBits::of(&self.store.blocks_of(version), count))
                    .collect(),
            ),
            Question::Pin(pin, objects) => {
                match self.store.pinning().pin(pin.order, pin.until, objects).await {
                    Ok(kept) => Answer::Kept(kept),
                    Err(refusal) => Answer::Refused(refusal.as_str().into()),
                }
            }
            Question::Unpin(before, objects) => match self.store.pinning().unpin(before, objects).await {
                Ok(kept) => Answer::Kept(kept),
                Err(refusal) => Answer::Refused(refusal.as_str().into()),
            },
            Question::Manifest(id, offset) => {
                let part = self.manifests.part(id, offset).await;
                part.map_or_else(|| Answer::Refused("it does not have it".into()), Answer::Manifest)
            }
            Question::Evict(objects) => {
                let evicted = objects.into_iter().map(|object| self.evict(object));
                Answer::Evicted(evicted.collect())
            }
            Question::Promise(read, objects) => self.promise(read, objects),
        }
    }

    /// Lets reads have the rate that a plan promises. Without a metered link each has all there is.
    fn promise(&self, read: PromisedRead, objects: Vec<ObjectId>) -> Answer {
        let Some((link, promises)) = self.endpoint.promises() else {
            return Answer::Promised;
        };
        if read.life.is_zero() {
            promises.end(read.id);
            return Answer::Promised;
        }
        match promises.give(link, (read.id, read.bytes_per_second), read.life, objects) {
            Ok(()) => Answer::Promised,
            Err(TooManyPromises) => Answer::Refused("it has promised rates to too many reads".into()),
        }
    }

    async fn fill(&self, fill: Fill) -> Answer {
        if fill.version.block_bytes != self.block_bytes {
            return Answer::Refused("its blocks have another size: [store] block_size differs".into());
        }
        let caller = match &fill.caller {
            CallerName::Anonymous => Caller::Anonymous,
            CallerName::AccessKey(key) => match self.identities.get(key) {
                Some(identity) => Caller::Identity(identity),
                None => {
                    return Answer::Refused(format!("it has no [[identity]] with the access key {key:?}"));
                }
            },
        };
        let account = self.endpoint.account_for(&caller);
        let context = ReadContext::of_peer(account, caller, Some(fill.name.clone()), HeaderMap::new());
        let purpose = match fill.planned {
            Some(planned) => Purpose::Planned(self.rates.of(planned, self.endpoint.link())),
            None => Purpose::Prefetch,
        };
        let context = Arc::new(context.with_purpose(purpose));
        let (version, index) = (&fill.version, fill.index);
        let obtain = match self.obtain(&fill, context.caller()).await {
            Ok(obtain) => obtain,
            Err(error) => return Answer::Filled(Err(NotFilled::Failed(error.to_string()))),
        };
        let Some(pin) = fill.pin else {
            return Answer::Filled(self.filler.fill(version, index, obtain, &context).await);
        };
        if let Err(refusal) = self
            .store
            .pinning()
            .pin(pin.order, pin.until, vec![version.object])
            .await
        {
            return Answer::Filled(Err(NotFilled::Refused(refusal)));
        }
        let (block, bytes) = (version.block(index), version.block_len(index));
        let coming = Coming::of(&self.pinned_bytes_coming, bytes);
        // A block that the store cannot keep is not worth a request to the lake.
        if !self.store.contains(block)
            && let Err(refusal) = self.store.pinning().admits(block, coming.all_bytes)
        {
            return Answer::Filled(Err(NotFilled::Refused(refusal)));
        }
        Answer::Filled(self.filler.fill(version, index, obtain, &context).await)
    }

    /// Returns how this node obtains a block that it is to hold.
    async fn obtain(&self, fill: &Fill, caller: &Caller) -> Result<Obtain, LakeRefusal> {
        let from_homes = Obtain::FromHomes(fill.layer);
        if self.store.contains(fill.version.block(fill.index)) {
            return Ok(from_homes);
        }
        let kept = self.lake.kept(caller, &fill.name, &fill.version).await?;
        Ok(kept.map_or(from_homes, Obtain::Kept))
    }

    fn evict(&self, object: ObjectId) -> Evicted {
        if self.store.pinning().contains(object) {
            return Evicted {
                is_pinned: true,
                ..Evicted::default()
            };
        }
        let (blocks, bytes) = self.store.remove_object(object);
        Evicted {
            blocks,
            bytes,
            is_pinned: false,
        }
    }
}
