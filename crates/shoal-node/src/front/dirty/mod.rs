//! Requests about objects that may be dirty: acknowledged, but not yet at the lake. The node answers a
//! request itself where the answer is certain; otherwise it flushes the object and sends the request to the
//! lake.

mod bulk;
mod carry_out;
mod commits;
mod copy;
mod deletion;
mod flush;
mod listing;
mod multipart;
mod permission;
mod writes;

use std::sync::Arc;

use http::Response;
use shoal_registry::Lifetime;
use shoal_s3::error::{ErrorCode, S3Error};
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
use self::writes::DirtyWrites;
use crate::dirty::{DirtyObjects, UploadId, is_writer, not_begun, not_flushed, try_again, unversioned};
use crate::endpoint::Endpoint;
use crate::front::admission::Admitted;
use crate::front::body::ResponseBody;
use crate::front::forward::Forwarder;
use crate::front::writes::Writes;
use crate::grants::Grants;

pub(in crate::front) use self::multipart::upload_named;

/// Number of objects of a bucket that one request handles in parallel.
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
    /// Asks `lake` for permissions, and flushes `dirty` objects before requests that need them at the lake.
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

/// Answers requests about objects that may be dirty; delegates each kind of request to its own part.
pub(in crate::front) struct DirtyFront {
    dirty: Arc<DirtyObjects>,
    flusher: Arc<Flusher>,
    commits: Arc<CommitBound>,
    writes: Arc<DirtyWrites>,
    deletions: Deletions,
    bulk_deletions: BulkDeletions,
    listings: Listings,
    uploads: Uploads,
}

impl DirtyFront {
    /// Sends writes of objects that cannot be written back to `through`.
    pub(in crate::front) fn new(shared: Shared, through: Arc<Writes>) -> Self {
        let writes = Arc::new(DirtyWrites::new(&shared, through));
        Self {
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

    /// Returns true if an object of this name may be dirty; the registry must then be read before the lake.
    pub(in crate::front) fn may_be_dirty(&self, name: &ObjectName) -> bool {
        self.dirty.may_be_dirty(name)
    }

    /// Returns true if an object of `bucket` whose key begins with `prefix` may be dirty.
    pub(in crate::front) fn may_be_dirty_below(&self, bucket: &str, prefix: &[u8]) -> bool {
        self.dirty.may_be_dirty_below(bucket, prefix)
    }

    /// Acknowledges a write before it is at the lake, or writes through the cache and reports why.
    pub(in crate::front) async fn write(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
        lifetime: Option<Lifetime>,
    ) -> ResponseResult {
        self.commits.pass(&admitted.verified.caller, 1).await?;
        self.writes.write(admitted, name, lifetime).await
    }

    /// Removes an object, in the tier and at the lake.
    pub(in crate::front) async fn delete(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
    ) -> ResponseResult {
        self.commits.pass(&admitted.verified.caller, 1).await?;
        self.deletions.delete(admitted, name).await
    }

    /// Removes many objects, in the tier and at the lake.
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

    /// Begins an upload in the tier, or at the lake, and then reports why.
    pub(in crate::front) async fn begin_upload(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
        lifetime: Option<Lifetime>,
    ) -> ResponseResult {
        self.commits.pass(&admitted.verified.caller, 1).await?;
        self.uploads.begin(admitted, name, lifetime).await
    }

    /// Answers a request about an upload that a tier keeps.
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

    /// Sends a request about one object to the lake, after flushing the objects that the request needs. A
    /// request that changes the object is sent as a change, so that no other change of it is in flight.
    pub(in crate::front) async fn at_lake<F>(
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

    /// Flushes the objects that a request about a whole bucket needs at the lake.
    pub(in crate::front) async fn flush_for_bucket(&self, admitted: &mut Admitted) -> Result<(), S3Error> {
        self.flusher.flush_for_bucket(admitted).await
    }
}

fn access_denied() -> S3Error {
    S3Error::new(ErrorCode::AccessDenied, "Access Denied")
}
