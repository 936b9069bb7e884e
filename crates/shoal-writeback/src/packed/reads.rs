//! Reads of objects that may be packed.
//!
//! Entry and map say which version is current. The lake is asked only for the permission, and for bytes: by
//! one request for both if the node has too few bytes, a GET of the object's range of the pack. Otherwise a
//! HEAD of the pack asks, unless a grant of it is fresh. Where nodes cooperate, a HEAD asks, too, and an
//! object of one block comes through its homes, of which one reads that range.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use shoal_cache::blocks::cached;
use shoal_cache::exchange::respond::CallerHeaders;
use shoal_cache::lake::{Asked, LakeRefusal, PinOutcome, Pinned, ReadError, ReadRequest};
use shoal_cache::obtain::KeptBytes;
use shoal_cache::read_context::ReadContext;
use shoal_net::clock;
use shoal_net::endpoint::s3::S3Client;
use shoal_policy::{Found, ObjectId};
use shoal_s3::conditions::Conditions;
use shoal_s3::error::S3Error;
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::range::RangeRequest;

use super::PackedLake;
use super::member::{Member, NotAnswered};
use crate::dirty::packs::{BytesInMemory, MemberBytes, NotRead, SentRange};
use crate::dirty::unversioned;

/// How long the lake's permission to read a pack holds for a task, which asks about each of its members.
const PACK_ASKED: Duration = Duration::from_secs(10);

impl PackedLake {
    pub(super) async fn pin_by_map(&self, request: &ReadRequest) -> Result<PinOutcome, ReadError> {
        let name = self.name_of(request.name())?;
        let pinned = self.of_member(&name, |member| self.pin_member(request, member));
        match pinned.await? {
            Some(Some(pinned)) => return Ok(PinOutcome::Version(pinned)),
            Some(None) => self.bring_to_lake(&name).await?,
            None => {}
        }
        self.within.pin(request).await
    }

    pub(super) async fn ask_by_map(
        &self,
        request: &ReadRequest,
        is_answerable: bool,
    ) -> Result<Asked, ReadError> {
        let name = self.name_of(request.name())?;
        let permitted = self.of_member(&name, |member| async move {
            self.permit(&self.about_pack(request, &member)).await?;
            Ok(member)
        });
        if let Some(member) = permitted.await? {
            if is_answerable && member.answers(request) {
                return Ok(Asked::Known(Arc::clone(&member.object.version)));
            }
            self.bring_to_lake(&name).await?;
        }
        self.within.ask(request, is_answerable).await
    }

    pub(super) async fn version_by_map(
        &self,
        caller: &Caller,
        name: &ObjectName,
    ) -> Result<Arc<Version>, LakeRefusal> {
        let packed = self.name_of(name).map_err(NotAnswered::from)?;
        let known = self.of_member(&packed, |member| async move {
            match self.pack_version(caller, &member.object.pack_name).await {
                Ok(_) | Err(LakeRefusal::Uncacheable(_)) => Ok(Ok(Arc::clone(&member.object.version))),
                Err(LakeRefusal::Refused { status, .. }) => Err(not_read(status).into()),
                Err(trouble @ LakeRefusal::Trouble(_)) => Ok(Err(trouble)),
            }
        });
        match known.await? {
            Some(known) => known,
            None => self.within.version(caller, name).await,
        }
    }

    pub(super) async fn kept_in_pack(
        &self,
        context: &ReadContext,
        name: &ObjectName,
        version: &Version,
        pack: Option<ObjectId>,
    ) -> Result<Option<Arc<dyn KeptBytes>>, LakeRefusal> {
        let packed = self.name_of(name).map_err(NotAnswered::from)?;
        let kept = self.of_member(&packed, |member| async move {
            if member.object.version.id != version.id {
                return Ok(None);
            }
            let bytes = self.bytes(&member, &context.caller, HeaderMap::new());
            let bytes = bytes.within(self.fetcher.transfer(context));
            // A pack to which the object has been moved is not that of the task.
            let is_there = pack == Some(member.object.pack_name.id(self.fetcher.parts.lake.url()));
            if is_there && let Some(read) = self.read_from_blocks(&member.object, context).await? {
                let id = bytes.id().into();
                return Ok(Some(
                    Arc::new(BytesInMemory { id, bytes: read }) as Arc<dyn KeptBytes>
                ));
            }
            Ok(Some(Arc::new(bytes) as Arc<dyn KeptBytes>))
        });
        match kept.await?.flatten() {
            Some(kept) => Ok(Some(kept)),
            None => self.within.kept(context, version, pack).await,
        }
    }

    /// Pins a packed object for a caller that may read its pack. Returns `None` if the read needs the object
    /// at the lake under its own name.
    async fn pin_member(
        &self,
        request: &ReadRequest,
        member: Arc<Member>,
    ) -> Result<Option<Pinned>, NotAnswered> {
        let about = self.about_pack(request, &member);
        if !member.answers(request) {
            self.permit(&about).await?;
            return Ok(None);
        }
        let version = &member.object.version;
        let context = &request.context;
        let bytes = self.bytes(&member, &context.caller, about.context.headers().clone());
        let mut bytes = bytes.within(self.fetcher.transfer(context));
        // A block is proven by the CRC-32 if it is all of the object.
        let is_shared = version.block_count() == 1 && !self.fetcher.parts.cooperation.is_alone();
        if is_shared {
            bytes = bytes.shared();
        } else if self.within.granted(&about).is_none() && self.lacks_bytes(request, version) {
            // Concurrent readers of one object share its bytes but not the permission.
            match self.opening.begin_alone(version.object) {
                Ok(_opening) => return Ok(Some(self.open(&about, &bytes, version).await?)),
                Err(ended) => ended.wait().await,
            }
        }
        Ok(Some(Pinned {
            caller_headers: self.permit(&about).await?,
            kept: Some(Arc::new(bytes)),
            ..Pinned::granted(Arc::clone(version))
        }))
    }

