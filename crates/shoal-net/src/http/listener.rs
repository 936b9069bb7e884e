//! The listener: accepts connections, limits their number, and closes them gracefully.

mod accept;
mod connection_table;
mod handed_over;
#[cfg(test)]
mod tests;

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use hyper::server::conn::{http1, http2};
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use shoal_s3::error::{ErrorCode, S3Error};
use shoal_s3::identity::NEWCOMERS;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::debug;

use crate::channel::Channel;
use crate::fair::{ConnectionPayer, MidRequest, Processor, SharedTasks};
use crate::http::connection::{
    BoxError, BufferBudget, ClientBody, Exchange, GuardedIo, ResponseService, Timeouts,
};
use crate::http::tls::{TlsReloader, TlsSession};
use crate::limits::Limits;
use crate::metrics::ConnectionMetrics;
use crate::sockets::SendfileStream;
use crate::sockets::sigbus_guard::SigbusGuard;
use crate::time::shutdown::Shutdown;

use accept::Acceptor;
use connection_table::ConnectionTable;
pub use handed_over::{take_over, unused};

/// Number of clients beyond the limit that get a response at the same time. Others are closed without one.
const TURNED_AWAY_AT_A_TIME: usize = 128;

/// Memory for long heads and for bodies read in large pieces, beyond the first buffer of each connection, in
/// KiB.
const BUFFER_BUDGET_KIB: usize = 128 << 10;

/// How long a new client waits for the place of an idle connection that is being closed.
const ROOM_TIMEOUT: Duration = Duration::from_millis(200);

/// Size of the HTTP library's read buffer, and of its buffer for heads to send, in bytes: room for two of the
/// largest heads.
const BUFFER_BYTES: usize = 128 * 1024;

/// Maximum number of connections that speak HTTP/2. Each may hold a hundred times as much memory as another
/// connection. Further clients are only offered HTTP/1.1.
const HTTP2_CONNECTIONS: usize = 128;

/// HTTP/2: maximum number of requests in flight on one connection.
const STREAMS: u32 = 128;

/// HTTP/2: flow-control windows of one stream and of the whole connection.
const STREAM_WINDOW_BYTES: u32 = 256 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;

/// HTTP/2: maximum size of a request's header fields after decompression.
const HEADER_LIST_BYTES: u32 = 16 * 1024;

/// HTTP/2: how often the listener pings a silent peer, and how long it waits for the response.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// Limits of one listener.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// Maximum number of open connections. Further clients get `503 SlowDown`, and their connections are
    /// closed.
    pub connections: usize,
    /// Time limits for a client.
    pub timeouts: Timeouts,
    /// How long requests in flight may continue after shutdown has begun.
    pub shutdown_grace: Duration,
}

impl From<&Limits> for ConnectionLimits {
    fn from(limits: &Limits) -> Self {
        Self {
            connections: limits.connections(),
            timeouts: Timeouts::default(),
            shutdown_grace: Duration::from_secs(30),
        }
    }
}

/// The handshake of a connection before its first request.
#[derive(Clone)]
pub enum Handshake {
    /// None.
    Plain,
    /// TLS, with the current certificate.
    Tls(Arc<TlsReloader>),
    /// Proof that the peer is a node of this cluster.
    Nodes(Arc<Channel>),
}

impl From<Option<Arc<TlsReloader>>> for Handshake {
    fn from(tls: Option<Arc<TlsReloader>>) -> Self {
        tls.map_or(Self::Plain, Self::Tls)
    }
}

/// The peer of a connection.
#[derive(Clone, Debug)]
pub struct RemoteEnd {
    /// The address and port that the client connects from.
    pub address: SocketAddr,
    /// True if the connection is encrypted.
    pub tls: bool,
    /// True once the peer has presented a valid certificate.
    pub certified: Arc<AtomicBool>,
    /// The version and the cipher of TLS, set when the handshake has ended.
    pub session: Arc<OnceLock<TlsSession>>,
    /// The payer that the connection is charged to.
    pub payer: Arc<ConnectionPayer>,
}

