//! Requests about packs and tables: the objects below `P.shoal-pack/`, where `P` is the prefix of a rule.

use std::str::from_utf8;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _, TryStreamExt as _, stream};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, StatusCode, header, response};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use md5::{Digest as _, Md5};
use shoal_base::send_permit::SendPermit;
use shoal_cache::fetch::{range_header, sent_range};
use shoal_net::endpoint::s3::{
    CONTENT_MD5, CallError, PAGE_KEYS, PageRequest, S3Client, SendOptions, content_md5,
};
use shoal_net::endpoint::{Endpoint, LakeBody, RequestBody};
use shoal_s3::identity::{Caller, NODE};
use shoal_s3::object::ObjectName;
use shoal_s3::range::ByteRange;
use shoal_s3::target;
use shoal_s3::xml::ListedObject;
use ulid::Ulid;

use crate::dirty::lake_writer::{LakeWriteError, NotWritten};

/// Behind the prefix of the rule: the folder of its packs.
const FOLDER: &str = ".shoal-pack/";

/// Behind that folder: the folder of tables. Names of packs begin with a digit, so they sort before it.
const TABLES: &str = "map/";

/// Number of objects that are removed from the lake at a time.
const PARALLEL: usize = 8;

/// Behind the ULID of a pack.
const ZIP: &str = ".zip";

/// The packs of one rule and the tables of their map, at the lake.
#[derive(Clone)]
pub(crate) struct PacksAtLake {
    lake: Arc<Endpoint>,
    bucket: Arc<str>,
    folder: Vec<u8>,
    keeper: Caller,
}

/// A pack in a list of the lake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListedPack {
    pub(crate) id: Ulid,
    pub(crate) size_bytes: u64,
    /// The time since it was written, by the clock of the lake.
    pub(crate) age: Duration,
}

/// An object about packs could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotRead {
    /// The lake does not have it.
    #[error("the lake does not have it")]
    Gone,
    /// The lake refuses it to this caller, or altogether.
    #[error("the lake answered {0}")]
    Refused(StatusCode),
    /// The lake sent other bytes than were written.
    #[error("the lake sent {0}")]
    Wrong(String),
    /// The lake did not answer, or not to the end.
    #[error(transparent)]
    Unanswered(CallError),
}

impl NotRead {
    /// Returns true if the lake would give the same answer again: the bytes are not there for the caller.
    pub(crate) fn is_definite(&self) -> bool {
        match self {
            Self::Gone | Self::Wrong(_) => true,
            Self::Refused(status) => status.is_client_error() && *status != StatusCode::TOO_MANY_REQUESTS,
            Self::Unanswered(_) => false,
        }
    }
}

impl From<CallError> for NotRead {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Refused(refusal) => match refusal.status {
                // Without its bucket, an object is not known to be gone for good.
                StatusCode::NOT_FOUND if refusal.code() != "NoSuchBucket" => Self::Gone,
                StatusCode::RANGE_NOT_SATISFIABLE => Self::Wrong("no such range: it is too short".into()),
                status => Self::Refused(status),
            },
            error => Self::Unanswered(error),
        }
    }
}

/// Names.
impl PacksAtLake {
    /// The packs of the rule for `s3://bucket/prefix`. The keeper reads tables, lists, and removes.
    pub(crate) fn new(lake: Arc<Endpoint>, bucket: &str, prefix: &[u8], keeper: Caller) -> Self {
        Self {
            lake,
            bucket: bucket.into(),
            folder: [prefix, FOLDER.as_bytes()].concat(),
            keeper,
        }
    }

    /// Returns the beginning of the keys of all packs and tables.
    pub(crate) fn folder(&self) -> &[u8] {
        &self.folder
    }

    /// Returns the name of a pack.
    pub(crate) fn pack(&self, id: Ulid) -> ObjectName {
        self.name(&format!("{id}{ZIP}"))
    }

