//! The listener on a real loopback socket: limits, idle clients, shortage, shutdown.

mod tls;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{Request, Response};
use http_body_util::Full;
use hyper::service::service_fn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::{ConnectionLimits, listen, serve};
use crate::http::connection::{ClientBody, Timeouts};
use crate::http::tls::TlsReloader;
use crate::metrics::ConnectionMetrics;
use crate::time::shutdown::{self, Trigger};

const GET: &str = "GET /1 HTTP/1.1\r\nHost: h\r\n\r\n";

/// Long enough for a busy machine, short enough for a test whose condition never comes true.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Limits that no test reaches by accident.
fn wide() -> ConnectionLimits {
    ConnectionLimits {
        connections: 4096,
        timeouts: Timeouts {
            header: TIMEOUT,
            idle: TIMEOUT,
            stall: TIMEOUT,
        },
        shutdown_grace: TIMEOUT,
    }
}

struct Server {
    address: SocketAddr,
    metrics: ConnectionMetrics,
    /// Requests for `/nap` and `/never` that have arrived.
    slow: Arc<AtomicU64>,
    trigger: Trigger,
    task: JoinHandle<()>,
}

type Answered = Pin<Box<dyn Future<Output = Result<Response<Full<Bytes>>, Infallible>> + Send>>;

/// Returns the version, host and path. `/nap` takes two seconds, `/never` never ends.
fn answer(request: Request<ClientBody>, slow: Arc<AtomicU64>) -> Answered {
    Box::pin(async move {
        if matches!(request.uri().path(), "/nap" | "/never") {
            slow.fetch_add(1, Ordering::Relaxed);
        }
        match request.uri().path() {
            "/nap" => sleep(Duration::from_secs(2)).await,
            "/never" => std::future::pending().await,
            _ => (),
        }
        let host = request
            .headers()
            .get(HOST)
            .map_or("none", |host| host.to_str().unwrap())
            .to_owned();
        let body = format!("{:?} {host} {};", request.version(), request.uri().path());
        Ok(Response::new(Full::new(Bytes::from(body))))
    })
}

fn start(limits: ConnectionLimits, tls: Option<Arc<TlsReloader>>) -> Server {
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let metrics = ConnectionMetrics::default();
    let (trigger, shutdown) = shutdown::channel();
    let slow = Arc::<AtomicU64>::default();
    let counted = Arc::clone(&slow);
    let task = tokio::spawn(serve(
        listener,
        tls,
        limits,
        metrics.clone(),
        shutdown,
        move |_| {
            let counted = Arc::clone(&counted);
            service_fn(move |request| answer(request, Arc::clone(&counted)))
        },
    ));
    Server {
        address,
        metrics,
        slow,
        trigger,
        task,
    }
}

impl Server {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Returns the number of open connections and of slow requests, and the refusals by reason.
    fn counts(&self) -> BTreeMap<&'static str, u64> {
        let mut counts = self.metrics.refusals.counts();
        counts.insert("open", self.metrics.open());
        counts.insert("slow", self.slow.load(Ordering::Relaxed));
        counts
    }

    fn shows(&self, what: &str, count: u64) -> bool {
        self.counts().get(what) == Some(&count)
    }

    async fn comes_to_show(&self, what: &str, count: u64) {
        let shown = async {
            while !self.shows(what, count) {
                sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(TIMEOUT, shown)
            .await
            .unwrap_or_else(|_| panic!("{what} is not {count} in {:?}", self.counts()));
    }
}

/// Sends a request, and reads to the last byte of the response, a semicolon.
async fn ask(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let read = async {
        while answer.last() != Some(&b';') {
            answer.push(stream.read_u8().await.expect("the answer is whole"));
        }
    };
    timeout(TIMEOUT, read).await.expect("an answer in time");
    String::from_utf8(answer).unwrap()
}

async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    timeout(TIMEOUT, stream.read_to_end(&mut answer))
        .await
        .expect("an end in time")
        .unwrap();
    String::from_utf8(answer).unwrap()
}

#[tokio::test]
async fn requests_are_answered_and_connections_counted() {
    let server = start(wide(), None);
    let mut client = server.connect().await;
    assert!(ask(&mut client, GET).await.ends_with("HTTP/1.1 h /1;"));
    assert!(
        ask(&mut client, GET).await.ends_with("HTTP/1.1 h /1;"),
        "the connection is kept"
    );
    assert!(server.shows("open", 1));
    drop(client);
    server.comes_to_show("open", 0).await;
}