/// The listener could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}: {source}\nhint: {hint}")]
pub struct ListenError {
    address: SocketAddr,
    hint: &'static str,
    source: io::Error,
}

/// Opens a listening socket on `address`, unless the service manager has [handed one over](take_over).
///
/// # Errors
///
/// The socket cannot be bound. The error has a hint for the operator.
pub fn listen(address: SocketAddr) -> Result<TcpListener, ListenError> {
    let open = || {
        if let Some(socket) = handed_over::at(address) {
            socket.set_nonblocking(true)?;
            return TcpListener::from_std(socket);
        }
        let socket = if address.is_ipv4() {
            TcpSocket::new_v4()
        } else {
            TcpSocket::new_v6()
        }?;
        // A restarted node must not wait for the kernel to release the connections of the previous process.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(1024)
    };
    open().map_err(|source| {
        let hint = match source.kind() {
            io::ErrorKind::AddrInUse
                if handed_over::unused()
                    .iter()
                    .any(|open| open.port() == address.port()) =>
            {
                "the service manager opened this port at another address; name the same address in both places"
            }
            io::ErrorKind::AddrInUse => {
                "another process listens there (`ss -ltnp` names it); stop it, or choose another port"
            }
            io::ErrorKind::PermissionDenied => {
                "ports below 1024 need CAP_NET_BIND_SERVICE; choose a higher one"
            }
            io::ErrorKind::AddrNotAvailable => "the address is not one of this machine",
            _ => "check the listen address in the configuration",
        };
        ListenError {
            address,
            hint,
            source,
        }
    })
}

/// Serves until `shutdown` begins, then lets requests in flight finish within the grace period.
///
/// `make_service` is called once per connection. Clients beyond `limits.connections` get `503 SlowDown`
/// instead of waiting in the kernel's queue: an SDK backs off after a response, while silence only times out.
pub async fn serve<M, S, B>(
    listener: TcpListener,
    handshake: impl Into<Handshake>,
    limits: ConnectionLimits,
    metrics: ConnectionMetrics,
    shutdown: Shutdown,
    make_service: M,
) where
    M: Fn(RemoteEnd) -> S + Send + Sync + 'static,
    S: Service<Request<ClientBody>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let state = Arc::new(ListenerState {
        handshake: handshake.into(),
        limits,
        metrics,
        shutdown,
        make_service,
        processor: Processor::of_runtime(),
        budget: BufferBudget::new(BUFFER_BUDGET_KIB),
        http2: Semaphore::new(HTTP2_CONNECTIONS),
    });
    let rooms = Arc::new(Semaphore::new(state.limits.connections));
    let porch = Arc::new(Semaphore::new(TURNED_AWAY_AT_A_TIME));
    let acceptor = Acceptor::new(listener);
    let mut connections = JoinSet::new();
    let mut table = ConnectionTable::default();
    loop {
        let (stream, address) = tokio::select! {
            accepted = acceptor.next(&state.metrics) => accepted,
            () = state.shutdown.begun() => break,
            // Remove connections from the table as they finish.
            Some(ended) = connections.join_next_with_id() => {
                table.leave(ended.map_or_else(|error| error.id(), |(id, ())| id));
                continue;
            }
        };
        let room = room_in(&rooms, &mut table, &state.metrics).await;
        let has_room = room.is_some();
        let (permit, exchange) = if let Some(permit) = room {
            (permit, Exchange::default())
        } else {
            state.metrics.refusals.count("connections");
            let Ok(permit) = Arc::clone(&porch).try_acquire_owned() else {
                continue;
            };
            let error = S3Error::new(ErrorCode::SlowDown, "Please reduce your request rate.").closing();
            (permit, Exchange::turning_away(error))
        };
        let exchange = Arc::new(exchange);
        let payer = Arc::new(ConnectionPayer::new(NEWCOMERS));
        let remote = RemoteEnd {
            address,
            tls: !matches!(state.handshake, Handshake::Plain),
            certified: Arc::default(),
            session: Arc::default(),
            payer: Arc::clone(&payer),
        };
        let attended = Arc::clone(&state).serve_connection(stream, remote, Arc::clone(&exchange), permit);
        let mid_request = Arc::clone(&exchange) as Arc<dyn MidRequest>;
        let task = connections.spawn(state.processor.share(&payer, Some(mid_request), attended));
        if has_room {
            table.enter(task, payer, exchange);
        }
    }
    drop(acceptor);
    let finished = async { while connections.join_next().await.is_some() {} };
    if timeout(state.limits.shutdown_grace, finished).await.is_err() {
        debug!(
            open = connections.len(),
            "closing connections whose requests outlast the grace period"
        );
        connections.shutdown().await;
    }
}

