//! Brings one block here, from its homes or from the lake.
//!
//! Each stop of the route is asked only for the bytes that are still missing, so that a peer that dies in the
//! middle of a block costs a hop and no byte twice. Only an answer of the lake can fail a read.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, header};
use shoal_policy::route::Stop;
use shoal_policy::{BlockId, Layer, NodeId, Source};

use super::cursor::{Cursor, lake_error, range_header, resumption, skip_to};
use super::hops::HopEnd;
use super::{Fetcher, Way};
use crate::catalog::is_refusal;
use crate::endpoint::{EndpointRequest, RepeatableGet};
use crate::flights::{FlightError, Pilot};
use crate::origin::Origin;
use crate::peer::{Asked, BlockRequest, Peer, PeerError};
use crate::s3::object::Version;
use crate::s3::range::ByteRange;

/// How long a peer may send nothing before it is asked whether it is alive.
const PATIENCE: Duration = Duration::from_secs(1);

/// A peer that is alive and still sends nothing may wait for a slow lake or for a broken disk. After this
/// many times [`PATIENCE`] it is given up for the lake, as far as the budget allows. Without the budget, a
/// slow lake would be asked once more for every block.
const SILENCES_MAX: u32 = 5;

/// The number of peers that are asked for one block before the lake is.
const HOPS_MAX: usize = 4;

/// A block to bring, and the origin it is brought for.
pub(super) struct Errand {
    pub(super) version: Arc<Version>,
    pub(super) index: u32,
    pub(super) origin: Arc<Origin>,
    pub(super) way: Way,
}

/// Why a peer did not bring a block to the end. The next stop is asked for the rest.
#[derive(Debug, thiserror::Error)]
enum HopLost {
    #[error("it is not there any more")]
    Gone,
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error("{0}")]
    BrokeOff(FlightError),
    #[error("it does not live any more")]
    Dead,
    #[error("it sends nothing")]
    Stuck,
}

impl HopEnd {
    fn of(hop: &Result<(), HopLost>) -> Self {
        match hop {
            Ok(()) => Self::Brought,
            Err(HopLost::Gone) => Self::Gone,
            Err(HopLost::Peer(PeerError::Refused { .. } | PeerError::TooLong)) => Self::Refused,
            Err(HopLost::Peer(PeerError::Endpoint(_))) => Self::Unreachable,
            Err(HopLost::Peer(PeerError::Silent(_))) => Self::Silent,
            Err(HopLost::BrokeOff(_) | HopLost::Peer(PeerError::BrokenOff(_))) => Self::BrokeOff,
            Err(HopLost::Dead) => Self::Dead,
            Err(HopLost::Stuck) => Self::Stuck,
        }
    }
}

impl Fetcher {
    /// Gives the pilot its block.
    pub(super) async fn carry(&self, errand: &Errand, pilot: &Pilot) -> Result<(), FlightError> {
        let len = errand.version.block_len(errand.index);
        pilot.hold_window(self.room(errand.origin.caller().payer(), len).await?);
        let layer = match errand.way {
            Way::Route(layer) => layer,
            Way::Handover(giver) => return self.take_over(giver, errand, pilot).await,
        };
        let block = errand.version.block(errand.index);
        let mut tried = Vec::new();
        while tried.len() < HOPS_MAX
            && let Some((node, asked)) = self.next_peer(block, layer, &tried)
        {
            pilot.comes_from(Source::Peer);
            match self.carry_from_peer(node, asked, errand, pilot).await {
                Ok(()) => return Ok(()),
                Err(lost) => tracing::debug!(?node, ?asked, %lost, "a hop is lost"),
            }
            tried.push(node);
        }
        let proof = self.proofs.of(&errand.version, &errand.origin)?;
        pilot.comes_from(Source::Lake);
        let rest = ByteRange {
            start: pilot.received(),
            end: len,
        };
        self.ask_lake(&errand.version, errand.index, rest, &errand.origin)
            .await?
            .fill(pilot, rest.len(), proof.as_ref())
            .await
    }

    /// Takes the block from the node that gives it away. It has no reader, so no other node is asked for it
    /// in any caller's name.
    async fn take_over(&self, giver: NodeId, errand: &Errand, pilot: &Pilot) -> Result<(), FlightError> {
        pilot.comes_from(Source::Peer);
        let taken = self.carry_from_peer(giver, Asked::Holder, errand, pilot).await;
        taken.map_err(|lost| {
            tracing::debug!(?giver, %lost, "a block was not taken over");
            FlightError::NotHeld
        })
    }

