//! The wire to one node. All bytes from other nodes pass through it, and may be lost, held or cut.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::free_address;

/// State of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// It carries everything.
    Whole,
    /// It carries gossip, but no byte of a block: connections stand still.
    Stuck,
    /// It carries nothing; connections wait, as for a process that is stopped.
    Frozen,
    /// It carries nothing; connections are refused and broken, as those to a dead node.
    Cut,
}

/// The address that a node advertises, in front of the one on which it listens.
pub(crate) struct Way {
    address: SocketAddr,
    state: watch::Sender<Wire>,
    middle: Arc<Middle>,
    tasks: JoinSet<()>,
}

/// A man in the middle of this way.
#[derive(Debug)]
struct Middle {
    /// Bytes of one connection after which it breaks.
    breaks_after: AtomicU64,
    /// True if one byte in each [`ALTERED_EVERY`] that come back is another one.
    alters: AtomicBool,
    /// Number of altered bytes.
    altered: AtomicU64,
    /// Connections so far: each is altered elsewhere.
    connections: AtomicU64,
    /// Bytes that each connection carried to the node and back.
    recorded: Mutex<Vec<Recording>>,
}

/// Bytes that one connection carried.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recording {
    /// To the node.
    pub(crate) asked: Vec<u8>,
    /// From it.
    pub(crate) answered: Vec<u8>,
}

/// Two altered bytes of one connection are this far apart: less than a block of these stories.
const ALTERED_EVERY: u64 = 20_011;

impl Way {
    /// A way to `node`.
    pub(crate) async fn to(node: SocketAddr) -> Self {
        let address = free_address();
        let listener = TcpListener::bind(address).await.unwrap();
        let gossip = UdpSocket::bind(address).await.unwrap();
        let (state, watched) = watch::channel(Wire::Whole);
        let middle = Arc::new(Middle {
            breaks_after: AtomicU64::new(u64::MAX),
            alters: AtomicBool::new(false),
            altered: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            recorded: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(carry_gossip(gossip, node, watched.clone()));
        tasks.spawn(carry_connections(listener, node, watched, Arc::clone(&middle)));
        Self {
            address,
            state,
            middle,
            tasks,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn becomes(&self, wire: Wire) {
        self.state.send_replace(wire);
    }

    /// Each answer is broken off after this many bytes.
    pub(crate) fn breaks_after(&self, bytes: u64) {
        self.middle.breaks_after.store(bytes, Ordering::Relaxed);
    }

    /// Whether bytes of answers are altered from now on, on old connections and new ones.
    pub(crate) fn alters_answers(&self, alters: bool) {
        self.middle.alters.store(alters, Ordering::Relaxed);
    }

    /// Number of bytes that were altered so far.
    pub(crate) fn altered(&self) -> u64 {
        self.middle.altered.load(Ordering::Relaxed)
    }

    /// Bytes that each connection has carried so far.
    pub(crate) fn recorded(&self) -> Vec<Recording> {
        self.middle.recorded.lock().clone()
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
            // A node that is gone receives nothing.
            let _ = gossip.send_to(&buffer[..length], node).await;
        }
    }
}

async fn carry_connections(
    listener: TcpListener,
    node: SocketAddr,
    state: watch::Receiver<Wire>,
    middle: Arc<Middle>,
) {
    let mut connections = JoinSet::new();
    loop {
        let (asking, _) = listener.accept().await.unwrap();
        if *state.borrow() == Wire::Cut {
            continue;
        }
        connections.spawn(carry(asking, node, state.clone(), Arc::clone(&middle)));
    }
}

async fn carry(asking: TcpStream, node: SocketAddr, state: watch::Receiver<Wire>, middle: Arc<Middle>) {
    let Ok(answering) = TcpStream::connect(node).await else {
        return;
    };
    let number = middle.connections.fetch_add(1, Ordering::Relaxed);
    let index = {
        let mut recorded = middle.recorded.lock();
        recorded.push(Recording::default());
        recorded.len() - 1
    };
    let (mut from_asking, mut to_asking) = asking.into_split();
    let (mut from_answering, mut to_answering) = answering.into_split();
    let there = pump(
        &mut from_asking,
        &mut to_answering,
        state.clone(),
        u64::MAX,
        |_, bytes| {
            middle.recorded.lock()[index].asked.extend_from_slice(bytes);
        },
    );
    let back = pump(
        &mut from_answering,
        &mut to_asking,
        state,
        middle.breaks_after.load(Ordering::Relaxed),
        |start, bytes| {
            middle.alter(number, start, bytes);
            middle.recorded.lock()[index].answered.extend_from_slice(bytes);
        },
    );
    tokio::select! {
        () = there => {}
        () = back => {}
    }
}

impl Middle {
    /// Alters `bytes` that come back on connection `number`, where they begin at `start`.
    fn alter(&self, number: u64, start: u64, bytes: &mut [u8]) {
        if !self.alters.load(Ordering::Relaxed) {
            return;
        }
        let first = number.wrapping_mul(1_931) % ALTERED_EVERY;
        for (at, byte) in (start..).zip(bytes) {
            if at % ALTERED_EVERY == first {
                *byte ^= 1;
                self.altered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

async fn pump(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    mut state: watch::Receiver<Wire>,
    bytes_max: u64,
    mut passes: impl FnMut(u64, &mut [u8]),
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
        passes(carried, &mut buffer[..length]);
        carried += length as u64;
        if length == 0 || carried > bytes_max || to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
