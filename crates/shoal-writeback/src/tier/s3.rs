//! A store of bytes in a bucket of an S3 store: one object for each piece.
//!
//! A body can be read only once, so its checksum cannot precede it. Instead its chunks are signed one by one,
//! and the ETag in the store's response is compared with the MD5 of the bytes sent: Ceph, MinIO and versitygw
//! all return the MD5 for a single PUT. The node relies on the store to return the same bytes later.

mod answer;
mod bucket;
mod listing;
mod settings;
mod upload;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, StreamExt as _, TryStreamExt as _};
use http::header::{CONTENT_ENCODING, ETAG, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, response};
use http_body_util::BodyExt as _;
use scopeguard::guard;
use shoal_cache::fetch::{range_header, sent_range};
use shoal_net::endpoint::s3::SendOptions;
use shoal_net::endpoint::{Endpoint, LakeBody, RepeatableGet, RequestBody};
use shoal_s3::etag;
use shoal_s3::operation::COPY_SOURCE;
use shoal_s3::range::ByteRange;
use shoal_s3::xml::{self, DeletionResult, KEYS_MAX, Key};

use self::bucket::{Bucket, PREFIX, name_of};
pub(crate) use self::settings::is_versioned;
use self::upload::prepared;
use super::Piece;
use super::probe::{self, beyond_the_piece};
use super::store::{
    ByteStore, ByteStream, KeyPage, PieceMd5, ProbeError, PutError, StoreError, check_copy, check_key,
    check_size, other_length,
};

/// Up to this many pieces are removed one by one.
const SINGLE_REMOVALS_MAX: usize = 3;

/// Maximum number of removals in flight.
const REMOVALS: usize = 8;

/// Time limit of a batch removal. The endpoint's own limit allows for copies of large objects.
const BATCH_TIMEOUT: Duration = Duration::from_mins(1);

/// Ensures that the copied piece is the one that was checked before.
const IF_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source-if-match");

/// Length of a body without its signatures.
const DECODED_LENGTH: HeaderName = HeaderName::from_static("x-amz-decoded-content-length");

const STORAGE_CLASS: HeaderName = HeaderName::from_static("x-amz-storage-class");

/// The storage class of large pieces. Others, and those without one, have the default of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StorageClasses {
    /// For pieces of at least `large_bytes`.
    pub large: Option<String>,
    /// The size in bytes at which a piece counts as large.
    pub large_bytes: u64,
}

/// A store of pieces in a bucket.
pub struct S3Store {
    bucket: Arc<Bucket>,
    classes: StorageClasses,
}

impl S3Store {
    /// Stores pieces in a bucket of `endpoint`, with the endpoint's own account.
    pub fn new(endpoint: Arc<Endpoint>, bucket: &str, classes: StorageClasses) -> Self {
        Self {
            bucket: Arc::new(Bucket::new(endpoint, bucket)),
            classes,
        }
    }

    /// Writes a piece in a storage class. Returns the head of the store's response, and the MD5 of the piece.
    async fn put_as(
        &self,
        class: Option<&str>,
        key: &str,
        size_bytes: u64,
        body: ByteStream,
    ) -> Result<(response::Parts, PieceMd5), PutError> {
        let mut headers = class_header(class)?;
        let is_signed = self.bucket.s3().account.signer().is_some();
        let prepared = prepared(size_bytes, body, is_signed).await;
        let (body, progress) = prepared.map_err(PutError::Body)?;
        if matches!(body, RequestBody::Seeded { .. }) {
            headers.insert(DECODED_LENGTH, size_bytes.into());
        }
        let mut is_confirmed = guard(false, |is_confirmed| {
            // A store keeps nothing of a request whose body ends early.
            if !is_confirmed && progress.md5.lock().is_some() {
                self.bucket.discard(key);
            }
        });
        let request = self.bucket.s3().put(self.bucket.target(key, None));
        let request = request.with_headers(headers).with_body(body);
        let answer = self.bucket.send(request).await;
        if let Some(error) = progress.error.lock().take() {
            return Err(PutError::Body(error));
        }
        let (head, _) = answer?;
        let received = head.headers.get(ETAG).and_then(|etag| etag.to_str().ok());
        let sent = progress.md5.lock().ok_or_else(|| {
            let problem = "it answered before it had received the whole piece";
            StoreError::Unavailable(problem.into())
        });
        let confirmed = sent.and_then(|md5| {
            check_confirmed(received, &etag::of_md5(&md5))?;
            Ok(md5)
        });
        // From here on, the piece is either correct or removed below.
        *is_confirmed = true;
        match confirmed {
            Ok(md5) => Ok((head, md5)),
            Err(error) => {
                let removed = self.bucket.delete(key, None).await;
                if let Err(error) = removed {
                    tracing::warn!(key, %error, "a piece with wrong bytes stays until a sweep");
                }
                Err(error.into())
            }
        }
    }

