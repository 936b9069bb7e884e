//! Reads the rest of a request's body that its response did not need.
//!
//! After a response whose request was not read to its end, the HTTP library closes the connection without
//! announcing that in the response, and a client that sends its next request on the connection gets no
//! response. So the rest of a body is read before its response begins; if the rest is long or late, the
//! response announces that the connection closes.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use parking_lot::Mutex;
use tokio::time::timeout;

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

/// Reads the rest of a body and discards it. Returns true at its end, and false if the rest is long or late.
pub(super) type Rest = Pin<Box<dyn Future<Output = bool> + Send>>;

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
            State::Left(incoming) => Ok(Box::pin(async move {
                timeout(REST_WAIT, reads_to_end(incoming)).await.unwrap_or(false)
            })),
            State::InUse => Err(false),
            State::Read => Err(true),
        }
    }
}

/// Reads and discards a body, unless it is long. Returns true if its end was reached.
async fn reads_to_end(mut body: Incoming) -> bool {
    if body.size_hint().lower() > REST_BYTES {
        return false;
    }
    let mut bytes = 0;
    while bytes <= REST_BYTES {
        match body.frame().await {
            Some(Ok(frame)) => bytes += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(_)) => return false,
            None => return true,
        }
    }
    false
}
