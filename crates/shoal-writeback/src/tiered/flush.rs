//! Prepares a request for the lake within: flushes the objects that it needs there, begins its change, and
//! sends it.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use http::{HeaderValue, Method, header};
use http_body_util::BodyExt;
use shoal_cache::exchange::{Admitted, ResponseResult};
use shoal_cache::lake::{Verdict, Write, judged, unknown};
use shoal_net::endpoint::AccountRefusal;
use shoal_net::http::connection::ClientBody;
use shoal_net::trace;
use shoal_pack::table::Names;
use shoal_registry::changes::LakeChange;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::object::ObjectName;
use shoal_s3::operation::{CopySource, Effect, Operation};

use super::asker::action_of;
use super::{PARALLEL, TieredLakeParts};
use crate::dirty::{Dirty, FlushFailed, Lookup, unversioned};
use crate::tier::TierUnavailable;

/// Requests to the lake within, and the flushes before them, if the caller may cause these.
impl TieredLakeParts {
    /// Flushes the objects that a request about one object needs at the lake, if the caller may read or write
    /// them there. Otherwise nothing is flushed, and the lake refuses the request.
    pub(super) async fn flush_for_read(&self, admitted: &Admitted, name: &ObjectName) -> Result<(), S3Error> {
        self.flush_related(admitted).await?;
        let operation = admitted.classified.operation;
        // An upload is no read of the object, and reads have asked for it.
        let needs_none = matches!(
            operation,
            Operation::CreateMultipartUpload
                | Operation::UploadPart
                | Operation::AbortMultipartUpload
                | Operation::GetObject
                | Operation::HeadObject
        );
        if !needs_none && self.dirty.entries.may_be_dirty(name) {
            self.flush_if_allowed(admitted, name).await?;
        }
        Ok(())
    }

    /// Begins a change of the object that a request names, after flushing the objects that the request needs
    /// at the lake. Returns `None` if the request is to be sent [without a change](Self::find_for_change).
    pub(super) async fn begin_change(
        &self,
        admitted: &Admitted,
        name: &ObjectName,
        denied: Option<S3Error>,
    ) -> Result<Option<LakeChange>, S3Error> {
        let Some(lookup) = self.find_for_change(admitted, name, denied).await? else {
            return Ok(None);
        };
        self.flush_related(admitted).await?;
        let current = &unversioned(name);
        if lookup.dirty.is_some() {
            self.flush(current).await?;
        }
        Ok(Some(self.dirty.begin_at_lake(current).await?))
    }

    /// Looks up the name that a request changes. The caller must have the lake's permission for the change,
    /// or have written the dirty object. `denied` is the error of a question that the lake has denied
    /// already.
    ///
    /// Returns `None` if the lake would refuse the request, judging by a similar question. The lake gets the
    /// request itself and decides, but without a change: a caller whom it refuses leaves nothing in the
    /// registry, and keeps no one from the name. If the lake carries the request out, the request is
    /// concurrent with every change of the name that began meanwhile, and may take effect before or after it,
    /// as at the lake alone.
    ///
    /// # Errors
    ///
    /// The denial, if the lake rejects the caller's account, or if the name has a dirty object: the lake
    /// could decide only after a flush, and a caller whom it refuses must not cause one.
    pub(super) async fn find_for_change(
        &self,
        admitted: &Admitted,
        name: &ObjectName,
        mut denied: Option<S3Error>,
    ) -> Result<Option<Lookup>, S3Error> {
        let lookup = self.dirty.entries.find(&unversioned(name)).await?;
        if lookup.own(&admitted.verified.caller).is_some() {
            return Ok(Some(lookup));
        }
        if denied.is_none() {
            denied = self.asker(admitted).denial(action_of(admitted)?, name).await?;
        }
        match denied {
            None => Ok(Some(lookup)),
            Some(denied)
                if lookup.dirty.is_some() || AccountRefusal::of_code(denied.code.as_str()).is_some() =>
            {
                Err(denied)
            }
            Some(_) => {
                self.flush_related(admitted).await?;
                Ok(None)
            }
        }
    }

    /// Sends a request to the lake within: a write, or to be forwarded. If a `change` has begun, ends it with
    /// the outcome. The request then continues if its client disconnects, and is aborted if this node loses
    /// the right to send it.
    ///
    /// # Errors
    ///
    /// As for the lake; also if the request was carried out but the registry could not record that.
    pub(super) async fn send(
        &self,
        change: Option<LakeChange>,
        mut admitted: Box<Admitted>,
        write: Option<Write<'_>>,
    ) -> ResponseResult {
        let operation = admitted.classified.operation;
        if let Some(change) = &change {
            admitted.permit = Some(change.permit());
        }
        let within = Arc::clone(&self.within);
        let write = write.map(|write| (write.name.clone(), write.mode, write.lifetime));
        let request = async move {
            match write {
                Some((ref name, mode, lifetime)) => {
                    within.put(admitted, Write { name, mode, lifetime }).await
                }
                None => within.forward(admitted).await,
            }
        };
        let Some(change) = change else {
            return request.await;
        };
        let carried = trace::spawn(async move {
            let (answered, verdict) = judged(operation, request).await;
            match verdict {
                Verdict::Done => {
                    if let Err(error) = change.done().await {
                        TierUnavailable::because(&error);
                        return Err(unknown());
                    }
                }
                // If this fails, the registry learns of it later.
                Verdict::Refused => drop(change.refused().await),
                Verdict::Unknown => drop(change),
            }
            answered
        });
        carried.await.unwrap_or_else(|_panicked| Err(unknown()))
    }

