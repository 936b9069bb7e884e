//! One connection over a pipe in memory, with paused time: framing, order of responses, deadlines.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use shoal_s3::error::{ErrorCode, S3Error};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::{BufferBudget, ClientBody, Exchange, GuardedIo, ResponseService, Timeouts};

const TIMEOUTS: Timeouts = Timeouts {
    header: Duration::from_secs(15),
    idle: Duration::from_mins(5),
    stall: Duration::from_mins(1),
};

/// An event that does not happen within a day never happens. With paused time, a day passes at once.
const EVER: Duration = Duration::from_hours(24);

type Answered = Pin<Box<dyn Future<Output = Result<Response<Full<Bytes>>, Infallible>> + Send>>;

/// The client's end of a connection, and the shared state of the other end.
struct Client {
    stream: DuplexStream,
    exchange: Arc<Exchange>,
    server: JoinHandle<Result<(), hyper::Error>>,
    asked: Arc<AtomicUsize>,
}

/// A service that reads the whole body and returns the path and the body's length.
///
/// `/slow` takes ten minutes; `/deaf` responds without reading the body; `/large` returns a megabyte.
fn answer(request: Request<ClientBody>) -> Answered {
    Box::pin(async move {
        let path = request.uri().path().to_owned();
        let body = match path.as_str() {
            "/large" => Bytes::from(vec![b'x'; 1 << 20]),
            "/deaf" => Bytes::from("deaf"),
            _ => match request.into_body().collect().await {
                Ok(body) => Bytes::from(format!("{path}:{}", body.to_bytes().len())),
                Err(_) => {
                    return Ok(Response::builder()
                        .status(502)
                        .body(Full::from("broken body"))
                        .unwrap());
                }
            },
        };
        if path == "/slow" {
            sleep(Duration::from_mins(10)).await;
        }
        Ok(Response::new(Full::new(body)))
    })
}

fn connect_with(exchange: Exchange, pipe_bytes: usize) -> Client {
    let (stream, server) = duplex(pipe_bytes);
    let exchange = Arc::new(exchange);
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let service = service_fn(move |request| {
        counter.fetch_add(1, Ordering::Relaxed);
        answer(request)
    });
    let io = TokioIo::new(GuardedIo::http1(server, Arc::clone(&exchange), TIMEOUTS));
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .serve_connection(io, ResponseService::new(service, Arc::clone(&exchange), TIMEOUTS));
    Client {
        stream,
        exchange,
        server: tokio::spawn(connection),
        asked,
    }
}

fn connect() -> Client {
    connect_with(Exchange::default(), 64 * 1024)
}

impl Client {
    async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).await.unwrap();
    }

    /// Reads until the server closes the connection.
    async fn read_to_end(&mut self) -> String {
        let mut bytes = Vec::new();
        timeout(EVER, self.stream.read_to_end(&mut bytes))
            .await
            .expect("the server closes")
            .unwrap();
        String::from_utf8(bytes).unwrap()
    }

    /// Reads until the bytes end with `end`.
    async fn read_until(&mut self, end: &str) -> String {
        let mut bytes = Vec::new();
        while !bytes.ends_with(end.as_bytes()) {
            let byte = self.stream.read_u8().await.unwrap_or_else(|error| {
                panic!("{error} after {}", String::from_utf8_lossy(&bytes));
            });
            bytes.push(byte);
        }
        String::from_utf8(bytes).unwrap()
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// Returns the size of the largest frame of a 1 MiB body that the service gets on a connection that shares
/// `budget`.
async fn largest_piece(budget: &BufferBudget) -> usize {
    let (mut client, server) = duplex(1 << 20);
    let exchange = Arc::new(Exchange::default());
    let largest = AtomicUsize::new(0);
    let service = service_fn(|request: Request<ClientBody>| async {
        let mut body = request.into_body();
        while let Some(frame) = body.frame().await {
            let piece = frame.unwrap().into_data().unwrap();
            largest.fetch_max(piece.len(), Ordering::Relaxed);
        }
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("done"))))
    });
    let io = TokioIo::new(GuardedIo::http1(server, Arc::clone(&exchange), TIMEOUTS).within(budget));
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .max_buf_size(128 * 1024)
        .serve_connection(io, ResponseService::new(service, exchange, TIMEOUTS));
    let asking = async {
        let body = vec![0; 1 << 20];
        let head = format!(
            "PUT / HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        client
            .write_all(&[head.as_bytes(), &body].concat())
            .await
            .unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with("done"), "{answer}");
    };
    let (served, ()) = tokio::join!(connection, asking);
    served.unwrap();
    largest.load(Ordering::Relaxed)
}

