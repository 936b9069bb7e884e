//! Requests for objects that the lake may not have yet. The node answers where the answer is sure; otherwise
//! it brings the object to the lake first.

mod asking;
mod bulk;
mod deletion;
mod listing;
mod multipart;

use std::sync::Arc;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};

use crate::config::WriteMode;
use crate::dirty::{
    self, AuthorityUnreachable, FlushFailed, Found, LakeWriteError, Manifest, ReceiveError, WriteError,
};
use crate::front::body::ResponseBody;
use crate::front::record::Record;
use crate::front::respond::{self, X_CACHE_REASON};
use crate::front::serve::{Admitted, Front};
use crate::front::wanted::Wanted;
use crate::read::{Answer, HeadAnswer, ReadError};
use crate::s3::error::{ErrorCode, S3Error};
use crate::s3::hop_by_hop::MODE_HEADER;
use crate::s3::identity::Caller;
use crate::s3::object::ObjectName;
use crate::s3::operation::{CopySource, Effect, Operation};
use crate::write::Uncached;

pub(in crate::front) use self::multipart::upload_named;

/// The number of a bucket's objects that one request handles at the same time.
const PARALLEL: usize = 8;

/// How dirty objects affect a request for an object.
enum Sight {
    /// They do not: the lake answers.
    Lake,
    /// The caller wrote the object, and the lake does not have it.
    Own(Arc<Manifest>),
}

impl Front {
    /// Returns whether an object of this name may be dirty. If so, the node looks for it before it asks the
    /// lake.
    pub(super) fn may_be_dirty(&self, name: &ObjectName) -> bool {
        is_current(name) && self.dirty.may_be_dirty(name)
    }

    /// Answers a GET of a dirty object. Returns `None` if the lake must answer.
    pub(super) async fn get_dirty(
        &self,
        admitted: &Admitted,
        name: &ObjectName,
        wanted: &Wanted,
        record: &mut Record,
    ) -> Result<Option<Response<ResponseBody>>, S3Error> {
        let Sight::Own(manifest) = self.look(admitted, name).await? else {
            return Ok(None);
        };
        if !wanted.is_understood() {
            self.flush(&manifest.name).await?;
            return Ok(None);
        }
        let answer = dirty::read(&self.reader, &wanted.ask, &manifest).await;
        match answer.map_err(|error| not_held(&error))? {
            Answer::Known(known, told) => {
                let path = admitted.parts.uri.path();
                Ok(Some(wanted.respond(known, told, path, record)))
            }
            Answer::Relay(_) | Answer::Bypass(_) => {
                self.flush(&manifest.name).await?;
                Ok(None)
            }
        }
    }

    /// Answers a HEAD of a dirty object. Returns `None` if the lake must answer.
    pub(super) async fn head_dirty(
        &self,
        admitted: &Admitted,
        name: &ObjectName,
        wanted: &Wanted,
        record: &mut Record,
    ) -> Result<Option<Response<ResponseBody>>, S3Error> {
        let Sight::Own(manifest) = self.look(admitted, name).await? else {
            return Ok(None);
        };
        if wanted.is_about_a_part() || !wanted.is_understood() {
            self.flush(&manifest.name).await?;
            return Ok(None);
        }
        let answer = HeadAnswer::of(Arc::clone(&manifest.version), &wanted.ask.conditions);
        Ok(Some(wanted.respond_to_head(answer, record)))
    }

    /// Looks for a dirty object under a name, as far as the caller may see it. Only its writer is sure to be
    /// allowed. For other callers, the node brings the object to the lake if the lake lets them know of it,
    /// and then the lake decides what they see.
    async fn look(&self, admitted: &Admitted, name: &ObjectName) -> Result<Sight, S3Error> {
        let name = &current(name);
        let found = self.dirty.find(name).await.map_err(unknown)?;
        let (Found::Dirty(manifest) | Found::Lost(manifest)) = &found else {
            return Ok(Sight::Lake);
        };
        // The lake's earlier answers about the name are out of date, even once the lake has the object.
        self.catalog.forget_object(name);
        let is_own = is_writer(&admitted.verified.caller, manifest);
        match found {
            Found::Dirty(manifest) if is_own => Ok(Sight::Own(manifest)),
            Found::Dirty(_) => {
                if self.may_know(admitted.into(), name).await? {
                    self.flush(name).await?;
                }
                Ok(Sight::Lake)
            }
            _ if !is_own => Ok(Sight::Lake),
            _ => Err(S3Error::new(
                ErrorCode::NoSuchKey,
                "The object was written back and lost before the lake had it.",
            )),
        }
    }

