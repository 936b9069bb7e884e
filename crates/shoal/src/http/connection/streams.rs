//! What HTTP/2 hides from the socket: a peer that answers pings and yet keeps one of its streams waiting.
//!
//! On HTTP/1.1 the socket's own deadlines say it all, and nothing here costs anything.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
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
use crate::clock;
use crate::http::deadline::Deadline;
use crate::http::expectation::Continued;

/// The body of a request, on its way in.
#[derive(Debug)]
pub struct ClientBody {
    incoming: Incoming,
    patience: Option<Patience>,
    /// Of a client that waits, until it does not.
    continued: Option<Continued>,
}

#[derive(Debug)]
struct Patience {
    stall: Duration,
    deadline: Deadline,
}

/// Why a request body breaks off.
#[derive(Debug, thiserror::Error)]
pub enum ClientBodyError {
    /// The client went silent in the middle of it.
    #[error("the client has stopped sending")]
    Stalled,
    /// The connection or the stream ended, or its framing was wrong.
    #[error(transparent)]
    Broken(#[from] hyper::Error),
}

impl ClientBody {
    /// A body whose silence is bounded by its socket.
    pub(super) fn of_http1(incoming: Incoming) -> Self {
        Self {
            incoming,
            patience: None,
            continued: None,
        }
    }

    /// A body that may be silent for `stall` while we wait for it.
    pub(super) fn of_http2(incoming: Incoming, stall: Duration) -> Self {
        let deadline = Deadline::default();
        Self {
            incoming,
            patience: Some(Patience { stall, deadline }),
            continued: None,
        }
    }

    /// Tells from now on whether the client was told to go on.
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
        if let Some(continued) = this.continued.take()
            && !this.incoming.is_end_stream()
        {
            continued.say();
        }
        let polled = Pin::new(&mut this.incoming).poll_frame(cx);
        if let Some(Patience { stall, deadline }) = &mut this.patience {
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
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// Answers of which the client has a piece, or the head, and does not ask for the next: which, and since when.
#[derive(Debug, Default)]
pub(super) struct Offers(Mutex<HashMap<u64, Instant>>);

impl Offers {
    /// Since when the most patient of them has waited.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.0.lock().values().min().copied()
    }
}

/// One answer's place among the [`Offers`] of its connection.
#[derive(Debug)]
pub(super) struct Offer {
    exchange: Arc<Exchange>,
    message: u64,
}

impl Offer {
    /// An answer whose first piece nobody has asked for yet.
    pub(super) fn open(exchange: Arc<Exchange>, message: u64) -> Self {
        let offer = Self { exchange, message };
        offer.wait();
        offer
    }

    /// The client is to ask for the next piece.
    pub(super) fn wait(&self) {
        self.exchange
            .offers
            .0
            .lock()
            .insert(self.message, clock::runtime_instant());
    }

    /// It has.
    pub(super) fn taken(&self) {
        self.exchange.offers.0.lock().remove(&self.message);
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.taken();
    }
}
