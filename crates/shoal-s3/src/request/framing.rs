//! Determines the boundaries of each HTTP/1.1 request on a connection before the HTTP library sees a byte.
//!
//! Two parsers that disagree about the end of a request allow request smuggling, so this one accepts only
//! requests that every parser interprets alike: CRLF line ends, one length, one `Host`, no transfer encoding
//! other than `chunked`. The HTTP library frames accepted requests in the same way, and never sees rejected
//! ones.
//!
//! It is a pure state machine: bytes in, outcome out. It does no I/O, reads no clock, and allocates only for
//! errors.

mod chunked;
mod head;
mod syntax;
#[cfg(test)]
mod tests;

use crate::error::{ErrorCode, S3Error};

use chunked::{ChunkedBody, Progress};
use head::HeadScan;

/// The longest request head: request line, fields and the empty line, in bytes.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;

/// The maximum number of fields in a head or a trailer section: the number that the HTTP library keeps on its
/// stack.
pub const MAX_FIELDS: usize = 100;

/// Follows the requests of one connection.
#[derive(Debug, Default)]
pub struct Framing {
    state: State,
    /// The number of heads passed so far, which is also the number of the message whose head passed last.
    heads: u64,
}

/// The outcome of [`Framing::follow`].
#[derive(Debug)]
pub struct FramingOutcome {
    /// The number of bytes from the start that are unambiguous and may be passed on.
    pub pass_bytes: usize,
    /// Set if the bytes after those are rejected; nothing after them can be trusted.
    pub refusal: Option<S3Error>,
}

/// The part of a request to which the next byte on the connection belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// No request has begun.
    BetweenRequests,
    /// A head whose end has not arrived.
    InHead,
    /// The body of the last head that passed.
    InBody,
}

#[derive(Debug)]
enum State {
    /// Inside or before a head.
    Head(HeadScan),
    /// The number of bytes left of a body with `Content-Length`.
    Length(u64),
    Chunked(ChunkedBody),
    Refused {
        refusal: S3Error,
        in_body: bool,
    },
}

impl Default for State {
    fn default() -> Self {
        Self::Head(HeadScan::default())
    }
}

impl Framing {
    /// Checks the bytes of the connection that have not passed yet.
    ///
    /// `window` begins with the first byte that has not passed: bytes that an earlier call did not pass must
    /// be given again, followed by more. The outcome does not depend on how bytes are split over calls.
    pub fn follow(&mut self, window: &[u8]) -> FramingOutcome {
        let mut passed = 0;
        let refusal = loop {
            let rest = &window[passed..];
            let step = match &mut self.state {
                State::Refused { refusal, .. } => Err(refusal.clone()),
                _ if rest.is_empty() => Ok(0),
                State::Head(scan) => scan.advance(rest).map(|head| match head {
                    None => 0,
                    Some((length_bytes, body)) => {
                        self.heads += 1;
                        self.state = body;
                        length_bytes
                    }
                }),
                State::Length(left) => {
                    let taken = usize::try_from(*left).map_or(rest.len(), |left| left.min(rest.len()));
                    *left -= taken as u64;
                    if *left == 0 {
                        self.state = State::default();
                    }
                    Ok(taken)
                }
                State::Chunked(body) => body.advance(rest).map(|progress| match progress {
                    Progress::More(taken) => taken,
                    Progress::Complete(taken) => {
                        self.state = State::default();
                        taken
                    }
                }),
            };
            match step {
                Ok(0) => break None,
                Ok(taken) => {
                    passed += taken;
                    assert!(passed <= window.len(), "no byte passes before it arrives");
                }
                Err(refusal) => {
                    let in_body = self.position() == Position::InBody;
                    self.state = State::Refused {
                        refusal: refusal.clone(),
                        in_body,
                    };
                    break Some(refusal);
                }
            }
        };
        FramingOutcome {
            pass_bytes: passed,
            refusal,
        }
    }

    /// The part to which the next byte belongs; after a refusal, the part to which the rejected byte
    /// belonged.
    pub fn position(&self) -> Position {
        match &self.state {
            State::Head(scan) if scan.is_untouched() => Position::BetweenRequests,
            State::Head(_) | State::Refused { in_body: false, .. } => Position::InHead,
            State::Length(_) | State::Chunked(_) | State::Refused { in_body: true, .. } => Position::InBody,
        }
    }

    /// The number of heads passed so far.
    pub fn heads(&self) -> u64 {
        self.heads
    }
}

/// The error for bytes whose framing cannot be trusted.
fn bad_request(message: &'static str) -> S3Error {
    S3Error::new(ErrorCode::BadRequest, message).closing()
}

/// The error for a head or trailer section that exceeds its bounds.
fn too_large(message: &'static str) -> S3Error {
    S3Error::new(ErrorCode::RequestHeaderSectionTooLarge, message).closing()
}
