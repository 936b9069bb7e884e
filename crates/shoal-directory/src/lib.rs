//! Which nodes hold a block, which node fetches it, and what it is worth to all of them: the directory of D4N
//! (dissertation 4.5.1 and 4.5.3).
//!
//! Every entry is **soft**. A directory may answer late, wrongly or not at all, forget entries and bring old
//! ones back: that costs a hop or a fetch, and never a byte. So nothing here is awaited for correctness, and
//! a node that gets no answer goes on without one (decision 0029).
//!
//! - [`Directory`]: what nodes ask of a directory, and the two that ship: [`embedded`] for the nodes of one
//!   process, [`redis`] for those of a cluster. Both pass one conformance suite, `tests/conformance.rs`.
//! - [`names`]: whether a name may have changed, which every directory knows as well, and [`attachment`]:
//!   when a node may believe that.
//! - [`extensions`]: notes of features about blocks.
//! - [`guard`]: bounds the time that a directory may take, and leaves one that does not answer alone.
//! - [`reporter`]: tells a directory what a node holds, in batches that no reader waits for.

pub mod attachment;
pub mod embedded;
pub mod extensions;
pub mod guard;
pub mod names;
pub mod redis;
pub mod reporter;

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use shoal_policy::{BlockId, NodeId, VersionId};

/// The number of consecutive blocks of a version that share an entry.
pub const GROUP_BLOCKS: u32 = 32;

/// An entry that no node has changed for so long is forgotten. Nodes report what they hold again within
/// this time.
pub const ENTRY_LIFE: Duration = Duration::from_hours(1);

/// A claim ends after this time, so that a node that dies while it fetches a block does not keep others from
/// fetching it.
pub const CLAIM_LIFE: Duration = Duration::from_secs(10);

/// The number of nodes that an entry names as holders of a block. A node beyond them holds its copy unseen.
pub const HOLDERS_MAX: usize = 32;

/// The number of markers of a node, see [`Directory::mark`]. The markers of a node lie on different members
/// of a directory that has several.
pub const MARKERS: u16 = 16;

/// A marker that its node has not renewed for so long is forgotten.
pub const MARKER_LIFE: Duration = Duration::from_mins(1);

/// The state that a node has not told again for so long is forgotten. Nodes tell it once a second.
pub const STATE_LIFE: Duration = Duration::from_secs(5);

/// No global weight is greater. Every directory counts exactly up to it.
pub const WEIGHT_MAX: u64 = 1 << 53;

/// Consecutive blocks of one version whose entries are together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Group {
    /// The version.
    pub version: VersionId,
    /// The position among the version's groups, from 0.
    pub number: u32,
}

impl Group {
    /// The group that a block belongs to.
    pub const fn of(block: BlockId) -> Self {
        Self {
            version: block.version,
            number: block.index / GROUP_BLOCKS,
        }
    }
}

/// Where a block is that the asking node lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Located {
    /// These nodes hold it, in no particular order. Never empty, and without the asking node and those that
    /// do not count.
    Held(Vec<NodeId>),
    /// No node holds it, and this one is about to: it fetches the block.
    Claimed(NodeId),
    /// No node holds it, and the asking node is to fetch it: others are sent to the asking node for
    /// [`CLAIM_LIFE`].
    Yours,
}

/// Outcome of [`Directory::leave`] for a copy that a node is about to give up (Algorithm 3, lines 26-42).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Other nodes hold the block. The asking node is no longer among them, and the weight of its copy was
    /// added to the block's global weight.
    Copied,
    /// No other node holds it, so the asking node decides what its weights together are worth. The entry
    /// stays, with this global weight. If the node makes that a part of the copy's weight, it takes it out
    /// ([`Directory::take`]); if the block leaves, its entry ends anyway.
    Last(u64),
}

/// Answers about blocks of one group, and what came along with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answers<T> {
    /// An answer for each block that was asked about, in the same order.
    pub each: Vec<T>,
    /// The blocks of the group that nodes other than the asking one hold, a bit for each by its place in the
    /// group. A node learns from it how complete an object is, without a question of its own.
    pub elsewhere: u32,
}

