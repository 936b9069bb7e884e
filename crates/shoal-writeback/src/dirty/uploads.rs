//! Multipart uploads whose objects may be dirty. Parts are pieces in a tier's store, so an object is
//! assembled without moving any bytes.

mod id;
mod outcome;
mod part;
mod position;
mod selection;

use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use http::{HeaderMap, HeaderName};
use http_body::Body;
use shoal_cache::exchange::Admitted;
use shoal_cache::lake::Write;
use shoal_cache::obtain::KeptBytes;
use shoal_cache::write::Uncached;
use shoal_net::clock;
use shoal_registry::UploadKey;
use shoal_registry::changes::LakeChange;
use shoal_registry::engine::EngineError;
use shoal_registry::names::ChangeError;
use shoal_registry::session::{new_id, new_id_after};
use shoal_registry::uploads::{UploadError, UploadPart, UploadState};
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::object::ObjectName;
use shoal_s3::payload::Digests;

use super::errors::{no_such_upload, not_completed, part_refused, parts_changed, refused_by_lake};
use super::lake_writer::{LakeWrite, LakeWriteError};
use super::objects::{DirtyObjects, NewBytes, NewObject};
use super::record::checksums::{Checksum, ChecksumSpec, creation_headers, is_named};
use super::record::format::{Unreadable, decoded, encoded};
use super::record::keys::{new_key, object_name, registry_name};
use super::record::manifest::Manifest;
use super::record::writing::{PendingWrite, WriteError};
use super::stock::status::{UploadEnd, WriteBackOutcome};
use super::tiers::Tier;
use super::tiers::entries::Entries;
use crate::headers::those;
use crate::tier::TierUnavailable;

pub use self::id::UploadId;
pub use self::outcome::{Completed, KeptUpload};
pub use self::part::{Part, Upload};
pub use self::position::UploadPosition;
#[cfg(test)]
pub(crate) use self::position::tests::begun;
use self::selection::record_of;
pub use self::selection::{ListedPart, select};

impl DirtyObjects {
    /// Begins an upload whose object may become dirty. A lifetime named by the writer overrides the rule's.
    ///
    /// # Errors
    ///
    /// The reason why the object cannot be written back.
    pub async fn begin_upload(&self, admitted: &Admitted, asked: Write<'_>) -> Result<UploadId, Uncached> {
        let name = asked.name;
        let mut write = PendingWrite::new(admitted, asked, 0)?;
        write.headers = creation_headers(&write.headers);
        ChecksumSpec::from_headers(&write.headers)?;
        let (_, tier) = self.entries.rule(name).ok_or(Uncached::TierUnavailable)?;
        // Its parts will be pieces, however small they are.
        tier.store.check()?;
        self.clearances.permit(&write, &admitted.verified.caller).await?;
        let upload = Upload {
            id: UploadId(new_id()),
            name: write.name,
            writer: write.writer,
            headers: write.headers,
            lifetime: write.lifetime,
            begun: clock::utc_now(),
        };
        let record = encoded(&upload);
        let begun = tier
            .uploads
            .begin(&registry_name(name), upload.id.0, record)
            .await;
        begun.map_err(|error| {
            TierUnavailable::because(&error);
            Uncached::TierUnavailable
        })?;
        Ok(upload.id)
    }

    /// Finds an open or completed upload.
    ///
    /// # Errors
    ///
    /// There is no such upload, or the registry does not answer.
    pub async fn find_upload(&self, name: &ObjectName, id: UploadId) -> Result<KeptUpload, S3Error> {
        let tier = tier_of(&self.entries, name)?;
        let found = tier.uploads.find(&registry_name(name), id.0).await;
        let found = found.map_err(unavailable)?.ok_or_else(no_such_upload)?;
        let kept = match &found.state {
            UploadState::Open(record) => decoded(record).map(|upload| (upload, None)),
            UploadState::Complete { record, .. } => {
                decoded(record).map(|(upload, completed)| (upload, Some(completed)))
            }
        };
        let (upload, completed) = kept.map_err(|error| unreadable(id, name, error))?;
        Ok(KeptUpload {
            upload: Upload::of_record(name, id, upload),
            completed,
            found,
        })
    }

