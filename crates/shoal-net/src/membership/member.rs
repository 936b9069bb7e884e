//! The data about a node that gossip carries.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use shoal_base::moment::millis_since_1970;
use shoal_policy::NodeId;

/// Identity and topology of a node.
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

/// One node, as it describes itself. Every gossip message contains it, so it is small.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Address for other nodes: TCP for blocks, UDP for gossip. Unique among living nodes.
    pub address: SocketAddr,
    /// Start time in milliseconds since 1970, increased by each change that the node announces about itself.
    /// Of two members with one address, the one with the higher generation is current.
    pub generation: u64,
    /// `node.name`
    pub name: String,
    /// `node.topology`
    pub topology: String,
    /// Address for clients.
    pub s3: SocketAddr,
    /// Address for operators.
    pub admin: SocketAddr,
    /// Share of blocks whose home is this node, in percent of an ordinary node's share.
    pub weight_percent: u32,
    /// State of the node.
    pub state: State,
}

/// The state of a living node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Home to its share of the blocks.
    Serving,
    /// No longer home to any block; hands over the blocks it has.
    Draining,
}

impl Member {
    /// A placeholder for a node of which only the address is known.
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

    /// Returns the start time.
    pub fn since(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.generation)
    }

    /// Returns the digest of the name, which identifies the node in rings and routes.
    pub fn id(&self) -> NodeId {
        node_id(&self.name)
    }
}

/// Returns the generation of a member that starts at `now`. It is higher than that of the node's previous
/// run, which other nodes may remember.
pub fn generation(now: SystemTime) -> u64 {
    millis_since_1970(now)
}

/// Returns the id of a name, the same on every machine: the first 64 bits of its SHA-256.
pub fn node_id(name: &str) -> NodeId {
    let digest = Sha256::digest(name);
    let first = digest.first_chunk().expect("SHA-256 has 32 bytes");
    NodeId(u64::from_be_bytes(*first))
}

impl foca::Identity for Member {
    type Addr = SocketAddr;

    /// A living node that was declared dead rejoins with a higher generation.
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

#[cfg(test)]
mod tests {
    use super::{Member, State};

    /// Other bytes need another `MAGIC` of datagrams (decision 0061).
    #[test]
    fn a_member_has_the_same_bytes_in_every_release() {
        let address = |port: u16| ([10, 0, 0, 1], port).into();
        let member = Member {
            address: address(9200),
            generation: 1_700_000_000_000,
            name: "a1".into(),
            topology: "dc1/r".into(),
            s3: address(9000),
            admin: address(9100),
            weight_percent: 100,
            state: State::Draining,
        };
        let bytes = postcard::to_stdvec(&member).unwrap();
        assert_eq!(
            bytes.escape_ascii().to_string(),
            "\\x00\\n\\x00\\x00\\x01\\xf0G\\x80\\xd0\\x95\\xff\\xbc1\\x02a1\\x05dc1/r\\x00\\n\
             \\x00\\x00\\x01\\xa8F\\x00\\n\\x00\\x00\\x01\\x8cGd\\x01"
        );
    }
}
