//! Questions of the node that runs a task, or carries a plan out, to other nodes: the body of a `QUERY` of
//! [`TASKS`], and of its answer, both serialized by `postcard`. Variants and fields are identified only by
//! their order, which must not change.

use http::StatusCode;
use serde::{Deserialize, Serialize};
use shoal_base::encoding::Malformed;
use shoal_cache::early::EarlyCounts;
use shoal_cache::job_reads::ObservedJob;
use shoal_cache::lake::LakeRefusal;
use shoal_cache::peer::BlockRequest;
use shoal_net::link::{JobBytes, JobId, JobNames, JobRates};
use shoal_policy::admission::Refusal;
use shoal_policy::{Layer, ObjectId, Source};
use shoal_store::Kept;

use crate::bulletin::exchange::{read, written};

/// The path at which a node answers.
pub const TASKS: &str = "/tasks";

/// The longest question in bytes.
pub const QUESTION_BYTES_MAX: usize = 256 << 10;

/// The longest answer in bytes.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Maximum number of bytes of a list of objects in one answer.
pub const MANIFEST_PART_BYTES: u64 = 512 << 10;

/// Maximum number of objects or versions in one question.
pub const NAMES_MAX: usize = 4096;

/// Maximum number of blocks that one question is about.
pub const BLOCKS_MAX: u64 = 1 << 20;

/// A pin of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// The order.
    pub order: u128,
    /// Its end, in milliseconds since 1970.
    pub until_ms: u64,
}

/// A transfer with a planned rate, as the node that runs it names it to those that fetch for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PlannedFill {
    /// The id of the plan, or of a hint with a deadline.
    pub plan: u128,
    /// The number of the transfer; [`PlannedFill::OF_HINT`] for that of a hint.
    pub transfer: u64,
    /// Its planned rate in bytes a second.
    pub rate: u64,
}

impl PlannedFill {
    /// The number of the only transfer of a hint.
    pub const OF_HINT: u64 = u64::MAX;

    /// Returns true if the transfer is that of a hint, and not of a plan.
    pub fn is_of_hint(&self) -> bool {
        self.transfer == Self::OF_HINT
    }
}

/// The rates of a job's reads from the lake by plan, at one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PromisedRead {
    /// The job that reads.
    pub job: JobId,
    /// Its names.
    pub names: JobNames,
    /// Its rates.
    pub rates: JobRates,
    /// The time after which they end unless they are sent again; zero ends them.
    pub life_ms: u64,
}

/// A block that a node is to hold.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fill {
    /// The layer in which the node is asked for it.
    pub layer: u8,
    /// The order that keeps it there.
    pub pin: Option<Pin>,
    /// The planned transfer of which it is a part.
    pub planned: Option<PlannedFill>,
    /// The pack from whose blocks the node reads it, if it is in this pack.
    pub pack: Option<ObjectId>,
    /// The block and the caller in whose name the node asks the lake. No bytes of it are sent back.
    #[serde(with = "block_request")]
    pub block: BlockRequest,
}

