//! The interface of write-back: everything that the rest of a node asks about dirty objects, or does to them.
//!
//! This is the only file outside of `homes` that knows which protocol keeps and orders dirty objects.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts as RequestHead;
use http::uri::PathAndQuery;
use http::{HeaderMap, StatusCode};
use http_body::Body;
use shoal_s3::error::S3Error;
use shoal_s3::identity::{Caller, Identities};
use shoal_s3::object::ObjectName;
use shoal_s3::operation::Classified;
use shoal_s3::payload::CheckedBody;
use shoal_store::{Store, StoreConfig};

use super::checksums::{ChecksumSpec, creation_headers};
pub use super::homes::Held;
use super::homes::{Desk, Homes};
use super::multipart::{
    Completed, CompletionError, OpenUpload, Part, PartError, Upload, UploadId, UploadProgress, UploadQuery,
    UploadUnavailable,
};
use super::permission::{self, Permission};
use super::status::Figures;
use super::writing::{PendingWrite, WriteError, Written};
use super::{FlushStatus, Manifest};
use crate::cooperation::Cooperation;
use crate::endpoint::Endpoint;
use crate::fetch::Fetcher;
use crate::grants::Grants;
use crate::http::connection::ClientBody;
use crate::shutdown::Shutdown;
use crate::write::{Uncached, WriteRules, size_to_copy};

/// The objects that were acknowledged before the lake has them.
///
/// Every node of a cluster has one, and all of them give the same answers.
pub struct DirtyObjects {
    rules: WriteRules,
    lake: Arc<Endpoint>,
    homes: Arc<Homes>,
    desk: Desk,
}

/// The parts of a node that [`DirtyObjects`] uses.
pub struct Parts {
    /// The rules that say where objects may be dirty.
    pub rules: WriteRules,
    /// The lake.
    pub lake: Arc<Endpoint>,
    /// Blocks and manifests on disk.
    pub store: Arc<Store>,
    /// Blocks from other nodes.
    pub fetcher: Arc<Fetcher>,
    /// The other nodes.
    pub cooperation: Arc<Cooperation>,
    /// Versions and grants. Those of an object are void once it is written.
    pub grants: Arc<Grants>,
    /// The identities in whose names objects are flushed.
    pub identities: Arc<Identities>,
}

/// The state of a name.
#[derive(Clone, Debug)]
pub enum Found {
    /// Nothing is dirty under the name: the lake's answer is the answer.
    Nothing,
    /// A dirty object.
    Dirty(Arc<Manifest>),
    /// An object that was acknowledged and is lost.
    Lost(Arc<Manifest>),
}

/// No node that knows the state of the name can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the nodes that would know of the object cannot be asked now")]
pub struct AuthorityUnreachable;

/// The reason why an object is still dirty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlushFailed {
    /// It may be: its state is not known.
    #[error(transparent)]
    Unreachable(#[from] AuthorityUnreachable),
    /// It could not be brought to the lake.
    #[error("the object is dirty, and could not be flushed to the lake now")]
    NotFlushed,
}

impl DirtyObjects {
    /// Finds the objects on the disk that were dirty when the node stopped. An acknowledged object waits for
    /// the lake as long as `flush_interval`.
    pub async fn open(parts: Parts, store: &StoreConfig, flush_interval: Duration) -> Self {
        let (rules, lake) = (parts.rules.clone(), Arc::clone(&parts.lake));
        let homes = Arc::new(Homes::open(parts, store, flush_interval).await);
        Self {
            rules,
            lake,
            desk: Desk::new(Arc::clone(&homes)),
            homes,
        }
    }

    /// Flushes dirty objects when they are due, and does what else they need, until the node stops. A node on
    /// which nothing is dirty and nothing may become dirty does nothing. `cooperates`: there may be other
    /// nodes even if this one sees none.
    pub async fn run(self: Arc<Self>, cooperates: bool, stopping: Shutdown) {
        if !self.homes.is_empty() || self.rules.allow_back_anywhere() {
            Box::pin(self.homes.run(cooperates, stopping)).await;
        }
    }
}

/// Where objects may be dirty.
impl DirtyObjects {
    /// Whether an object of this name may be dirty.
    pub fn may_be_dirty(&self, name: &ObjectName) -> bool {
        self.rules.allow_back(name)
    }

    /// Whether an object of `bucket` whose key begins with `prefix` may be dirty.
    pub fn may_be_dirty_below(&self, bucket: &str, prefix: &[u8]) -> bool {
        self.rules.allow_back_below(bucket, prefix)
    }

    /// Whether any object may be dirty.
    pub fn may_be_dirty_anywhere(&self) -> bool {
        self.rules.allow_back_anywhere()
    }

