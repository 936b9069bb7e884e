//! Changes of names at the lake, as a directory tracks them: a query to the directory replaces a HEAD request
//! to the lake (freshness `coherent`, decision 0031).
//!
//! A name has a **token** that every change replaces. A node that queries the lake about a name keeps the
//! answer with the token that the name had before the query; while the name still has that token, no change
//! has begun since.

use std::time::Duration;

use shoal_policy::NodeId;

/// A change counts as under way for this time after its node has begun or renewed it.
pub const CHANGE_LIFE: Duration = Duration::from_mins(1);

/// A name that is new to a directory is unsettled for this time, because the directory may have lost a change
/// under way. Nodes renew their changes several times within it.
pub const SETTLING: Duration = Duration::from_secs(20);

/// A node counts as present for this time after its announcement.
pub const PRESENCE_LIFE: Duration = Duration::from_secs(5);

/// Identifies the state of a name at the lake. Random, so two states of a name share a token only by chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub u64);

/// The tokens of an object and of its bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tokens {
    /// Replaced by every change of the object.
    pub object: Token,
    /// Replaced by every change whose objects are not known.
    pub bucket: Token,
}

/// Identifies a change among all changes of all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Change(pub u64);

/// Identifies a directory server that was promoted to master. Other nodes may still use the one that it
/// replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Promoted(pub u64);

/// A time by the clock of a directory, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirectoryTime(pub u64);

/// The presence of a node, and the rules by which it reports its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presence {
    /// The node.
    pub node: NodeId,
    /// Identifies the rules by which the node reports its changes. Zero if it is detached: it may change
    /// names without reporting that.
    pub rules: u64,
}

/// The nodes that have recently announced their presence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roll {
    /// When the directory answered.
    pub at: DirectoryTime,
    /// The latest presence of each node.
    pub present: Vec<Presence>,
}
