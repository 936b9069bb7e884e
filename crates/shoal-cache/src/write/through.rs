//! Writes through the cache: caches an object that the lake has committed where a read would have cached it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use http::request::Parts;
use http::{HeaderMap, HeaderName, header};
use shoal_policy::route::Stop;
use shoal_policy::{Layer, ObjectId};
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::operation::{Classified, Operation};
use shoal_store::{Storing, Urgency};

use super::Uncached;
use super::body_copy::{BodyCopy, CopiedBody};
use super::parts::PartTable;
use crate::fetch::Fetcher;
use crate::nodes::peer::BlockRequest;
use crate::single_flight::Underway;

/// Divisor of the disk's capacity that limits the size of one object: the blocks of an object cannot evict
/// each other before they have names.
pub const OBJECT_PART_OF_CAPACITY: u64 = 4;

/// Longest time that a read waits for a commit before it asks the lake like any other read.
const PENDING_MAX: Duration = Duration::from_secs(1);

/// Number of blocks of one object that are offered to their homes in parallel.
const OFFERS: usize = 4;

/// Stores written blocks where a read would have stored them.
pub struct WriteThrough {
    pub(super) fetcher: Arc<Fetcher>,
    pub(super) object_bytes_max: u64,
    /// Objects that the lake has committed but whose blocks cannot be found yet.
    pub(super) pending_commits: Underway,
    /// Cloned by every task that still works on a write.
    pub(super) underway: Arc<()>,
    /// The parts of open uploads.
    pub(super) aside: PartTable,
}

/// The nodes that get the blocks of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// This node and the homes, as after a read through this node.
    Homes,
    /// This node only.
    Here,
}

impl WriteThrough {
    /// Stores blocks among the parts of `fetcher`, whose store has this capacity.
    pub fn new(fetcher: Arc<Fetcher>, capacity_bytes: u64) -> Self {
        Self {
            fetcher,
            object_bytes_max: capacity_bytes / OBJECT_PART_OF_CAPACITY,
            pending_commits: Underway::default(),
            underway: Arc::default(),
            aside: PartTable::default(),
        }
    }

    /// Prepares to copy the bytes of a write.
    ///
    /// # Errors
    ///
    /// The reason why the object is not cached. The write itself continues.
    pub fn gather(
        &self,
        classified: &Classified,
        parts: &Parts,
        caller: &Caller,
        name: &ObjectName,
    ) -> Result<BodyCopy, Uncached> {
        self.copy(size_to_copy(classified, parts)?, caller, name)
    }

    /// Prepares to copy the bytes of an object of `size_bytes`, which `caller` brings under `name`.
    ///
    /// # Errors
    ///
    /// The object is too large for the cache.
    pub fn copy(&self, size_bytes: u64, caller: &Caller, name: &ObjectName) -> Result<BodyCopy, Uncached> {
        if size_bytes > self.object_bytes_max {
            return Err(Uncached::TooLarge);
        }
        let quotas = self.fetcher.parts.quotas.of(caller, Some(name)).ids();
        Ok(BodyCopy::new(Arc::clone(&self.fetcher), size_bytes, quotas))
    }

    /// Starts a task that caches a committed object. The headers in `answer` identify its version. Until the
    /// task is done, reads of the object through this node wait, for up to a second.
    ///
    /// # Errors
    ///
    /// The reason why the object is not cached. It is committed all the same.
    pub fn commit(
        self: &Arc<Self>,
        copy: &BodyCopy,
        (object, answer): (ObjectId, &HeaderMap),
        spread: Spread,
    ) -> Result<(), Uncached> {
        let copied = copy.finish()?;
        let version = Version::from_write(object, answer, copied.size_bytes, self.fetcher.parts.block_bytes);
        // Only a missing ETag is left as the reason, because the size was checked before.
        let version = version.map_err(|_| Uncached::NoEtag)?;
        self.cache(copied, Arc::new(version), spread);
        Ok(())
    }

    /// Starts a task that caches a complete copy of the bytes of a version. Until it is done, reads of the
    /// object through this node wait, for up to a second.
    pub(crate) fn cache(self: &Arc<Self>, copied: CopiedBody, version: Arc<Version>, spread: Spread) {
        let pending = self.pending_commits.begin(version.object);
        let (this, underway) = (Arc::clone(self), Arc::clone(&self.underway));
        tokio::spawn(async move {
            let landing = this.finish(copied, &version, Urgency::Late).await;
            // A version is found by its blocks on disk, and there may be none yet.
            this.fetcher.parts.grants.introduce(&version);
            drop(pending);
            match spread {
                Spread::Homes => drop(tokio::join!(landing, this.hand_over(&version))),
                Spread::Here => landing.await,
            }
            drop(underway);
        });
    }

