//! GET and HEAD: evaluate the conditions, then return the attributes and the bytes of one version.

use std::io;
use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use futures_util::stream::try_unfold;
use http::header::{CONTENT_RANGE, ETAG, LAST_MODIFIED};
use http::{HeaderMap, HeaderValue};
use s3s::dto::{
    ChecksumMode, ETag, GetObjectInput, GetObjectOutput, HeadObjectInput, HeadObjectOutput,
    Range as RequestedRange, StreamingBlob, Timestamp, TimestampFormat,
};
use s3s::{S3, S3Error, S3Response, S3Result, s3_error};
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use super::conditions::{Conditions, Evaluation};
use super::lake::{DirectoryLake, request};

/// Content type of objects stored without one.
const DEFAULT_CONTENT_TYPE: &str = "binary/octet-stream";

/// Bytes read from the file at a time.
const CHUNK_BYTES: u64 = 256 << 10;

impl DirectoryLake {
    pub(super) async fn head(&self, input: HeadObjectInput) -> S3Result<S3Response<HeadObjectOutput>> {
        refuse_other_states(input.version_id.as_deref(), input.part_number)?;
        let conditions = Conditions {
            matches: input.if_match,
            none_match: input.if_none_match,
            modified_since: input.if_modified_since,
            unmodified_since: input.if_unmodified_since,
        };
        let name = self.files.name_of(&input.bucket, &input.key)?;
        let _shared = self.gate.read().await;
        let mut head = self
            .attributes(&input.bucket, &name, input.checksum_mode.as_ref())
            .await?;
        require(&conditions, &head)?;
        overlay(&mut head.cache_control, input.response_cache_control);
        overlay(&mut head.content_disposition, input.response_content_disposition);
        overlay(&mut head.content_encoding, input.response_content_encoding);
        overlay(&mut head.content_language, input.response_content_language);
        overlay(&mut head.content_type, input.response_content_type);
        overlay(&mut head.expires, input.response_expires);
        Ok(S3Response::new(head))
    }

    pub(super) async fn get(&self, input: GetObjectInput) -> S3Result<S3Response<GetObjectOutput>> {
        refuse_other_states(input.version_id.as_deref(), input.part_number)?;
        let conditions = Conditions {
            matches: input.if_match,
            none_match: input.if_none_match,
            modified_since: input.if_modified_since,
            unmodified_since: input.if_unmodified_since,
        };
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

        require(&conditions, &head)?;
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
        overlay(&mut output.cache_control, input.response_cache_control);
        overlay(
            &mut output.content_disposition,
            input.response_content_disposition,
        );
        overlay(&mut output.content_encoding, input.response_content_encoding);
        overlay(&mut output.content_language, input.response_content_language);
        overlay(&mut output.content_type, input.response_content_type);
        overlay(&mut output.expires, input.response_expires);
        Ok(S3Response::new(output))
    }

    /// Returns the attributes of an object, as S3 reports them. The caller holds the gate.
    pub(super) async fn attributes(
        &self,
        bucket: &str,
        name: &str,
        checksums: Option<&ChecksumMode>,
    ) -> S3Result<HeadObjectOutput> {
        self.files.find(bucket, name)?;
        // A file changed by hand loses its ETag and checksums.
        let etag = self.etag(bucket, name).await?;
        let input = HeadObjectInput {
            bucket: bucket.into(),
            key: name.into(),
            ..HeadObjectInput::default()
        };
        let mut head = self.fs.head_object(request(input)).await?.output;
        head.e_tag = Some(ETag::Strong(etag));
        head.accept_ranges = Some("bytes".into());
        head.content_type
            .get_or_insert_with(|| DEFAULT_CONTENT_TYPE.into());
        if checksums.is_none_or(|mode| mode.as_str() != ChecksumMode::ENABLED) {
            forget_checksums(&mut head);
        }
        Ok(head)
    }
}

/// Rejects reads of other versions and of parts, which this lake does not have.
fn refuse_other_states(version: Option<&str>, part: Option<i32>) -> S3Result<()> {
    if version.is_some_and(|version| version != "null") {
        return Err(s3_error!(NoSuchVersion, "The development lake keeps no versions"));
    }
    if part.is_some() {
        return Err(s3_error!(
            NotImplemented,
            "The development lake does not serve single parts"
        ));
    }
    Ok(())
}

