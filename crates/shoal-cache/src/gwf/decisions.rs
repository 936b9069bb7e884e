//! The most recent decisions, which show operators why a block stayed, moved or left.

use std::num::NonZeroUsize;

use lru::LruCache;
use shoal_policy::{BlockId, NodeId};

/// Number of blocks remembered, at about 100 bytes each.
const REMEMBERED: NonZeroUsize = NonZeroUsize::new(4 << 10).expect("4,096 is not zero");

/// Decision about a block that had the least worth here while room was short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It stayed: it was the last copy, and its global weight made it worth more than other blocks here.
    Kept,
    /// It was evicted: other nodes hold it, and its weight was added to theirs.
    Copied,
    /// It was pushed to this node, whose blocks were worth less.
    Pushed(NodeId),
    /// It was evicted: no block here or elsewhere was worth less.
    Dropped,
}

/// The most recent decisions.
#[derive(Debug)]
pub(super) struct Decisions(LruCache<BlockId, Decision>);

impl Default for Decisions {
    fn default() -> Self {
        Self(LruCache::new(REMEMBERED))
    }
}

impl Decisions {
    pub(super) fn note(&mut self, block: BlockId, decision: Decision) {
        self.0.put(block, decision);
    }

    pub(super) fn about(&self, block: BlockId) -> Option<Decision> {
        self.0.peek(&block).copied()
    }
}
