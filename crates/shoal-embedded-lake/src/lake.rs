//! A decorator of `s3s-fs`: it passes on the requests that `s3s-fs` handles well, and answers the rest with
//! the help of `read` and `write`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use http::{Extensions, HeaderMap, Method, Uri};
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, CompleteMultipartUploadInput,
    CompleteMultipartUploadOutput, CopyObjectInput, CopyObjectOutput, CreateBucketInput, CreateBucketOutput,
    CreateMultipartUploadInput, CreateMultipartUploadOutput, DeleteBucketInput, DeleteBucketOutput,
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, Error,
    GetBucketLocationInput, GetBucketLocationOutput, GetObjectInput, GetObjectOutput, HeadBucketInput,
    HeadBucketOutput, HeadObjectInput, HeadObjectOutput, ListBucketsInput, ListBucketsOutput,
    ListObjectsInput, ListObjectsOutput, ListObjectsV2Input, ListObjectsV2Output, ListPartsInput,
    ListPartsOutput, MetadataDirective, PutObjectInput, PutObjectOutput, StreamingBlob, UploadPartCopyInput,
    UploadPartCopyOutput, UploadPartInput, UploadPartOutput,
};
use s3s::{S3, S3Error, S3Request, S3Response, S3Result, s3_error};
use s3s_fs::FileSystem;
use tokio::fs::File;
use tokio::sync::{Mutex, RwLock};

use super::conditions::Conditions;
use super::layout::{Layout, STAGING};
use super::read::{answer, encode, is_url, overlay, read, refuse_other_states, resolve};
use super::write::{stored_encoding, upload_key};

/// Maximum number of objects deleted in one request.
const DELETES_MAX: usize = 1000;

/// Serves a folder as an S3 store.
pub(super) struct DirectoryLake {
    pub(super) files: Arc<Layout>,
    pub(super) fs: FileSystem,
    /// Held shared while an object's files are read, exclusively while they are replaced.
    pub(super) gate: RwLock<()>,
    /// Held while an upload is completed, because the staging key is derived from the object's name.
    pub(super) completion: Mutex<()>,
}

impl DirectoryLake {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let files = Arc::new(Layout::open(folder)?);
        let fs = FileSystem::new(files.root()).map_err(|error| io::Error::other(format!("{error:?}")))?;
        Ok(Self {
            files,
            fs,
            gate: RwLock::new(()),
            completion: Mutex::new(()),
        })
    }

    pub(super) fn require_bucket(&self, bucket: &str) -> S3Result<()> {
        if self.files.has_bucket(bucket) {
            Ok(())
        } else {
            Err(s3_error!(NoSuchBucket, "The specified bucket does not exist"))
        }
    }

    /// Returns the ETag of an object, computed on a blocking thread. The caller holds the gate.
    pub(super) async fn etag(&self, bucket: &str, name: &str) -> S3Result<String> {
        let (files, bucket, name) = (Arc::clone(&self.files), bucket.to_string(), name.to_string());
        let hashed = tokio::task::spawn_blocking(move || files.etag(&bucket, &name)).await;
        hashed
            .map_err(S3Error::internal_error)?
            .map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => s3_error!(NoSuchKey, "The specified key does not exist."),
                _ => S3Error::internal_error(error),
            })
    }
}

/// Wraps the input of a request to the decorated library.
pub(super) fn request<T>(input: T) -> S3Request<T> {
    S3Request {
        input,
        method: Method::GET,
        uri: Uri::from_static("/"),
        headers: HeaderMap::new(),
        extensions: Extensions::new(),
        credentials: None,
        region: None,
        service: None,
        trailing_headers: None,
    }
}

/// Returns the conditions of a GET or a HEAD, which the library has as two types with the same fields.
macro_rules! conditions_of {
    ($input:ident) => {
        Conditions {
            matches: $input.if_match,
            none_match: $input.if_none_match,
            modified_since: $input.if_modified_since,
            unmodified_since: $input.if_unmodified_since,
        }
    };
}

/// Replaces the headers of a response that the parameters `response-*` of its request name.
macro_rules! replace_headers {
    ($output:ident, $input:ident) => {
        overlay(&mut $output.cache_control, $input.response_cache_control);
        overlay(
            &mut $output.content_disposition,
            $input.response_content_disposition,
        );
        overlay(&mut $output.content_encoding, $input.response_content_encoding);
        overlay(&mut $output.content_language, $input.response_content_language);
        overlay(&mut $output.content_type, $input.response_content_type);
        overlay(&mut $output.expires, $input.response_expires);
    };
}

