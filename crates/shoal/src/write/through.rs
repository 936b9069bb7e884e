//! Writes through the cache: what the lake has committed is where a read would have put it.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use shoal_policy::route::Stop;
use shoal_policy::{Layer, NodeId, ObjectId};

use super::Uncached;
use super::finishing::{Finishing, Unfinished};
use super::gathering::{Gathered, Gathering};
use crate::catalog::{Catalog, Checksums};
use crate::clock;
use crate::cooperation::Cooperation;
use crate::endpoint::Endpoint;
use crate::fetch::Fetcher;
use crate::front::operation::{Classified, Operation};
use crate::identity::{Caller, CallerId};
use crate::object::{ObjectName, Version};
use crate::origin::Origin;
use crate::peer::BlockRequest;
use crate::store::Store;

/// An object may take this part of the disk, for its blocks cannot make room for each other before they have names.
pub const OBJECT_PART_OF_CAPACITY: u64 = 4;

/// Blocks of one object offered to their homes at a time.
const OFFERS: usize = 4;

/// What a HEAD in the writer's name needs of the writer's headers.
const HEADERS_OF_THE_REQUESTER: [HeaderName; 2] = [
    HeaderName::from_static("x-amz-request-payer"),
    HeaderName::from_static("x-amz-expected-bucket-owner"),
];

/// Puts what was written where a read would have put it.
pub struct Through {
    lake: Arc<Endpoint>,
    catalog: Arc<Catalog>,
    store: Arc<Store>,
    fetcher: Arc<Fetcher>,
    cooperation: Arc<Cooperation>,
    block_bytes: u64,
    object_bytes_max: u64,
    finishing: Finishing,
    /// Held by every task that still does something for a write.
    underway: Arc<()>,
}

/// An object that the lake has taken.
#[derive(Debug)]
pub struct Written {
    /// Its name.
    pub name: ObjectName,
    /// Who wrote it.
    pub caller: CallerId,
    /// In whose name the lake is asked about it.
    pub origin: Arc<Origin>,
    /// What the lake calls the version it has committed.
    pub etag: HeaderValue,
}

impl Through {
    /// `capacity_bytes` is that of the disk.
    pub fn new(
        lake: Arc<Endpoint>,
        catalog: Arc<Catalog>,
        store: Arc<Store>,
        fetcher: Arc<Fetcher>,
        cooperation: Arc<Cooperation>,
        (block_bytes, capacity_bytes): (u64, u64),
    ) -> Self {
        Self {
            lake,
            catalog,
            store,
            fetcher,
            cooperation,
            block_bytes,
            object_bytes_max: capacity_bytes / OBJECT_PART_OF_CAPACITY,
            finishing: Finishing::default(),
            underway: Arc::default(),
        }
    }

    /// Prepares for the bytes of a write.
    pub fn gather(&self, classified: &Classified, parts: &Parts) -> Result<Gathering, Uncached> {
        let size_bytes = size_to_gather(classified, parts)?;
        if size_bytes > self.object_bytes_max {
            return Err(Uncached::TooLarge);
        }
        let (store, fetcher) = (Arc::clone(&self.store), Arc::clone(&self.fetcher));
        Ok(Gathering::new(store, fetcher, size_bytes, self.block_bytes))
    }

    /// In whose name the lake is asked about what `caller` writes.
    pub fn origin(&self, classified: &Classified, parts: &Parts, caller: &Caller) -> Arc<Origin> {
        let target = PathAndQuery::try_from(classified.target.path()).expect("a path is a target");
        let mut headers = HeaderMap::new();
        for name in HEADERS_OF_THE_REQUESTER {
            headers.extend(
                parts
                    .headers
                    .get(&name)
                    .map(|value| (name.clone(), value.clone())),
            );
        }
        let account = self.lake.account_for(caller);
        Arc::new(Origin::of_peer(account, caller.clone(), target, headers))
    }

    /// Goes on in a task of its own when the lake has answered; who reads the object meanwhile through this node waits for a moment.
    pub fn commit(self: &Arc<Self>, gathering: &Gathering, written: Written) -> Result<(), Uncached> {
        let gathered = gathering.finish()?;
        let unfinished = self.finishing.begin(written.name.id(self.lake.url()));
        let (this, underway) = (Arc::clone(self), Arc::clone(&self.underway));
        tokio::spawn(async move {
            this.finish(gathered, &written, unfinished).await;
            drop(underway);
        });
        Ok(())
    }

    /// What a read of the object should wait for, if anything: a moment at most.
    pub fn unsettled(&self, object: ObjectId) -> Option<impl Future<Output = ()> + use<>> {
        self.finishing.ended(object)
    }

