//! Asks other nodes.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use parking_lot::Mutex;
use shoal_policy::NodeId;

use super::ALIVE;
use super::circuit_breaker::Health;
use super::request::BlockRequest;
use crate::channel::Channel;
use crate::endpoint::{Endpoint, EndpointError, EndpointRequest, LakeAccount, LakeBody, RequestBody};
use crate::s3::identity::NODE;
use crate::s3::sigv4::PayloadHash;
use crate::{clock, config};

/// A healthy peer says within this time whether it will send a block; a peer that does not is in trouble.
const HEAD_PATIENCE: Duration = Duration::from_secs(1);

/// The time within which an offered block has to arrive.
const OFFER_PATIENCE: Duration = Duration::from_secs(30);

/// The size limit of any answer that is not a block.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// Makes peers.
#[derive(Debug)]
pub struct Peers {
    limits: config::Limits,
    channel: Arc<Channel>,
}

/// Another node that can be asked for blocks.
pub struct Peer {
    id: NodeId,
    name: String,
    address: SocketAddr,
    endpoint: Endpoint,
    health: Mutex<Health>,
    asked: AtomicU64,
    failed: AtomicU64,
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
    /// The version has more headers than a request between nodes can carry.
    #[error("there is too much to say about the block")]
    TooLong,
}

impl Peers {
    /// Makes peers that are reached through `channel`. `limits` bounds the cost of a request.
    pub fn new(channel: Arc<Channel>, limits: &config::Limits) -> Self {
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
            health: Mutex::default(),
            asked: AtomicU64::new(0),
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
        self.health.lock().is_reachable(clock::instant())
    }

    /// The number of requests sent to the peer, and of those that failed.
    pub fn counts(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.asked), load(&self.failed))
    }

    /// The bytes of response bodies that came from the peer.
    pub fn bytes_received(&self) -> u64 {
        self.endpoint.counters().bytes_received
    }

    /// Asks for a part of a block; returns a body that brings exactly that part, unless it breaks off.
    pub async fn ask(&self, request: &BlockRequest) -> Result<LakeBody, PeerError> {
        let request = question(
            Method::GET,
            "get_block",
            request.target().ok_or(PeerError::TooLong)?,
        );
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.health.lock().asking(clock::instant());
        let response = match tokio::time::timeout(HEAD_PATIENCE, self.endpoint.send(request)).await {
            Ok(response) => response.map_err(PeerError::from),
            Err(_) => Err(PeerError::Silent(self.name.clone())),
        };
        match response.map(Response::into_parts) {
            Ok((head, body)) if head.status == StatusCode::OK => {
                self.health.lock().answered();
                Ok(body)
            }
            // The peer is alive: it answers that it is too busy, or does not have the block.
            Ok((head, _)) => {
                self.health.lock().answered();
                let name = self.name.clone();
                Err(PeerError::Refused {
                    name,
                    status: head.status,
                })
            }
            Err(error) => {
                self.broke_off();
                Err(error)
            }
        }
    }

    /// Asks the peer to take a block over, and waits until the peer has all of it.
    pub async fn offer(&self, request: &BlockRequest) -> Result<(), PeerError> {
        let mut body = self.ask(request).await?;
        let arrives = async {
            while body.frame().await.transpose()?.is_some() {}
            Ok::<_, EndpointError>(())
        };
        let arrived = match tokio::time::timeout(OFFER_PATIENCE, arrives).await {
            Ok(arrived) => arrived.map_err(PeerError::from),
            Err(_) => Err(PeerError::Silent(self.name.clone())),
        };
        arrived.inspect_err(|_| self.broke_off())
    }

    /// Sends a request that is answered by a status and some bytes, within `patience`. It is sent once: if
    /// the answer is lost, the request may have had its effect.
    pub async fn tell(
        &self,
        operation: &'static str,
        target: PathAndQuery,
        patience: Duration,
    ) -> Result<(StatusCode, Bytes), PeerError> {
        let request = question(Method::POST, operation, target);
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.health.lock().asking(clock::instant());
        let exchange = async {
            let (head, body) = self.endpoint.send(request).await?.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|_| PeerError::BrokenOff(self.name.clone()))?;
            Ok((head.status, body.to_bytes()))
        };
        let answer = match tokio::time::timeout(patience, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(PeerError::Silent(self.name.clone())),
        };
        match &answer {
            Ok(_) => self.health.lock().answered(),
            Err(_) => self.broke_off(),
        }
        answer
    }

    /// Whether the peer answers at all.
    pub async fn lives(&self) -> bool {
        let request = question(Method::GET, "alive", PathAndQuery::from_static(ALIVE));
        let answer = tokio::time::timeout(HEAD_PATIENCE, self.endpoint.send(request)).await;
        matches!(answer, Ok(Ok(_)))
    }

    /// Notes that the peer promised a block and did not send all of it.
    pub fn broke_off(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
        self.health.lock().failed(clock::instant());
    }
}

/// Builds a request whose target says everything. The connection says the rest: which node asks, and which
/// node is meant.
fn question(method: Method, operation: &'static str, target: PathAndQuery) -> EndpointRequest {
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
