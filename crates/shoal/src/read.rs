//! Runs a GET: whether the caller may read, which version, which bytes of it, and from where.
//!
//! This module neither counts nor logs: the answer carries the outcome, and the edge records it.

mod openings;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use shoal_policy::{BlockId, Layer, ObjectId};

pub use self::openings::Openings;

use self::openings::Opening;
use crate::blocks::{BlockStream, Shelf, Ways, Window};
use crate::catalog::{Asked, Catalog, Checksums, is_refusal};
use crate::clock;
use crate::cooperation::Cooperation;
use crate::endpoint::{Endpoint, EndpointError, EndpointRequest, LakeBody};
use crate::fetch::{Fetcher, StreamTicket, Way, content_range, range_header, whole};
use crate::flights::FlightError;
use crate::origin::Origin;
use crate::s3::conditions::{Conditions, Verdict};
use crate::s3::identity::CallerId;
use crate::s3::object::{ObjectName, Uncacheable, Version, of_caller};
use crate::s3::range::{ByteRange, RangeRequest};
use crate::store::Store;

/// The number of attempts at an object that changes while it is being opened.
const RESTARTS: usize = 4;
/// `X-Cache` considers only the first blocks of a range; 1 GiB at the default block size.
const BLOCKS_LOOKED_AT: u32 = 256;

/// Reads objects for clients.
pub struct Reader {
    /// The lake behind this node.
    pub lake: Arc<Endpoint>,
    /// Blocks on disk.
    pub store: Arc<Store>,
    /// Versions and grants.
    pub catalog: Arc<Catalog>,
    /// Blocks from elsewhere.
    pub fetcher: Arc<Fetcher>,
    /// The nodes that share blocks with this one.
    pub cooperation: Arc<Cooperation>,
    /// Read-ahead of one reader, in blocks.
    pub ahead: usize,
    /// Size of a block.
    pub block_bytes: u64,
    /// Objects being opened for the first time.
    pub openings: Openings,
}

/// A parsed GET.
#[derive(Debug)]
pub struct Ask {
    /// The caller.
    pub caller: CallerId,
    /// The object that it asks for.
    pub name: ObjectName,
    /// Digest of the name.
    pub object: ObjectId,
    /// The wanted bytes.
    pub range: RangeRequest,
    /// The conditions of the request.
    pub conditions: Conditions,
    /// How the lake is asked in the client's name.
    pub origin: Arc<Origin>,
    /// How old a yes of the lake may be; zero if the client or the configuration wants the lake to be asked.
    pub reuse: Duration,
    /// `Cache-Control: only-if-cached`
    pub only_if_cached: bool,
    /// `x-amz-checksum-mode: ENABLED`
    pub checksum_mode: bool,
    /// Whether nothing in the head changes the caller's permission to read: a yes to this question may then
    /// be reused.
    pub plain: bool,
}

/// The headers that the lake gave to this caller alone, if it was asked for this read.
pub type Told = Option<Box<HeaderMap>>;

impl Ask {
    /// The bytes of `version` that this asks for; the answer itself, if there are none.
    pub fn locate(&self, version: &Arc<Version>) -> Result<ByteRange, Answer> {
        match self.conditions.judge(&version.etag, version.last_modified) {
            Verdict::Proceed => {}
            Verdict::NotModified => return Err(Known::NotModified(Arc::clone(version)).into()),
            Verdict::Failed(condition) => return Err(Known::PreconditionFailed(condition).into()),
        }
        if version.size_bytes == 0 && self.range != RangeRequest::Whole {
            return Err(Answer::Bypass(Uncacheable::Dialect));
        }
        let range = self.range.resolve(version.size_bytes);
        range.map_err(|_| Known::Unsatisfiable(version.size_bytes).into())
    }

    /// The window of a reader that may read `ahead` blocks ahead. A reader that asks for everything up to the
    /// end may want little of it.
    pub fn window(&self, ahead: usize) -> Window {
        let open_ended = matches!(self.range, RangeRequest::From(_));
        let now = if open_ended { 1 } else { ahead };
        Window { now, max: ahead }
    }
}

/// The outcome of a GET.
pub enum Answer {
    /// An answer that this node knows.
    Known(Known, Told),
    /// The lake's response, unchanged.
    Relay(Box<Response<LakeBody>>),
    /// Forward the request untouched, and give this reason.
    Bypass(Uncacheable),
}