#[tokio::test]
async fn a_refused_request_is_answered_on_a_real_socket_and_counted() {
    let server = start(wide(), None);
    let mut client = server.connect().await;
    let mut request =
        "PUT /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
    // The HTTP library does not read the rest. Closing with unread bytes must not reset the connection.
    request.push_str(&"x".repeat(200_000));
    client.write_all(request.as_bytes()).await.unwrap();
    let answer = read_to_end(&mut client).await;
    assert!(
        answer.starts_with("HTTP/1.1 400 Bad Request\r\n") && answer.contains("<Code>BadRequest</Code>"),
        "{answer}"
    );
    drop(client);
    server.comes_to_show("framing", 1).await;
}

#[tokio::test]
async fn a_slow_head_is_refused_on_a_real_socket_and_counted() {
    let header = Duration::from_millis(100);
    let server = start(
        ConnectionLimits {
            timeouts: Timeouts {
                header,
                ..wide().timeouts
            },
            ..wide()
        },
        None,
    );
    let mut client = server.connect().await;
    client.write_all(&GET.as_bytes()[..10]).await.unwrap();
    let answer = read_to_end(&mut client).await;
    assert!(answer.contains("<Code>RequestTimeout</Code>"), "{answer}");
    drop(client);
    server.comes_to_show("timeout", 1).await;
}

#[tokio::test]
async fn a_client_beyond_the_limit_is_told_so_and_one_that_leaves_makes_room() {
    let server = start(
        ConnectionLimits {
            connections: 2,
            ..wide()
        },
        None,
    );
    let never = GET.replace("/1 ", "/never ");
    let mut first = server.connect().await;
    let mut second = server.connect().await;
    for busy in [&mut first, &mut second] {
        ask(busy, GET).await;
        busy.write_all(never.as_bytes()).await.unwrap();
    }
    server.comes_to_show("slow", 2).await;
    let mut third = server.connect().await;
    third.write_all(GET.as_bytes()).await.unwrap();
    let answer = read_to_end(&mut third).await;
    assert!(
        answer.starts_with("HTTP/1.1 503") && answer.contains("<Code>SlowDown</Code>"),
        "{answer}"
    );
    assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
    assert!(server.shows("connections", 1));
    drop((first, third));
    server.comes_to_show("open", 1).await;
    let mut fourth = server.connect().await;
    assert!(ask(&mut fourth, GET).await.ends_with("/1;"));
}

#[tokio::test]
async fn an_idle_connection_makes_room_for_a_new_client_and_a_busy_one_does_not() {
    let server = start(
        ConnectionLimits {
            connections: 2,
            ..wide()
        },
        None,
    );
    let mut busy = server.connect().await;
    busy.write_all(GET.replace("/1 ", "/nap ").as_bytes())
        .await
        .unwrap();
    let mut idle = server.connect().await;
    ask(&mut idle, GET).await;
    let mut new = server.connect().await;
    assert!(ask(&mut new, GET).await.ends_with("/1;"));
    assert_eq!(
        idle.read(&mut [0; 16]).await.unwrap_or(0),
        0,
        "the idle one was closed"
    );
    let mut answer = vec![0; 512];
    let length = timeout(TIMEOUT, busy.read(&mut answer)).await.unwrap().unwrap();
    assert!(answer[..length].ends_with(b"/nap;"));
    assert!(server.shows("idle", 1));
}

#[tokio::test]
async fn long_heads_that_do_not_end_share_a_bounded_room_and_short_ones_still_get_in() {
    let server = start(wide(), None);
    let long = format!("GET /1 HTTP/1.1\r\nHost: h\r\nX: {}", "a".repeat(60_000));
    let mut unfinished = Vec::new();
    for _ in 0..800 {
        let mut client = server.connect().await;
        // A refused connection may be closed before all bytes are sent.
        let _ = client.write_all(long.as_bytes()).await;
        unfinished.push(client);
    }
    let mut refused = String::new();
    let last = unfinished.last_mut().expect("there are many");
    timeout(TIMEOUT, last.read_to_string(&mut refused))
        .await
        .unwrap()
        .unwrap();
    assert!(
        refused.starts_with("HTTP/1.1 503") && refused.contains("<Code>SlowDown</Code>"),
        "{refused}"
    );
    assert!(refused.contains("retry-after: 1\r\n"), "{refused}");
    let mut client = server.connect().await;
    assert!(ask(&mut client, GET).await.ends_with("/1;"));
}

#[tokio::test]
async fn a_long_head_keeps_its_room_for_as_long_as_its_connection_lasts() {
    let server = start(wide(), None);
    let long = |path| {
        format!(
            "GET {path} HTTP/1.1\r\nHost: h\r\nX: {}\r\n\r\n",
            "a".repeat(20_000)
        )
    };
    let mut answered = Vec::new();
    for _ in 0..800 {
        let mut client = server.connect().await;
        let answer = ask(&mut client, &long("/1")).await;
        assert!(answer.ends_with("/1;"), "{answer}");
        answered.push(client);
    }
    assert!(
        !server.shows("open", 800),
        "where room is short they end with their answers"
    );
    drop(answered);
    server.comes_to_show("open", 0).await;
    let mut unanswered = Vec::new();
    for _ in 0..800 {
        let mut client = server.connect().await;
        let _ = client.write_all(long("/never").as_bytes()).await;
        unanswered.push(client);
    }
    let last = unanswered.last_mut().expect("there are many");
    assert!(read_to_end(last).await.contains("<Code>SlowDown</Code>"));
}

