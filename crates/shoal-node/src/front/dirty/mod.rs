//! Requests for objects that the lake may not have yet. The node answers where the answer is sure; otherwise
//! it brings the object to the lake first.

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
mod writes;

use std::sync::Arc;

use http::Response;
use shoal_registry::Lifetime;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::identity::Caller;
use shoal_s3::object::ObjectName;
use shoal_s3::operation::Effect;

use self::bulk::BulkDeletions;
use self::carry_out::carry_out;
pub(in crate::front) use self::carry_out::{Verdict, judged};
use self::commits::CommitBound;
use self::deletion::Deletions;
use self::flush::{Flusher, is_form};
use self::listing::Listings;
use self::multipart::Uploads;
use self::permission::Permissions;
use self::reads::DirtyReads;
use self::writes::DirtyWrites;
use crate::dirty::{DirtyObjects, UploadId};
use crate::endpoint::Endpoint;
use crate::front::admission::Admitted;
use crate::front::body::ResponseBody;
use crate::front::forward::Forwarder;
use crate::front::reads::Reads;
use crate::front::record::Record;
use crate::front::wanted::Wanted;
use crate::front::writes::Writes;
use crate::grants::Grants;
use crate::read::ObjectReader;
use crate::tier::TierUnavailable;

pub(in crate::front) use self::multipart::upload_named;

/// The number of a bucket's objects that one request handles at the same time.
const PARALLEL: usize = 8;

/// The response to a request, or the error that becomes one.
type ResponseResult = Result<Response<ResponseBody>, S3Error>;

/// The parts of a node that several kinds of requests about dirty objects use.
pub(in crate::front) struct Shared {
    dirty: Arc<DirtyObjects>,
    grants: Arc<Grants>,
    lake: Arc<Endpoint>,
    forwarder: Arc<Forwarder>,
    permissions: Arc<Permissions>,
    flusher: Arc<Flusher>,
    commits: Arc<CommitBound>,
}

impl Shared {
    /// Asks `lake` for its permission, and flushes `dirty` objects before requests that need them there.
    pub(in crate::front) fn new(
        dirty: Arc<DirtyObjects>,
        grants: Arc<Grants>,
        lake: Arc<Endpoint>,
        forwarder: Arc<Forwarder>,
    ) -> Self {
        let permissions = Arc::new(Permissions::new(Arc::clone(&lake), Arc::clone(&dirty)));
        let flusher = Flusher::new(Arc::clone(&dirty), Arc::clone(&grants), Arc::clone(&permissions));
        Self {
            dirty,
            grants,
            lake,
            forwarder,
            permissions,
            flusher: Arc::new(flusher),
            commits: Arc::default(),
        }
    }
}

/// Answers requests for objects that may be dirty: each kind has a part of its own.
pub(in crate::front) struct DirtyFront {
    dirty: Arc<DirtyObjects>,
    flusher: Arc<Flusher>,
    commits: Arc<CommitBound>,
    reads: DirtyReads,
    writes: Arc<DirtyWrites>,
    deletions: Deletions,
    bulk_deletions: BulkDeletions,
    listings: Listings,
    uploads: Uploads,
}

impl DirtyFront {
    /// Reads dirty objects by `reader` and others by `reads`, and writes `through` the cache what may not be
    /// dirty.
    pub(in crate::front) fn new(
        shared: Shared,
        (reader, reads): (Arc<ObjectReader>, Arc<Reads>),
        through: Arc<Writes>,
    ) -> Self {
        let writes = Arc::new(DirtyWrites::new(&shared, through));
        Self {
            reads: DirtyReads::new(&shared, reader, reads),
            deletions: Deletions::new(&shared),
            bulk_deletions: BulkDeletions::new(&shared),
            listings: Listings::new(&shared),
            uploads: Uploads::new(&shared, Arc::clone(&writes)),
            writes,
            dirty: shared.dirty,
            flusher: shared.flusher,
            commits: shared.commits,
        }
    }

    /// Returns whether an object of this name may be dirty. If so, the node looks for it before it asks the
    /// lake.
    pub(in crate::front) fn may_be_dirty(&self, name: &ObjectName) -> bool {
        self.flusher.may_be_dirty(name)
    }

    /// Returns whether an object of `bucket` whose key begins with `prefix` may be dirty.
    pub(in crate::front) fn may_be_dirty_below(&self, bucket: &str, prefix: &[u8]) -> bool {
        self.dirty.may_be_dirty_below(bucket, prefix)
    }

