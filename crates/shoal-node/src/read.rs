//! Serves a GET: checks that the caller may read, pins the current version, resolves the requested range, and
//! opens a stream of its blocks.
//!
//! This module does no counting or logging: the answer carries the outcome, and the caller records it.

mod answer;
mod open_lock;

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use shoal_policy::{BlockId, Layer, ObjectId};
use shoal_s3::conditions::{Conditions, Evaluation};
use shoal_s3::identity::CallerId;
use shoal_s3::object::{ObjectName, Uncacheable, Version, of_caller};
use shoal_s3::range::{ByteRange, RangeRequest};
use shoal_store::Store;

pub use self::answer::{CallerHeaders, GetAnswer, HeadAnswer, KnownAnswer, NoBytes, Reading, Residency};
pub use self::open_lock::OpenLock;

use self::open_lock::OpenRole;
use crate::ahead::FetchAhead;
use crate::blocks::{BlockReader, BlockStream, ReadAheadWindow};
use crate::clock;
use crate::coherence::Coherence;
use crate::cooperation::Cooperation;
use crate::endpoint::{Endpoint, EndpointError, EndpointRequest, LakeBody};
use crate::fetch::{Fetcher, StreamHandle, content_range, range_header, whole_range};
use crate::freshness::Reuse;
use crate::grants::{Checksums, Grants, QuestionStamp, is_refusal};
use crate::obtain::Obtain;
use crate::read_context::ReadContext;
use crate::single_flight::FetchError;

/// Attempts to open an object that changes while it is being opened.
const RESTARTS: usize = 4;

/// Reads objects for clients.
pub struct ObjectReader {
    /// The lake that this node caches.
    pub lake: Arc<Endpoint>,
    /// Blocks on this node's disk.
    pub store: Arc<Store>,
    /// Known versions, and which callers may read them.
    pub grants: Arc<Grants>,
    /// Fetches blocks from peers and from the lake.
    pub fetcher: Arc<Fetcher>,
    /// The nodes that share blocks with this one.
    pub cooperation: Arc<Cooperation>,
    /// Tracks changes to coherent objects; `None` if no object is coherent.
    pub coherence: Option<Arc<Coherence>>,
    /// Remembers the last reader of each object; `None` if this node does not fetch ahead.
    pub fetch_ahead: Option<Arc<FetchAhead>>,
    /// Maximum read-ahead of one reader, in blocks.
    pub ahead: usize,
    /// Block size in bytes.
    pub block_bytes: u64,
    /// Serializes the first opening of an object.
    pub open_lock: OpenLock,
}

/// A parsed GET.
#[derive(Debug)]
pub struct ReadRequest {
    /// The authenticated caller.
    pub caller: CallerId,
    /// The requested object.
    pub name: ObjectName,
    /// Digest of `name`.
    pub object: ObjectId,
    /// The requested range, not yet resolved against a size.
    pub range: RangeRequest,
    /// The preconditions (`If-Match` and the like).
    pub conditions: Conditions,
    /// Builds requests to the lake on behalf of the client.
    pub context: Arc<ReadContext>,
    /// Which grants may be reused; none if the client or the configuration requires a check at the lake.
    pub reuse: Reuse,
    /// `Cache-Control: only-if-cached`
    pub only_if_cached: bool,
    /// `x-amz-checksum-mode: ENABLED`
    pub checksum_mode: bool,
    /// True if no request header affects the permission to read, so that the grant may be reused by other
    /// requests.
    pub plain: bool,
}

impl ReadRequest {
    /// Returns the bytes of `version` that the request selects. GET and HEAD select the same bytes.
    ///
    /// # Errors
    ///
    /// Returns the reason if the response carries no bytes of the version.
    pub fn locate(&self, version: &Version) -> Result<ByteRange, NoBytes> {
        match self.conditions.evaluate(&version.etag, version.last_modified) {
            Evaluation::Proceed => {}
            Evaluation::NotModified => return Err(NoBytes::NotModified),
            Evaluation::Failed(condition) => return Err(NoBytes::PreconditionFailed(condition)),
        }
        if version.size_bytes == 0 && self.range != RangeRequest::Whole {
            return Err(NoBytes::Dialect);
        }
        let range = self.range.resolve(version.size_bytes);
        range.map_err(|_| NoBytes::Unsatisfiable)
    }

