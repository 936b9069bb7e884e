//! Writes a dirty object to the lake: the acknowledged write, replayed on behalf of its writer.

mod named;
mod parted;
mod proven;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::tier::{MEND_TIER, TierBytes, WrongBytes};
use futures_util::stream;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use parking_lot::Mutex;
use shoal_base::send_permit::SendPermit;
use shoal_cache::blocks::{BlockReader, BlockStream, ReadAheadWindow};
use shoal_cache::fetch::Fetcher;
use shoal_cache::obtain::Obtain;
use shoal_cache::read_context::ReadContext;
use shoal_cache::single_flight::FetchError;
use shoal_net::endpoint::s3::{CONTENT_MD5, CallError, Refusal, S3Client, SendOptions, content_md5};
use shoal_net::endpoint::{
    BoxError, Endpoint, EndpointError, EndpointRequest, Failure, RequestBody, is_undecided,
};
use shoal_net::link::Transfer;
use shoal_s3::error::ErrorCode;
use shoal_s3::identity::{Caller, Identities, NODE};
use shoal_s3::range::ByteRange;
use shoal_s3::sigv4::PayloadHash;
use shoal_store::Store;

use self::named::Named;
use self::proven::ProvenBlocks;
use super::acknowledged::md5_in;
use super::manifest::Manifest;

/// Number of blocks read ahead of what the lake has accepted.
const AHEAD: usize = 2;

/// Writes dirty objects to the lake.
pub(super) struct LakeWriter {
    lake: Arc<Endpoint>,
    store: Arc<Store>,
    fetcher: Arc<Fetcher>,
    identities: Arc<Identities>,
    /// True once the lake has given a multipart object the ETag that S3 defines, the MD5 of its parts' MD5s.
    names_by_parts: AtomicBool,
}

/// The write of one object to the lake.
#[derive(Clone, Copy)]
pub(super) struct LakeWrite<'a> {
    pub(super) manifest: &'a Manifest,
    /// The object's bytes in the tier.
    pub(super) bytes: &'a TierBytes,
    /// The conditions that the existing object at the lake must meet.
    pub(super) conditions: &'a HeaderMap,
    /// The right of this node to send to the lake.
    pub(super) permit: &'a SendPermit,
    /// The background transfer that is charged for the bytes; `None` if a client waits from the start.
    pub(super) transfer: Option<&'a Transfer>,
}

/// The result of a write that the lake accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Uploaded {
    /// The lake returned the acknowledged ETag.
    Same,
    /// The lake has the acknowledged bytes, but returned another ETag, as with `SSE-KMS`.
    OtherEtag(Option<HeaderValue>),
}

/// The lake has not confirmed the object.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub(super) struct NotWritten {
    #[source]
    pub(super) error: LakeWriteError,
    /// True if the lake may have the object, or may still get it.
    pub(super) may_exist: bool,
}

