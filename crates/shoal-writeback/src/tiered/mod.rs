//! The lake with a tier before it: an object that is dirty is what its entry says, and all others are what
//! the lake within says.
//!
//! The node answers a request itself where the answer is certain. Otherwise it flushes the object, and sends
//! the request to the lake within.

mod bulk;
mod carry_out;
mod commits;
mod copy;
mod deletion;
mod flush;
mod listing;
mod multipart;
mod permission;
mod reads;
mod rewind;
mod writes;

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{HeaderMap, StatusCode};
use shoal_cache::exchange::location::Addresses;
use shoal_cache::exchange::{Admitted, ResponseResult};
use shoal_cache::freshness::Reuse;
use shoal_cache::grants::{Grants, QuestionStamp};
use shoal_cache::lake::{Asked, Lake, LakeRefusal, PageRequest, PinOutcome, ReadError, ReadRequest, Write};
use shoal_cache::obtain::KeptBytes;
use shoal_cache::write::WriteMode;
use shoal_net::endpoint::Endpoint;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::identity::Caller;
use shoal_s3::object::{ObjectName, Version};
use shoal_s3::operation::{Classified, Effect, Operation};
use shoal_s3::xml::ListedObject;

use self::bulk::BulkDeletions;
use self::carry_out::carry_out;
use self::commits::CommitBound;
use self::deletion::Deletions;
use self::flush::{Flusher, is_form};
use self::listing::Listings;
use self::multipart::{Uploads, upload_named};
use self::permission::Permissions;
use self::writes::DirtyWrites;
use crate::dirty::{DirtyObjects, is_writer, not_begun, not_flushed, try_again, unversioned};

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

/// The parts that several kinds of requests use.
struct Shared {
    dirty: Arc<DirtyObjects>,
    grants: Arc<Grants>,
    lake: Arc<Endpoint>,
    within: Arc<dyn Lake>,
    addresses: Arc<Addresses>,
    permissions: Arc<Permissions>,
    flusher: Arc<Flusher>,
    commits: Arc<CommitBound>,
}

/// A lake with a tier before it.
pub struct TieredLake {
    dirty: Arc<DirtyObjects>,
    within: Arc<dyn Lake>,
    flusher: Arc<Flusher>,
    commits: Arc<CommitBound>,
    writes: Arc<DirtyWrites>,
    deletions: Deletions,
    bulk_deletions: BulkDeletions,
    listings: Listings,
    uploads: Uploads,
}

impl Lake for TieredLake {
    /// Changes of names that may be dirty are ordered by the registry, and the directory does not know them.
    fn reuse(&self, name: &ObjectName, reuse: Reuse) -> Reuse {
        if reuse.coherent && self.dirty.may_be_dirty(name) {
            return Reuse::NEVER;
        }
        self.within.reuse(name, reuse)
    }

    fn granted(&self, request: &ReadRequest) -> Option<Arc<Version>> {
        if self.dirty.may_be_dirty(&request.name) {
            return None;
        }
        self.within.granted(request)
    }

    fn pin<'a>(&'a self, request: &'a ReadRequest) -> BoxFuture<'a, Result<PinOutcome, ReadError>> {
        if self.dirty.may_be_dirty(&request.name) {
            self.pin_by_entry(request).boxed()
        } else {
            self.within.pin(request)
        }
    }

