//! Fetches one block, from its homes or from the lake.
//!
//! Each stop of the route is asked only for the bytes that are still missing, so a peer that fails in the
//! middle of a block costs one hop, and no byte is transferred twice. Only the lake's answer can fail a read.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use http::{Method, StatusCode, header};
use shoal_directory::Located;
use shoal_net::endpoint::{EndpointRequest, RepeatableGet};
use shoal_net::link::Transfer;
use shoal_policy::route::Stop;
use shoal_policy::{BlockId, Layer, NodeId, Source};
use shoal_s3::object::Version;
use shoal_s3::range::ByteRange;

use super::Fetcher;
use super::body_reader::{BodyReader, bytes_before, lake_error, range_header, resumption};
use super::hops::HopOutcome;
use crate::directory::{BlockDirectory, Claim};
use crate::grants::is_refusal;
use crate::obtain::{KeptBytes, Obtain};
use crate::peer::{BlockRequest, Peer, PeerError};
use crate::read_context::ReadContext;
use crate::single_flight::{Awaited, BlockMemory, FetchError, Leader, Sender};

/// How long a peer may send nothing before it is probed.
const PATIENCE: Duration = Duration::from_secs(1);

/// A live peer may send nothing because it waits for a slow lake or a broken disk. After this many times
/// [`PATIENCE`] it is abandoned for the lake, within the hedging budget. Without a budget, a slow lake would
/// receive every request twice.
const SILENCES_MAX: u32 = 5;

/// Peers asked for one block before the lake.
const HOPS_MAX: usize = 4;

/// A block to fetch, and the read that wants it.
pub(super) struct BlockFetch {
    pub(super) version: Arc<Version>,
    pub(super) index: u32,
    pub(super) context: Arc<ReadContext>,
    pub(super) obtain: Obtain,
    /// The transfer that carries the block; `None` if a client has waited for it from the start.
    pub(super) transfer: Option<Transfer>,
}

impl BlockFetch {
    /// Returns the transfer while no client waits for the block.
    fn unhurried(&self) -> Option<&Transfer> {
        self.transfer.as_ref().filter(|transfer| !transfer.is_hurried())
    }
}

/// Why a peer did not send all of a block. The next stop of the route is asked for the rest.
#[derive(Debug, thiserror::Error)]
enum HopError {
    #[error("the node has left")]
    Gone,
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error("{0}")]
    BrokeOff(FetchError),
    #[error("the node is no longer alive")]
    Dead,
    #[error("the node sends nothing")]
    Stuck,
}

impl HopError {
    /// Returns true if the node answered that it does not hold the block.
    fn says_not_held(&self) -> bool {
        matches!(self, Self::Peer(PeerError::Refused { status, .. }) if *status == StatusCode::NOT_FOUND)
    }
}

impl HopOutcome {
    fn of(hop: &Result<(), HopError>) -> Self {
        match hop {
            Ok(()) => Self::Brought,
            Err(HopError::Gone) => Self::Gone,
            Err(HopError::Peer(PeerError::Refused { .. } | PeerError::TooLong)) => Self::Refused,
            Err(HopError::Peer(PeerError::Endpoint(_))) => Self::Unreachable,
            Err(HopError::Peer(PeerError::Silent(_))) => Self::Silent,
            Err(HopError::BrokeOff(_) | HopError::Peer(PeerError::BrokenOff(_))) => Self::BrokeOff,
            Err(HopError::Dead) => Self::Dead,
            Err(HopError::Stuck) => Self::Stuck,
        }
    }
}

/// Result of fetching a block through the directory.
enum Led {
    /// A node sent the block.
    ToTheBlock,
    /// The lake must be asked: no node holds the block, or none that can be reached.
    ToTheLake,
    /// The directory does not answer.
    Nowhere,
}