    /// Receives the bytes of a part and adds it to the upload. `size_bytes` is the size that its headers
    /// announce.
    ///
    /// # Errors
    ///
    /// The body is invalid, the upload has ended, or the tier cannot store the bytes.
    pub async fn put_part<B>(
        &self,
        KeptUpload { upload, found, .. }: &KeptUpload,
        number: u16,
        size_bytes: u64,
        body: B,
    ) -> Result<Part, S3Error>
    where
        B: Body<Data = Bytes, Error = S3Error>,
    {
        let tier = tier_of(&self.entries, &upload.name)?;
        if size_bytes > tier.store.object_bytes_max() {
            let message = "The part is larger than one that is written back may be; begin the upload with \
                           x-shoal-write: around.";
            return Err(S3Error::new(ErrorCode::EntityTooLarge, message));
        }
        let writable = tier.check_writable();
        writable.map_err(|why| part_refused(why.into()))?;
        if !tier.store.has_room(size_bytes) {
            return Err(part_refused(WriteError::Full));
        }
        let algorithm = upload.checksum_spec().map(|spec| spec.algorithm);
        let mut digests = Digests::default();
        if let Some(algorithm) = algorithm {
            digests.add(algorithm);
        }
        let key = new_key(size_bytes);
        let body = std::pin::pin!(body);
        let received = tier
            .store
            .receive(&key, size_bytes, body, |data| digests.update(data));
        let received = received.await.map_err(part_refused)?;
        let part = Part {
            number,
            size_bytes,
            md5: received.md5,
            checksum: algorithm.map(|algorithm| Checksum {
                algorithm,
                digest: digests.digest(algorithm),
            }),
            modified: clock::utc_now(),
            digests: received.digests,
            data: key,
        };
        let kept = UploadPart {
            data: Arc::clone(&part.data),
            record: encoded(&part),
        };
        if let Err(error) = tier.uploads.put_part(found, number, &kept).await {
            if error.is_certain() {
                tier.store.discard(std::slice::from_ref(&part.data)).await;
            }
            return Err(not_changed(error));
        }
        Ok(part)
    }

    /// Returns the parts of an open upload, ordered by number.
    ///
    /// # Errors
    ///
    /// The registry does not answer.
    pub async fn parts(&self, kept: &KeptUpload) -> Result<Vec<Arc<Part>>, S3Error> {
        let tier = tier_of(&self.entries, &kept.upload.name)?;
        let parts = tier.uploads.parts(kept.upload.id.0).map(|listed| {
            let (number, part) = listed.map_err(unavailable)?;
            let part = Part::from_bytes(number, part.data, &part.record);
            let part = part.map_err(|error| unreadable(kept.upload.id, &kept.upload.name, error))?;
            Ok(Arc::new(part))
        });
        parts.try_collect().await
    }

