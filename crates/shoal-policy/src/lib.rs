//! The decisions of a Shoal node as pure code: which block to evict, which to admit, where to look for one.
//!
//! Nothing in this crate performs I/O, reads a clock, draws a random number or uses async: time and chance
//! are arguments, so the simulator runs the same code as the node.

pub mod admission;
pub mod eviction;
pub mod fair;
pub mod fingerprint;
pub mod hash;
mod homes;
pub mod link;
pub mod packing;
mod room;
mod sending;

pub use homes::{nearest, ring, route};
pub use room::{mrc, partition, quotas, residency};
pub use sending::{circuit_breaker, cleaning, outbox, pace};

use std::fmt;
use std::hash::Hash;

use serde::{Deserialize, Serialize};
use shoal_base::words;

/// One fixed-size slice of one immutable version of an object: the unit of caching.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BlockId {
    /// Names the version; two versions never share it.
    pub version: VersionId,
    /// Position in the object, counted in blocks from 0.
    pub index: u32,
}

/// A key that names a part of something larger, for policies that look at the whole.
pub trait PartOf {
    /// Names the whole.
    type Whole: Copy + Default + Ord + Hash + fmt::Debug + Send;

    /// The whole to which this part belongs.
    fn whole(&self) -> Self::Whole;

    /// Position in the whole, counted in parts from 0.
    fn index(&self) -> u32;
}

impl PartOf for BlockId {
    type Whole = VersionId;

    fn whole(&self) -> VersionId {
        self.version
    }

    fn index(&self) -> u32 {
        self.index
    }
}

/// Digest that names one immutable version of one object of one lake: [`VersionId::OF_THE_OBJECT`] bytes of
/// the object's digest, then bytes of SHA-256 over everything that distinguishes the version from others.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct VersionId(pub [u8; 16]);

impl VersionId {
    /// The number of leading bytes that come from the object's digest: all versions of an object have their
    /// blocks at the same homes, which are known before the version is.
    pub const OF_THE_OBJECT: usize = 6;

    /// The version of `object` that `digest` distinguishes from others.
    pub fn new(object: ObjectId, mut digest: [u8; 16]) -> Self {
        digest[..Self::OF_THE_OBJECT].copy_from_slice(&object.0[..Self::OF_THE_OBJECT]);
        Self(digest)
    }
}

/// Digest that names an object (lake, bucket, key) whatever its version (128 bits of SHA-256).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectId(pub [u8; 16]);

/// Digest that names a node of the cluster (64 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub u64);

/// The scope in which nodes cache together: L1 is a single node, L2 the nodes of a cluster, L3 those of a
/// data center.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Layer(pub u8);

impl Layer {
    /// The blocks that a node keeps for its own clients.
    pub const L1: Self = Self(1);
    /// The blocks that the nodes of a cluster keep for each other.
    pub const L2: Self = Self(2);

    /// The position of the layer among those of a node, from L1 outwards; beyond all of them if the number is
    /// that of no layer.
    pub fn place(self) -> usize {
        usize::from(self.0.wrapping_sub(Self::L1.0))
    }
}

words! {
    /// Where the bytes of a block came from. The same words appear in headers, metric labels, log fields and
    /// legends.
    #[derive(Default)]
    pub enum Source {
        /// This node's own store.
        Local = "local",
        /// Another node.
        Peer = "peer",
        /// The durable tier near the writers.
        Tier = "tier",
        /// The S3 store that Shoal extends.
        #[default]
        Lake = "lake",
    }
}

words! {
    /// The share of the blocks of a read that was in a cache. The user of the word says which caches count.
    pub enum Found {
        /// Every block.
        Complete = "complete",
        /// Some blocks.
        Partial = "partial",
        /// No block.
        Nothing = "none",
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{}", self.0)
    }
}

fn write_hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}
