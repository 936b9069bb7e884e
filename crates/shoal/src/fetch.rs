//! How blocks come from the lake: one block by a range request, or a run of blocks from one response.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::BodyExt;
use shoal_policy::BlockId;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::endpoint::{Endpoint, EndpointRequest, LakeBody};
use crate::flights::{FlightError, Flights, Join, Pilot, Shipment};
use crate::front::range::ByteRange;
use crate::object::Version;
use crate::origin::Origin;
use crate::store::Store;

/// A fetch that finds the memory window full waits this long for room before it gives up with `503 SlowDown`.
const WINDOW_PATIENCE: Duration = Duration::from_secs(20);

/// Brings blocks from the lake to those who wait and to the store.
pub struct Fetcher {
    lake: Arc<Endpoint>,
    store: Arc<Store>,
    flights: Arc<Flights>,
    /// Bytes on their way and not yet on disk; one permit a KiB.
    window: Arc<Semaphore>,
    window_kib: usize,
    /// Blocks announced ahead of the one that a stream is bringing.
    ahead: u32,
}

/// Keeps a stream going while its reader is there, even when the reader is slow.
#[derive(Debug)]
pub struct StreamTicket {
    _owner: Arc<()>,
    traffic: Arc<Notify>,
}

impl Drop for StreamTicket {
    fn drop(&mut self) {
        self.traffic.notify_one();
    }
}

impl Fetcher {
    /// `window_bytes` bounds the bytes on their way; `ahead` is a reader's read-ahead in blocks.
    pub fn new(
        lake: Arc<Endpoint>,
        store: Arc<Store>,
        flights: Arc<Flights>,
        window_bytes: u64,
        ahead: usize,
    ) -> Self {
        let window_kib = (window_bytes >> 10) as usize;
        Self {
            lake,
            store,
            flights,
            window: Arc::new(Semaphore::new(window_kib)),
            window_kib,
            ahead: ahead as u32,
        }
    }

    /// Bytes of the memory window in use.
    pub fn window_used_bytes(&self) -> u64 {
        (self.window_kib.saturating_sub(self.window.available_permits()) as u64) << 10
    }

    /// Whether this node has every byte of the block, though perhaps not on disk yet.
    pub fn holds(&self, block: BlockId) -> bool {
        self.store.contains(block) || self.flights.holds(block, || self.store.contains(block))
    }

    /// Joins the flight of a block; when there is none, starts one in a task of its own. `None`: it landed meanwhile.
    pub fn join(
        self: &Arc<Self>,
        version: &Arc<Version>,
        index: u32,
        origin: &Arc<Origin>,
    ) -> Option<Boarded> {
        let traffic = Arc::new(Notify::new());
        match self.board(shipment(version, index, 0), &traffic) {
            Join::Landed => None,
            Join::Aboard(passenger) => Some(Boarded {
                passenger,
                led: false,
            }),
            Join::Lead(pilot, passenger) => {
                let this = Arc::clone(self);
                let (version, origin) = (Arc::clone(version), Arc::clone(origin));
                tokio::spawn(async move { this.bring(version, index, origin, pilot, traffic).await });
                Some(Boarded { passenger, led: true })
            }
        }
    }

    /// Fills blocks from a response that starts at byte `range.start` of the version and ends at `range.end`. Where it starts inside
    /// a block, what comes before is asked for afterwards, by `origin`: the reader's bytes come first.
    ///
    /// The first blocks are announced before this returns, so that their readers join instead of asking the lake again.
    /// `None`: others bring these blocks already, the response is dropped.
    pub fn stream(
        self: &Arc<Self>,
        version: &Arc<Version>,
        range: ByteRange,
        body: LakeBody,
        origin: &Arc<Origin>,
    ) -> Option<StreamTicket> {
        let whole_blocks_end = if range.end == version.size_bytes {
            u64::from(version.block_count())
        } else {
            range.end / version.block_bytes
        };
        let owner = Arc::new(());
        let mut stream = Stream {
            fetcher: Arc::clone(self),
            version: Arc::clone(version),
            origin: Arc::clone(origin),
            announced: VecDeque::new(),
            headless: None,
            next: (range.start / version.block_bytes) as u32,
            first: range.start % version.block_bytes,
            end: whole_blocks_end as u32,
            owner: Arc::downgrade(&owner),
            traffic: Arc::new(Notify::new()),
            body: Cursor::new(body),
        };
        stream.announce();
        if stream.announced.is_empty() {
            return None;
        }
        let ticket = StreamTicket {
            _owner: owner,
            traffic: Arc::clone(&stream.traffic),
        };
        tokio::spawn(stream.run());
        Some(ticket)
    }