/// The reason why the lake has not confirmed an object.
#[derive(Debug, thiserror::Error)]
pub(super) enum LakeWriteError {
    /// This node's session has ended, so another node may already be flushing the object.
    #[error("the session of this node with the registry ended")]
    SessionOver,
    /// The flushing node does not have the writer's identity.
    #[error("no identity here signs with {0}")]
    UnknownWriter(Arc<str>),
    /// The lake refused the write.
    #[error("the lake answered {0}")]
    Refused(StatusCode),
    /// The lake's response lacks a required field.
    #[error("the lake's answer is not that of an upload")]
    Misunderstood,
    /// A block could not be read from the tier.
    #[error("the object cannot be read: {0}")]
    Unread(FetchError),
    /// This node read bytes that differ from the acknowledged ones.
    #[error("a block on this node's disk is wrong: {0}")]
    WrongBytes(WrongBytes),
    /// The bytes of an object written by an earlier build do not match its acknowledged MD5.
    #[error("the tier does not hold the acknowledged bytes of the object: they have another MD5")]
    OtherMd5,
    /// The lake reports other bytes: it rejected a digest, or its ETag is another MD5.
    #[error("the lake says that it got other bytes than were acknowledged: it answered {0}")]
    Contradicted(String),
    /// The lake did not answer.
    #[error(transparent)]
    Lake(#[from] EndpointError),
}

impl LakeWriteError {
    /// Returns true if the lake is overloaded or does not answer.
    pub(super) fn is_overload(&self) -> bool {
        match self {
            Self::Refused(status) => {
                [StatusCode::SERVICE_UNAVAILABLE, StatusCode::TOO_MANY_REQUESTS].contains(status)
            }
            Self::Lake(error) => {
                let failure = error.kind();
                failure.is_silence()
                    || matches!(failure, Failure::Stalled | Failure::Reset | Failure::Crowded)
            }
            Self::SessionOver
            | Self::UnknownWriter(_)
            | Self::Misunderstood
            | Self::Unread(_)
            | Self::WrongBytes(_)
            | Self::OtherMd5
            | Self::Contradicted(_) => false,
        }
    }

    /// Returns advice for operators if the lake or the tier has other bytes than were acknowledged.
    pub(super) fn hint_about_bytes(&self) -> Option<&'static str> {
        match self {
            Self::OtherMd5 => Some(MEND_TIER),
            Self::Contradicted(_) => Some(
                "look for a fault of the lake, or of a proxy or a network before it; the object is written to the lake once more",
            ),
            _ => None,
        }
    }

    /// Returns the remedy to show to operators, or `None` if a retry may succeed.
    pub(super) fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::UnknownWriter(_) => {
                Some("add its writer's identity to the configuration again, or remove the object")
            }
            Self::Refused(StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED) => {
                Some("let its writer write there at the lake, or remove the object")
            }
            Self::Refused(StatusCode::NOT_FOUND) => Some("create its bucket again, or remove the object"),
            Self::Refused(StatusCode::INSUFFICIENT_STORAGE) => Some("make room at the lake"),
            Self::Refused(status) if is_lasting(*status) => Some(
                "copy it to another name through Shoal and remove it: a lake on a file system, for example, has no \
                 object `t` beside `t/x`",
            ),
            _ => None,
        }
    }

    /// Returns true if the lake may have carried out a request that failed with this error.
    fn may_be_carried_out(&self) -> bool {
        match self {
            // Whatever the lake did is finished, and a retry overwrites it.
            Self::SessionOver
            | Self::UnknownWriter(_)
            | Self::Unread(_)
            | Self::WrongBytes(_)
            | Self::OtherMd5
            | Self::Contradicted(_) => false,
            Self::Refused(status) => is_undecided(*status),
            Self::Misunderstood => true,
            Self::Lake(error) => error.kind().may_be_carried_out(),
        }
    }

    fn into_end(self) -> NotWritten {
        NotWritten {
            may_exist: self.may_be_carried_out(),
            error: self,
        }
    }
}

/// Returns true if the status suggests that every retry will be refused, too.
fn is_lasting(status: StatusCode) -> bool {
    match status.as_u16() {
        408 | 425 | 429 | 499 => false,
        501 | 505 => true,
        _ => status.is_client_error(),
    }
}

/// The reason why the body of a write ended early.
#[derive(Clone, Default)]
struct BodyFailure(Arc<Mutex<Option<LakeWriteError>>>);

impl BodyFailure {
    fn set(&self, error: LakeWriteError) {
        *self.0.lock() = Some(error);
    }

    fn check(&self) -> Result<(), LakeWriteError> {
        self.0.lock().take().map_or(Ok(()), Err)
    }
}

impl LakeWriter {
    /// Writes on behalf of `identities`.
    pub(super) fn new(
        lake: Arc<Endpoint>,
        store: Arc<Store>,
        fetcher: Arc<Fetcher>,
        identities: Arc<Identities>,
    ) -> Self {
        Self {
            lake,
            store,
            fetcher,
            identities,
            names_by_parts: AtomicBool::new(false),
        }
    }

