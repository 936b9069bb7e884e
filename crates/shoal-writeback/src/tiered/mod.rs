//! The lake with a tier before it: an object that is dirty is what its entry says, and all others are what
//! the lake within says.
//!
//! The node answers a request itself where the answer is certain. Otherwise it flushes the object, and sends
//! the request to the lake within.

mod asker;
mod bulk;
mod carry_out;
mod commits;
mod copy;
mod deletion;
mod flush;
mod listing;
mod parts;
mod reads;
mod rewind;
mod upload_requests;
mod writes;

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{HeaderMap, StatusCode};
use shoal_cache::exchange::{Admitted, ResponseResult};
use shoal_cache::freshness::Reuse;
use shoal_cache::grants::QuestionStamp;
use shoal_cache::lake::{Asked, Lake, LakeRefusal, PageRequest, PinOutcome, ReadError, ReadRequest, Write};
use shoal_cache::obtain::KeptBytes;
use shoal_cache::write::WriteMode;
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::operation::{Classified, Effect, Operation};
use shoal_s3::xml::ListedObject;

use self::bulk::BulkDeletions;
use self::carry_out::carry_out;
use self::commits::CommitBound;
use self::deletion::Deletions;
use self::flush::is_form;
use self::listing::Listings;
pub use self::listing::{Listing, UploadListing};
pub use self::parts::TieredLakeParts;
use self::upload_requests::{UploadRequests, upload_named};
use self::writes::DirtyWrites;
use crate::dirty::unversioned;

/// A lake with a tier before it.
pub struct TieredLake {
    parts: Arc<TieredLakeParts>,
    commits: Arc<CommitBound>,
    writes: DirtyWrites,
    deletions: Deletions,
    bulk_deletions: BulkDeletions,
    listings: Listings,
    uploads: UploadRequests,
}

impl Lake for TieredLake {
    /// Changes of names that may be dirty are ordered by the registry, and the directory does not know them.
    fn reuse(&self, name: &ObjectName, reuse: Reuse) -> Reuse {
        if reuse.coherent && self.parts.dirty.entries.may_be_dirty(name) {
            return Reuse::NEVER;
        }
        self.parts.within.reuse(name, reuse)
    }

    fn granted(&self, request: &ReadRequest) -> Option<Arc<Version>> {
        if self.parts.dirty.entries.may_be_dirty(&request.name) {
            return None;
        }
        self.parts.within.granted(request)
    }

    fn pin<'a>(&'a self, request: &'a ReadRequest) -> BoxFuture<'a, Result<PinOutcome, ReadError>> {
        if self.parts.dirty.entries.may_be_dirty(&request.name) {
            self.pin_by_entry(request).boxed()
        } else {
            self.parts.within.pin(request)
        }
    }