    /// The life of one block's fetch.
    async fn bring(
        self: Arc<Self>,
        version: Arc<Version>,
        index: u32,
        origin: Arc<Origin>,
        pilot: Pilot,
        traffic: Arc<Notify>,
    ) {
        let carried = tokio::select! {
            carried = self.carry(&version, index, &origin, &pilot) => carried,
            // Dropping the response closes its connection: a reader that stops, stops the fetching.
            () = abandoned(&pilot, &traffic) => return,
        };
        match carried {
            Ok(()) => self.land(&version, pilot).await,
            Err(error) => pilot.fail(error),
        }
    }

    async fn carry(
        &self,
        version: &Version,
        index: u32,
        origin: &Origin,
        pilot: &Pilot,
    ) -> Result<(), FlightError> {
        pilot.hold_window(self.room(version.block_len(index)).await?);
        let part = ByteRange {
            start: 0,
            end: version.block_len(index),
        };
        self.ask(version, index, part, origin)
            .await?
            .fill(pilot, part.end)
            .await
    }

    /// Asks the lake for a part of a block, counted from the block's start.
    async fn ask(
        &self,
        version: &Version,
        index: u32,
        part: ByteRange,
        origin: &Origin,
    ) -> Result<Cursor, FlightError> {
        let block_start = u64::from(index) * version.block_bytes;
        let wanted = ByteRange {
            start: block_start + part.start,
            end: block_start + part.end,
        };
        let response = self
            .lake
            .send(block_request(version, wanted, origin))
            .await
            .map_err(lake_error)?;
        let skip = skip_to(version, wanted, &response)?;
        let mut cursor = Cursor::new(response.into_body());
        cursor.skip(skip).await?;
        Ok(cursor)
    }

    fn board(&self, shipment: Shipment, traffic: &Arc<Notify>) -> Join {
        self.flights
            .join(shipment, traffic, || self.store.contains(shipment.id))
    }

    /// Writes a complete block beside its readers' streams.
    async fn land(&self, version: &Arc<Version>, pilot: Pilot) {
        match self
            .store
            .put(pilot.shipment().id, Arc::clone(version), pilot.pieces())
            .await
        {
            Ok(mapped) => pilot.land(mapped),
            // Not storing costs speed, never a read; the store has counted the reason.
            Err(_refused) => pilot.keep(),
        }
    }

    async fn room(&self, bytes: u64) -> Result<OwnedSemaphorePermit, FlightError> {
        let kib = bytes.div_ceil(1024).min(self.window_kib as u64) as u32;
        let room = Arc::clone(&self.window).acquire_many_owned(kib);
        match tokio::time::timeout(WINDOW_PATIENCE, room).await {
            Ok(permit) => Ok(permit.expect("the window is never closed")),
            Err(_) => Err(FlightError::Busy),
        }
    }
}

/// A place in a flight.
#[derive(Debug)]
pub struct Boarded {
    /// Reads the block.
    pub passenger: crate::flights::Passenger,
    /// Whether this reader started the fetch: its failure is then its own.
    pub led: bool,
}

async fn abandoned(pilot: &Pilot, traffic: &Notify) {
    while pilot.is_awaited() {
        traffic.notified().await;
    }
}

fn shipment(version: &Version, index: u32, first: u64) -> Shipment {
    Shipment {
        id: version.block(index),
        len: version.block_len(index),
        first,
    }
}

/// Blocks filled one after another from one response.
struct Stream {
    fetcher: Arc<Fetcher>,
    version: Arc<Version>,
    origin: Arc<Origin>,
    /// Flights of the blocks to come, first one first.
    announced: VecDeque<Pilot>,
    /// The first block, when the response began inside it: all of it has arrived but its head.
    headless: Option<Pilot>,
    /// First block that is not announced yet.
    next: u32,
    /// Its first byte that the response brings.
    first: u64,
    /// One past the last block of the response.
    end: u32,
    owner: Weak<()>,
    traffic: Arc<Notify>,
    body: Cursor,
}

