//! Writes an object to the lake in the parts in which the client uploaded it, because only then does it get
//! the acknowledged ETag.

use std::sync::atomic::Ordering;

use http::{HeaderMap, header};
use shoal_net::endpoint::s3::{CONTENT_MD5, Multipart, S3Client, content_md5};
use shoal_s3::etag;
use shoal_s3::identity::Caller;
use shoal_s3::payload::{Algorithm, Digests};
use shoal_s3::xml::ListedPart;

use super::{BodyFailure, LakeWrite, LakeWriteError, LakeWriter, Named, NotWritten, Uploaded};
use crate::dirty::record::acknowledged::PartDigest;
use crate::dirty::record::checksums::{Checksum, ChecksumSpec, creation_headers, element_name};
use crate::dirty::record::part_layout::PlacedPart;

impl LakeWriter {
    /// Uploads every part to the lake and completes the upload if the conditions hold.
    pub(super) async fn write_in_parts(&self, write: LakeWrite<'_>) -> Result<Uploaded, NotWritten> {
        // An upload changes nothing before its completion.
        let not_begun = |error| NotWritten {
            error,
            may_exist: false,
        };
        let manifest = write.manifest;
        let caller = self.writer(&manifest.writer).map_err(not_begun)?;
        let client = self.client(&caller);
        let headers = creation_headers(&manifest.headers);
        let created = Multipart::create(client.clone(), &manifest.target, headers).await;
        let upload = created.map_err(|error| not_begun(error.into()))?;
        let parts = Parts {
            lake_writer: self,
            write,
            upload: &upload,
            caller,
            client,
        };
        let completed = match parts.put_all().await {
            Ok(put) => parts.complete(put).await.map_err(LakeWriteError::into_end),
            Err(error) => Err(not_begun(error)),
        };
        // An unanswered completion may still be carried out, and the upload ends with it.
        if completed.as_ref().is_err_and(|failure| !failure.may_exist) {
            upload.abort();
        }
        completed
    }
}

/// The parts of one object that is being written.
struct Parts<'a> {
    lake_writer: &'a LakeWriter,
    write: LakeWrite<'a>,
    upload: &'a Multipart,
    caller: Caller,
    client: S3Client,
}

/// Parts that the lake has accepted.
struct PutParts {
    parts: Vec<ListedPart>,
    md5s: Vec<[u8; 16]>,
    /// True if the lake's ETag of each part is its MD5.
    all_by_md5: bool,
}

/// The digests that the lake verifies a part against.
struct Digested {
    md5: [u8; 16],
    checksum: Option<Checksum>,
}

impl Parts<'_> {
    async fn put_all(&self) -> Result<PutParts, LakeWriteError> {
        let manifest = self.write.manifest;
        let checksum_spec = ChecksumSpec::of(&manifest.headers).ok().flatten();
        let mut put = PutParts {
            parts: Vec::with_capacity(manifest.part_layout.count()),
            md5s: Vec::with_capacity(manifest.part_layout.count()),
            all_by_md5: true,
        };
        let mut acknowledged = manifest.part_digests.iter();
        for part in manifest.part_layout.parts() {
            let digested = match acknowledged
                .next()
                .and_then(|digest| known(digest, checksum_spec))
            {
                Some(digested) => digested,
                None => self.digests(part, checksum_spec).await?,
            };
            put.md5s.push(digested.md5);
            let (part, named) = self.put(part, digested).await?;
            put.parts.push(part);
            put.all_by_md5 &= named == Named::ByMd5;
        }
        Ok(put)
    }

    async fn complete(&self, put: PutParts) -> Result<Uploaded, LakeWriteError> {
        self.write.check()?;
        let acknowledged = &*self.write.manifest.version.etag;
        // For parts from an earlier build, the MD5s were computed from the bytes that were sent.
        if etag::of_parts(&put.md5s) != acknowledged {
            return Err(LakeWriteError::OtherMd5);
        }
        let LakeWrite {
            conditions, permit, ..
        } = self.write;
        let completed = self.upload.complete(put.parts, conditions.clone(), permit);
        let named = completed.await?;
        let names_by_parts = &self.lake_writer.names_by_parts;
        match &named {
            Some(etag) if *etag == *acknowledged => {
                names_by_parts.store(true, Ordering::Relaxed);
                Ok(Uploaded::Same)
            }
            // The lake returned no ETag, but it follows from those of the parts.
            None if put.all_by_md5 => Ok(Uploaded::Same),
            Some(_) if put.all_by_md5 && names_by_parts.load(Ordering::Relaxed) => {
                Err(LakeWriteError::contradicted(named.as_ref()))
            }
            _ => Ok(Uploaded::OtherEtag(named)),
        }
    }

    /// Uploads one part. Returns it with the kind of ETag that the lake gave it.
    async fn put(
        &self,
        part: PlacedPart,
        Digested { md5, checksum }: Digested,
    ) -> Result<(ListedPart, Named), LakeWriteError> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_MD5, content_md5(&md5));
        headers.extend(checksum.as_ref().map(Checksum::header));
        let failure = BodyFailure::default();
        let body = self
            .lake_writer
            .body(self.write, part.range, self.caller.clone(), failure.clone());
        let put = self
            .upload
            .put(part.number, headers, body, self.write.options())
            .await;
        failure.check()?;
        let answer = put?;
        let md5 = etag::of_md5(&md5);
        let named = Named::judge(&answer, &md5, &self.client, &self.write.manifest.target).await?;
        let part = ListedPart {
            number: part.number,
            etag: String::from_utf8_lossy(answer[header::ETAG].as_bytes()).into_owned(),
            checksum: checksum.map(|checksum| (element_name(checksum.algorithm), checksum.text())),
        };
        Ok((part, named))
    }

    /// Returns the digests to send ahead of a part. Reads the part if the record lacks them.
    async fn digests(
        &self,
        part: PlacedPart,
        checksum_spec: Option<ChecksumSpec>,
    ) -> Result<Digested, LakeWriteError> {
        let mut digests = Digests::default();
        digests.add(Algorithm::Md5);
        if let Some(ChecksumSpec { algorithm, .. }) = checksum_spec {
            digests.add(algorithm);
        }
        let mut blocks = self
            .lake_writer
            .blocks(self.write, part.range, self.caller.clone());
        while let Some(piece) = blocks.next().await {
            digests.update(&piece?);
        }
        let md5 = digests.digest(Algorithm::Md5);
        Ok(Digested {
            md5: md5.try_into().expect("an MD5 has 16 bytes"),
            checksum: checksum_spec.map(|ChecksumSpec { algorithm, .. }| Checksum {
                algorithm,
                digest: digests.digest(algorithm),
            }),
        })
    }
}

/// Returns a part's digests from the record if the record has all that the lake is sent.
fn known(digest: &PartDigest, checksum_spec: Option<ChecksumSpec>) -> Option<Digested> {
    let algorithm = checksum_spec.map(|ChecksumSpec { algorithm, .. }| algorithm);
    let checksum = algorithm.map(|algorithm| Checksum {
        algorithm,
        digest: digest.checksum.clone(),
    });
    let is_known = |checksum: &Checksum| checksum.digest.len() == checksum.algorithm.len_bytes();
    checksum.iter().all(is_known).then_some(Digested {
        md5: digest.md5,
        checksum,
    })
}