    fn ask<'a>(
        &'a self,
        request: &'a ReadRequest,
        is_answerable: bool,
    ) -> BoxFuture<'a, Result<Asked, ReadError>> {
        if self.dirty.may_be_dirty(&request.name) {
            self.ask_by_entry(request, is_answerable).boxed()
        } else {
            self.within.ask(request, is_answerable)
        }
    }

    fn learn_from_head(
        &self,
        request: &ReadRequest,
        status: StatusCode,
        headers: &HeaderMap,
        stamp: QuestionStamp,
    ) {
        self.within.learn_from_head(request, status, headers, stamp);
    }

    fn version<'a>(
        &'a self,
        caller: &'a Caller,
        name: &'a ObjectName,
    ) -> BoxFuture<'a, Result<Arc<Version>, LakeRefusal>> {
        if self.dirty.may_be_dirty(name) {
            self.version_by_entry(caller, name).boxed()
        } else {
            self.within.version(caller, name)
        }
    }

    fn kept<'a>(
        &'a self,
        caller: &'a Caller,
        name: &'a ObjectName,
        version: &'a Version,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn KeptBytes>>, LakeRefusal>> {
        let kept = async move {
            if self.dirty.may_be_dirty(name) {
                let lookup = self.dirty.find(&unversioned(name)).await;
                let lookup = lookup.map_err(|error| LakeRefusal::Trouble(error.to_string()))?;
                let manifest = lookup.written_by(caller);
                if let Some(manifest) = manifest.filter(|manifest| manifest.version.id == version.id) {
                    return Ok(Some(self.bytes(&lookup, manifest)));
                }
            }
            self.within.kept(caller, name, version).await
        };
        kept.boxed()
    }

    fn list<'a>(
        &'a self,
        caller: &'a Caller,
        page: PageRequest<'a>,
    ) -> BoxFuture<'a, Result<Vec<ListedObject>, LakeRefusal>> {
        if self.dirty.may_be_dirty_below(page.bucket, page.prefix) {
            self.list_with_entries(caller, page).boxed()
        } else {
            self.within.list(caller, page)
        }
    }

    fn keeps_upload(&self, request: &Classified) -> bool {
        upload_named(request).is_some() || self.within.keeps_upload(request)
    }

    fn of_upload<'a>(
        &'a self,
        admitted: Box<Admitted>,
        name: &'a ObjectName,
    ) -> BoxFuture<'a, ResponseResult> {
        let Some(id) = upload_named(&admitted.classified) else {
            return self.within.of_upload(admitted, name);
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
        let sender = sender(&admitted);
        let put = async move {
            if write.mode != WriteMode::Back {
                let (name, within) = (write.name.clone(), Arc::clone(&self.within));
                let (mode, lifetime) = (write.mode, write.lifetime);
                let put = |admitted| async move {
                    let name = &name;
                    let write = Write { name, mode, lifetime };
                    within.put(admitted, write).await
                };
                return self.at_lake(admitted, write.name, put).await;
            }
            self.commits.pass(&admitted.verified.caller, 1).await?;
            if admitted.classified.operation == Operation::CreateMultipartUpload {
                self.uploads.begin(admitted, write.name, write.lifetime).await
            } else {
                self.writes.write(admitted, write.name, write.lifetime).await
            }
        };
        self.noted(sender, put)
    }

    fn delete<'a>(&'a self, admitted: Box<Admitted>, name: &'a ObjectName) -> BoxFuture<'a, ResponseResult> {
        if !self.dirty.may_be_dirty(name) {
            return self.forward(admitted);
        }
        let sender = sender(&admitted);
        let deleted = async move {
            self.commits.pass(&admitted.verified.caller, 1).await?;
            self.deletions.delete(admitted, name).await
        };
        self.noted(sender, deleted)
    }

    fn delete_many<'a>(&'a self, admitted: Box<Admitted>, bucket: &'a str) -> BoxFuture<'a, ResponseResult> {
        if self.dirty.may_be_dirty_below(bucket, b"") {
            self.bulk_deletions.delete(admitted, bucket).boxed()
        } else {
            self.noted(sender(&admitted), self.within.delete_many(admitted, bucket))
        }
    }

    fn list_objects<'a>(&'a self, admitted: Box<Admitted>, bucket: &'a str) -> BoxFuture<'a, ResponseResult> {
        let sender = sender(&admitted);
        if self.may_list_dirty(&admitted, bucket) {
            self.noted(sender, self.listings.list(admitted, bucket))
        } else {
            self.noted(sender, self.within.list_objects(admitted, bucket))
        }
    }

    fn list_uploads<'a>(&'a self, admitted: Box<Admitted>, bucket: &'a str) -> BoxFuture<'a, ResponseResult> {
        let sender = sender(&admitted);
        if self.may_list_dirty(&admitted, bucket) {
            self.noted(sender, self.listings.list_uploads(admitted, bucket.into()))
        } else {
            self.noted(sender, self.within.list_uploads(admitted, bucket))
        }
    }

    fn forward(&self, admitted: Box<Admitted>) -> BoxFuture<'_, ResponseResult> {
        self.noted(sender(&admitted), self.forward_now(admitted))
    }

    fn drain_round(&self) -> BoxFuture<'_, u64> {
        async { self.dirty.drain_round().await + self.within.drain_round().await }.boxed()
    }
}