/// All that a directory knows about a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The nodes that hold it, in no particular order.
    pub holders: Vec<NodeId>,
    /// The node that is about to fetch it.
    pub claimant: Option<NodeId>,
    /// The uses of its copies by nodes that did not hold it, and those of copies that have left.
    pub global_weight: u64,
}

/// State that a node shares with the others: its ranks, and whether it takes pushes (dissertation 4.5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeState {
    /// The node.
    pub node: NodeId,
    /// The greatest rank of a block that left a node, as far as this one knows.
    pub age: u64,
    /// The average rank of its blocks.
    pub average_rank: u64,
    /// Whether it takes blocks that no reader of it waits for.
    pub takes_pushes: bool,
}

/// The directory gives no answer that can be used. A node goes on without it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the directory does not answer: {0}")]
pub struct Silent(pub String);

/// Knows which nodes hold which blocks, as far as they have told.
///
/// Methods may be called at the same time. A future that is dropped may have had its effect.
pub trait Directory: names::Names + extensions::Extensions + fmt::Debug + Send + Sync {
    /// Says where blocks of a group are, each given by its index in the version, for a node that lacks them;
    /// the answers come in the same order. If no node holds a block, and no other node claims it, the asking
    /// node does from now on. The copies and claims of the nodes in `without` do not count: the asking node
    /// has tried them in vain. Their entries stay.
    ///
    /// Of all nodes that ask at the same time about a block that no node holds, one gets
    /// [`Located::Yours`].
    fn locate<'a>(
        &'a self,
        me: NodeId,
        group: Group,
        indexes: &'a [u32],
        without: &'a [NodeId],
    ) -> BoxFuture<'a, Result<Answers<Located>, Silent>>;

    /// Notes that `node` holds these blocks of a group, by their index in the version. Its claims to them
    /// end.
    fn held<'a>(
        &'a self,
        node: NodeId,
        group: Group,
        indexes: &'a [u32],
    ) -> BoxFuture<'a, Result<(), Silent>>;

    /// Notes that `node` does not hold these blocks of a group, by their index in the version, and fetches
    /// none of them.
    fn dropped<'a>(
        &'a self,
        node: NodeId,
        group: Group,
        indexes: &'a [u32],
    ) -> BoxFuture<'a, Result<(), Silent>>;

    /// Adds uses to the global weights of blocks of a group, each given by its index in the version: other
    /// nodes' caches served it so many times. A block that no node holds has no weight.
    fn used<'a>(&'a self, group: Group, uses: &'a [(u32, u64)]) -> BoxFuture<'a, Result<(), Silent>>;

    /// Notes that `node` is about to give up copies of blocks of a group, each given by its index in the
    /// version and the weight of the copy. The answers come in the same order.
    ///
    /// Of the nodes that hold a block and leave it at the same time, one gets [`Left::Last`].
    fn leave<'a>(
        &'a self,
        node: NodeId,
        group: Group,
        leaving: &'a [(u32, u64)],
    ) -> BoxFuture<'a, Result<Answers<Left>, Silent>>;

    /// Takes weights out of the global weights of blocks of a group, each given by its index in the version:
    /// a last copy has them now, or takes them along to another node. What was added since the node asked
    /// stays.
    fn take<'a>(&'a self, group: Group, weights: &'a [(u32, u64)]) -> BoxFuture<'a, Result<(), Silent>>;

    /// Shows the entry of a block. Empty if the directory knows nothing of it.
    fn entry(&self, block: BlockId) -> BoxFuture<'_, Result<Entry, Silent>>;

    /// Tells the state of a node. Returns those of all nodes that have told theirs within [`STATE_LIFE`].
    fn exchange(&self, mine: NodeState) -> BoxFuture<'_, Result<Vec<NodeState>, Silent>>;

    /// Renews a marker of `node`, below [`MARKERS`]. Returns whether the directory still has all that it had
    /// when the marker was renewed last. If not, it may have lost entries of the node: the node reports what
    /// it holds again.
    fn mark(&self, node: NodeId, marker: u16) -> BoxFuture<'_, Result<bool, Silent>>;
}