    fn ask<'a>(
        &'a self,
        request: &'a ReadRequest,
        is_answerable: bool,
    ) -> BoxFuture<'a, Result<Asked, ReadError>> {
        if self.parts.dirty.entries.may_be_dirty(&request.name) {
            self.ask_by_entry(request, is_answerable).boxed()
        } else {
            self.parts.within.ask(request, is_answerable)
        }
    }

    fn learn_from_head(
        &self,
        request: &ReadRequest,
        status: StatusCode,
        headers: &HeaderMap,
        stamp: QuestionStamp,
    ) {
        self.parts.within.learn_from_head(request, status, headers, stamp);
    }

    fn version<'a>(
        &'a self,
        caller: &'a Caller,
        name: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Arc<Version>, LakeRefusal>> {
        if self.parts.dirty.entries.may_be_dirty(name) {
            self.version_by_entry(caller, name).boxed()
        } else {
            self.parts.within.version(caller, name)
        }
    }

    fn kept<'a>(
        &'a self,
        caller: &'a Caller,
        name: &'a ObjectName,
        version: &'a Version,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn KeptBytes>>, LakeRefusal>> {
        let kept = async move {
            if self.parts.dirty.entries.may_be_dirty(name) {
                let lookup = self.parts.dirty.entries.find(&unversioned(name)).await;
                let lookup = lookup.map_err(|error| LakeRefusal::Trouble(error.to_string()))?;
                let manifest = lookup.written_by(caller);
                if let Some(manifest) = manifest.filter(|manifest| manifest.version.id == version.id) {
                    return Ok(Some(self.bytes(&lookup, manifest)));
                }
            }
            self.parts.within.kept(caller, name, version).await
        };
        kept.boxed()
    }

    fn list<'a>(
        &'a self,
        caller: &'a Caller,
        page: PageRequest<'a>,
    ) -> BoxFuture<'a, Result<Vec<ListedObject>, LakeRefusal>> {
        if self
            .parts
            .dirty
            .entries
            .may_be_dirty_below(page.bucket, page.prefix)
        {
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
            if admitted.classified.effect() != Effect::None {
                self.commits.pass(&admitted.verified.caller, 1).await?;
            }
            self.uploads.answer(admitted, name, id).await
        };
        answered.boxed()
    }

    fn put<'a>(&'a self, admitted: Box<Admitted>, write: Write<'a>) -> BoxFuture<'a, ResponseResult> {
        let sender = Sender::new(&admitted);
        let put = async move {
            if write.mode != WriteMode::Back {
                let (name, within) = (write.name.clone(), Arc::clone(&self.parts.within));
                let Write { mode, lifetime, .. } = write;
                let put = |admitted| async move {
                    let name = &name;
                    within.put(admitted, Write { name, mode, lifetime }).await
                };
                return self.at_lake(admitted, write.name, put).await;
            }
            self.commits.pass(&admitted.verified.caller, 1).await?;
            if admitted.classified.operation == Operation::CreateMultipartUpload {
                self.uploads.begin(admitted, write).await
            } else {
                self.writes.write(admitted, write).await
            }
        };
        self.noted(sender, put)
    }

    fn delete<'a>(&'a self, admitted: Box<Admitted>, name: &'a ObjectName) -> BoxFuture<'a, ResponseResult> {
        if !self.parts.dirty.entries.may_be_dirty(name) {
            return self.forward(admitted);
        }
        let sender = Sender::new(&admitted);
        let deleted = async move {
            self.commits.pass(&admitted.verified.caller, 1).await?;
            self.deletions.delete(admitted, name).await
        };
        self.noted(sender, deleted)
    }

    fn delete_many<'a>(&'a self, admitted: Box<Admitted>, bucket: &'a str) -> BoxFuture<'a, ResponseResult> {
        if self.parts.dirty.entries.may_be_dirty_below(bucket, b"") {
            self.bulk_deletions.delete(admitted, bucket).boxed()
        } else {
            self.noted(
                Sender::new(&admitted),
                self.parts.within.delete_many(admitted, bucket),
            )
        }
    }

    fn list_objects<'a>(&'a self, admitted: Box<Admitted>, bucket: &'a str) -> BoxFuture<'a, ResponseResult> {
        let sender = Sender::new(&admitted);
        if self.may_list_dirty(&admitted, bucket) {
            self.noted(sender, self.listings.list(admitted, bucket))
        } else {
            self.noted(sender, self.parts.within.list_objects(admitted, bucket))
        }
    }

    fn list_uploads<'a>(&'a self, admitted: Box<Admitted>, bucket: &'a str) -> BoxFuture<'a, ResponseResult> {
        let sender = Sender::new(&admitted);
        if self.may_list_dirty(&admitted, bucket) {
            self.noted(sender, self.listings.list_uploads(admitted, bucket.into()))
        } else {
            self.noted(sender, self.parts.within.list_uploads(admitted, bucket))
        }
    }

    fn forward(&self, admitted: Box<Admitted>) -> BoxFuture<'_, ResponseResult> {
        self.noted(Sender::new(&admitted), self.forward_now(admitted))
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
            writes: DirtyWrites(Arc::clone(&parts)),
            deletions: Deletions(Arc::clone(&parts)),
            bulk_deletions: BulkDeletions::new(Arc::clone(&parts), Arc::clone(&commits)),
            listings: Listings(Arc::clone(&parts)),
            uploads: UploadRequests(Arc::clone(&parts)),
            parts,
            commits,
        }
    }

    /// Returns true if a page of a listing may show dirty objects or uploads.
    fn may_list_dirty(&self, admitted: &Admitted, bucket: &str) -> bool {
        let prefix = admitted.classified.query.get("prefix").unwrap_or_default();
        self.parts
            .dirty
            .entries
            .may_be_dirty_below(bucket, prefix.as_bytes())
    }

    async fn forward_now(&self, mut admitted: Box<Admitted>) -> ResponseResult {
        let classified = &admitted.classified;
        match (classified.object.clone(), classified.bucket.clone()) {
            // An abort concerns no object.
            (Some(_), _) if classified.operation == Operation::AbortMultipartUpload => {}
            (Some(name), _) => {
                let within = Arc::clone(&self.parts.within);
                let forward = |admitted| async move { within.forward(admitted).await };
                return self.at_lake(admitted, &name, forward).await;
            }
            (None, Some(bucket)) if self.parts.dirty.entries.may_be_dirty_below(&bucket, b"") => {
                self.parts.flush_for_bucket(&mut admitted).await?;
            }
            (None, _) => {}
        }
        self.parts.within.forward(admitted).await
    }

    /// Forgets the remembered permissions of the sender in a bucket if the lake refuses its request.
    fn noted<'a>(
        &'a self,
        sender: Sender,
        answered: impl Future<Output = ResponseResult> + Send + 'a,
    ) -> BoxFuture<'a, ResponseResult> {
        let noted = async move {
            let response = answered.await?;
            if let Some(bucket) = &sender.bucket
                && matches!(response.status().as_u16(), 401 | 403)
            {
                self.parts.dirty.clearances.refused(&sender.caller, bucket);
            }
            Ok(response)
        };
        noted.boxed()
    }

    /// Sends a request about one object to the lake, after flushing the objects that the request needs. A
    /// request that changes the object is sent as a change, so that no other change of it is in flight.
    async fn at_lake<F>(
        &self,
        mut admitted: Box<Admitted>,
        name: &ObjectName,
        request: impl FnOnce(Box<Admitted>) -> F,
    ) -> ResponseResult
    where
        F: Future<Output = ResponseResult> + Send + 'static,
    {
        // A form carries the name of its object in the body.
        if is_form(&admitted) {
            self.parts.flush_for_bucket(&mut admitted).await?;
            return request(admitted).await;
        }
        if admitted.classified.effect() == Effect::None || !self.parts.dirty.entries.may_be_dirty(name) {
            self.parts.flush_for_read(&admitted, name).await?;
            return request(admitted).await;
        }
        self.commits.pass(&admitted.verified.caller, 1).await?;
        match self.parts.begin_change(&admitted, name, None).await? {
            Some(change) => carry_out(change, admitted, request).await,
            None => request(admitted).await,
        }
    }
}

/// The sender of a request, and the bucket that it names.
struct Sender {
    caller: Caller,
    bucket: Option<Arc<str>>,
}

impl Sender {
    fn new(admitted: &Admitted) -> Self {
        Self {
            caller: admitted.verified.caller.clone(),
            bucket: admitted.classified.bucket.clone(),
        }
    }
}
