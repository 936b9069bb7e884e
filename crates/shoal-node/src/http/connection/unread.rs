//! The part of a request's body that its answer did not need.
//!
//! The HTTP library ends a connection after an answer whose request it has not read to its end, and the
//! answer does not say so. A client that sends its next request on that connection gets no answer. So the
//! rest of a body is read before its answer begins; if it is long or late, the answer says that the
//! connection ends.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body::Body as _;
use hyper::body::Incoming;
use parking_lot::Mutex;

use crate::http::deadline::Deadline;

/// The most that is read for nothing. Beyond it a new connection costs less.
const REST_BYTES: u64 = 256 << 10;

/// How long the answer waits for the rest.
const REST_WAIT: Duration = Duration::from_millis(500);

/// Tells the answer of an HTTP/1.1 request what became of the request's body.
#[derive(Debug)]
pub(super) struct BodyEnd(Mutex<State>);

#[derive(Debug)]
enum State {
    /// The service has the body.
    InUse,
    /// The service dropped the body before its end.
    Left(Incoming),
    /// The service has all of it.
    Read,
}

/// The rest of a body, while it is read for nothing.
#[derive(Debug)]
pub(super) struct Rest {
    incoming: Incoming,
    bytes: u64,
    deadline: Deadline,
}

impl BodyEnd {
    /// The end of this body; `None` if there is nothing to read.
    pub(super) fn of(incoming: &Incoming) -> Option<Arc<Self>> {
        (!incoming.is_end_stream()).then(|| Arc::new(Self(Mutex::new(State::InUse))))
    }

    /// The service has read all.
    pub(super) fn reached(&self) {
        *self.0.lock() = State::Read;
    }

    /// The service reads no further.
    pub(super) fn left(&self, incoming: Incoming) {
        *self.0.lock() = State::Left(incoming);
    }

    /// The rest to read before the answer begins, or whether the body is at its end.
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
    /// Reads on. Ready with whether the end was reached.
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