    /// The node to ask next, other than those tried in vain.
    fn next_peer(&self, block: BlockId, asked: Layer, tried: &[NodeId]) -> Option<(NodeId, Asked)> {
        let route = self.cooperation.route(block, asked, tried);
        route.into_iter().find_map(|stop| match stop {
            Stop::Home(node, layer) => Some((node, Asked::Home(layer))),
            Stop::FormerHome(node) => Some((node, Asked::Holder)),
            Stop::Local | Stop::Lake => None,
        })
    }

    /// The node that is asked first for a block that is not here.
    pub fn first_peer(&self, block: BlockId, way: Way) -> Option<NodeId> {
        match way {
            Way::Route(layer) => self.next_peer(block, layer, &[]).map(|(node, _)| node),
            Way::Handover(giver) => Some(giver),
        }
    }

    async fn carry_from_peer(
        &self,
        node: NodeId,
        asked: Asked,
        errand: &Errand,
        pilot: &Pilot,
    ) -> Result<(), HopLost> {
        let hop = self.hop(node, asked, errand, pilot).await;
        self.hops.count(HopEnd::of(&hop));
        hop
    }

    async fn hop(&self, node: NodeId, asked: Asked, errand: &Errand, pilot: &Pilot) -> Result<(), HopLost> {
        let peer = self.cooperation.peer(node).ok_or(HopLost::Gone)?;
        let part = ByteRange {
            start: pilot.received(),
            end: errand.version.block_len(errand.index),
        };
        let _climbing = match asked {
            Asked::Home(layer) => Some(pilot.climbing(layer)),
            Asked::Holder | Asked::Heir(_) => None,
        };
        let request = BlockRequest {
            version: Version::clone(&errand.version),
            index: errand.index,
            part,
            asked,
            caller: errand.origin.caller().into(),
            name: errand.origin.name().cloned(),
            headers: errand.origin.headers().clone(),
        };
        self.hedges.earn();
        let mut cursor = Cursor::new(peer.ask(&request).await?);
        let filling = cursor.fill(pilot, part.len(), None);
        let brought = self.unless_silent(&peer, pilot, filling).await;
        if matches!(brought, Err(HopLost::BrokeOff(_) | HopLost::Dead)) {
            peer.broke_off();
        }
        brought
    }

    /// Waits for `filling` while the peer makes progress, or at least is alive.
    async fn unless_silent(
        &self,
        peer: &Peer,
        pilot: &Pilot,
        filling: impl Future<Output = Result<(), FlightError>>,
    ) -> Result<(), HopLost> {
        let mut filling = std::pin::pin!(filling);
        let (mut received, mut silences) = (pilot.received(), 0);
        loop {
            tokio::select! {
                filled = &mut filling => return filled.map_err(HopLost::BrokeOff),
                () = tokio::time::sleep(PATIENCE) => {}
            }
            if pilot.received() > received {
                (received, silences) = (pilot.received(), 0);
                continue;
            }
            silences += 1;
            tokio::select! {
                filled = &mut filling => return filled.map_err(HopLost::BrokeOff),
                lives = peer.lives() => if !lives {
                    return Err(HopLost::Dead);
                },
            }
            if silences >= SILENCES_MAX && self.hedges.spend() {
                return Err(HopLost::Stuck);
            }
        }
    }

    /// Asks the lake for a part of a block, counted from the block's start.
    pub(super) async fn ask_lake(
        &self,
        version: &Version,
        index: u32,
        part: ByteRange,
        origin: &Origin,
    ) -> Result<Cursor, FlightError> {
        let block_start = u64::from(index) * version.block_bytes;
        let wanted = ByteRange {
            start: block_start + part.start,
            end: block_start + part.end,
        };
        let request = block_request(version, wanted, origin);
        let question = RepeatableGet::of(&self.lake, &request);
        let response = self.lake.send(request).await.map_err(lake_error)?;
        let contradicted = self.catalog.revoker(origin.caller().id(), version.object);
        let skip = skip_to(version, wanted, &response).inspect_err(|error| {
            if ends_grant(error) {
                contradicted();
            }
        })?;
        let part = wanted.start - skip..wanted.end;
        let resumption = resumption(question, version, part, contradicted);
        let mut cursor = Cursor::new(response.into_body().resumed_by(resumption));
        cursor.skip(skip).await?;
        Ok(cursor)
    }
}

/// Whether the lake's answer contradicts what the lake granted before: a refusal, or another version.
fn ends_grant(error: &FlightError) -> bool {
    match error {
        FlightError::Changed => true,
        FlightError::Status(status) => is_refusal(*status),
        _ => false,
    }
}

fn block_request(version: &Version, wanted: ByteRange, origin: &Origin) -> EndpointRequest {
    let mut request = origin.request(Method::GET);
    request.headers.insert(header::RANGE, range_header(wanted));
    request.headers.insert(header::IF_MATCH, version.etag_header());
    request
}