    /// Returns the read-ahead window of a reader that may read up to `ahead` blocks ahead. An open-ended
    /// range starts with one block, because such readers often stop early.
    pub fn window(&self, ahead: usize) -> ReadAheadWindow {
        let open_ended = matches!(self.range, RangeRequest::From(_));
        let now = if open_ended { 1 } else { ahead };
        ReadAheadWindow { now, max: ahead }
    }
}

/// Why a GET failed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The lake cannot be reached.
    #[error(transparent)]
    Lake(#[from] EndpointError),
    /// The lake answered a HEAD of the object with this error status.
    #[error("the lake answered {0}")]
    LakeStatus(StatusCode),
    /// A block could not be fetched.
    #[error(transparent)]
    Fetch(FetchError),
    /// The version changed during every attempt.
    #[error("the object changes faster than it can be read")]
    ChangesTooOften,
}

/// The version to read, and what came with it.
struct PinnedVersion {
    version: Arc<Version>,
    caller_headers: CallerHeaders,
    stream_handle: Option<StreamHandle>,
    /// True if the version and its first bytes came in one response, so none of its blocks was cached.
    opened: bool,
}

impl PinnedVersion {
    /// A version that is read without asking the lake: it was granted before, or the object is dirty.
    fn granted(version: Arc<Version>) -> Self {
        Self {
            version,
            caller_headers: None,
            stream_handle: None,
            opened: false,
        }
    }
}

enum PinOutcome {
    Version(PinnedVersion),
    Answer(Box<GetAnswer>),
}

impl ObjectReader {
    /// Answers a GET. Pins a version before the first byte is sent; if the version changes before that byte,
    /// the read starts over.
    ///
    /// # Errors
    ///
    /// Fails if the lake or an uncached block cannot be reached, or if the object changes too often.
    pub async fn read(&self, request: &ReadRequest) -> Result<GetAnswer, ReadError> {
        for _ in 0..RESTARTS {
            let stamp = self.stamp(request).await;
            let pinned = match self.granted(request, stamp) {
                Some(version) => PinnedVersion::granted(version),
                // Boxed, so that a hit does not pay for the size of this future.
                None => match Box::pin(self.pin(request, stamp)).await? {
                    PinOutcome::Version(pinned) => pinned,
                    PinOutcome::Answer(answer) => return Ok(*answer),
                },
            };
            match self.start(request, pinned, Obtain::FromHomes(Layer::L1)).await {
                Ok(answer) => return Ok(answer),
                Err(FetchError::Changed) => self.grants.invalidate_object(&request.name),
                Err(FetchError::Mismatch) => return Ok(GetAnswer::Bypass(Uncacheable::Mismatch)),
                Err(error) => return Err(ReadError::Fetch(error)),
            }
        }
        Err(ReadError::ChangesTooOften)
    }

    /// Answers a GET of a version that the caller may read and that is known to be current. Used for dirty
    /// objects, whose version the lake does not have. `obtain` selects the source of the blocks.
    ///
    /// # Errors
    ///
    /// Fails if the first bytes cannot be read.
    pub async fn open_version(
        &self,
        request: &ReadRequest,
        version: Arc<Version>,
        obtain: Obtain,
    ) -> Result<GetAnswer, ReadError> {
        let started = self.start(request, PinnedVersion::granted(version), obtain).await;
        started.map_err(ReadError::Fetch)
    }