    /// The buckets and prefixes below which objects may be dirty.
    pub(super) fn prefixes(&self) -> Vec<(String, Vec<u8>)> {
        self.rules.back_prefixes()
    }
}

/// Objects.
impl DirtyObjects {
    /// Looks a name up.
    ///
    /// # Errors
    ///
    /// No node that knows the state of the name can be reached. The lake's answer is not the answer then.
    pub async fn find(&self, name: &ObjectName) -> Result<Found, AuthorityUnreachable> {
        self.homes.directory().find(name).await
    }

    /// Every dirty object of a bucket whose key begins with `prefix` and follows `after`, in the order of
    /// keys.
    ///
    /// # Errors
    ///
    /// Fails if the nodes that know the dirty objects of the bucket cannot be reached.
    pub async fn list(
        &self,
        bucket: &str,
        prefix: &[u8],
        after: &[u8],
    ) -> Result<Vec<Arc<Manifest>>, AuthorityUnreachable> {
        self.homes.directory().list(bucket, prefix, after).await
    }

    /// Decides whether a write may be acknowledged before the lake has it. The lake is asked for its
    /// permission.
    ///
    /// # Errors
    ///
    /// The reason why it may not.
    pub async fn accept(
        &self,
        name: &ObjectName,
        classified: &Classified,
        parts: &RequestHead,
        caller: &Caller,
    ) -> Result<PendingWrite, Uncached> {
        let size_bytes = size_to_copy(classified, parts)?;
        let write = PendingWrite::of(name, size_bytes, parts, caller)?;
        if size_bytes > self.homes.object_bytes_max() {
            return Err(Uncached::TooLarge);
        }
        self.permit(&write, caller).await?;
        Ok(write)
    }

    /// Receives the bytes of an accepted write and commits the object: from then on every node finds it. An
    /// object that cannot be kept dirty goes to the lake before this returns.
    ///
    /// # Errors
    ///
    /// Nothing was written.
    pub async fn commit(
        &self,
        write: PendingWrite,
        body: CheckedBody<ClientBody>,
    ) -> Result<Written, WriteError> {
        self.homes.write(write, body).await
    }

    /// Whether the lake would let a caller write the object at `target`.
    pub async fn may_write(&self, target: &PathAndQuery, caller: &Caller) -> bool {
        let account = self.lake.account_for(caller);
        let permission = permission::ask(&self.lake, target, &HeaderMap::new(), account).await;
        permission != Permission::NotGranted
    }

    /// Brings an object to the lake now, if it is dirty.
    ///
    /// # Errors
    ///
    /// The object is still dirty, or lost.
    pub async fn flush(&self, name: &ObjectName) -> Result<(), FlushFailed> {
        self.homes.directory().flush(name).await
    }

    /// Keeps a dirty object from being flushed, so that it can be removed. A flush under way is broken off,
    /// or has ended when this returns. Returns `None` if nothing is dirty under the name.
    ///
    /// # Errors
    ///
    /// Fails if the nodes that know whether the object is dirty cannot be reached.
    pub async fn hold(&self, name: &ObjectName) -> Result<Option<Held>, AuthorityUnreachable> {
        self.homes.directory().hold(name).await
    }

    /// Checks that there is room for a write, and that the lake would take it from the caller.
    async fn permit(&self, write: &PendingWrite, caller: &Caller) -> Result<(), Uncached> {
        if !self.homes.has_room(write.size_bytes) {
            return Err(Uncached::TooDirty);
        }
        let account = self.lake.account_for(caller);
        match permission::ask(&self.lake, &write.target, &write.headers, account).await {
            Permission::Granted => Ok(()),
            Permission::OtherEtag => Err(Uncached::OtherEtag),
            // The lake answers the write itself, in its own words.
            Permission::NotGranted => Err(Uncached::NotPermitted),
        }
    }
}

/// Multipart uploads.
impl DirtyObjects {
    /// Begins an upload whose object may become dirty.
    ///
    /// # Errors
    ///
    /// The reason why it may not.
    pub async fn begin_upload(
        &self,
        name: &ObjectName,
        parts: &RequestHead,
        caller: &Caller,
    ) -> Result<UploadId, Uncached> {
        let mut write = PendingWrite::of(name, 0, parts, caller)?;
        write.headers = creation_headers(&write.headers);
        ChecksumSpec::of(&write.headers)?;
        if self.homes.home().is_leaving() {
            return Err(Uncached::Unsettled);
        }
        self.permit(&write, caller).await?;
        self.homes.begin_upload(write).await
    }