impl Stream {
    /// Announces blocks until the window is full. A block that someone else brings, or has brought, ends the stream
    /// before it: the lake is not asked to send what we have.
    fn announce(&mut self) {
        while self.next < self.end && self.announced.len() <= self.fetcher.ahead as usize {
            let first = std::mem::take(&mut self.first);
            match self
                .fetcher
                .board(shipment(&self.version, self.next, first), &self.traffic)
            {
                // The passenger leaves at once: a block is brought for readers, not for the stream itself.
                Join::Lead(pilot, _) => self.announced.push_back(pilot),
                Join::Aboard(_) | Join::Landed => self.end = self.next,
            }
            self.next += 1;
        }
    }

    async fn run(mut self) {
        while self.wait_for_demand().await {
            // Somebody else wants the first block from its start.
            if self.headless.as_ref().is_some_and(Pilot::is_awaited) {
                self.complete_first();
            }
            let Some(pilot) = self.announced.pop_front() else {
                break;
            };
            // Before the block is complete the next one is announced: a reader that takes its last byte finds the
            // block behind its window on its way.
            self.announce();
            if let Err(error) = self.bring(&pilot).await {
                self.announced
                    .drain(..)
                    .for_each(|pilot| pilot.fail(error.clone()));
                pilot.fail(error);
                break;
            }
            if pilot.shipment().first > 0 {
                self.headless = Some(pilot);
            } else {
                self.land(pilot);
            }
        }
        self.complete_first();
    }

    async fn bring(&mut self, pilot: &Pilot) -> Result<(), FlightError> {
        let Shipment { len, first, .. } = pilot.shipment();
        pilot.hold_window(self.fetcher.room(len).await?);
        self.body.fill(pilot, len - first).await
    }

    fn land(&self, pilot: Pilot) {
        let (fetcher, version) = (Arc::clone(&self.fetcher), Arc::clone(&self.version));
        tokio::spawn(async move { fetcher.land(&version, pilot).await });
    }

    /// Asks for the head of the first block, in a task of its own: the rest of it has been paid for.
    fn complete_first(&mut self) {
        let Some(pilot) = self.headless.take() else { return };
        let (fetcher, version) = (Arc::clone(&self.fetcher), Arc::clone(&self.version));
        let origin = Arc::clone(&self.origin);
        tokio::spawn(async move {
            let Shipment { id, first, .. } = pilot.shipment();
            let head = ByteRange { start: 0, end: first };
            let brought = async {
                fetcher
                    .ask(&version, id.index, head, &origin)
                    .await?
                    .fill(&pilot, first)
                    .await
            };
            match brought.await {
                Ok(()) => fetcher.land(&version, pilot).await,
                Err(error) => pilot.fail(error),
            }
        });
    }

    /// True when somebody waits for an announced block, false when nobody will.
    async fn wait_for_demand(&mut self) -> bool {
        loop {
            if self.announced.iter().any(Pilot::is_awaited) {
                return true;
            }
            if self.announced.is_empty() || self.owner.strong_count() == 0 {
                return false;
            }
            self.traffic.notified().await;
        }
    }
}

/// A response body, read in exact lengths.
struct Cursor {
    body: LakeBody,
    rest: Bytes,
}

impl Cursor {
    fn new(body: LakeBody) -> Self {
        Self {
            body,
            rest: Bytes::new(),
        }
    }

    /// Gives the pilot so many bytes.
    async fn fill(&mut self, pilot: &Pilot, mut missing: u64) -> Result<(), FlightError> {
        while missing > 0 {
            let piece = self.next(missing).await?;
            missing -= piece.len() as u64;
            pilot.push(piece);
        }
        Ok(())
    }

    async fn skip(&mut self, mut bytes: u64) -> Result<(), FlightError> {
        while bytes > 0 {
            bytes -= self.next(bytes).await?.len() as u64;
        }
        Ok(())
    }

    async fn next(&mut self, at_most: u64) -> Result<Bytes, FlightError> {
        while self.rest.is_empty() {
            let frame = self.body.frame().await;
            let frame =
                frame.ok_or_else(|| FlightError::Lake("the lake sent less than it announced".into()))?;
            self.rest = frame.map_err(lake_error)?.into_data().unwrap_or_default();
        }
        let len = at_most.min(self.rest.len() as u64) as usize;
        Ok(self.rest.split_to(len))
    }
}

fn block_request(version: &Version, wanted: ByteRange, origin: &Origin) -> EndpointRequest {
    let mut request = origin.request(Method::GET);
    request.headers.insert(header::RANGE, range_header(wanted));
    request.headers.insert(header::IF_MATCH, version.etag_header());
    request
}