type Answer<T> = S3Result<S3Response<T>>;

#[async_trait]
impl S3 for DirectoryLake {
    async fn get_object(&self, req: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        let input = req.input;
        refuse_other_states(input.version_id.as_deref(), input.part_number)?;
        let conditions = conditions_of!(input);
        let name = self.files.name_of(&input.bucket, &input.key)?;
        // Read the attributes and open the file under one lock; once open, a file stays readable even if it
        // is replaced.
        let shared = self.gate.read().await;
        let head = self
            .attributes(&input.bucket, &name, input.checksum_mode.as_ref())
            .await?;
        let path = self.files.find(&input.bucket, &name)?;
        let file = File::open(path).await.map_err(S3Error::internal_error)?;
        drop(shared);

        conditions.check(&head)?;
        let size = u64::try_from(head.content_length.unwrap_or_default()).map_err(S3Error::internal_error)?;
        let range = resolve(input.range, size)?;
        let whole = range == (0..size);
        let body = read(file, range.clone()).await.map_err(S3Error::internal_error)?;
        let mut output = answer(head, whole);
        output.content_length = i64::try_from(range.end - range.start).ok();
        output.content_range = input
            .range
            .map(|_| format!("bytes {}-{}/{size}", range.start, range.end - 1));
        output.body = Some(StreamingBlob::wrap(body));
        replace_headers!(output, input);
        Ok(S3Response::new(output))
    }

    async fn head_object(&self, req: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        let input = req.input;
        refuse_other_states(input.version_id.as_deref(), input.part_number)?;
        let conditions = conditions_of!(input);
        let name = self.files.name_of(&input.bucket, &input.key)?;
        let _shared = self.gate.read().await;
        let mut head = self
            .attributes(&input.bucket, &name, input.checksum_mode.as_ref())
            .await?;
        conditions.check(&head)?;
        replace_headers!(head, input);
        Ok(S3Response::new(head))
    }