/// A known answer to a GET.
pub enum Known {
    /// Bytes of a version.
    Object(Reading),
    /// `304`
    NotModified(Arc<Version>),
    /// `412`, and the header whose condition does not hold.
    PreconditionFailed(&'static str),
    /// `416`, with the size.
    Unsatisfiable(u64),
    /// `504`: the client asked for only-if-cached, and some of the object is not cached.
    NotCached,
}

impl From<Known> for Answer {
    fn from(known: Known) -> Self {
        Self::Known(known, None)
    }
}

impl Answer {
    /// The same answer, with the headers that the lake has `told` the caller.
    fn after(self, told: Told) -> Self {
        match self {
            Self::Known(known, _) => Self::Known(known, told),
            other => other,
        }
    }
}

/// A known answer to a HEAD.
#[derive(Debug)]
pub enum HeadAnswer {
    /// `200`
    Object(Arc<Version>),
    /// `304`
    NotModified(Arc<Version>),
    /// `412`
    PreconditionFailed,
}

impl HeadAnswer {
    /// The answer to a HEAD of `version` under these conditions.
    pub fn of(version: Arc<Version>, conditions: &Conditions) -> Self {
        match conditions.judge(&version.etag, version.last_modified) {
            Verdict::Proceed => Self::Object(version),
            Verdict::NotModified => Self::NotModified(version),
            Verdict::Failed(_) => Self::PreconditionFailed,
        }
    }
}

/// The bytes to send, and what is known about them.
pub struct Reading {
    /// The pinned version.
    pub version: Arc<Version>,
    /// The range of bytes to send.
    pub range: ByteRange,
    /// Those bytes.
    pub blocks: Box<BlockStream>,
    /// How much of the range was on this node at the start.
    pub residency: Residency,
}

/// How much of a range was here, on disk or waiting for it, when the client asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residency {
    /// Every block.
    All,
    /// Some blocks.
    Some,
    /// No block.
    None,
}

impl Residency {
    /// How much of `range` is held. Considers only the first blocks of a long range.
    pub fn of(version: &Version, range: ByteRange, holds: impl Fn(BlockId) -> bool) -> Self {
        let first = (range.start / version.block_bytes) as u32;
        let end = range.end.div_ceil(version.block_bytes) as u32;
        let looked_at = first..end.min(first.saturating_add(BLOCKS_LOOKED_AT));
        let total = looked_at.len();
        let held = looked_at.filter(|index| holds(version.block(*index)));
        match held.count() {
            held if held == total => Self::All,
            0 => Self::None,
            _ => Self::Some,
        }
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
    Flight(FlightError),
    /// Every attempt found another version.
    #[error("the object changes faster than it can be read")]
    Restless,
}

/// A version to read, and how this node learned of it.
struct Pinned {
    version: Arc<Version>,
    told: Told,
    ticket: Option<StreamTicket>,
    /// Whether the version's bytes came with the answer that named it, so that none of it was here.
    opened: bool,
}

impl Pinned {
    /// The lake's remembered yes.
    fn unasked(version: Arc<Version>) -> Self {
        Self {
            version,
            told: None,
            ticket: None,
            opened: false,
        }
    }
}

enum Pin {
    Version(Pinned),
    Answer(Box<Answer>),
}

impl Reader {
    /// Answers a GET. The version is pinned before the first byte; a change before that byte starts again.
    pub async fn read(&self, ask: &Ask) -> Result<Answer, ReadError> {
        for _ in 0..RESTARTS {
            let pinned = match self.granted(ask, self.asking(ask)) {
                Some(version) => Pinned::unasked(version),
                // The part that waits for the lake is boxed, so that a hit carries none of it along.
                None => match Box::pin(self.pin(ask)).await? {
                    Pin::Version(pinned) => pinned,
                    Pin::Answer(answer) => return Ok(*answer),
                },
            };
            match self.start(ask, pinned, Ways::All(Way::Route(Layer::L1))).await {
                Ok(answer) => return Ok(answer),
                Err(FlightError::Changed) => self.catalog.forget_object(&ask.name),
                Err(FlightError::Mismatch) => return Ok(Answer::Bypass(Uncacheable::Mismatch)),
                Err(error) => return Err(ReadError::Flight(error)),
            }
        }
        Err(ReadError::Restless)
    }

    /// Answers a GET of a version that is already known to be the current one, and that this caller may read.
    /// Its blocks come by `ways`. The version of a dirty object is pinned so: the lake does not have it.
    ///
    /// # Errors
    ///
    /// The first bytes cannot be read.
    pub async fn open_version(
        &self,
        ask: &Ask,
        version: Arc<Version>,
        ways: Ways,
    ) -> Result<Answer, ReadError> {
        let started = self.start(ask, Pinned::unasked(version), ways).await;
        started.map_err(ReadError::Flight)
    }

