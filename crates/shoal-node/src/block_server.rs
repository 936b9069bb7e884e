//! Serves blocks and pages to other nodes, and receives their messages.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Collected, Limited};
use shoal_cache::blocks::{BlockReader, BlockStream, ReadAheadWindow};
use shoal_cache::exchange::ResponseBody;
use shoal_cache::messages;
use shoal_cache::obtain::Obtain;
use shoal_cache::peer::{
    ALIVE, BLOCKS, BlockRequest, CallerName, FETCHING, MESSAGES, PAGE_PATH_BYTES_MAX, PAGES,
    REQUEST_BYTES_MAX, purpose,
};
use shoal_cache::read_context::ReadContext;
use shoal_cache::temporary_keys::{self, KEYS};
use shoal_net::collector::Collector;
use shoal_net::fair::in_flight::InFlight;
use shoal_net::http::connection::ClientBody;
use shoal_net::metrics::Counts;
use shoal_net::words;
use shoal_orders::bulletin::{BULLETIN, MESSAGE_BYTES_MAX};
use shoal_orders::tasks::{QUESTION_BYTES_MAX, Question, TASKS, TaskHelper};
use shoal_policy::BlockId;
use shoal_s3::identity::Caller;
use shoal_s3::range::ByteRange;

use crate::core::Core;

/// Returns a page of this node for operators, given its path and query; `None` if there is no such page.
pub type PageSource = Arc<dyn Fn(String) -> BoxFuture<'static, Option<String>> + Send + Sync>;

/// Serves blocks to this node's peers.
pub struct BlockServer {
    core: Arc<Core>,
    /// Performs this node's part of tasks.
    tasks: Arc<TaskHelper>,
    in_flight: Arc<InFlight>,
    /// Pages of this node, set during start-up. Operators ask one node, which asks the others.
    pages: OnceLock<PageSource>,
    /// Requests for blocks since the start, by outcome, and other requests that failed.
    pub(crate) counts: Counts<ServeOutcome>,
}

words! {
    /// Outcome of a peer's request.
    pub enum ServeOutcome {
        /// The block is being sent.
        Served = "served",
        /// The block is not here, and the peer did not want it fetched.
        NotHeld = "not-held",
        /// The request would wait for a node that may be waiting for this one.
        Circular = "circular",
        /// The request is malformed, or the nodes are configured differently.
        Misunderstood = "misunderstood",
        /// Too many requests are in flight.
        Busy = "busy",
    }
}