    /// Returns the name of a table.
    pub(crate) fn table(&self, number: u64) -> ObjectName {
        self.name(&format!("{TABLES}{number:020}"))
    }

    /// Returns true if the name is that of a pack or a table, or lies among them.
    pub(crate) fn covers(&self, name: &ObjectName) -> bool {
        name.bucket == self.bucket && name.key.starts_with(&self.folder)
    }

    fn name(&self, rest: &str) -> ObjectName {
        ObjectName {
            bucket: Arc::clone(&self.bucket),
            key: [&self.folder, rest.as_bytes()].concat().into(),
            version: None,
        }
    }
}

/// Requests.
impl PacksAtLake {
    /// Returns the client that sends requests on behalf of the keeper, in the turns of this node.
    pub(crate) fn keeper(&self) -> S3Client {
        S3Client {
            payer: NODE,
            ..S3Client::of_caller(&self.lake, &self.keeper)
        }
    }

    /// Writes a pack: the pieces of [`shoal_pack::Pack`]. The client is that of its writer.
    ///
    /// # Errors
    ///
    /// The lake does not have the pack, or it is not known.
    pub(crate) async fn put_pack(
        &self,
        writer: &S3Client,
        id: Ulid,
        pieces: Vec<Bytes>,
        options: SendOptions<'_>,
    ) -> Result<(), NotWritten> {
        let is_zip = HeaderValue::from_static("application/zip");
        put(writer, &self.pack(id), is_zip, pieces, options).await
    }

    /// Writes a table, in pieces.
    ///
    /// # Errors
    ///
    /// The lake does not have the table, or it is not known.
    pub(crate) async fn put_table(
        &self,
        number: u64,
        pieces: Vec<Bytes>,
        options: SendOptions<'_>,
    ) -> Result<(), NotWritten> {
        let is_binary = HeaderValue::from_static("application/octet-stream");
        put(&self.keeper(), &self.table(number), is_binary, pieces, options).await
    }

    /// Removes a pack or a table on behalf of the keeper. One that the lake does not have counts as removed.
    ///
    /// # Errors
    ///
    /// The lake still has it, or it is not known.
    pub(crate) async fn remove(&self, name: &ObjectName, options: SendOptions<'_>) -> Result<(), NotWritten> {
        debug_assert!(self.covers(name), "the keeper removes nothing else");
        let client = self.keeper();
        check(options)?;
        let answer = client.send(client.delete(target_of(name)), options).await;
        let status = answer.map_err(LakeWriteError::from)?.head.status;
        let is_gone = status.is_success() || status == StatusCode::NOT_FOUND;
        is_gone
            .then_some(())
            .ok_or_else(|| LakeWriteError::Refused(status).into())
    }

    /// Removes packs and tables on behalf of the keeper. Returns the number that stays.
    pub(crate) async fn remove_all(&self, names: &[ObjectName], permit: &SendPermit) -> usize {
        let removals: Vec<_> = names.iter().map(|name| self.removes(name, permit)).collect();
        let removed: Vec<_> = stream::iter(removals).buffer_unordered(PARALLEL).collect().await;
        removed.into_iter().filter(|is_removed| !is_removed).count()
    }

    async fn removes(&self, name: &ObjectName, permit: &SendPermit) -> bool {
        let removed = self.remove(name, SendOptions::permitted_by(Some(permit))).await;
        if let Err(error) = &removed {
            tracing::warn!(?name, %error, "an obsolete pack or table stays at the lake");
        }
        removed.is_ok()
    }

    /// Returns the numbers of all tables, ascending.
    ///
    /// # Errors
    ///
    /// The lake does not list them.
    pub(crate) async fn tables(&self) -> Result<Vec<u64>, CallError> {
        let mut numbers = Vec::new();
        let mut pages = Box::pin(self.list(TABLES));
        while let Some((_, objects)) = pages.try_next().await? {
            numbers.extend(objects.iter().filter_map(|object| self.number_in(&object.key)));
        }
        Ok(numbers)
    }

