//! The common part of all requests that change an object: their bytes are received into the staging area,
//! verified there, and published together with their ETag.

use s3s::dto::{CompleteMultipartUploadInput, CopySource};
use s3s::{S3Error, S3ErrorCode, S3Result, s3_error};
use sha2::{Digest, Sha256};
use shoal_base::hex;

use super::conditions::{Conditions, precondition_failed};
use super::lake::DirectoryLake;
use super::layout::Staged;

/// Minimum size of every part but the last one.
const PART_BYTES_MIN: u64 = 5 << 20;

impl DirectoryLake {
    /// Returns the file name of an object that a request writes or removes.
    pub(super) fn target(&self, bucket: &str, key: &str) -> S3Result<String> {
        self.require_bucket(bucket)?;
        self.files.name_of(bucket, key)
    }

    /// Removes an object, if present. The caller holds the gate.
    pub(super) fn remove(&self, bucket: &str, name: &str) -> S3Result<()> {
        let removed = self.files.remove(bucket, name);
        removed.map_err(S3Error::internal_error)
    }

    /// Rejects an invalid list of parts, because the library would delete the upload before rejecting it.
    pub(super) fn check_parts(&self, input: &CompleteMultipartUploadInput) -> S3Result<()> {
        let stored = self.files.parts(&input.upload_id)?;
        let listed = input
            .multipart_upload
            .as_ref()
            .and_then(|upload| upload.parts.as_deref())
            .unwrap_or_default();
        if listed.is_empty() {
            return Err(s3_error!(MalformedXML, "An upload has at least one part"));
        }
        for (position, part) in listed.iter().enumerate() {
            let number = part.part_number.unwrap_or_default();
            let Some((_, size)) = stored.iter().find(|(stored, _)| *stored == number) else {
                return Err(s3_error!(InvalidPart, "Part {number} was not uploaded"));
            };
            if usize::try_from(number) != Ok(position + 1) {
                return Err(s3_error!(
                    InvalidPartOrder,
                    "The development lake numbers parts from 1 without gaps"
                ));
            }
            if position + 1 < listed.len() && *size < PART_BYTES_MIN {
                return Err(s3_error!(
                    EntityTooSmall,
                    "Part {number} is smaller than {PART_BYTES_MIN} bytes"
                ));
            }
        }
        Ok(())
    }

    /// Replaces the object by the staged one, if the conditions hold at that moment.
    pub(super) async fn publish(
        &self,
        staged: Staged<'_>,
        bucket: &str,
        name: &str,
        conditions: &Conditions,
    ) -> S3Result<()> {
        let _alone = self.gate.write().await;
        self.require_bucket(bucket)?;
        self.judge_target(conditions, bucket, name).await?;
        staged.commit(bucket, name)
    }

    /// Evaluates conditions on an object that will be replaced and may be absent. The caller holds the gate.
    pub(super) async fn judge_target(
        &self,
        conditions: &Conditions,
        bucket: &str,
        name: &str,
    ) -> S3Result<()> {
        match self.evaluate(conditions, bucket, name).await {
            Err(error) if error.code() == &S3ErrorCode::NoSuchKey => match conditions.matches {
                // Only `If-Match` needs an object.
                Some(_) => Err(precondition_failed()),
                None => Ok(()),
            },
            judged => judged,
        }
    }

    /// Evaluates conditions on an object that must exist. The caller holds the gate.
    pub(super) async fn evaluate(&self, conditions: &Conditions, bucket: &str, name: &str) -> S3Result<()> {
        let object = self.attributes(bucket, name, None).await?;
        // A write has no 304.
        conditions.check(&object).map_err(|_| precondition_failed())
    }

    /// Returns the bucket and file name of a copy source, and rewrites the source to that name.
    pub(super) fn source(&self, source: &mut CopySource) -> S3Result<(String, String)> {
        let CopySource::Bucket {
            bucket,
            key,
            version_id,
        } = source
        else {
            return Err(s3_error!(
                NotImplemented,
                "The development lake copies from buckets only"
            ));
        };
        if version_id.as_deref().is_some_and(|version| version != "null") {
            return Err(s3_error!(NoSuchVersion, "The development lake keeps no versions"));
        }
        let name = self.files.name_of(bucket, key)?;
        *key = name.as_str().into();
        Ok((bucket.to_string(), name))
    }
}

/// Returns the staging key of an object's uploads, the same for each of their requests.
pub(super) fn upload_key(bucket: &str, name: &str) -> String {
    let digest = Sha256::new_with_prefix(bucket)
        .chain_update([0])
        .chain_update(name)
        .finalize();
    hex::text(&digest[..16])
}

/// Returns the content encoding to store. `aws-chunked` is a transfer encoding; S3 does not store it.
pub(super) fn stored_encoding(header: &str) -> Option<String> {
    let codings = header
        .split(',')
        .map(str::trim)
        .filter(|coding| !coding.is_empty() && *coding != "aws-chunked");
    let codings: Vec<_> = codings.collect();
    (!codings.is_empty()).then(|| codings.join(","))
}
