//! The life of a GET: who may read which version, which bytes of it, from where.
//!
//! Nothing here counts or logs: the answer carries what happened, the edge records it.

mod openings;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::response::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use shoal_policy::{BlockId, Layer, ObjectId};

pub use self::openings::Openings;

use self::openings::Opening;
use crate::blocks::{BlockStream, Shelf, Ways, Window};
use crate::catalog::{Catalog, Checksums, Epoch, Remembered};
use crate::clock;
use crate::cooperation::Cooperation;
use crate::endpoint::{Endpoint, EndpointError, LakeBody};
use crate::fetch::{Fetcher, StreamTicket, Way, content_range, range_header};
use crate::flights::FlightError;
use crate::front::conditions::{Conditions, Verdict};
use crate::front::range::{ByteRange, RangeRequest};
use crate::identity::CallerId;
use crate::object::{ObjectName, Uncacheable, Version};
use crate::origin::Origin;
use crate::store::Store;

/// An object that changes more often than this while it is being opened is not read.
const RESTARTS: usize = 4;
/// `X-Cache` looks at the first blocks of a range only; 1 GiB at the default block size.
const BLOCKS_LOOKED_AT: u32 = 256;

/// Reads objects for clients.
pub struct Reader {
    /// The store behind us.
    pub lake: Arc<Endpoint>,
    /// Blocks on disk.
    pub store: Arc<Store>,
    /// Versions and grants.
    pub catalog: Arc<Catalog>,
    /// Blocks from elsewhere.
    pub fetcher: Arc<Fetcher>,
    /// Who shares blocks with this node.
    pub cooperation: Arc<Cooperation>,
    /// Read-ahead of one reader, in blocks.
    pub ahead: usize,
    /// Size of a block.
    pub block_bytes: u64,
    /// Objects being opened for the first time.
    pub openings: Openings,
    /// The lake's 304 carries no date (Ceph RGW's does not), so it cannot tell old metadata from new: the question is
    /// then asked without a condition, at the same price of one answer without a body.
    pub undated: AtomicBool,
}

/// A GET, understood.
#[derive(Debug)]
pub struct Ask {
    /// Who asks.
    pub caller: CallerId,
    /// What for.
    pub name: ObjectName,
    /// Digest of the name.
    pub object: ObjectId,
    /// Which bytes.
    pub range: RangeRequest,
    /// Under which conditions.
    pub conditions: Conditions,
    /// How the lake is asked in the client's name.
    pub origin: Arc<Origin>,
    /// How old a yes of the lake may be; zero when the client or the configuration wants to ask.
    pub reuse: Duration,
    /// `Cache-Control: only-if-cached`
    pub only_if_cached: bool,
    /// `x-amz-checksum-mode: ENABLED`
    pub checksum_mode: bool,
}

impl Ask {
    /// Which bytes of `version` answer this; the answer itself, if none do.
    pub fn locate(&self, version: &Arc<Version>) -> Result<ByteRange, Answer> {
        match self.conditions.judge(&version.etag, version.last_modified) {
            Verdict::Proceed => {}
            Verdict::NotModified => return Err(Known::NotModified(Arc::clone(version)).into()),
            Verdict::Failed => return Err(Known::PreconditionFailed.into()),
        }
        if version.size_bytes == 0 && self.range != RangeRequest::Whole {
            return Err(Answer::Bypass(Uncacheable::Dialect));
        }
        let range = self.range.resolve(version.size_bytes);
        range.map_err(|_| Known::Unsatisfiable(version.size_bytes).into())
    }

    /// The window of a reader that may read `ahead` blocks ahead. Who asks to the end may want little of it.
    pub fn window(&self, ahead: usize) -> Window {
        let open_ended = matches!(self.range, RangeRequest::From(_));
        let now = if open_ended { 1 } else { ahead };
        Window { now, max: ahead }
    }
}

/// What becomes of a GET.
pub enum Answer {
    /// This node knows.
    Known(Known),
    /// What the lake said, as it is.
    Relay(Box<Response<LakeBody>>),
    /// Forward the request untouched, and say why.
    Bypass(Uncacheable),
}