impl Fetcher {
    /// Delivers all bytes of the block to the leader. Sets `claim` if the directory assigned the fetch from
    /// the lake to this node.
    pub(super) async fn fetch_block(
        &self,
        fetch: &BlockFetch,
        leader: &Leader,
        claim: &mut Option<Claim>,
    ) -> Result<(), FetchError> {
        let len = fetch.version.block_len(fetch.index);
        leader.hold_memory(self.reserve(fetch, len).await?);
        let layer = match &fetch.obtain {
            Obtain::FromHomes(layer) => *layer,
            Obtain::Handover(giver) | Obtain::Push(giver, _) => {
                return self.take_over(*giver, fetch, leader).await;
            }
            Obtain::Kept(bytes) => return read_kept(&**bytes, fetch, leader).await,
            Obtain::Locally | Obtain::Join => return Err(FetchError::NotHeld),
        };
        let led = match self.directory_for(len) {
            Some(directory) => self.fetch_as_located(directory, fetch, leader, claim).await,
            None => Led::Nowhere,
        };
        let is_here = match led {
            Led::ToTheBlock => true,
            Led::ToTheLake => false,
            Led::Nowhere => self.fetch_by_route(layer, fetch, leader).await,
        };
        if is_here {
            return Ok(());
        }
        let check = self.integrity.of(&fetch.version, &fetch.context)?;
        leader.set_source(Source::Lake);
        leader.set_sender(Sender::Other);
        let rest = ByteRange {
            start: leader.received(),
            end: len,
        };
        let filled = async {
            let reading = (&*fetch.context, fetch.transfer.as_ref());
            self.ask_lake(&fetch.version, fetch.index, rest, reading)
                .await?
                .fill(leader, rest.len(), check.as_ref())
                .await
        };
        let renewing = async {
            match claim {
                Some(claim) => claim.keep_renewing().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            filled = filled => filled,
            never = renewing => match never {},
        }
    }

    /// Waits for memory for a block of `len` bytes.
    async fn reserve(&self, fetch: &BlockFetch, len: u64) -> Result<BlockMemory, FetchError> {
        let payer = fetch.context.caller().payer();
        if let Some(transfer) = fetch.unhurried() {
            tokio::select! {
                memory = self.memory.reserve_in_background(payer, len) => return memory,
                () = transfer.hurried() => {}
            }
        }
        Ok(self.memory.reserve(payer, len).await?.into())
    }

    /// Asks the homes of a block for it. Returns true if one of them sent it.
    async fn fetch_by_route(&self, layer: Layer, fetch: &BlockFetch, leader: &Leader) -> bool {
        let block = fetch.version.block(fetch.index);
        let mut tried = Vec::new();
        while tried.len() < HOPS_MAX
            && let Some((node, obtain)) = self.next_peer(block, layer, &tried)
        {
            leader.set_source(Source::Peer);
            match self.fetch_from_peer(node, &obtain, fetch, leader).await {
                Ok(()) => return true,
                Err(error) => {
                    tracing::debug!(?node, ?obtain, %error, "a node broke off while it sent a block");
                }
            }
            tried.push(node);
        }
        false
    }

    /// Asks the nodes that the directory lists as holders of a block (dissertation 4.5.1). A stale entry is
    /// corrected, and the directory is queried again.
    async fn fetch_as_located(
        &self,
        directory: &BlockDirectory,
        fetch: &BlockFetch,
        leader: &Leader,
        claim: &mut Option<Claim>,
    ) -> Led {
        let block = fetch.version.block(fetch.index);
        let mut tried = Vec::new();
        for _ in 0..HOPS_MAX {
            let Some(located) = directory.locate(block, &tried).await else {
                return Led::Nowhere;
            };
            let (node, obtain) = match located {
                Located::Yours => {
                    *claim = Some(directory.claim(block));
                    return Led::ToTheLake;
                }
                Located::Claimed(node) => (node, Obtain::Join),
                Located::Held(holders) => {
                    for gone in self.cooperation.non_members(&holders) {
                        directory.correct(block, gone).await;
                    }
                    let Some(node) = self.cooperation.nearest(&holders, &tried) else {
                        // Only one of the nodes that discover the stale entry obtains the claim.
                        tried.extend(holders);
                        continue;
                    };
                    (node, Obtain::Locally)
                }
            };
            leader.set_source(Source::Peer);
            leader.set_sender(Sender::Node(node));
            let Err(error) = self.fetch_from_peer(node, &obtain, fetch, leader).await else {
                return Led::ToTheBlock;
            };
            tracing::debug!(?node, ?obtain, %error, "a holder listed in the directory did not send a block");
            tried.push(node);
            if matches!(obtain, Obtain::Locally) && error.says_not_held() {
                directory.correct(block, node).await;
            }
        }
        Led::ToTheLake
    }

    /// Returns the directory, if it has entries for blocks of this length.
    fn directory_for(&self, block_bytes: u64) -> Option<&BlockDirectory> {
        let directory = self.directory.as_deref()?;
        BlockDirectory::enters(block_bytes).then_some(directory)
    }

    /// Fetches the block from the node that hands it over. The block has no reader, so no other node is asked
    /// for it on any caller's behalf.
    async fn take_over(&self, giver: NodeId, fetch: &BlockFetch, leader: &Leader) -> Result<(), FetchError> {
        leader.set_source(Source::Peer);
        let taken = self.fetch_from_peer(giver, &Obtain::Locally, fetch, leader).await;
        taken.map_err(|error| {
            tracing::debug!(?giver, %error, "a block was not handed over");
            FetchError::NotHeld
        })
    }

    /// Returns the next node to ask, skipping those in `tried`.
    fn next_peer(&self, block: BlockId, asked: Layer, tried: &[NodeId]) -> Option<(NodeId, Obtain)> {
        let route = self.cooperation.route(block, asked, tried);
        route.into_iter().find_map(|stop| match stop {
            Stop::Home(node, layer) => Some((node, Obtain::FromHomes(layer))),
            Stop::FormerHome(node) => Some((node, Obtain::Locally)),
            Stop::Local | Stop::Lake => None,
        })
    }

    /// Returns the node that a fetch of a missing block asks first; `None` if only the directory knows, which
    /// is queried during the fetch.
    pub fn first_sender(&self, version: &Version, index: u32, obtain: &Obtain) -> Option<Sender> {
        match obtain {
            Obtain::FromHomes(_) if self.directory_for(version.block_len(index)).is_some() => None,
            Obtain::FromHomes(layer) => {
                let peer = self.next_peer(version.block(index), *layer, &[]);
                Some(peer.map_or(Sender::Other, |(node, _)| Sender::Node(node)))
            }
            Obtain::Handover(giver) | Obtain::Push(giver, _) => Some(Sender::Node(*giver)),
            Obtain::Locally | Obtain::Join | Obtain::Kept(_) => Some(Sender::Other),
        }
    }

    async fn fetch_from_peer(
        &self,
        node: NodeId,
        obtain: &Obtain,
        fetch: &BlockFetch,
        leader: &Leader,
    ) -> Result<(), HopError> {
        let hop = self.hop(node, obtain, fetch, leader).await;
        self.hops.count(HopOutcome::of(&hop));
        hop
    }

    async fn hop(
        &self,
        node: NodeId,
        obtain: &Obtain,
        fetch: &BlockFetch,
        leader: &Leader,
    ) -> Result<(), HopError> {
        assert!(
            !matches!(fetch.obtain, Obtain::Kept(_)),
            "no peer takes part in bytes that the lake does not have"
        );
        let peer = self.cooperation.peer(node).ok_or(HopError::Gone)?;
        let _wait = match obtain {
            Obtain::FromHomes(layer) => Some(leader.awaits(Awaited::Home(*layer))),
            Obtain::Join => Some(leader.awaits(Awaited::Claimant)),
            _ => None,
        };
        let mut request = BlockRequest {
            version: Version::clone(&fetch.version),
            index: fetch.index,
            part: missing_part(fetch, leader),
            obtain: obtain.clone(),
            caller: fetch.context.caller().into(),
            name: fetch.context.name().cloned(),
            headers: fetch.context.headers().clone(),
        };
        let check = self.integrity.of(&fetch.version, &fetch.context);
        let check = check.map_err(HopError::BrokeOff)?;
        self.hedges.earn();
        let mut transfer = fetch.unhurried();
        let sent = peer.get_block_for(&request, transfer).await?;
        if !sent.was_held {
            leader.set_far();
        }
        let mut body = BodyReader::new(sent.body);
        let brought = loop {
            let filling = body.fill(leader, request.part.len(), check.as_ref());
            let hurried = async {
                match transfer {
                    Some(transfer) => transfer.hurried().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                brought = self.unless_silent((&peer, fetch), leader, filling) => break brought,
                () = hurried => {}
            }
            // A client now waits. Ask for the rest without a class, so that the peer stops holding back,
            // before dropping the first request.
            transfer = None;
            request.part = missing_part(fetch, leader);
            body = BodyReader::new(peer.get_block_for(&request, None).await?.body);
        };
        if matches!(brought, Err(HopError::BrokeOff(_) | HopError::Dead)) {
            peer.note_failure();
        }
        brought
    }

    /// Runs `filling` while the peer makes progress, or at least is alive.
    async fn unless_silent(
        &self,
        (peer, fetch): (&Peer, &BlockFetch),
        leader: &Leader,
        filling: impl Future<Output = Result<(), FetchError>>,
    ) -> Result<(), HopError> {
        let mut filling = std::pin::pin!(filling);
        let (mut received, mut silences) = (leader.received(), 0);
        loop {
            tokio::select! {
                filled = &mut filling => return filled.map_err(HopError::BrokeOff),
                () = tokio::time::sleep(PATIENCE) => {}
            }
            if leader.received() > received {
                (received, silences) = (leader.received(), 0);
                continue;
            }
            silences += 1;
            tokio::select! {
                filled = &mut filling => return filled.map_err(HopError::BrokeOff),
                is_alive = peer.is_alive() => if !is_alive {
                    return Err(HopError::Dead);
                },
            }
            // A background transfer may wait: the peer holds it back for clients, and so would the lake.
            let may_wait = fetch.unhurried().is_some();
            if silences >= SILENCES_MAX && !may_wait && self.hedges.spend() {
                return Err(HopError::Stuck);
            }
        }
    }

    /// Asks the lake for part of a block, relative to the start of the block.
    pub(super) async fn ask_lake(
        &self,
        version: &Version,
        index: u32,
        part: ByteRange,
        (context, transfer): (&ReadContext, Option<&Transfer>),
    ) -> Result<BodyReader, FetchError> {
        let block_start = u64::from(index) * version.block_bytes;
        let wanted = ByteRange {
            start: block_start + part.start,
            end: block_start + part.end,
        };
        let request = block_request(version, wanted, context);
        let question = RepeatableGet::of(&self.lake, &request).within(transfer);
        let response = self.lake.send_for(request, transfer).await.map_err(lake_error)?;
        let contradicted = self.grants.revoker(context.caller().id(), version.object);
        let skip = bytes_before(version, wanted, &response).inspect_err(|error| {
            if ends_grant(error) {
                contradicted();
            }
        })?;
        let part = wanted.start - skip..wanted.end;
        let resumption = resumption(question, version, part, contradicted);
        let mut body = BodyReader::new(response.into_body().resumed_by(resumption));
        body.skip(skip).await?;
        Ok(body)
    }
}

/// Returns the bytes of a block that have not arrived.
fn missing_part(fetch: &BlockFetch, leader: &Leader) -> ByteRange {
    ByteRange {
        start: leader.received(),
        end: fetch.version.block_len(fetch.index),
    }
}

/// Delivers the bytes of a block to the leader from where they are kept.
async fn read_kept(bytes: &dyn KeptBytes, fetch: &BlockFetch, leader: &Leader) -> Result<(), FetchError> {
    leader.set_source(Source::Tier);
    let start = u64::from(fetch.index) * fetch.version.block_bytes;
    let len = fetch.version.block_len(fetch.index);
    let mut pieces = bytes.read(ByteRange {
        start: start + leader.received(),
        end: start + len,
    });
    while let Some(piece) = pieces.next().await {
        leader.push(piece.map_err(|error| FetchError::Kept(error.to_string().into()))?);
    }
    let is_whole = leader.received() == len;
    is_whole
        .then_some(())
        .ok_or_else(|| FetchError::Kept("fewer bytes are kept than the object has".into()))
}

/// Returns true if the lake's answer contradicts a grant: a refusal, or another version.
fn ends_grant(error: &FetchError) -> bool {
    match error {
        FetchError::Changed => true,
        FetchError::Status(status) => is_refusal(*status),
        _ => false,
    }
}

fn block_request(version: &Version, wanted: ByteRange, context: &ReadContext) -> EndpointRequest {
    let mut request = context.request(Method::GET);
    request.headers.insert(header::RANGE, range_header(wanted));
    request.headers.insert(header::IF_MATCH, version.etag_header());
    request
}
