//! Sends requests to other nodes.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use parking_lot::Mutex;
use shoal_policy::NodeId;
use shoal_policy::circuit_breaker::CircuitBreaker;
use shoal_s3::identity::NODE;
use shoal_s3::sigv4::PayloadHash;

use super::request::{BLOCKS, BlockRequest};
use super::{ALIVE, CLASS, FETCHING, MESSAGES};
use crate::channel::Channel;
use crate::clock;
use crate::endpoint::{Endpoint, EndpointError, EndpointRequest, LakeAccount, LakeBody, RequestBody};
use crate::limits::Limits;
use crate::link::{Flow, Transfer};

/// A healthy peer says within this time whether it will send a block; a peer that does not has failed.
const HEAD_PATIENCE: Duration = Duration::from_secs(1);

/// The time within which an offered block has to arrive.
const OFFER_PATIENCE: Duration = Duration::from_secs(30);

/// The longest pause between two probes of a peer that does not answer.
const PROBE_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Makes peers that share one channel and its limits.
#[derive(Debug)]
pub struct PeerConnector {
    limits: Limits,
    channel: Arc<Channel>,
}

/// Another node that can be asked for blocks.
pub struct Peer {
    id: NodeId,
    name: String,
    address: SocketAddr,
    endpoint: Endpoint,
    breaker: Mutex<CircuitBreaker>,
    sent: AtomicU64,
    failed: AtomicU64,
}

/// A block, or a part of one, that a peer has begun to send.
pub struct SentBlock {
    /// Brings exactly the part that was asked for, unless it breaks off.
    pub body: LakeBody,
    /// Whether the peer had the block.
    pub was_held: bool,
}

/// Why a peer did not give a block.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    /// The peer cannot be reached, or broke off.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The peer did not answer in time.
    #[error("{0} did not answer in time")]
    Silent(String),
    /// The peer does not have the block, or does not want to bring it.
    #[error("{name} answered {status}")]
    Refused {
        /// The name of the peer.
        name: String,
        /// The status of its answer.
        status: StatusCode,
    },
    /// The peer's answer broke off, or does not end.
    #[error("{0} broke off")]
    BrokenOff(String),
    /// The version has more headers than a request between nodes may carry.
    #[error("the description of the block does not fit in a request")]
    TooLong,
}

impl PeerConnector {
    /// Makes peers that are reached through `channel`. `limits` bounds the cost of a request.
    pub fn new(channel: Arc<Channel>, limits: &Limits) -> Self {
        Self {
            limits: limits.clone(),
            channel,
        }
    }