/// Returns a place for one more connection. If there is none, closes idle connections to make room.
async fn room_in(
    rooms: &Arc<Semaphore>,
    table: &mut ConnectionTable,
    metrics: &ConnectionMetrics,
) -> Option<OwnedSemaphorePermit> {
    if let Ok(permit) = Arc::clone(rooms).try_acquire_owned() {
        return Some(permit);
    }
    let closed = table.make_room();
    if closed == 0 {
        return None;
    }
    for _ in 0..closed {
        metrics.refusals.count("idle");
    }
    // A closed connection frees its place once the runtime has dropped its task.
    let permit = timeout(ROOM_TIMEOUT, Arc::clone(rooms).acquire_owned()).await;
    permit.ok().and_then(Result::ok)
}

/// State shared by all connections of one listener.
struct ListenerState<M> {
    handshake: Handshake,
    limits: ConnectionLimits,
    metrics: ConnectionMetrics,
    shutdown: Shutdown,
    make_service: M,
    /// Divides processor time among the connections.
    processor: Arc<Processor>,
    /// The shared memory for buffers beyond the first of each connection.
    budget: BufferBudget,
    /// Permits for connections that speak HTTP/2, or may negotiate it.
    http2: Semaphore,
}

impl<M, S, B> ListenerState<M>
where
    M: Fn(RemoteEnd) -> S + Send + Sync + 'static,
    S: Service<Request<ClientBody>, Response = Response<B>, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    /// Serves one connection from the handshake to its end.
    async fn serve_connection(
        self: Arc<Self>,
        stream: TcpStream,
        remote: RemoteEnd,
        exchange: Arc<Exchange>,
        _permit: OwnedSemaphorePermit,
    ) {
        let _open = self.metrics.opened();
        let address = remote.address;
        let service = ResponseService::new(
            (self.make_service)(remote.clone()),
            Arc::clone(&exchange),
            self.limits.timeouts,
        );
        let ended = match &self.handshake {
            Handshake::Plain => {
                self.speak_http1(SendfileStream::new(stream), service, &exchange)
                    .await
            }
            // Boxed: the state of TLS and of HTTP/2 takes many times the memory of a plain connection.
            Handshake::Tls(tls) => {
                match Box::pin(self.speak_tls(tls, stream, remote, service, &exchange)).await {
                    Some(ended) => ended,
                    None => return self.metrics.refusals.count("tls-handshake"),
                }
            }
            // The channel counts and logs the peers that it rejects.
            Handshake::Nodes(channel) => match Box::pin(channel.accept(stream, address)).await {
                Ok(stream) => self.speak_http1(stream, service, &exchange).await,
                Err(_) => return,
            },
        };
        let (received_bytes, sent_bytes) = exchange.transferred_bytes();
        if let Some(refusal) = exchange.refusal() {
            self.metrics.refusals.count(refusal_reason(refusal.code));
            debug!(%address, %refusal, received_bytes, sent_bytes, "connection refused");
        } else if let Err(error) = ended {
            debug!(%address, %error, received_bytes, sent_bytes, "connection broken");
        }
    }

    /// Returns `None` if the TLS handshake fails.
    async fn speak_tls(
        &self,
        tls: &TlsReloader,
        stream: TcpStream,
        remote: RemoteEnd,
        service: ResponseService<S>,
        exchange: &Arc<Exchange>,
    ) -> Option<Result<(), hyper::Error>> {
        let http2 = self.http2.try_acquire().ok();
        let acceptor = tls.acceptor(http2.is_some());
        let accepted = timeout(self.limits.timeouts.header, acceptor.accept(stream)).await;
        let stream = accepted
            .ok()?
            .inspect_err(|error| debug!(address = %remote.address, %error, "TLS handshake failed"))
            .ok()?;
        let (_, session) = stream.get_ref();
        let has_shown_one = session.peer_certificates().is_some();
        remote.certified.store(has_shown_one, Ordering::Release);
        let _ = remote.session.set(TlsSession::of(session));
        let is_http2 = session.alpn_protocol() == Some(b"h2");
        let stream = SigbusGuard::new(stream);
        Some(if is_http2 {
            self.speak_http2(stream, remote.payer, service, exchange).await
        } else {
            drop(http2);
            self.speak_http1(stream, service, exchange).await
        })
    }

    async fn speak_http1<T>(
        &self,
        stream: T,
        service: ResponseService<S>,
        exchange: &Arc<Exchange>,
    ) -> Result<(), hyper::Error>
    where
        T: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let io = GuardedIo::http1(stream, Arc::clone(exchange), self.limits.timeouts).within(&self.budget);
        let connection = http1::Builder::new()
            // The guarded socket enforces the deadlines, because it knows where a head begins.
            .header_read_timeout(None)
            // A client that closes its side is gone: the read ends, and its fetches are cancelled.
            .half_close(false)
            // Aggregating flushes over pipelined requests would copy every byte of every body.
            .pipeline_flush(false)
            .max_buf_size(BUFFER_BYTES)
            .serve_connection(TokioIo::new(io), service);
        self.drive_to_end(connection, exchange).await
    }

    async fn speak_http2<T>(
        &self,
        stream: T,
        payer: Arc<ConnectionPayer>,
        service: ResponseService<S>,
        exchange: &Arc<Exchange>,
    ) -> Result<(), hyper::Error>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let io = GuardedIo::http2(stream, Arc::clone(exchange), self.limits.timeouts);
        let streams = SharedTasks {
            payer,
            processor: Arc::clone(&self.processor),
        };
        let connection = http2::Builder::new(streams)
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_header_list_size(HEADER_LIST_BYTES)
            .max_send_buf_size(STREAM_WINDOW_BYTES as usize)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            .serve_connection(TokioIo::new(io), service);
        self.drive_to_end(connection, exchange).await
    }

    /// Drives a connection to its end. Asks it to close when the node stops, or when the connection itself
    /// requests that.
    async fn drive_to_end<C: GracefulConnection<Error = hyper::Error>>(
        &self,
        connection: C,
        exchange: &Exchange,
    ) -> Result<(), hyper::Error> {
        let mut connection = pin!(connection);
        let mut begun = pin!(self.shutdown.begun());
        let mut listening = false;
        let mut asked = false;
        poll_fn(|cx: &mut Context<'_>| {
            if let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                return Poll::Ready(ended);
            }
            // The task registers with the shutdown once; later wake-ups only load an atomic.
            if asked {
                return Poll::Pending;
            }
            asked = exchange.should_close()
                || ((!listening || self.shutdown.has_begun()) && begun.as_mut().poll(cx).is_ready());
            listening = true;
            if !asked {
                return Poll::Pending;
            }
            connection.as_mut().graceful_shutdown();
            connection.as_mut().poll(cx)
        })
        .await
    }
}

/// Returns the metrics label for a refused connection.
fn refusal_reason(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::RequestTimeout => "timeout",
        ErrorCode::SlowDown => "heads",
        ErrorCode::RequestHeaderSectionTooLarge => "head-too-large",
        _ => "framing",
    }
}
