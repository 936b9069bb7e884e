//! Writes an object to the lake in the parts in which it was uploaded. Only then does it get the acknowledged
//! ETag.

use std::future::poll_fn;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use shoal_s3::etag;
use shoal_s3::identity::Caller;
use shoal_s3::payload::{Algorithm, Digests};

use super::{BodyFailure, Cancel, LakeWriteError, LakeWriter, Uploaded};
use crate::dirty::checksums::{Checksum, ChecksumSpec, creation_headers};
use crate::dirty::lake_upload::{LakePart, LakeUpload, LakeUploadError};
use crate::dirty::{Manifest, PlacedPart};
use crate::endpoint::LakeAccount;
use crate::single_flight::FetchError;

const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

impl LakeWriter {
    /// Uploads every part to the lake and makes the object of them, if `conditions` hold.
    pub(super) async fn write_in_parts(
        &self,
        manifest: &Manifest,
        conditions: &HeaderMap,
        cancel: &Cancel,
    ) -> Result<Uploaded, LakeWriteError> {
        let caller = self.writer(&manifest.writer)?;
        let account = self.lake.account_for(&caller);
        let headers = creation_headers(&manifest.headers);
        let created = LakeUpload::create(&self.lake, &manifest.target, headers, account.clone()).await;
        let (upload, _) = created.map_err(LakeWriteError::from)?;
        let parts = Parts {
            lake_writer: self,
            manifest,
            upload: &upload,
            caller,
            account,
            cancel,
        };
        let completed = parts.complete(conditions).await;
        if completed.is_err() {
            upload.abort();
        }
        completed
    }
}

/// The parts of one object on their way to the lake.
struct Parts<'a> {
    lake_writer: &'a LakeWriter,
    manifest: &'a Manifest,
    upload: &'a LakeUpload,
    caller: Caller,
    account: LakeAccount,
    cancel: &'a Cancel,
}

impl Parts<'_> {
    async fn complete(&self, conditions: &HeaderMap) -> Result<Uploaded, LakeWriteError> {
        let checksum_spec = ChecksumSpec::of(&self.manifest.headers).ok().flatten();
        let mut at_lake = Vec::with_capacity(self.manifest.part_layout.count());
        let mut all_by_md5 = true;
        for part in self.manifest.part_layout.parts() {
            let (part, by_md5) = self.put(part, checksum_spec).await?;
            at_lake.push(part);
            all_by_md5 &= by_md5;
        }
        if self.cancel.is_cancelled() {
            return Err(LakeWriteError::Cancelled);
        }
        Ok(match self.upload.complete(&at_lake, conditions.clone()).await? {
            Some(etag) if etag == *self.manifest.version.etag => Uploaded::Same,
            // The ETag of the object follows from those of its parts.
            None if all_by_md5 => Uploaded::Same,
            other => Uploaded::OtherEtag(other),
        })
    }

    /// Uploads one part. Also returns whether the lake's ETag is the MD5 of the part.
    ///
    /// A part is read twice, because the digests by which the lake checks its bytes precede them in the
    /// request.
    async fn put(
        &self,
        part: PlacedPart,
        checksum_spec: Option<ChecksumSpec>,
    ) -> Result<(LakePart, bool), LakeWriteError> {
        let digests = self.digests(part, checksum_spec).await?;
        let checksum = checksum_spec.map(|ChecksumSpec { algorithm, .. }| Checksum {
            algorithm,
            digest: digests.of(algorithm),
        });
        let mut headers = HeaderMap::new();
        let md5 = digests.of(Algorithm::Md5);
        headers.insert(
            CONTENT_MD5,
            HeaderValue::try_from(STANDARD.encode(&md5)).expect("base 64 is a header value"),
        );
        headers.extend(checksum.as_ref().map(Checksum::header));
        let failure = BodyFailure::default();
        let (cancel, size_bytes) = (self.cancel.clone(), part.range.len());
        let body = self.lake_writer.body(
            self.manifest,
            part.range,
            self.caller.clone(),
            self.account.clone(),
            cancel,
            failure.clone(),
        );
        let put = self.upload.put(part.number, headers, size_bytes, body).await;
        failure.check()?;
        let named = put?;
        let by_md5 = named == *etag::of_md5(&md5);
        let part = LakePart {
            number: part.number,
            etag: named,
            checksum,
        };
        Ok((part, by_md5))
    }

    async fn digests(
        &self,
        part: PlacedPart,
        checksum_spec: Option<ChecksumSpec>,
    ) -> Result<Digests, LakeWriteError> {
        let mut digests = Digests::default();
        digests.add(Algorithm::Md5);
        if let Some(ChecksumSpec { algorithm, .. }) = checksum_spec {
            digests.add(algorithm);
        }
        let origin = (self.caller.clone(), self.account.clone());
        let mut blocks = self.lake_writer.blocks(self.manifest, part.range, origin);
        while let Some(piece) = poll_fn(|cx| blocks.poll_next(cx)).await {
            if self.cancel.is_cancelled() {
                return Err(LakeWriteError::Cancelled);
            }
            digests.update(&piece.map_err(unread)?);
        }
        Ok(digests)
    }
}

fn unread(error: FetchError) -> LakeWriteError {
    match error {
        FetchError::NotHeld => LakeWriteError::BlockMissing,
        error => LakeWriteError::Unread(error),
    }
}

impl From<LakeUploadError> for LakeWriteError {
    fn from(error: LakeUploadError) -> Self {
        match error {
            LakeUploadError::Refused(status) => Self::Refused(status),
            LakeUploadError::Misunderstood => Self::Misunderstood,
            LakeUploadError::Lake(error) => Self::Lake(error),
        }
    }
}