    /// Completes an upload with `parts`. `asked` holds conditions on the existing object and checksums that
    /// the new one must have. Only the lake can evaluate conditions, so an object with conditions is written
    /// there at once. Returns `None`, and the upload stays open, if a part was uploaded again meanwhile.
    ///
    /// # Errors
    ///
    /// No object was made and the upload stays open, or the outcome is unknown.
    pub async fn complete_upload(
        &self,
        kept: &KeptUpload,
        parts: &[Arc<Part>],
        asked: &HeaderMap,
    ) -> Result<Option<Arc<Completed>>, S3Error> {
        let upload = &kept.upload;
        let tier = tier_of(&self.entries, &upload.name)?;
        let record = record_of(upload, parts);
        let differs = |(name, value): (&HeaderName, _)| {
            let computed = record.of_reads.get(name);
            computed.is_some_and(|computed| !is_named(computed, value))
        };
        if asked.iter().any(differs) {
            let message = "The checksum of the object is not the one that the request names.";
            return Err(S3Error::new(ErrorCode::BadDigest, message));
        }
        // The conditions on the existing object.
        let conditions = those(asked, |name| name.as_str().starts_with("if-"));
        let completed = Completed {
            etag: Arc::clone(&record.etag),
            checksums: record.of_reads.clone(),
            through: if conditions.is_empty() {
                "".into()
            } else {
                Uncached::Condition.as_str().into()
            },
        };
        let completion = encoded(&(upload, &completed));
        let with_bytes = parts.iter().filter(|part| part.size_bytes > 0);
        let (_, mut dirty) = self.describe(NewObject {
            name: &upload.name,
            size_bytes: parts.iter().map(|part| part.size_bytes).sum(),
            lifetime: upload.lifetime,
            record: &record,
            bytes: NewBytes::Store(with_bytes.map(|part| Arc::clone(&part.data)).collect()),
        });
        if conditions.is_empty() {
            let done = loop {
                let parts = kept_parts(parts);
                let done = tier
                    .uploads
                    .complete(&kept.found, &dirty, parts, &completion)
                    .await;
                let Err(UploadError::Change(ChangeError::Outdated(current))) = done else {
                    break done;
                };
                dirty.id = new_id_after(current);
                self.hold(&upload.name, upload.lifetime, &record.writer, dirty.id);
            };
            self.invalidate(&upload.name);
            let record = match done {
                Err(UploadError::Changed) => return Ok(None),
                Err(UploadError::Change(ChangeError::Engine(EngineError::Full(why)))) => {
                    tracing::warn!(%why, "a registry is full");
                    return Err(not_completed());
                }
                done => done.map_err(not_changed)?,
            };
            self.shared.outcomes.writes.count(WriteBackOutcome::Committed);
            self.shared.outcomes.uploads.count(UploadEnd::Completed);
            let kept = decoded::<(Upload, Arc<Completed>)>(&record);
            let (_, completed) = kept.map_err(|error| unreadable(upload.id, &upload.name, error))?;
            return Ok(Some(completed));
        }
        let manifest = self.entries.manifest(&upload.name, &dirty)?;
        let change = self.begin_at_lake(&upload.name).await;
        let change = change.map_err(|error| {
            tracing::debug!(%error, "an upload could not begin its change at the lake");
            not_completed()
        })?;
        self.write_at_lake(tier, &manifest, &conditions, change).await?;
        let ended = tier
            .uploads
            .completed_at_lake(&kept.found, dirty.id, completion)
            .await;
        if let Err(error) = ended {
            tracing::warn!(%error, object = ?upload.name, "the completion of an upload could not be recorded");
        }
        self.shared.outcomes.uploads.count(UploadEnd::Completed);
        Ok(Some(Arc::new(completed)))
    }

    /// Writes an object to the lake under conditions, within a change that has begun.
    async fn write_at_lake(
        &self,
        tier: &Tier,
        manifest: &Manifest,
        conditions: &HeaderMap,
        change: LakeChange,
    ) -> Result<(), S3Error> {
        let bytes = manifest.bytes(tier.store.bytes(), &self.shared.damages);
        let bytes: Arc<dyn KeptBytes> = Arc::new(bytes);
        let permit = change.permit();
        let write = LakeWrite {
            manifest,
            bytes: &bytes,
            conditions,
            permit: &permit,
            transfer: None,
        };
        let written = self.shared.write(write).await;
        self.invalidate(&manifest.name);
        match written {
            Ok(_uploaded) => {
                // The lake has the object, even if the registry cannot record it.
                let _ = change.done().await;
                Ok(())
            }
            Err(failure) => {
                tracing::debug!(%failure, object = ?manifest.name, "the object of an upload could not be written");
                if !failure.may_exist {
                    let _ = change.refused().await;
                }
                Err(match failure.error {
                    LakeWriteError::Refused(status) if status.is_client_error() => refused_by_lake(status),
                    _ => not_completed(),
                })
            }
        }
    }

    /// Ends an upload without an object.
    ///
    /// # Errors
    ///
    /// The upload has already ended, or the registry does not answer.
    pub async fn abort_upload(&self, kept: &KeptUpload) -> Result<(), S3Error> {
        let upload = &kept.upload;
        let tier = tier_of(&self.entries, &upload.name)?;
        tier.uploads.abort(&kept.found).await.map_err(not_changed)?;
        self.shared.outcomes.uploads.count(UploadEnd::Aborted);
        Ok(())
    }