    /// HTTP has no empty range, so the store is only asked if the piece exists.
    async fn open_empty(&self, key: &str, range: ByteRange) -> Result<ByteStream, StoreError> {
        let (size_bytes, _) = self.describe(key).await?;
        if range.start > range.end || range.end > size_bytes {
            return Err(beyond_the_piece(range, size_bytes));
        }
        Ok(stream::empty().boxed())
    }

    /// Returns the length of a piece, and its ETag.
    async fn describe(&self, key: &str) -> Result<(u64, Option<HeaderValue>), StoreError> {
        let client = self.bucket.s3();
        let answer = client.open(client.head(self.bucket.target(key, None))).await?;
        let (_, size_bytes) =
            sent_range(answer.status(), answer.headers()).ok_or_else(|| unsaid("the length"))?;
        Ok((size_bytes, strong_etag(answer.headers()).cloned()))
    }

    /// Removes pieces with one request. Returns those whose removal the store did not confirm.
    async fn remove_batch(&self, keys: &[Arc<str>]) -> Result<Vec<Arc<str>>, StoreError> {
        let names = keys.iter().map(|key| Key {
            key: name_of(key),
            ..Key::default()
        });
        let removal = self.bucket.s3().delete_many(&self.bucket.name, names.collect());
        let answer = tokio::time::timeout(BATCH_TIMEOUT, self.bucket.send(removal)).await;
        let answer = match answer {
            Ok(Ok((_, answer))) => answer,
            Ok(Err(error @ (StoreError::Unavailable(_) | StoreError::Full(_)))) => return Err(error),
            // Some stores only support single removals.
            Ok(Err(_)) => return Ok(keys.to_vec()),
            Err(_) => {
                let seconds = BATCH_TIMEOUT.as_secs();
                let problem = format!("it did not remove pieces within {seconds} s");
                return Err(StoreError::Unavailable(problem));
            }
        };
        let Ok(answer) = DeletionResult::read(&answer) else {
            return Ok(keys.to_vec());
        };
        let removed = answer.results.iter().filter(|result| result.is_deleted);
        let removed: HashSet<&str> = removed
            .filter_map(|result| result.key.strip_prefix(PREFIX))
            .collect();
        let rest = keys.iter().filter(|key| !removed.contains(&***key));
        Ok(rest.cloned().collect())
    }

    /// Removes pieces one by one.
    async fn remove_each(&self, keys: Vec<Arc<str>>) -> Result<(), StoreError> {
        let removals = keys.into_iter().map(|key| {
            let bucket = Arc::clone(&self.bucket);
            async move { bucket.delete(&key, None).await }
        });
        let mut removals = stream::iter(removals).buffer_unordered(REMOVALS);
        let mut first_error = Ok(());
        while let Some(removed) = removals.next().await {
            first_error = first_error.and(removed);
            // If the store does not answer, the remaining requests would fail too.
            if matches!(first_error, Err(StoreError::Unavailable(_))) {
                break;
            }
        }
        first_error
    }