    async fn put_object(&self, mut req: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        let input = &mut req.input;
        let name = self.target(&input.bucket, &input.key)?;
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

    async fn copy_object(&self, mut req: S3Request<CopyObjectInput>) -> Answer<CopyObjectOutput> {
        let input = &mut req.input;
        let name = self.target(&input.bucket, &input.key)?;
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
        let always = Conditions::default();
        self.publish(staged, &bucket, &name, &always).await?;
        Ok(answer)
    }

    async fn delete_object(&self, req: S3Request<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
        let input = req.input;
        let name = self.target(&input.bucket, &input.key)?;
        let conditions = Conditions {
            matches: input.if_match,
            ..Conditions::default()
        };
        let _alone = self.gate.write().await;
        self.judge_target(&conditions, &input.bucket, &name).await?;
        self.remove(&input.bucket, &name)?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(&self, req: S3Request<DeleteObjectsInput>) -> Answer<DeleteObjectsOutput> {
        let input = req.input;
        self.require_bucket(&input.bucket)?;
        if input.delete.objects.len() > DELETES_MAX {
            return Err(s3_error!(MalformedXML));
        }
        let _alone = self.gate.write().await;
        let (mut deleted, mut errors) = (Vec::new(), Vec::new());
        for object in input.delete.objects {
            let name = self.files.name_of(&input.bucket, &object.key);
            let removed = name.and_then(|name| self.remove(&input.bucket, &name));
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

    async fn list_objects(&self, req: S3Request<ListObjectsInput>) -> Answer<ListObjectsOutput> {
        let (bucket, marker) = (req.input.bucket.clone(), req.input.marker.clone());
        let _shared = self.gate.read().await;
        let mut answer = self.fs.list_objects(req).await?;
        let output = &mut answer.output;
        output.marker = Some(marker.unwrap_or_default());
        self.complete(&bucket, &mut output.contents).await?;
        if is_url(output.encoding_type.as_ref()) {
            let echoes = [
                &mut output.prefix,
                &mut output.delimiter,
                &mut output.marker,
                &mut output.next_marker,
            ];
            encode(&mut output.contents, &mut output.common_prefixes, echoes);
        }
        Ok(answer)
    }

    async fn list_objects_v2(&self, req: S3Request<ListObjectsV2Input>) -> Answer<ListObjectsV2Output> {
        let bucket = req.input.bucket.clone();
        let _shared = self.gate.read().await;
        let mut answer = self.fs.list_objects_v2(req).await?;
        let output = &mut answer.output;
        self.complete(&bucket, &mut output.contents).await?;
        if is_url(output.encoding_type.as_ref()) {
            let echoes = [&mut output.prefix, &mut output.delimiter, &mut output.start_after];
            encode(&mut output.contents, &mut output.common_prefixes, echoes);
        }
        Ok(answer)
    }

    async fn create_multipart_upload(
        &self,
        mut req: S3Request<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        let input = &mut req.input;
        let name = self.target(&input.bucket, &input.key)?;
        let bucket = std::mem::replace(&mut input.bucket, STAGING.into());
        let key = std::mem::replace(&mut input.key, upload_key(&bucket, &name));
        input.content_encoding = input.content_encoding.as_deref().and_then(stored_encoding);
        let mut answer = self.fs.create_multipart_upload(req).await?;
        answer.output.bucket = Some(bucket);
        answer.output.key = Some(key);
        Ok(answer)
    }

    async fn upload_part(&self, req: S3Request<UploadPartInput>) -> Answer<UploadPartOutput> {
        self.files.parts(&req.input.upload_id)?;
        self.fs.upload_part(req).await
    }

    async fn upload_part_copy(
        &self,
        mut req: S3Request<UploadPartCopyInput>,
    ) -> Answer<UploadPartCopyOutput> {
        let input = &mut req.input;
        self.files.parts(&input.upload_id)?;
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

    async fn list_parts(&self, req: S3Request<ListPartsInput>) -> Answer<ListPartsOutput> {
        self.files.parts(&req.input.upload_id)?;
        let mut answer = self.fs.list_parts(req).await?;
        if let Some(parts) = &mut answer.output.parts {
            parts.sort_by_key(|part| part.part_number);
        }
        Ok(answer)
    }

    async fn complete_multipart_upload(
        &self,
        mut req: S3Request<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
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

    async fn abort_multipart_upload(
        &self,
        mut req: S3Request<AbortMultipartUploadInput>,
    ) -> Answer<AbortMultipartUploadOutput> {
        let input = &mut req.input;
        self.files.parts(&input.upload_id)?;
        let name = self.files.name_of(&input.bucket, &input.key)?;
        input.key = upload_key(&input.bucket, &name);
        input.bucket = STAGING.into();
        self.fs.abort_multipart_upload(req).await
    }

    async fn create_bucket(&self, req: S3Request<CreateBucketInput>) -> Answer<CreateBucketOutput> {
        if self.files.has_bucket(&req.input.bucket) {
            return Err(s3_error!(BucketAlreadyOwnedByYou));
        }
        let location = Some(format!("/{}", req.input.bucket));
        self.fs.create_bucket(req).await?;
        Ok(S3Response::new(CreateBucketOutput { location }))
    }

    async fn delete_bucket(&self, req: S3Request<DeleteBucketInput>) -> Answer<DeleteBucketOutput> {
        let _alone = self.gate.write().await;
        self.require_bucket(&req.input.bucket)?;
        // `s3s-fs` would remove the folder with its content.
        match std::fs::remove_dir(self.files.root().join(&req.input.bucket)) {
            Ok(()) => Ok(S3Response::new(DeleteBucketOutput {})),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Err(s3_error!(BucketNotEmpty)),
            Err(error) => Err(S3Error::internal_error(error)),
        }
    }

    async fn head_bucket(&self, req: S3Request<HeadBucketInput>) -> Answer<HeadBucketOutput> {
        self.fs.head_bucket(req).await
    }

    async fn get_bucket_location(
        &self,
        req: S3Request<GetBucketLocationInput>,
    ) -> Answer<GetBucketLocationOutput> {
        self.fs.get_bucket_location(req).await
    }

    async fn list_buckets(&self, req: S3Request<ListBucketsInput>) -> Answer<ListBucketsOutput> {
        self.fs.list_buckets(req).await
    }
}