impl ServeOutcome {
    /// Status of the response.
    const fn status(self) -> StatusCode {
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
    /// Creates a server that answers as many requests at a time as the node does for clients.
    pub(crate) fn new(core: Arc<Core>, tasks: Arc<TaskHelper>) -> Self {
        Self {
            in_flight: InFlight::new(usize::MAX, core.config.limits.requests, 0),
            core,
            tasks,
            pages: OnceLock::new(),
            counts: Counts::default(),
        }
    }

    /// Makes the pages of this node available to other nodes.
    pub fn show(&self, pages: PageSource) {
        let _ = self.pages.set(pages);
    }

    /// Answers one request; a block is streamed as it arrives.
    pub async fn serve(&self, request: Request<ClientBody>) -> Response<ResponseBody> {
        // Messages between nodes arrive every second and are not block traffic.
        let is_news = matches!(
            request.uri().path(),
            ALIVE | MESSAGES | BULLETIN | KEYS | TASKS | PAGES
        );
        let name = match request.uri().path() {
            BLOCKS => "serve_block",
            _ => "serve_node",
        };
        let collector = self.core.collector.as_ref();
        let begin = |collector: &Arc<Collector>| collector.tracer.begin_for_node(name, request.headers());
        let mut span = collector.and_then(begin);
        let answer = match &span {
            None => self.answer(request).await,
            Some(span) => Box::pin(span.parent().around(self.answer(request))).await,
        };
        let outcome = answer.as_ref().err().copied().unwrap_or(ServeOutcome::Served);
        if !is_news || outcome != ServeOutcome::Served {
            self.counts.count(outcome);
        }
        let response = answer.unwrap_or_else(|refusal| {
            let mut response = Response::new(ResponseBody::empty());
            *response.status_mut() = refusal.status();
            response
        });
        match span.take() {
            None => response,
            Some(mut span) => {
                span.answered(response.status());
                response.map(|body| body.traced(span))
            }
        }
    }

    async fn answer(&self, request: Request<ClientBody>) -> Result<Response<ResponseBody>, ServeOutcome> {
        let place = self
            .in_flight
            .try_enter(&Caller::Anonymous)
            .map_err(|_| ServeOutcome::Busy)?;
        match (request.method(), request.uri().path()) {
            (&Method::GET, ALIVE) => return Ok(Response::new(ResponseBody::empty())),
            (&Method::POST, MESSAGES) => return self.receive(request.into_body()).await,
            (&Method::QUERY, BLOCKS) => {}
            (&Method::QUERY, BULLETIN) => {
                let message = read(request.into_body(), MESSAGE_BYTES_MAX).await?;
                let answer = self.core.bulletin.answer(&message);
                return Ok(answered(answer.ok_or(ServeOutcome::Misunderstood)?));
            }
            (&Method::QUERY, KEYS) => {
                let message = read(request.into_body(), temporary_keys::MESSAGE_BYTES_MAX).await?;
                let keys = self.core.keys.as_ref();
                let answer = keys.and_then(|keys| keys.answer(&message));
                return Ok(answered(answer.ok_or(ServeOutcome::Misunderstood)?));
            }
            (&Method::QUERY, TASKS) => {
                let question = read(request.into_body(), QUESTION_BYTES_MAX).await?;
                let question = Question::from_bytes(&question).map_err(|_| ServeOutcome::Misunderstood)?;
                let answer = self.tasks.answer(question).await;
                return Ok(answered(answer.to_bytes()));
            }
            (&Method::QUERY, PAGES) => {
                let asked = read(request.into_body(), PAGE_PATH_BYTES_MAX).await?;
                let asked = String::from_utf8(asked.into()).map_err(|_| ServeOutcome::Misunderstood)?;
                let pages = self.pages.get().ok_or(ServeOutcome::NotHeld)?;
                let page = pages(asked).await.ok_or(ServeOutcome::Misunderstood)?;
                return Ok(answered(page.into_bytes()));
            }
            _ => return Err(ServeOutcome::Misunderstood),
        }
        let purpose = purpose(request.headers(), self.core.lake.promises());
        let message = read(request.into_body(), REQUEST_BYTES_MAX).await?;
        let block = BlockRequest::of_bytes(&message).map_err(|_| ServeOutcome::Misunderstood)?;
        let block_bytes = self.core.config.store.block_bytes;
        if block.version.block_bytes != block_bytes {
            return Err(ServeOutcome::Misunderstood);
        }
        let id = block.version.block(block.index);
        let is_held = self.core.fetcher.holds(id);
        let obtain = self.admit(id, is_held, block.obtain.clone())?;
        let context = self.context(&block).await?.with_purpose(purpose);
        let part = block.part;
        let start = u64::from(block.index) * block_bytes;
        let range = ByteRange::new(start + part.start, start + part.end);
        let (version, context) = (Arc::new(block.version), Arc::new(context));
        let reader = BlockReader {
            fetcher: Arc::clone(&self.core.fetcher),
            version,
            context,
            obtain,
        };
        let stream = BlockStream::new(reader, range, ReadAheadWindow { now: 1, max: 1 }, None);
        let mut response = Response::new(ResponseBody::blocks(Box::new(stream), part.len()).holding(place));
        response
            .headers_mut()
            .insert(header::CONTENT_LENGTH, part.len().into());
        if !is_held {
            response
                .headers_mut()
                .insert(FETCHING, HeaderValue::from_static("1"));
        }
        Ok(response)
    }

    /// Returns how this node obtains a block for a peer, which asked for it in this way.
    fn admit(&self, id: BlockId, is_held: bool, asked: Obtain) -> Result<Obtain, ServeOutcome> {
        let (fetcher, single_flight) = (&self.core.fetcher, &self.core.single_flight);
        match asked {
            Obtain::Join if is_held => Ok(Obtain::Locally),
            Obtain::Locally if !is_held => Err(ServeOutcome::NotHeld),
            Obtain::Join if !single_flight.contains(id) => Err(ServeOutcome::NotHeld),
            Obtain::Join if single_flight.awaited(id).is_some() => Err(ServeOutcome::Circular),
            Obtain::FromHomes(layer) | Obtain::FromPack(layer, _) if fetcher.waits_for_home(id, layer) => {
                Err(ServeOutcome::Circular)
            }
            // No reader waits for the block, so readers of other blocks go first.
            Obtain::Handover(_) if fetcher.memory.is_busy() => Err(ServeOutcome::Busy),
            Obtain::Push(_, worth) if !fetcher.takes_push(worth) => Err(ServeOutcome::Busy),
            asked => Ok(asked),
        }
    }

    /// Receives a batch of messages.
    async fn receive(&self, body: ClientBody) -> Result<Response<ResponseBody>, ServeOutcome> {
        let batch = read(body, messages::BODY_BYTES_MAX).await?;
        let mut response = Response::new(ResponseBody::empty());
        *response.status_mut() = self.core.messages.receive(&batch).status();
        Ok(response)
    }

    /// Returns the context in which this node asks the lake on behalf of the peer's caller.
    async fn context(&self, block: &BlockRequest) -> Result<ReadContext, ServeOutcome> {
        let caller = match &block.caller {
            CallerName::Anonymous => Caller::Anonymous,
            CallerName::AccessKey(key) => {
                let identities = &self.core.identities;
                let mut identity = identities.get(key);
                if let (None, Some(keys)) = (&identity, &self.core.keys) {
                    Box::pin(keys.find(key)).await;
                    identity = identities.get(key);
                }
                if let (None, Some(sources)) = (&identity, &self.core.key_sources) {
                    Box::pin(sources.find(key)).await;
                    identity = identities.get(key);
                }
                Caller::Identity(identity.ok_or(ServeOutcome::Misunderstood)?)
            }
            CallerName::Unverified => Caller::Unverified,
        };
        let account = match caller {
            Caller::Unverified => self.core.lake.credentials.own().ok_or(ServeOutcome::NotHeld)?,
            _ => self.core.lake.account_for(&caller),
        };
        Ok(ReadContext::of_peer(
            account,
            caller,
            block.name.clone(),
            block.headers.clone(),
        ))
    }
}

/// Reads a body, up to `bytes_max`.
async fn read(body: ClientBody, bytes_max: usize) -> Result<Bytes, ServeOutcome> {
    let body = Limited::new(body, bytes_max).collect().await;
    body.map(Collected::to_bytes)
        .map_err(|_| ServeOutcome::Misunderstood)
}

fn answered(answer: Vec<u8>) -> Response<ResponseBody> {
    Response::new(ResponseBody::full(answer.into()))
}
