//! Fetches one block, from its homes or from the lake.
//!
//! The lake is asked for the bytes that no other node has sent. Only its answer can fail a read.

use futures_util::StreamExt;
use http::{Method, header};
use shoal_net::endpoint::{EndpointRequest, RepeatableGet, SendOptions};
use shoal_net::link::Transfer;
use shoal_policy::Source;
use shoal_s3::object::Version;
use shoal_s3::range::ByteRange;
use tokio::sync::OwnedSemaphorePermit;

use super::Fetcher;
use super::body_reader::{BodyReader, bytes_before, lake_error, range_header, resumption, sent_range};
use super::peers::NoPeer;
use super::wanted_block::WantedBlock;
use crate::fetch::read_context::ReadContext;
use crate::grants::is_refusal;
use crate::nodes::directory::Claim;
use crate::nodes::obtain::{InPack, KeptBytes, Obtain};
use crate::single_flight::{FetchError, Sender};

impl Fetcher {
    /// Delivers all bytes of the block to the leader. Returns the claim if the directory assigned the fetch
    /// from the lake to this node.
    pub(super) async fn fetch_block(&self, fetch: &WantedBlock) -> Result<Option<Claim>, FetchError> {
        let leader = &fetch.leader;
        let (transfer, bytes) = (fetch.transfer.as_ref(), leader.span().len);
        leader.hold_memory(self.reserve(&fetch.context, transfer, bytes).await?);
        let claim = match (&fetch.obtain, fetch.obtain.layer()) {
            (Obtain::Handover(giver) | Obtain::Push(giver, _), _) => {
                return self.peers.take_over(*giver, fetch).await.map(|()| None);
            }
            (Obtain::Locally | Obtain::Join, _) => return Err(FetchError::NotHeld),
            (_, None) => None,
            (_, Some(layer)) => match self.peers.fetch(layer, fetch).await {
                Ok(()) => return Ok(None),
                Err(NoPeer(claim)) => claim,
            },
        };
        leader.set_sender(Sender::Other);
        let filled = async {
            match &fetch.obtain {
                Obtain::Kept(bytes) => read_kept(&**bytes, fetch).await,
                Obtain::FromPack(_, in_pack) => self.read_pack(in_pack, fetch).await,
                _ => self.read_lake(fetch).await,
            }
        };
        let renewing = async {
            match &claim {
                Some(claim) => claim.keep_renewing().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            filled = filled => filled?,
            never = renewing => match never {},
        }
        Ok(claim)
    }

    /// Waits for memory for a block of `bytes` that `transfer` carries for a read.
    pub(super) async fn reserve(
        &self,
        context: &ReadContext,
        transfer: Option<&Transfer>,
        bytes: u64,
    ) -> Result<Vec<OwnedSemaphorePermit>, FetchError> {
        let payer = context.caller.payer();
        // One that may wait for the link or for its rates must not hold the memory that clients wait for.
        if let Some(transfer) = transfer.filter(|transfer| transfer.may_wait()) {
            let quotas = self.quotas_of(context);
            let in_background = async {
                let mut memory = quotas.reserve(bytes).await;
                memory.extend(self.memory.reserve_in_background(payer, bytes).await?);
                Ok(memory)
            };
            tokio::select! {
                memory = in_background => return memory,
                () = transfer.hurried() => {}
            }
        }
        Ok(vec![self.memory.reserve(payer, bytes).await?])
    }

    /// Delivers the missing bytes of the block to the leader from the lake.
    async fn read_lake(&self, fetch: &WantedBlock) -> Result<(), FetchError> {
        let (leader, rest) = (&fetch.leader, fetch.missing());
        let check = self.peers.integrity.of(&fetch.version, &fetch.context)?;
        leader.set_source(Source::Lake);
        let transfer = fetch.transfer.as_ref();
        self.ask_lake(&fetch.version, fetch.index(), rest, &fetch.context, transfer)
            .await?
            .fill(leader, rest.len(), check.as_ref())
            .await
    }

    /// Delivers the block to the leader from a pack at the lake, for the node that has named its place there.
    /// That node finds out why the lake does not send the bytes.
    async fn read_pack(&self, in_pack: &InPack, fetch: &WantedBlock) -> Result<(), FetchError> {
        fetch.leader.set_source(Source::Lake);
        let (lake, caller) = (&self.parts.lake, &fetch.context.caller);
        let (account, pack) = (lake.account_for(caller), &in_pack.pack);
        let headers = fetch.context.headers().clone();
        let context = ReadContext::of_peer(account, caller.clone(), Some(pack.clone()), headers);
        let mut request = context.request(Method::GET);
        request.headers.insert(header::RANGE, range_header(in_pack.range));
        let options = SendOptions::within(fetch.transfer.as_ref());
        let response = lake.send_with(request, options).await.map_err(lake_error)?;
        let status = response.status();
        if is_refusal(status) {
            self.parts.grants.revoke(caller.id(), pack.id(lake.url()));
        }
        if sent_range(status, response.headers()).is_none_or(|(sent, _)| sent != in_pack.range) {
            let why = format!("the lake answered {status} to a read of an object in a pack");
            return Err(FetchError::Kept(why.into()));
        }
        let mut body = BodyReader::new(response.into_body());
        body.fill_proven(&fetch.leader, in_pack).await
    }

    /// Asks the lake for part of a block, relative to the start of the block.
    pub(super) async fn ask_lake(
        &self,
        version: &Version,
        index: u32,
        part: ByteRange,
        context: &ReadContext,
        transfer: Option<&Transfer>,
    ) -> Result<BodyReader, FetchError> {
        debug_assert!(
            part.end <= version.block_len(index),
            "a part lies within its block"
        );
        let block_start = u64::from(index) * version.block_bytes;
        let wanted = ByteRange::new(block_start + part.start, block_start + part.end);
        let request = block_request(version, wanted, context);
        let question = RepeatableGet::of(&self.parts.lake, &request).within(transfer);
        let options = SendOptions::within(transfer);
        let response = self
            .parts
            .lake
            .send_with(request, options)
            .await
            .map_err(lake_error)?;
        let contradicted = self.parts.grants.revoker(context.caller.id(), version.object);
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

/// Delivers the bytes of a block to the leader from where they are kept.
async fn read_kept(bytes: &dyn KeptBytes, fetch: &WantedBlock) -> Result<(), FetchError> {
    let leader = &fetch.leader;
    leader.set_source(bytes.source());
    let start = u64::from(fetch.index()) * fetch.version.block_bytes;
    let missing = fetch.missing();
    let mut pieces = bytes.read(ByteRange::new(start + missing.start, start + missing.end));
    while let Some(piece) = pieces.next().await {
        leader.push(piece.map_err(|error| FetchError::Kept(error.to_string().into()))?);
    }
    let is_whole = fetch.missing().is_empty();
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