/// What becomes of a GET whose answer is known.
pub enum Known {
    /// Bytes of a version.
    Object(Reading),
    /// `304`
    NotModified(Arc<Version>),
    /// `412`
    PreconditionFailed,
    /// `416`, with the size.
    Unsatisfiable(u64),
    /// `504`: only-if-cached, and some of it is not.
    NotCached,
}

impl From<Known> for Answer {
    fn from(known: Known) -> Self {
        Self::Known(known)
    }
}

/// What becomes of a HEAD whose answer is known.
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
            Verdict::Failed => Self::PreconditionFailed,
        }
    }
}

/// A response body to be, and what is known about it.
pub struct Reading {
    /// The pinned version.
    pub version: Arc<Version>,
    /// The bytes meant.
    pub range: ByteRange,
    /// Those bytes.
    pub blocks: Box<BlockStream>,
    /// Whether the lake was asked about permission and freshness for this read.
    pub asked: bool,
    /// Which part of the blocks was on this node at the start.
    pub residency: Residency,
}

/// How much of a range was here, on disk or waiting for it, when it was asked for.
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
    /// How many of the blocks of `range` are held. Looks at the first ones of a long range only.
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
    /// The lake answered with an error of its own to a question about the object.
    #[error("the lake answered {0}")]
    LakeStatus(StatusCode),
    /// A block cannot be had.
    #[error(transparent)]
    Flight(FlightError),
    /// Every attempt found another version.
    #[error("the object changes faster than it can be read")]
    Restless,
}

/// A version to read, and how we came by it.
struct Pinned {
    version: Arc<Version>,
    asked: bool,
    ticket: Option<StreamTicket>,
    /// The version's bytes came with the answer that named it, so nothing of it was here.
    opened: bool,
}