    /// Writes and removes a piece in a storage class.
    async fn probe_class(&self, class: Option<&str>) -> Result<(), ProbeError> {
        let place = self.place();
        let (key, bytes) = (probe::new_key(), probe::new_bytes());
        let written = self
            .put_as(class, &key, bytes.len() as u64, probe::body(&bytes))
            .await;
        let written = written.map_err(|error| {
            let problem = match class {
                Some(class) => format!("does not take a piece in the storage class {class}"),
                None => "does not take a piece".into(),
            };
            probe::not_written(&place, &problem, error)
        })?;
        let (head, _md5) = written;
        let version = settings::version_of(&head);
        let removed = self.bucket.delete(&key, version).await;
        if version.is_some() {
            return Err(settings::keeps_versions(&place));
        }
        removed.map_err(|error| probe::unusable(&place, "does not remove a piece", &error))
    }
}

#[async_trait]
impl ByteStore for S3Store {
    async fn put(&self, key: &str, size_bytes: u64, body: ByteStream) -> Result<PieceMd5, PutError> {
        check_key(key)?;
        check_size(size_bytes)?;
        let class = self.classes.of(size_bytes);
        let (_, md5) = self.put_as(class, key, size_bytes, body).await?;
        Ok(md5)
    }

    async fn get(&self, key: &str, range: ByteRange) -> Result<ByteStream, StoreError> {
        check_key(key)?;
        if range.start >= range.end {
            return self.open_empty(key, range).await;
        }
        let client = self.bucket.s3();
        let request = client.get(self.bucket.target(key, None));
        let request = request.with_headers(HeaderMap::from_iter([(RANGE, range_header(range))]));
        let repeatable = RepeatableGet::of(&client.endpoint, &request);
        let (head, mut body) = client.open(request).await?.into_parts();
        let size_bytes = check_range(&head, range)?;
        if let Some(etag) = strong_etag(&head.headers) {
            let part = range.start..range.end;
            let resumption = repeatable.resumes(etag.clone(), None, size_bytes, part, Arc::new(|| {}));
            body = body.resumed_by(resumption);
        }
        Ok(arriving(body, range.len()))
    }

    /// Has the store copy a piece, without its bytes passing through the node. The source's ETag was compared
    /// with the MD5 of its bytes when they were written, so an equal ETag shows that the same bytes were
    /// copied.
    async fn copy(&self, from: &Piece, to: &str) -> Result<(), StoreError> {
        check_copy(from, to)?;
        let size_bytes = from.size_bytes;
        let (got_bytes, etag) = self.describe(&from.key).await?;
        if got_bytes != size_bytes {
            return Err(other_length(size_bytes, got_bytes));
        }
        let etag = etag.ok_or_else(|| unsaid("the ETag"))?;
        if let Some(md5) = &from.md5 {
            let is_as_written = check_confirmed(etag.to_str().ok(), &etag::of_md5(md5));
            let problem = "the store names it by another MD5 than it was written with";
            is_as_written.map_err(|_| StoreError::Damaged(problem.into()))?;
        }
        let mut headers = class_header(self.classes.of(size_bytes))?;
        headers.insert(IF_SOURCE, etag.clone());
        let source = HeaderValue::try_from(format!("{}/{}", self.bucket.name, name_of(&from.key)));
        headers.insert(&COPY_SOURCE, source.expect("buckets and keys are header values"));
        let mut is_confirmed = guard(false, |is_confirmed| {
            if !is_confirmed {
                self.bucket.discard(to);
            }
        });
        let client = self.bucket.s3();
        let request = client.put(self.bucket.target(to, None)).with_headers(headers);
        let answer = client.send(request, SendOptions::default()).await?;
        // A store keeps nothing of a request that it refuses.
        *is_confirmed = answer.head.status.is_client_error();
        let copied = xml::copied_etag(&answer.success()?.settled()?);
        let copied = copied.map_err(|_| StoreError::Refused("its answer is not that of a copy".into()))?;
        check_confirmed(Some(&copied), etag.to_str().map_err(|_| unsaid("the ETag"))?)?;
        *is_confirmed = true;
        Ok(())
    }

