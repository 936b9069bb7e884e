//! One client connection: what passes between the guarded socket below the HTTP library and the service above
//! it.
//!
//! ```text
//! socket ─ GuardedIo ─ hyper ─ ResponseService ─ the service
//!              └─────── Exchange ───────┘
//! ```
//!
//! [`GuardedIo`] follows the framing and enforces the deadlines. When it refuses a request, it cannot respond
//! by itself, because earlier requests may still be in progress and responses are ordered. It therefore hands
//! the HTTP library a stand-in request instead of the refused one, and [`ResponseService`] answers the
//! stand-in with the refusal. The HTTP library never sees a refused byte.

mod buffer_budget;
mod io;
mod response;
mod streams;
#[cfg(test)]
mod tests;
mod unread;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

pub use buffer_budget::BufferBudget;
pub use io::GuardedIo;
pub use response::ResponseService;
pub use streams::{ClientBody, ClientBodyError};

use shoal_s3::error::S3Error;
use streams::Offers;

use crate::fair::MidRequest;
use crate::limits::STALL_TIMEOUT;

/// A boxed error, the error type of bodies.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Time limits for a client.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// From the first byte of a head to its last. Also the limit of a TLS handshake.
    pub header: Duration,
    /// Between two requests.
    pub idle: Duration,
    /// Without progress of a body: no byte of a request that the node wants to read, or no byte of a response
    /// accepted by the client.
    pub stall: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            // A head is a few KiB; a client that takes longer for it keeps a connection from others.
            header: Duration::from_secs(15),
            // Clients that keep connections use them again much sooner.
            idle: Duration::from_mins(5),
            stall: STALL_TIMEOUT,
        }
    }
}

/// State that the socket and the service of one connection share.
#[derive(Debug, Default)]
pub struct Exchange {
    /// Requests handed to the service.
    calls: AtomicU64,
    /// Requests whose answer is not complete.
    in_flight: AtomicUsize,
    received_bytes: Count,
    sent_bytes: Count,
    refusal: OnceLock<RejectedMessage>,
    offers: Offers,
    /// The error for every request on this connection, if the listener has no room for the connection.
    turned_away: Option<S3Error>,
    /// True when the connection should be closed in the protocol's own way.
    should_close: AtomicBool,
}

impl MidRequest for Exchange {
    fn is_mid_request(&self) -> bool {
        self.is_answering()
    }
}

/// A sum that only the connection's own task adds to, and that other tasks may read. With a single writer, a
/// load and a store suffice; an atomic addition would cost about twelve times as much.
#[derive(Debug, Default)]
struct Count(AtomicU64);

impl Count {
    fn add(&self, bytes: usize) {
        self.0.store(self.get() + bytes as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The refusal of a message that violates HTTP or is too late.
#[derive(Debug)]
struct RejectedMessage {
    /// The number of the request on the connection, starting from one.
    message: u64,
    error: S3Error,
}

impl Exchange {
    /// Creates a connection that answers every request with `error`.
    pub fn turning_away(error: S3Error) -> Self {
        Self {
            turned_away: Some(error),
            ..Self::default()
        }
    }

    /// Returns the error with which the connection was refused, if it was.
    pub fn refusal(&self) -> Option<&S3Error> {
        self.refusal.get().map(|refusal| &refusal.error)
    }

    /// Returns the number of bytes received and sent, at the level of HTTP, without the overhead of TLS.
    pub fn transferred_bytes(&self) -> (u64, u64) {
        (self.received_bytes.get(), self.sent_bytes.get())
    }

    /// Returns true if the connection should now be closed in the protocol's own way.
    pub fn should_close(&self) -> bool {
        self.should_close.load(Ordering::Relaxed)
    }

    fn ask_to_close(&self) {
        self.should_close.store(true, Ordering::Relaxed);
    }

    /// Returns true if a request is being answered.
    pub fn is_answering(&self) -> bool {
        self.in_flight.load(Ordering::Relaxed) > 0
    }

    fn refuse(&self, message: u64, error: S3Error) {
        // The first refusal ends the connection; there is no second.
        let is_first = self.refusal.set(RejectedMessage { message, error }).is_ok();
        debug_assert!(is_first, "a connection is refused once");
    }

    fn refusal_of(&self, message: u64) -> Option<&S3Error> {
        self.refusal
            .get()
            .filter(|refusal| refusal.message == message)
            .map(|refusal| &refusal.error)
    }
}