    /// Returns the lake to write to.
    pub(super) fn lake(&self) -> &Arc<Endpoint> {
        &self.lake
    }

    /// Writes the object to the lake as its writer would have: all acknowledged bytes, or nothing. Blocks on
    /// this node's disk that turn out wrong are removed, and the bytes are read from the tier.
    ///
    /// # Errors
    ///
    /// The lake does not have the object, or its state is unknown.
    pub(super) async fn write(&self, write: LakeWrite<'_>) -> Result<Uploaded, NotWritten> {
        let written = self.try_to_write(write).await;
        let wrong = written.as_ref().err().map(|failure| &failure.error);
        let wrong =
            wrong.filter(|error| matches!(error, LakeWriteError::WrongBytes(_) | LakeWriteError::OtherMd5));
        let Some(wrong) = wrong else {
            return written;
        };
        tracing::warn!(object = ?write.manifest.name, %wrong, "the blocks of a dirty object are removed from the disk");
        self.store.remove_version(write.manifest.version.id);
        self.try_to_write(write).await
    }

    async fn try_to_write(&self, write: LakeWrite<'_>) -> Result<Uploaded, NotWritten> {
        if write.manifest.part_layout.is_whole() {
            let written = self.write_whole(write).await;
            written.map_err(LakeWriteError::into_end)
        } else {
            self.write_in_parts(write).await
        }
    }

    async fn write_whole(&self, write: LakeWrite<'_>) -> Result<Uploaded, LakeWriteError> {
        let manifest = write.manifest;
        let caller = self.writer(&manifest.writer)?;
        let client = self.client(&caller);
        let failure = BodyFailure::default();
        let whole = ByteRange {
            start: 0,
            end: manifest.version.size_bytes,
        };
        let body = self.body(write, whole, caller, failure.clone());
        let mut headers = manifest.headers.clone();
        headers.extend(write.conditions.clone());
        if let Some(md5) = md5_in(&manifest.version.etag) {
            headers.insert(CONTENT_MD5, content_md5(&md5));
        }
        let request = client.put(manifest.target.clone());
        let request = EndpointRequest {
            payload: PayloadHash::Unsigned,
            ..request.with_headers(headers).with_body(body)
        };
        write.check()?;
        let answered = client.send(request, write.options()).await;
        failure.check()?;
        let head = answered?.ok()?.head;
        let named = Named::judge(&head.headers, &manifest.version.etag, &client, &manifest.target);
        Ok(match named.await? {
            Named::ByMd5 => Uploaded::Same,
            _ => Uploaded::OtherEtag(head.headers.get(header::ETAG).cloned()),
        })
    }

    fn writer(&self, writer: &Arc<str>) -> Result<Caller, LakeWriteError> {
        let identity = self.identities.get(writer);
        let identity = identity.ok_or_else(|| LakeWriteError::UnknownWriter(Arc::clone(writer)))?;
        Ok(Caller::Identity(identity))
    }

    /// Returns the client that writes on behalf of `caller`, in the turns of this node.
    fn client(&self, caller: &Caller) -> S3Client {
        S3Client {
            payer: NODE,
            ..S3Client::of_caller(&self.lake, caller)
        }
    }

    /// Returns the blocks of a range that lies in one piece of the object.
    fn blocks(
        &self,
        LakeWrite { manifest, bytes, .. }: LakeWrite<'_>,
        range: ByteRange,
        caller: Caller,
    ) -> ProvenBlocks {
        let account = self.lake.account_for(&caller);
        let context = ReadContext::of_peer(account, caller, Some(manifest.name.clone()), HeaderMap::new());
        let reader = BlockReader {
            store: Arc::clone(&self.store),
            fetcher: Arc::clone(&self.fetcher),
            version: Arc::clone(&manifest.version),
            context: Arc::new(context),
            obtain: Obtain::Kept(Arc::new(bytes.clone())),
        };
        let window = ReadAheadWindow { now: 1, max: AHEAD };
        let blocks = BlockStream::new(Arc::new(reader), range, window, None);
        ProvenBlocks::new(blocks, manifest.piece_at(range))
    }

