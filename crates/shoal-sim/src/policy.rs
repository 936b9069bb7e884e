//! The eviction policies by the names people call them.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use shoal_policy::eviction::{Belady, C2p, Eviction, Gwf, Lfu, Lfuda, Life, Lru, S3Fifo, Sieve};

use crate::block::Block;
use crate::names::unknown;

/// An eviction policy that can be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyName {
    /// The least recently used leaves first.
    Lru,
    /// The least often used leaves first.
    Lfu,
    /// LFU whose counts age.
    Lfuda,
    /// FIFO that spares what was used since the hand came by.
    Sieve,
    /// Three FIFO queues, for what is used once and what is used again.
    S3Fifo,
    /// Blocks of incomplete objects leave first (`PACMan`), without a window.
    Life,
    /// D4N's GWF as a node plays it alone.
    Gwf,
}

impl PolicyName {
    /// Every policy, in the order of the documentation.
    pub const ALL: &'static [Self] = &[
        Self::Lru,
        Self::Lfu,
        Self::Lfuda,
        Self::Sieve,
        Self::S3Fifo,
        Self::Life,
        Self::Gwf,
    ];

    /// The word for it on the command line, in experiments and in reports.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lru => "lru",
            Self::Lfu => "lfu",
            Self::Lfuda => "lfuda",
            Self::Sieve => "sieve",
            Self::S3Fifo => "s3-fifo",
            Self::Life => "life",
            Self::Gwf => "gwf",
        }
    }

    /// The policy itself, empty.
    pub fn build(self) -> AnyPolicy {
        AnyPolicy(match self {
            Self::Lru => Box::new(Lru::default()),
            Self::Lfu => Box::new(Lfu::default()),
            Self::Lfuda => Box::new(Lfuda::default()),
            Self::Sieve => Box::new(Sieve::default()),
            Self::S3Fifo => Box::new(S3Fifo::default()),
            Self::Life => Box::new(Life::new(Duration::MAX)),
            Self::Gwf => Box::new(Gwf::default()),
        })
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PolicyName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = |policy: &&Self| policy.as_str().eq_ignore_ascii_case(text);
        Self::ALL.iter().find(named).copied().ok_or_else(|| {
            let known = Self::ALL.iter().map(|policy| policy.as_str());
            unknown("policy", text, known)
        })
    }
}

impl<'de> Deserialize<'de> for PolicyName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(D::Error::custom)
    }
}

/// A policy for blocks, and what the simulation can tell it beyond their uses.
pub trait Policy: Eviction<Block> {
    /// `object`, of which a block is held, has so many blocks.
    fn observe(&mut self, _object: u32, _blocks: u32) {}
}

impl Policy for Lru<Block> {}
impl Policy for Lfu<Block> {}
impl Policy for Lfuda<Block> {}
impl Policy for Sieve<Block> {}
impl Policy for S3Fifo<Block> {}
impl Policy for Gwf<Block> {}
impl Policy for Belady<Block> {}

impl Policy for Life<Block> {
    fn observe(&mut self, object: u32, blocks: u32) {
        self.observe(&object, blocks);
    }
}

impl Policy for C2p<Block> {
    fn observe(&mut self, object: u32, blocks: u32) {
        self.observe(&object, blocks);
    }
}

/// A policy chosen at run time.
pub struct AnyPolicy(Box<dyn Policy + Send>);

impl AnyPolicy {
    /// One that was made elsewhere.
    pub fn new(policy: impl Policy + Send + 'static) -> Self {
        Self(Box::new(policy))
    }
}

impl Policy for AnyPolicy {
    fn observe(&mut self, object: u32, blocks: u32) {
        self.0.observe(object, blocks);
    }
}

impl Eviction<Block> for AnyPolicy {
    fn insert(&mut self, key: Block, bytes: u64) {
        self.0.insert(key, bytes);
    }

    fn touch(&mut self, key: &Block) {
        self.0.touch(key);
    }

    fn remove(&mut self, key: &Block) -> Option<u64> {
        self.0.remove(key)
    }

    fn evict(&mut self, may_leave: &mut dyn FnMut(&Block) -> bool) -> Option<(Block, u64)> {
        self.0.evict(may_leave)
    }

    fn advance(&mut self, now: Duration) {
        self.0.advance(now);
    }

    fn contains(&self, key: &Block) -> bool {
        self.0.contains(key)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

impl fmt::Debug for AnyPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a policy that holds {} blocks", self.0.len())
    }
}