    /// The channel on which nodes prove their identity to each other.
    pub fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    /// The peer at `address`, or the known one if its address is still the same.
    pub fn at(
        &self,
        id: NodeId,
        name: &str,
        address: SocketAddr,
        known: &HashMap<NodeId, Arc<Peer>>,
    ) -> Arc<Peer> {
        if let Some(peer) = known.get(&id).filter(|peer| peer.address == address) {
            return Arc::clone(peer);
        }
        Arc::new(Peer {
            id,
            name: name.into(),
            address,
            endpoint: Endpoint::to_node(self.channel.to(name, address), &self.limits),
            breaker: Mutex::new(CircuitBreaker::new(PROBE_PAUSE_MAX)),
            sent: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Peer")
            .field("name", &self.name)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Peer {
    /// The digest of the peer's name.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// The peer's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the peer is worth asking now.
    pub fn is_reachable(&self) -> bool {
        self.breaker.lock().is_reachable(clock::instant())
    }

    /// The number of requests sent to the peer, and of those that failed.
    pub fn counts(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.sent), load(&self.failed))
    }

    /// The bytes of response bodies that came from the peer.
    pub fn bytes_received(&self) -> u64 {
        self.endpoint.counters().bytes_received
    }

    /// Requests a part of a block.
    ///
    /// # Errors
    ///
    /// Fails if the peer refuses, cannot be reached, or does not say in time whether it will send the block.
    pub async fn get_block(&self, request: &BlockRequest) -> Result<SentBlock, PeerError> {
        self.get_block_for(request, None).await
    }

    /// Requests a part of a block for `transfer`. If the peer asks the lake for it, it does so in the class
    /// of the transfer.
    ///
    /// # Errors
    ///
    /// Fails as [`get_block`](Self::get_block) does.
    pub async fn get_block_for(
        &self,
        request: &BlockRequest,
        transfer: Option<&Transfer>,
    ) -> Result<SentBlock, PeerError> {
        let body = request.to_bytes().ok_or(PeerError::TooLong)?;
        let class = transfer.map(|transfer| (CLASS, HeaderValue::from_static(transfer.class().as_str())));
        let request = EndpointRequest {
            headers: class.into_iter().collect(),
            body: RequestBody::Whole(body.into()),
            // A node that has closed an idle connection is asked again: a request for a block has no effect.
            ..request_to(Method::QUERY, "get_block", PathAndQuery::from_static(BLOCKS))
        };
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.breaker.lock().sending(clock::instant());
        let response = match tokio::time::timeout(HEAD_PATIENCE, self.endpoint.send(request)).await {
            Ok(response) => response.map_err(PeerError::from),
            Err(_) => Err(PeerError::Silent(self.name.clone())),
        };
        match response.map(Response::into_parts) {
            Ok((head, body)) if head.status == StatusCode::OK => {
                self.breaker.lock().succeeded();
                let was_held = !head.headers.contains_key(FETCHING);
                // The rate of a plan holds wherever its bytes come from.
                let flow = Flow::unmetered(transfer, NODE);
                let body = body.paced_by(flow.map(Box::new));
                Ok(SentBlock { body, was_held })
            }
            // The peer is alive: it answers that it is too busy, or does not have the block.
            Ok((head, _)) => {
                self.breaker.lock().succeeded();
                let name = self.name.clone();
                Err(PeerError::Refused {
                    name,
                    status: head.status,
                })
            }
            Err(error) => {
                self.note_failure();
                Err(error)
            }
        }
    }

    /// Asks the peer to take a block over, and waits until the peer has all of it.
    ///
    /// # Errors
    ///
    /// Fails if the peer refuses the block or does not have all of it in time.
    pub async fn offer(&self, request: &BlockRequest) -> Result<(), PeerError> {
        let mut body = self.get_block(request).await?.body;
        let arrives = async {
            while body.frame().await.transpose()?.is_some() {}
            Ok::<_, EndpointError>(())
        };
        let arrived = match tokio::time::timeout(OFFER_PATIENCE, arrives).await {
            Ok(arrived) => arrived.map_err(PeerError::from),
            Err(_) => Err(PeerError::Silent(self.name.clone())),
        };
        arrived.inspect_err(|_| self.note_failure())
    }

    /// Sends a batch of messages; returns when the peer has taken it.
    ///
    /// # Errors
    ///
    /// Fails if the peer refuses the batch, cannot be reached, or does not answer in time. That says nothing
    /// about whether the peer can be asked for blocks.
    pub async fn tell(&self, batch: Bytes) -> Result<(), PeerError> {
        let request = EndpointRequest {
            body: RequestBody::Whole(batch),
            ..request_to(Method::POST, "tell", PathAndQuery::from_static(MESSAGES))
        };
        let answered = tokio::time::timeout(HEAD_PATIENCE, self.endpoint.send(request)).await;
        let answer = answered.map_err(|_| PeerError::Silent(self.name.clone()))??;
        let status = answer.status();
        // The connection is free for the next request once the body has ended.
        drop(answer);
        if status.is_success() {
            Ok(())
        } else {
            let name = self.name.clone();
            Err(PeerError::Refused { name, status })
        }
    }

    /// Sends a message to `path`, and returns the answer, of at most `bytes_max`. A message may arrive more
    /// than once.
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
                let (name, status) = (self.name.clone(), head.status);
                return Err(PeerError::Refused { name, status });
            }
            let body = Limited::new(body, bytes_max).collect().await;
            body.map_or_else(
                |_| Err(PeerError::BrokenOff(self.name.clone())),
                |body| Ok(body.to_bytes()),
            )
        };
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.breaker.lock().sending(clock::instant());
        let answered = match tokio::time::timeout(patience, answering).await {
            Ok(answered) => answered,
            Err(_) => Err(PeerError::Silent(self.name.clone())),
        };
        match &answered {
            Ok(_) | Err(PeerError::Refused { .. }) => self.breaker.lock().succeeded(),
            Err(_) => self.note_failure(),
        }
        answered
    }

    /// Whether the peer answers at all.
    pub async fn is_alive(&self) -> bool {
        let request = request_to(Method::GET, "alive", PathAndQuery::from_static(ALIVE));
        let answer = tokio::time::timeout(HEAD_PATIENCE, self.endpoint.send(request)).await;
        matches!(answer, Ok(Ok(_)))
    }

    /// Notes that the peer promised a block and did not send all of it.
    pub fn note_failure(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.breaker.lock().failed(clock::instant());
    }
}

/// Builds a request without a body. The connection identifies both nodes.
fn request_to(method: Method, operation: &'static str, target: PathAndQuery) -> EndpointRequest {
    EndpointRequest {
        operation,
        method,
        target,
        headers: HeaderMap::new(),
        body: RequestBody::Empty,
        expects_continue: false,
        payload: PayloadHash::empty(),
        account: LakeAccount::Anonymous,
        payer: NODE,
    }
}
