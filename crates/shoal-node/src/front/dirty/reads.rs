//! A GET or HEAD of an object that may be dirty.

use std::sync::Arc;

use http::Response;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::object::ObjectName;

use super::flush::Flusher;
use super::permission::Permissions;
use super::{Shared, is_writer, try_again, unversioned};
use crate::dirty::{self, DirtyObjects, Found, Manifest};
use crate::front::admission::Admitted;
use crate::front::body::ResponseBody;
use crate::front::record::Record;
use crate::front::wanted::Wanted;
use crate::grants::Grants;
use crate::read::{GetAnswer, HeadAnswer, ObjectReader, ReadError};

/// Answers reads of dirty objects.
pub(super) struct DirtyReads {
    dirty: Arc<DirtyObjects>,
    grants: Arc<Grants>,
    permissions: Arc<Permissions>,
    flusher: Arc<Flusher>,
    reader: Arc<ObjectReader>,
}

impl DirtyReads {
    /// Reads by `reader`.
    pub(super) fn new(shared: &Shared, reader: Arc<ObjectReader>) -> Self {
        Self {
            dirty: Arc::clone(&shared.dirty),
            grants: Arc::clone(&shared.grants),
            permissions: Arc::clone(&shared.permissions),
            flusher: Arc::clone(&shared.flusher),
            reader,
        }
    }

    /// Answers a GET of a dirty object. Returns `None` if the lake must answer.
    pub(super) async fn get(
        &self,
        admitted: &Admitted,
        wanted: &Wanted,
        record: &mut Record,
    ) -> Result<Option<Response<ResponseBody>>, S3Error> {
        let Some(manifest) = self.find_own(admitted, &wanted.request.name).await? else {
            return Ok(None);
        };
        if !wanted.is_understood() {
            self.flusher.flush(&manifest.name).await?;
            return Ok(None);
        }
        let answer = dirty::read(&self.reader, &wanted.request, &manifest).await;
        match answer.map_err(|error| not_held(&error))? {
            GetAnswer::Known(known, caller_headers) => {
                let path = admitted.parts.uri.path();
                Ok(Some(wanted.respond(known, caller_headers, path, record)))
            }
            GetAnswer::Relay(_) | GetAnswer::Bypass(_) => {
                self.flusher.flush(&manifest.name).await?;
                Ok(None)
            }
        }
    }

    /// Answers a HEAD of a dirty object. Returns `None` if the lake must answer.
    pub(super) async fn head(
        &self,
        admitted: &Admitted,
        wanted: &Wanted,
        record: &mut Record,
    ) -> Result<Option<Response<ResponseBody>>, S3Error> {
        let Some(manifest) = self.find_own(admitted, &wanted.request.name).await? else {
            return Ok(None);
        };
        if wanted.is_about_a_part() || !wanted.is_understood() {
            self.flusher.flush(&manifest.name).await?;
            return Ok(None);
        }
        let answer = HeadAnswer::of(Arc::clone(&manifest.version), &wanted.request.conditions);
        Ok(Some(wanted.respond_to_head(answer, record)))
    }

    /// Finds the dirty object under a name if the caller wrote it; the node then answers, because only the
    /// writer is sure to be allowed. Returns `None` if the lake must answer: for another caller the node
    /// brings the object to the lake if the lake lets that caller know of it, and then the lake decides.
    async fn find_own(
        &self,
        admitted: &Admitted,
        name: &ObjectName,
    ) -> Result<Option<Arc<Manifest>>, S3Error> {
        let name = &unversioned(name);
        let found = self.dirty.find(name).await.map_err(try_again)?;
        let (Found::Dirty(manifest) | Found::Lost(manifest)) = &found else {
            return Ok(None);
        };
        // The lake's earlier answers about the name are out of date, even once the lake has the object.
        self.grants.invalidate_object(name);
        let is_own = is_writer(&admitted.verified.caller, &manifest.writer);
        match found {
            Found::Dirty(manifest) if is_own => Ok(Some(manifest)),
            Found::Dirty(_) => {
                if self.permissions.may_know(admitted.into(), name).await? {
                    self.flusher.flush(name).await?;
                }
                Ok(None)
            }
            _ if !is_own => Ok(None),
            _ => Err(S3Error::new(
                ErrorCode::NoSuchKey,
                "The object was written back and lost before the lake had it.",
            )),
        }
    }
}

/// The error when bytes that the lake does not have cannot be read from the nodes that hold them.
fn not_held(error: &ReadError) -> S3Error {
    tracing::warn!(%error, "a dirty object cannot be read from the nodes that hold it");
    S3Error::new(
        ErrorCode::SlowDown,
        "The lake does not have the object yet, and a node that holds a part of it does not answer; please try again.",
    )
}