    /// Evaluates the conditions, resolves the range, and waits for the first bytes.
    async fn start(
        &self,
        request: &ReadRequest,
        pinned: PinnedVersion,
        obtain: Obtain,
    ) -> Result<GetAnswer, FetchError> {
        let PinnedVersion {
            version,
            caller_headers,
            stream_handle,
            opened,
        } = pinned;
        let range = match request.locate(&version) {
            Ok(range) => range,
            Err(why) => {
                return Ok(GetAnswer::without_bytes(why, &version).with_caller_headers(caller_headers));
            }
        };
        let residency = if opened {
            Residency::None
        } else {
            Residency::of(&version, range, |block| self.holds(block))
        };
        if request.only_if_cached && residency != Residency::All {
            return Ok(GetAnswer::Known(KnownAnswer::NotCached, caller_headers));
        }
        if let Some(ahead) = &self.fetch_ahead {
            ahead.is_read(&version, &request.context);
        }
        let mut blocks = Box::new(self.block_stream(request, &version, range, obtain, stream_handle));
        blocks.first_piece().await?;
        let reading = Reading {
            version,
            range,
            blocks,
            residency,
        };
        Ok(GetAnswer::Known(KnownAnswer::Object(reading), caller_headers))
    }

    /// Answers a HEAD from a grant; returns `None` if the lake must be asked.
    pub fn head(&self, request: &ReadRequest, stamp: QuestionStamp) -> Option<HeadAnswer> {
        let version = self.granted(request, stamp)?;
        HeadAnswer::of(request, version).ok()
    }

    /// Returns a stamp for a request to the lake that is about to be sent. Pass it along with the response.
    pub async fn stamp(&self, request: &ReadRequest) -> QuestionStamp {
        let stamp = self.stamp_now(request);
        match &self.coherence {
            Some(coherence) if request.reuse.coherent => {
                let tokens = Box::pin(coherence.tokens(&request.name)).await;
                stamp.with_tokens(tokens)
            }
            _ => stamp,
        }
    }

    fn stamp_now(&self, request: &ReadRequest) -> QuestionStamp {
        self.grants
            .stamp(request.caller, &request.name, request.object, clock::instant())
    }

    /// Stores what an unconditional HEAD of the lake returned. A response without a usable version is
    /// ignored.
    pub fn learn_from_head(
        &self,
        request: &ReadRequest,
        response: &Response<LakeBody>,
        stamp: QuestionStamp,
    ) {
        if response.status() == StatusCode::OK {
            self.learn(request, response.status(), response.headers(), stamp)
                .ok();
        }
    }

    /// Asks the lake for the current version and the permission to read it.
    async fn pin(&self, request: &ReadRequest, asked: QuestionStamp) -> Result<PinOutcome, ReadError> {
        let mut waited = false;
        loop {
            let stamp = self.stamp_now(request).with_tokens(asked.tokens());
            // Another request of this caller may have obtained a grant in the meantime.
            if let Some(version) = self.granted(request, stamp) {
                return Ok(PinOutcome::Version(PinnedVersion::granted(version)));
            }
            // In a cluster, blocks are fetched through their homes, so the lake is asked only for the
            // version.
            if request.only_if_cached || !self.cooperation.is_alone() || self.knows(request.object).await {
                return self.ask_for_version(request, stamp).await;
            }
            // Concurrent readers of one object share its bytes but not the permission: a reader that waited
            // still asks the lake itself.
            match self.open_lock.acquire(request.object) {
                OpenRole::Lead(_guard) => return self.open(request, stamp).await,
                OpenRole::Wait(_) if waited => return self.open(request, stamp).await,
                OpenRole::Wait(ended) => {
                    ended.await;
                    waited = true;
                }
            }
        }
    }

    fn granted(&self, request: &ReadRequest, stamp: QuestionStamp) -> Option<Arc<Version>> {
        let Reuse { within, coherent } = request.reuse;
        if within.is_zero() || (coherent && stamp.tokens().is_none()) {
            return None;
        }
        let known = self
            .grants
            .granted(request.caller, request.object, stamp, within)?;
        let is_enough = known.checksums == Checksums::Requested || !wants_checksums(request);
        is_enough.then_some(known.version)
    }

    /// Returns true if a version of the object is known, so that some of its blocks may be cached.
    async fn knows(&self, object: ObjectId) -> bool {
        if self.grants.version(object).is_some() {
            return true;
        }
        // Blocks of another size cannot be used; eviction removes them eventually.
        let described = self.store.describe(object).await;
        described.is_some_and(|version| version.block_bytes == self.block_bytes)
    }