    /// Judges the conditions, finds the wanted bytes, and waits for the first of them.
    async fn start(&self, ask: &Ask, pinned: Pinned, ways: Ways) -> Result<Answer, FlightError> {
        let Pinned {
            version,
            told,
            ticket,
            opened,
        } = pinned;
        let range = match ask.locate(&version) {
            Ok(range) => range,
            Err(answer) => return Ok(answer.after(told)),
        };
        let residency = if opened {
            Residency::None
        } else {
            Residency::of(&version, range, |block| self.holds(block))
        };
        if ask.only_if_cached && residency != Residency::All {
            return Ok(Answer::Known(Known::NotCached, told));
        }
        let mut blocks = Box::new(self.stream(ask, &version, range, ways, ticket));
        blocks.first_piece().await?;
        let reading = Reading {
            version,
            range,
            blocks,
            residency,
        };
        Ok(Answer::Known(Known::Object(reading), told))
    }

    /// Answers a HEAD from a remembered yes; `None` if the lake must be asked.
    pub fn head(&self, ask: &Ask) -> Option<HeadAnswer> {
        let version = self.granted(ask, self.asking(ask))?;
        Some(HeadAnswer::of(version, &ask.conditions))
    }

    /// Returns the moment of a question to the lake, to be given with its answer.
    pub fn asking(&self, ask: &Ask) -> Asked {
        self.catalog
            .asking(ask.caller, &ask.name, ask.object, clock::instant())
    }

    /// Notes the lake's answer to an unconditional HEAD. An answer that names no version teaches nothing.
    pub fn learn_from_head(&self, ask: &Ask, response: &Response<LakeBody>, asked: Asked) {
        if response.status() == StatusCode::OK {
            self.learn(ask, response.status(), response.headers(), asked).ok();
        }
    }

    /// Returns the current version, if the lake lets this caller read it.
    async fn pin(&self, ask: &Ask) -> Result<Pin, ReadError> {
        let mut waited = false;
        loop {
            let asked = self.asking(ask);
            // Another request of the same caller may have asked while this one waited.
            if let Some(version) = self.granted(ask, asked) {
                return Ok(Pin::Version(Pinned::unasked(version)));
            }
            // Where nodes cooperate, bytes come through the homes of their blocks: the lake is asked only for
            // the version.
            if ask.only_if_cached || !self.cooperation.is_alone() || self.knows(ask.object).await {
                return self.question(ask, asked).await;
            }
            // Readers that open one object share only its bytes, not the permission: a reader that has waited
            // asks the lake itself.
            match self.openings.enter(ask.object) {
                Opening::Lead(_guard) => return self.open(ask, asked).await,
                Opening::Wait(_) if waited => return self.open(ask, asked).await,
                Opening::Wait(ended) => {
                    ended.await;
                    waited = true;
                }
            }
        }
    }

    fn granted(&self, ask: &Ask, asked: Asked) -> Option<Arc<Version>> {
        if ask.reuse.is_zero() {
            return None;
        }
        let known = self.catalog.granted(ask.caller, ask.object, asked, ask.reuse)?;
        let is_enough = known.checksums == Checksums::Asked || !wants_checksums(ask);
        is_enough.then_some(known.version)
    }

    /// Whether a version of the object has been seen, so that its blocks may be here.
    async fn knows(&self, object: ObjectId) -> bool {
        if self.catalog.version(object).is_some() {
            return true;
        }
        // Blocks of another size are of no use; they are evicted in time.
        let described = self.store.describe(object).await;
        described.is_some_and(|version| version.block_bytes == self.block_bytes)
    }

    /// Asks everything in one request: may this caller read the object, which version is current, and what
    /// are its headers?
    ///
    /// The request carries no condition. A 304 would cost the lake as much and say less: tags, locks and
    /// metadata change without the ETag, and what a 304 tells of them differs from lake to lake.
    async fn question(&self, ask: &Ask, asked: Asked) -> Result<Pin, ReadError> {
        if is_of_page(ask) && wants_checksums(ask) {
            return self.open(ask, asked).await;
        }
        let head = self.send(ask, question_of(ask)).await?.into_parts().0;
        match head.status {
            StatusCode::OK | StatusCode::PARTIAL_CONTENT => {
                match self.learn(ask, head.status, &head.headers, asked) {
                    Ok((version, _)) => Ok(Pin::Version(Pinned {
                        version,
                        told: Some(Box::new(of_caller(&head.headers))),
                        ticket: None,
                        opened: false,
                    })),
                    Err(reason) => Ok(Pin::Answer(Box::new(Answer::Bypass(reason)))),
                }
            }
            // An overloaded lake is not asked twice.
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                Err(ReadError::LakeStatus(head.status))
            }
            // Any other answer has a body that only a GET brings: the client gets the answer it would get on
            // a cold object.
            _ => self.open(ask, asked).await,
        }
    }

