//! Writes an object to the lake in the parts in which the client uploaded it, because only then does it get
//! the acknowledged ETag.

use std::sync::atomic::Ordering;

use http::{HeaderMap, header};
use shoal_net::endpoint::s3::{CONTENT_MD5, Multipart, content_md5};
use shoal_s3::etag;
use shoal_s3::payload::{Algorithm, Digests};
use shoal_s3::range::ByteRange;
use shoal_s3::xml::ListedPart;

use super::{Attempt, LakeWriteError, NotWritten, Uploaded};
use crate::dirty::record::checksums::{Checksum, ChecksumSpec, creation_headers, element_name};
use crate::dirty::record::part_layout::PlacedPart;

impl Attempt<'_> {
    /// Uploads every part to the lake and completes the upload if the conditions hold.
    pub(super) async fn write_in_parts(&self) -> Result<Uploaded, NotWritten> {
        // An upload changes nothing before its completion.
        let not_begun = |error| NotWritten {
            error,
            may_exist: false,
        };
        let manifest = self.write.manifest;
        if etag::of_parts(manifest.record.acknowledged.parts()) != *manifest.version.etag {
            return Err(not_begun(LakeWriteError::OtherParts));
        }
        let headers = creation_headers(&manifest.record.headers);
        let created = Multipart::create(self.client.clone(), &manifest.target, headers).await;
        let upload = created.map_err(|error| not_begun(error.into()))?;
        let completed = match self.put_all(&upload).await {
            Ok((parts, all_by_md5)) => self
                .complete(&upload, parts, all_by_md5)
                .await
                .map_err(NotWritten::from),
            Err(error) => Err(not_begun(error)),
        };
        // An unanswered completion may still be carried out, and the upload ends with it.
        if completed.as_ref().is_err_and(|failure| !failure.may_exist) {
            upload.abort();
        }
        completed
    }

    /// Uploads all parts. Returns them, and true if the lake's ETag of each is its MD5.
    async fn put_all(&self, upload: &Multipart) -> Result<(Vec<ListedPart>, bool), LakeWriteError> {
        let record = &self.write.manifest.record;
        let checksum_spec = ChecksumSpec::from_headers(&record.headers).ok().flatten();
        let algorithm = checksum_spec.map(|spec| spec.algorithm);
        let (mut put, mut all_by_md5) = (Vec::with_capacity(record.part_layout.count()), true);
        let parts = record.part_layout.parts().zip(record.acknowledged.parts());
        for (index, (part, md5)) in parts.enumerate() {
            let checksum = match algorithm {
                Some(algorithm) => {
                    let known = record.acknowledged.checksum(index, algorithm.len_bytes());
                    let digest = match known {
                        Some(digest) => digest.to_vec(),
                        None => self.digest(part.range, algorithm).await?,
                    };
                    Some(Checksum { algorithm, digest })
                }
                None => None,
            };
            let (part, is_by_md5) = self.put(upload, part, md5, checksum).await?;
            put.push(part);
            all_by_md5 &= is_by_md5;
        }
        Ok((put, all_by_md5))
    }

    async fn complete(
        &self,
        upload: &Multipart,
        parts: Vec<ListedPart>,
        all_by_md5: bool,
    ) -> Result<Uploaded, LakeWriteError> {
        self.check()?;
        let acknowledged = &*self.write.manifest.version.etag;
        let completed = upload.complete(parts, self.write.conditions.clone(), self.write.permit);
        let named = completed.await?;
        let names_by_parts = &self.shared.names_by_parts;
        match &named {
            Some(etag) if *etag == *acknowledged => {
                names_by_parts.store(true, Ordering::Relaxed);
                Ok(Uploaded::Same)
            }
            // The lake returned no ETag, but it follows from those of the parts.
            None if all_by_md5 => Ok(Uploaded::Same),
            Some(_) if all_by_md5 && names_by_parts.load(Ordering::Relaxed) => {
                Err(LakeWriteError::contradicted(named.as_ref()))
            }
            _ => Ok(Uploaded::OtherEtag(named)),
        }
    }

    /// Uploads one part. Returns it, and true if the lake's ETag of it is its MD5.
    async fn put(
        &self,
        upload: &Multipart,
        part: PlacedPart,
        md5: &[u8; 16],
        checksum: Option<Checksum>,
    ) -> Result<(ListedPart, bool), LakeWriteError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_MD5, content_md5(md5));
        headers.extend(checksum.as_ref().map(Checksum::header));
        let (body, mut failure) = self.body(part.range);
        let put = upload.put(part.number, headers, body, self.options()).await;
        failure.try_recv().map_or(Ok(()), Err)?;
        let answer = put?;
        let is_by_md5 = self.is_by_md5(&answer, &etag::of_md5(md5)).await?;
        let part = ListedPart {
            number: part.number,
            etag: String::from_utf8_lossy(answer[header::ETAG].as_bytes()).into_owned(),
            checksum: checksum.map(|checksum| (element_name(checksum.algorithm), checksum.text())),
        };
        Ok((part, is_by_md5))
    }

    /// Reads a part whose checksum the record lacks, because the lake is sent the checksum ahead of the part.
    async fn digest(&self, range: ByteRange, algorithm: Algorithm) -> Result<Vec<u8>, LakeWriteError> {
        let mut digests = Digests::default();
        digests.add(algorithm);
        let mut blocks = self.blocks(range);
        while let Some(piece) = blocks.next().await {
            digests.update(&piece?);
        }
        Ok(digests.digest(algorithm))
    }
}