    async fn remove(&self, keys: &[Arc<str>]) -> Result<(), StoreError> {
        keys.iter().try_for_each(|key| check_key(key))?;
        let mut first_error = Ok(());
        for batch in keys.chunks(KEYS_MAX) {
            let rest = if batch.len() <= SINGLE_REMOVALS_MAX {
                batch.to_vec()
            } else {
                self.remove_batch(batch).await?
            };
            let removed = self.remove_each(rest).await;
            first_error = first_error.and(removed);
        }
        first_error
    }

    async fn list(&self, after: Option<&str>, limit: usize) -> Result<KeyPage, StoreError> {
        listing::list(&self.bucket, after, limit).await
    }

    async fn check_settings(&self) -> Result<(), ProbeError> {
        settings::check(&self.bucket).await?;
        for class in [None, self.classes.large.as_deref()] {
            self.probe_class(class).await?;
        }
        Ok(())
    }

    fn place(&self) -> String {
        self.bucket.to_string()
    }
}

impl fmt::Debug for S3Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S3Store({})", self.bucket)
    }
}

impl StorageClasses {
    /// Returns the storage class of a piece of this size.
    fn of(&self, size_bytes: u64) -> Option<&str> {
        self.large.as_deref().filter(|_| size_bytes >= self.large_bytes)
    }
}

/// Returns a body, which must have exactly the requested length, as a stream.
fn arriving(body: LakeBody, size_bytes: u64) -> ByteStream {
    let arriving = (body.into_data_stream(), size_bytes);
    stream::try_unfold(arriving, |(mut body, missing_bytes)| async move {
        let Some(bytes) = body.try_next().await.map_err(StoreError::from)? else {
            return match missing_bytes {
                0 => Ok(None),
                missing => {
                    Err(StoreError::Unavailable(format!("{missing} bytes of a body are missing")).into())
                }
            };
        };
        let missing_bytes = missing_bytes
            .checked_sub(bytes.len() as u64)
            .ok_or_else(|| StoreError::Damaged("more bytes came than were asked for".into()))?;
        Ok(Some((bytes, (body, missing_bytes))))
    })
    .boxed()
}

/// Checks that a response carries the requested range. Returns the length of the piece.
fn check_range(head: &response::Parts, range: ByteRange) -> Result<u64, StoreError> {
    let refused = |problem: &str| Err(StoreError::Refused(problem.into()));
    if head.status != StatusCode::PARTIAL_CONTENT {
        return refused("it does not answer with the range that it was asked for");
    }
    if head.headers.contains_key(CONTENT_ENCODING) {
        return refused("it encodes the bytes of a piece");
    }
    match sent_range(head.status, &head.headers) {
        Some((sent, size_bytes)) if sent == range => Ok(size_bytes),
        Some((_, size_bytes)) if size_bytes < range.end => Err(beyond_the_piece(range, size_bytes)),
        _ => refused("it answers with another range than it was asked for"),
    }
}

/// Compares the ETag that the store returned with the one of the bytes that were sent.
fn check_confirmed(received: Option<&str>, sent: &str) -> Result<(), StoreError> {
    let unquoted = |etag: &str| etag.trim_matches('"').to_ascii_lowercase();
    if received.map(unquoted) == Some(unquoted(sent)) {
        Ok(())
    } else {
        let problem = "the ETag of its answer is not the MD5 of the piece: it received other bytes, or encrypts \
                       them with keys of a KMS";
        Err(StoreError::Refused(problem.into()))
    }
}

fn unsaid(what: &str) -> StoreError {
    StoreError::Refused(format!("it does not tell {what} of a piece"))
}

/// Returns the ETag if it is a strong one.
fn strong_etag(headers: &HeaderMap) -> Option<&HeaderValue> {
    let etag = headers.get(ETAG);
    etag.filter(|etag| etag.as_bytes().starts_with(b"\""))
}

fn class_header(class: Option<&str>) -> Result<HeaderMap, StoreError> {
    let Some(class) = class else {
        return Ok(HeaderMap::new());
    };
    let value = HeaderValue::from_str(class)
        .map_err(|_| StoreError::Refused(format!("{class:?} is no storage class")))?;
    Ok(HeaderMap::from_iter([(STORAGE_CLASS, value)]))
}
