//! Bodies on their way: those sent to an endpoint, and those received from it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;

use super::counters::Counters;
use super::error::{BoxError, EndpointError, Failure, RequestContext, find};
use super::expectation::{Expectation, Hold};
use super::pool::{Driven, Link, Pool};
use super::resume::{Reopening, Resumption};
use crate::s3::sigv4::SeedSignature;

/// A body that is sent while it is produced. An error in it aborts the request, so that the endpoint stores
/// nothing.
pub type RequestStream = UnsyncBoxBody<Bytes, BoxError>;

/// The body of a request.
pub enum RequestBody {
    /// No bytes.
    Empty,
    /// A stream; without a length it is sent in HTTP chunks (`Transfer-Encoding: chunked`).
    Stream {
        /// Exact length in bytes, if known.
        length: Option<u64>,
        /// The bytes.
        body: RequestStream,
    },
    /// A stream with signatures that continue that of the request head (`STREAMING-AWS4-HMAC-SHA256-…`).
    Seeded {
        /// Exact length in bytes, if known: signatures have a fixed length, so it is that of the client's
        /// body.
        length: Option<u64>,
        /// Produces the body once the head is signed.
        body: Box<dyn FnOnce(SeedSignature) -> RequestStream + Send>,
    },
}

/// The body type that hyper sends: a request body, watched for progress. Its length is in the request's
/// `Content-Length`.
pub(super) struct OutgoingBody(Option<Outgoing>);

struct Outgoing {
    stream: RequestStream,
    upload: Upload,
    /// Present until the endpoint wants the body.
    hold: Option<Hold>,
}

impl OutgoingBody {
    pub(super) const EMPTY: Self = Self(None);

    pub(super) fn stream(stream: RequestStream) -> Self {
        Self(Some(Outgoing {
            stream,
            upload: Upload::default(),
            hold: None,
        }))
    }

    /// Reports the progress of this body to the connection that sends it.
    pub(super) fn watched_by(&mut self, connection: &Upload) {
        if let Some(outgoing) = &mut self.0 {
            outgoing.upload = connection.clone();
        }
    }

    /// Holds the body back until the endpoint wants it.
    pub(super) fn held_for(&mut self, expectation: Expectation) {
        if let Some(outgoing) = &mut self.0 {
            outgoing.hold = Some(Hold::new(expectation));
        }
    }

    /// Returns the expectation that the body waits for, if it waits.
    pub(super) fn expectation(&self) -> Option<&Expectation> {
        self.0.as_ref()?.hold.as_ref().map(Hold::expectation)
    }
}

impl Outgoing {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(hold) = &mut self.hold {
            ready!(hold.poll_released(cx));
            self.hold = None;
        }
        Pin::new(&mut self.stream).poll_frame(cx)
    }
}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(outgoing) = &mut self.0 else {
            return Poll::Ready(None);
        };
        let frame = outgoing.poll_frame(cx);
        if outgoing.hold.as_ref().is_some_and(Hold::is_final) {
            // The endpoint no longer waits for this body: it is its turn to send its own.
            outgoing.upload.rests();
        } else {
            outgoing.upload.polled(frame.is_ready());
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|outgoing| outgoing.stream.is_end_stream())
    }
}

/// Tells the stall watch of a connection how its request body progresses.
#[derive(Clone, Default)]
pub(super) struct Upload(Arc<AtomicU8>);

impl Upload {
    const AT_REST: u8 = 0;
    const MOVED: u8 = 1;
    const WAITS_FOR_US: u8 = 2;

    fn polled(&self, ready: bool) {
        self.0.store(
            if ready { Self::MOVED } else { Self::WAITS_FOR_US },
            Ordering::Relaxed,
        );
    }

    fn rests(&self) {
        self.0.store(Self::AT_REST, Ordering::Relaxed);
    }

    /// Whether the endpoint took bytes since the last call, or would if the node had any: then the endpoint
    /// is not to blame.
    pub(super) fn is_moving(&self) -> bool {
        let moved = Self::MOVED;
        match self
            .0
            .compare_exchange(moved, Self::AT_REST, Ordering::Relaxed, Ordering::Relaxed)
        {
            Ok(_) => true,
            Err(state) => state == Self::WAITS_FOR_US,
        }
    }
}

