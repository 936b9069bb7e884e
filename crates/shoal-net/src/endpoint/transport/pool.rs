//! Connections to one endpoint, kept open between requests.
//!
//! A connection has no task of its own: the task that waits for a response head or reads a body drives it.
//! That saves a task switch for every frame, and if a reader stops reading, TCP's flow control stops the
//! sender.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use parking_lot::Mutex;
use shoal_base::send_permit::SendPermit;

use super::connect::{Connector, Stream};
use super::counters::EndpointCounters;
use super::socket::CurrentPermit;
use super::timeouts::RequestTimeouts;
use super::wake_filter::WakeFilter;
use crate::endpoint::error::BoxError;
use crate::endpoint::request_body::{OutgoingBody, UploadProgress};
use crate::time::clock;
use crate::time::deadline::Deadline;

/// Maximum number of idle connections. More may be open while requests are in flight, which the front limits.
const IDLE_MAX: usize = 256;

/// Most stores close an idle connection after a minute; the node closes it earlier.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);

/// Maximum size of a response head in bytes. S3 allows 2 KiB of user metadata, other stores allow more.
const HEAD_BYTES_MAX: usize = 32 << 10;
const HEAD_COUNT_MAX: usize = 256;

/// Maximum size of a read from the socket: hyper starts with 8 KiB and doubles while reads fill the buffer.
/// The bytes are written to disk and to clients at once, so they should still be in the CPU's cache: reads of
/// 512 KiB cost a third more CPU per byte than these.
const READ_BYTES_MAX: usize = 64 << 10;

/// The same for connections with a small receive window. After a read, the sender sends as many bytes in one
/// burst, and a client's bytes queue behind them. A response head must fit.
const SMALL_READ_BYTES_MAX: usize = HEAD_BYTES_MAX;

pub(super) struct Pool {
    connector: Connector,
    http: http1::Builder,
    idle: Mutex<VecDeque<Box<PooledConnection>>>,
    counters: Arc<EndpointCounters>,
}

impl Pool {
    /// Creates a pool of connections that `connector` makes, with a receive window of `window_bytes` if it is
    /// given.
    pub(super) fn new(
        connector: Connector,
        window_bytes: Option<u64>,
        counters: Arc<EndpointCounters>,
    ) -> Self {
        let read_bytes_max = window_bytes.map_or(READ_BYTES_MAX, |_| SMALL_READ_BYTES_MAX);
        let mut http = http1::Builder::new();
        http.max_buf_size(read_bytes_max)
            .max_header_size(HEAD_BYTES_MAX)
            .max_headers(HEAD_COUNT_MAX);
        Self {
            connector,
            http,
            idle: Mutex::default(),
            counters,
        }
    }

    /// Opens a new connection, even if others are idle.
    pub(super) async fn open(&self, timeouts: RequestTimeouts) -> Result<Box<PooledConnection>, BoxError> {
        let (stream, permit) = self.connector.connect(timeouts.connect).await?;
        let (sender, driver) = self.http.handshake(stream).await?;
        self.counters.connections.add(1);
        Ok(Box::new(PooledConnection::new(sender, driver, permit)))
    }

    /// Returns the connection to the pool, if it is idle.
    pub(super) fn checkin(&self, mut connection: Box<PooledConnection>) {
        if !connection.is_ready() {
            return;
        }
        debug_assert!(
            !connection.stalls_at.is_set(),
            "nobody waits for an idle connection"
        );
        let now = clock::instant();
        connection.permit.set(None);
        connection.reused = true;
        connection.idle_since = now;
        let mut idle = self.idle.lock();
        idle.push_back(connection);
        while idle
            .front()
            .is_some_and(|oldest| idle.len() > IDLE_MAX || oldest.is_stale(now))
        {
            idle.pop_front();
        }
        assert!(idle.len() <= IDLE_MAX, "idle connections are bounded");
    }

    /// Returns the most recently used connection, if one is idle. If the endpoint has closed it in the
    /// meantime, it returns the request unsent.
    pub(super) fn pop(&self) -> Option<Box<PooledConnection>> {
        let mut idle = self.idle.lock();
        let newest = idle.pop_back()?;
        if newest.is_stale(clock::instant()) {
            idle.clear();
            return None;
        }
        Some(newest)
    }
}

/// One connection and its driver.
pub(super) struct PooledConnection {
    sender: SendRequest<OutgoingBody>,
    /// `None` once the connection has ended. Dropping the driver returns a request that it has not taken.
    driver: Option<Connection<Stream, OutgoingBody>>,
    /// The permission to send the current request, until the connection is idle again.
    permit: CurrentPermit,
    /// True if it has carried a request before: the endpoint may be closing it at the same time.
    pub(super) reused: bool,
    wakes: WakeFilter,
    pub(super) upload: UploadProgress,
    /// The time within which the endpoint must send or accept bytes.
    stall_timeout: Duration,
    /// Set while the user waits for the endpoint. Time in which the process was stopped counts.
    stalls_at: Deadline,
    idle_since: Instant,
}

/// The reason why there is no response head.
pub(super) enum ExchangeError {
    /// The connection was closed before the first byte was sent; the request can be sent on another one.
    Unsent(Box<Request<OutgoingBody>>),
    Stalled,
    Broken(hyper::Error),
}