#[tokio::test]
async fn a_body_is_read_in_large_pieces_where_there_is_room_and_in_small_ones_where_there_is_none() {
    let budget = BufferBudget::new(256);
    for _ in 0..3 {
        assert!(
            largest_piece(&budget).await > 32 << 10,
            "what ends gives its room back"
        );
    }
    assert!(largest_piece(&BufferBudget::new(0)).await < 8 << 10);
}

/// Asserts that `answers` ends with a refusal in S3's format. Returns the text before it.
fn split_refusal<'a>(answers: &'a str, status: &str, code: &str) -> &'a str {
    let start = answers.rfind("HTTP/1.1 ").expect("an answer");
    let (before, refusal) = answers.split_at(start);
    assert!(refusal.starts_with(&format!("HTTP/1.1 {status}")), "{answers}");
    assert!(
        refusal.contains(&format!("<Error><Code>{code}</Code><Message>")),
        "{answers}"
    );
    assert!(refusal.contains("content-type: application/xml\r\n"), "{answers}");
    assert!(refusal.contains("connection: close\r\n"), "{answers}");
    let id = refusal
        .split("x-amz-request-id: ")
        .nth(1)
        .unwrap()
        .split("\r\n")
        .next()
        .unwrap();
    assert!(
        refusal.contains(&format!("<RequestId>{id}</RequestId>")),
        "{answers}"
    );
    before
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

#[tokio::test(start_paused = true)]
async fn pipelined_requests_are_answered_in_order() {
    let mut client = connect();
    let put = "PUT /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
    let chunked =
        "PUT /3 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n";
    client.send(get("/1") + put + chunked + &get("/4")).await;
    let answers = client.read_until("/4:0").await;
    let order: Vec<_> = ["/1:0", "/2:5", "/3:7", "/4:0"]
        .map(|body| answers.find(body).unwrap())
        .into();
    assert!(order.is_sorted(), "{answers}");
    assert_eq!(client.asked(), 4);
}

#[tokio::test(start_paused = true)]
async fn requests_that_trickle_in_are_answered_too() {
    let mut client = connect();
    let requests = get("/1")
        + "PUT /2 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX: y\r\n\r\n"
        + &get("/3");
    for byte in requests.as_bytes() {
        client.send([*byte]).await;
        sleep(Duration::from_millis(20)).await;
    }
    let answers = client.read_until("/3:0").await;
    assert!(answers.contains("/1:0") && answers.contains("/2:3"), "{answers}");
}

#[tokio::test(start_paused = true)]
async fn a_head_larger_than_the_librarys_first_buffer_is_answered() {
    let mut client = connect();
    let long = "a".repeat(60_000);
    client
        .send(format!(
            "GET /1 HTTP/1.1\r\nHost: h\r\nX: {long}\r\n\r\n{}",
            get("/2")
        ))
        .await;
    let answers = client.read_until("/2:0").await;
    assert!(answers.contains("/1:0"), "{answers}");
}

#[tokio::test(start_paused = true)]
async fn good_requests_are_answered_before_the_refusal_of_a_bad_one() {
    let mut client = connect();
    let bad = "GET /3 HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(get("/slow") + &get("/2") + bad + &get("/4")).await;
    let answers = client.read_to_end().await;
    let good = split_refusal(&answers, "400", "BadRequest");
    assert!(good.contains("/slow:0") && good.contains("/2:0"), "{answers}");
    assert_eq!(
        client.asked(),
        2,
        "nothing behind the refused request is looked at"
    );
    assert_eq!(client.exchange.refusal().unwrap().code, ErrorCode::BadRequest);
}

