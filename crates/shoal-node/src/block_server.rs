//! Serves blocks to other nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use shoal_s3::identity::{Caller, Identities};
use shoal_s3::range::ByteRange;
use shoal_store::Store;

use crate::blocks::{BlockReader, BlockStream, FetchPlan, ReadAheadWindow};
use crate::endpoint::Endpoint;
use crate::fair::in_flight::InFlight;
use crate::fetch::{FetchVia, Fetcher};
use crate::front::body::ResponseBody;
use crate::http::connection::ClientBody;
use crate::peer::{ALIVE, BLOCKS, BlockRequest, CallerName, PeerRole, REQUEST_BYTES_MAX};
use crate::read_context::ReadContext;

/// Serves blocks to this node's peers.
pub struct BlockServer {
    identities: Arc<Identities>,
    lake: Arc<Endpoint>,
    store: Arc<Store>,
    fetcher: Arc<Fetcher>,
    block_bytes: u64,
    in_flight: Arc<InFlight>,
    counts: [AtomicU64; ServeOutcome::ALL.len()],
}

/// The outcome of a peer's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServeOutcome {
    /// The peer gets the block.
    Served,
    /// The block is not here, and the peer did not want it fetched.
    NotHeld,
    /// The request would wait for a node that may be waiting for this one.
    Circular,
    /// The request cannot be understood, or the nodes are configured differently.
    Misunderstood,
    /// There are too many requests.
    Busy,
}

impl ServeOutcome {
    /// Every outcome.
    pub const ALL: [Self; 5] = [
        Self::Served,
        Self::NotHeld,
        Self::Circular,
        Self::Misunderstood,
        Self::Busy,
    ];

    /// The label in metrics and `/status`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::NotHeld => "not-held",
            Self::Circular => "circular",
            Self::Misunderstood => "misunderstood",
            Self::Busy => "busy",
        }
    }

    /// The status of the answer.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::Served => StatusCode::OK,
            Self::NotHeld => StatusCode::NOT_FOUND,
            Self::Circular => StatusCode::LOOP_DETECTED,
            Self::Misunderstood => StatusCode::BAD_REQUEST,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

impl BlockServer {
    /// A server of blocks of `block_bytes` that answers `requests_max` requests at a time.
    pub fn new(
        identities: Arc<Identities>,
        lake: Arc<Endpoint>,
        store: Arc<Store>,
        fetcher: Arc<Fetcher>,
        block_bytes: u64,
        requests_max: usize,
    ) -> Self {
        Self {
            identities,
            lake,
            store,
            fetcher,
            block_bytes,
            in_flight: InFlight::new(usize::MAX, requests_max, 0),
            counts: Default::default(),
        }
    }

    /// Answers one request; the block comes with the body, as it arrives.
    pub async fn serve(&self, request: Request<ClientBody>) -> Response<ResponseBody> {
        let answer = self.answer(request).await;
        let outcome = answer.as_ref().err().copied().unwrap_or(ServeOutcome::Served);
        self.counts[outcome as usize].fetch_add(1, Ordering::Relaxed);
        answer.unwrap_or_else(|refusal| {
            let mut response = Response::new(ResponseBody::empty());
            *response.status_mut() = refusal.status();
            response
        })
    }

    /// The number of requests since the start, by outcome.
    pub fn counts(&self) -> [(ServeOutcome, u64); ServeOutcome::ALL.len()] {
        ServeOutcome::ALL.map(|outcome| (outcome, self.counts[outcome as usize].load(Ordering::Relaxed)))
    }

    async fn answer(&self, request: Request<ClientBody>) -> Result<Response<ResponseBody>, ServeOutcome> {
        let place = self
            .in_flight
            .try_enter(&Caller::Anonymous)
            .map_err(|_| ServeOutcome::Busy)?;
        match (request.method(), request.uri().path()) {
            (&Method::GET, ALIVE) => return Ok(Response::new(ResponseBody::empty())),
            (&Method::QUERY, BLOCKS) => {}
            _ => return Err(ServeOutcome::Misunderstood),
        }
        let message = Limited::new(request.into_body(), REQUEST_BYTES_MAX)
            .collect()
            .await;
        let message = message.map_err(|_| ServeOutcome::Misunderstood)?.to_bytes();
        let block = BlockRequest::of_bytes(&message).map_err(|_| ServeOutcome::Misunderstood)?;
        if block.version.block_bytes != self.block_bytes {
            return Err(ServeOutcome::Misunderstood);
        }
        let id = block.version.block(block.index);
        let plan = match block.role {
            PeerRole::Holder if !self.fetcher.holds(id) => return Err(ServeOutcome::NotHeld),
            PeerRole::Holder => FetchPlan::None,
            PeerRole::Claimant if self.fetcher.holds(id) => FetchPlan::None,
            PeerRole::Claimant if !self.fetcher.is_in_flight(id) => return Err(ServeOutcome::NotHeld),
            PeerRole::Claimant if self.fetcher.waits_for_a_node(id) => return Err(ServeOutcome::Circular),
            PeerRole::Claimant => FetchPlan::Join,
            PeerRole::Home(layer) if self.fetcher.waits_for_home(id, layer) => {
                return Err(ServeOutcome::Circular);
            }
            PeerRole::Home(layer) => FetchPlan::All(FetchVia::Route(layer)),
            // No reader waits for the block, so readers come first.
            PeerRole::Successor(_) if self.fetcher.memory().is_busy() => return Err(ServeOutcome::Busy),
            PeerRole::Successor(giver) => FetchPlan::All(FetchVia::Handover(giver)),
            PeerRole::Pushed(_, worth) if !self.fetcher.takes_push(worth) => return Err(ServeOutcome::Busy),
            PeerRole::Pushed(giver, worth) => FetchPlan::All(FetchVia::Push(giver, worth)),
        };
        let context = self.context(&block)?;
        let part = block.part;
        let start = u64::from(block.index) * self.block_bytes;
        let range = ByteRange {
            start: start + part.start,
            end: start + part.end,
        };
        let reader = BlockReader {
            store: Arc::clone(&self.store),
            fetcher: Arc::clone(&self.fetcher),
            version: Arc::new(block.version),
            context: Arc::new(context),
            plan,
        };
        let stream = BlockStream::new(Arc::new(reader), range, ReadAheadWindow { now: 1, max: 1 }, None);
        let mut response = Response::new(ResponseBody::blocks(Box::new(stream), part.len()).holding(place));
        response
            .headers_mut()
            .insert(header::CONTENT_LENGTH, part.len().into());
        Ok(response)
    }

    /// The context in which this node asks the lake on behalf of the peer's caller.
    fn context(&self, block: &BlockRequest) -> Result<ReadContext, ServeOutcome> {
        let caller = match &block.caller {
            CallerName::Anonymous => Caller::Anonymous,
            CallerName::AccessKey(key) => {
                let identity = self.identities.get(key).ok_or(ServeOutcome::Misunderstood)?;
                Caller::Identity(identity)
            }
        };
        let account = self.lake.account_for(&caller);
        Ok(ReadContext::of_peer(
            account,
            caller,
            block.name.clone(),
            block.headers.clone(),
        ))
    }
}