fn require(conditions: &Conditions, head: &HeadObjectOutput) -> S3Result<()> {
    let etag = head.e_tag.as_ref().map_or("", ETag::value);
    let modified = head.last_modified.clone().unwrap_or_default();
    match conditions.evaluate(etag, &modified) {
        Evaluation::Met => Ok(()),
        Evaluation::Failed => Err(precondition_failed()),
        Evaluation::Unchanged => {
            let mut error = s3_error!(NotModified);
            error.set_headers(validators(etag, &modified));
            Err(error)
        }
    }
}

pub(super) fn precondition_failed() -> S3Error {
    s3_error!(
        PreconditionFailed,
        "At least one of the pre-conditions you specified did not hold"
    )
}

/// Returns the headers of a 304 that clients use in conditional requests.
fn validators(etag: &str, modified: &Timestamp) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.extend(
        HeaderValue::try_from(format!("\"{etag}\""))
            .ok()
            .map(|value| (ETAG, value)),
    );
    let mut date = Vec::new();
    if modified.format(TimestampFormat::HttpDate, &mut date).is_ok() {
        headers.extend(
            HeaderValue::from_bytes(&date)
                .ok()
                .map(|value| (LAST_MODIFIED, value)),
        );
    }
    headers
}

/// Resolves a range. `s3s-fs` fails on suffixes longer than the object.
fn resolve(asked: Option<RequestedRange>, size: u64) -> S3Result<Range<u64>> {
    let Some(asked) = asked else { return Ok(0..size) };
    asked
        .check(size)
        .ok()
        .filter(|range| !range.is_empty())
        .ok_or_else(|| {
            let mut error = s3_error!(InvalidRange, "The requested range is not satisfiable");
            let value = HeaderValue::try_from(format!("bytes */{size}")).expect("digits are a header value");
            error.set_headers(HeaderMap::from_iter([(CONTENT_RANGE, value)]));
            error
        })
}

async fn read(
    mut file: File,
    range: Range<u64>,
) -> io::Result<impl Stream<Item = io::Result<Bytes>> + Send + Sync> {
    file.seek(io::SeekFrom::Start(range.start)).await?;
    Ok(try_unfold(
        (file, range.end - range.start),
        |(mut file, left)| async move {
            let mut buffer = BytesMut::with_capacity(CHUNK_BYTES.min(left) as usize);
            let length = (&mut file)
                .take(CHUNK_BYTES.min(left))
                .read_buf(&mut buffer)
                .await? as u64;
            match (left, length) {
                (0, _) => Ok(None),
                (_, 0) => Err(io::ErrorKind::UnexpectedEof.into()),
                _ => Ok(Some((buffer.freeze(), (file, left - length)))),
            }
        },
    ))
}

fn answer(mut head: HeadObjectOutput, whole: bool) -> GetObjectOutput {
    if !whole {
        // The checksums cover the whole object, not the range.
        forget_checksums(&mut head);
    }
    GetObjectOutput {
        accept_ranges: head.accept_ranges,
        cache_control: head.cache_control,
        checksum_crc32: head.checksum_crc32,
        checksum_crc32c: head.checksum_crc32c,
        checksum_crc64nvme: head.checksum_crc64nvme,
        checksum_sha1: head.checksum_sha1,
        checksum_sha256: head.checksum_sha256,
        content_disposition: head.content_disposition,
        content_encoding: head.content_encoding,
        content_language: head.content_language,
        content_type: head.content_type,
        e_tag: head.e_tag,
        expires: head.expires,
        last_modified: head.last_modified,
        metadata: head.metadata,
        website_redirect_location: head.website_redirect_location,
        ..GetObjectOutput::default()
    }
}

fn forget_checksums(head: &mut HeadObjectOutput) {
    head.checksum_crc32 = None;
    head.checksum_crc32c = None;
    head.checksum_crc64nvme = None;
    head.checksum_sha1 = None;
    head.checksum_sha256 = None;
}

fn overlay<T>(value: &mut Option<T>, asked: Option<T>) {
    if asked.is_some() {
        *value = asked;
    }
}
