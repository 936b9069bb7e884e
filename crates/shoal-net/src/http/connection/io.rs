//! The socket below the HTTP library: lets only unambiguous bytes in, and bounds every wait.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::framing::{Framing, Position};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use super::buffer_budget::{BufferBudget, NARROW_BYTES, Width};
use super::{Exchange, Timeouts};
use crate::time::clock;
use crate::time::deadline::Deadline;

/// Replaces a refused request, so that the refusal is sent in order.
const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";

/// Initial buffer for an incomplete head, large enough for nearly all heads. It doubles whenever it is full.
const HELD_FIRST_BYTES: usize = 4096;

/// After its last response, the node reads and discards the client's input for up to this time, and up to a
/// number of bytes: closing a socket with unread bytes would reset the connection, and the client would lose
/// the response.
const LINGER: Duration = Duration::from_secs(5);
const LINGER_BYTES: u64 = 16 << 20;

/// A socket that follows the framing of its input and enforces deadlines in both directions.
#[derive(Debug)]
pub struct GuardedIo<S> {
    stream: S,
    exchange: Arc<Exchange>,
    timeouts: Timeouts,
    inbound: Inbound,
    /// Bytes of an incomplete head or chunk line.
    held: BytesMut,
    width: Width,
    /// Bytes that were held, have passed the framing, and wait to be read by the HTTP library.
    released: Bytes,
    reading: Deadline,
    waiting_for: Option<Wait>,
    writing: Deadline,
    closing: Closing,
}

/// The state of the input.
#[derive(Debug)]
enum Inbound {
    /// Passed to the HTTP library as far as the framing allows.
    Http1(Framing),
    /// Passed to the HTTP library, which alone understands the frames of HTTP/2.
    Http2,
    /// Discarded: a request was refused. The HTTP library gets the stand-in once, then nothing more.
    Refused { stand_in_given: bool },
    /// Discarded: the HTTP library sees the end of the stream.
    Ended,
}

/// The event that the read deadline was set for; a new event sets a new deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// A new request, after this number of bytes (HTTP/2: of requests) on the connection. The number is only
    /// compared when the socket is polled, so an idle connection is closed after one to two idle timeouts.
    Request(u64),
    /// The rest of a head, after this number of earlier heads.
    Head(u64),
    /// More of a body, after this number of received bytes.
    Body(u64),
    /// HTTP/2: flow-control window for responses. Checked periodically while there are any.
    Window,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    NotYet,
    /// The node has closed its side; up to this number of bytes from the client may still be discarded.
    Draining(u64),
    Closed,
}

impl<S> GuardedIo<S> {
    /// Guards a connection that speaks HTTP/1.1.
    pub fn http1(stream: S, exchange: Arc<Exchange>, timeouts: Timeouts) -> Self {
        Self::new(stream, exchange, timeouts, Inbound::Http1(Framing::default()))
    }

    /// Limits the memory beyond the first buffer by `budget`, which other connections share.
    #[must_use]
    pub fn within(mut self, budget: &BufferBudget) -> Self {
        self.width = Width::within(budget);
        self
    }

    /// Guards a connection that speaks HTTP/2. Only deadlines are enforced, because its framing is
    /// unambiguous. The HTTP library removes `#` and all that follows from a path before this node sees it;
    /// refusing such paths, as on HTTP/1.1, would require a second decoder of its headers.
    pub fn http2(stream: S, exchange: Arc<Exchange>, timeouts: Timeouts) -> Self {
        Self::new(stream, exchange, timeouts, Inbound::Http2)
    }

    fn new(stream: S, exchange: Arc<Exchange>, timeouts: Timeouts, inbound: Inbound) -> Self {
        Self {
            stream,
            exchange,
            timeouts,
            inbound,
            held: BytesMut::new(),
            width: Width::default(),
            released: Bytes::new(),
            reading: Deadline::default(),
            waiting_for: None,
            writing: Deadline::default(),
            closing: Closing::NotYet,
        }
    }

    /// Stops the input, and has the service answer with `error`.
    fn refuse(&mut self, error: S3Error) {
        let Inbound::Http1(framing) = &self.inbound else {
            unreachable!("only HTTP/1.1 messages are refused")
        };
        self.held = BytesMut::new();
        if framing.position() == Position::InBody {
            // The service already has this request and will see its body end early.
            self.exchange.refuse(framing.heads(), error);
            self.inbound = Inbound::Ended;
        } else {
            self.exchange.refuse(framing.heads() + 1, error);
            self.inbound = Inbound::Refused {
                stand_in_given: false,
            };
        }
    }