#[tokio::test(start_paused = true)]
async fn ambiguous_requests_are_refused_and_the_connection_closed() {
    let cases = [
        ("GET / HTTP/1.1\nHost: h\n\n", "400", "BadRequest"),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n",
            "400",
            "BadRequest",
        ),
        ("GET / HTTP/1.1\r\n\r\n", "400", "BadRequest"),
        (
            "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
            "400",
            "BadRequest",
        ),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n",
            "400",
            "BadRequest",
        ),
        ("GET /<> HTTP/1.1\r\nHost: h\r\n\r\n", "400", "InvalidURI"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "400", "BadRequest"),
    ];
    for (bytes, status, code) in cases {
        let mut client = connect();
        client.send(bytes).await;
        let answers = client.read_to_end().await;
        assert_eq!(split_refusal(&answers, status, code), "", "{bytes}");
        assert_eq!(client.asked(), 0, "{bytes}");
    }
    let mut client = connect();
    client
        .send(
            format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}", "a".repeat(70_000))
                .get(..65_536)
                .unwrap(),
        )
        .await;
    let answers = client.read_to_end().await;
    split_refusal(&answers, "431", "RequestHeaderSectionTooLarge");
}

#[tokio::test(start_paused = true)]
async fn a_body_whose_chunks_are_wrong_is_refused_whatever_the_service_thinks_of_it() {
    let head = "PUT /1 HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut client = connect();
    client.send(format!("{head}3\r\nabc\r\n")).await;
    sleep(Duration::from_secs(1)).await;
    client.send("0x3\r\n").await;
    let answers = client.read_to_end().await;
    assert_eq!(split_refusal(&answers, "400", "BadRequest"), "");
    assert_eq!(client.asked(), 1, "the service had begun");

    let mut client = connect();
    client.send(format!("{head}3\r\nabc\r\n0x3\r\n")).await;
    let answers = client.read_to_end().await;
    assert_eq!(split_refusal(&answers, "400", "BadRequest"), "");
    assert_eq!(client.asked(), 0, "the service is not even asked");
}