/// The body of an endpoint's response. Dropping it before its end aborts the transfer.
pub struct LakeBody {
    /// Bytes that were read and put back.
    ahead: Option<Bytes>,
    incoming: Incoming,
    /// Present until the body has ended or failed.
    link: Option<Box<Link>>,
    pool: Arc<Pool>,
    counters: Arc<Counters>,
    context: RequestContext,
    /// Asks for the rest of the body when it breaks.
    resumption: Option<Box<Resumption>>,
    /// The pending rest of a body that broke.
    reopening: Option<Reopening>,
}

impl LakeBody {
    pub(super) fn new(
        incoming: Incoming,
        link: Box<Link>,
        pool: Arc<Pool>,
        counters: Arc<Counters>,
        context: RequestContext,
    ) -> Self {
        let mut body = Self {
            ahead: None,
            incoming,
            link: Some(link),
            pool,
            counters,
            context,
            resumption: None,
            reopening: None,
        };
        body.release_at_end();
        body
    }

    /// Puts bytes back, to be read again before those to come.
    pub(super) fn put_back(&mut self, bytes: Bytes) {
        self.ahead = Some(bytes).filter(|bytes| !bytes.is_empty());
    }

    /// Returns the same body, which continues over another connection when it breaks.
    #[must_use]
    pub fn resumed_by(mut self, resumption: Resumption) -> Self {
        self.resumption = Some(Box::new(resumption));
        self
    }

    /// Waits for the rest of the body, if it broke.
    fn poll_reopened(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), EndpointError>> {
        let Some(reopening) = &mut self.reopening else {
            return Poll::Ready(Ok(()));
        };
        let reopened = ready!(reopening.as_mut().poll(cx));
        self.reopening = None;
        let Self { incoming, link, .. } = reopened?;
        (self.incoming, self.link) = (incoming, link);
        Poll::Ready(Ok(()))
    }

    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, EndpointError>>> {
        let Self {
            incoming,
            link,
            context,
            ..
        } = self;
        let Some(link) = link else {
            return Poll::Ready(None);
        };
        match ready!(link.poll_driving(cx, |cx| Pin::new(&mut *incoming).poll_frame(cx))) {
            Driven::Ready(frame) => {
                Poll::Ready(frame.map(|frame| frame.map_err(|error| broken(context, error))))
            }
            Driven::Stalled => Poll::Ready(Some(Err(context.timed_out(Failure::Stalled)))),
        }
    }

    fn received(&mut self, bytes: usize) {
        self.counters.received(bytes);
        if let Some(resumption) = &mut self.resumption {
            resumption.arrived(bytes as u64);
        }
        self.release_at_end();
    }

    /// Starts to ask for the rest of the body. Returns the error if it is final.
    fn broke(&mut self, error: EndpointError) -> Option<EndpointError> {
        self.link = None;
        self.counters.failure(error.kind());
        let Some(resumption) = &mut self.resumption else {
            return Some(error);
        };
        match resumption.after(error) {
            Ok(reopening) => {
                self.reopening = Some(reopening);
                None
            }
            Err(error) => {
                self.resumption = None;
                Some(error)
            }
        }
    }

    fn release_at_end(&mut self) {
        if self.incoming.is_end_stream()
            && let Some(link) = self.link.take()
        {
            self.pool.checkin(link);
        }
    }
}

impl Body for LakeBody {
    type Data = Bytes;
    type Error = EndpointError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, EndpointError>>> {
        let body = self.get_mut();
        if let Some(bytes) = body.ahead.take() {
            return Poll::Ready(Some(Ok(Frame::data(bytes))));
        }
        loop {
            if let Err(error) = ready!(body.poll_reopened(cx)) {
                return Poll::Ready(Some(Err(error)));
            }
            let frame = ready!(body.poll_incoming(cx));
            match frame {
                Some(Ok(frame)) => {
                    body.received(frame.data_ref().map_or(0, Bytes::len));
                    return Poll::Ready(Some(Ok(frame)));
                }
                Some(Err(error)) => {
                    if let Some(error) = body.broke(error) {
                        return Poll::Ready(Some(Err(error)));
                    }
                }
                None => {
                    if let Some(link) = body.link.take() {
                        body.pool.checkin(link);
                    }
                    return Poll::Ready(None);
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ahead.is_none() && self.reopening.is_none() && self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let ahead = self.ahead.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let mut hint = self.incoming.size_hint();
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + ahead);
        }
        hint.set_lower(hint.lower() + ahead);
        hint
    }
}

fn broken(context: &RequestContext, error: hyper::Error) -> EndpointError {
    let reset = find::<io::Error>(&error).is_some_and(|io| io.kind() == io::ErrorKind::ConnectionReset);
    context.failed(if reset { Failure::Reset } else { Failure::Truncated }, error)
}
