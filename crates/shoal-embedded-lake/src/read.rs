//! The attributes and the bytes of one version of an object, and listings with the ETags that `s3s-fs` omits.

use std::io;
use std::ops::Range;

use http::header::CONTENT_RANGE;
use http::{HeaderMap, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::dto::{
    ChecksumMode, CommonPrefix, ETag, EncodingType, GetObjectOutput, HeadObjectInput, HeadObjectOutput,
    Object, ObjectStorageClass, Range as RequestedRange,
};
use s3s::{S3, S3Result, s3_error};
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _, Take};
use tokio_util::io::ReaderStream;

use super::lake::{DirectoryLake, request};
use super::layout::Layout;

/// Content type of objects stored without one.
const DEFAULT_CONTENT_TYPE: &str = "binary/octet-stream";

/// Characters that `encoding-type=url` does not escape.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Bytes read from the file at a time.
const CHUNK_BYTES: usize = 256 << 10;

impl DirectoryLake {
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

    /// Adds what `s3s-fs` omits to listed objects. The caller holds the gate.
    pub(super) async fn complete(&self, bucket: &str, listed: &mut Option<Vec<Object>>) -> S3Result<()> {
        for object in listed.iter_mut().flatten() {
            if let Some(name) = object.key.take() {
                object.e_tag = Some(ETag::Strong(self.etag(bucket, &name).await?));
                object.storage_class = Some(ObjectStorageClass::from_static(ObjectStorageClass::STANDARD));
                object.key = Some(Layout::key_of(&name).into());
            }
        }
        Ok(())
    }
}

/// Rejects reads of other versions and of parts, which this lake does not have.
pub(super) fn refuse_other_states(version: Option<&str>, part: Option<i32>) -> S3Result<()> {
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

/// Resolves a range. `s3s-fs` fails on suffixes longer than the object.
pub(super) fn resolve(asked: Option<RequestedRange>, size: u64) -> S3Result<Range<u64>> {
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

/// Returns the bytes of a range. If the file is cut meanwhile, they end early, and the connection breaks off.
pub(super) async fn read(mut file: File, range: Range<u64>) -> io::Result<ReaderStream<Take<File>>> {
    file.seek(io::SeekFrom::Start(range.start)).await?;
    let bytes = file.take(range.end - range.start);
    Ok(ReaderStream::with_capacity(bytes, CHUNK_BYTES))
}

pub(super) fn answer(mut head: HeadObjectOutput, whole: bool) -> GetObjectOutput {
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

pub(super) fn overlay<T>(value: &mut Option<T>, asked: Option<T>) {
    if asked.is_some() {
        *value = asked;
    }
}

pub(super) fn is_url(encoding: Option<&EncodingType>) -> bool {
    encoding.is_some_and(|encoding| encoding.as_str() == EncodingType::URL)
}

/// Encodes the texts of a listing.
pub(super) fn encode<'a>(
    objects: &'a mut Option<Vec<Object>>,
    prefixes: &'a mut Option<Vec<CommonPrefix>>,
    echoes: impl IntoIterator<Item = &'a mut Option<String>>,
) {
    let keys = objects.iter_mut().flatten().map(|object| &mut object.key);
    let prefixes = prefixes.iter_mut().flatten().map(|common| &mut common.prefix);
    for text in keys.chain(prefixes).chain(echoes).flatten() {
        *text = utf8_percent_encode(text, PLAIN).to_string();
    }
}
