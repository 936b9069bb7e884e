//! Who else is there: gossip among the nodes of a cluster (SWIM).
//!
//! Each node probes another one every [`gossip::PROBE_PERIOD`], directly and through others; who answers neither is suspected, and
//! declared dead when it does not object. News rides along with probes. No node is special and nothing is written down: a node that knows one
//! other learns of all.
//!
//! [`gossip`] decides, without I/O or a clock; [`datagram`] lets nobody in who does not know the cluster's secret; [`driver`] moves
//! datagrams and keeps time.

mod datagram;
mod driver;
mod gossip;
mod member;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

pub use self::datagram::{ClusterKey, Stranger};
pub use self::member::{Member, State, generation, node_id};

use self::driver::Driver;

/// The living members, this node included, in the order of their names.
pub type Members = Arc<[Member]>;

/// What this node knows of the cluster, kept up to date by a task of its own.
#[derive(Debug)]
pub struct Membership {
    members: watch::Receiver<Members>,
    orders: mpsc::Sender<Order>,
    refused: Arc<Refused>,
    task: JoinHandle<()>,
}

/// What the task can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// This node says that it is in this state from now on.
    Become(State),
    /// Take leave of the others and end.
    Leave,
}

/// Lets the others know what this node is up to.
#[derive(Clone, Debug)]
pub struct Herald(mpsc::Sender<Order>);

impl Herald {
    /// Tells everyone that this node is in `state` from now on.
    pub async fn tell(&self, state: State) {
        // Who is not there any more has left the cluster already.
        let _ = self.0.send(Order::Become(state)).await;
    }
}

/// Datagrams that were not let in.
#[derive(Debug, Default)]
struct Refused([AtomicU64; Stranger::ALL.len()]);

impl Refused {
    fn count(&self, stranger: Stranger) {
        self.0[stranger as usize].fetch_add(1, Ordering::Relaxed);
    }
}

impl Membership {
    /// Joins the cluster of `seeds` (`host:port`) as `me`, on the UDP port of `listen`. Nobody is waited for: the first node of a
    /// cluster has nobody to meet.
    pub async fn join(
        listen: SocketAddr,
        me: Member,
        seeds: Vec<String>,
        key: ClusterKey,
    ) -> io::Result<Self> {
        let (orders, received) = mpsc::channel(4);
        let refused = Arc::<Refused>::default();
        let (driver, members) = Driver::open(listen, me, seeds, key, Arc::clone(&refused)).await?;
        Ok(Self {
            members,
            orders,
            refused,
            task: tokio::spawn(driver.run(received)),
        })
    }

    /// The living members now, and whenever they change.
    pub fn members(&self) -> watch::Receiver<Members> {
        self.members.clone()
    }

    /// Datagrams that were not let in, by reason.
    pub fn refused(&self) -> [(Stranger, u64); Stranger::ALL.len()] {
        Stranger::ALL.map(|stranger| {
            (
                stranger,
                self.refused.0[stranger as usize].load(Ordering::Relaxed),
            )
        })
    }

    /// Tells the others what this node is up to.
    pub fn herald(&self) -> Herald {
        Herald(self.orders.clone())
    }

    /// Takes leave, so that nobody has to find out that this node is gone.
    pub async fn leave(self) {
        let _ = self.orders.send(Order::Leave).await;
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the membership ended in a panic");
        }
    }
}