    /// Returns a range of the object as a request body.
    fn body(
        &self,
        write: LakeWrite<'_>,
        range: ByteRange,
        caller: Caller,
        failure: BodyFailure,
    ) -> RequestBody {
        let blocks = self.blocks(write, range, caller);
        let pieces = stream::unfold(Some(blocks), move |blocks| {
            let failure = failure.clone();
            async move {
                let mut blocks = blocks?;
                let error = match blocks.next().await? {
                    Ok(piece) => return Some((Ok(Frame::data(piece)), Some(blocks))),
                    Err(error) => error,
                };
                let told = BoxError::from(error.to_string());
                failure.set(error);
                Some((Err(told), None))
            }
        });
        RequestBody::from_stream(range.len(), StreamBody::new(pieces).boxed_unsync())
    }
}

impl LakeWrite<'_> {
    /// Checks the right to send before a request begins. This only saves a useless request: the bytes are
    /// checked as they are sent.
    fn check(&self) -> Result<(), LakeWriteError> {
        let may_send = self.permit.may_send();
        may_send.then_some(()).ok_or(LakeWriteError::SessionOver)
    }
}

impl<'a> LakeWrite<'a> {
    fn options(self) -> SendOptions<'a> {
        SendOptions {
            permit: Some(self.permit),
            transfer: self.transfer,
        }
    }
}

impl From<CallError> for LakeWriteError {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Unanswered(error) => Self::Lake(error),
            CallError::Refused(refusal) => refusal.into(),
            CallError::TooLong(_) | CallError::BrokenOff(_) | CallError::Misunderstood(_) => {
                Self::Misunderstood
            }
        }
    }
}

impl From<Refusal> for LakeWriteError {
    fn from(refusal: Refusal) -> Self {
        match (refusal.status, refusal.code()) {
            // The lake refused the bytes because their digest is not the one in the request.
            (StatusCode::BAD_REQUEST, code @ ("BadDigest" | "XAmzContentChecksumMismatch")) => {
                Self::Contradicted(code.into())
            }
            // An error after an early 200 is the one that its status would have been.
            (StatusCode::OK, code) => {
                let code = ErrorCode::named(code);
                code.map_or(Self::Misunderstood, |code| Self::Refused(code.status()))
            }
            (status, _) => Self::Refused(status),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::StatusCode;
    use shoal_s3::xml::ErrorDocument;

    use super::{LakeWriteError, Refusal};

    fn refused(status: u16, code: &str) -> LakeWriteError {
        let error = ErrorDocument {
            code: code.into(),
            message: String::new(),
        };
        LakeWriteError::from(Refusal {
            status: StatusCode::from_u16(status).unwrap(),
            error: Some(error),
        })
    }

    #[test]
    fn an_error_behind_a_yes_is_the_no_that_it_stands_for() {
        let status = |code: &str| match refused(200, code) {
            LakeWriteError::Refused(status) => status.as_u16(),
            _ => 0,
        };
        assert_eq!(
            ["PreconditionFailed", "NoSuchKey", "InternalError", "?"].map(status),
            [412, 404, 500, 0]
        );
    }

    #[test]
    fn a_refused_digest_means_that_the_lake_got_other_bytes() {
        let is_of_bytes = |status, code| matches!(refused(status, code), LakeWriteError::Contradicted(_));
        assert!(is_of_bytes(400, "BadDigest") && is_of_bytes(400, "XAmzContentChecksumMismatch"));
        assert!(!is_of_bytes(400, "InvalidRequest") && !is_of_bytes(403, "BadDigest"));
    }
}
