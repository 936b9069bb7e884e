//! The socket as the HTTP library sees it: only unambiguous bytes come in, and no wait is unbounded.

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
use crate::clock;
use crate::http::deadline::Deadline;

/// Takes the place of a refused request, so that the refusal is answered in its turn.
const STAND_IN: &[u8] = b"GET / HTTP/1.1\r\nhost: refused\r\nconnection: close\r\n\r\n";

/// The first buffer for an incomplete head, which is enough for nearly all heads; the buffer doubles each
/// time it is full.
const HELD_FIRST_BYTES: usize = 4096;

/// How long and for how many bytes the node, after its last answer, reads and discards the client's input:
/// closing on unread bytes would reset the connection, and the client would lose the answer that tells it
/// why.
const LINGER: Duration = Duration::from_secs(5);
const LINGER_BYTES: u64 = 16 << 20;

/// A socket that follows the framing of what it reads and keeps the deadlines of both directions.
#[derive(Debug)]
pub struct GuardedIo<S> {
    stream: S,
    exchange: Arc<Exchange>,
    timeouts: Timeouts,
    inbound: Inbound,
    /// Bytes of a head or chunk line whose end has not arrived.
    held: BytesMut,
    width: Width,
    /// Bytes that were held, have passed the framing, and wait for the HTTP library to take them.
    released: Bytes,
    reading: Deadline,
    waiting_for: Option<Wait>,
    writing: Deadline,
    closing: Closing,
}

/// Destination of inbound bytes.
#[derive(Debug)]
enum Inbound {
    /// To the HTTP library, as far as the framing lets them through.
    Http1(Framing),
    /// To the HTTP library, which alone understands the frames of HTTP/2.
    Http2,
    /// Nowhere: a request was refused. The HTTP library gets the stand-in once, then nothing more.
    Refused { stand_in_given: bool },
    /// Nowhere: the HTTP library is told that the stream has ended.
    Ended,
}

/// The event that the reading deadline was set for; the deadline moves when this changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// A new request, after this number of bytes (HTTP/2: of requests) on the connection. The node notices
    /// that an answer has changed the number only when it next polls the socket, so an idle connection lives
    /// between one and two idle timeouts.
    Request(u64),
    /// The rest of the head, after this number of earlier heads.
    Head(u64),
    /// More of a body, after this number of received bytes.
    Body(u64),
    /// HTTP/2: room to send more of the answers. Checked from time to time while there are any.
    Window,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    NotYet,
    /// The node's side is closed; this number of bytes from the client may still be discarded.
    Draining(u64),
    Closed,
}

impl<S> GuardedIo<S> {
    /// Guards a connection that speaks HTTP/1.1.
    pub fn http1(stream: S, exchange: Arc<Exchange>, timeouts: Timeouts) -> Self {
        Self::new(stream, exchange, timeouts, Inbound::Http1(Framing::default()))
    }

    /// Takes all memory beyond the first buffer from `budget`, which other connections share.
    #[must_use]
    pub fn within(mut self, budget: &BufferBudget) -> Self {
        self.width = Width::within(budget);
        self
    }

    /// Guards a connection that speaks HTTP/2: deadlines only, because its framing leaves no room for two
    /// readings. The HTTP library cuts `#` and what follows off a path before anything here sees it; such a
    /// path cannot be refused as in HTTP/1.1 without a second decoder of its headers.
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

    /// Lets no more bytes through, and leaves the answer to the service.
    fn refuse(&mut self, error: S3Error) {
        let Inbound::Http1(framing) = &self.inbound else {
            unreachable!("only HTTP/1.1 messages are refused")
        };
        self.held = BytesMut::new();
        if framing.position() == Position::InBody {
            // The service already has this request and notices when the body breaks off.
            self.exchange.refuse(framing.heads(), error);
            self.inbound = Inbound::Ended;
        } else {
            self.exchange.refuse(framing.heads() + 1, error);
            self.inbound = Inbound::Refused {
                stand_in_given: false,
            };
        }
    }

    /// Whether the client may be in the middle of sending something.
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
    /// Reads from the socket and lets through the bytes that the framing allows. Ready when something has
    /// changed: bytes in `buf`, bytes released, or another [`Inbound`].
    fn poll_follow(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
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

    /// Reads into the HTTP library's own buffer and returns the number of bytes read.
    fn poll_read_direct(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<usize>> {
        let start = buf.filled().len();
        let mut most = (&mut self.stream).take(self.width.read_bytes_max() as u64);
        let polled = Pin::new(&mut most).poll_read(cx, buf);
        polled.map_ok(|()| buf.filled().len() - start)
    }

    /// Waits for the deadline of the next expected bytes, when none have arrived. Ready when it has passed
    /// and `inbound` says so.
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
                // A slow answer does not make a connection idle.
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

    /// Whether an idle connection can still be ended with a goodbye: only on HTTP/2, and only if that has not
    /// been tried.
    fn may_close_gracefully(&self) -> bool {
        matches!(self.inbound, Inbound::Http2) && !self.exchange.should_close()
    }

    /// Whether the client has not asked for more of some answer for too long.
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

    /// Passes the socket's result on, unless the client has not taken a byte for too long.
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

    /// Discards what the client still sends, within bounds; ready when nothing more is worth waiting for.
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
    /// Enlarges `held` for a head whose end has not arrived. Returns `false` if the head is long and other
    /// connections have taken all the room.
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
                // The answer to the stand-in ends the connection; until then only writes wake the task.
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

    /// Always true: the HTTP library then queues bodies as they are, and never copies them behind the head.
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
