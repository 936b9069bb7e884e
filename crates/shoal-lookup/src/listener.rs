//! Serves questions over UDP and TCP.
//!
//! A question takes a few microseconds and no I/O, so the task that receives a datagram answers it before it
//! receives the next one: datagrams queue only in the kernel's buffer, which drops the excess.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use shoal_net::shutdown::Shutdown;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::Shared;
use super::answer::responder::Transport;
use super::rate_limit::{Allowance, Network, truncated};

/// The maximum number of connections on one listener; further ones wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 256;
/// The maximum number of connections from one network; further ones are closed at once, so that no network
/// uses up all connections.
const CONNECTIONS_OF_NETWORK_MAX: usize = 32;
/// A connection that sends no question, or does not read its answer, is closed after this time (RFC 7766,
/// section 6.2.3).
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after an error of the operating system, such as too many open files.
const PAUSE: Duration = Duration::from_millis(100);

/// The UDP and TCP sockets of one address.
#[derive(Debug)]
pub struct Sockets {
    udp: UdpSocket,
    tcp: TcpListener,
}

impl Sockets {
    /// Binds both. Port 0 selects a port that is free for both.
    ///
    /// # Errors
    ///
    /// Fails if either socket cannot be bound.
    pub async fn bind(address: SocketAddr) -> io::Result<Self> {
        const ATTEMPTS: usize = 16;
        let mut attempt = 1;
        loop {
            let udp = UdpSocket::bind(address).await?;
            match TcpListener::bind(udp.local_addr()?).await {
                Ok(tcp) => return Ok(Self { udp, tcp }),
                // A port that is free for UDP may be in use for TCP.
                Err(error)
                    if error.kind() == io::ErrorKind::AddrInUse
                        && address.port() == 0
                        && attempt < ATTEMPTS =>
                {
                    attempt += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The address on which they listen.
    ///
    /// # Errors
    ///
    /// Fails if the operating system does not return the address of the socket.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.udp.local_addr()
    }

    /// Answers until `shutdown` begins.
    pub async fn serve(self, shared: Arc<Shared>, shutdown: Shutdown) {
        let Self { udp, tcp } = self;
        tokio::select! {
            () = shutdown.begun() => {}
            () = serve_datagrams(udp, Arc::clone(&shared)) => {}
            () = serve_connections(tcp, shared) => {}
        }
    }
}

async fn serve_datagrams(socket: UdpSocket, shared: Arc<Shared>) {
    let mut buffer = vec![0; usize::from(u16::MAX)];
    loop {
        let (length, source) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            Err(error) => {
                tracing::warn!(%error, "a datagram could not be received");
                sleep(PAUSE).await;
                continue;
            }
        };
        let allowance = shared.allow(source);
        if allowance == Allowance::Silence {
            continue;
        }
        let Some(mut answer) = shared.answer(&buffer[..length], source, Transport::Udp) else {
            continue;
        };
        if allowance == Allowance::Truncated {
            let Some(short) = truncated(&answer) else { continue };
            answer = short;
        }
        if let Err(error) = socket.send_to(&answer, source).await {
            tracing::debug!(%error, %source, "an answer could not be sent");
        }
    }
}

async fn serve_connections(listener: TcpListener, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // A handle for each connection of a network, and one here.
    let mut networks: HashMap<Network, Arc<()>> = HashMap::new();
    // Dropping this future drops every connection.
    let mut connections = JoinSet::new();
    loop {
        let place = Arc::clone(&places);
        let place = place.acquire_owned().await.expect("nobody closes it");
        let (stream, source) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                sleep(PAUSE).await;
                continue;
            }
        };
        networks.retain(|_, open| Arc::strong_count(open) > 1);
        debug_assert!(
            networks.len() < CONNECTIONS_MAX,
            "a network that is counted has a connection"
        );
        let open = networks.entry(Network::containing(source.ip())).or_default();
        if Arc::strong_count(open) > CONNECTIONS_OF_NETWORK_MAX {
            tracing::debug!(%source, "connection refused: its network is at its limit of connections");
            continue;
        }
        let of_network = Arc::clone(open);
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            if let Err(error) = converse(stream, source, &shared).await {
                tracing::debug!(%error, %source, "a connection ended");
            }
            // The place last: when it is free, its network has one connection less.
            drop((of_network, place));
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Exchanges questions and answers, each preceded by its length, until the client closes the connection or a
/// timeout.
async fn converse(mut stream: TcpStream, source: SocketAddr, shared: &Shared) -> io::Result<()> {
    loop {
        let question = timeout(IDLE_TIMEOUT, read_message(&mut stream)).await??;
        let Some(answer) = shared.answer(&question, source, Transport::Tcp) else {
            return Ok(());
        };
        let length = u16::try_from(answer.len()).expect("an answer has room for its length");
        let framed = [&length.to_be_bytes()[..], &answer].concat();
        timeout(IDLE_TIMEOUT, stream.write_all(&framed)).await??;
    }
}

async fn read_message(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let length = stream.read_u16().await?;
    let mut message = vec![0; usize::from(length)];
    stream.read_exact(&mut message).await?;
    Ok(message)
}
