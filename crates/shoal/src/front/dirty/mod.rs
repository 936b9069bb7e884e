//! Requests for objects that the lake may not have yet: answered here where that is sure, else the object is brought to the lake first.

mod asking;
mod bulk;
mod deletion;
mod listing;
mod multipart;

use std::sync::Arc;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};

use crate::config::WriteMode;
use crate::dirty::{Found, IntakeError, Manifest, Unknown, Unsettled, UploadError, WriteError};
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

/// Objects of a bucket on their way to the lake for one request.
const PARALLEL: usize = 8;

/// What a request for an object has to do with dirty ones.
enum Sight {
    /// Nothing: the lake answers.
    Lake,
    /// The caller has written it, and the lake does not have it.
    Own(Arc<Manifest>),
}

impl Front {
    /// Whether an object of this name may be dirty: then it is looked for before the lake is asked.
    pub(super) fn may_be_dirty(&self, name: &ObjectName) -> bool {
        is_current(name) && self.dirty.rules().allow_back(name)
    }

    /// Answers a GET of a dirty object; `None`: it is the lake's to answer.
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
        let answer = self.dirty.read(&wanted.ask, &manifest).await;
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

    /// Answers a HEAD of a dirty object; `None`: it is the lake's to answer.
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

    /// What there is under a name, as the caller may see it. Its writer alone is sure to be allowed to. For others it
    /// is brought to the lake if that lets them know of it, and then the lake decides what they see.
    async fn look(&self, admitted: &Admitted, name: &ObjectName) -> Result<Sight, S3Error> {
        let name = &current(name);
        let found = self.dirty.directory.find(name).await.map_err(unknown)?;
        let (Found::Dirty(manifest) | Found::Lost(manifest)) = &found else {
            return Ok(Sight::Lake);
        };
        // What the lake said of the name before is overtaken, also once it has the object.
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
        let written = self.dirty.write(order, body).await.map_err(unwritten)?;
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

    /// As if `through` had been asked for. What is dirty under the name goes first, if this changes it.
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
        // Why the bytes are not even cached says more than why they are not dirty.
        let is_told = has_bytes && response.headers().contains_key(X_CACHE_REASON);
        if response.status() == StatusCode::OK && !is_told {
            let reason = HeaderValue::from_static(why.as_str());
            response.headers_mut().insert(X_CACHE_REASON, reason);
        }
        Ok(response)
    }

    /// Brings to the lake what a request needs there: the object that it is about, and the one that it copies, if the
    /// lake lets the caller know of them or write them. Otherwise the lake refuses the request itself.
    ///
    /// Gives what is in the way of the object that the request writes, for [`Front::settle_behind`].
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

    /// The same for other objects that a request is about: the source of a copy, and all of the bucket when a
    /// header makes the request reach farther than the object that it names.
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

    /// Removes what the lake could not get and has overwritten now: an object that is lost.
    pub(super) async fn settle_behind(
        &self,
        overwritten: Option<ObjectName>,
        response: Response<ResponseBody>,
    ) -> Result<Response<ResponseBody>, S3Error> {
        let Some(name) = overwritten.filter(|_| response.status().is_success()) else {
            return Ok(response);
        };
        if let Some(held) = self.dirty.directory.hold(&name).await.map_err(unknown)? {
            held.remove().await.map_err(unknown)?;
        }
        Ok(response)
    }

    /// Brings an object to the lake if it is dirty and the caller may have that. `false`: something is left here.
    async fn settle(&self, admitted: &Admitted, name: &ObjectName) -> Result<bool, S3Error> {
        let name = &current(name);
        let found = self.dirty.directory.find(name).await.map_err(unknown)?;
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

    /// Brings an object to the lake if it is dirty. One that is lost stays so, for its writer to hear of.
    async fn flush(&self, name: &ObjectName) -> Result<(), S3Error> {
        self.dirty.directory.flush(name).await.map_err(unsettled)?;
        self.catalog.forget_object(name);
        Ok(())
    }

    /// What is dirty in a bucket below a prefix.
    async fn dirty_below(&self, bucket: &str, prefix: &[u8]) -> Result<Vec<Arc<Manifest>>, S3Error> {
        if !self.dirty.rules().allow_back_below(bucket, prefix) {
            return Ok(Vec::new());
        }
        let listed = self.dirty.directory.list(bucket, prefix, b"").await;
        listed.map_err(unknown)
    }

    /// Brings objects to the lake side by side.
    async fn flush_all(&self, manifests: Vec<Arc<Manifest>>) -> Result<(), S3Error> {
        let manifests = manifests.into_iter();
        let flushed = manifests.map(|manifest| async move { self.flush(&manifest.name).await });
        stream::iter(flushed)
            .buffer_unordered(PARALLEL)
            .try_collect()
            .await
    }

    /// What a request that is not about one object needs at the lake first, if the lake shows its caller what it is
    /// about. What was acknowledged before a bucket is changed must be there: it would be another object under another
    /// policy, and perhaps its writer may not write any more.
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
        // The credentials of a form stand in its body, which only the lake reads.
        if dirty.is_empty() || !(is_form(admitted) || self.may_see(admitted.into()).await?) {
            return Ok(());
        }
        self.flush_all(dirty).await
    }
}

/// Says in which mode an object was written.
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

/// Whether a name is that of an object as it is now: by no version, or by the one of objects without versions.
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

/// Whether a browser uploads an object by a form.
fn is_form(admitted: &Admitted) -> bool {
    let headers = &admitted.parts.headers;
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let form = b"multipart/form-data";
    admitted.parts.method == Method::POST
        && kind.is_some_and(|kind| kind.len() >= form.len() && kind[..form.len()].eq_ignore_ascii_case(form))
}

fn unknown(error: Unknown) -> S3Error {
    S3Error::new(ErrorCode::SlowDown, format!("{error}; please try again."))
}

/// Bytes that the lake does not have cannot be read from the nodes that hold them.
fn not_held(error: &ReadError) -> S3Error {
    tracing::warn!(%error, "a dirty object cannot be read from the nodes that hold it");
    S3Error::new(
        ErrorCode::SlowDown,
        "The lake does not have the object yet, and a node that holds a part of it does not answer; please try again.",
    )
}

fn unsettled(error: Unsettled) -> S3Error {
    S3Error::new(
        ErrorCode::ServiceUnavailable,
        format!("{error}; please try again."),
    )
}

fn unwritten(error: WriteError) -> S3Error {
    match error {
        WriteError::Intake(IntakeError::Body(error)) => error,
        WriteError::Upload(UploadError::Refused(StatusCode::FORBIDDEN)) => {
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
