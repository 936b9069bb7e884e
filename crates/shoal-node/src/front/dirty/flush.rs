//! Brings dirty objects to the lake before a request that needs them there.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use http::{HeaderValue, Method, header};
use shoal_registry::changes::LakeChange;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::object::ObjectName;
use shoal_s3::operation::{CopySource, Effect, Operation};

use super::permission::Permissions;
use super::{PARALLEL, access_denied, is_writer, try_again, unversioned};
use crate::dirty::{DirtyObjects, FlushFailed, Manifest, NotBegun};
use crate::front::admission::Admitted;
use crate::grants::Grants;

/// Flushes what a request needs at the lake, if its caller may cause that.
pub(super) struct Flusher {
    dirty: Arc<DirtyObjects>,
    grants: Arc<Grants>,
    permissions: Arc<Permissions>,
}

impl Flusher {
    /// Flushes `dirty` objects. `grants` forgets what the lake said of them before.
    pub(super) fn new(dirty: Arc<DirtyObjects>, grants: Arc<Grants>, permissions: Arc<Permissions>) -> Self {
        Self {
            dirty,
            grants,
            permissions,
        }
    }

    /// Returns whether an object of this name may be dirty. If so, the node looks for it before it asks the
    /// lake.
    pub(super) fn may_be_dirty(&self, name: &ObjectName) -> bool {
        is_current(name) && self.dirty.may_be_dirty(name)
    }

    /// Brings to the lake the object that a request about one object needs there, if the lake lets the caller
    /// know of it or write it. Otherwise the lake refuses the request itself.
    pub(super) async fn flush_for_read(&self, admitted: &Admitted, name: &ObjectName) -> Result<(), S3Error> {
        self.flush_related(admitted).await?;
        let operation = admitted.classified.operation;
        let is_of_an_upload = matches!(
            operation,
            Operation::CreateMultipartUpload | Operation::UploadPart | Operation::AbortMultipartUpload
        );
        if !is_of_an_upload && self.may_be_dirty(name) {
            self.flush_if_allowed(admitted, name).await?;
        }
        Ok(())
    }

    /// Begins a change of the object that a request is about, once the objects that the request needs at the
    /// lake are there. The caller must be one that the lake would let know of a dirty object or write it.
    pub(super) async fn begin_change(
        &self,
        admitted: &Admitted,
        name: &ObjectName,
    ) -> Result<LakeChange, S3Error> {
        self.flush_related(admitted).await?;
        if !self.flush_if_allowed(admitted, name).await? {
            return Err(access_denied());
        }
        let begun = self.dirty.begin_at_lake(&unversioned(name)).await;
        begun.map_err(not_begun)
    }

    /// Brings to the lake the other objects that a request concerns: the source of a copy, and all of the
    /// bucket if a header makes the request reach beyond the object that it names.
    async fn flush_related(&self, admitted: &Admitted) -> Result<(), S3Error> {
        let classified = &admitted.classified;
        let copied = classified.copy_source.iter();
        for source in copied.flat_map(CopySource::objects) {
            if self.may_be_dirty(source) {
                self.flush_if_allowed(admitted, source).await?;
            }
        }
        if let (Effect::Bucket, Some(bucket)) = (classified.effect(), &classified.bucket) {
            for manifest in self.dirty_below(bucket, b"").await? {
                self.flush_if_allowed(admitted, &manifest.name).await?;
            }
        }
        Ok(())
    }

    /// Brings an object to the lake if it is dirty and the caller may cause that. Returns `false` if the
    /// caller may not.
    async fn flush_if_allowed(&self, admitted: &Admitted, name: &ObjectName) -> Result<bool, S3Error> {
        let name = &unversioned(name);
        let lookup = self.dirty.find(name).await.map_err(try_again)?;
        let Some(manifest) = lookup.manifest else {
            return Ok(true);
        };
        let may = is_writer(&admitted.verified.caller, &manifest.writer)
            || self.permissions.may_know(admitted.into(), name).await?
            || self.permissions.may_write(admitted.into(), name).await;
        if may {
            self.flush(name).await?;
        }
        Ok(may)
    }

    /// Brings an object to the lake if it is dirty.
    pub(super) async fn flush(&self, name: &ObjectName) -> Result<(), S3Error> {
        self.dirty
            .flush(name)
            .await
            .map_err(|error| not_flushed(&error))?;
        self.grants.invalidate_object(name);
        Ok(())
    }

    /// Returns the dirty objects of a bucket below a prefix.
    pub(super) async fn dirty_below(
        &self,
        bucket: &str,
        prefix: &[u8],
    ) -> Result<Vec<Arc<Manifest>>, S3Error> {
        if !self.dirty.may_be_dirty_below(bucket, prefix) {
            return Ok(Vec::new());
        }
        let listed = self.dirty.list(bucket, prefix, b"").await;
        listed.map_err(try_again)
    }

    /// Brings objects to the lake in parallel.
    pub(super) async fn flush_all(&self, manifests: Vec<Arc<Manifest>>) -> Result<(), S3Error> {
        let manifests = manifests.into_iter();
        let flushed = manifests.map(|manifest| async move { self.flush(&manifest.name).await });
        stream::iter(flushed)
            .buffer_unordered(PARALLEL)
            .try_collect()
            .await
    }

    /// Brings to the lake the objects that a request about a whole bucket needs there, if the lake shows the
    /// caller what the request is about. Writes that were acknowledged before a bucket is changed must be at
    /// the lake: under another policy they would make another object, and their writer may no longer be
    /// allowed to write.
    pub(super) async fn flush_for_bucket(&self, admitted: &Admitted) -> Result<(), S3Error> {
        let classified = &admitted.classified;
        let Some(bucket) = classified.bucket.as_deref() else {
            return Ok(());
        };
        let needs_all = match classified.operation {
            Operation::OtherWrite => true,
            Operation::OtherRead => classified.query.has("versions"),
            _ => false,
        };
        if !needs_all {
            return Ok(());
        }
        let dirty = self.dirty_below(bucket, b"").await?;
        // The credentials of a form are in its body, which only the lake reads.
        if dirty.is_empty() || !(is_form(admitted) || self.permissions.may_see(admitted.into()).await?) {
            return Ok(());
        }
        self.flush_all(dirty).await
    }
}

/// Returns whether a name is that of the current object: without a version, or with the one of unversioned
/// objects.
pub(super) fn is_current(name: &ObjectName) -> bool {
    name.version.as_deref().is_none_or(|version| version == "null")
}

/// Returns whether a browser uploads an object by a form.
fn is_form(admitted: &Admitted) -> bool {
    let headers = &admitted.parts.headers;
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let form = b"multipart/form-data";
    admitted.parts.method == Method::POST
        && kind.is_some_and(|kind| kind.len() >= form.len() && kind[..form.len()].eq_ignore_ascii_case(form))
}

fn not_flushed(error: &FlushFailed) -> S3Error {
    S3Error::new(
        ErrorCode::ServiceUnavailable,
        format!("{error}; please try again."),
    )
}

/// The error when a change of a name cannot begin.
pub(super) fn not_begun(error: NotBegun) -> S3Error {
    match error {
        NotBegun::Flush(error) => not_flushed(&error),
        NotBegun::Busy => S3Error::new(ErrorCode::SlowDown, format!("{error}; please try again.")),
    }
}