    /// Returns all packs, in the order of their ids.
    ///
    /// # Errors
    ///
    /// The lake does not list them, or not when each was written.
    pub(crate) async fn packs(&self) -> Result<Vec<ListedPack>, CallError> {
        let mut packs = Vec::new();
        let mut pages = Box::pin(self.list(""));
        while let Some((headers, objects)) = pages.try_next().await? {
            let date = headers.get(header::DATE).and_then(|date| date.to_str().ok());
            let now = date.and_then(|date| httpdate::parse_http_date(date).ok());
            for object in objects {
                if let Some(id) = self.pack_in(&object.key) {
                    let age = now.zip(object.last_modified);
                    let (now, written) = age.ok_or(CallError::Misunderstood("has no times"))?;
                    packs.push(ListedPack {
                        id,
                        size_bytes: object.size_bytes,
                        age: now.duration_since(written).unwrap_or_default(),
                    });
                }
            }
        }
        Ok(packs)
    }

    /// Lists the objects in the folder whose names begin with `rest`, page by page, each with the headers of
    /// its response.
    fn list(&self, rest: &str) -> impl Stream<Item = Result<(HeaderMap, Vec<ListedObject>), CallError>> {
        let (client, bucket) = (self.keeper(), Arc::clone(&self.bucket));
        let prefix = [&self.folder, rest.as_bytes()].concat();
        stream::try_unfold(None::<Vec<u8>>, move |after| {
            let (client, bucket, prefix) = (client.clone(), Arc::clone(&bucket), prefix.clone());
            async move {
                let page = PageRequest {
                    bucket: &bucket,
                    prefix: &prefix,
                    after: after.as_deref(),
                    keys_max: PAGE_KEYS,
                };
                let (head, listing) = client.list(page).await?;
                // Only an empty page is known to be the last one.
                let last = listing.objects.last().map(|last| last.key.clone());
                Ok(last.map(|last| ((head.headers, listing.objects), Some(last))))
            }
        })
    }

    fn number_in(&self, key: &[u8]) -> Option<u64> {
        let digits = from_utf8(key.strip_prefix(&*self.folder)?).ok()?;
        let number = digits.strip_prefix(TABLES)?.parse().ok()?;
        (*self.table(number).key == *key).then_some(number)
    }

    fn pack_in(&self, key: &[u8]) -> Option<Ulid> {
        let name = from_utf8(key.strip_prefix(&*self.folder)?).ok()?;
        let id = Ulid::from_string(name.strip_suffix(ZIP)?).ok()?;
        (*self.pack(id).key == *key).then_some(id)
    }
}