    /// Flushes the other objects that a request needs: the source of a copy, or the whole bucket if a header
    /// extends the request's effect beyond the object that it names.
    async fn flush_related(&self, admitted: &Admitted) -> Result<(), S3Error> {
        let classified = &admitted.classified;
        let copied = classified.copy_source.iter();
        for source in copied.flat_map(CopySource::objects) {
            if self.dirty.entries.may_be_dirty(source) {
                self.flush_if_allowed(admitted, source).await?;
            }
        }
        if let (Effect::Bucket, Some(bucket)) = (classified.effect, &classified.bucket) {
            for dirty in self.dirty_below(bucket, b"").await? {
                self.flush_if_allowed(admitted, dirty.name()).await?;
            }
        }
        Ok(())
    }

    /// Brings an object to the lake if it is dirty or in a pack, and the caller may cause that. If it is
    /// dirty, the lake refuses the request otherwise.
    ///
    /// # Errors
    ///
    /// It is in a pack that the caller may not read. The lake may have an older object under its name.
    async fn flush_if_allowed(&self, admitted: &Admitted, name: &ObjectName) -> Result<(), S3Error> {
        let (name, asker) = (&unversioned(name), self.asker(admitted));
        let is_allowed = match self.dirty.entries.find(name).await?.dirty {
            Some(dirty) => asker.may_flush(&dirty).await?,
            None if self.dirty.entries.is_packed(name).await? => {
                asker.permit_unpacking(name).await?;
                true
            }
            None => false,
        };
        if is_allowed {
            self.flush(name).await?;
        }
        Ok(())
    }

    /// Brings an object to the lake if it is dirty or in a pack, or carries out its removal there.
    pub(super) async fn flush(&self, name: &ObjectName) -> Result<(), S3Error> {
        self.dirty.entries.flush(name).await?;
        self.grants.invalidate_object(name);
        Ok(())
    }

    /// Returns the dirty objects and tombstones of `bucket` whose keys begin with `prefix`.
    pub(super) async fn dirty_below(&self, bucket: &str, prefix: &[u8]) -> Result<Vec<Dirty>, S3Error> {
        if !self.dirty.entries.may_be_dirty_below(bucket, prefix) {
            return Ok(Vec::new());
        }
        Ok(self.dirty.entries.list(bucket, prefix).await?)
    }

    /// Flushes objects in parallel. Returns those that the lake refuses until an operator or a client
    /// intervenes; they must not block requests about other objects.
    pub(super) async fn flush_those_taken(&self, dirty: Vec<Dirty>) -> Result<Vec<Refused>, S3Error> {
        let flushed = dirty.into_iter().map(|dirty| async move {
            let flushed = self.dirty.entries.flush(dirty.name()).await;
            self.grants.invalidate_object(dirty.name());
            match flushed {
                Ok(()) => Ok(None),
                Err(error @ FlushFailed::Refused(_)) => Ok(Some((dirty, error))),
                Err(error) => Err(S3Error::from(error)),
            }
        });
        let flushed = stream::iter(flushed).buffer_unordered(PARALLEL);
        flushed
            .try_filter_map(async |refused| Ok(refused))
            .try_collect()
            .await
    }

    /// Refuses a browser's upload whose object may be below a prefix with packs: the lake would write it
    /// under its own name, where a packed object hides it.
    async fn refuse_form_below_packs(&self, admitted: &mut Admitted) -> Result<(), S3Error> {
        let Some(bucket) = admitted.classified.bucket.clone() else {
            return Ok(());
        };
        let packs = &self.dirty.entries.packs;
        if packs.below(&bucket, b"").next().is_none() {
            return Ok(());
        }
        let start = start_of_body(&mut admitted.body).await?;
        let is_below = packs.below(&bucket, b"").any(|map| {
            let (_, prefix) = map.name().parts();
            prefix.is_empty() || may_name(&start, prefix)
        });
        if is_below {
            return Err(S3Error::new(
                ErrorCode::NotImplemented,
                "Forms cannot upload to a prefix whose small objects are packed; please use PUT.",
            ));
        }
        Ok(())
    }

