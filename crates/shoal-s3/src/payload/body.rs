//! The body that the lake client sends: the S3 client's body, checked on the way.

use std::collections::VecDeque;
use std::fmt::Display;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

use super::Payload;
use super::checker::Checker;
use super::declared::Announced;
use super::error::wrong_length;
use super::memory_limit::MemoryReservation;
use crate::error::{ErrorCode, S3Error};
use crate::sigv4::SeedSignature;

/// The error of a body, if it had one; shared with the task that waits for the lake's answer.
#[derive(Clone, Debug, Default)]
pub struct Outcome(Arc<OnceLock<S3Error>>);

impl Outcome {
    /// The error to return to the client instead of the lake's answer.
    pub fn error(&self) -> Option<&S3Error> {
        self.0.get()
    }
}

/// Forwards a body and completes it only if it passes all checks. Otherwise it ends in an error, so that the
/// lake receives an aborted request.
pub struct CheckedBody<B> {
    inner: B,
    checker: Checker,
    ready: VecDeque<Bytes>,
    /// Bytes still to yield, if their number was announced.
    length_left: Option<u64>,
    ended: bool,
    outcome: Outcome,
    /// Takes a copy of the data as it passes.
    tap: Option<Tap>,
    /// True to yield the data without its framing instead of the wire form.
    decodes: bool,
}

type Tap = Box<dyn FnMut(Vec<Bytes>) + Send + Sync>;

impl<B> CheckedBody<B> {
    /// Creates a body that is checked against the head of its request. An empty body is checked at once,
    /// because it may never be polled.
    ///
    /// # Errors
    ///
    /// Fails with S3's error if the head contradicts itself, or if an empty body does not match it.
    pub fn new(inner: B, parts: &Parts, payload: Payload) -> Result<Self, S3Error> {
        let announced = Announced::read(parts, payload)?;
        let length_left = announced.length;
        let mut checker = Checker::new(announced);
        let mut ready = VecDeque::new();
        let ended = length_left == Some(0);
        if ended {
            checker.finish(&mut ready)?;
        }
        Ok(Self {
            inner,
            checker,
            ready,
            length_left,
            ended,
            outcome: Outcome::default(),
            tap: None,
            decodes: false,
        })
    }

    /// Creates a body that this node consumes itself: it yields the data without its framing, as it arrives.
    /// The caller must discard the data if the body ends in an error.
    ///
    /// # Errors
    ///
    /// Fails as [`new`](Self::new) does.
    pub fn taken_here(inner: B, parts: &Parts, payload: Payload) -> Result<Self, S3Error> {
        // Every chunk passes with a signature of this node. Nothing verifies these signatures, so any seed
        // will do.
        let seed = payload.seed.clone();
        let mut body = Self::new(inner, parts, payload)?;
        if let Some(seed) = seed {
            body.sign_again(seed);
        }
        body.checker.keep_data();
        body.decodes = true;
        Ok(body)
    }

    /// Also passes the data, without its framing, to `tap`. The data is verified only at the end of the body.
    #[must_use]
    pub fn tapped_by(mut self, tap: impl FnMut(Vec<Bytes>) + Send + Sync + 'static) -> Self {
        self.checker.keep_data();
        self.tap = Some(Box::new(tap));
        self
    }

    /// Collects the whole body in memory, at most `bytes_max` bytes.
    ///
    /// # Errors
    ///
    /// Fails with S3's error if the body is invalid, if the node has no memory for it, or if it is longer,
    /// with `too_long` as the message for the client.
    pub async fn collect_at_most(mut self, bytes_max: usize, too_long: &'static str) -> Result<Bytes, S3Error>
    where
        Self: Body<Data = Bytes, Error = S3Error> + Unpin,
    {
        let (mut bytes, mut reservation) = (Vec::new(), MemoryReservation::none());
        while let Some(frame) = self.frame().await.transpose()? {
            let Ok(data) = frame.into_data() else { continue };
            if data.len() > bytes_max - bytes.len() {
                return Err(S3Error::new(ErrorCode::EntityTooLarge, too_long));
            }
            let grown = reservation.grow_to(bytes.len() + data.len());
            grown.map_err(|error| S3Error::from(error).closing())?;
            bytes.extend_from_slice(&data);
        }
        Ok(reservation.keep_with(bytes))
    }

    /// The checksum after the data, once the body has ended without an error.
    pub fn trailer(&self) -> Option<(HeaderName, HeaderValue)> {
        self.checker.trailer()
    }

    /// The handle on which an error of this body will appear.
    pub fn outcome(&self) -> Outcome {
        self.outcome.clone()
    }

    /// Signs the chunks for the lake, starting from the signature of the request to the lake. Must be called
    /// before the first poll if the client signed its chunks; other bodies are unaffected.
    pub fn sign_again(&mut self, seed: SeedSignature) {
        self.checker.sign_again(seed);
    }

    fn fail(&mut self, error: S3Error) -> S3Error {
        self.ended = true;
        self.ready.clear();
        self.outcome.0.get_or_init(|| error).clone()
    }
}

impl<B> Body for CheckedBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Display,
{
    type Data = Bytes;
    type Error = S3Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, S3Error>>> {
        let this = &mut *self;
        loop {
            if let Some(data) = this.ready.pop_front() {
                this.length_left = this
                    .length_left
                    .map(|left| left.saturating_sub(data.len() as u64));
                return Poll::Ready(Some(Ok(Frame::data(data))));
            }
            if this.ended {
                return Poll::Ready(None);
            }
            let checked = match ready!(Pin::new(&mut this.inner).poll_frame(cx)) {
                // HTTP trailers have no meaning in S3 and are dropped.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        let checked = this.checker.push(data, &mut this.ready);
                        if let Some(tap) = &mut this.tap {
                            tap(this.checker.take_data());
                        }
                        checked.map_err(S3Error::closing)
                    }
                    Err(_) => Ok(()),
                },
                Some(Err(_)) => Err(wrong_length().closing()),
                None => {
                    this.ended = true;
                    this.checker.finish(&mut this.ready)
                }
            };
            if this.decodes {
                this.ready = this.checker.take_data().into();
            }
            if let Err(error) = checked {
                return Poll::Ready(Some(Err(this.fail(error))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended && self.ready.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.length_left
            .map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