/// Returns the size of a pack or a table in bytes; `None` if the lake does not have it. After an unknown
/// outcome of its PUT this is final only once FENCE has passed.
///
/// # Errors
///
/// The lake does not say.
pub(crate) async fn size(client: &S3Client, name: &ObjectName) -> Result<Option<u64>, NotRead> {
    let head = client.open(client.head(target_of(name))).await;
    match head.map_err(NotRead::from) {
        Ok(head) => {
            let size = sent_range(head.status(), head.headers());
            let (_, size_bytes) = size.ok_or_else(|| NotRead::Wrong("no length".into()))?;
            Ok(Some(size_bytes))
        }
        Err(NotRead::Gone) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a pack or a table as a whole. Returns its size in bytes and its bytes, which may still break off.
///
/// # Errors
///
/// The lake does not send it.
pub(crate) async fn open(client: &S3Client, name: &ObjectName) -> Result<(u64, LakeBody), NotRead> {
    let (head, body) = client.open(client.get(target_of(name))).await?.into_parts();
    match sent_range(head.status, &head.headers) {
        Some((range, size_bytes)) if range == ByteRange::new(0, size_bytes) => Ok((size_bytes, body)),
        _ => Err(NotRead::Wrong("no length, or a part of it".into())),
    }
}

/// A range of a pack, as the lake sent it.
#[derive(Debug)]
pub(crate) struct SentRange {
    /// Status and headers of the response.
    pub(crate) head: response::Parts,
    /// All bytes of the range.
    pub(crate) bytes: Bytes,
}

/// Reads a range, which must not be empty, of a pack. `headers` are those of the caller.
///
/// # Errors
///
/// The lake does not send these bytes.
pub(crate) async fn get_range(
    client: &S3Client,
    name: &ObjectName,
    range: ByteRange,
    headers: HeaderMap,
) -> Result<Bytes, NotRead> {
    let sent = open_range(client, name, range, headers, SendOptions::default());
    Ok(sent.await?.bytes)
}

/// Like [`get_range`], but returns the head of the response, too. The request may belong to a transfer.
///
/// # Errors
///
/// As for [`get_range`].
pub(crate) async fn open_range(
    client: &S3Client,
    name: &ObjectName,
    range: ByteRange,
    mut headers: HeaderMap,
    options: SendOptions<'_>,
) -> Result<SentRange, NotRead> {
    headers.insert(header::RANGE, range_header(range));
    let request = client.get(target_of(name)).with_headers(headers);
    let (head, body) = client.open_with(request, options).await?.into_parts();
    let sent = sent_range(head.status, &head.headers);
    if sent.is_none_or(|(sent, _)| sent != range) {
        return Err(NotRead::Wrong("another range".into()));
    }
    let broken_off = |error| NotRead::Unanswered(CallError::BrokenOff(Box::new(error)));
    let mut body = body.into_data_stream();
    let mut bytes = BytesMut::with_capacity(range.len() as usize);
    while let Some(more) = body.try_next().await.map_err(broken_off)? {
        if bytes.len() + more.len() > range.len() as usize {
            return Err(NotRead::Wrong("more bytes than it announced".into()));
        }
        bytes.extend_from_slice(&more);
    }
    if bytes.len() as u64 == range.len() {
        let bytes = bytes.freeze();
        Ok(SentRange { head, bytes })
    } else {
        Err(NotRead::Wrong("fewer bytes than it announced".into()))
    }
}

/// Writes an object, which no other request ever writes with other bytes.
async fn put(
    client: &S3Client,
    name: &ObjectName,
    kind: HeaderValue,
    pieces: Vec<Bytes>,
    options: SendOptions<'_>,
) -> Result<(), NotWritten> {
    let size_bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
    let digested = tokio::task::spawn_blocking(move || {
        let mut md5 = Md5::new();
        for piece in &pieces {
            md5.update(piece);
        }
        (pieces, md5.finalize().into())
    });
    let (pieces, md5) = digested.await.expect("a digest does not panic");
    let headers = HeaderMap::from_iter([(CONTENT_MD5, content_md5(&md5)), (header::CONTENT_TYPE, kind)]);
    let frames = stream::iter(pieces.into_iter().map(|piece| Ok(Frame::data(piece))));
    let body = RequestBody::from_stream(size_bytes, StreamBody::new(frames).boxed_unsync());
    let request = client.put(target_of(name)).with_headers(headers).with_body(body);
    check(options)?;
    let answer = client
        .send(request, options)
        .await
        .map_err(LakeWriteError::from)?;
    answer.ok().map_err(LakeWriteError::from)?;
    Ok(())
}

/// Checks the right to send before a request begins. Until then nothing has happened at the lake.
fn check(options: SendOptions<'_>) -> Result<(), LakeWriteError> {
    let may_send = options.permit.is_none_or(SendPermit::may_send);
    may_send.then_some(()).ok_or(LakeWriteError::SessionOver)
}

fn target_of(name: &ObjectName) -> PathAndQuery {
    target::of_object(name).expect("keys of packs and tables are short")
}
