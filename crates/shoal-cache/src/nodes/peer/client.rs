//! Sends requests to other nodes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use http::uri::PathAndQuery;
use http::{HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use parking_lot::Mutex;
use shoal_net::channel::Channel;
use shoal_net::clock;
use shoal_net::endpoint::{Endpoint, EndpointError, EndpointRequest, LakeAccount, LakeBody, RequestBody};
use shoal_net::link::{Flow, Transfer};
use shoal_policy::circuit_breaker::CircuitBreaker;
use shoal_s3::identity::NODE;

use super::request::{BLOCKS, BlockRequest};
use super::{ALIVE, CLASS, FETCHING, JOB, MESSAGES, job_header};

/// Time within which a healthy peer answers whether it will send a block. After it, the request has failed.
const HEAD_PATIENCE: Duration = Duration::from_secs(1);

/// Time within which an offered block must arrive.
const OFFER_PATIENCE: Duration = Duration::from_secs(30);

/// Longest pause between probes of an unresponsive peer.
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Another node that can be asked for blocks.
pub struct Peer {
    /// The peer's name.
    pub name: String,
    /// The address at which the peer is reached.
    pub(crate) address: SocketAddr,
    endpoint: Endpoint,
    breaker: Mutex<CircuitBreaker>,
    sent: AtomicU64,
    failed: AtomicU64,
}

/// A block, or a part of one, that a peer has begun to send.
pub struct SentBlock {
    /// Yields exactly the requested part, unless it breaks off.
    pub body: LakeBody,
    /// True if the peer had the block and did not have to fetch it.
    pub was_held: bool,
}

/// Why a request to a peer failed.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The peer could not be reached, or broke off.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The peer did not answer in time.
    #[error("{0} did not answer in time")]
    Silent(String),
    /// The peer does not have the block, or refuses to fetch it.
    #[error("{name} answered {status}")]
    Refused {
        /// The name of the peer.
        name: String,
        /// The status of its answer.
        status: StatusCode,
    },
    /// The peer's response broke off, or exceeds its limit.
    #[error("{0} broke off")]
    BrokenOff(String),
    /// The version has more headers than a request between nodes can carry.
    #[error("the description of the block does not fit in a request")]
    TooLong,
}

/// Requests to one peer, and bytes received from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerTraffic {
    /// Requests sent to it.
    pub requests: u64,
    /// Requests without a complete answer.
    pub failures: u64,
    /// Bytes of the bodies received from it.
    pub bytes: u64,
}

impl PeerTraffic {
    /// Adds other traffic.
    pub fn add(&mut self, more: Self) {
        self.requests += more.requests;
        self.failures += more.failures;
        self.bytes += more.bytes;
    }
}

