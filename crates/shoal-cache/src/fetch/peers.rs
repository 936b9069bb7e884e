//! Fetches blocks from other nodes: from their homes, from the nodes that the directory lists, or from the
//! node that hands one over.
//!
//! Each node is asked only for the bytes that are still missing, so one that fails in the middle of a block
//! costs one hop, and no byte is transferred twice.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use shoal_directory::Located;
use shoal_net::endpoint::RetryBudget;
use shoal_net::metrics::Counts;
use shoal_policy::route::Stop;
use shoal_policy::{BlockId, Layer, NodeId, Source};
use shoal_s3::object::Version;

use super::body_reader::BodyReader;
use super::hops::HopOutcome;
use super::integrity::IntegrityChecks;
use super::wanted_block::WantedBlock;
use crate::nodes::cooperation::Cooperation;
use crate::nodes::directory::{BlockDirectory, Claim};
use crate::nodes::obtain::Obtain;
use crate::nodes::peer::{BlockRequest, Peer, PeerError};
use crate::single_flight::{Awaited, FetchError, Sender};

/// How long a peer may send nothing before it is probed.
const PATIENCE: Duration = Duration::from_secs(1);

/// A live peer may send nothing because it waits for a slow lake or a broken disk. After this many times
/// [`PATIENCE`] it is abandoned for the lake, within the hedging budget. Without a budget, a slow lake would
/// receive every request twice.
const SILENCES_MAX: u32 = 5;

/// Peers asked for one block before the lake.
const HOPS_MAX: usize = 4;

/// Hedging budget: the percentage of requests to peers that may be abandoned for the lake because the peer is
/// alive but sends nothing.
const HEDGES_PERCENT: u32 = 10;

/// The other nodes, as sources of blocks.
pub(super) struct PeerSource {
    cooperation: Arc<Cooperation>,
    directory: Option<Arc<BlockDirectory>>,
    /// The checks of bytes from any source.
    pub(super) integrity: IntegrityChecks,
    hedges: RetryBudget,
    /// Requests for blocks to peers, except those of abandoned fetches.
    pub(super) hops: Counts<HopOutcome>,
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

/// Returned if the lake must be asked for a block: no node holds it, or none that can be reached. The
/// directory may have assigned that to this node.
pub(super) struct NoPeer(pub(super) Option<Claim>);

impl PeerSource {
    pub(super) fn new(cooperation: Arc<Cooperation>, directory: Option<Arc<BlockDirectory>>) -> Self {
        Self {
            cooperation,
            directory,
            integrity: IntegrityChecks::default(),
            hedges: RetryBudget::new(HEDGES_PERCENT),
            hops: Counts::default(),
        }
    }

    /// Fetches the block by the directory, or from its homes while that does not answer.
    pub(super) async fn fetch(&self, layer: Layer, fetch: &WantedBlock) -> Result<(), NoPeer> {
        let located = match self.directory_for(fetch.leader.span().len) {
            Some(directory) => self.fetch_as_located(directory, fetch).await,
            None => None,
        };
        match located {
            Some(located) => located,
            None => self.fetch_by_route(layer, fetch).await,
        }
    }

    /// Asks the homes of a block for it.
    async fn fetch_by_route(&self, layer: Layer, fetch: &WantedBlock) -> Result<(), NoPeer> {
        let mut tried = Vec::new();
        while tried.len() < HOPS_MAX
            && let Some(stop) = self.next_stop(fetch.leader.span().id, layer, &tried)
        {
            let (node, obtain) = match stop {
                Stop::Home(node, layer) => (node, fetch.obtain.of_home(layer)),
                Stop::FormerHome(node) => (node, Obtain::Locally),
            };
            fetch.leader.set_source(Source::Peer);
            let Err(error) = self.ask(node, &obtain, fetch).await else {
                return Ok(());
            };
            tracing::debug!(?node, ?obtain, %error, "a node broke off while it sent a block");
            tried.push(node);
        }
        Err(NoPeer(None))
    }