#[tokio::test(start_paused = true)]
async fn a_slow_head_is_refused_from_its_first_byte_on() {
    let mut client = connect();
    let start = Instant::now();
    let trickle = async {
        for byte in b"GET / HTTP/1.1\r\nHost: h\r\nX: aaaaaaaaaaaaaaaaaaaaaaaa" {
            sleep(Duration::from_secs(1)).await;
            if client.stream.write_all(&[*byte]).await.is_err() {
                break;
            }
            if client.exchange.refusal().is_some() {
                break;
            }
        }
    };
    trickle.await;
    let answers = client.read_to_end().await;
    split_refusal(&answers, "400", "RequestTimeout");
    // One second of silence, fifteen for the head, and the linger time.
    assert!(
        (15..25).contains(&start.elapsed().as_secs()),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_slow_body_may_take_its_time_but_not_fall_silent() {
    let mut client = connect();
    client
        .send("PUT /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\n")
        .await;
    for _ in 0..5 {
        sleep(Duration::from_secs(50)).await;
        client.send("x").await;
    }
    assert!(client.exchange.refusal().is_none());
    let silent_from = Instant::now();
    let answers = client.read_to_end().await;
    split_refusal(&answers, "400", "RequestTimeout");
    assert!(
        (60..70).contains(&silent_from.elapsed().as_secs()),
        "{:?}",
        silent_from.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_nothing_is_dropped_and_a_slow_one_is_not() {
    let mut client = connect_with(Exchange::default(), 1024);
    client.send(get("/large")).await;
    // The pipe fills at once. Ten reads follow, each just in time.
    for _ in 0..10 {
        sleep(Duration::from_secs(55)).await;
        client.stream.read_exact(&mut [0; 512]).await.unwrap();
    }
    assert!(!client.server.is_finished());
    let start = Instant::now();
    let error = timeout(EVER, client.server)
        .await
        .expect("the server gives up")
        .unwrap()
        .unwrap_err();
    assert!(
        (50..70).contains(&start.elapsed().as_secs()),
        "{:?}",
        start.elapsed()
    );
    assert!(format!("{error:?}").contains("TimedOut"), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_without_a_word() {
    let mut client = connect();
    client.send(get("/1")).await;
    client.read_until("/1:0").await;
    sleep(Duration::from_secs(290)).await;
    client.send(get("/2")).await;
    client.read_until("/2:0").await;
    let start = Instant::now();
    assert_eq!(client.read_to_end().await, "");
    assert!(
        (300..=600).contains(&start.elapsed().as_secs()),
        "{:?}",
        start.elapsed()
    );
    client.server.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_long_answer_is_not_an_idle_connection() {
    let mut client = connect();
    let start = Instant::now();
    client.send(get("/slow")).await;
    client.read_until("/slow:0").await;
    assert_eq!(start.elapsed().as_secs(), 600);
    client.send(get("/2")).await;
    client.read_until("/2:0").await;
}

#[tokio::test(start_paused = true)]
async fn a_client_without_room_gets_slow_down_and_a_closed_connection() {
    let error = S3Error::new(ErrorCode::SlowDown, "Please reduce your request rate.").closing();
    let mut client = connect_with(Exchange::turning_away(error), 64 * 1024);
    client
        .send("PUT /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello")
        .await;
    let answers = client.read_to_end().await;
    assert_eq!(split_refusal(&answers, "503", "SlowDown"), "");
    assert!(answers.contains("retry-after: 1\r\n"), "{answers}");
    assert_eq!(client.asked(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_still_sending_reads_its_answer_before_the_connection_ends() {
    let mut client = connect_with(Exchange::default(), 1024);
    client
        .send("PUT /deaf HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n")
        .await;
    // More than the pipe holds: the client can send it all only because the server keeps reading.
    client.send(vec![b'x'; 1_000_000]).await;
    let answer = client.read_to_end().await;
    assert!(answer.ends_with("deaf"), "{answer}");
    assert!(answer.contains("connection: close\r\n"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_short_body_that_no_answer_needs_costs_no_connection() {
    for framing in [
        "Content-Length: 5\r\n\r\nab",
        "Transfer-Encoding: chunked\r\n\r\n5\r\nab",
    ] {
        let mut client = connect();
        client
            .send(format!("PUT /deaf HTTP/1.1\r\nHost: h\r\n{framing}"))
            .await;
        sleep(Duration::from_millis(100)).await;
        let rest = if framing.starts_with('C') {
            "cde"
        } else {
            "cde\r\n0\r\n\r\n"
        };
        client.send(rest).await;
        let first = client.read_until("deaf").await;
        assert!(!first.contains("connection: close"), "{first}");
        sleep(Duration::from_millis(100)).await;
        client.send(get("/2")).await;
        client.read_until("/2:0").await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_does_not_wait_for_a_late_body_announces_the_end() {
    let (head, start) = (
        "PUT /deaf HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n",
        Instant::now(),
    );
    for rest in ["\r\nab", "Expect: 100-continue\r\n\r\n"] {
        let mut client = connect();
        client.send(format!("{head}{rest}")).await;
        let answer = client.read_until("deaf").await;
        assert!(answer.contains("connection: close\r\n"), "{answer}");
        assert!(!answer.contains("100 Continue"), "{answer}");
    }
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "it waits for a moment only"
    );
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_stops_the_request() {
    let mut client = connect();
    let start = Instant::now();
    client.send(get("/slow")).await;
    sleep(Duration::from_secs(1)).await;
    drop(client.stream);
    assert!(client.server.await.unwrap().is_err());
    assert!(start.elapsed().as_secs() < 10);
    assert_eq!(client.exchange.in_flight.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn bytes_are_counted() {
    let mut client = connect();
    let request = get("/1");
    client.send(&request).await;
    let answer = client.read_until("/1:0").await;
    assert_eq!(
        client.exchange.transferred_bytes(),
        (request.len() as u64, answer.len() as u64)
    );
}

#[test]
fn vectored_writes_reach_the_socket_as_they_are() {
    use std::io::IoSlice;
    use std::task::{Context, Poll, Waker};

    use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

    /// Accepts every slice of a vectored write, and no other write.
    struct Gathers;

    impl AsyncRead for Gathers {
        fn poll_read(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            Poll::Pending
        }
    }

    impl AsyncWrite for Gathers {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<std::io::Result<usize>> {
            panic!("one slice at a time")
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<std::io::Result<usize>> {
            Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    let mut io = GuardedIo::http1(Gathers, Arc::default(), TIMEOUTS);
    assert!(io.is_write_vectored());
    let slices = [IoSlice::new(b"head"), IoSlice::new(b"body")];
    let mut cx = Context::from_waker(Waker::noop());
    let polled = Pin::new(&mut io).poll_write_vectored(&mut cx, &slices);
    assert!(matches!(polled, Poll::Ready(Ok(8))));
}