    /// Objects that are being finished, or handed over to other nodes, now.
    pub fn underway(&self) -> usize {
        Arc::strong_count(&self.underway) - 1
    }

    async fn finish(self: Arc<Self>, gathered: Gathered, written: &Written, unfinished: Unfinished) {
        let Some(version) = self.version(&gathered, written, unfinished.object()).await else {
            // Somebody else wrote it meanwhile, the writer may not read it, or the lake is in trouble: the blocks have no name.
            tracing::debug!(object = ?written.name, "what was written through is not kept");
            return;
        };
        let Gathered { mut drafts, last, .. } = gathered;
        for (index, drafting) in (0..).zip(std::mem::take(&mut drafts.0)) {
            // A block that is not there costs a way to the lake; the store has counted the reason.
            if let Ok(Ok(draft)) = drafting.await {
                let _refused = draft.name(Arc::clone(&version), index).await;
            }
        }
        let landing = last.and_then(|last| {
            let (pieces, room) = last.into_pieces();
            self.fetcher
                .land_written(&version, version.block_count() - 1, pieces, room)
        });
        // Here every block is found now, the last one perhaps in memory.
        drop(unfinished);
        if let Some(landing) = landing {
            landing.await;
        }
        self.hand_over(&version).await;
    }

    /// What the lake says of the object, if it is still what was written. It is asked in the writer's name, as for any read.
    async fn version(
        &self,
        gathered: &Gathered,
        written: &Written,
        object: ObjectId,
    ) -> Option<Arc<Version>> {
        let asked = (self.catalog.epoch(&written.name), clock::instant());
        let answer = self.lake.send(written.origin.request(Method::HEAD)).await.ok()?;
        let headers = answer.headers();
        let size_bytes = number(headers, &header::CONTENT_LENGTH)?;
        let is_ours = answer.status() == StatusCode::OK
            && headers.get(header::ETAG) == Some(&written.etag)
            && size_bytes == gathered.size_bytes;
        if !is_ours {
            return None;
        }
        let version = Version::from_response(object, headers, size_bytes, self.block_bytes).ok()?;
        let version = Arc::new(version);
        self.catalog
            .learn(written.caller, &written.name, &version, Checksums::Unasked, asked);
        Some(version)
    }

    /// Offers each block to the other nodes that a read through this one would have brought it through.
    async fn hand_over(&self, version: &Arc<Version>) {
        let offers = (0..version.block_count()).flat_map(|index| {
            let block = version.block(index);
            let stops = self.cooperation.route(block, Layer::L1, &[]);
            let homes = stops.into_iter().filter_map(|stop| match stop {
                Stop::Home(node, _) => Some(node),
                Stop::Local | Stop::FormerHome(_) | Stop::Lake => None,
            });
            let is_here = self.store.contains(block);
            homes.filter(move |_| is_here).map(move |node| (index, node))
        });
        stream::iter(offers)
            .for_each_concurrent(OFFERS, |(index, node)| self.offer(version, index, node))
            .await;
    }

    async fn offer(&self, version: &Arc<Version>, index: u32, node: NodeId) {
        let Some(peer) = self.cooperation.peer(node) else {
            return;
        };
        let request = BlockRequest::offer(version, index, self.cooperation.me());
        // A home that does not take it asks the lake when it is read.
        if let Err(error) = peer.offer(&request).await {
            tracing::debug!(peer = peer.name(), %error, "a block that was written is not taken");
        }
    }
}

/// How long the object will be, if its bytes can be gathered.
pub fn size_to_gather(classified: &Classified, parts: &Parts) -> Result<u64, Uncached> {
    let headers = &parts.headers;
    if classified.operation != Operation::PutObject {
        return Err(Uncached::Multipart);
    }
    if headers.contains_key("x-amz-copy-source") {
        return Err(Uncached::Copy);
    }
    if headers.contains_key("x-amz-server-side-encryption-customer-algorithm") {
        return Err(Uncached::SseC);
    }
    if ["versionId", "partNumber"]
        .iter()
        .any(|name| classified.query.has(name))
    {
        return Err(Uncached::Dialect);
    }
    number(headers, &HeaderName::from_static("x-amz-decoded-content-length"))
        .or_else(|| number(headers, &header::CONTENT_LENGTH))
        .ok_or(Uncached::NoLength)
}

fn number(headers: &HeaderMap, name: &HeaderName) -> Option<u64> {
    headers.get(name)?.to_str().ok()?.parse().ok()
}
