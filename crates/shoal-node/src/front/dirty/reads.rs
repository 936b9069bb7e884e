//! GET and HEAD of objects that may be dirty.
//!
//! The node reads the registry entry of the name first, then the lake. If the lake reports that there is no
//! object, the node checks the entry again: an object may have been written and flushed in between. If the
//! entry changed, the read starts over.

use std::sync::Arc;

use http::{Response, StatusCode};
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::object::ObjectName;

use super::flush::Flusher;
use super::permission::Permissions;
use super::{Shared, is_writer, try_again, unversioned};
use crate::dirty::{self, DirtyObjects, Lookup, Manifest};
use crate::front::admission::Admitted;
use crate::front::body::ResponseBody;
use crate::front::reads::Reads;
use crate::front::record::Record;
use crate::front::wanted::Wanted;
use crate::grants::Grants;
use crate::read::{GetAnswer, HeadAnswer, ObjectReader};

/// Number of attempts if the name changes while it is read.
const ATTEMPTS: usize = 4;

/// Answers reads of names that may be dirty.
pub(super) struct DirtyReads {
    dirty: Arc<DirtyObjects>,
    grants: Arc<Grants>,
    permissions: Arc<Permissions>,
    flusher: Arc<Flusher>,
    reader: Arc<ObjectReader>,
    reads: Arc<Reads>,
}

impl DirtyReads {
    /// Reads dirty objects by `reader`, and others by `reads`.
    pub(super) fn new(shared: &Shared, reader: Arc<ObjectReader>, reads: Arc<Reads>) -> Self {
        Self {
            dirty: Arc::clone(&shared.dirty),
            grants: Arc::clone(&shared.grants),
            permissions: Arc::clone(&shared.permissions),
            flusher: Arc::clone(&shared.flusher),
            reader,
            reads,
        }
    }

    /// Answers a GET.
    pub(super) async fn get(
        &self,
        mut admitted: Box<Admitted>,
        wanted: &Wanted,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        for _ in 0..ATTEMPTS {
            let lookup = self.look(&admitted, wanted).await?;
            if let Some(manifest) = of_caller(&admitted, &lookup) {
                match self
                    .get_dirty(&admitted, (&lookup, manifest), wanted, record)
                    .await?
                {
                    Some(response) => return Ok(response),
                    None => continue,
                }
            }
            let again = admitted.without_body();
            let response = self.reads.get(admitted, wanted, record).await?;
            if self.is_final(response.status(), &lookup).await? {
                return Ok(response);
            }
            admitted = again;
        }
        Err(changes_too_often())
    }

    /// Answers a HEAD.
    pub(super) async fn head(
        &self,
        mut admitted: Box<Admitted>,
        wanted: &Wanted,
        record: &mut Record,
    ) -> Result<Response<ResponseBody>, S3Error> {
        for _ in 0..ATTEMPTS {
            let lookup = self.look(&admitted, wanted).await?;
            if let Some(manifest) = of_caller(&admitted, &lookup) {
                if let Some(answer) = head_dirty(manifest, wanted) {
                    return Ok(wanted.respond_to_head(answer, record));
                }
                self.flusher.flush(&manifest.name).await?;
                continue;
            }
            let again = admitted.without_body();
            let response = self.reads.head(admitted, wanted, record).await?;
            if self.is_final(response.status(), &lookup).await? {
                return Ok(response);
            }
            admitted = again;
        }
        Err(changes_too_often())
    }

    /// Looks a name up in the registry. A dirty object of another writer is flushed if the lake lets the
    /// caller know about it; the lake then decides the read.
    async fn look(&self, admitted: &Admitted, wanted: &Wanted) -> Result<Lookup, S3Error> {
        let name: &ObjectName = &unversioned(&wanted.request.name);
        let lookup = self.dirty.find(name).await.map_err(try_again)?;
        if let Some(manifest) = &lookup.manifest {
            // Remembered answers of the lake about this name are out of date, even once the object is
            // flushed.
            self.grants.invalidate_object(name);
            let is_own = is_writer(&admitted.verified.caller, &manifest.writer);
            if !is_own && self.permissions.may_know(admitted.into(), name).await? {
                self.flusher.flush(name).await?;
            }
        }
        Ok(lookup)
    }

    /// Answers a GET of a dirty object. Returns `None` if the name must be looked up again.
    async fn get_dirty(
        &self,
        admitted: &Admitted,
        (lookup, manifest): (&Lookup, &Arc<Manifest>),
        wanted: &Wanted,
        record: &mut Record,
    ) -> Result<Option<Response<ResponseBody>>, S3Error> {
        if !wanted.is_understood() {
            self.flusher.flush(&manifest.name).await?;
            return Ok(None);
        }
        let bytes = self.dirty.bytes(lookup, manifest);
        match dirty::read(&self.reader, &wanted.request, manifest, bytes).await {
            Ok(GetAnswer::Known(known, caller_headers)) => {
                let path = admitted.parts.uri.path();
                Ok(Some(wanted.respond(known, caller_headers, path, record)))
            }
            Ok(GetAnswer::Relay(_) | GetAnswer::Bypass(_)) => {
                self.flusher.flush(&manifest.name).await?;
                Ok(None)
            }
            // The bytes are removed soon after their object is overwritten, deleted or flushed.
            Err(_) if !self.dirty.is_as_found(lookup).await.map_err(try_again)? => Ok(None),
            Err(error) => {
                tracing::warn!(%error, "a dirty object cannot be read from its tier");
                Err(S3Error::new(
                    ErrorCode::SlowDown,
                    "The lake does not have the object yet, and the tier does not give its bytes; please try again.",
                ))
            }
        }
    }

    /// Returns true if the lake's response is final. A response that there is no object is final only if the
    /// registry entry has not changed since `lookup`, because otherwise the object may have been flushed in
    /// between.
    async fn is_final(&self, status: StatusCode, lookup: &Lookup) -> Result<bool, S3Error> {
        // A lake hides the absence of an object from some callers behind a 403.
        let is_absence = matches!(status, StatusCode::NOT_FOUND | StatusCode::FORBIDDEN);
        if !is_absence {
            return Ok(true);
        }
        self.dirty.is_as_found(lookup).await.map_err(try_again)
    }
}

/// Returns the dirty object if the caller wrote it. The node answers only its writer, who is certain to have
/// permission.
fn of_caller<'a>(admitted: &Admitted, lookup: &'a Lookup) -> Option<&'a Arc<Manifest>> {
    let manifest = lookup.manifest.as_ref();
    manifest.filter(|manifest| is_writer(&admitted.verified.caller, &manifest.writer))
}

/// Returns the response to a HEAD of a dirty object, or `None` if only the lake can answer.
fn head_dirty(manifest: &Manifest, wanted: &Wanted) -> Option<HeadAnswer> {
    if !wanted.is_understood() {
        return None;
    }
    HeadAnswer::of(&wanted.request, Arc::clone(&manifest.version)).ok()
}

fn changes_too_often() -> S3Error {
    S3Error::new(
        ErrorCode::ServiceUnavailable,
        "The object changes faster than it can be read.",
    )
}