    /// Asks the lake in the caller's name. A refusal ends the grants that this caller had before.
    async fn send(&self, ask: &Ask, request: EndpointRequest) -> Result<Response<LakeBody>, EndpointError> {
        let response = self.lake.send(request).await?;
        if is_refusal(response.status()) {
            self.catalog.revoke(ask.caller, ask.object);
        }
        Ok(response)
    }

    /// Opens an unknown object: metadata and first bytes in one request.
    async fn open(&self, ask: &Ask, asked: Asked) -> Result<Pin, ReadError> {
        let mut request = ask.origin.request(Method::GET);
        request.headers.extend(ask.origin.conditions());
        if let Some(range) = opening_range(ask.range, self.block_bytes, self.ahead) {
            request.headers.insert(header::RANGE, range);
        }
        let response = self.send(ask, request).await?;
        if !matches!(response.status(), StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            return Ok(Pin::Answer(Box::new(Answer::Relay(Box::new(response)))));
        }
        match self.learn(ask, response.status(), response.headers(), asked) {
            Ok((version, range)) => {
                let told = Some(Box::new(of_caller(response.headers())));
                let ticket = self
                    .fetcher
                    .stream(&version, range, response.into_body(), &ask.origin);
                Ok(Pin::Version(Pinned {
                    version,
                    told,
                    ticket,
                    opened: true,
                }))
            }
            Err(reason) => Ok(Pin::Answer(Box::new(Answer::Bypass(reason)))),
        }
    }

    /// Reads a version, and the range of its bytes that come along, from a `200` or `206`; notes that this
    /// caller may read it.
    fn learn(
        &self,
        ask: &Ask,
        status: StatusCode,
        headers: &HeaderMap,
        asked: Asked,
    ) -> Result<(Arc<Version>, ByteRange), Uncacheable> {
        let is_part = status == StatusCode::PARTIAL_CONTENT;
        let sent = if is_part {
            content_range(headers)
        } else {
            whole(headers)
        };
        let (range, size_bytes) = sent.ok_or(Uncacheable::NoLength)?;
        let version = Version::from_response(ask.object, headers, size_bytes, self.block_bytes)?;
        // Only a response to the whole object carries its checksums.
        let (version, checksums) = match (is_part, ask.checksum_mode) {
            (true, _) => (version.without_checksums(), Checksums::Unasked),
            (false, true) => (version, Checksums::Asked),
            (false, false) => (version, Checksums::Unasked),
        };
        let version = Arc::new(version);
        self.catalog
            .learn(ask.caller, &ask.name, &version, checksums, asked, ask.plain);
        Ok((version, range))
    }

    /// Whether the block is here, on disk or waiting for it. All readers share the lock of the store's index;
    /// a hit does without it.
    fn holds(&self, block: BlockId) -> bool {
        self.store.is_mapped(block) || self.fetcher.holds(block)
    }

    fn stream(
        &self,
        ask: &Ask,
        version: &Arc<Version>,
        range: ByteRange,
        ways: Ways,
        ticket: Option<StreamTicket>,
    ) -> BlockStream {
        let shelf = Shelf {
            store: Arc::clone(&self.store),
            fetcher: Arc::clone(&self.fetcher),
            version: Arc::clone(version),
            origin: Arc::clone(&ask.origin),
            ways,
        };
        BlockStream::new(Arc::new(shelf), range, ask.window(self.ahead), ticket)
    }
}

/// Whether checksums of the whole object are wanted.
fn wants_checksums(ask: &Ask) -> bool {
    ask.checksum_mode && ask.range == RangeRequest::Whole
}

/// Whether a web page reads the object, so that the lake's CORS rules apply.
fn is_of_page(ask: &Ask) -> bool {
    ask.origin.headers().contains_key(header::ORIGIN)
}

/// The cheapest request whose answer has all headers that the client is to see. For a web page this is a GET
/// of one byte: the lake's CORS rules may treat a HEAD differently.
fn question_of(ask: &Ask) -> EndpointRequest {
    if !is_of_page(ask) {
        return ask.origin.request(Method::HEAD);
    }
    let mut request = ask.origin.request(Method::GET);
    let first_byte = ByteRange { start: 0, end: 1 };
    request.headers.insert(header::RANGE, range_header(first_byte));
    request
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