    /// Asks the lake in one request whether this caller may read the object, which version is current, and
    /// what its headers are.
    ///
    /// The request is unconditional. A 304 would cost the lake as much and carry less: tags, locks and
    /// metadata change without the ETag, and lakes differ in which of those headers a 304 repeats.
    async fn ask_for_version(
        &self,
        request: &ReadRequest,
        stamp: QuestionStamp,
    ) -> Result<PinOutcome, ReadError> {
        if is_of_page(request) && wants_checksums(request) {
            return self.open(request, stamp).await;
        }
        let head = self
            .send(request, permission_request(request))
            .await?
            .into_parts()
            .0;
        match head.status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => {
                match self.learn(request, head.status, &head.headers, stamp) {
                    Ok((version, _)) => Ok(PinOutcome::Version(PinnedVersion {
                        version,
                        caller_headers: Some(Box::new(of_caller(&head.headers))),
                        stream_handle: None,
                        opened: false,
                    })),
                    Err(reason) => Ok(PinOutcome::Answer(Box::new(GetAnswer::Bypass(reason)))),
                }
            }
            // Do not send a second request to an overloaded lake.
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                Err(ReadError::LakeStatus(head.status))
            }
            // Only a GET returns the body of such a response. The client receives the response it would get
            // for an object that is not cached.
            _ => self.open(request, stamp).await,
        }
    }

    /// Sends a request to the lake on behalf of the caller. If the lake refuses it, revokes the caller's
    /// grants for the object.
    async fn send(
        &self,
        request: &ReadRequest,
        lake_request: EndpointRequest,
    ) -> Result<Response<LakeBody>, EndpointError> {
        let response = self.lake.send(lake_request).await?;
        if is_refusal(response.status()) {
            self.grants.revoke(request.caller, request.object);
        }
        Ok(response)
    }

    /// Opens an unknown object: one GET returns its metadata and first bytes.
    async fn open(&self, request: &ReadRequest, stamp: QuestionStamp) -> Result<PinOutcome, ReadError> {
        let mut lake_request = request.context.request(Method::GET);
        lake_request.headers.extend(request.context.conditions());
        if let Some(range) = opening_range(request.range, self.block_bytes, self.ahead) {
            lake_request.headers.insert(header::RANGE, range);
        }
        let response = self.send(request, lake_request).await?;
        if !matches!(response.status(), StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            return Ok(PinOutcome::Answer(Box::new(GetAnswer::Relay(Box::new(response)))));
        }
        match self.learn(request, response.status(), response.headers(), stamp) {
            Ok((version, range)) => {
                let caller_headers = Some(Box::new(of_caller(response.headers())));
                let stream_handle =
                    self.fetcher
                        .stream(&version, range, response.into_body(), &request.context);
                Ok(PinOutcome::Version(PinnedVersion {
                    version,
                    caller_headers,
                    stream_handle,
                    opened: true,
                }))
            }
            Err(reason) => Ok(PinOutcome::Answer(Box::new(GetAnswer::Bypass(reason)))),
        }
    }

    /// Parses the version and the range of the body from a `200` or `206`, and grants the caller that
    /// version.
    fn learn(
        &self,
        request: &ReadRequest,
        status: StatusCode,
        headers: &HeaderMap,
        stamp: QuestionStamp,
    ) -> Result<(Arc<Version>, ByteRange), Uncacheable> {
        let is_part = status == StatusCode::PARTIAL_CONTENT;
        let sent = if is_part {
            content_range(headers)
        } else {
            whole_range(headers)
        };
        let (range, size_bytes) = sent.ok_or(Uncacheable::NoLength)?;
        let version = Version::from_response(request.object, headers, size_bytes, self.block_bytes)?;
        // Checksums in a `206` need not cover the whole object.
        let (version, checksums) = match (is_part, request.checksum_mode) {
            (true, _) => (version.without_checksums(), Checksums::NotRequested),
            (false, true) => (version, Checksums::Requested),
            (false, false) => (version, Checksums::NotRequested),
        };
        let version = Arc::new(version);
        self.grants.learn(
            request.caller,
            &request.name,
            &version,
            checksums,
            stamp,
            request.plain,
        );
        Ok((version, range))
    }

    /// Returns true if the block is on disk or about to be written there. Checks the mapped blocks first,
    /// because a lookup in the store's index takes a lock that all readers share.
    fn holds(&self, block: BlockId) -> bool {
        self.store.is_mapped(block) || self.fetcher.holds(block)
    }

    fn block_stream(
        &self,
        request: &ReadRequest,
        version: &Arc<Version>,
        range: ByteRange,
        obtain: Obtain,
        stream_handle: Option<StreamHandle>,
    ) -> BlockStream {
        let reader = BlockReader {
            store: Arc::clone(&self.store),
            fetcher: Arc::clone(&self.fetcher),
            version: Arc::clone(version),
            context: Arc::clone(&request.context),
            obtain,
        };
        BlockStream::new(Arc::new(reader), range, request.window(self.ahead), stream_handle)
    }
}

