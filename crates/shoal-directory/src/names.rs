//! Tracks whether a name may have changed at the lake, which replaces a HEAD request to the lake (freshness
//! `coherent`, decision 0031).
//!
//! A name has a **token** that every change replaces. A node that queries the lake about a name keeps the
//! answer with the token that the name had before the query; while the name still has that token, no change
//! has begun since.

use std::time::Duration;

use async_trait::async_trait;
use shoal_policy::{NodeId, ObjectId};

use crate::Silent;

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

/// Knows which names may be changing, according to the nodes' reports. Names are those of objects, and of
/// buckets for changes whose objects are unknown.
///
/// Methods may be called at the same time. A future that is dropped may have had its effect.
#[async_trait]
pub trait Names {
    /// Returns the token of a name, or `None` if a change of it may be under way. A name that the directory
    /// does not know gets the token `fresh`, and is unsettled for [`SETTLING`].
    async fn token(&self, name: ObjectId, fresh: Token) -> Result<Option<Token>, Silent>;

    /// Records that a change of a name may take effect from now on, for [`CHANGE_LIFE`] or until it ends. The
    /// name gets the token `fresh`. Beginning a change again renews it.
    async fn begin(&self, name: ObjectId, change: Change, fresh: Token) -> Result<Option<Promoted>, Silent>;

    /// Records that a change has taken effect, or never will.
    async fn end(&self, name: ObjectId, change: Change) -> Result<(), Silent>;

    /// Announces that a node is present for [`PRESENCE_LIFE`] from `at`. Announcements that arrive late, or
    /// after newer ones, have no effect. Without `at` it only returns which nodes are present.
    async fn attend(&self, mine: Presence, at: Option<DirectoryTime>) -> Result<Roll, Silent>;
}
