//! The service above the HTTP library: passes requests to the real service, except those that are refused.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER};
use http::uri::Authority;
use http::{Request, Response, Version};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::service::Service;
use pin_project_lite::pin_project;
use shoal_base::chance;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::error_xml::{RequestId, error_xml};

use super::streams::{ClientBody, Offer};
use super::unread::{BodyEnd, Rest};
use super::{BoxError, Exchange, Timeouts};
use crate::http::expectation::expects_continue;

/// Wraps the service of one connection.
#[derive(Debug)]
pub struct ResponseService<S> {
    service: S,
    exchange: Arc<Exchange>,
    timeouts: Timeouts,
}

impl<S> ResponseService<S> {
    /// Passes the requests that `exchange` does not refuse to `service`.
    pub fn new(service: S, exchange: Arc<Exchange>, timeouts: Timeouts) -> Self {
        Self {
            service,
            exchange,
            timeouts,
        }
    }
}

impl<S, B> Service<Request<Incoming>> for ResponseService<S>
where
    S: Service<Request<ClientBody>, Response = Response<B>, Error = Infallible>,
{
    type Response = Response<ResponseBody<B>>;
    type Error = Infallible;
    type Future = ResponseFuture<S::Future, B>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        // The HTTP library calls the service in the order of heads, so the socket and the service count
        // alike.
        let message = self.exchange.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let in_flight = InFlight::begin(Arc::clone(&self.exchange));
        let refusal = if let Some(error) = &self.exchange.turned_away {
            self.exchange.ask_to_close();
            Some(error.clone())
        } else {
            self.exchange
                .refusal_of(message)
                .cloned()
                .or_else(|| settle_host(&mut request).err())
        };
        let is_http2 = request.version() == Version::HTTP_2;
        let end = (!is_http2).then(|| BodyEnd::of(request.body())).flatten();
        let waits = expects_continue(request.version(), request.headers());
        let state = match refusal {
            Some(error) => State::Refused { error },
            None => State::Asked {
                future: self.service.call(request.map(|incoming| {
                    if is_http2 {
                        ClientBody::of_http2(incoming, self.timeouts.stall)
                    } else {
                        ClientBody::of_http1(incoming, waits, end.clone())
                    }
                })),
            },
        };
        ResponseFuture {
            state,
            end,
            message,
            is_http2,
            in_flight: Some(in_flight),
        }
    }
}

/// Gives an HTTP/2 request the single `Host` that the framing guarantees for HTTP/1.1.
fn settle_host<B>(request: &mut Request<B>) -> Result<(), S3Error> {
    if request.version() != Version::HTTP_2 {
        return Ok(());
    }
    let bad_request = |message| S3Error::new(ErrorCode::BadRequest, message);
    let authority = request.uri().authority().map(Authority::as_str);
    let mut hosts = request.headers().get_all(HOST).iter();
    match (authority, hosts.next(), hosts.next()) {
        (_, _, Some(_)) => Err(bad_request("The request has more than one Host.")),
        (None, None, None) => Err(bad_request("The request has no Host.")),
        (Some(authority), Some(host), None)
            if !authority.as_bytes().eq_ignore_ascii_case(host.as_bytes()) =>
        {
            Err(bad_request("The authority of the request and its Host differ."))
        }
        (_, Some(_), None) => Ok(()),
        (Some(authority), None, None) => {
            let host = HeaderValue::from_str(authority).map_err(|_| bad_request("The Host is not valid."))?;
            request.headers_mut().insert(HOST, host);
            Ok(())
        }
    }
}