    /// Finds an upload.
    ///
    /// # Errors
    ///
    /// Fails if the upload cannot be continued, or if the node that keeps it cannot be reached.
    pub async fn find_upload(&self, id: UploadId) -> Result<Upload, UploadUnavailable> {
        self.homes.upload(id).await
    }

    /// Receives the bytes of a part, `size_bytes` as its head announces, and makes it a part of the upload.
    ///
    /// # Errors
    ///
    /// Fails if the body is wrong, the upload is gone, or the nodes cannot keep the bytes.
    pub async fn put_part<B>(
        &self,
        upload: &Upload,
        (number, size_bytes): (u16, u64),
        body: B,
    ) -> Result<Arc<Part>, PartError>
    where
        B: Body<Data = Bytes, Error = S3Error> + Unpin,
    {
        self.homes.take_part(upload, (number, size_bytes), body).await
    }

    /// The parts of an upload, or the object that was made of it.
    ///
    /// # Errors
    ///
    /// Fails if the upload cannot be continued, or if the node that keeps it cannot be reached.
    pub async fn upload_progress(&self, id: UploadId) -> Result<UploadProgress, UploadUnavailable> {
        self.homes.progress(id).await
    }

    /// Makes an object of `parts`, and waits for it. `asked` holds conditions on the object that exists, and
    /// checksums that the new one must have.
    ///
    /// # Errors
    ///
    /// The outer error: the upload cannot be continued, or its node cannot be reached. The inner error: no
    /// object was made, and the upload stays open.
    pub async fn complete_upload(
        &self,
        id: UploadId,
        parts: &[Arc<Part>],
        asked: &HeaderMap,
    ) -> Result<Result<Arc<Completed>, CompletionError>, UploadUnavailable> {
        self.homes.complete_upload(id, parts, asked).await
    }

    /// Ends an upload without an object.
    ///
    /// # Errors
    ///
    /// Fails if the upload cannot be continued, or if the node that keeps it cannot be reached.
    pub async fn abort_upload(&self, id: UploadId) -> Result<(), UploadUnavailable> {
        self.homes.abort_upload(id).await
    }

    /// Every open upload that the query is about, in the order of listings.
    ///
    /// # Errors
    ///
    /// Fails if a node that may keep such uploads cannot be reached.
    pub async fn list_uploads(&self, query: &UploadQuery) -> Result<Vec<Arc<Upload>>, AuthorityUnreachable> {
        self.homes.list_uploads(query).await
    }
}

/// For operators, and for a node that is to stop.
impl DirtyObjects {
    /// Whether this node knows which objects are dirty. Until it does, such objects may be answered 503.
    pub fn is_synced(&self) -> bool {
        self.homes.home().is_settled()
    }

    /// Counts the dirty objects here, and the outcomes of writes since the node started.
    pub fn figures(&self) -> Figures {
        let (objects, bytes) = self.homes.home().size();
        Figures {
            objects,
            bytes,
            outcomes: self.homes.home().outcomes(),
            uploads: self.homes.open_uploads().len() as u64,
            upload_bytes: self.homes.upload_bytes(),
            upload_ends: self.homes.upload_ends(),
        }
    }

    /// The objects that this node flushes and whose flushes fail, or that are lost.
    pub fn troubled(&self) -> impl Iterator<Item = (Arc<Manifest>, FlushStatus)> {
        let objects = self.homes.home().objects().into_iter();
        objects.filter(|(_, status)| status.is_troubled())
    }

    /// The open uploads that this node keeps, with their parts.
    pub fn open_uploads(&self) -> Vec<OpenUpload> {
        self.homes.open_uploads()
    }

    /// Flushes once what this node keeps of dirty objects, so that it can stop. Returns how many objects, and
    /// uploads in use, only this node still has.
    pub async fn drain_round(&self) -> u64 {
        self.homes.drain_round().await
    }

    /// Begins a flush as this node does when it finds the object due, and waits for its end.
    pub async fn flush_as_due(&self, name: &ObjectName) {
        // `troubled` shows a flush that failed.
        let _ = self.homes.home().flush(name).await;
    }

    /// Ends uploads that clients have given up, and lets go of parts that are not needed, as of `now`.
    pub async fn tidy_uploads_at(&self, now: Instant) {
        self.homes.tidy_uploads_at(now).await;
    }
}

/// For other nodes.
impl DirtyObjects {
    /// Whether a request of another node is about dirty objects.
    pub fn is_peer_request(target: &PathAndQuery) -> bool {
        Homes::is_asked(target)
    }

    /// Answers such a request: a status, and a body.
    pub async fn answer_peer(&self, target: &PathAndQuery) -> (StatusCode, Bytes) {
        let answer = self.desk.answer(target).await;
        (answer.status(), answer.into_body())
    }
}