/// A question to a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Question {
    /// Hold this block.
    Fill(Box<Fill>),
    /// Which of the first blocks of these versions do you hold?
    Held(Vec<([u8; 16], u32)>),
    /// Pin these objects.
    Pin(Pin, Vec<ObjectId>),
    /// End the pins of these objects by orders before this one.
    Unpin(u128, Vec<ObjectId>),
    /// Remove the blocks of these objects, unless they are pinned.
    Evict(Vec<ObjectId>),
    /// Send the list of this task, from an offset on.
    Manifest(u128, u64),
    /// Let a job's reads of these objects, and of those that came before them, have rates of their own.
    Promise(Box<PromisedRead>, Vec<ObjectId>),
    /// How much room do you have, and what became of the blocks that these orders brought before their
    /// readers?
    Early(Vec<u128>),
    /// Count what this job reads of these objects, and say what it has read.
    Observe(ObservedJob, Vec<ObjectId>),
    /// Let the blocks of these objects leave before all others when room is needed, unless they are pinned.
    Release(Vec<ObjectId>),
    /// Which blocks of the newest versions of these objects do you hold?
    Blocks(Vec<ObjectId>),
    /// Which of these objects are pinned?
    Pinned(Vec<ObjectId>),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Question::Fill`]: the block was there.
    Held,
    /// The block came from this source.
    Brought(String),
    /// [`NotFilled::Busy`]
    Busy,
    /// [`NotFilled::NotStored`]
    NotStored(String),
    /// [`NotFilled::Denied`]
    Denied(u16),
    /// [`NotFilled::Changed`]
    Changed,
    /// [`NotFilled::Failed`]
    Failed(String),
    /// To [`Question::Held`] and [`Question::Blocks`]: for each version the blocks that are held.
    Bits(Vec<BlockBits>),
    /// To [`Question::Pin`] and [`Question::Unpin`]: the blocks of each object that are pinned, or were until
    /// now.
    Kept(Vec<PinnedBlocks>),
    /// To [`Question::Evict`]: the blocks of each object that were removed; none of an object that is pinned.
    Evicted(Vec<Evicted>),
    /// The node cannot do it.
    Refused(String),
    /// To [`Question::Manifest`]: some bytes; none at the end of the list.
    Manifest(Vec<u8>),
    /// To [`Question::Promise`]: the bytes that came from the lake to this node for the job.
    Promised(JobBytes),
    /// To [`Question::Early`].
    Early(EarlyAnswer),
    /// To [`Question::Observe`]: for each object the blocks that were read to their ends, and the bytes that
    /// were read of others.
    Reads(Vec<(BlockBits, u64)>),
    /// To [`Question::Release`]: the number of blocks.
    Released(u64),
    /// To [`Question::Pinned`]: for each object, true if an order pins it.
    Pinned(Vec<bool>),
}

/// The room of a node, and what became of the blocks that orders brought there before their readers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlyAnswer {
    /// The room for blocks, in bytes.
    pub capacity_bytes: u64,
    /// The counts of each order.
    pub orders: Vec<EarlyCounts>,
}

/// The reason why a block is not on a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFilled {
    /// The node has readers to serve, and can be asked again later.
    #[error("the node is busy")]
    Busy,
    /// The store does not take it.
    #[error("not stored: {0}")]
    NotStored(String),
    /// The lake refuses the identity, or has no such object.
    #[error("the lake answered {0}")]
    Denied(StatusCode),
    /// The object has another version now.
    #[error("it has changed")]
    Changed,
    /// Another failure.
    #[error("{0}")]
    Failed(String),
}

impl From<Refusal> for NotFilled {
    fn from(refusal: Refusal) -> Self {
        Self::NotStored(refusal.to_string())
    }
}

impl From<LakeRefusal> for NotFilled {
    fn from(refusal: LakeRefusal) -> Self {
        match refusal {
            LakeRefusal::Refused { status, .. } => Self::Denied(status),
            refusal => Self::Failed(refusal.to_string()),
        }
    }
}

/// The pinned blocks of an object on one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedBlocks {
    /// Blocks that are pinned.
    pub blocks: u64,
    /// The room that they take, in bytes.
    pub bytes: u64,
    /// The reason why further blocks that the node holds are not pinned.
    pub refusal: Option<String>,
}

impl From<Kept> for PinnedBlocks {
    fn from(kept: Kept) -> Self {
        Self {
            blocks: kept.blocks,
            bytes: kept.bytes,
            refusal: kept.refusal.map(|refusal| refusal.to_string()),
        }
    }
}

/// Result of removing an object's blocks from one node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evicted {
    /// Blocks that were removed.
    pub blocks: u64,
    /// The room that they took, in bytes.
    pub bytes: u64,
    /// True if the blocks stay because the object is pinned.
    pub is_pinned: bool,
}

/// Some blocks of a version.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockBits(Vec<u8>);

impl BlockBits {
    /// Takes those of `indexes`, which are in ascending order, that are among the first `count` blocks.
    pub fn new(indexes: &[u32], count: u32) -> Self {
        let mut bits = vec![0; count.div_ceil(8) as usize];
        for index in indexes.iter().filter(|index| **index < count) {
            bits[*index as usize / 8] |= 1 << (index % 8);
        }
        Self(bits)
    }

    /// Returns the bytes of these blocks of an object of this size.
    pub fn bytes(&self, size: u64, block_bytes: u64) -> u64 {
        let last = size.saturating_sub(1) / block_bytes;
        let blocks = self.count().saturating_mul(block_bytes);
        // The last block is short.
        let short = (last + 1).saturating_mul(block_bytes).saturating_sub(size);
        let has_last = u32::try_from(last).is_ok_and(|last| self.has(last));
        let bytes = if has_last {
            blocks.saturating_sub(short)
        } else {
            blocks
        };
        bytes.min(size)
    }

    /// Adds the blocks of another answer about the same version.
    pub fn add(&mut self, others: &Self) {
        if others.0.len() > self.0.len() {
            self.0.resize(others.0.len(), 0);
        }
        for (byte, other) in self.0.iter_mut().zip(&others.0) {
            *byte |= other;
        }
    }

    /// Returns the number of blocks.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|byte| u64::from(byte.count_ones())).sum()
    }

    /// Returns true if a block is among them.
    pub fn has(&self, index: u32) -> bool {
        let byte = self.0.get(index as usize / 8);
        byte.is_some_and(|byte| byte & (1 << (index % 8)) != 0)
    }
}

impl Question {
    /// Serializes the question; returns `None` if it would be too long.
    pub fn to_bytes(&self) -> Option<Vec<u8>> {
        let bytes = postcard::to_stdvec(self).ok()?;
        (bytes.len() <= QUESTION_BYTES_MAX).then_some(bytes)
    }

    /// Reads a question that another node serialized.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are no question, or name more than one may.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let question = read(bytes)?;
        let is_good = match &question {
            Self::Fill(fill) => fill.layer >= Layer::L1.0,
            Self::Held(versions) => {
                let blocks: u64 = versions.iter().map(|(_, count)| u64::from(*count)).sum();
                versions.len() <= NAMES_MAX && blocks <= BLOCKS_MAX
            }
            Self::Pin(_, objects)
            | Self::Unpin(_, objects)
            | Self::Evict(objects)
            | Self::Promise(_, objects)
            | Self::Release(objects)
            | Self::Blocks(objects)
            | Self::Pinned(objects)
            | Self::Observe(_, objects) => objects.len() <= NAMES_MAX,
            Self::Early(orders) => orders.len() <= NAMES_MAX,
            Self::Manifest(..) => true,
        };
        is_good.then_some(question).ok_or(Malformed)
    }
}

impl Answer {
    /// Serializes the answer.
    pub fn to_bytes(&self) -> Vec<u8> {
        written(self)
    }

    /// Reads an answer that another node serialized.
    ///
    /// # Errors
    ///
    /// Fails if the bytes are no answer, or one of a later release.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        read(bytes)
    }

    /// Reads the answer to [`Question::Fill`]: where the block came from; `None` if it was there.
    ///
    /// # Errors
    ///
    /// Fails if the node does not hold the block.
    pub fn into_filled(self) -> Result<Option<Source>, NotFilled> {
        let unexpected = || NotFilled::Failed("a node answered something else".into());
        Err(match self {
            Self::Held => return Ok(None),
            Self::Brought(word) => {
                let sources = [Source::Local, Source::Peer, Source::Tier, Source::Lake];
                let source = sources.into_iter().find(|source| source.as_str() == word);
                return source.map(Some).ok_or_else(unexpected);
            }
            Self::Busy => NotFilled::Busy,
            Self::NotStored(why) => NotFilled::NotStored(why),
            Self::Denied(status) => {
                StatusCode::from_u16(status).map_or_else(|_| unexpected(), NotFilled::Denied)
            }
            Self::Changed => NotFilled::Changed,
            Self::Failed(why) => NotFilled::Failed(why),
            _ => unexpected(),
        })
    }
}

impl From<Result<Option<Source>, NotFilled>> for Answer {
    fn from(filled: Result<Option<Source>, NotFilled>) -> Self {
        match filled {
            Ok(None) => Self::Held,
            Ok(Some(source)) => Self::Brought(source.as_str().into()),
            Err(NotFilled::Busy) => Self::Busy,
            Err(NotFilled::NotStored(why)) => Self::NotStored(why),
            Err(NotFilled::Denied(status)) => Self::Denied(status.as_u16()),
            Err(NotFilled::Changed) => Self::Changed,
            Err(NotFilled::Failed(why)) => Self::Failed(why),
        }
    }
}

/// A [`BlockRequest`] in its own encoding.
mod block_request {
    use serde::de::Error as _;
    use serde::ser::Error as _;
    use serde::{Deserialize as _, Deserializer, Serializer};
    use shoal_cache::peer::BlockRequest;

    pub fn serialize<S: Serializer>(request: &BlockRequest, serializer: S) -> Result<S::Ok, S::Error> {
        let bytes = request
            .to_bytes()
            .ok_or_else(|| S::Error::custom("it is too long"))?;
        serializer.serialize_bytes(&bytes)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BlockRequest, D::Error> {
        BlockRequest::of_bytes(<&[u8]>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests;
