//! The lake with a tier before it: an object that is dirty is what its entry says, and all others are what
//! the lake within says.
//!
//! The node answers a request itself where the answer is certain. Otherwise it flushes the object, and sends
//! the request to the lake within.

mod asker;
mod commits;
mod deletion;
mod flush;
mod listing;
mod reads;
mod upload_requests;
mod writes;

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{HeaderMap, StatusCode};
use shoal_cache::exchange::location::Addresses;
use shoal_cache::exchange::{Admitted, ResponseResult};
use shoal_cache::freshness::Reuse;
use shoal_cache::grants::{Grants, QuestionStamp};
use shoal_cache::lake::{
    Asked, Lake, LakeRefusal, PackPlace, PageRequest, PinOutcome, ReadError, ReadRequest, Wanted, Write,
};
use shoal_cache::obtain::KeptBytes;
use shoal_cache::read_context::ReadContext;
use shoal_cache::write::WriteMode;
use shoal_net::endpoint::Endpoint;
use shoal_policy::ObjectId;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::operation::{Classified, CopySource, Effect, Operation};
use shoal_s3::xml::ListedObject;

use self::commits::CommitBound;
use self::deletion::BulkDeletions;
use self::flush::is_form;
use self::upload_requests::{UploadRequests, upload_named};
use crate::dirty::{Dirty, DirtyObjects, unversioned};

/// Number of objects of a bucket that one request handles in parallel.
const PARALLEL: usize = 8;

/// The parts of a node that [`TieredLake`] uses.
pub struct TieredLakeParts {
    /// The dirty objects, and their tiers.
    pub dirty: Arc<DirtyObjects>,
    /// The lake that has all others.
    pub within: Arc<dyn Lake>,
    /// Remembered answers of the lake, which a change invalidates.
    pub grants: Arc<Grants>,
    /// Sends the questions of write-back to the lake.
    pub endpoint: Arc<Endpoint>,
    /// The addresses at which clients reach this node.
    pub addresses: Arc<Addresses>,
}

/// A lake with a tier before it.
pub struct TieredLake {
    parts: Arc<TieredLakeParts>,
    commits: Arc<CommitBound>,
    bulk_deletions: BulkDeletions,
    uploads: UploadRequests,
}

impl Lake for TieredLake {
    /// Changes of names that may be dirty are ordered by the registry, and the directory does not know them.
    fn reuse(&self, name: &ObjectName, reuse: Reuse) -> Reuse {
        if reuse.coherent && self.may_be_dirty(name) {
            return Reuse::NEVER;
        }
        self.parts.within.reuse(name, reuse)
    }

    fn granted(&self, request: &ReadRequest) -> Option<Arc<Version>> {
        if self.may_be_dirty(request.name()) {
            return None;
        }
        self.parts.within.granted(request)
    }

    fn pin<'a>(&'a self, request: &'a ReadRequest) -> BoxFuture<'a, Result<PinOutcome, ReadError>> {
        if self.may_be_dirty(request.name()) {
            let permitted = permit(&request.context.caller, true);
            async move {
                permitted?;
                self.pin_by_entry(request).await
            }
            .boxed()
        } else {
            self.parts.within.pin(request)
        }
    }

