//! Runs a GET: decides whether the caller may read, which version is current, and which of its bytes are
//! wanted, and opens the stream of their blocks.
//!
//! This module neither counts nor logs: the answer carries the outcome, and the edge records it.

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
use crate::blocks::{BlockReader, BlockStream, FetchPlan, ReadAheadWindow};
use crate::clock;
use crate::coherence::Coherence;
use crate::cooperation::Cooperation;
use crate::endpoint::{Endpoint, EndpointError, EndpointRequest, LakeBody};
use crate::fetch::{FetchVia, Fetcher, StreamHandle, content_range, range_header, whole_range};
use crate::freshness::Reuse;
use crate::grants::{Checksums, Grants, QuestionStamp, is_refusal};
use crate::read_context::ReadContext;
use crate::single_flight::FetchError;

/// The number of attempts at an object that changes while it is being opened.
const RESTARTS: usize = 4;

/// Reads objects for clients.
pub struct ObjectReader {
    /// The lake behind this node.
    pub lake: Arc<Endpoint>,
    /// Blocks on disk.
    pub store: Arc<Store>,
    /// Versions and grants.
    pub grants: Arc<Grants>,
    /// Blocks from elsewhere.
    pub fetcher: Arc<Fetcher>,
    /// The nodes that share blocks with this one.
    pub cooperation: Arc<Cooperation>,
    /// Knows of the changes of coherent objects, if there are any.
    pub coherence: Option<Arc<Coherence>>,
    /// Remembers readers, if this node fetches ahead in their names.
    pub fetch_ahead: Option<Arc<FetchAhead>>,
    /// Read-ahead of one reader, in blocks.
    pub ahead: usize,
    /// Size of a block.
    pub block_bytes: u64,
    /// Objects being opened for the first time.
    pub open_lock: OpenLock,
}

/// A parsed GET.
#[derive(Debug)]
pub struct ReadRequest {
    /// The caller.
    pub caller: CallerId,
    /// The object that it reads.
    pub name: ObjectName,
    /// Digest of the name.
    pub object: ObjectId,
    /// The wanted bytes.
    pub range: RangeRequest,
    /// The conditions of the request.
    pub conditions: Conditions,
    /// How the lake is asked on behalf of the client.
    pub context: Arc<ReadContext>,
    /// Which grant may be reused; none if the client or the configuration wants the lake to be asked.
    pub reuse: Reuse,
    /// `Cache-Control: only-if-cached`
    pub only_if_cached: bool,
    /// `x-amz-checksum-mode: ENABLED`
    pub checksum_mode: bool,
    /// Whether nothing in the head changes the caller's permission to read: the lake's yes may then be
    /// reused.
    pub plain: bool,
}

impl ReadRequest {
    /// The bytes of `version` that the request wants. A GET and a HEAD want the same.
    ///
    /// # Errors
    ///
    /// Returns the reason if the answer to the request has no bytes of the version.
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

    /// The window of a reader that may read `ahead` blocks ahead. A reader that asks for everything up to the
    /// end may want little of it.
    pub fn window(&self, ahead: usize) -> ReadAheadWindow {
        let open_ended = matches!(self.range, RangeRequest::From(_));
        let now = if open_ended { 1 } else { ahead };
        ReadAheadWindow { now, max: ahead }
    }
}

/// Why a GET has no answer.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The lake does not answer.
    #[error(transparent)]
    Lake(#[from] EndpointError),
    /// The lake itself answered with an error to a question about the object.
    #[error("the lake answered {0}")]
    LakeStatus(StatusCode),
    /// A block cannot be fetched.
    #[error(transparent)]
    Fetch(FetchError),
    /// Every attempt found another version.
    #[error("the object changes faster than it can be read")]
    ChangesTooOften,
}

/// A version to read, and how this node learned of it.
struct PinnedVersion {
    version: Arc<Version>,
    caller_headers: CallerHeaders,
    stream_handle: Option<StreamHandle>,
    /// Whether the version's bytes came with the answer that named it, so that none of them was here.
    opened: bool,
}

impl PinnedVersion {
    /// A version that needs no question to the lake: of a grant, or of an object that the lake does not have.
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
    /// Answers a GET. The version is pinned before the first byte; a change before that byte starts again.
    ///
    /// # Errors
    ///
    /// Fails if the lake or a block that is not here cannot be reached, or if the object changes too often.
    pub async fn read(&self, request: &ReadRequest) -> Result<GetAnswer, ReadError> {
        for _ in 0..RESTARTS {
            let stamp = self.stamp(request).await;
            let pinned = match self.granted(request, stamp) {
                Some(version) => PinnedVersion::granted(version),
                // The part that waits for the lake is boxed, so that a hit carries none of it along.
                None => match Box::pin(self.pin(request, stamp)).await? {
                    PinOutcome::Version(pinned) => pinned,
                    PinOutcome::Answer(answer) => return Ok(*answer),
                },
            };
            match self
                .start(request, pinned, FetchPlan::All(FetchVia::Route(Layer::L1)))
                .await
            {
                Ok(answer) => return Ok(answer),
                Err(FetchError::Changed) => self.grants.invalidate_object(&request.name),
                Err(FetchError::Mismatch) => return Ok(GetAnswer::Bypass(Uncacheable::Mismatch)),
                Err(error) => return Err(ReadError::Fetch(error)),
            }
        }
        Err(ReadError::ChangesTooOften)
    }