impl Pinned {
    /// The lake's remembered yes.
    fn unasked(version: Arc<Version>) -> Self {
        Self {
            version,
            asked: false,
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
                // What waits for the lake has a box of its own, so that a hit carries none of it along.
                None => match Box::pin(self.pin(ask)).await? {
                    Pin::Version(pinned) => pinned,
                    Pin::Answer(answer) => return Ok(*answer),
                },
            };
            let Pinned {
                version,
                asked,
                ticket,
                opened,
            } = pinned;
            let range = match ask.locate(&version) {
                Ok(range) => range,
                Err(answer) => return Ok(answer),
            };
            let residency = if opened {
                Residency::None
            } else {
                Residency::of(&version, range, |block| self.holds(block))
            };
            if ask.only_if_cached && residency != Residency::All {
                return Ok(Known::NotCached.into());
            }
            let mut blocks = Box::new(self.stream(ask, &version, range, ticket));
            match blocks.first_piece().await {
                Ok(()) => {
                    let reading = Reading {
                        version,
                        range,
                        blocks,
                        asked,
                        residency,
                    };
                    return Ok(Known::Object(reading).into());
                }
                Err(FlightError::Changed) => self.catalog.forget_object(&ask.name),
                Err(error) => return Err(ReadError::Flight(error)),
            }
        }
        Err(ReadError::Restless)
    }

    /// Answers a HEAD from a remembered yes; `None`: the lake must be asked.
    pub fn head(&self, ask: &Ask) -> Option<HeadAnswer> {
        let version = self.granted(ask, self.asking(ask))?;
        Some(HeadAnswer::of(version, &ask.conditions))
    }

    /// The moment of a question to the lake, to be given with its answer.
    pub fn asking(&self, ask: &Ask) -> (Epoch, Instant) {
        (self.catalog.epoch(&ask.name), clock::instant())
    }

    /// Notes what the lake said to an unconditional HEAD. An answer that names no version teaches nothing.
    pub fn learn_from_head(&self, ask: &Ask, response: &Response<LakeBody>, asked: (Epoch, Instant)) {
        if response.status() == StatusCode::OK {
            self.learn(ask, response.status(), response.headers(), asked).ok();
        }
    }

    /// The current version, when the lake lets this caller read it.
    async fn pin(&self, ask: &Ask) -> Result<Pin, ReadError> {
        let mut waited = false;
        loop {
            let asked = self.asking(ask);
            // Somebody else with the same name may have asked while this one waited.
            if let Some(version) = self.granted(ask, asked) {
                return Ok(Pin::Version(Pinned::unasked(version)));
            }
            if let Some(known) = self.remembered(ask.object, asked.0).await {
                return self.question(ask, known, asked).await;
            }
            // Where nodes cooperate, bytes come through the homes of their blocks: the lake is asked for the version alone.
            if ask.only_if_cached || !self.cooperation.is_alone() {
                return self.inquire(ask, asked).await;
            }
            // Only bytes are shared between those who open one object, not the permission: who has waited asks for itself.
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

    fn granted(&self, ask: &Ask, (epoch, now): (Epoch, Instant)) -> Option<Arc<Version>> {
        if ask.reuse.is_zero() {
            return None;
        }
        let known = self
            .catalog
            .granted(ask.caller, ask.object, epoch, ask.reuse, now)?;
        (!wants_checksums(ask, &known)).then_some(known.version)
    }

    async fn remembered(&self, object: ObjectId, epoch: Epoch) -> Option<Remembered> {
        if let Some(known) = self.catalog.remembered(object, epoch) {
            return Some(known);
        }
        let version = self.store.describe(object).await?;
        // Blocks of another size are of no use; they leave in their time.
        let usable = version.block_bytes == self.block_bytes;
        usable.then_some(Remembered {
            version,
            checksums: Checksums::Unasked,
            overtaken: true,
        })
    }

    /// One body-less request asks both: may this caller read the object, and is the version we know still current?
    async fn question(
        &self,
        ask: &Ask,
        known: Remembered,
        asked: (Epoch, Instant),
    ) -> Result<Pin, ReadError> {
        if known.overtaken || wants_checksums(ask, &known) || self.undated.load(Ordering::Relaxed) {
            return self.inquire(ask, asked).await;
        }
        let version = known.version;
        let mut request = ask.origin.request(Method::HEAD);
        request
            .headers
            .insert(header::IF_NONE_MATCH, version.etag_header());
        let response = self.lake.send(request).await?;
        match response.status() {
            StatusCode::NOT_MODIFIED if same_date(&version, response.headers()) => {
                self.catalog
                    .learn(ask.caller, &ask.name, &version, known.checksums, asked);
                Ok(Pin::Version(Pinned {
                    version,
                    asked: true,
                    ticket: None,
                    opened: false,
                }))
            }
            StatusCode::NOT_MODIFIED => {
                let undated = !response.headers().contains_key(header::LAST_MODIFIED);
                self.undated.fetch_or(undated, Ordering::Relaxed);
                self.inquire(ask, asked).await
            }
            _ => self.inquired(ask, response.into_parts().0, asked).await,
        }
    }

    /// Asks for the metadata of whatever version is current.
    async fn inquire(&self, ask: &Ask, asked: (Epoch, Instant)) -> Result<Pin, ReadError> {
        let response = self.lake.send(ask.origin.request(Method::HEAD)).await?;
        self.inquired(ask, response.into_parts().0, asked).await
    }

    async fn inquired(&self, ask: &Ask, head: Parts, asked: (Epoch, Instant)) -> Result<Pin, ReadError> {
        match head.status {
            StatusCode::OK => match self.learn(ask, head.status, &head.headers, asked) {
                Ok((version, _)) => Ok(Pin::Version(Pinned {
                    version,
                    asked: true,
                    ticket: None,
                    opened: false,
                })),
                Err(reason) => Ok(Pin::Answer(Box::new(Answer::Bypass(reason)))),
            },
            status if status.is_server_error() => Err(ReadError::LakeStatus(status)),
            // A no has a body that only a GET brings: the client gets the answer it would get on a cold object.
            _ => {
                if let Some(known) = self.catalog.remembered(ask.object, asked.0)
                    && head.status == StatusCode::NOT_FOUND
                {
                    self.catalog.drop_version(ask.object, known.version.id);
                }
                self.open(ask, asked).await
            }
        }
    }

    /// Asks for an object we know nothing of: metadata and first bytes in one request.
    async fn open(&self, ask: &Ask, asked: (Epoch, Instant)) -> Result<Pin, ReadError> {
        let mut request = ask.origin.request(Method::GET);
        request.headers.extend(ask.origin.conditions());
        if let Some(range) = opening_range(ask.range, self.block_bytes, self.ahead) {
            request.headers.insert(header::RANGE, range);
        }
        let response = self.lake.send(request).await?;
        if !matches!(response.status(), StatusCode::OK | StatusCode::PARTIAL_CONTENT) {
            return Ok(Pin::Answer(Box::new(Answer::Relay(Box::new(response)))));
        }
        match self.learn(ask, response.status(), response.headers(), asked) {
            Ok((version, range)) => {
                let ticket = self
                    .fetcher
                    .stream(&version, range, response.into_body(), &ask.origin);
                Ok(Pin::Version(Pinned {
                    version,
                    asked: true,
                    ticket,
                    opened: true,
                }))
            }
            Err(reason) => Ok(Pin::Answer(Box::new(Answer::Bypass(reason)))),
        }
    }

    /// Reads a version, and which of its bytes come along, from a `200` or `206`; notes that this caller may read it.
    fn learn(
        &self,
        ask: &Ask,
        status: StatusCode,
        headers: &HeaderMap,
        asked: (Epoch, Instant),
    ) -> Result<(Arc<Version>, ByteRange), Uncacheable> {
        let is_part = status == StatusCode::PARTIAL_CONTENT;
        let sent = if is_part {
            content_range(headers)
        } else {
            whole(headers)
        };
        let (range, size_bytes) = sent.ok_or(Uncacheable::NoLength)?;
        let version = Arc::new(Version::from_response(
            ask.object,
            headers,
            size_bytes,
            self.block_bytes,
        )?);
        // Only a response to the whole object carries its checksums.
        let checksums = if ask.checksum_mode && !is_part {
            Checksums::Asked
        } else {
            Checksums::Unasked
        };
        self.catalog
            .learn(ask.caller, &ask.name, &version, checksums, asked);
        Ok((version, range))
    }

    /// Whether the block is here, on disk or waiting for it. All readers share the lock of the store's index; a hit does without it.
    fn holds(&self, block: BlockId) -> bool {
        self.store.is_mapped(block) || self.fetcher.holds(block)
    }

    fn stream(
        &self,
        ask: &Ask,
        version: &Arc<Version>,
        range: ByteRange,
        ticket: Option<StreamTicket>,
    ) -> BlockStream {
        let shelf = Shelf {
            store: Arc::clone(&self.store),
            fetcher: Arc::clone(&self.fetcher),
            version: Arc::clone(version),
            origin: Arc::clone(&ask.origin),
            ways: Ways::All(Way::Route(Layer::L1)),
        };
        BlockStream::new(Arc::new(shelf), range, ask.window(self.ahead), ticket)
    }
}

/// The bytes of a response without `Content-Range`, and the size they make.
fn whole(headers: &HeaderMap) -> Option<(ByteRange, u64)> {
    let size_bytes = headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()?;
    Some((
        ByteRange {
            start: 0,
            end: size_bytes,
        },
        size_bytes,
    ))
}

/// Checksums of the whole object are wanted and we never asked for them.
fn wants_checksums(ask: &Ask, known: &Remembered) -> bool {
    ask.checksum_mode && ask.range == RangeRequest::Whole && known.checksums == Checksums::Unasked
}

/// The same bytes written again with other metadata keep the ETag; the date that a lake sends with its 304 gives them
/// away.
fn same_date(version: &Version, not_modified: &HeaderMap) -> bool {
    let theirs = not_modified.get(header::LAST_MODIFIED);
    theirs.is_some() && theirs == version.headers.get(header::LAST_MODIFIED)
}

/// The range that opens an unknown object: from the first byte wanted to the end of the blocks it touches, or of so many as are
/// read ahead. `None`: the whole object.
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
