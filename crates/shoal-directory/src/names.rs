//! Whether a name may have changed at the lake: what lets a directory stand for the lake's HEAD (freshness
//! `coherent`, decision 0031).
//!
//! A name has a **token** that every change replaces. A node that has asked the lake about the name keeps the
//! answer with the token that the name had before it asked; while the name still has that token, no change
//! has begun since.

use std::time::Duration;

use futures_util::future::BoxFuture;
use shoal_policy::{NodeId, ObjectId};

use crate::Silent;

/// A change is taken for possible for this time after its node has begun or renewed it.
pub const CHANGE_LIFE: Duration = Duration::from_mins(1);

/// A name that a directory has not known is unsettled for this time: the directory may have forgotten a
/// change that is under way. Nodes renew their changes several times within it.
pub const SETTLING: Duration = Duration::from_secs(20);

/// A node counts as present for this time after it has said so.
pub const PRESENCE_LIFE: Duration = Duration::from_secs(5);

/// Stands for the state of a name at the lake. Two states of a name have the same token by chance only.
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

/// Names a change among all changes of all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Change(pub u64);

/// A server of a directory that became its master after another one: another node may still ask that one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Promoted(pub u64);

/// A moment by the clock of a directory, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirectoryTime(pub u64);

/// Presence of a node, and the rules by which it tells the directory of its changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presence {
    /// The node.
    pub node: NodeId,
    /// Stands for the rules by which the node tells the directory of its changes. Zero if it changes names
    /// that it cannot tell the directory.
    pub rules: u64,
}

/// The nodes that a directory has heard of lately.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roll {
    /// When the directory answered.
    pub at: DirectoryTime,
    /// The latest presence of each node.
    pub present: Vec<Presence>,
}

/// Knows which names may change, as far as nodes have told. Names are those of objects, and of buckets for
/// changes whose objects are not known.
///
/// Methods may be called at the same time. A future that is dropped may have had its effect.
pub trait Names {
    /// Returns the token of a name, or `None` if a change of it may be under way. A name that the directory
    /// does not know gets the token `fresh`, and is unsettled for [`SETTLING`].
    fn token(&self, name: ObjectId, fresh: Token) -> BoxFuture<'_, Result<Option<Token>, Silent>>;

    /// Notes that a change of a name may take effect from now on, for [`CHANGE_LIFE`] or until it ends. The
    /// name gets the token `fresh`. To begin a change again renews it.
    fn begin(
        &self,
        name: ObjectId,
        change: Change,
        fresh: Token,
    ) -> BoxFuture<'_, Result<Option<Promoted>, Silent>>;

    /// Notes that a change has taken effect, or never will.
    fn end(&self, name: ObjectId, change: Change) -> BoxFuture<'_, Result<(), Silent>>;

    /// Says that a node is present for [`PRESENCE_LIFE`] from `at`, a moment at which it knew that. Words
    /// that arrive late, or after newer ones, change nothing. Without `at` the node only asks which others
    /// are present.
    fn attend(&self, mine: Presence, at: Option<DirectoryTime>) -> BoxFuture<'_, Result<Roll, Silent>>;
}