impl Peer {
    /// Creates the peer at `address`, reached through `channel`.
    pub fn new(name: &str, address: SocketAddr, channel: &Arc<Channel>) -> Self {
        Self {
            name: name.into(),
            address,
            endpoint: Endpoint::to_node(channel.to(name, address)),
            breaker: Mutex::new(CircuitBreaker::new(PROBE_PAUSE_MAX)),
            sent: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    /// Returns true unless the circuit breaker advises against a request now.
    pub fn is_reachable(&self) -> bool {
        self.breaker.lock().is_reachable(clock::monotonic())
    }

    /// Returns the requests sent to the peer, and the bytes received from it.
    pub fn traffic(&self) -> PeerTraffic {
        PeerTraffic {
            requests: self.sent.load(Ordering::Relaxed),
            failures: self.failed.load(Ordering::Relaxed),
            bytes: self.endpoint.counters().bytes_received.get(),
        }
    }

    /// Requests a part of a block, for `transfer` if there is one. If the peer fetches the block from the
    /// lake, it does so in the class of the transfer, and at the rate of its job.
    ///
    /// # Errors
    ///
    /// Fails if the peer refuses, cannot be reached, or does not answer in time.
    pub async fn get_block(
        &self,
        request: &BlockRequest,
        transfer: Option<&Transfer>,
    ) -> Result<SentBlock, PeerError> {
        let body = request.to_bytes().ok_or(PeerError::TooLong)?;
        let request = EndpointRequest {
            headers: transfer.into_iter().map(header_of).collect(),
            body: RequestBody::Whole(body.into()),
            // Safe to repeat if the peer has closed an idle connection: a request for a block has no side
            // effect.
            ..request_to(Method::QUERY, "get_block", PathAndQuery::from_static(BLOCKS))
        };
        self.note_sending();
        let response = self.within(HEAD_PATIENCE, self.endpoint.send(request)).await;
        let response = response.inspect_err(|_| self.note_failure())?;
        // The peer is alive, even if it answers that it is busy or does not have the block.
        self.breaker.lock().succeeded();
        let (head, body) = response.into_parts();
        if head.status != StatusCode::OK {
            return Err(self.refused(head.status));
        }
        let was_held = !head.headers.contains_key(FETCHING);
        // A planned rate applies to every source, and a job's to the lake alone.
        let transfer = transfer.filter(|transfer| !transfer.is_of_client());
        let flow = Flow::unmetered(transfer, NODE);
        let body = body.paced_by(flow.map(Box::new));
        Ok(SentBlock { body, was_held })
    }

    /// Asks the peer to take a block over, and waits until the peer has all of it.
    ///
    /// # Errors
    ///
    /// Fails if the peer refuses the block or does not have all of it in time.
    pub async fn offer(&self, request: &BlockRequest) -> Result<(), PeerError> {
        let mut body = self.get_block(request, None).await?.body;
        let arrives = async {
            while body.frame().await.transpose()?.is_some() {}
            Ok::<_, EndpointError>(())
        };
        let arrived = self.within(OFFER_PATIENCE, arrives).await;
        arrived.inspect_err(|_| self.note_failure())
    }

    /// Sends a batch of messages; returns once the peer has accepted it.
    ///
    /// # Errors
    ///
    /// Fails if the peer refuses the batch, cannot be reached, or does not answer in time. The circuit
    /// breaker for blocks ignores such failures.
    pub async fn send_messages(&self, batch: Bytes) -> Result<(), PeerError> {
        let request = EndpointRequest {
            body: RequestBody::Whole(batch),
            ..request_to(Method::POST, "send messages", PathAndQuery::from_static(MESSAGES))
        };
        let answer = self.within(HEAD_PATIENCE, self.endpoint.send(request)).await?;
        let status = answer.status();
        status
            .is_success()
            .then_some(())
            .ok_or_else(|| self.refused(status))
    }

    /// Sends a message to `path` and returns the response, of at most `bytes_max`. The message may be
    /// delivered more than once.
    ///
    /// # Errors
    ///
    /// Fails if the peer refuses, cannot be reached, or does not answer in time.
    pub async fn ask(
        &self,
        path: &'static str,
        message: Vec<u8>,
        bytes_max: usize,
        patience: Duration,
    ) -> Result<Bytes, PeerError> {
        let request = EndpointRequest {
            body: RequestBody::Whole(message.into()),
            ..request_to(Method::QUERY, "message", PathAndQuery::from_static(path))
        };
        let answering = async {
            let (head, body) = self.endpoint.send(request).await?.into_parts();
            if head.status != StatusCode::OK {
                return Err(self.refused(head.status));
            }
            let body = Limited::new(body, bytes_max).collect().await;
            let body = body.map_err(|_| PeerError::BrokenOff(self.name.clone()))?;
            Ok(body.to_bytes())
        };
        self.note_sending();
        let answered: Result<_, PeerError> = self.within(patience, answering).await;
        match &answered {
            Ok(_) | Err(PeerError::Refused { .. }) => self.breaker.lock().succeeded(),
            Err(_) => self.note_failure(),
        }
        answered
    }

    /// Returns true if the peer answers at all.
    pub async fn is_alive(&self) -> bool {
        let request = request_to(Method::GET, "alive", PathAndQuery::from_static(ALIVE));
        self.within(HEAD_PATIENCE, self.endpoint.send(request))
            .await
            .is_ok()
    }

    /// Returns the answer of the peer, if it comes within `patience`.
    fn within<T, E: Into<PeerError>>(
        &self,
        patience: Duration,
        answering: impl Future<Output = Result<T, E>>,
    ) -> impl Future<Output = Result<T, PeerError>> {
        tokio::time::timeout(patience, answering).map(|answered| match answered {
            Ok(answered) => answered.map_err(Into::into),
            Err(_) => Err(PeerError::Silent(self.name.clone())),
        })
    }

    fn refused(&self, status: StatusCode) -> PeerError {
        let name = self.name.clone();
        PeerError::Refused { name, status }
    }

    fn note_sending(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.breaker.lock().sending(clock::monotonic());
    }

    /// Records that the peer started to send a block and did not finish.
    pub fn note_failure(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.breaker.lock().failed(clock::monotonic());
    }
}

/// Returns the header that names the class of a transfer, or its job.
fn header_of(transfer: &Transfer) -> (HeaderName, HeaderValue) {
    match transfer.job() {
        Some(rate) => (JOB, job_header(rate.id)),
        None => (CLASS, HeaderValue::from_static(transfer.class().as_str())),
    }
}

/// Builds a request without a body. The channel authenticates both nodes.
fn request_to(method: Method, operation: &'static str, target: PathAndQuery) -> EndpointRequest {
    EndpointRequest::new(operation, method, target, LakeAccount::Anonymous, NODE)
}
