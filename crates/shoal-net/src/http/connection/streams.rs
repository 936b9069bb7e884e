//! Detects HTTP/2 stalls that the socket cannot see: a peer that answers pings but stalls one of its streams.
//!
//! On HTTP/1.1 the socket's own deadlines suffice, and this module costs nothing.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Exchange;
use super::unread::BodyEnd;
use crate::http::expectation::Continued;
use crate::time::clock;
use crate::time::deadline::Deadline;

/// The body of an incoming request.
#[derive(Debug, Default)]
pub struct ClientBody {
    /// Bytes that were put back, to be read again.
    again: VecDeque<Bytes>,
    /// `None` for an empty body.
    incoming: Option<Incoming>,
    stall_timeout: Option<StallTimeout>,
    /// Present if the client waits for `100 Continue`; set when the body is first polled.
    continued: Option<Continued>,
    /// Notified of the end of the body.
    end: Option<Arc<BodyEnd>>,
}

#[derive(Debug)]
struct StallTimeout {
    stall: Duration,
    deadline: Deadline,
}

/// The reason why a request body ended early.
#[derive(Debug, thiserror::Error)]
pub enum ClientBodyError {
    /// The client stopped sending in the middle of the body.
    #[error("the client has stopped sending")]
    Stalled,
    /// The connection or the stream ended, or its framing was invalid.
    #[error(transparent)]
    Broken(#[from] hyper::Error),
}

impl ClientBody {
    /// An empty body.
    pub fn empty() -> Self {
        Self::default()
    }

    /// An HTTP/1.1 body, whose stalls are bounded by the socket's deadlines. `waits` is true if the client
    /// waits for `100 Continue`.
    pub(super) fn of_http1(incoming: Incoming, waits: bool, end: Option<Arc<BodyEnd>>) -> Self {
        let mut body = Self::empty();
        body.incoming = Some(incoming);
        body.continued = waits.then(Continued::default);
        body.end = end;
        body
    }

    /// An HTTP/2 body, which may stall for up to `stall` while the node waits for it.
    pub(super) fn of_http2(incoming: Incoming, stall: Duration) -> Self {
        let deadline = Deadline::default();
        let mut body = Self::empty();
        body.incoming = Some(incoming);
        body.stall_timeout = Some(StallTimeout { stall, deadline });
        body
    }

    /// Puts back bytes that were read.
    pub fn read_again(&mut self, bytes: Vec<Bytes>) {
        self.again = bytes.into_iter().chain(std::mem::take(&mut self.again)).collect();
    }

    /// Returns a handle that shows if the client has been sent `100 Continue`.
    pub fn continued(&mut self) -> Continued {
        self.continued.get_or_insert_default().clone()
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = ClientBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ClientBodyError>>> {
        let this = self.get_mut();
        if let Some(bytes) = this.again.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        let Some(incoming) = &mut this.incoming else {
            return Poll::Ready(None);
        };
        if let Some(continued) = this.continued.take()
            && !incoming.is_end_stream()
        {
            continued.say();
        }
        let polled = Pin::new(&mut *incoming).poll_frame(cx);
        let is_read = incoming.is_end_stream() || matches!(polled, Poll::Ready(None));
        if is_read && let Some(end) = this.end.take() {
            end.reached();
        }
        if let Some(StallTimeout { stall, deadline }) = &mut this.stall_timeout {
            if polled.is_ready() {
                deadline.clear();
            } else {
                if !deadline.is_set() {
                    deadline.set(*stall);
                }
                if deadline.poll_expired(cx).is_ready() {
                    return Poll::Ready(Some(Err(ClientBodyError::Stalled)));
                }
            }
        }
        polled.map(|frame| frame.map(|frame| frame.map_err(ClientBodyError::Broken)))
    }

    fn is_end_stream(&self) -> bool {
        self.again.is_empty() && self.incoming.as_ref().is_none_or(Incoming::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let incoming = self.incoming.as_ref();
        let rest = incoming.map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint);
        let again = self.again.iter().map(|bytes| bytes.len() as u64).sum::<u64>();
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + again);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + again);
        }
        hint
    }
}

impl Drop for ClientBody {
    fn drop(&mut self) {
        // A client that waits for `100 Continue` does not send the rest.
        if self.continued.is_none()
            && let (Some(end), Some(incoming)) = (self.end.take(), self.incoming.take())
        {
            end.left(incoming);
        }
    }
}

/// The responses whose client has got the head or a frame but has not asked for the next one, each with the
/// time when that wait began.
#[derive(Debug, Default)]
pub(super) struct Offers(Mutex<HashMap<u64, Instant>>);

impl Offers {
    /// Returns the time when the longest of these waits began.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.0.lock().values().min().copied()
    }
}

/// The entry of one response in the [`Offers`] of its connection.
#[derive(Debug)]
pub(super) struct Offer {
    exchange: Arc<Exchange>,
    message: u64,
}

impl Offer {
    /// Adds a response whose first frame the client has not asked for yet.
    pub(super) fn open(exchange: Arc<Exchange>, message: u64) -> Self {
        let offer = Self { exchange, message };
        offer.wait();
        offer
    }

    /// Starts the wait for the client to ask for the next frame.
    pub(super) fn wait(&self) {
        self.exchange
            .offers
            .0
            .lock()
            .insert(self.message, clock::runtime_instant());
    }

    /// Ends the wait: the client has asked.
    pub(super) fn taken(&self) {
        self.exchange.offers.0.lock().remove(&self.message);
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.taken();
    }
}