/// Returns true if the client asked for checksums of the whole object.
fn wants_checksums(request: &ReadRequest) -> bool {
    request.checksum_mode && request.range == RangeRequest::Whole
}

/// Returns true if the request comes from a web page, so that the lake's CORS rules apply.
fn is_of_page(request: &ReadRequest) -> bool {
    request.context.headers().contains_key(header::ORIGIN)
}

/// Returns the cheapest request whose response has all headers that the client receives. For a web page this
/// is a GET of one byte, because a lake may apply other CORS rules to HEAD.
fn permission_request(request: &ReadRequest) -> EndpointRequest {
    if !is_of_page(request) {
        return request.context.request(Method::HEAD);
    }
    let mut lake_request = request.context.request(Method::GET);
    let first_byte = ByteRange { start: 0, end: 1 };
    lake_request
        .headers
        .insert(header::RANGE, range_header(first_byte));
    lake_request
}

/// Returns the range that opens an unknown object: from the first requested byte to the end of the last
/// requested block, at most `ahead` blocks. Returns `None` for the whole object.
fn opening_range(wanted: RangeRequest, block_bytes: u64, ahead: usize) -> Option<HeaderValue> {
    let floor = |byte: u64| byte - byte % block_bytes;
    let blocks_from = |first: u64, blocks: u64| {
        let end = floor(first).saturating_add(blocks.saturating_mul(block_bytes));
        let start = first.min(end - 1);
        range_header(ByteRange { start, end })
    };
    Some(match wanted {
        RangeRequest::Whole => return None,
        RangeRequest::FirstLast(first, last) => {
            let touched = (floor(last) - floor(first)) / block_bytes + 1;
            blocks_from(first, touched.min(ahead as u64))
        }
        RangeRequest::From(first) => blocks_from(first, 1),
        RangeRequest::Suffix(length) => {
            let length = length.min(block_bytes * ahead as u64);
            HeaderValue::try_from(format!("bytes=-{length}")).expect("digits are a header value")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_object_is_opened_by_the_blocks_it_is_wanted_for() {
        let block = 100;
        let table = [
            (RangeRequest::Whole, None),
            (RangeRequest::FirstLast(0, 0), Some("bytes=0-99")),
            (RangeRequest::FirstLast(150, 249), Some("bytes=150-299")),
            (RangeRequest::FirstLast(150, 100_000), Some("bytes=150-499")),
            (RangeRequest::From(350), Some("bytes=350-399")),
            (RangeRequest::Suffix(8), Some("bytes=-8")),
            (RangeRequest::Suffix(150), Some("bytes=-150")),
            (RangeRequest::Suffix(u64::MAX), Some("bytes=-400")),
            (
                RangeRequest::From(u64::MAX),
                Some("bytes=18446744073709551614-18446744073709551614"),
            ),
        ];
        for (wanted, expected) in table {
            let range = opening_range(wanted, block, 4);
            assert_eq!(
                range.as_ref().map(|range| range.to_str().unwrap()),
                expected,
                "{wanted:?}"
            );
        }
    }
}
