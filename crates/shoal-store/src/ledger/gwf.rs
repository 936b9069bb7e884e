//! Ranks and worths of blocks under [`shoal_policy::eviction::Gwf`]. Under any other policy there are none,
//! and these methods do nothing.

use std::collections::HashMap;

use shoal_policy::BlockId;
use shoal_policy::eviction::Gwf;
use shoal_policy::eviction::gwf::{Candidate, Weight, Worth};

use super::{Ledger, State, Victim, may_leave};

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

impl Ledger {
    /// The ranks; `None` under another policy.
    pub(crate) fn ranks(&self) -> Option<Ranks> {
        let state = self.state.lock();
        state.gwf().map(|gwf| Ranks {
            age: gwf.age(),
            average: gwf.average_rank(),
        })
    }

    /// The worth of a resident block.
    pub(crate) fn worth(&self, block: BlockId) -> Option<Worth> {
        self.state.lock().gwf()?.worth(&block)
    }

    /// The blocks to evict ahead of demand, least worth first: enough to reach the low watermark, but at most
    /// `most`; none while there is enough room. Blocks in `spared` are being evicted already, and their bytes
    /// count as freed.
    pub(crate) fn least(&self, started: bool, most: usize, spared: &HashMap<BlockId, u64>) -> Vec<Least> {
        let uses = self.mappings.take_uses();
        let mut state = self.state.lock();
        state.touch(&uses);
        let spared_bytes: u64 = spared.values().sum();
        let mut excess_bytes = state.residency.excess_bytes(started).saturating_sub(spared_bytes);
        let Some(gwf) = state.gwf().filter(|_| excess_bytes > 0) else {
            return Vec::new();
        };
        let (readers, mappings) = (&state.readers, &self.mappings);
        let mut leave = |block: &BlockId| !spared.contains_key(block) && may_leave(*block, readers, mappings);
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
    pub(crate) fn candidate(&self, spared: &HashMap<BlockId, u64>) -> Option<NextToLeave> {
        let state = self.state.lock();
        let (readers, mappings) = (&state.readers, &self.mappings);
        let mut leave = |block: &BlockId| !spared.contains_key(block) && may_leave(*block, readers, mappings);
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

    /// Replaces the worth of a resident block.
    pub(crate) fn weigh(&self, block: BlockId, worth: impl FnOnce(&Gwf<BlockId>) -> Worth) {
        if let Some(gwf) = self.state.lock().gwf_mut() {
            let worth = worth(gwf);
            gwf.weigh(&block, worth);
        }
    }

    /// Raises the age to that of another node.
    pub(crate) fn learn_age(&self, age: Weight) {
        if let Some(gwf) = self.state.lock().gwf_mut() {
            gwf.learn_age(age);
        }
    }

    /// Removes a block that was chosen for eviction, unless a reader holds it or it was pinned since.
    pub(crate) fn part_with(&self, block: BlockId) -> Option<Victim> {
        let mut state = self.state.lock();
        // It may have been pinned since it was chosen.
        let is_free = !state.residency.is_pinned(&block) && may_leave(block, &state.readers, &self.mappings);
        is_free.then(|| state.remove(block, &self.mappings)).flatten()
    }
}

impl State {
    /// The blocks of incomplete objects, which are evicted before others if C2P is above GWF.
    fn incomplete(&self, may_leave: &mut dyn FnMut(&BlockId) -> bool) -> Vec<BlockId> {
        let policy = self.residency.policy().innermost();
        policy
            .c2p()
            .map_or_else(Vec::new, |c2p| c2p.incomplete_first(may_leave))
    }

    fn gwf(&self) -> Option<&Gwf<BlockId>> {
        self.residency.policy().innermost().gwf()
    }

    fn gwf_mut(&mut self) -> Option<&mut Gwf<BlockId>> {
        self.residency.policy_mut().innermost_mut().gwf_mut()
    }
}
