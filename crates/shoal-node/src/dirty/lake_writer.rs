//! Writes a dirty object to the lake: the acknowledged write, carried out in its writer's name.

mod parted;

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use shoal_policy::NodeId;
use shoal_s3::identity::{Caller, Identities, NODE};
use shoal_s3::object::Version;
use shoal_s3::range::ByteRange;
use shoal_s3::sigv4::PayloadHash;
use shoal_store::Store;

use super::manifest::Manifest;
use super::multipart::Upload;
use crate::blocks::placement::Placement;
use crate::blocks::{BlockReader, BlockStream, FetchPlan, ReadAheadWindow};
use crate::endpoint::{
    BoxError, Endpoint, EndpointError, EndpointRequest, LakeAccount, RequestBody, RequestStream,
};
use crate::fetch::Fetcher;
use crate::read_context::ReadContext;
use crate::single_flight::FetchError;

const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");

/// Read-ahead, in blocks, beyond what the lake has taken.
const AHEAD: usize = 2;

/// Writes dirty objects to the lake.
pub(super) struct LakeWriter {
    lake: Arc<Endpoint>,
    store: Arc<Store>,
    fetcher: Arc<Fetcher>,
    identities: Arc<Identities>,
}

/// Breaks off a write to the lake. All clones share one state.
#[derive(Clone, Debug, Default)]
pub(super) struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Breaks the write off, unless the lake already has all bytes.
    pub(super) fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    pub(super) fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The result of a write that the lake took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Uploaded {
    /// The lake names the acknowledged ETag.
    Same,
    /// The lake has the bytes under another ETag, as with `SSE-KMS`.
    OtherEtag(Option<HeaderValue>),
}

