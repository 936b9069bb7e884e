//! Writes an object to the lake in the parts in which it was uploaded. Only then does it get the acknowledged
//! ETag.

use std::future::poll_fn;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use shoal_s3::etag;
use shoal_s3::identity::Caller;
use shoal_s3::payload::{Algorithm, Digests};

use super::{BodyFailure, LakeWrite, LakeWriteError, LakeWriter, NotWritten, Uploaded};
use crate::dirty::PlacedPart;
use crate::dirty::checksums::{Checksum, ChecksumSpec, creation_headers};
use crate::dirty::lake_upload::{LakePart, LakeUpload, LakeUploadError};
use crate::endpoint::LakeAccount;

const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

impl LakeWriter {
    /// Uploads every part to the lake and makes the object of them, if the conditions hold.
    pub(super) async fn write_in_parts(&self, write: LakeWrite<'_>) -> Result<Uploaded, NotWritten> {
        // Until its completion an upload changes nothing.
        let not_begun = |error| NotWritten {
            error,
            may_exist: false,
        };
        let manifest = write.manifest;
        let caller = self.writer(&manifest.writer).map_err(not_begun)?;
        let account = self.lake.account_for(&caller);
        let headers = creation_headers(&manifest.headers);
        let created = LakeUpload::create(&self.lake, &manifest.target, headers, account.clone()).await;
        let (upload, _) = created.map_err(|error| not_begun(error.into()))?;
        let parts = Parts {
            lake_writer: self,
            write,
            upload: &upload,
            caller,
            account,
        };
        let completed = match parts.put_all().await {
            Ok(put) => parts.complete(put).await.map_err(LakeWriteError::into_end),
            Err(error) => Err(not_begun(error)),
        };
        // A completion without an answer may still be carried out; its upload ends with it.
        if completed.as_ref().is_err_and(|failure| !failure.may_exist) {
            upload.abort();
        }
        completed
    }
}

/// The parts of one object on their way to the lake.
struct Parts<'a> {
    lake_writer: &'a LakeWriter,
    write: LakeWrite<'a>,
    upload: &'a LakeUpload,
    caller: Caller,
    account: LakeAccount,
}

/// Parts that the lake has.
struct PutParts {
    parts: Vec<LakePart>,
    /// Whether the lake's ETag of each part is its MD5.
    all_by_md5: bool,
}

impl Parts<'_> {
    async fn put_all(&self) -> Result<PutParts, LakeWriteError> {
        let manifest = self.write.manifest;
        let checksum_spec = ChecksumSpec::of(&manifest.headers).ok().flatten();
        let mut put = PutParts {
            parts: Vec::with_capacity(manifest.part_layout.count()),
            all_by_md5: true,
        };
        for part in manifest.part_layout.parts() {
            let (part, by_md5) = self.put(part, checksum_spec).await?;
            put.parts.push(part);
            put.all_by_md5 &= by_md5;
        }
        Ok(put)
    }

    async fn complete(&self, put: PutParts) -> Result<Uploaded, LakeWriteError> {
        self.write.check()?;
        let completed = self.upload.complete(&put.parts, self.write.conditions.clone());
        Ok(match completed.await? {
            Some(etag) if etag == *self.write.manifest.version.etag => Uploaded::Same,
            // The ETag of the object follows from those of its parts.
            None if put.all_by_md5 => Uploaded::Same,
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
        let (failure, size_bytes) = (BodyFailure::default(), part.range.len());
        let origin = (self.caller.clone(), self.account.clone());
        let body = self
            .lake_writer
            .body(self.write, part.range, origin, failure.clone());
        let body = (size_bytes, body);
        let put = self.upload.put(part.number, headers, body, self.write.transfer);
        let put = put.await;
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
        let mut blocks = self.lake_writer.blocks(self.write, part.range, origin);
        while let Some(piece) = poll_fn(|cx| blocks.poll_next(cx)).await {
            digests.update(&piece.map_err(LakeWriteError::Unread)?);
        }
        Ok(digests)
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