/// `Range` for a non-empty run of bytes.
pub fn range_header(range: ByteRange) -> HeaderValue {
    HeaderValue::try_from(format!("bytes={}-{}", range.start, range.end - 1))
        .expect("digits are a header value")
}

/// Checks that a response brings `wanted` of `version`; returns how many bytes come before it.
///
/// A lake that ignores `If-Match` is caught by the ETag, one that ignores `Range` by the status.
fn skip_to<B>(version: &Version, wanted: ByteRange, response: &Response<B>) -> Result<u64, FlightError> {
    match response.status() {
        StatusCode::PARTIAL_CONTENT | StatusCode::OK => {}
        StatusCode::PRECONDITION_FAILED | StatusCode::NOT_FOUND | StatusCode::RANGE_NOT_SATISFIABLE => {
            return Err(FlightError::Changed);
        }
        status => return Err(FlightError::Status(status)),
    }
    if response
        .headers()
        .get(header::ETAG)
        .is_none_or(|etag| etag.as_bytes() != version.etag.as_bytes())
    {
        return Err(FlightError::Changed);
    }
    if response.status() == StatusCode::OK {
        return Ok(wanted.start);
    }
    match content_range(response.headers()) {
        Some((range, size)) if size == version.size_bytes && range == wanted => Ok(0),
        Some((_, size)) if size != version.size_bytes => Err(FlightError::Changed),
        _ => Err(FlightError::Lake(
            "the lake answered with another range than it was asked for".into(),
        )),
    }
}

/// `Content-Range: bytes first-last/size` as the range and the size.
pub fn content_range(headers: &HeaderMap) -> Option<(ByteRange, u64)> {
    let value = headers.get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (range, size) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, size): (u64, u64, u64) = (first.parse().ok()?, last.parse().ok()?, size.parse().ok()?);
    (first <= last && last < size).then_some((
        ByteRange {
            start: first,
            end: last + 1,
        },
        size,
    ))
}

fn lake_error(error: impl std::error::Error) -> FlightError {
    FlightError::Lake(error.to_string().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version() -> Version {
        let object = shoal_policy::ObjectId([1; 16]);
        Version {
            id: Version::id_of(object, "\"e\"", 10),
            object,
            etag: "\"e\"".into(),
            size_bytes: 10,
            block_bytes: 4,
            last_modified: None,
            headers: HeaderMap::new(),
        }
    }

    fn response(status: u16, headers: &[(&str, &str)]) -> Response<()> {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        response.body(()).unwrap()
    }

    #[test]
    fn only_the_wanted_bytes_of_the_pinned_version_are_accepted() {
        let wanted = ByteRange { start: 4, end: 8 };
        let judge =
            |status, headers: &[(&str, &str)]| skip_to(&version(), wanted, &response(status, headers));
        let etag = ("etag", "\"e\"");
        assert_eq!(judge(206, &[etag, ("content-range", "bytes 4-7/10")]).unwrap(), 0);
        assert_eq!(
            judge(200, &[etag]).unwrap(),
            4,
            "a lake that ignores Range sends the bytes before, too"
        );
        let changed = [
            judge(412, &[]),
            judge(404, &[]),
            judge(416, &[]),
            judge(206, &[("etag", "\"other\""), ("content-range", "bytes 4-7/10")]),
            judge(206, &[etag, ("content-range", "bytes 4-7/11")]),
            judge(200, &[]),
        ];
        assert!(
            changed
                .iter()
                .all(|judged| matches!(judged, Err(FlightError::Changed))),
            "{changed:?}"
        );
        assert!(matches!(
            judge(206, &[etag, ("content-range", "bytes 0-3/10")]),
            Err(FlightError::Lake(_))
        ));
        assert!(matches!(judge(206, &[etag]), Err(FlightError::Lake(_))));
        assert!(matches!(judge(503, &[]), Err(FlightError::Status(_))));
    }

    #[test]
    fn content_ranges_that_make_no_sense_are_none() {
        for value in [
            "bytes 5-4/10",
            "bytes 5-10/10",
            "bytes */10",
            "bytes 0-1/*",
            "0-1/2",
            "bytes -1/2",
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_RANGE, value.parse().unwrap());
            assert_eq!(content_range(&headers), None, "{value}");
        }
    }
}
