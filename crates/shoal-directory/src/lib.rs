//! The directory of D4N: which nodes hold a block, which node fetches it, and its global weight (dissertation
//! 4.5.1 and 4.5.3).
//!
//! Every entry is **soft**. A directory may answer late, wrongly or not at all, lose entries and restore old
//! ones: that costs a hop or a fetch, but never a wrong byte. So correctness never depends on an answer, and
//! a node without one proceeds without the directory (decision 0029).
//!
//! - [`Directory`]: the requests of nodes to a directory, and its two implementations: [`embedded`] for the
//!   nodes of one process, [`redis`] for those of a cluster. Both pass one conformance suite,
//!   `tests/directory/conformance.rs`.
//! - [`names`]: the changes of names, which every directory tracks as well, and [`attachment`]: when a node
//!   may rely on its answers about them.
//! - [`config`]: the settings of a directory, of which [`redis`] checks its part.
//! - [`extensions`]: annotations of blocks.
//! - [`guard`]: bounds the response time of a directory, and stops sending requests to one that does not
//!   answer.
//! - [`reporter`]: reports the blocks of a node to a directory, in batches for which no reader waits.

pub mod attachment;
pub mod config;
pub mod embedded;
pub mod extensions;
pub mod guard;
pub mod names;
pub mod redis;
pub mod reporter;

use std::time::Duration;

use async_trait::async_trait;
use shoal_policy::{BlockId, NodeId, ObjectId, VersionId};

use crate::extensions::Extension;
use crate::names::{Change, DirectoryTime, Presence, Promoted, Roll, Token};

/// The number of consecutive blocks of a version that share an entry.
pub const GROUP_BLOCKS: u32 = 32;

/// An entry expires after this time without a change. Nodes report their blocks again within it.
pub const ENTRY_LIFE: Duration = Duration::from_hours(1);

/// A claim expires after this time, so that a node that dies while fetching a block does not prevent others
/// from fetching it.
pub const CLAIM_LIFE: Duration = Duration::from_secs(10);

/// The maximum number of holders in an entry. Copies on further nodes are not recorded.
pub const HOLDERS_MAX: usize = 32;

/// The number of markers of a node, see [`Directory::mark`]. If the directory has several servers, the
/// markers are spread over them.
pub const MARKERS: u16 = 16;

/// A marker expires after this time without renewal.
pub const MARKER_LIFE: Duration = Duration::from_mins(1);

/// The state of a node expires after this time. Nodes send it once a second.
pub const STATE_LIFE: Duration = Duration::from_secs(5);

/// The maximum global weight. Every directory counts exactly up to it.
pub const WEIGHT_MAX: u64 = 1 << 53;

/// Consecutive blocks of one version that share an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group {
    /// The version.
    pub version: VersionId,
    /// The position among the version's groups, from 0.
    pub number: u32,
}

impl Group {
    /// The group of a block.
    pub const fn containing(block: BlockId) -> Self {
        Self {
            version: block.version,
            number: block.index / GROUP_BLOCKS,
        }
    }
}

/// The location of a block that the requesting node lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Located {
    /// These nodes hold it, in no particular order. Never empty; excludes the requesting node and those in
    /// `without`.
    Held(Vec<NodeId>),
    /// No node holds it, but this node is fetching it.
    Claimed(NodeId),
    /// No node holds it, and the requesting node must fetch it: other nodes are directed to it for
    /// [`CLAIM_LIFE`].
    Yours,
}

/// Outcome of [`Directory::leave`] for a copy that a node is about to evict (Algorithm 3, lines 26-42).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Other nodes hold the block. The requesting node was removed from the holders, and the weight of its
    /// copy was added to the block's global weight.
    Copied,
    /// No other node holds it, so the requesting node decides by the sum of both weights. The entry stays,
    /// with this global weight. If the node adds it to the copy's weight, it subtracts it here
    /// ([`Directory::take`]); if the block is evicted, its entry is removed anyway.
    Last(u64),
}

/// Answers for blocks of one group, and the holders of the rest of the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers<T> {
    /// An answer for each requested block, in the same order.
    pub each: Vec<T>,
    /// Bit mask of the blocks in the group that nodes other than the requesting one hold. It shows a node how
    /// complete an object is, without a separate request.
    pub elsewhere: u32,
}

/// Everything that a directory knows about a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The nodes that hold it, in no particular order.
    pub holders: Vec<NodeId>,
    /// The node that is fetching it.
    pub claimant: Option<NodeId>,
    /// Uses by nodes that did not hold a copy, and the weights of evicted copies.
    pub global_weight: u64,
}

/// The state that a node shares with the others: its ranks, and whether it accepts pushes (dissertation
/// 4.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeState {
    /// The node.
    pub node: NodeId,
    /// The greatest rank of a block evicted on any node, as far as this one knows.
    pub age: u64,
    /// The average rank of its blocks.
    pub average_rank: u64,
    /// True if it accepts pushed blocks.
    pub takes_pushes: bool,
}