#[tokio::test]
async fn a_thousand_idle_connections_leave_room_for_work() {
    let server = start(wide(), None);
    let mut idle = Vec::new();
    for _ in 0..1000 {
        let mut client = server.connect().await;
        ask(&mut client, GET).await;
        idle.push(client);
    }
    server.comes_to_show("open", 1000).await;
    let mut busy = server.connect().await;
    for _ in 0..100 {
        assert!(ask(&mut busy, GET).await.ends_with("/1;"));
    }
    for client in &mut idle {
        assert!(
            ask(client, GET).await.ends_with("/1;"),
            "an idle connection still works"
        );
    }
}

#[tokio::test]
async fn idle_connections_are_closed_in_time() {
    let idle = Duration::from_millis(100);
    let server = start(
        ConnectionLimits {
            timeouts: Timeouts {
                idle,
                ..wide().timeouts
            },
            ..wide()
        },
        None,
    );
    let mut client = server.connect().await;
    ask(&mut client, GET).await;
    assert_eq!(read_to_end(&mut client).await, "");
    assert_eq!(
        read_to_end(&mut server.connect().await).await,
        "",
        "also one that never asked"
    );
    server.comes_to_show("open", 0).await;
}

#[tokio::test]
async fn stopping_finishes_what_is_in_flight_and_takes_nothing_new() {
    let server = start(wide(), None);
    let mut idle = server.connect().await;
    ask(&mut idle, GET).await;
    let mut busy = server.connect().await;
    busy.write_all(GET.replace("/1 ", "/nap ").as_bytes())
        .await
        .unwrap();
    server.comes_to_show("slow", 1).await;
    server.trigger.begin();
    assert_eq!(read_to_end(&mut idle).await, "", "an idle connection ends");
    let answer = read_to_end(&mut busy).await;
    assert!(
        answer.ends_with("/nap;") && answer.contains("connection: close\r\n"),
        "{answer}"
    );
    timeout(TIMEOUT, server.task).await.unwrap().unwrap();
    assert!(
        TcpStream::connect(server.address).await.is_err(),
        "the door is shut"
    );
}

#[tokio::test]
async fn stopping_does_not_wait_for_ever() {
    let server = start(
        ConnectionLimits {
            shutdown_grace: Duration::from_millis(100),
            ..wide()
        },
        None,
    );
    let mut client = server.connect().await;
    client
        .write_all(GET.replace("/1 ", "/never ").as_bytes())
        .await
        .unwrap();
    server.comes_to_show("slow", 1).await;
    server.trigger.begin();
    timeout(TIMEOUT, server.task).await.unwrap().unwrap();
    assert_eq!(client.read(&mut [0; 16]).await.unwrap_or(0), 0);
}

#[tokio::test]
async fn a_taken_port_is_reported_with_what_to_do() {
    let taken = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let error = listen(taken.local_addr().unwrap()).unwrap_err().to_string();
    assert!(
        error.contains(&taken.local_addr().unwrap().to_string()),
        "{error}"
    );
    assert!(error.contains("\nhint: another process listens there"), "{error}");
}

/// Runs in a separate process, because the limit on open files applies to the whole process.
#[test]
fn running_out_of_descriptors_neither_spins_nor_stops_the_listener() {
    const CHILD: &str = "SHOAL_TEST_WITHOUT_DESCRIPTORS";
    if std::env::var_os(CHILD).is_none() {
        let name = "http::listener::tests::running_out_of_descriptors_neither_spins_nor_stops_the_listener";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && told.contains("1 passed"), "{told}");
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let server = start(wide(), None);
        // The client's sockets count too: 64 descriptors are not enough for 64 connections.
        let limits = rustix::process::Rlimit {
            current: Some(64),
            maximum: Some(64),
        };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limits).unwrap();
        let mut clients = Vec::new();
        while let Ok(client) = TcpStream::connect(server.address).await {
            clients.push(client);
        }
        sleep(Duration::from_secs(1)).await;
        let shortages = server.counts()["accept"];
        assert!(
            (1..=30).contains(&shortages),
            "{shortages} attempts in about a second"
        );
        clients.clear();
        let mut client = server.connect().await;
        assert!(ask(&mut client, GET).await.ends_with("/1;"));
    });
}