    /// Returns true if the client may be in the middle of a message.
    fn expects_more(&self) -> bool {
        match &self.inbound {
            Inbound::Http1(framing) => framing.position() != Position::BetweenRequests,
            Inbound::Http2 => false,
            Inbound::Refused { .. } => true,
            Inbound::Ended => self.exchange.refusal().is_some(),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> GuardedIo<S> {
    /// Reads from the socket, and passes on the bytes that the framing allows. Ready when something has
    /// changed: bytes in `buf`, bytes released, or another [`Inbound`].
    fn poll_follow(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        debug_assert!(
            self.released.is_empty(),
            "released bytes are read before others arrive"
        );
        let start = buf.filled().len();
        let direct = self.held.is_empty();
        let polled = if direct {
            self.poll_read_direct(cx, buf)
        } else {
            if self.held.len() == self.held.capacity() && !self.make_room() {
                let message = "Too many long request heads are on their way; please reduce your rate.";
                self.refuse(S3Error::new(ErrorCode::SlowDown, message).closing());
                return Poll::Ready(Ok(()));
            }
            pin!(self.stream.read_buf(&mut self.held)).poll(cx)
        };
        let Poll::Ready(read) = polled else {
            return self.poll_waiting(cx).map(Ok);
        };
        let read = read?;
        if read == 0 {
            self.inbound = Inbound::Ended;
            return Poll::Ready(Ok(()));
        }
        self.exchange.received_bytes.add(read);
        debug_assert!(
            !direct || read <= self.width.read_bytes_max(),
            "a narrow connection reads little"
        );

        let Inbound::Http1(framing) = &mut self.inbound else {
            unreachable!("only HTTP/1.1 is followed")
        };
        let outcome = if direct {
            let window = &buf.filled()[start..];
            let outcome = framing.follow(window);
            let rest = &window[outcome.pass_bytes..];
            if !rest.is_empty() {
                self.held = BytesMut::with_capacity(rest.len().max(HELD_FIRST_BYTES));
                self.held.extend_from_slice(rest);
            }
            buf.set_filled(start + outcome.pass_bytes);
            if read >= self.width.read_bytes_max() && framing.position() == Position::InBody {
                self.width.widen_for_body();
            }
            outcome
        } else {
            let outcome = framing.follow(&self.held);
            self.released = self.held.split_to(outcome.pass_bytes).freeze();
            if self.held.is_empty() {
                // An idle connection keeps no buffer.
                self.held = BytesMut::new();
            }
            if self.width.should_be_short() {
                self.exchange.ask_to_close();
            }
            outcome
        };
        if let Some(refusal) = outcome.refusal {
            self.refuse(refusal);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads into the HTTP library's own buffer. Returns the number of bytes.
    fn poll_read_direct(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        let start = buf.filled().len();
        let mut most = (&mut self.stream).take(self.width.read_bytes_max() as u64);
        let polled = Pin::new(&mut most).poll_read(cx, buf);
        polled.map_ok(|()| buf.filled().len() - start)
    }

    /// Waits until the deadline for the next expected bytes, when none have arrived. Ready when it has
    /// passed, and `inbound` reflects that.
    fn poll_waiting(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let (received, sent) = self.exchange.transferred_bytes();
        let (wait, timeout) = match &self.inbound {
            Inbound::Http1(framing) => match framing.position() {
                Position::BetweenRequests => (Wait::Request(received.wrapping_add(sent)), self.timeouts.idle),
                Position::InHead => (Wait::Head(framing.heads()), self.timeouts.header),
                Position::InBody => (Wait::Body(received), self.timeouts.stall),
            },
            _ if self.exchange.is_answering() => (Wait::Window, self.timeouts.stall),
            _ => (
                Wait::Request(self.exchange.calls.load(Ordering::Relaxed)),
                self.timeouts.idle,
            ),
        };
        if self.waiting_for != Some(wait) {
            self.waiting_for = Some(wait);
            self.reading.set(timeout);
        }
        loop {
            ready!(self.reading.poll_expired(cx));
            match wait {
                // A slow response does not make a connection idle.
                Wait::Request(_) if self.exchange.is_answering() || self.writing.is_set() => {
                    self.reading.set(timeout);
                }
                Wait::Request(_) if self.may_close_gracefully() => {
                    self.exchange.ask_to_close();
                    self.reading.set(timeout);
                }
                Wait::Request(_) => {
                    self.inbound = Inbound::Ended;
                    return Poll::Ready(());
                }
                Wait::Window if self.has_stalled_stream() => {
                    self.inbound = Inbound::Ended;
                    return Poll::Ready(());
                }
                Wait::Window => self.reading.set(timeout),
                Wait::Head(_) | Wait::Body(_) => {
                    let message = "Your socket connection to the server was not read from or written to within \
                                   the timeout period.";
                    self.refuse(S3Error::new(ErrorCode::RequestTimeout, message).closing());
                    return Poll::Ready(());
                }
            }
        }
    }

    /// Returns true if an idle connection can still be closed with a GOAWAY: on HTTP/2 only, and only once.
    fn may_close_gracefully(&self) -> bool {
        matches!(self.inbound, Inbound::Http2) && !self.exchange.should_close()
    }

    /// Returns true if the client has not asked for more of some response for too long.
    fn has_stalled_stream(&self) -> bool {
        let now = clock::runtime_instant();
        self.exchange
            .offers
            .oldest()
            .is_some_and(|since| now.duration_since(since) >= self.timeouts.stall)
    }

    fn poll_opaque(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let start = buf.filled().len();
        let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(cx, buf) else {
            return self.poll_waiting(cx).map(Ok);
        };
        read?;
        let read = buf.filled().len() - start;
        if read == 0 {
            self.inbound = Inbound::Ended;
        }
        self.exchange.received_bytes.add(read);
        Poll::Ready(Ok(()))
    }

    /// Passes the socket's result on, or an error if the client has not accepted a byte for too long.
    fn guard_write<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.writing.clear();
            return polled;
        }
        if !self.writing.is_set() {
            self.writing.set(self.timeouts.stall);
        }
        ready!(self.writing.poll_expired(cx));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the client has stopped reading",
        )))
    }

