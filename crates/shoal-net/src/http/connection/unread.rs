//! Reads the rest of a request's body that its response did not need.
//!
//! After a response whose request was not read to its end, the HTTP library closes the connection without
//! announcing that in the response, and a client that sends its next request on the connection gets no
//! response. So the rest of a body is read before its response begins; if the rest is long or late, the
//! response announces that the connection closes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::Body as _;
use hyper::body::Incoming;
use parking_lot::Mutex;

use crate::http::deadline::Deadline;

/// Maximum number of bytes to read and discard. Beyond it, a new connection costs less.
const REST_BYTES: u64 = 256 << 10;

/// How long a response waits for the rest.
const REST_WAIT: Duration = Duration::from_millis(500);

/// Shares the state of a request's body with its response (HTTP/1.1 only).
#[derive(Debug)]
pub(super) struct BodyEnd(Mutex<State>);

#[derive(Debug)]
enum State {
    /// The service is reading the body.
    InUse,
    /// The service dropped the body before its end.
    Left(Incoming),
    /// The service has read the body to its end.
    Read,
}

/// The rest of a body, while it is read and discarded.
#[derive(Debug)]
pub(super) struct Rest {
    incoming: Incoming,
    bytes: u64,
    deadline: Deadline,
}

impl BodyEnd {
    /// Creates the shared state of a body, or `None` if the body is empty.
    pub(super) fn of(incoming: &Incoming) -> Option<Arc<Self>> {
        (!incoming.is_end_stream()).then(|| Arc::new(Self(Mutex::new(State::InUse))))
    }

    /// Records that the service has read the body to its end.
    pub(super) fn reached(&self) {
        *self.0.lock() = State::Read;
    }

    /// Records that the service will not read the rest.
    pub(super) fn left(&self, incoming: Incoming) {
        *self.0.lock() = State::Left(incoming);
    }

    /// Returns the rest to read before the response begins; if there is none to read, true if the body is at
    /// its end.
    pub(super) fn take_rest(&self) -> Result<Rest, bool> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, State::Read) {
            State::Left(incoming) => {
                let mut deadline = Deadline::default();
                deadline.set(REST_WAIT);
                Ok(Rest {
                    incoming,
                    bytes: 0,
                    deadline,
                })
            }
            State::InUse => Err(false),
            State::Read => Err(true),
        }
    }
}

impl Rest {
    /// Reads and discards. Ready with true if the end was reached.
    pub(super) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.bytes + self.incoming.size_hint().lower() > REST_BYTES {
            return Poll::Ready(false);
        }
        while self.bytes <= REST_BYTES {
            if self.incoming.is_end_stream() {
                return Poll::Ready(true);
            }
            let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
                ready!(self.deadline.poll_expired(cx));
                return Poll::Ready(false);
            };
            match frame {
                Some(Ok(frame)) => self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
                Some(Err(_)) => return Poll::Ready(false),
                None => return Poll::Ready(true),
            }
        }
        Poll::Ready(false)
    }
}
