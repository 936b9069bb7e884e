//! The links of a simulated cluster, by their ends.

use serde::{Deserialize, Serialize};
use shoal_sim::cluster::NodeIndex;

use crate::network::LinkId;

/// The two ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LinkKind {
    /// A node to its clients.
    Client,
    /// A node to the others.
    PeerOut,
    /// The others to a node.
    PeerIn,
    /// The lake to a node.
    LakeIn,
    /// A node to the lake.
    LakeOut,
    /// The lake to all nodes.
    LakeTotalIn,
    /// All nodes to the lake.
    LakeTotalOut,
    /// The disk of a node to the node.
    Disk,
}

/// A link with a name.
#[derive(Clone, Copy, Debug)]
pub struct NamedLink {
    /// The ends of the link.
    pub kind: LinkKind,
    /// The node that the link belongs to.
    pub node: Option<NodeIndex>,
    /// The link in the network.
    pub id: LinkId,
}