/// Returns the response to a refused request. It closes the connection if the error requires that.
pub fn refusal_response(error: &S3Error) -> Response<Bytes> {
    let id = RequestId::new(chance::bits());
    let mut response = Response::new(error_xml(error, "", id));
    *response.status_mut() = error.code.status();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    headers.insert(
        "x-amz-request-id",
        HeaderValue::from_str(id.as_str()).expect("hexadecimal digits make a header value"),
    );
    if error.code == ErrorCode::SlowDown {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if error.close {
        announce_end(&mut response);
    }
    response
}

/// Adds the header that closes the connection after this response.
fn announce_end<B>(response: &mut Response<B>) {
    response
        .headers_mut()
        .insert(CONNECTION, HeaderValue::from_static("close"));
}

/// Counts a request as in flight until this is dropped.
#[derive(Debug)]
struct InFlight(Arc<Exchange>);

impl InFlight {
    fn begin(exchange: Arc<Exchange>) -> Self {
        exchange.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(exchange)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let before = self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "a request ends once");
    }
}

pin_project! {
    /// The future response to one request.
    pub struct ResponseFuture<F, B> {
        #[pin]
        state: State<F, B>,
        // For a request that has a body.
        end: Option<Arc<BodyEnd>>,
        message: u64,
        is_http2: bool,
        in_flight: Option<InFlight>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F, B> {
        Asked { #[pin] future: F },
        // The rest of the request's body is read before the response begins.
        Answered { response: Option<Response<B>>, rest: Rest },
        Refused { error: S3Error },
    }
}

impl<F, B> Future for ResponseFuture<F, B>
where
    F: Future<Output = Result<Response<B>, Infallible>>,
{
    type Output = Result<Response<ResponseBody<B>>, Infallible>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let in_flight = this
            .in_flight
            .as_ref()
            .expect("an answer is not polled after it was given");
        if let StateProjection::Asked { .. } = this.state.as_mut().project()
            && let Some(error) = in_flight.0.refusal_of(*this.message)
        {
            // The body violated its framing or its deadline, so the service's response is discarded.
            let error = error.clone();
            this.state.set(State::Refused { error });
        }
        let response = loop {
            match this.state.as_mut().project() {
                StateProjection::Asked { future } => {
                    let Ok(mut response) = ready!(future.poll(cx));
                    match this.end.take().map(|end| end.take_rest()) {
                        Some(Ok(rest)) => {
                            let response = Some(response);
                            this.state.set(State::Answered { response, rest });
                            continue;
                        }
                        Some(Err(false)) => announce_end(&mut response),
                        Some(Err(true)) | None => {}
                    }
                    break response.map(Either::Left);
                }
                StateProjection::Answered { response, rest } => {
                    let is_at_end = ready!(rest.as_mut().poll(cx));
                    let mut response = response.take().expect("an answer is given once");
                    if !is_at_end {
                        announce_end(&mut response);
                    }
                    break response.map(Either::Left);
                }
                StateProjection::Refused { error } => {
                    break refusal_response(error).map(|xml| Either::Right(Full::new(xml)));
                }
            }
        };
        let in_flight = this.in_flight.take();
        let offer = in_flight
            .as_ref()
            .filter(|_| *this.is_http2)
            .map(|in_flight| Offer::open(Arc::clone(&in_flight.0), *this.message));
        Poll::Ready(Ok(response.map(|content| ResponseBody {
            content,
            offer,
            in_flight,
        })))
    }
}

pin_project! {
    /// The body of a response: the service's, or the XML of a refusal.
    #[derive(Debug)]
    pub struct ResponseBody<B> {
        #[pin]
        content: Either<B, Full<Bytes>>,
        offer: Option<Offer>,
        // Held until the drop of the body, which happens when the HTTP library has queued its last byte.
        in_flight: Option<InFlight>,
    }
}

impl<B: Body<Data = Bytes, Error: Into<BoxError>>> Body for ResponseBody<B> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.project();
        if let Some(offer) = this.offer {
            offer.taken();
        }
        let polled = this.content.poll_frame(cx);
        if let (Some(offer), Poll::Ready(Some(Ok(_)))) = (this.offer, &polled) {
            offer.wait();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.content.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.content.size_hint()
    }
}
