//! HTTP/2 over a pipe in memory, with paused time: streams that stall on a live connection.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use hyper::client::conn::http2::SendRequest;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::duplex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::super::{ClientBody, Exchange, GuardedIo, ResponseService, Timeouts};

const TIMEOUTS: Timeouts = Timeouts {
    header: Duration::from_secs(15),
    idle: Duration::from_mins(5),
    stall: Duration::from_mins(1),
};

const PIECE: &[u8] = &[b'x'; 16 * 1024];
const PIECES: usize = 64;

/// An event that does not happen within a day never happens. With paused time, a day passes at once.
const EVER: Duration = Duration::from_hours(24);

type AnyBody = UnsyncBoxBody<Bytes, Infallible>;
type Answered = Pin<Box<dyn Future<Output = Result<Response<AnyBody>, Infallible>> + Send>>;

/// `/large` returns a megabyte in frames, `/slow` takes ten minutes, and every other path returns the length
/// of the request's body.
fn answer(request: Request<ClientBody>) -> Answered {
    Box::pin(async move {
        if request.uri().path() == "/large" {
            let pieces = (0..PIECES).map(|_| Ok(Frame::data(Bytes::from_static(PIECE))));
            return Ok(Response::new(
                StreamBody::new(stream::iter(pieces)).boxed_unsync(),
            ));
        }
        if request.uri().path() == "/slow" {
            sleep(Duration::from_mins(10)).await;
        }
        let text = match request.into_body().collect().await {
            Ok(body) => body.to_bytes().len().to_string(),
            Err(error) => error.to_string(),
        };
        Ok(Response::new(Full::new(Bytes::from(text)).boxed_unsync()))
    })
}

struct Client {
    requests: SendRequest<AnyBody>,
    exchange: Arc<Exchange>,
    server: JoinHandle<Result<(), hyper::Error>>,
}

async fn connect() -> Client {
    let (near, far) = duplex(64 * 1024);
    let exchange = Arc::<Exchange>::default();
    let io = GuardedIo::http2(far, Arc::clone(&exchange), TIMEOUTS);
    let service = ResponseService::new(service_fn(answer), Arc::clone(&exchange), TIMEOUTS);
    let server = http2::Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(io), service);
    let server = tokio::spawn(server);
    let (requests, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(32 * 1024)
        .handshake(TokioIo::new(near))
        .await
        .unwrap();
    tokio::spawn(connection);
    Client {
        requests,
        exchange,
        server,
    }
}

impl Client {
    fn get(
        &mut self,
        path: &str,
    ) -> impl Future<Output = hyper::Result<Response<hyper::body::Incoming>>> + use<> {
        let body = Empty::new().boxed_unsync();
        self.requests
            .send_request(Request::get(format!("http://h{path}")).body(body).unwrap())
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_for_an_answer_and_never_takes_it_loses_its_connection() {
    let mut client = connect().await;
    let start = Instant::now();
    let answer = client.get("/large").await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    // The client keeps sending other requests, so that the connection as a whole is alive.
    for _ in 0..3 {
        client.get("/").await.unwrap();
        sleep(Duration::from_secs(10)).await;
    }
    let _ = timeout(EVER, client.server)
        .await
        .expect("the server gives up")
        .unwrap();
    assert!(
        (60..=121).contains(&start.elapsed().as_secs()),
        "{:?}",
        start.elapsed()
    );
    assert_eq!(client.exchange.in_flight.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_its_answer_slowly_gets_all_of_it() {
    let mut client = connect().await;
    let mut body = client.get("/large").await.unwrap().into_body();
    let mut taken = 0;
    while let Some(frame) = body.frame().await {
        taken += frame.unwrap().into_data().unwrap().len();
        sleep(Duration::from_secs(15)).await;
    }
    assert_eq!(taken, PIECE.len() * PIECES);
    assert!(!client.server.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_is_neither_stalled_nor_idle() {
    let mut client = connect().await;
    let body = client
        .get("/slow")
        .await
        .unwrap()
        .into_body()
        .collect()
        .await
        .unwrap();
    assert_eq!(body.to_bytes(), "0");
    assert!(!client.exchange.should_close());
}

#[tokio::test(start_paused = true)]
async fn a_request_body_that_falls_silent_breaks_off() {
    let mut client = connect().await;
    let start = Instant::now();
    // Two frames, fifty seconds apart, and then nothing.
    let pieces = stream::unfold(0, |count| async move {
        match count {
            0 => (),
            1 => sleep(Duration::from_secs(50)).await,
            _ => std::future::pending().await,
        }
        Some((Ok(Frame::data(Bytes::from_static(PIECE))), count + 1))
    });
    let request = Request::put("http://h/")
        .body(StreamBody::new(pieces).boxed_unsync())
        .unwrap();
    let answer = client
        .requests
        .send_request(request)
        .await
        .unwrap()
        .into_body()
        .collect()
        .await
        .unwrap();
    assert_eq!(answer.to_bytes(), "the client has stopped sending");
    assert_eq!(start.elapsed().as_secs(), 110);
}