impl TieredLake {
    /// Puts tiers before the lake within.
    pub fn new(parts: TieredLakeParts) -> Self {
        let TieredLakeParts {
            dirty,
            within,
            grants,
            endpoint: lake,
            addresses,
        } = parts;
        let permissions = Arc::new(Permissions::new(Arc::clone(&lake), Arc::clone(&dirty)));
        let flusher = Flusher::new(Arc::clone(&dirty), Arc::clone(&grants), Arc::clone(&permissions));
        let shared = Shared {
            dirty,
            grants,
            lake,
            within,
            addresses,
            permissions,
            flusher: Arc::new(flusher),
            commits: Arc::default(),
        };
        let writes = Arc::new(DirtyWrites::new(&shared));
        Self {
            deletions: Deletions::new(&shared),
            bulk_deletions: BulkDeletions::new(&shared),
            listings: Listings::new(&shared),
            uploads: Uploads::new(&shared, Arc::clone(&writes)),
            writes,
            dirty: shared.dirty,
            within: shared.within,
            flusher: shared.flusher,
            commits: shared.commits,
        }
    }

    /// Returns true if a page of a listing may show dirty objects or uploads.
    fn may_list_dirty(&self, admitted: &Admitted, bucket: &str) -> bool {
        let prefix = admitted.classified.query.get("prefix").unwrap_or_default();
        self.dirty.may_be_dirty_below(bucket, prefix.as_bytes())
    }

    async fn forward_now(&self, mut admitted: Box<Admitted>) -> ResponseResult {
        let classified = &admitted.classified;
        match (classified.object.clone(), classified.bucket.clone()) {
            // An abort concerns no object.
            (Some(_), _) if classified.operation == Operation::AbortMultipartUpload => {}
            (Some(name), _) => {
                let within = Arc::clone(&self.within);
                let forward = |admitted| async move { within.forward(admitted).await };
                return self.at_lake(admitted, &name, forward).await;
            }
            (None, Some(bucket)) if self.dirty.may_be_dirty_below(&bucket, b"") => {
                self.flusher.flush_for_bucket(&mut admitted).await?;
            }
            (None, _) => {}
        }
        self.within.forward(admitted).await
    }

    /// Forgets the remembered permissions of the sender in a bucket if the lake refuses its request.
    fn noted<'a>(
        &'a self,
        (caller, bucket): (Caller, Option<Arc<str>>),
        answered: impl Future<Output = ResponseResult> + Send + 'a,
    ) -> BoxFuture<'a, ResponseResult> {
        let noted = async move {
            let response = answered.await?;
            if let Some(bucket) = &bucket
                && matches!(response.status().as_u16(), 401 | 403)
            {
                self.dirty.refused(&caller, bucket);
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
            self.flusher.flush_for_bucket(&mut admitted).await?;
            return request(admitted).await;
        }
        if admitted.classified.effect() == Effect::None || !self.dirty.may_be_dirty(name) {
            self.flusher.flush_for_read(&admitted, name).await?;
            return request(admitted).await;
        }
        self.commits.pass(&admitted.verified.caller, 1).await?;
        match self.flusher.begin_change(&admitted, name, None).await? {
            Some(change) => carry_out(change, admitted, request).await,
            None => request(admitted).await,
        }
    }
}

/// Returns the sender of a request, and the bucket that it names.
fn sender(admitted: &Admitted) -> (Caller, Option<Arc<str>>) {
    (
        admitted.verified.caller.clone(),
        admitted.classified.bucket.clone(),
    )
}

fn access_denied() -> S3Error {
    S3Error::new(ErrorCode::AccessDenied, "Access Denied")
}