    fn ask<'a>(
        &'a self,
        request: &'a ReadRequest,
        is_answerable: bool,
    ) -> BoxFuture<'a, Result<Asked, ReadError>> {
        if self.may_be_dirty(request.name()) {
            let permitted = permit(&request.context.caller, true);
            async move {
                permitted?;
                self.ask_by_entry(request, is_answerable).await
            }
            .boxed()
        } else {
            self.parts.within.ask(request, is_answerable)
        }
    }

    fn learn_from_answer(
        &self,
        request: &ReadRequest,
        status: StatusCode,
        headers: &HeaderMap,
        stamp: QuestionStamp,
    ) {
        self.parts
            .within
            .learn_from_answer(request, status, headers, stamp);
    }

    fn version<'a>(
        &'a self,
        caller: &'a Caller,
        name: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Arc<Version>, LakeRefusal>> {
        if self.may_be_dirty(name) {
            self.version_by_entry(caller, name).boxed()
        } else {
            self.parts.within.version(caller, name)
        }
    }

    fn kept<'a>(
        &'a self,
        context: &'a ReadContext,
        version: &'a Version,
        pack: Option<ObjectId>,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn KeptBytes>>, LakeRefusal>> {
        let kept = async move {
            let name = context.name.as_ref();
            if let Some(name) = name.filter(|name| self.may_be_dirty(name)) {
                let entries = &self.parts.dirty.entries;
                let lookup = entries.find(&unversioned(name)).await;
                let lookup = lookup.map_err(|error| LakeRefusal::Trouble(error.to_string()))?;
                let manifest = entries
                    .readable_by(&lookup, &context.caller)
                    .and_then(Dirty::object);
                if let Some(manifest) = manifest.filter(|manifest| manifest.version.id == version.id) {
                    return Ok(Some(self.bytes(&lookup, manifest)));
                }
            }
            self.parts.within.kept(context, version, pack).await
        };
        kept.boxed()
    }

    fn may_be_packed(&self, name: &ObjectName) -> bool {
        self.parts.within.may_be_packed(name)
    }

    fn places<'a>(
        &'a self,
        caller: &'a Caller,
        wanted: &'a [Wanted<'a>],
    ) -> BoxFuture<'a, Vec<Option<PackPlace>>> {
        self.parts.within.places(caller, wanted)
    }

    fn list<'a>(
        &'a self,
        caller: &'a Caller,
        page: PageRequest<'a>,
    ) -> BoxFuture<'a, Result<Vec<ListedObject>, LakeRefusal>> {
        if self.may_be_dirty_below(page.bucket, page.prefix) {
            self.list_with_entries(caller, page).boxed()
        } else {
            self.parts.within.list(caller, page)
        }
    }

    fn keeps_upload(&self, request: &Classified) -> bool {
        upload_named(request).is_some() || self.parts.within.keeps_upload(request)
    }

    fn of_upload<'a>(
        &'a self,
        admitted: Box<Admitted>,
        name: &'a ObjectName,
    ) -> BoxFuture<'a, ResponseResult> {
        let Some(id) = upload_named(&admitted.classified) else {
            return self.parts.within.of_upload(admitted, name);
        };
        let answered = async move {
            if admitted.classified.effect != Effect::None {
                self.commits.pass(&admitted.verified.caller, 1).await?;
            }
            self.uploads.answer(admitted, name, id).await
        };
        answered.boxed()
    }

    fn put<'a>(&'a self, admitted: Box<Admitted>, write: Write<'a>) -> BoxFuture<'a, ResponseResult> {
        self.noted(admitted, move |admitted| async move {
            if write.mode != WriteMode::Back {
                return self.at_lake(admitted, write.name, Some(write)).await;
            }
            self.commits.pass(&admitted.verified.caller, 1).await?;
            if admitted.classified.operation == Operation::CreateMultipartUpload {
                self.uploads.begin(admitted, write).await
            } else {
                self.parts.write(admitted, write).await
            }
        })
    }

    fn delete<'a>(&'a self, admitted: Box<Admitted>, name: &'a ObjectName) -> BoxFuture<'a, ResponseResult> {
        if !self.may_be_dirty(name) {
            return self.forward(admitted);
        }
        self.noted(admitted, move |admitted| async move {
            self.commits.pass(&admitted.verified.caller, 1).await?;
            self.parts.delete(admitted, name).await
        })
    }

    fn delete_many<'a>(&'a self, admitted: Box<Admitted>, bucket: &'a str) -> BoxFuture<'a, ResponseResult> {
        if self.may_be_dirty_below(bucket, b"") {
            self.bulk_deletions.delete(admitted, bucket).boxed()
        } else {
            self.noted(admitted, |admitted| {
                self.parts.within.delete_many(admitted, bucket)
            })
        }
    }

    fn list_objects<'a>(&'a self, admitted: Box<Admitted>, bucket: &'a str) -> BoxFuture<'a, ResponseResult> {
        if self.may_list_dirty(&admitted, bucket) {
            self.noted(admitted, |admitted| self.parts.list_objects(admitted, bucket))
        } else {
            self.noted(admitted, |admitted| {
                self.parts.within.list_objects(admitted, bucket)
            })
        }
    }

    fn list_uploads<'a>(&'a self, admitted: Box<Admitted>, bucket: &'a str) -> BoxFuture<'a, ResponseResult> {
        if self.may_list_dirty(&admitted, bucket) {
            self.noted(admitted, |admitted| self.parts.list_uploads(admitted, bucket))
        } else {
            self.noted(admitted, |admitted| {
                self.parts.within.list_uploads(admitted, bucket)
            })
        }
    }

    fn forward(&self, admitted: Box<Admitted>) -> BoxFuture<'_, ResponseResult> {
        if is_unverified(&admitted.verified.caller) {
            // None of its names may be dirty.
            return self.noted(admitted, |admitted| self.parts.within.forward(admitted));
        }
        self.noted(admitted, |admitted| self.forward_now(admitted))
    }

    fn drain_round(&self) -> BoxFuture<'_, u64> {
        async { self.parts.dirty.entries.drain_round().await + self.parts.within.drain_round().await }.boxed()
    }
}

impl TieredLake {
    /// Puts tiers before the lake within.
    pub fn new(parts: TieredLakeParts) -> Self {
        let (parts, commits) = (Arc::new(parts), Arc::<CommitBound>::default());
        Self {
            bulk_deletions: BulkDeletions {
                parts: Arc::clone(&parts),
                commits: Arc::clone(&commits),
            },
            uploads: UploadRequests(Arc::clone(&parts)),
            parts,
            commits,
        }
    }

    fn may_be_dirty(&self, name: &ObjectName) -> bool {
        self.parts.dirty.entries.may_be_dirty(name)
    }