    /// Acknowledges a write before the lake has it, or carries it out through the cache and says why.
    pub(super) async fn write_back(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let Admitted {
            parts,
            classified,
            verified,
            ..
        } = &*admitted;
        let accepted = self.dirty.accept(name, classified, parts, &verified.caller).await;
        let order = match accepted {
            Ok(order) => order,
            Err(why) => return self.write_through_instead(admitted, name, why).await,
        };
        let (_, body) = admitted.open()?;
        let written = self.dirty.commit(order, body).await.map_err(unwritten)?;
        let mut response = respond::empty(StatusCode::OK);
        let headers = response.headers_mut();
        headers.insert(header::ETAG, written.version.etag_header());
        let checksums = written.version.headers.iter();
        headers.extend(
            checksums
                .filter(|(name, _)| name.as_str().starts_with("x-amz-checksum-"))
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        tell_mode(headers, written.through);
        Ok(response)
    }

    /// Writes as if the client had asked for `through`. A dirty object under the name goes to the lake first,
    /// if this write changes it.
    async fn write_through_instead(
        &self,
        admitted: Box<Admitted>,
        name: &ObjectName,
        why: Uncached,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let overwritten = self.settle_before(&admitted, name).await?;
        let has_bytes = admitted.classified.operation != Operation::CreateMultipartUpload;
        let response = self.write_through(admitted, name).await?;
        let mut response = self.settle_behind(overwritten, response).await?;
        // The reason why the bytes are not even cached says more than the reason why they are not dirty.
        let is_told = has_bytes && response.headers().contains_key(X_CACHE_REASON);
        if response.status() == StatusCode::OK && !is_told {
            let reason = HeaderValue::from_static(why.as_str());
            response.headers_mut().insert(X_CACHE_REASON, reason);
        }
        Ok(response)
    }

    /// Brings to the lake the objects that a request needs there: the object that it is about, and the one
    /// that it copies, if the lake lets the caller know of them or write them. Otherwise the lake refuses the
    /// request itself.
    ///
    /// Returns the name that the request writes if an object under it could not be brought to the lake, for
    /// [`Front::settle_behind`].
    pub(super) async fn settle_before(
        &self,
        admitted: &Admitted,
        name: &ObjectName,
    ) -> Result<Option<ObjectName>, S3Error> {
        self.settle_beside(admitted).await?;
        let operation = admitted.classified.operation;
        let is_of_an_upload = matches!(
            operation,
            Operation::CreateMultipartUpload | Operation::UploadPart | Operation::AbortMultipartUpload
        );
        if is_of_an_upload || !self.may_be_dirty(name) {
            return Ok(None);
        }
        let is_settled = self.settle(admitted, name).await?;
        let writes = matches!(
            operation,
            Operation::PutObject | Operation::CompleteMultipartUpload
        );
        Ok((writes && !is_settled).then(|| current(name)))
    }

    /// Does the same for the other objects that a request concerns: the source of a copy, and all of the
    /// bucket if a header makes the request reach beyond the object that it names.
    async fn settle_beside(&self, admitted: &Admitted) -> Result<(), S3Error> {
        let classified = &admitted.classified;
        let copied = classified.copy_source.iter();
        for source in copied.flat_map(CopySource::objects) {
            if self.may_be_dirty(source) {
                self.settle(admitted, source).await?;
            }
        }
        if let (Effect::Bucket, Some(bucket)) = (classified.effect(), &classified.bucket) {
            for manifest in self.dirty_below(bucket, b"").await? {
                self.settle(admitted, &manifest.name).await?;
            }
        }
        Ok(())
    }

    /// Removes an object that could not go to the lake, because it is lost, and that the lake has now
    /// overwritten.
    pub(super) async fn settle_behind(
        &self,
        overwritten: Option<ObjectName>,
        response: Response<ResponseBody>,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let Some(name) = overwritten.filter(|_| response.status().is_success()) else {
            return Ok(response);
        };
        if let Some(held) = self.dirty.hold(&name).await.map_err(unknown)? {
            held.remove().await.map_err(unknown)?;
        }
        Ok(response)
    }

    /// Brings an object to the lake if it is dirty and the caller may cause that. Returns `false` if
    /// something is left here.
    async fn settle(&self, admitted: &Admitted, name: &ObjectName) -> Result<bool, S3Error> {
        let name = &current(name);
        let found = self.dirty.find(name).await.map_err(unknown)?;
        let manifest = match found {
            Found::Nothing => return Ok(true),
            Found::Lost(_) => return Ok(false),
            Found::Dirty(manifest) => manifest,
        };
        let may = is_writer(&admitted.verified.caller, &manifest)
            || self.may_know(admitted.into(), name).await?
            || self.may_write(admitted.into(), name).await;
        if may {
            self.flush(name).await?;
        }
        Ok(may)
    }

    /// Brings an object to the lake if it is dirty. A lost object stays lost, so that its writer hears of it.
    async fn flush(&self, name: &ObjectName) -> Result<(), S3Error> {
        self.dirty.flush(name).await.map_err(unsettled)?;
        self.catalog.forget_object(name);
        Ok(())
    }

    /// Returns the dirty objects of a bucket below a prefix.
    async fn dirty_below(&self, bucket: &str, prefix: &[u8]) -> Result<Vec<Arc<Manifest>>, S3Error> {
        if !self.dirty.may_be_dirty_below(bucket, prefix) {
            return Ok(Vec::new());
        }
        let listed = self.dirty.list(bucket, prefix, b"").await;
        listed.map_err(unknown)
    }

    /// Brings objects to the lake in parallel.
    async fn flush_all(&self, manifests: Vec<Arc<Manifest>>) -> Result<(), S3Error> {
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
    pub(super) async fn settle_for_bucket(&self, admitted: &Admitted) -> Result<(), S3Error> {
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
        if dirty.is_empty() || !(is_form(admitted) || self.may_see(admitted.into()).await?) {
            return Ok(());
        }
        self.flush_all(dirty).await
    }
}

/// Adds the mode in which an object was written.
fn tell_mode(headers: &mut HeaderMap, through: Option<Uncached>) {
    let mode = match through {
        None => WriteMode::Back,
        Some(why) => {
            headers.insert(X_CACHE_REASON, HeaderValue::from_static(why.as_str()));
            WriteMode::Through
        }
    };
    headers.insert(MODE_HEADER, HeaderValue::from_static(mode.as_str()));
}

fn is_writer(caller: &Caller, manifest: &Manifest) -> bool {
    matches!(caller, Caller::Identity(identity) if identity.access_key == *manifest.writer)
}

/// Returns whether a name is that of the current object: without a version, or with the one of unversioned
/// objects.
fn is_current(name: &ObjectName) -> bool {
    name.version.as_deref().is_none_or(|version| version == "null")
}

/// The name under which the object may be dirty.
fn current(name: &ObjectName) -> ObjectName {
    ObjectName {
        version: None,
        ..name.clone()
    }
}

/// Returns whether a browser uploads an object by a form.
fn is_form(admitted: &Admitted) -> bool {
    let headers = &admitted.parts.headers;
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let form = b"multipart/form-data";
    admitted.parts.method == Method::POST
        && kind.is_some_and(|kind| kind.len() >= form.len() && kind[..form.len()].eq_ignore_ascii_case(form))
}

fn unknown(error: AuthorityUnreachable) -> S3Error {
    S3Error::new(ErrorCode::SlowDown, format!("{error}; please try again."))
}

/// The error when bytes that the lake does not have cannot be read from the nodes that hold them.
fn not_held(error: &ReadError) -> S3Error {
    tracing::warn!(%error, "a dirty object cannot be read from the nodes that hold it");
    S3Error::new(
        ErrorCode::SlowDown,
        "The lake does not have the object yet, and a node that holds a part of it does not answer; please try again.",
    )
}

fn unsettled(error: FlushFailed) -> S3Error {
    S3Error::new(
        ErrorCode::ServiceUnavailable,
        format!("{error}; please try again."),
    )
}

fn unwritten(error: WriteError) -> S3Error {
    match error {
        WriteError::Receive(ReceiveError::Body(error)) => error,
        WriteError::Upload(LakeWriteError::Refused(StatusCode::FORBIDDEN)) => {
            S3Error::new(ErrorCode::AccessDenied, "Access Denied")
        }
        error => {
            tracing::warn!(%error, "a write back failed");
            S3Error::new(
                ErrorCode::SlowDown,
                "The object could not be written; please try again.",
            )
        }
    }
}