    /// Answers a GET of a version that is already known to be the current one, and that this caller may read.
    /// `plan` says where its blocks come from. The version of a dirty object is pinned so: the lake does not
    /// have it.
    ///
    /// # Errors
    ///
    /// The first bytes cannot be read.
    pub async fn open_version(
        &self,
        request: &ReadRequest,
        version: Arc<Version>,
        plan: FetchPlan,
    ) -> Result<GetAnswer, ReadError> {
        let started = self.start(request, PinnedVersion::granted(version), plan).await;
        started.map_err(ReadError::Fetch)
    }

    /// Judges the conditions, finds the wanted bytes, and waits for the first of them.
    async fn start(
        &self,
        request: &ReadRequest,
        pinned: PinnedVersion,
        plan: FetchPlan,
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
        let mut blocks = Box::new(self.block_stream(request, &version, range, plan, stream_handle));
        blocks.first_piece().await?;
        let reading = Reading {
            version,
            range,
            blocks,
            residency,
        };
        Ok(GetAnswer::Known(KnownAnswer::Object(reading), caller_headers))
    }

    /// Answers a HEAD from a grant; `None` if the lake must be asked.
    pub fn head(&self, request: &ReadRequest, stamp: QuestionStamp) -> Option<HeadAnswer> {
        let version = self.granted(request, stamp)?;
        HeadAnswer::of(request, version).ok()
    }

    /// Stamps a question to the lake that is about to be asked; the stamp is given with the answer.
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

    /// Learns from the lake's answer to an unconditional HEAD. An answer that names no version is ignored.
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

    /// Returns the current version, if the lake lets this caller read it.
    async fn pin(&self, request: &ReadRequest, asked: QuestionStamp) -> Result<PinOutcome, ReadError> {
        let mut waited = false;
        loop {
            let stamp = self.stamp_now(request).with_tokens(asked.tokens());
            // Another request of the same caller may have asked while this one waited.
            if let Some(version) = self.granted(request, stamp) {
                return Ok(PinOutcome::Version(PinnedVersion::granted(version)));
            }
            // Where nodes cooperate, bytes come through the homes of their blocks: the lake is asked only for
            // the version.
            if request.only_if_cached || !self.cooperation.is_alone() || self.knows(request.object).await {
                return self.ask_for_version(request, stamp).await;
            }
            // Readers that open one object share only its bytes, not the permission: a reader that has waited
            // asks the lake itself.
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

    /// Whether a version of the object has been seen, so that its blocks may be here.
    async fn knows(&self, object: ObjectId) -> bool {
        if self.grants.version(object).is_some() {
            return true;
        }
        // Blocks of another size are of no use; they are evicted in time.
        let described = self.store.describe(object).await;
        described.is_some_and(|version| version.block_bytes == self.block_bytes)
    }

    /// Asks the lake in one request whether this caller may read the object, which version is current, and
    /// what its headers are.
    ///
    /// The request carries no condition. A 304 would cost the lake as much and say less: tags, locks and
    /// metadata change without the ETag, and lakes differ in which of them a 304 carries.
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
            // An overloaded lake is not asked twice.
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                Err(ReadError::LakeStatus(head.status))
            }
            // Any other answer has a body that only a GET brings: the client gets the answer it would get on
            // a cold object.
            _ => self.open(request, stamp).await,
        }
    }

    /// Sends a request to the lake on behalf of the caller. A refusal ends the grants that this caller had.
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

    /// Opens an unknown object: metadata and first bytes in one request.
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

    /// Reads a version, and the range of its bytes in the body, from a `200` or `206`; grants the caller that
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
        // Only a response to the whole object carries its checksums.
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

    /// Whether the block is here, on disk or waiting for it. All readers share the lock of the store's index;
    /// a hit does not take it.
    fn holds(&self, block: BlockId) -> bool {
        self.store.is_mapped(block) || self.fetcher.holds(block)
    }

    fn block_stream(
        &self,
        request: &ReadRequest,
        version: &Arc<Version>,
        range: ByteRange,
        plan: FetchPlan,
        stream_handle: Option<StreamHandle>,
    ) -> BlockStream {
        let reader = BlockReader {
            store: Arc::clone(&self.store),
            fetcher: Arc::clone(&self.fetcher),
            version: Arc::clone(version),
            context: Arc::clone(&request.context),
            plan,
        };
        BlockStream::new(Arc::new(reader), range, request.window(self.ahead), stream_handle)
    }
}

/// Whether checksums of the whole object are wanted.
fn wants_checksums(request: &ReadRequest) -> bool {
    request.checksum_mode && request.range == RangeRequest::Whole
}

/// Whether a web page reads the object, so that the lake's CORS rules apply.
fn is_of_page(request: &ReadRequest) -> bool {
    request.context.headers().contains_key(header::ORIGIN)
}

/// The cheapest request whose answer has all headers that the client is to see. For a web page this is a GET
/// of one byte: the lake's CORS rules may treat a HEAD differently.
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

/// The range that opens an unknown object: from the first wanted byte to the end of the blocks that the
/// request touches, limited to the read-ahead. Returns `None` for the whole object.
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
