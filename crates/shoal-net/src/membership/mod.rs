//! Membership by gossip among the nodes of a cluster (SWIM).
//!
//! Each node probes another one every [`gossip::PROBE_PERIOD`], directly and through others. A node that
//! answers neither way is suspected, and declared dead unless it refutes the suspicion. Updates are
//! piggybacked on probes. No node is special and nothing is persisted: a node that knows one other node
//! learns of all.
//!
//! [`gossip`] decides, without I/O or a clock; [`datagram`] rejects senders that do not know the cluster's
//! secret; [`driver`] sends, receives and keeps time; [`seeds`] finds the first other node; [`notices`]
//! collects what operators should know.

mod datagram;
mod driver;
mod gossip;
mod member;
mod notices;
mod seeds;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

pub use self::datagram::{ClusterKey, RejectReason};
pub use self::member::{Member, NodeConfig, State, generation, node_id};
pub use self::notices::{Notices, SettingDigest, SettingsDigests, SharedSetting};

use self::driver::Driver;
use self::seeds::SeedResolver;
use crate::link::Sharing;

/// The living members, this node included, sorted by name.
pub type Members = Arc<[Member]>;

/// This node's view of the cluster, kept up to date by a separate task.
#[derive(Debug)]
pub struct Membership {
    members: watch::Receiver<Members>,
    commands: mpsc::Sender<Command>,
    driver: JoinHandle<()>,
    seeker: JoinHandle<()>,
}

/// A command to the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    /// Announce this state of the node.
    Become(State),
    /// Announce that this node leaves, and end.
    Leave,
}

/// Announces the state of this node to the others.
#[derive(Clone, Debug)]
pub struct Announcer(mpsc::Sender<Command>);

impl Announcer {
    /// Announces that this node is now in `state`.
    pub async fn announce(&self, state: State) {
        // If the task has ended, this node has already left the cluster.
        let _ = self.0.send(Command::Become(state)).await;
    }
}

impl Membership {
    /// Joins the cluster of `seeds` (`host:port`) as `me`, on the UDP port of `listen`. Does not wait for
    /// another node: the first node of a cluster is alone. Notices for operators are recorded in `notices`.
    /// `sharing` divides the bandwidth of the cluster; `None` if it has none.
    ///
    /// # Errors
    ///
    /// Fails if the UDP port cannot be bound.
    pub async fn join(
        listen: SocketAddr,
        me: Member,
        seeds: Vec<String>,
        key: ClusterKey,
        notices: Arc<Notices>,
        sharing: Option<Sharing>,
    ) -> io::Result<Self> {
        let (commands, received) = mpsc::channel(4);
        let (greetings, greeted) = mpsc::channel(16);
        let address = me.address;
        let (driver, members) = Driver::open(listen, me, key, Arc::clone(&notices), sharing).await?;
        let seeker = SeedResolver {
            seeds,
            address,
            members: members.clone(),
            greetings,
            notices,
        };
        Ok(Self {
            members,
            commands,
            driver: tokio::spawn(driver.run(received, greeted)),
            seeker: tokio::spawn(seeker.run()),
        })
    }

    /// Returns a receiver of the living members.
    pub fn members(&self) -> watch::Receiver<Members> {
        self.members.clone()
    }

    /// Returns a handle that announces the state of this node.
    pub fn announcer(&self) -> Announcer {
        Announcer(self.commands.clone())
    }

    /// Announces that this node leaves, so that the others need not detect it.
    pub async fn leave(self) {
        let _ = self.commands.send(Command::Leave).await;
        // The seed resolver may be waiting for a name service.
        self.seeker.abort();
        if let Err(error) = self.driver.await {
            tracing::error!(%error, "the membership ended in a panic");
        }
    }
}
