//! The data that a node tells the others about itself.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shoal_policy::NodeId;

/// The identity and the place of a node.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeConfig {
    /// Unique in the cluster; shown in headers, logs and status.
    pub name: String,
    /// Place, outermost first: `dc1/cluster-a/rack-1`.
    pub topology: String,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            name: "node-1".into(),
            topology: "dc1/cluster-a/rack-1".into(),
        }
    }
}

/// One node, as it introduces itself. Gossip carries it whole, so it is small.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Where other nodes reach it: blocks by TCP, gossip by UDP. No two living nodes share it.
    pub address: SocketAddr,
    /// When the node began, in milliseconds since 1970, and a little more with each change that it announces
    /// about itself. Of two members with one address, the one with the higher generation is right.
    pub generation: u64,
    /// `node.name`
    pub name: String,
    /// `node.topology`
    pub topology: String,
    /// Where clients reach it.
    pub s3: SocketAddr,
    /// Where operators reach it.
    pub admin: SocketAddr,
    /// The share of blocks that are at home there, in percent of an ordinary node's.
    pub weight_percent: u32,
    /// Whether it takes on new blocks.
    pub state: State,
}

/// The state of a living node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is home to its share of the blocks.
    Serving,
    /// It is no longer home to any block and gives away what it has.
    Draining,
}

impl Member {
    /// A node of which only the address is known, to be greeted there.
    pub(super) fn unknown_at(address: SocketAddr) -> Self {
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        Self {
            address,
            generation: 0,
            name: String::new(),
            topology: String::new(),
            s3: nowhere,
            admin: nowhere,
            weight_percent: 0,
            state: State::Serving,
        }
    }

    /// Returns when it began.
    pub fn since(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.generation)
    }

    /// Returns the digest of its name, by which rings and routes know it.
    pub fn id(&self) -> NodeId {
        node_id(&self.name)
    }
}

/// Returns the generation of a member that begins at `now`. It is higher than that of its previous life,
/// which other nodes may still remember.
pub fn generation(now: SystemTime) -> u64 {
    let since_1970 = now.duration_since(SystemTime::UNIX_EPOCH);
    since_1970.unwrap_or_default().as_millis() as u64
}

/// Returns the number of a name, the same on every machine: the first 64 bits of its SHA-256.
pub fn node_id(name: &str) -> NodeId {
    let digest = Sha256::digest(name);
    let first = digest.first_chunk().expect("SHA-256 has 32 bytes");
    NodeId(u64::from_be_bytes(*first))
}

impl foca::Identity for Member {
    type Addr = SocketAddr;

    /// A node that is alive but was declared dead comes back with a higher generation.
    fn renew(&self) -> Option<Self> {
        Some(Self {
            generation: self.generation + 1,
            ..self.clone()
        })
    }

    fn addr(&self) -> SocketAddr {
        self.address
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        self.generation > adversary.generation
    }
}
