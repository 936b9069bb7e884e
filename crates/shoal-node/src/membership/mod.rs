//! Membership by gossip among the nodes of a cluster (SWIM).
//!
//! Each node probes another one every [`gossip::PROBE_PERIOD`], directly and through others. A node that
//! answers neither is suspected, and declared dead if it does not object. News rides along with probes. No
//! node is special and nothing is written down: a node that knows one other node learns of all.
//!
//! [`gossip`] decides, without I/O or a clock; [`datagram`] admits only nodes that know the cluster's secret;
//! [`driver`] moves datagrams and keeps time; [`seeds`] finds the first other node; [`notices`] keeps what an
//! operator should know.

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

/// The living members, this node included, in the order of their names.
pub type Members = Arc<[Member]>;

/// This node's view of the cluster, kept up to date by a separate task.
#[derive(Debug)]
pub struct Membership {
    members: watch::Receiver<Members>,
    commands: mpsc::Sender<Command>,
    driver: JoinHandle<()>,
    seeker: JoinHandle<()>,
}

/// An order to the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    /// Tell the others that this node is in this state from now on.
    Become(State),
    /// Take leave of the others and end.
    Leave,
}

/// Tells the other nodes the state of this node.
#[derive(Clone, Debug)]
pub struct Announcer(mpsc::Sender<Command>);

impl Announcer {
    /// Tells the other nodes that this node is in `state` from now on.
    pub async fn announce(&self, state: State) {
        // If the task has ended, this node has already left the cluster.
        let _ = self.0.send(Command::Become(state)).await;
    }
}

impl Membership {
    /// Joins the cluster of `seeds` (`host:port`) as `me`, on the UDP port of `listen`. The node does not
    /// wait for another one: the first node of a cluster has none to meet. Notices for an operator go into
    /// `notices`. The living nodes share a bandwidth by `sharing`, if they do.
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

    /// Returns the living members now, and whenever they change.
    pub fn members(&self) -> watch::Receiver<Members> {
        self.members.clone()
    }

    /// Returns a handle that tells the other nodes the state of this node.
    pub fn announcer(&self) -> Announcer {
        Announcer(self.commands.clone())
    }

    /// Takes leave, so that the other nodes need not find out that this node is gone.
    pub async fn leave(self) {
        let _ = self.commands.send(Command::Leave).await;
        // The seeker may be waiting for a name service.
        self.seeker.abort();
        if let Err(error) = self.driver.await {
            tracing::error!(%error, "the membership ended in a panic");
        }
    }
}