    /// Returns the open uploads that the identity `writer` began below a prefix, in the order of listings:
    /// those behind a position, or all.
    ///
    /// # Errors
    ///
    /// A registry does not answer.
    pub async fn list_uploads(
        &self,
        bucket: &str,
        prefix: &[u8],
        writer: &str,
        behind: Option<&UploadPosition>,
    ) -> Result<Vec<Arc<Upload>>, TierUnavailable> {
        let mut uploads = Vec::new();
        for tier in self.entries.tiers_below(bucket, prefix) {
            let mut listed = std::pin::pin!(tier.uploads.list(bucket, prefix));
            while let Some((UploadKey { name, id }, record)) = listed.try_next().await? {
                let Some(name) = object_name(&name).filter(|name| self.entries.may_be_dirty(name)) else {
                    continue;
                };
                let id = UploadId(id);
                let kept = decoded(&record).map_err(|error| unreadable(id, &name, error))?;
                let upload = Upload::of_record(&name, id, kept);
                if is_listed(&upload, prefix, writer, behind) {
                    uploads.push(Arc::new(upload));
                }
            }
        }
        uploads.sort_by_cached_key(|upload| UploadPosition::of(upload));
        Ok(uploads)
    }
}

/// Returns true if a listing below `prefix` shows an upload to the identity `writer` behind a position.
fn is_listed(upload: &Upload, prefix: &[u8], writer: &str, behind: Option<&UploadPosition>) -> bool {
    *upload.writer == *writer
        // The registry also finds a prefix that reaches into the id behind a key.
        && upload.name.key.starts_with(prefix)
        && behind.is_none_or(|place| place.is_before(upload))
}

fn tier_of<'a>(entries: &'a Entries, name: &ObjectName) -> Result<&'a Tier, S3Error> {
    let (_, tier) = entries.rule(name).ok_or_else(no_such_upload)?;
    Ok(tier)
}

/// Returns the numbers of the parts that the object keeps, as runs of first and last number.
fn kept_parts(parts: &[Arc<Part>]) -> Vec<(u16, u16)> {
    let mut runs: Vec<(u16, u16)> = Vec::new();
    for part in parts.iter().filter(|part| part.size_bytes > 0) {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == part.number => *last = part.number,
            _ => runs.push((part.number, part.number)),
        }
    }
    runs
}

/// An upload, one of its parts, or its result has a record of another build, or a damaged one.
fn unreadable(id: UploadId, name: &ObjectName, error: Unreadable) -> TierUnavailable {
    TierUnavailable::because(&format!(
        "the record of the upload {id} of {name:?} cannot be read: {error}"
    ))
}

fn unavailable(error: impl Display) -> S3Error {
    TierUnavailable::because(&error).into()
}

/// Returns the error for a change of an upload that failed, or whose outcome is unknown.
fn not_changed(error: UploadError) -> S3Error {
    match error {
        UploadError::Ended => no_such_upload(),
        UploadError::Changed => parts_changed(),
        UploadError::Change(error) => unavailable(error),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::part::tests::part;
    use super::{UploadPosition, begun, is_listed, kept_parts};

    #[test]
    fn a_listing_is_about_uploads_of_one_writer_below_a_prefix_and_behind_a_position() {
        let upload = begun("tmp/a", 5, 1);
        let (own, before) = (&*upload.writer, UploadPosition::before_all_of(b"tmp/a"));
        assert!(is_listed(&upload, b"tmp/", own, None) && is_listed(&upload, b"", own, Some(&before)));
        let itself = UploadPosition::of(&upload);
        for (prefix, writer, behind) in [
            (&b"tmp/b"[..], own, None),
            (b"tmp/a\0", own, None),
            (b"", "other", None),
            (b"", own, Some(&itself)),
        ] {
            assert!(!is_listed(&upload, prefix, writer, behind));
        }
    }

    #[test]
    fn the_parts_of_an_object_are_kept_as_runs_without_the_empty_ones() {
        let parts = [(1, 5), (2, 5), (3, 0), (4, 5), (7, 5), (8, 1)];
        let parts = parts.map(|(number, size_bytes)| Arc::new(part(number, 1, size_bytes)));
        assert_eq!(kept_parts(&parts), [(1, 2), (4, 4), (7, 8)]);
        assert!(kept_parts(&[]).is_empty());
    }
}