    /// Answers a GET of a name that may be dirty.
    pub(in crate::front) async fn get(
        &self,
        admitted: Box<Admitted>,
        wanted: &Wanted,
        record: &mut Record,
    ) -> ResponseResult {
        self.reads.get(admitted, wanted, record).await
    }

    /// Answers a HEAD of a name that may be dirty.
    pub(in crate::front) async fn head(
        &self,
        admitted: Box<Admitted>,
        wanted: &Wanted,
        record: &mut Record,
    ) -> ResponseResult {
        self.reads.head(admitted, wanted, record).await
    }

    /// Acknowledges a write before the lake has it, or carries it out through the cache and says why.
    pub(in crate::front) async fn write(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
        lifetime: Option<Lifetime>,
    ) -> ResponseResult {
        self.commits.pass(&admitted.verified.caller, 1).await?;
        self.writes.write(admitted, name, lifetime).await
    }

    /// Removes an object from wherever it is.
    pub(in crate::front) async fn delete(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
    ) -> ResponseResult {
        self.commits.pass(&admitted.verified.caller, 1).await?;
        self.deletions.delete(admitted, name).await
    }

    /// Removes many objects, each from wherever it is.
    pub(in crate::front) async fn delete_many(
        &self,
        admitted: Box<Admitted>,
        bucket: &str,
    ) -> ResponseResult {
        self.bulk_deletions.delete(admitted, bucket).await
    }

    /// Lists the objects of a bucket.
    pub(in crate::front) async fn list(&self, admitted: Box<Admitted>, bucket: &str) -> ResponseResult {
        self.listings.list(admitted, bucket).await
    }

    /// Lists the uploads of a bucket.
    pub(in crate::front) async fn list_uploads(
        &self,
        admitted: Box<Admitted>,
        bucket: Arc<str>,
    ) -> ResponseResult {
        self.listings.list_uploads(admitted, bucket).await
    }

    /// Begins an upload whose object may be dirty, or has the lake begin it and says why.
    pub(in crate::front) async fn begin_upload(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
        lifetime: Option<Lifetime>,
    ) -> ResponseResult {
        self.commits.pass(&admitted.verified.caller, 1).await?;
        self.uploads.begin(admitted, name, lifetime).await
    }

    /// Answers a request about an upload that a node of this cluster keeps.
    pub(in crate::front) async fn of_upload(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
        id: UploadId,
    ) -> ResponseResult {
        if admitted.classified.effect() != Effect::None {
            self.commits.pass(&admitted.verified.caller, 1).await?;
        }
        Box::pin(self.uploads.answer(admitted, name, id)).await
    }

    /// Sends a request about one object to the lake, once the lake has the objects that the request needs. If
    /// the request changes the object, no other change of it is on its way there.
    pub(in crate::front) async fn at_lake<F>(
        &self,
        mut admitted: Box<Admitted>,
        name: &ObjectName,
        request: impl FnOnce(Box<Admitted>) -> F,
    ) -> ResponseResult
    where
        F: Future<Output = ResponseResult> + Send + 'static,
    {
        // The name that a form changes is in its body.
        if is_form(&admitted) {
            self.flusher.flush_for_bucket(&mut admitted).await?;
            return request(admitted).await;
        }
        if admitted.classified.effect() == Effect::None || !self.may_be_dirty(name) {
            self.flusher.flush_for_read(&admitted, name).await?;
            return request(admitted).await;
        }
        self.commits.pass(&admitted.verified.caller, 1).await?;
        let change = self.flusher.begin_change(&admitted, name).await?;
        carry_out(change, admitted, request).await
    }

    /// Brings to the lake the objects that a request about a whole bucket needs there.
    pub(in crate::front) async fn flush_for_bucket(&self, admitted: &mut Admitted) -> Result<(), S3Error> {
        self.flusher.flush_for_bucket(admitted).await
    }
}

/// Returns whether the caller is the identity with the access key `writer`.
fn is_writer(caller: &Caller, writer: &str) -> bool {
    matches!(caller, Caller::Identity(identity) if *identity.access_key == *writer)
}

/// The name under which the object may be dirty.
fn unversioned(name: &ObjectName) -> ObjectName {
    ObjectName {
        version: None,
        ..name.clone()
    }
}

fn try_again(error: TierUnavailable) -> S3Error {
    S3Error::new(ErrorCode::SlowDown, format!("{error}; please try again."))
}

fn access_denied() -> S3Error {
    S3Error::new(ErrorCode::AccessDenied, "Access Denied")
}