/// The endpoint neither sent nor accepted anything within the time limit.
pub(super) struct Stalled;

impl PooledConnection {
    fn new(
        sender: SendRequest<OutgoingBody>,
        driver: Connection<Stream, OutgoingBody>,
        permit: CurrentPermit,
    ) -> Self {
        Self {
            sender,
            driver: Some(driver),
            permit,
            reused: false,
            wakes: WakeFilter::new(),
            upload: UploadProgress::default(),
            stall_timeout: Duration::ZERO,
            stalls_at: Deadline::default(),
            idle_since: clock::instant(),
        }
    }

    /// Sends the request and drives the connection until the response head arrives.
    pub(super) async fn exchange(
        &mut self,
        request: Request<OutgoingBody>,
        timeouts: RequestTimeouts,
    ) -> Result<Response<Incoming>, ExchangeError> {
        self.permit.set(request.extensions().get::<SendPermit>().cloned());
        self.stall_timeout = timeouts.head;
        let mut response = pin!(self.sender.try_send_request(request));
        let answered = poll_fn(
            |cx| match self.poll_driving(cx, |cx| response.as_mut().poll(cx)) {
                Poll::Ready(Ok(Ok(response))) => Poll::Ready(Ok(response)),
                Poll::Ready(Ok(Err(mut refused))) => Poll::Ready(Err(match refused.take_message() {
                    Some(request) => ExchangeError::Unsent(Box::new(request)),
                    None => ExchangeError::Broken(refused.into_error()),
                })),
                Poll::Ready(Err(Stalled)) => Poll::Ready(Err(ExchangeError::Stalled)),
                Poll::Pending => Poll::Pending,
            },
        )
        .await;
        self.stall_timeout = timeouts.body;
        answered
    }

    /// Drives the connection and polls its user alternately, until the user has a result or both wait for the
    /// endpoint.
    pub(super) fn poll_driving<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<Result<T, Stalled>> {
        let Self { driver, wakes, .. } = self;
        let polled = wakes.poll(cx, |cx| {
            drive(driver, cx);
            poll(cx)
        });
        if let Poll::Ready(made) = polled {
            self.stalls_at.clear();
            return Poll::Ready(Ok(made));
        }
        if self.upload.is_moving() || !self.stalls_at.is_set() {
            self.stalls_at.set(self.stall_timeout);
        }
        self.stalls_at.poll_expired(cx).map(|()| Err(Stalled))
    }

    /// Returns true if the connection is open and idle. Registers no waker: a change is noticed at the next
    /// check.
    fn is_ready(&mut self) -> bool {
        drive(&mut self.driver, &mut Context::from_waker(Waker::noop()));
        self.driver.is_some() && self.sender.is_ready()
    }

    fn is_stale(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.idle_since) > IDLE_TIMEOUT
    }
}

/// Lets a connection read and write as much as it can.
fn drive(driver: &mut Option<Connection<Stream, OutgoingBody>>, cx: &mut Context<'_>) {
    if driver
        .as_mut()
        .is_some_and(|driver| Pin::new(driver).poll(cx).is_ready())
    {
        *driver = None;
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::{StreamExt as _, stream};
    use http_body::Frame;
    use http_body_util::{BodyExt, StreamBody};
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};
    use tokio::time::{Instant, sleep};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(8);

    const TIMEOUTS: RequestTimeouts = RequestTimeouts {
        connect: TIMEOUT,
        head: TIMEOUT,
        body: TIMEOUT,
    };

    /// Sends a body with a piece every five seconds, and asserts that the endpoint stalls. Returns after how
    /// many seconds.
    async fn seconds_to_stall(pieces: usize, endpoint: impl AsyncFnOnce(DuplexStream)) -> u64 {
        let (stream, far) = duplex(1 << 10);
        let stream: Stream = Box::new(TokioIo::new(stream));
        let (sender, driver) = http1::handshake(stream).await.unwrap();
        let mut connection = PooledConnection::new(sender, driver, CurrentPermit::default());
        let body = stream::iter(0..pieces).then(async |_| {
            sleep(Duration::from_secs(5)).await;
            Ok(Frame::data(Bytes::from(vec![0; 1 << 10])))
        });
        let mut body = OutgoingBody::stream(BodyExt::boxed_unsync(StreamBody::new(body)));
        body.upload = Some(connection.upload.clone());
        let began = Instant::now();
        let exchange = connection.exchange(Request::put("/").body(body).unwrap(), TIMEOUTS);
        tokio::select! {
            outcome = exchange => assert!(matches!(outcome, Err(ExchangeError::Stalled))),
            () = endpoint(far) => panic!("the connection was closed"),
        }
        began.elapsed().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn an_endpoint_that_takes_no_bytes_stalls_and_one_that_waits_for_the_body_does_not() {
        let takes_nothing = async |_far| std::future::pending().await;
        assert_eq!(seconds_to_stall(1, takes_nothing).await, 13);
        let answers_nothing = async |mut far: DuplexStream| drop(far.read_to_end(&mut Vec::new()).await);
        assert_eq!(
            seconds_to_stall(4, answers_nothing).await,
            28,
            "eight seconds after the last of four pieces"
        );
    }
}