/// The reason why the lake does not have the object.
#[derive(Debug, thiserror::Error)]
pub enum LakeWriteError {
    /// The object is about to be overwritten or removed.
    #[error("it was cancelled")]
    Cancelled,
    /// A node has lost a block that it held.
    #[error("a block is not where it was")]
    BlockMissing,
    /// The node that flushes does not know the writer's identity.
    #[error("no identity here signs with {0}")]
    UnknownWriter(Arc<str>),
    /// The lake refused.
    #[error("the lake answered {0}")]
    Refused(StatusCode),
    /// The lake's answer lacks what it must contain.
    #[error("the lake's answer is not that of an upload")]
    Misunderstood,
    /// A block cannot be read from the node that holds it.
    #[error("a block cannot be read: {0}")]
    Unread(FetchError),
    /// The lake did not answer.
    #[error(transparent)]
    Lake(#[from] EndpointError),
}

/// The reason why the body of a write broke off.
#[derive(Clone, Debug, Default)]
struct BodyFailure {
    cancelled: Arc<AtomicBool>,
    missing: Arc<AtomicBool>,
}

impl BodyFailure {
    fn check(&self) -> Result<(), LakeWriteError> {
        if self.cancelled.load(Ordering::Acquire) {
            Err(LakeWriteError::Cancelled)
        } else if self.missing.load(Ordering::Acquire) {
            Err(LakeWriteError::BlockMissing)
        } else {
            Ok(())
        }
    }
}

impl LakeWriter {
    /// Writes in the names of `identities`.
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
        }
    }

    /// Writes the object to the lake as its writer would have.
    ///
    /// # Errors
    ///
    /// The lake does not have the object. This includes a write that was cancelled before the lake had all
    /// bytes.
    pub(super) async fn write(
        &self,
        manifest: &Manifest,
        cancel: &Cancel,
    ) -> Result<Uploaded, LakeWriteError> {
        self.write_if(manifest, &HeaderMap::new(), cancel).await
    }

    /// Writes the object to the lake if the object that is there meets the conditions.
    pub(super) async fn write_if(
        &self,
        manifest: &Manifest,
        conditions: &HeaderMap,
        cancel: &Cancel,
    ) -> Result<Uploaded, LakeWriteError> {
        if manifest.part_layout.is_whole() {
            self.write_whole(manifest, conditions, cancel).await
        } else {
            self.write_in_parts(manifest, conditions, cancel).await
        }
    }

    async fn write_whole(
        &self,
        manifest: &Manifest,
        conditions: &HeaderMap,
        cancel: &Cancel,
    ) -> Result<Uploaded, LakeWriteError> {
        let caller = self.writer(&manifest.writer)?;
        let account = self.lake.account_for(&caller);
        let failure = BodyFailure::default();
        let body = match manifest.version.size_bytes {
            0 => RequestBody::Empty,
            size_bytes => RequestBody::Stream {
                length: Some(size_bytes),
                body: self.body(
                    manifest,
                    ByteRange {
                        start: 0,
                        end: size_bytes,
                    },
                    caller,
                    account.clone(),
                    cancel.clone(),
                    failure.clone(),
                ),
            },
        };
        let mut headers = manifest.headers.clone();
        headers.extend(conditions.clone());
        if let Some(md5) = content_md5(&manifest.version.etag) {
            headers.insert(CONTENT_MD5, md5);
        }
        let request = EndpointRequest {
            operation: "put_object",
            method: Method::PUT,
            target: manifest.target.clone(),
            headers,
            body,
            expects_continue: false,
            payload: PayloadHash::Unsigned,
            account,
            payer: NODE,
        };
        let answered = self.lake.send(request).await;
        failure.check()?;
        let (head, body) = answered?.into_parts();
        // A connection is reused only if the body was read to its end.
        let _ = body.collect().await;
        if head.status != StatusCode::OK {
            return Err(LakeWriteError::Refused(head.status));
        }
        let etag = head.headers.get(header::ETAG).cloned();
        Ok(match etag {
            Some(etag) if etag == *manifest.version.etag => Uploaded::Same,
            other => Uploaded::OtherEtag(other),
        })
    }

    fn writer(&self, writer: &Arc<str>) -> Result<Caller, LakeWriteError> {
        let identity = self.identities.get(writer);
        let identity = identity.ok_or_else(|| LakeWriteError::UnknownWriter(Arc::clone(writer)))?;
        Ok(Caller::Identity(identity))
    }

    fn blocks(
        &self,
        manifest: &Manifest,
        range: ByteRange,
        (caller, account): (Caller, LakeAccount),
    ) -> BlockStream {
        let context = ReadContext::of_peer(account, caller, Some(manifest.name.clone()), HeaderMap::new());
        let placement = Arc::clone(&manifest.placement);
        self.stream(&manifest.version, placement, range, context)
    }

    /// The blocks of a part of an upload. One node holds them all.
    ///
    /// # Errors
    ///
    /// The node does not know the writer's identity.
    pub(super) fn blocks_of_part(
        &self,
        upload: &Upload,
        (version, holder): (&Arc<Version>, NodeId),
    ) -> Result<BlockStream, LakeWriteError> {
        let caller = self.writer(&upload.writer)?;
        let account = self.lake.account_for(&caller);
        let held = (0..version.block_count()).map(|_| holder);
        let placement = Placement::new(held).expect("one node can be told");
        let range = ByteRange {
            start: 0,
            end: version.size_bytes,
        };
        let context = ReadContext::of_peer(account, caller, Some(upload.name.clone()), HeaderMap::new());
        Ok(self.stream(version, placement.into(), range, context))
    }

    fn stream(
        &self,
        version: &Arc<Version>,
        placement: Arc<Placement>,
        range: ByteRange,
        context: ReadContext,
    ) -> BlockStream {
        let reader = BlockReader {
            store: Arc::clone(&self.store),
            fetcher: Arc::clone(&self.fetcher),
            version: Arc::clone(version),
            context: Arc::new(context),
            plan: FetchPlan::Placed(placement),
        };
        BlockStream::new(
            Arc::new(reader),
            range,
            ReadAheadWindow { now: 1, max: AHEAD },
            None,
        )
    }

    /// A range of the object as a request body. It breaks off when the write is cancelled; the lake then
    /// stores nothing.
    fn body(
        &self,
        manifest: &Manifest,
        range: ByteRange,
        caller: Caller,
        account: LakeAccount,
        cancel: Cancel,
        failure: BodyFailure,
    ) -> RequestStream {
        let blocks = self.blocks(manifest, range, (caller, account));
        let pieces = stream::unfold(Some(blocks), move |blocks| {
            let (cancel, failure) = (cancel.clone(), failure.clone());
            async move {
                let mut blocks = blocks?;
                let piece = poll_fn(|cx| blocks.poll_next(cx)).await?;
                if cancel.is_cancelled() {
                    failure.cancelled.store(true, Ordering::Release);
                    return Some((Err(BoxError::from(LakeWriteError::Cancelled)), None));
                }
                match piece {
                    Ok(piece) => Some((Ok(Frame::data(piece)), Some(blocks))),
                    Err(error) => {
                        let missing = matches!(error, FetchError::NotHeld);
                        failure.missing.fetch_or(missing, Ordering::AcqRel);
                        Some((Err(BoxError::from(error)), None))
                    }
                }
            }
        });
        StreamBody::new(pieces).boxed_unsync()
    }
}

/// The `Content-MD5` of an object whose ETag is the MD5 of its bytes.
fn content_md5(etag: &str) -> Option<HeaderValue> {
    let digits = etag.trim_matches('"').as_bytes();
    let digest: Vec<u8> = digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok())
        .collect::<Option<_>>()?;
    let is_md5 = digest.len() == 16;
    let value = is_md5.then(|| STANDARD.encode(digest))?;
    Some(HeaderValue::try_from(value).expect("base 64 is a header value"))
}

#[cfg(test)]
mod tests {
    use super::content_md5;

    #[test]
    fn an_etag_that_is_a_digest_is_one_that_the_lake_can_check() {
        let md5 = |etag: &str| content_md5(etag).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(
            md5("\"d41d8cd98f00b204e9800998ecf8427e\"").as_deref(),
            Some("1B2M2Y8AsgTpgAmY7PhCfg==")
        );
        assert_eq!(md5("\"d41d8cd98f00b204e9800998ecf8427e-2\""), None);
        assert_eq!(md5("\"short\""), None);
    }
}
