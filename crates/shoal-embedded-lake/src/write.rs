//! Requests that change an object. Bytes are received into the staging area, verified there, and published
//! together with their ETag.

use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, CompleteMultipartUploadInput,
    CompleteMultipartUploadOutput, CopyObjectInput, CopyObjectOutput, CopySource, CreateMultipartUploadInput,
    CreateMultipartUploadOutput, DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput,
    DeleteObjectsOutput, DeletedObject, ETag, Error, MetadataDirective, PutObjectInput, PutObjectOutput,
    UploadPartCopyInput, UploadPartCopyOutput,
};
use s3s::{S3, S3Error, S3Request, S3Response, S3Result, s3_error};
use sha2::{Digest, Sha256};
use shoal_base::hex;

use super::conditions::{Conditions, Evaluation};
use super::lake::DirectoryLake;
use super::layout::{STAGING, Staged};
use super::read::precondition_failed;

/// Minimum size of every part but the last one.
const PART_BYTES_MIN: u64 = 5 << 20;
/// Maximum number of objects deleted in one request.
const DELETES_MAX: usize = 1000;

impl DirectoryLake {
    pub(super) async fn put(
        &self,
        mut req: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let input = &mut req.input;
        self.require_bucket(&input.bucket)?;
        let name = self.files.name_of(&input.bucket, &input.key)?;
        let conditions = Conditions {
            matches: input.if_match.take(),
            none_match: input.if_none_match.take(),
            ..Conditions::default()
        };
        let staged = self.files.stage();
        let bucket = std::mem::replace(&mut input.bucket, STAGING.into());
        input.key.clone_from(&staged.key);
        input.content_encoding = input.content_encoding.as_deref().and_then(stored_encoding);
        let answer = self.fs.put_object(req).await?;
        self.publish(staged, &bucket, &name, &conditions).await?;
        Ok(answer)
    }

    pub(super) async fn copy(
        &self,
        mut req: S3Request<CopyObjectInput>,
    ) -> S3Result<S3Response<CopyObjectOutput>> {
        let input = &mut req.input;
        self.require_bucket(&input.bucket)?;
        let name = self.files.name_of(&input.bucket, &input.key)?;
        let (from_bucket, from_name) = self.source(&mut input.copy_source)?;
        let replaces = input
            .metadata_directive
            .as_ref()
            .is_some_and(|it| it.as_str() == MetadataDirective::REPLACE);
        if (&from_bucket, &from_name) == (&input.bucket, &name) && !replaces {
            return Err(s3_error!(
                InvalidRequest,
                "An object is copied to itself only to replace its metadata"
            ));
        }
        let conditions = Conditions {
            matches: input.copy_source_if_match.take(),
            none_match: input.copy_source_if_none_match.take(),
            modified_since: input.copy_source_if_modified_since.take(),
            unmodified_since: input.copy_source_if_unmodified_since.take(),
        };
        let staged = self.files.stage();
        let bucket = std::mem::replace(&mut input.bucket, STAGING.into());
        input.key.clone_from(&staged.key);
        let answer = {
            let _shared = self.gate.read().await;
            self.evaluate(&conditions, &from_bucket, &from_name).await?;
            self.fs.copy_object(req).await?
        };
        self.publish(staged, &bucket, &name, &Conditions::default())
            .await?;
        Ok(answer)
    }

