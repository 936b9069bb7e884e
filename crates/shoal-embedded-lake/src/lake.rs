//! A decorator of `s3s-fs`: it passes on the requests that `s3s-fs` handles well; `read`, `write` and `list`
//! handle the rest.

use std::io;
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use http::{Extensions, HeaderMap, Method, Uri};
use s3s::dto::{
    AbortMultipartUploadInput, AbortMultipartUploadOutput, CompleteMultipartUploadInput,
    CompleteMultipartUploadOutput, CopyObjectInput, CopyObjectOutput, CreateBucketInput, CreateBucketOutput,
    CreateMultipartUploadInput, CreateMultipartUploadOutput, DeleteBucketInput, DeleteBucketOutput,
    DeleteObjectInput, DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, GetBucketLocationInput,
    GetBucketLocationOutput, GetObjectInput, GetObjectOutput, HeadBucketInput, HeadBucketOutput,
    HeadObjectInput, HeadObjectOutput, ListBucketsInput, ListBucketsOutput, ListObjectsInput,
    ListObjectsOutput, ListObjectsV2Input, ListObjectsV2Output, ListPartsInput, ListPartsOutput,
    PutObjectInput, PutObjectOutput, UploadPartCopyInput, UploadPartCopyOutput, UploadPartInput,
    UploadPartOutput,
};
use s3s::{S3, S3Error, S3Request, S3Response, S3Result, s3_error};
use s3s_fs::FileSystem;
use tokio::sync::{Mutex, RwLock};

use super::layout::Layout;

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

type Answer<T> = S3Result<S3Response<T>>;

#[async_trait]
impl S3 for DirectoryLake {
    async fn get_object(&self, req: S3Request<GetObjectInput>) -> Answer<GetObjectOutput> {
        self.get(req.input).await
    }

    async fn head_object(&self, req: S3Request<HeadObjectInput>) -> Answer<HeadObjectOutput> {
        self.head(req.input).await
    }

    async fn put_object(&self, req: S3Request<PutObjectInput>) -> Answer<PutObjectOutput> {
        self.put(req).await
    }

    async fn copy_object(&self, req: S3Request<CopyObjectInput>) -> Answer<CopyObjectOutput> {
        self.copy(req).await
    }

    async fn delete_object(&self, req: S3Request<DeleteObjectInput>) -> Answer<DeleteObjectOutput> {
        self.delete(req.input).await
    }

    async fn delete_objects(&self, req: S3Request<DeleteObjectsInput>) -> Answer<DeleteObjectsOutput> {
        self.delete_many(req.input).await
    }

    async fn list_objects(&self, req: S3Request<ListObjectsInput>) -> Answer<ListObjectsOutput> {
        self.list_v1(req).await
    }

    async fn list_objects_v2(&self, req: S3Request<ListObjectsV2Input>) -> Answer<ListObjectsV2Output> {
        self.list_v2(req).await
    }

    async fn create_multipart_upload(
        &self,
        req: S3Request<CreateMultipartUploadInput>,
    ) -> Answer<CreateMultipartUploadOutput> {
        self.create_upload(req).await
    }

    async fn upload_part(&self, req: S3Request<UploadPartInput>) -> Answer<UploadPartOutput> {
        self.require_upload(&req.input.upload_id)?;
        self.fs.upload_part(req).await
    }

    async fn upload_part_copy(&self, req: S3Request<UploadPartCopyInput>) -> Answer<UploadPartCopyOutput> {
        self.copy_part(req).await
    }

    async fn list_parts(&self, req: S3Request<ListPartsInput>) -> Answer<ListPartsOutput> {
        self.list_upload(req).await
    }

    async fn complete_multipart_upload(
        &self,
        req: S3Request<CompleteMultipartUploadInput>,
    ) -> Answer<CompleteMultipartUploadOutput> {
        self.complete_upload(req).await
    }

    async fn abort_multipart_upload(
        &self,
        req: S3Request<AbortMultipartUploadInput>,
    ) -> Answer<AbortMultipartUploadOutput> {
        self.abort_upload(req).await
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
