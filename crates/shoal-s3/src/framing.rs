//! The boundaries of each HTTP/1.1 request on a connection, decided before the HTTP library sees a byte.
//!
//! Two parsers that disagree about the end of a request are a smuggling hole, so this one accepts only
//! requests that every parser reads alike: CRLF line ends, one length, one `Host`, `chunked` and nothing
//! else. The HTTP library frames accepted requests in the same way, and never sees refused ones.
//!
//! It is a pure state machine: bytes in, outcome out. It does no I/O, reads no clock, and allocates nothing
//! while nothing is wrong.

mod chunked;
mod head;
mod syntax;
#[cfg(test)]
mod tests;

use crate::error::{ErrorCode, S3Error};

use chunked::{ChunkedBody, Progress};
use head::{BodyLength, HeadScan};

/// The longest request head: request line, fields and the empty line, in bytes.
pub const MAX_HEAD_BYTES: usize = 64 * 1024;

/// The most fields that a head or a trailer section may have: the number that the HTTP library keeps on its
/// stack.
pub const MAX_FIELDS: usize = 100;

/// Follows the requests of one connection.
#[derive(Debug, Default)]
pub struct Framing {
    state: State,
    /// The number of heads that have passed. The message being read has this number once its head has passed.
    heads: u64,
}

/// The outcome of [`Framing::follow`].
#[derive(Debug)]
pub struct FramingOutcome {
    /// This many bytes from the start are whole, unambiguous pieces of requests and may go on.
    pub pass_bytes: usize,
    /// Set if the bytes after those are refused; nothing that follows them can be trusted.
    pub refusal: Option<S3Error>,
}

/// The part of a request that the next byte on the connection belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Position {
    /// Nothing: no request has begun.
    BetweenRequests,
    /// A head whose end has not arrived.
    InHead,
    /// The body of the last head that passed.
    InBody,
}

#[derive(Debug)]
enum State {
    /// A head, or the silence before it.
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
    /// Judges the bytes of the connection that have not passed.
    ///
    /// `window` begins with the first byte that has not passed: bytes that an earlier call left behind are
    /// shown again, followed by more. How the bytes are split over calls changes neither what passes nor the
    /// refusal.
    pub fn follow(&mut self, window: &[u8]) -> FramingOutcome {
        let mut passed = 0;
        loop {
            let rest = &window[passed..];
            let step = match &mut self.state {
                State::Refused { refusal, .. } => Err(refusal.clone()),
                _ if rest.is_empty() => Ok(0),
                State::Head(scan) => scan.advance(rest).map(|head| match head {
                    None => 0,
                    Some(head) => {
                        self.heads += 1;
                        self.state = body_state(head.body);
                        head.length_bytes
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
                Ok(0) => {
                    return FramingOutcome {
                        pass_bytes: passed,
                        refusal: None,
                    };
                }
                Ok(taken) => passed += taken,
                Err(refusal) => {
                    let in_body = self.position() == Position::InBody;
                    self.state = State::Refused {
                        refusal: refusal.clone(),
                        in_body,
                    };
                    return FramingOutcome {
                        pass_bytes: passed,
                        refusal: Some(refusal),
                    };
                }
            }
        }
    }

    /// The part that the next byte belongs to; after a refusal, the part that the refused byte belonged to.
    pub fn position(&self) -> Position {
        match &self.state {
            State::Head(scan) if scan.is_untouched() => Position::BetweenRequests,
            State::Head(_) | State::Refused { in_body: false, .. } => Position::InHead,
            State::Length(_) | State::Chunked(_) | State::Refused { in_body: true, .. } => Position::InBody,
        }
    }

    /// The number of heads that have passed.
    pub fn heads(&self) -> u64 {
        self.heads
    }
}

fn body_state(length: BodyLength) -> State {
    match length {
        BodyLength::Bytes(0) => State::default(),
        BodyLength::Bytes(length_bytes) => State::Length(length_bytes),
        BodyLength::Chunked => State::Chunked(ChunkedBody::default()),
    }
}

/// A refusal of bytes whose framing cannot be trusted.
fn bad_request(message: &'static str) -> S3Error {
    S3Error::new(ErrorCode::BadRequest, message).closing()
}

/// A refusal of a head or trailer section beyond its bounds.
fn too_large(message: &'static str) -> S3Error {
    S3Error::new(ErrorCode::RequestHeaderSectionTooLarge, message).closing()
}