    fn may_be_dirty_below(&self, bucket: &str, prefix: &[u8]) -> bool {
        self.parts.dirty.entries.may_be_dirty_below(bucket, prefix)
    }

    /// Returns true if a page of a listing may show dirty objects or uploads.
    fn may_list_dirty(&self, admitted: &Admitted, bucket: &str) -> bool {
        let prefix = admitted.classified.query.get("prefix").unwrap_or_default();
        self.may_be_dirty_below(bucket, prefix.as_bytes())
    }

    async fn forward_now(&self, mut admitted: Box<Admitted>) -> ResponseResult {
        let classified = &admitted.classified;
        match (classified.object.clone(), classified.bucket.clone()) {
            // An abort concerns no object.
            (Some(_), _) if classified.operation == Operation::AbortMultipartUpload => {}
            (Some(name), _) => return self.at_lake(admitted, &name, None).await,
            (None, Some(bucket)) if self.may_be_dirty_below(&bucket, b"") => {
                self.parts.flush_for_bucket(&mut admitted).await?;
            }
            (None, _) => {}
        }
        self.parts.within.forward(admitted).await
    }

    /// Answers a request, unless it names a pack. Forgets the remembered permissions of its sender in the
    /// bucket if the lake refuses it.
    fn noted<'a, F>(
        &'a self,
        admitted: Box<Admitted>,
        answer: impl FnOnce(Box<Admitted>) -> F,
    ) -> BoxFuture<'a, ResponseResult>
    where
        F: Future<Output = ResponseResult> + Send + 'a,
    {
        let caller = admitted.verified.caller.clone();
        let bucket = admitted.classified.bucket.clone();
        let permitted = self
            .permit_names(&admitted.classified)
            .and_then(|()| self.permit_sender(&admitted));
        let answered = answer(admitted);
        let noted = async move {
            permitted?;
            let response = answered.await?;
            if let Some(bucket) = &bucket
                && matches!(response.status().as_u16(), 401 | 403)
            {
                self.parts.dirty.clearances.refused(&caller, bucket);
            }
            Ok(response)
        };
        noted.boxed()
    }

    /// Checks that a request names no pack: neither changes one nor copies it.
    fn permit_names(&self, classified: &Classified) -> Result<(), S3Error> {
        let copied = classified.copy_source.iter().flat_map(CopySource::objects);
        let mut names = classified.object.iter().chain(copied);
        names.try_for_each(|name| self.parts.dirty.entries.packs.permit(name))
    }

    /// Checks that the sender of a request about names that may be dirty is known: the node asks the lake
    /// questions in the sender's name before it acts on them.
    fn permit_sender(&self, admitted: &Admitted) -> Result<(), S3Error> {
        let Admitted {
            classified, verified, ..
        } = admitted;
        if !is_unverified(&verified.caller) {
            return Ok(());
        }
        let prefix = match classified.operation {
            Operation::ListObjects | Operation::ListMultipartUploads => classified.query.get("prefix"),
            _ => None,
        };
        let prefix = prefix.unwrap_or_default().as_bytes();
        let is_of_bucket = classified.object.is_none() || is_form(admitted);
        let bucket = classified.bucket.as_deref().filter(|_| is_of_bucket);
        let copied = classified.copy_source.iter().flat_map(CopySource::objects);
        let mut names = classified.object.iter().chain(copied);
        let may_be_dirty = names.any(|name| self.may_be_dirty(name))
            || bucket.is_some_and(|bucket| self.may_be_dirty_below(bucket, prefix));
        permit(&verified.caller, may_be_dirty)
    }

    /// Sends a request about one object to the lake, after flushing the objects that the request needs. A
    /// request that changes the object is sent as a change, so that no other change of it is in flight.
    async fn at_lake(
        &self,
        mut admitted: Box<Admitted>,
        name: &ObjectName,
        write: Option<Write<'_>>,
    ) -> ResponseResult {
        let mut change = None;
        // A form carries the name of its object in the body.
        if is_form(&admitted) {
            self.parts.flush_for_bucket(&mut admitted).await?;
        } else if admitted.classified.effect == Effect::None || !self.may_be_dirty(name) {
            self.parts.flush_for_read(&admitted, name).await?;
        } else {
            self.commits.pass(&admitted.verified.caller, 1).await?;
            change = self.parts.begin_change(&admitted, name, None).await?;
        }
        self.parts.send(change, admitted, write).await
    }
}

fn is_unverified(caller: &Caller) -> bool {
    matches!(caller, Caller::Unverified)
}

/// Refuses a caller whom this node does not know, if the names may be dirty.
fn permit(caller: &Caller, may_be_dirty: bool) -> Result<(), S3Error> {
    if !(may_be_dirty && is_unverified(caller)) {
        return Ok(());
    }
    let message = "The name is below a prefix that is written back. There the node must know the access key \
                   of the request: the lake may not have the newest bytes.";
    Err(S3Error::new(ErrorCode::AccessDenied, message))
}