    fn count_sent(&self, polled: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(sent)) = polled {
            self.exchange.sent_bytes.add(*sent);
        }
    }

    /// Discards what the client still sends, up to the limits. Ready when the connection can be closed.
    fn poll_drain(&mut self, cx: &mut Context<'_>, mut left_bytes: u64) -> Poll<()> {
        let mut scratch = [0; 4096];
        while left_bytes > 0 {
            let mut buf = ReadBuf::new(&mut scratch);
            let polled = Pin::new(&mut self.stream).poll_read(cx, &mut buf);
            let read = buf.filled().len() as u64;
            if polled.is_pending() && self.expects_more() {
                self.closing = Closing::Draining(left_bytes);
                return self.reading.poll_expired(cx);
            }
            if read == 0 {
                break;
            }
            left_bytes = left_bytes.saturating_sub(read);
        }
        Poll::Ready(())
    }
}

impl<S> GuardedIo<S> {
    /// Enlarges `held` for an incomplete head. Returns `false` if the head is long and other connections have
    /// used up the budget.
    fn make_room(&mut self) -> bool {
        let capacity = self.held.capacity();
        if capacity >= NARROW_BYTES && !self.width.widen_for_head() {
            return false;
        }
        let doubled = (2 * capacity).max(HELD_FIRST_BYTES);
        let larger = if capacity < NARROW_BYTES {
            doubled.min(NARROW_BYTES)
        } else {
            doubled
        };
        let mut held = BytesMut::with_capacity(larger);
        held.extend_from_slice(&self.held);
        debug_assert!(held.len() < held.capacity(), "there is room for more of the head");
        self.held = held;
        true
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for GuardedIo<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let start = buf.filled().len();
        loop {
            if buf.filled().len() > start || buf.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            if this.released.has_remaining() {
                let most = buf.remaining().min(this.width.read_bytes_max());
                let taken = this.released.split_to(this.released.len().min(most));
                buf.put_slice(&taken);
                continue;
            }
            match &mut this.inbound {
                Inbound::Http1(_) => ready!(this.poll_follow(cx, buf))?,
                Inbound::Http2 => ready!(this.poll_opaque(cx, buf))?,
                Inbound::Refused {
                    stand_in_given: given @ false,
                } => {
                    *given = true;
                    this.released = Bytes::from_static(STAND_IN);
                }
                // The response to the stand-in ends the connection; until then only writes wake the task.
                Inbound::Refused { stand_in_given: true } => return Poll::Pending,
                Inbound::Ended => return Poll::Ready(Ok(())),
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for GuardedIo<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.count_sent(&polled);
        this.guard_write(cx, polled)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.count_sent(&polled);
        this.guard_write(cx, polled)
    }

    /// Always true, so that the HTTP library queues bodies without copying them behind the head.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.stream).poll_flush(cx);
        this.guard_write(cx, polled)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.closing == Closing::NotYet {
            let polled = Pin::new(&mut this.stream).poll_shutdown(cx);
            ready!(this.guard_write(cx, polled))?;
            this.reading.set(LINGER);
            this.closing = Closing::Draining(LINGER_BYTES);
        }
        if let Closing::Draining(left_bytes) = this.closing {
            ready!(this.poll_drain(cx, left_bytes));
            this.closing = Closing::Closed;
        }
        Poll::Ready(Ok(()))
    }
}
