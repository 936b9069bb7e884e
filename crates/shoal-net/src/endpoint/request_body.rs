//! Bodies of requests to an endpoint.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::Method;
use http_body::{Body, Frame};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use shoal_s3::sigv4::SeedSignature;

use super::error::BoxError;
use super::expectation::Expectation;
use crate::link::Flow;

/// A body that is sent while it is produced. If it fails, the request is aborted, so that the endpoint stores
/// nothing.
pub type RequestStream = UnsyncBoxBody<Bytes, BoxError>;

/// The body of a request.
pub enum RequestBody {
    /// No body.
    Empty,
    /// Bytes in memory, which can be sent again.
    Whole(Bytes),
    /// A stream. Without a length it is sent in HTTP chunks (`Transfer-Encoding: chunked`).
    Stream {
        /// Exact length in bytes, if known.
        length: Option<u64>,
        /// The bytes.
        body: RequestStream,
    },
    /// A stream with signatures that are chained to that of the head (`STREAMING-AWS4-HMAC-SHA256-…`).
    Seeded {
        /// Exact length in bytes, if known. Signatures have a fixed length, so it equals that of the client's
        /// body.
        length: Option<u64>,
        /// Produces the body once the head is signed.
        body: Box<dyn FnOnce(SeedSignature) -> RequestStream + Send>,
    },
}

impl RequestBody {
    /// A stream of exactly `size_bytes`; no body at all if that is zero.
    pub fn from_stream(size_bytes: u64, body: RequestStream) -> Self {
        match size_bytes {
            0 => Self::Empty,
            length => Self::Stream {
                length: Some(length),
                body,
            },
        }
    }

    /// Returns the `Content-Length` to send, if the length is known. A GET or HEAD without a body has none.
    pub(super) fn content_length(&self, method: &Method) -> Option<u64> {
        match self {
            Self::Empty if *method == Method::GET || *method == Method::HEAD => None,
            Self::Empty => Some(0),
            Self::Whole(bytes) => Some(bytes.len() as u64),
            Self::Stream { length, .. } | Self::Seeded { length, .. } => *length,
        }
    }
}

/// The body type that hyper sends: a request body whose progress is watched. Its length is in the
/// `Content-Length` of the request.
#[derive(Default)]
pub(super) struct OutgoingBody {
    /// `None` for an empty body.
    stream: Option<RequestStream>,
    /// The progress that the sending connection watches.
    pub(super) upload: Option<UploadProgress>,
    /// Present until the endpoint requests the body.
    hold: Option<Hold>,
    /// Paces the body, if the link is metered.
    pace: Option<Pace>,
}

/// Holds a body back until its expectation is met.
struct Hold {
    expectation: Expectation,
    released: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Cuts a body into frames that the link permits.
struct Pace {
    flow: Box<Flow>,
    /// Bytes of the body that are not permitted yet.
    rest: Bytes,
}

impl OutgoingBody {
    /// A body of bytes in memory.
    pub(super) fn whole(bytes: Bytes) -> Self {
        if bytes.is_empty() {
            return Self::default();
        }
        Self::stream(Full::new(bytes).map_err(|never| match never {}).boxed_unsync())
    }

    pub(super) fn stream(stream: RequestStream) -> Self {
        Self {
            stream: Some(stream),
            ..Self::default()
        }
    }

    /// Holds the body back until the endpoint requests it.
    pub(super) fn held_for(&mut self, expectation: Expectation) {
        self.hold = Some(Hold {
            released: Box::pin(expectation.clone().released()),
            expectation,
        });
    }

    /// Paces the body by `flow`.
    pub(super) fn paced_by(&mut self, flow: Box<Flow>) {
        let rest = Bytes::new();
        self.pace = Some(Pace { flow, rest });
    }

    fn poll_released(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(hold) = &mut self.hold {
            ready!(hold.released.as_mut().poll(cx));
            self.hold = None;
        }
        let Some(stream) = &mut self.stream else {
            return Poll::Ready(None);
        };
        match &mut self.pace {
            None => Pin::new(stream).poll_frame(cx),
            Some(pace) => pace.poll_frame(stream, cx),
        }
    }
}

impl Pace {
    fn poll_frame(
        &mut self,
        stream: &mut RequestStream,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        while self.rest.is_empty() {
            let Some(frame) = ready!(Pin::new(&mut *stream).poll_frame(cx)) else {
                return Poll::Ready(None);
            };
            match frame.map(Frame::into_data) {
                Ok(Ok(data)) => self.rest = data,
                Ok(Err(trailers)) => return Poll::Ready(Some(Ok(trailers))),
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
        ready!(self.flow.poll_permitted(cx, Some(self.rest.len() as u64)));
        let piece = self.rest.split_to(self.flow.permitted(self.rest.len()));
        debug_assert!(!piece.is_empty(), "permission is for one byte at least");
        self.flow.moved(piece.len());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

impl Body for OutgoingBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = self.poll_released(cx);
        let is_final = self.hold.as_ref().is_some_and(|hold| hold.expectation.is_final());
        match &self.upload {
            // The endpoint no longer waits for this body: it is expected to send its own.
            Some(upload) if is_final => upload.rests(),
            Some(upload) => upload.polled(frame.is_ready()),
            None => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.stream.as_ref().is_none_or(Body::is_end_stream)
            && self.pace.as_ref().is_none_or(|pace| pace.rest.is_empty())
    }
}

/// Reports the progress of a request body to the connection's stall detection.
#[derive(Clone, Default)]
pub(super) struct UploadProgress(Arc<AtomicU8>);

impl UploadProgress {
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

    /// Returns true if the endpoint has accepted bytes since the last call, or would have if the node had
    /// any: in both cases the endpoint has not stalled.
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
