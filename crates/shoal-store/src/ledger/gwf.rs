//! Ranks and worths of blocks, for a node that follows GWF ([`shoal_policy::eviction::Gwf`]). Under another
//! policy there are none, and nothing changes.

use std::collections::HashMap;

use shoal_policy::BlockId;
use shoal_policy::eviction::Gwf;
use shoal_policy::eviction::gwf::{Candidate, Weight, Worth};

use super::{Ledger, State, Victim, may_leave};

/// The ranks of a node's blocks, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// The greatest rank of a block that left, here or on another node.
    pub age: Weight,
    /// The average rank of the blocks here.
    pub average: Weight,
}

/// A block of little worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Least {
    /// The block.
    pub block: BlockId,
    /// Its worth here.
    pub worth: Worth,
    /// Length of its data in bytes.
    pub data_bytes: u64,
    /// The room that it takes, in bytes.
    pub bytes: u64,
}

/// The block that would leave next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextToLeave {
    /// The block, with its worth and that of the one after it.
    pub candidate: Candidate<BlockId>,
    /// Length of its data in bytes.
    pub data_bytes: u64,
    /// Whether it leaves because its object is not complete, regardless of its worth (C2P above GWF).
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

    /// The worth of a block that is here.
    pub(crate) fn worth(&self, block: BlockId) -> Option<Worth> {
        self.state.lock().gwf()?.worth(&block)
    }

    /// The blocks that would leave first if room were made ahead of need, and their worth: as many as make
    /// enough room, and at most `most`. None while there is enough. Those that are `spared` are leaving
    /// already, with so many bytes.
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

    /// The block that would leave next, except those that are `spared`.
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

    /// Gives a block that is here another worth.
    pub(crate) fn weigh(&self, block: BlockId, worth: impl FnOnce(&Gwf<BlockId>) -> Worth) {
        if let Some(gwf) = self.state.lock().gwf_mut() {
            let worth = worth(gwf);
            gwf.weigh(&block, worth);
        }
    }

    /// Learns the age that another node has reached.
    pub(crate) fn learn_age(&self, age: Weight) {
        if let Some(gwf) = self.state.lock().gwf_mut() {
            gwf.learn_age(age);
        }
    }

    /// Takes out a block that was decided about, unless a reader came in the meantime.
    pub(crate) fn part_with(&self, block: BlockId) -> Option<Victim> {
        let mut state = self.state.lock();
        // It may have been pinned since it was decided about.
        let is_free = !state.residency.is_pinned(&block) && may_leave(block, &state.readers, &self.mappings);
        is_free.then(|| state.remove(block, &self.mappings)).flatten()
    }
}

impl State {
    /// The blocks of incomplete objects, which leave before others if C2P stands above GWF.
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