    pub(super) async fn delete(&self, input: DeleteObjectInput) -> S3Result<S3Response<DeleteObjectOutput>> {
        self.require_bucket(&input.bucket)?;
        let name = self.files.name_of(&input.bucket, &input.key)?;
        let conditions = Conditions {
            matches: input.if_match,
            ..Conditions::default()
        };
        let _alone = self.gate.write().await;
        self.judge_target(&conditions, &input.bucket, &name).await?;
        self.files
            .remove(&input.bucket, &name)
            .map_err(S3Error::internal_error)?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    pub(super) async fn delete_many(
        &self,
        input: DeleteObjectsInput,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        self.require_bucket(&input.bucket)?;
        if input.delete.objects.len() > DELETES_MAX {
            return Err(s3_error!(MalformedXML));
        }
        let _alone = self.gate.write().await;
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for object in input.delete.objects {
            let removed = self.files.name_of(&input.bucket, &object.key).and_then(|name| {
                self.files
                    .remove(&input.bucket, &name)
                    .map_err(S3Error::internal_error)
            });
            match removed {
                Ok(()) => deleted.push(DeletedObject {
                    key: Some(object.key),
                    ..DeletedObject::default()
                }),
                Err(error) => errors.push(Error {
                    code: Some(error.code().as_str().into()),
                    key: Some(object.key),
                    message: error.message().map(Into::into),
                    ..Error::default()
                }),
            }
        }
        let loud = !input.delete.quiet.unwrap_or(false);
        let output = DeleteObjectsOutput {
            deleted: loud.then_some(deleted),
            errors: (!errors.is_empty()).then_some(errors),
            ..DeleteObjectsOutput::default()
        };
        Ok(S3Response::new(output))
    }

    pub(super) async fn create_upload(
        &self,
        mut req: S3Request<CreateMultipartUploadInput>,
    ) -> S3Result<S3Response<CreateMultipartUploadOutput>> {
        let input = &mut req.input;
        self.require_bucket(&input.bucket)?;
        let name = self.files.name_of(&input.bucket, &input.key)?;
        let bucket = std::mem::replace(&mut input.bucket, STAGING.into());
        let key = std::mem::replace(&mut input.key, upload_key(&bucket, &name));
        input.content_encoding = input.content_encoding.as_deref().and_then(stored_encoding);
        let mut answer = self.fs.create_multipart_upload(req).await?;
        answer.output.bucket = Some(bucket);
        answer.output.key = Some(key);
        Ok(answer)
    }

    pub(super) async fn copy_part(
        &self,
        mut req: S3Request<UploadPartCopyInput>,
    ) -> S3Result<S3Response<UploadPartCopyOutput>> {
        let input = &mut req.input;
        self.require_upload(&input.upload_id)?;
        let (from_bucket, from_name) = self.source(&mut input.copy_source)?;
        let conditions = Conditions {
            matches: input.copy_source_if_match.take(),
            none_match: input.copy_source_if_none_match.take(),
            modified_since: input.copy_source_if_modified_since.take(),
            unmodified_since: input.copy_source_if_unmodified_since.take(),
        };
        let _shared = self.gate.read().await;
        self.evaluate(&conditions, &from_bucket, &from_name).await?;
        self.fs.upload_part_copy(req).await
    }

    pub(super) async fn complete_upload(
        &self,
        mut req: S3Request<CompleteMultipartUploadInput>,
    ) -> S3Result<S3Response<CompleteMultipartUploadOutput>> {
        let input = &mut req.input;
        self.check_parts(input)?;
        let name = self.files.name_of(&input.bucket, &input.key)?;
        let conditions = Conditions {
            matches: input.if_match.take(),
            none_match: input.if_none_match.take(),
            ..Conditions::default()
        };
        {
            // Checked again when the object is published; checked here first, so that a failed completion
            // keeps its parts.
            let _shared = self.gate.read().await;
            self.judge_target(&conditions, &input.bucket, &name).await?;
        }
        let _one_at_a_time = self.completion.lock().await;
        let staged = self.files.stage_as(upload_key(&input.bucket, &name));
        let bucket = std::mem::replace(&mut input.bucket, STAGING.into());
        let key = std::mem::replace(&mut input.key, staged.key.clone());
        let mut output = self.fs.complete_multipart_upload(req).await?.output;
        // The library has finished by now; the future only returns the result.
        if let Some(result) = output.future.take() {
            output = result.await?;
        }
        self.publish(staged, &bucket, &name, &conditions).await?;
        output.location = Some(format!("/{bucket}/{key}"));
        output.bucket = Some(bucket);
        output.key = Some(key);
        Ok(S3Response::new(output))
    }

    pub(super) async fn abort_upload(
        &self,
        mut req: S3Request<AbortMultipartUploadInput>,
    ) -> S3Result<S3Response<AbortMultipartUploadOutput>> {
        let input = &mut req.input;
        self.require_upload(&input.upload_id)?;
        let name = self.files.name_of(&input.bucket, &input.key)?;
        input.key = upload_key(&input.bucket, &name);
        input.bucket = STAGING.into();
        self.fs.abort_multipart_upload(req).await
    }

    pub(super) fn require_upload(&self, upload: &str) -> S3Result<()> {
        let parts = self.files.parts(upload).map_err(S3Error::internal_error)?;
        parts
            .map(|_| ())
            .ok_or_else(|| s3_error!(NoSuchUpload, "The specified upload does not exist"))
    }

    /// Rejects an invalid list of parts, because the library would delete the upload before rejecting it.
    fn check_parts(&self, input: &CompleteMultipartUploadInput) -> S3Result<()> {
        let stored = self
            .files
            .parts(&input.upload_id)
            .map_err(S3Error::internal_error)?;
        let stored = stored.ok_or_else(|| s3_error!(NoSuchUpload, "The specified upload does not exist"))?;
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
    async fn publish(
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
    async fn judge_target(&self, conditions: &Conditions, bucket: &str, name: &str) -> S3Result<()> {
        match self.evaluate(conditions, bucket, name).await {
            Err(error) if error.code() == &s3s::S3ErrorCode::NoSuchKey => {
                match conditions.evaluate_absent() {
                    Evaluation::Met => Ok(()),
                    Evaluation::Failed | Evaluation::Unchanged => Err(precondition_failed()),
                }
            }
            judged => judged,
        }
    }

    /// Evaluates conditions on an object that must exist. The caller holds the gate.
    async fn evaluate(&self, conditions: &Conditions, bucket: &str, name: &str) -> S3Result<()> {
        let head = self.attributes(bucket, name, None).await?;
        let etag = head.e_tag.as_ref().map_or("", ETag::value);
        match conditions.evaluate(etag, &head.last_modified.unwrap_or_default()) {
            Evaluation::Met => Ok(()),
            Evaluation::Failed | Evaluation::Unchanged => Err(precondition_failed()),
        }
    }

    /// Returns the bucket and file name of a copy source, and rewrites the source to that name.
    fn source(&self, source: &mut CopySource) -> S3Result<(String, String)> {
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
fn upload_key(bucket: &str, name: &str) -> String {
    let digest = Sha256::new_with_prefix(bucket)
        .chain_update([0])
        .chain_update(name)
        .finalize();
    hex::text(&digest[..16])
}

/// Returns the content encoding to store. `aws-chunked` is a transfer encoding; S3 does not store it.
fn stored_encoding(header: &str) -> Option<String> {
    let codings = header
        .split(',')
        .map(str::trim)
        .filter(|coding| !coding.is_empty() && *coding != "aws-chunked");
    let codings: Vec<_> = codings.collect();
    (!codings.is_empty()).then(|| codings.join(","))
}