    /// Reads a packed object whole: one GET returns its bytes, and the permission.
    async fn open(
        &self,
        about: &ReadRequest,
        bytes: &MemberBytes,
        version: &Arc<Version>,
    ) -> Result<Pinned, NotAnswered> {
        let Asked::AtLake(question) = self.within.ask(about, false).await? else {
            unreachable!("a read that must be forwarded is a question to the lake");
        };
        let SentRange { head, bytes: sent } = bytes.open().await?;
        let stamp = question.stamp;
        self.within
            .learn_from_answer(about, head.status, &head.headers, stamp);
        Ok(Pinned {
            kept: Some(Arc::new(BytesInMemory {
                id: bytes.id().into(),
                bytes: sent,
            })),
            caller_headers: Some(Box::default()),
            opened: true,
            ..Pinned::granted(Arc::clone(version))
        })
    }

    /// Asks the lake if the caller may read a pack, unless it has said so lately. The pack's own headers are
    /// not the object's.
    async fn permit(&self, about: &ReadRequest) -> Result<CallerHeaders, NotAnswered> {
        if self.within.granted(about).is_some() {
            return Ok(None);
        }
        match self.within.pin(about).await? {
            PinOutcome::Version(_) | PinOutcome::Bypass(_) => Ok(Some(Box::default())),
            PinOutcome::Relay(response) => Err(not_read(response.status()).into()),
        }
    }

    /// Returns the version of a pack if the caller may read it. The lake is asked about it in the name of a
    /// caller once in a while, and not about each of its members.
    pub(super) async fn pack_version(
        &self,
        caller: &Caller,
        pack: &ObjectName,
    ) -> Result<Arc<Version>, LakeRefusal> {
        let parts = &self.fetcher.parts;
        let object = pack.id(parts.lake.url());
        let granted = || {
            let stamp = parts.grants.stamp(caller.id(), pack, object, clock::instant());
            let granted = parts.grants.granted(caller.id(), object, stamp, PACK_ASKED);
            granted.map(|(version, _)| version)
        };
        if let Some(version) = granted() {
            return Ok(version);
        }
        // The members of a pack are asked for at the same time.
        let _asking = match self.opening.begin_alone(object) {
            Ok(asking) => Some(asking),
            Err(ended) => {
                ended.wait().await;
                None
            }
        };
        match granted() {
            Some(version) => Ok(version),
            None => self.within.version(caller, pack).await,
        }
    }

    /// Returns the read of the object's pack that needs the same permission as `request`, and no bytes.
    fn about_pack(&self, request: &ReadRequest, member: &Member) -> ReadRequest {
        let (pack, lake) = (&member.object.pack_name, &self.fetcher.parts.lake);
        let ReadContext { caller, purpose, .. } = &*request.context;
        let context = ReadContext::of_peer(
            lake.account_for(caller),
            caller.clone(),
            Some(pack.clone()),
            request.context.headers().clone(),
        );
        ReadRequest {
            caller: request.caller,
            object: pack.id(lake.url()),
            // The little that is read of it if the lake answers a HEAD with an error.
            range: RangeRequest::FirstLast(0, 0),
            conditions: Conditions::default(),
            context: Arc::new(context.with_purpose(purpose.clone())),
            reuse: request.reuse,
            // The lake is asked by a HEAD.
            only_if_cached: true,
            checksum_mode: false,
            question: request.question,
            as_sent: None,
        }
    }

    fn bytes(&self, member: &Member, caller: &Caller, headers: HeaderMap) -> MemberBytes {
        let (object, parts) = (&member.object, &self.fetcher.parts);
        let client = S3Client::of_caller(&parts.lake, caller);
        let pack = object.pack_name.id(parts.lake.url());
        let bytes = object.bytes(client, headers, &member.map.damages);
        bytes.contradicting(parts.grants.revoker(caller.id(), pack))
    }

    /// Returns true if the answer to a read has bytes that this node does not have.
    fn lacks_bytes(&self, request: &ReadRequest, version: &Version) -> bool {
        let range = request.locate(version).ok();
        let range = range.filter(|range| !request.only_if_cached && !range.is_empty());
        let holds = |block| self.fetcher.holds(block);
        range.is_some_and(|range| cached(version, range, holds) != Found::Complete)
    }

    /// Writes a packed object under its own name, for a caller that may read it.
    async fn bring_to_lake(&self, name: &ObjectName) -> Result<(), S3Error> {
        self.dirty.entries.flush(name).await?;
        self.fetcher.parts.grants.invalidate_object(name);
        Ok(())
    }

    /// Returns the name under which an object may be packed.
    ///
    /// # Errors
    ///
    /// It is that of a pack.
    fn name_of(&self, name: &ObjectName) -> Result<ObjectName, ReadError> {
        self.packs().permit(name)?;
        Ok(unversioned(name))
    }
}

impl Member {
    /// Returns true if the answer to a read follows from what the map says.
    fn answers(&self, request: &ReadRequest) -> bool {
        request.is_understood() && request.follows_from(&self.object.version)
    }
}

pub(super) fn not_read(status: StatusCode) -> NotRead {
    match status {
        StatusCode::NOT_FOUND => NotRead::Gone,
        status => NotRead::Refused(status),
    }
}