    /// Refuses to let a bucket with packed objects keep versions: a packed object is the version `null` of
    /// its name, and the lake does not have it.
    async fn refuse_versions_over_packs(&self, admitted: &Admitted) -> Result<(), S3Error> {
        let classified = &admitted.classified;
        let is_of_versions = admitted.parts.method == Method::PUT && classified.query.has("versioning");
        let Some(bucket) = classified.bucket.as_deref().filter(|_| is_of_versions) else {
            return Ok(());
        };
        for map in self.dirty.entries.packs.below(bucket, b"") {
            let newest = map.newest().await?.map;
            let has_objects = newest.objects(Names::default()).next().is_some();
            if has_objects && self.asker(admitted).may_see().await? {
                let below = map.below();
                return Err(S3Error::new(
                    ErrorCode::OperationAborted,
                    format!(
                        "Objects below {below} are packed; a bucket keeps versions after `shoal unpack {below}`."
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Flushes the bucket's dirty objects before a request that changes the bucket or lists its versions, if
    /// the lake shows the caller the subject of the request. Acknowledged writes must reach the lake before a
    /// change of the bucket: under another policy they would produce a different object, or their writer
    /// might no longer be allowed to write. Objects that the lake refuses stay dirty, because it may accept
    /// them after the change.
    pub(super) async fn flush_for_bucket(&self, admitted: &mut Admitted) -> Result<(), S3Error> {
        if is_form(admitted) {
            self.refuse_form_below_packs(admitted).await?;
        }
        self.refuse_versions_over_packs(admitted).await?;
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
        // The credentials of a form are in its body, which only the lake parses.
        if dirty.is_empty() || !(is_form(admitted) || self.asker(admitted).may_see().await?) {
            return Ok(());
        }
        let refused = self.flush_those_taken(dirty).await?;
        if refused.is_empty() {
            return Ok(());
        }
        let concerned = if is_form(admitted) {
            let start = start_of_body(&mut admitted.body).await?;
            let mut refused = refused.into_iter();
            refused.find(|(dirty, _)| may_name(&start, &dirty.name().key))
        } else {
            refused.into_iter().next().filter(|_| removes_bucket(admitted))
        };
        concerned.map_or(Ok(()), |(_, error)| Err(error.into()))
    }
}

/// A dirty object or a tombstone that the lake refuses, and the error.
type Refused = (Dirty, FlushFailed);

/// Limit on the fields of a form before its file. S3 allows 20 KB of them.
const FORM_BYTES_MAX: usize = 64 << 10;

/// Reads the beginning of a body and puts it back, so that it is sent with the rest.
async fn start_of_body(body: &mut ClientBody) -> Result<Vec<u8>, S3Error> {
    let (mut start, mut read) = (Vec::new(), Vec::new());
    while start.len() < FORM_BYTES_MAX
        && let Some(frame) = body.frame().await
    {
        let broken = |_| S3Error::new(ErrorCode::IncompleteBody, "The body broke off.");
        let Ok(data) = frame.map_err(broken)?.into_data() else {
            break;
        };
        start.extend_from_slice(&data);
        read.push(data);
    }
    body.read_again(read);
    Ok(start)
}

/// Returns true if a form that begins with `form` may name the object `key`. The node does not parse forms:
/// it matches the bytes of the key anywhere, and every form whose key may be written otherwise.
fn may_name(form: &[u8], key: &[u8]) -> bool {
    let has = |text: &[u8]| form.windows(text.len().max(1)).any(|window| window == text);
    let lower = form.to_ascii_lowercase();
    let is_coded = lower.windows(CODED.len()).any(|window| window == CODED);
    has(key) || has(b"${") || is_coded
}

const CODED: &[u8] = b"content-transfer-encoding";

/// Returns true if a request removes the bucket itself.
fn removes_bucket(admitted: &Admitted) -> bool {
    let target = admitted.classified.target();
    admitted.parts.method == Method::DELETE && target.is_ok_and(|target| target.query().is_none())
}

/// Returns true if a request is a browser's upload by HTML form.
pub(super) fn is_form(admitted: &Admitted) -> bool {
    let headers = &admitted.parts.headers;
    let kind = headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let form = b"multipart/form-data";
    admitted.parts.method == Method::POST
        && kind.is_some_and(|kind| kind.len() >= form.len() && kind[..form.len()].eq_ignore_ascii_case(form))
}

#[cfg(test)]
mod tests {
    use super::may_name;

    #[test]
    fn a_form_is_for_no_object_whose_key_it_does_not_contain() {
        let form = b"--x\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\ntmp/form\r\n--x--";
        assert!(may_name(form, b"tmp/form") && !may_name(form, b"tmp/t"));
        let others: [&[u8]; 2] = [
            b"name=\"key\"\r\n\r\ntmp/${filename}",
            b"Content-Transfer-Encoding: base64",
        ];
        assert!(others.into_iter().all(|form| may_name(form, b"tmp/t")));
    }
}