    /// Asks the nodes that the directory lists as holders of a block (dissertation 4.5.1). A stale entry is
    /// corrected, and the directory is queried again. Returns `None` if the directory does not answer.
    async fn fetch_as_located(
        &self,
        directory: &Arc<BlockDirectory>,
        fetch: &WantedBlock,
    ) -> Option<Result<(), NoPeer>> {
        let block = fetch.leader.span().id;
        let mut tried = Vec::new();
        for _ in 0..HOPS_MAX {
            let (node, obtain) = match directory.locate(block, &tried).await? {
                Located::Yours => return Some(Err(NoPeer(Some(directory.claim(block))))),
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
            fetch.leader.set_source(Source::Peer);
            fetch.leader.set_sender(Sender::Node(node));
            let Err(error) = self.ask(node, &obtain, fetch).await else {
                return Some(Ok(()));
            };
            tracing::debug!(?node, ?obtain, %error, "a holder listed in the directory did not send a block");
            tried.push(node);
            if matches!(obtain, Obtain::Locally) && error.says_not_held() {
                directory.correct(block, node).await;
            }
        }
        Some(Err(NoPeer(None)))
    }

    /// Returns the directory, if it has entries for blocks of this length.
    pub(super) fn directory_for(&self, block_bytes: u64) -> Option<&Arc<BlockDirectory>> {
        let directory = self.directory.as_ref()?;
        BlockDirectory::enters(block_bytes).then_some(directory)
    }

    /// Fetches the block from the node that hands it over. The block has no reader, so no other node is asked
    /// for it on any caller's behalf.
    pub(super) async fn take_over(&self, giver: NodeId, fetch: &WantedBlock) -> Result<(), FetchError> {
        fetch.leader.set_source(Source::Peer);
        let taken = self.ask(giver, &Obtain::Locally, fetch).await;
        taken.map_err(|error| {
            tracing::debug!(?giver, %error, "a block was not handed over");
            FetchError::NotHeld
        })
    }

    /// Returns the next stop at which to ask, skipping the nodes in `tried`.
    fn next_stop(&self, block: BlockId, asked: Layer, tried: &[NodeId]) -> Option<Stop> {
        let route = self.cooperation.route(block, asked, tried);
        route.first().copied()
    }

    /// Returns the node that a fetch of a missing block asks first; `None` if only the directory knows, which
    /// is queried during the fetch.
    pub(super) fn first_sender(&self, version: &Version, index: u32, obtain: &Obtain) -> Option<Sender> {
        if let Obtain::Handover(giver) | Obtain::Push(giver, _) = obtain {
            return Some(Sender::Node(*giver));
        }
        let Some(layer) = obtain.layer() else {
            return Some(Sender::Other);
        };
        if self.directory_for(version.block_len(index)).is_some() {
            return None;
        }
        let stop = self.next_stop(version.block(index), layer, &[]);
        Some(stop.map_or(Sender::Other, |stop| Sender::Node(stop.node())))
    }

    /// Asks one node for the missing rest of a block, which it may obtain in this way, and counts the
    /// outcome.
    async fn ask(&self, node: NodeId, obtain: &Obtain, fetch: &WantedBlock) -> Result<(), HopError> {
        let asked = self.ask_uncounted(node, obtain, fetch).await;
        self.hops.count(HopOutcome::of(&asked));
        asked
    }

    async fn ask_uncounted(
        &self,
        node: NodeId,
        obtain: &Obtain,
        fetch: &WantedBlock,
    ) -> Result<(), HopError> {
        let leader = &fetch.leader;
        assert!(
            !matches!(&fetch.obtain, Obtain::Kept(bytes) if bytes.in_pack().is_none()),
            "no peer takes part in bytes that the lake does not have"
        );
        let peer = self.cooperation.peer(node).ok_or(HopError::Gone)?;
        let awaited = match obtain {
            Obtain::Join => Some(Awaited::Claimant),
            obtain => obtain.layer().map(Awaited::Home),
        };
        let _wait = awaited.map(|awaited| leader.awaits(awaited));
        let mut request = BlockRequest {
            version: Version::clone(&fetch.version),
            index: fetch.index(),
            part: fetch.missing(),
            obtain: obtain.clone(),
            caller: (&fetch.context.caller).into(),
            name: fetch.context.name.clone(),
            headers: fetch.context.headers().clone(),
        };
        debug_assert!(
            !request.part.is_empty(),
            "a node is asked for bytes that are missing"
        );
        let in_pack = fetch.obtain.in_pack();
        let check = match in_pack {
            None => self.integrity.of(&fetch.version, &fetch.context),
            Some(_) => Ok(None),
        };
        let check = check.map_err(HopError::BrokeOff)?;
        self.hedges.earn();
        let mut transfer = fetch.unhurried_by_peer();
        let sent = peer.get_block(&request, transfer.as_ref()).await?;
        if !sent.was_held {
            leader.set_far();
        }
        let mut body = BodyReader::new(sent.body);
        let brought = loop {
            let filling = async {
                match in_pack {
                    None => body.fill(leader, request.part.len(), check.as_ref()).await,
                    Some(in_pack) => body.fill_proven(leader, in_pack).await,
                }
            };
            let hurried = async {
                match &transfer {
                    Some(transfer) => transfer.hurried().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                brought = self.unless_silent(&peer, fetch, filling) => break brought,
                () = hurried => {}
            }
            // A client now waits. Ask for the rest without a class, so that the peer stops holding back,
            // before dropping the first request.
            transfer = None;
            request.part = fetch.missing();
            body = BodyReader::new(peer.get_block(&request, None).await?.body);
        };
        if matches!(brought, Err(HopError::BrokeOff(_) | HopError::Dead)) {
            peer.note_failure();
        }
        brought
    }

    /// Runs `filling` while the peer makes progress, or at least is alive.
    async fn unless_silent(
        &self,
        peer: &Peer,
        fetch: &WantedBlock,
        filling: impl Future<Output = Result<(), FetchError>>,
    ) -> Result<(), HopError> {
        let leader = &fetch.leader;
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
}