/// The directory gave no usable answer. A node proceeds without it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the directory does not answer: {0}")]
pub struct Silent(pub String);

/// Tracks which nodes hold which blocks and which names may be changing, according to the reports of the
/// nodes, and stores extensions of groups. Names are those of objects, and of buckets for changes whose
/// objects are unknown.
///
/// Methods may be called concurrently. A future that is dropped may have taken effect.
#[async_trait]
pub trait Directory: Send + Sync {
    /// Locates blocks of a group, each given by its index in the version, for node `me`, which lacks them;
    /// answers are in the same order. If no node holds a block and no other node has claimed it, `me` claims
    /// it. The copies and claims of the nodes in `without` are ignored, because `me` failed to get the block
    /// from them, but not removed.
    ///
    /// Of all nodes that concurrently look up a block that no node holds, exactly one gets
    /// [`Located::Yours`].
    async fn locate(
        &self,
        me: NodeId,
        group: Group,
        indexes: &[u32],
        without: &[NodeId],
    ) -> Result<Answers<Located>, Silent>;

    /// Records that `node` holds these blocks of a group, given by their index in the version, and ends its
    /// claims to them.
    async fn held(&self, node: NodeId, group: Group, indexes: &[u32]) -> Result<(), Silent>;

    /// Records that `node` neither holds nor fetches these blocks of a group, given by their index in the
    /// version.
    async fn dropped(&self, node: NodeId, group: Group, indexes: &[u32]) -> Result<(), Silent>;

    /// Adds weights to the global weights of blocks of a group, each given by its index in the version, for
    /// uses served from other nodes' caches. Blocks that no node holds are ignored.
    async fn used(&self, group: Group, uses: &[(u32, u64)]) -> Result<(), Silent>;

    /// Announces that `node` is about to evict copies of blocks of a group, each given by its index in the
    /// version and the weight of the copy. Answers are in the same order.
    ///
    /// If all holders of a block announce this concurrently, exactly one gets [`Left::Last`].
    async fn leave(
        &self,
        node: NodeId,
        group: Group,
        leaving: &[(u32, u64)],
    ) -> Result<Answers<Left>, Silent>;

    /// Subtracts weights from the global weights of blocks of a group, each given by its index in the
    /// version, because they were added to a last copy. Weight added since the answer to `leave` stays.
    async fn take(&self, group: Group, weights: &[(u32, u64)]) -> Result<(), Silent>;

    /// Returns the entry of a block; empty if the directory has none.
    async fn entry(&self, block: BlockId) -> Result<Entry, Silent>;

    /// Sends the state of a node. Returns those of all nodes that have sent theirs within [`STATE_LIFE`].
    async fn exchange(&self, mine: NodeState) -> Result<Vec<NodeState>, Silent>;

    /// Renews a marker of `node`, below [`MARKERS`]. Returns true if the marker still existed. If not, the
    /// directory may have lost entries of the node, which then reports its blocks again.
    async fn mark(&self, node: NodeId, marker: u16) -> Result<bool, Silent>;

    /// Returns the token of a name, or `None` if a change of it may be under way. A name without
    /// an entry gets the token `fresh`, and is unsettled for [`SETTLING`](names::SETTLING).
    async fn token(&self, name: ObjectId, fresh: Token) -> Result<Option<Token>, Silent>;

    /// Records that a change of a name may take effect from now on, for [`CHANGE_LIFE`](names::CHANGE_LIFE)
    /// or until it ends. The name gets the token `fresh`. Beginning a change again renews it.
    async fn begin(&self, name: ObjectId, change: Change, fresh: Token) -> Result<Option<Promoted>, Silent>;

    /// Records that a change has taken effect, or never will.
    async fn end(&self, name: ObjectId, change: Change) -> Result<(), Silent>;

    /// Announces that a node is present for [`PRESENCE_LIFE`](names::PRESENCE_LIFE) from `at`. Announcements
    /// that arrive late, or after newer ones, have no effect. Without `at` it only returns which nodes are
    /// present.
    async fn attend(&self, mine: Presence, at: Option<DirectoryTime>) -> Result<Roll, Silent>;

    /// Stores an extension of a group for `life`, at most [`ENTRY_LIFE`], replacing an earlier one of that
    /// name. Returns false if it was rejected because the group already has
    /// [`EXTENSIONS_MAX`](extensions::EXTENSIONS_MAX) extensions.
    async fn extend(&self, group: Group, extension: &Extension, life: Duration) -> Result<bool, Silent>;

    /// Returns the extensions of a group, in no particular order.
    async fn extensions(&self, group: Group) -> Result<Vec<Extension>, Silent>;
}