    /// Starts a task that offers this node's blocks of a version to their homes.
    pub fn spread(self: &Arc<Self>, version: &Arc<Version>) {
        let (this, underway) = (Arc::clone(self), Arc::clone(&self.underway));
        let version = Arc::clone(version);
        tokio::spawn(async move {
            this.hand_over(&version).await;
            drop(underway);
        });
    }

    /// Returns the future that a read of the object should wait for, if any. It ends within a second.
    pub fn pending_commit(&self, object: ObjectId) -> Option<impl Future<Output = ()> + use<>> {
        let ended = self.pending_commits.ended(object)?;
        Some(async move {
            // After the timeout, the lake serves the read faster.
            let _ = tokio::time::timeout(PENDING_MAX, ended.wait()).await;
        })
    }

    /// Returns the number of objects that are being finished or offered to other nodes.
    pub fn underway(&self) -> usize {
        Arc::strong_count(&self.underway) - 1
    }

    /// Names the blocks on disk, and writes those in memory there by `urgency`; the returned future ends when
    /// they are on disk. Reads find all of them from now on.
    pub(super) async fn finish(
        &self,
        copied: CopiedBody,
        version: &Arc<Version>,
        urgency: Urgency,
    ) -> impl Future<Output = ()> + use<> {
        let CopiedBody {
            quotas,
            mut drafts,
            in_memory,
            ..
        } = copied;
        let behind = drafts.0.len() as u32;
        let blocks = behind + in_memory.len() as u32;
        assert_eq!(
            blocks,
            version.block_count(),
            "a copy has every block of its version"
        );
        for (index, drafting) in (0..).zip(std::mem::take(&mut drafts.0)) {
            // A missing block costs a request to the lake; the store has counted the reason.
            if let Ok(Ok(draft)) = drafting.await {
                let _refused = draft.name(Arc::clone(version), index, quotas).await;
            }
        }
        let storing = Storing { urgency, quotas };
        let landings = (behind..).zip(in_memory).filter_map(|(index, block)| {
            self.fetcher
                .insert_written(version, index, block.into_pieces(), storing)
        });
        let landings: Vec<_> = landings.collect();
        async move {
            join_all(landings).await;
        }
    }

    /// Offers each block to the other nodes that a read through this one would have fetched it by.
    pub(super) async fn hand_over(&self, version: &Arc<Version>) {
        let cooperation = &self.fetcher.parts.cooperation;
        let offers = (0..version.block_count()).flat_map(|index| {
            let block = version.block(index);
            let stops = cooperation.route(block, Layer::L1, &[]);
            let homes = stops.into_iter().filter_map(|stop| match stop {
                Stop::Home(node, _) => Some(node),
                Stop::FormerHome(_) => None,
            });
            let is_for_homes = self.fetcher.uses_homes(version.block_len(index)) && self.fetcher.holds(block);
            homes.filter(move |_| is_for_homes).map(move |node| (index, node))
        });
        stream::iter(offers)
            .for_each_concurrent(OFFERS, |(index, node)| async move {
                let request = BlockRequest::offer(version, index, cooperation.me);
                // A home that does not accept the block fetches it from the lake when it is read.
                if let Some(Err(error)) = cooperation.offer(&request, node).await {
                    let peer = cooperation.name_of(node);
                    tracing::debug!(peer, %error, "the home of a written block did not store it");
                }
            })
            .await;
    }
}

/// Returns the length of the object to be written, if its bytes can be copied.
///
/// # Errors
///
/// The reason why the bytes cannot be cached.
pub fn size_to_copy(classified: &Classified, parts: &Parts) -> Result<u64, Uncached> {
    if classified.operation != Operation::PutObject {
        return Err(Uncached::Multipart);
    }
    let is_special = ["versionId", "partNumber"]
        .iter()
        .any(|name| classified.query.has(name));
    match size_of_body(&parts.headers) {
        Ok(_) | Err(Uncached::NoLength) if is_special => Err(Uncached::Dialect),
        size_bytes => size_bytes,
    }
}

/// Returns the length of the body, if its bytes can be copied.
pub(super) fn size_of_body(headers: &HeaderMap) -> Result<u64, Uncached> {
    if headers.contains_key("x-amz-copy-source") {
        return Err(Uncached::Copy);
    }
    if headers.contains_key("x-amz-server-side-encryption-customer-algorithm") {
        return Err(Uncached::SseC);
    }
    number(headers, &HeaderName::from_static("x-amz-decoded-content-length"))
        .or_else(|| number(headers, &header::CONTENT_LENGTH))
        .ok_or(Uncached::NoLength)
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}
