//! Ranks and worths of blocks under [`shoal_policy::eviction::Gwf`].

use std::collections::HashMap;
use std::sync::Arc;

use shoal_policy::BlockId;
use shoal_policy::eviction::Gwf;
use shoal_policy::eviction::gwf::{Candidate, Weight, Worth};

use crate::ground::Ground;
use crate::ledger::may_leave;

/// The worths of a store's blocks, for globally weighted eviction. Under a policy other than
/// [`PolicyName::Gwf`](shoal_policy::eviction::PolicyName::Gwf) there are none, and these methods do nothing.
pub struct Worths(pub(crate) Arc<Ground>);

/// Aggregates of the ranks of a node's blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// The greatest rank of any evicted block, on this or another node.
    pub age: Weight,
    /// The average rank of resident blocks.
    pub average: Weight,
}

/// A candidate for eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Least {
    /// The block.
    pub block: BlockId,
    /// Its worth on this node.
    pub worth: Worth,
    /// Length of its data in bytes.
    pub data_bytes: u64,
    /// Its disk space in bytes.
    pub bytes: u64,
}

/// The block that would be evicted next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextToLeave {
    /// The block, its worth, and the rank of the next one.
    pub candidate: Candidate<BlockId>,
    /// Length of its data in bytes.
    pub data_bytes: u64,
    /// True if it is evicted because its object is incomplete, regardless of its worth (C2P above GWF).
    pub is_of_incomplete: bool,
}

impl Worths {
    /// The age and the average rank of this node's blocks; `None` under another policy.
    pub fn ranks(&self) -> Option<Ranks> {
        let state = self.0.ledger.lock();
        state.gwf().map(|gwf| Ranks {
            age: gwf.age(),
            average: gwf.average_rank(),
        })
    }

    /// The worth of a stored block.
    pub fn worth(&self, block: BlockId) -> Option<Worth> {
        self.0.ledger.lock().gwf()?.worth(&block)
    }

    /// The blocks to evict ahead of demand, least worth first: enough to reach the low watermark, but at most
    /// `most`; none while there is enough room. `started` is true if the caller is already making room.
    /// Blocks in `spared` are being evicted already, and their bytes count as freed.
    pub fn least(&self, started: bool, most: usize, spared: &HashMap<BlockId, u64>) -> Vec<Least> {
        let uses = self.0.ledger.mappings.take_uses();
        let mut state = self.0.ledger.lock();
        state.touch(&uses);
        let spared_bytes: u64 = spared.values().sum();
        let mut excess_bytes = state
            .residency
            .room()
            .excess_bytes(started)
            .saturating_sub(spared_bytes);
        let Some(gwf) = state.gwf().filter(|_| excess_bytes > 0) else {
            return Vec::new();
        };
        let (readers, mappings) = (&state.readers, &self.0.ledger.mappings);
        let mut leave = may_leave(readers, mappings);
        let mut leave = |block: &BlockId| !spared.contains_key(block) && leave(block);
        let mut least = Vec::new();
        let incomplete = state.incomplete(&mut leave);
        let of_incomplete = incomplete
            .iter()
            .filter_map(|block| Some((*block, gwf.worth(block)?, gwf.bytes(block)?)));
        let mut others = |block: &BlockId| leave(block) && !incomplete.contains(block);
        for (block, worth, bytes) in of_incomplete.chain(gwf.least_first(&mut others)) {
            if excess_bytes == 0 || least.len() == most {
                break;
            }
            excess_bytes = excess_bytes.saturating_sub(bytes);
            least.push(Least {
                block,
                worth,
                data_bytes: state.index.block_len(block),
                bytes,
            });
        }
        least
    }

    /// The block that would be evicted next, excluding those in `spared`.
    pub fn candidate(&self, spared: &HashMap<BlockId, u64>) -> Option<NextToLeave> {
        let state = self.0.ledger.lock();
        let (readers, mappings) = (&state.readers, &self.0.ledger.mappings);
        let mut leave = may_leave(readers, mappings);
        let mut leave = |block: &BlockId| !spared.contains_key(block) && leave(block);
        let gwf = state.gwf()?;
        let incomplete = state.incomplete(&mut leave);
        let candidate = match incomplete.first() {
            Some(first) => gwf.candidate(&mut |block| block == first)?,
            None => gwf.candidate(&mut leave)?,
        };
        Some(NextToLeave {
            candidate,
            data_bytes: state.index.block_len(candidate.key),
            is_of_incomplete: !incomplete.is_empty(),
        })
    }

    /// Replaces the worth of a stored block.
    pub fn weigh(&self, block: BlockId, worth: Worth) {
        self.weigh_by(block, |_| worth);
    }

    /// Records that a stored block came from another node's cache. Its weight stays with that node; the copy
    /// here weighs nothing until it is used.
    pub fn weigh_as_copy(&self, block: BlockId) {
        self.weigh_by(block, |gwf| gwf.worth_now(Weight::ZERO));
    }

    fn weigh_by(&self, block: BlockId, worth: impl FnOnce(&Gwf<BlockId>) -> Worth) {
        if let Some(gwf) = self.0.ledger.lock().gwf_mut() {
            let worth = worth(gwf);
            gwf.weigh(&block, worth);
        }
    }

    /// Raises the age to that of another node.
    pub fn learn_age(&self, age: Weight) {
        if let Some(gwf) = self.0.ledger.lock().gwf_mut() {
            gwf.learn_age(age);
        }
    }
}
