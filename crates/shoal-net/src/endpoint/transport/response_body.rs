//! Bodies of an endpoint's responses, which can be resumed over another connection when they break off.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use shoal_base::causes::find;

use super::counters::EndpointCounters;
use super::pool::{Pool, PooledConnection, Stalled};
use crate::endpoint::error::{EndpointError, Failure, RequestContext};
use crate::endpoint::resume::{Reopening, Resumption};
use crate::link::Flow;
use crate::trace::Span;

/// The body of an endpoint's response. Dropping it before its end aborts the transfer.
pub struct LakeBody {
    /// Bytes that were read and put back.
    ahead: Option<Bytes>,
    incoming: Incoming,
    /// `None` once the body has ended or failed.
    connection: Option<Box<PooledConnection>>,
    pool: Arc<Pool>,
    counters: Arc<EndpointCounters>,
    context: RequestContext,
    /// Requests the rest of the body when it breaks off.
    resumption: Option<Box<Resumption>>,
    /// The pending request for the rest of a body that broke off.
    reopening: Option<Reopening>,
    /// Paces the body, if the link is metered.
    flow: Option<Box<Flow>>,
    /// Gets each piece of the body.
    copier: Option<BodyCopier>,
    /// The span of the request; `None` once the body has ended, or if it is not traced.
    span: Option<Box<Span>>,
}

/// Gets each piece of a body while it passes.
pub type BodyCopier = Box<dyn FnMut(Bytes) + Send>;

impl LakeBody {
    pub(super) fn new(
        incoming: Incoming,
        connection: Box<PooledConnection>,
        pool: Arc<Pool>,
        counters: Arc<EndpointCounters>,
        context: RequestContext,
    ) -> Self {
        let mut body = Self {
            ahead: None,
            incoming,
            connection: Some(connection),
            pool,
            counters,
            context,
            resumption: None,
            reopening: None,
            flow: None,
            copier: None,
            span: None,
        };
        body.release_at_end();
        body
    }

    /// Puts bytes back, to be read before the following ones.
    pub(in crate::endpoint) fn put_back(&mut self, bytes: Bytes) {
        self.ahead = Some(bytes).filter(|bytes| !bytes.is_empty());
    }

    /// Returns the same body, which is resumed over another connection when it breaks off.
    #[must_use]
    pub fn resumed_by(mut self, resumption: Resumption) -> Self {
        self.resumption = Some(Box::new(resumption));
        self
    }

    /// Returns the same body, paced by `flow`.
    #[must_use]
    pub fn paced_by(mut self, flow: Option<Box<Flow>>) -> Self {
        self.flow = flow;
        self
    }

    /// Returns the same body, of which `copier` gets each piece.
    #[must_use]
    pub fn copied_by(mut self, copier: BodyCopier) -> Self {
        self.copier = Some(copier);
        self
    }

    /// Returns the same body, with whose end `span` ends.
    #[must_use]
    pub(in crate::endpoint) fn traced_by(mut self, span: Option<Box<Span>>) -> Self {
        self.span = span.filter(|_| self.connection.is_some());
        self
    }

    /// Waits until the next bytes are permitted.
    fn poll_permitted(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.flow {
            None => Poll::Ready(()),
            Some(flow) => flow.poll_permitted(cx, self.incoming.size_hint().exact()),
        }
    }

    /// Waits for the rest of the body, if it broke off.
    fn poll_reopened(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), EndpointError>> {
        let Some(reopening) = &mut self.reopening else {
            return Poll::Ready(Ok(()));
        };
        let reopened = ready!(reopening.as_mut().poll(cx));
        self.reopening = None;
        let Self {
            incoming,
            connection,
            flow,
            span,
            ..
        } = reopened?;
        (self.incoming, self.connection, self.flow, self.span) = (incoming, connection, flow, span);
        Poll::Ready(Ok(()))
    }

    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, EndpointError>>> {
        let Self {
            incoming,
            connection,
            context,
            ..
        } = self;
        let Some(connection) = connection else {
            return Poll::Ready(None);
        };
        let driven = connection.poll_driving(cx, |cx| Pin::new(&mut *incoming).poll_frame(cx));
        Poll::Ready(match ready!(driven) {
            Ok(frame) => frame.map(|frame| frame.map_err(|error| broken(context, error))),
            Err(Stalled) => Some(Err(context.timed_out(Failure::Stalled))),
        })
    }

    /// Reads the body of an error that no client will see, so that its connection can be reused. Gives up on
    /// a long or slow body.
    pub(in crate::endpoint) async fn drain(mut self) {
        const BYTES_MAX: usize = 64 << 10;
        const TIME_MAX: Duration = Duration::from_millis(200);
        let reading = async {
            let mut seen = 0;
            while let Some(Ok(frame)) = self.frame().await {
                seen += frame.data_ref().map_or(0, Bytes::len);
                if seen > BYTES_MAX {
                    return;
                }
            }
        };
        // Read to the end or given up: nothing is left to do.
        drop(tokio::time::timeout(TIME_MAX, reading).await);
    }

    fn received(&mut self, bytes: usize) {
        self.counters.bytes_received.add(bytes as u64);
        if let Some(span) = &mut self.span {
            span.body_bytes(bytes);
        }
        if let Some(flow) = &mut self.flow {
            flow.moved(bytes);
        }
        if let Some(resumption) = &mut self.resumption {
            resumption.arrived(bytes as u64);
        }
        self.release_at_end();
    }

    /// Starts to request the rest of the body. Returns the error if it is final.
    fn broke(&mut self, error: EndpointError) -> Option<EndpointError> {
        debug_assert!(
            self.reopening.is_none(),
            "a body that waits for its rest does not break"
        );
        self.connection = None;
        // No bytes of it are in flight. The rest has a flow of its own, which must not wait for this one.
        self.flow = None;
        self.counters.failure(error.kind());
        if let Some(mut span) = self.span.take() {
            span.failed(error.kind().as_str());
        }
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
            && let Some(connection) = self.connection.take()
        {
            self.pool.checkin(connection);
            self.span = None;
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
            ready!(body.poll_permitted(cx));
            let frame = ready!(body.poll_incoming(cx));
            match frame {
                Some(Ok(frame)) => {
                    body.received(frame.data_ref().map_or(0, Bytes::len));
                    if let (Some(copier), Some(data)) = (&mut body.copier, frame.data_ref()) {
                        copier(data.clone());
                    }
                    return Poll::Ready(Some(Ok(frame)));
                }
                Some(Err(error)) => {
                    if let Some(error) = body.broke(error) {
                        return Poll::Ready(Some(Err(error)));
                    }
                }
                None => {
                    if let Some(connection) = body.connection.take() {
                        body.pool.checkin(connection);
                        body.span = None;
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
