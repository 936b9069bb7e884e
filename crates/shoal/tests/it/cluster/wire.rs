//! The wire to one node: everything other nodes send it passes here, and may be lost, held or cut.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::free_address;

/// What the wire does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// It carries everything.
    Whole,
    /// It carries gossip, but no byte of a block: connections stand still.
    Stuck,
    /// It carries nothing; who connects waits, as for a process that is stopped.
    Frozen,
    /// It carries nothing; connections are refused and broken, as those to a dead node.
    Cut,
}

/// The address that a node advertises, in front of the one on which it listens.
pub(crate) struct Way {
    address: SocketAddr,
    state: watch::Sender<Wire>,
    /// Bytes of one connection after which it breaks.
    breaks_after: Arc<AtomicU64>,
    tasks: JoinSet<()>,
}

impl Way {
    /// A way to `node`.
    pub(crate) async fn to(node: SocketAddr) -> Self {
        let address = free_address();
        let listener = TcpListener::bind(address).await.unwrap();
        let gossip = UdpSocket::bind(address).await.unwrap();
        let (state, watched) = watch::channel(Wire::Whole);
        let breaks_after = Arc::new(AtomicU64::new(u64::MAX));
        let mut tasks = JoinSet::new();
        tasks.spawn(carry_gossip(gossip, node, watched.clone()));
        tasks.spawn(carry_connections(
            listener,
            node,
            watched,
            Arc::clone(&breaks_after),
        ));
        Self {
            address,
            state,
            breaks_after,
            tasks,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn becomes(&self, wire: Wire) {
        self.state.send_replace(wire);
    }

    /// Each answer is broken off after so many bytes.
    pub(crate) fn breaks_after(&self, bytes: u64) {
        self.breaks_after.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn ends(mut self) {
        self.tasks.abort_all();
    }
}

async fn carry_gossip(gossip: UdpSocket, node: SocketAddr, state: watch::Receiver<Wire>) {
    let mut buffer = [0; 2048];
    loop {
        let Ok((length, _)) = gossip.recv_from(&mut buffer).await else {
            continue;
        };
        if matches!(*state.borrow(), Wire::Whole | Wire::Stuck) {
            // A node that is gone hears nothing.
            let _ = gossip.send_to(&buffer[..length], node).await;
        }
    }
}

async fn carry_connections(
    listener: TcpListener,
    node: SocketAddr,
    state: watch::Receiver<Wire>,
    breaks_after: Arc<AtomicU64>,
) {
    let mut connections = JoinSet::new();
    loop {
        let (asking, _) = listener.accept().await.unwrap();
        if *state.borrow() == Wire::Cut {
            continue;
        }
        connections.spawn(carry(asking, node, state.clone(), Arc::clone(&breaks_after)));
    }
}

async fn carry(
    asking: TcpStream,
    node: SocketAddr,
    state: watch::Receiver<Wire>,
    breaks_after: Arc<AtomicU64>,
) {
    let Ok(answering) = TcpStream::connect(node).await else {
        return;
    };
    let (mut from_asking, mut to_asking) = asking.into_split();
    let (mut from_answering, mut to_answering) = answering.into_split();
    let there = pump(&mut from_asking, &mut to_answering, state.clone(), u64::MAX);
    let back = pump(
        &mut from_answering,
        &mut to_asking,
        state,
        breaks_after.load(Ordering::Relaxed),
    );
    tokio::select! {
        () = there => {}
        () = back => {}
    }
}

async fn pump(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    mut state: watch::Receiver<Wire>,
    bytes_max: u64,
) {
    let (mut buffer, mut carried) = ([0; 16 << 10], 0);
    loop {
        let carrying = state
            .wait_for(|wire| matches!(wire, Wire::Whole | Wire::Cut))
            .await;
        if carrying.is_err_and(|_| true) || *state.borrow() == Wire::Cut {
            return;
        }
        let length = tokio::select! {
            read = from.read(&mut buffer) => read.unwrap_or(0),
            _ = state.changed() => continue,
        };
        carried += length as u64;
        if length == 0 || carried > bytes_max || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
