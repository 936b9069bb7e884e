//! Keeps a long sequential read from flushing the cache.

use std::collections::VecDeque;
use std::hash::Hash;

use super::bloom::RotatingBloom;
use super::{Admission, Arrival, Refusal};
use crate::PartOf;

/// Admits blocks beyond the first `cutoff_bytes` of a sequential run of misses only on their second recent
/// miss; admits everything else at once.
///
/// A run is a sequence of misses of neighbouring blocks of one object, in ascending order. The policy tracks
/// the [`RUNS_MAX`] runs that advanced most recently, so it distinguishes many readers, even readers of
/// different parts of the same object. It is modelled on bcache's `sequential_cutoff`, which always bypasses
/// the cache beyond 4 MiB. Admitting a second pass is our addition, because data-parallel jobs read the same
/// inputs sequentially many times.
#[derive(Debug)]
pub struct ScanResistant<K: PartOf> {
    /// Ordered by last advance, the most recent at the back.
    runs: VecDeque<Run<K::Whole>>,
    refused: RotatingBloom,
    cutoff_bytes: u64,
}

/// The number of runs tracked at a time, as in bcache.
pub const RUNS_MAX: usize = 128;

#[derive(Clone, Copy, Debug)]
struct Run<W> {
    whole: W,
    /// The index of the block that would continue the run.
    next: u32,
    bytes: u64,
}

impl<K: PartOf> ScanResistant<K> {
    /// Admits the first `cutoff_bytes` of each run, and remembers at least the last `keys` different keys
    /// refused.
    pub fn new(cutoff_bytes: u64, keys: usize) -> Self {
        Self {
            runs: VecDeque::with_capacity(RUNS_MAX),
            refused: RotatingBloom::new(keys),
            cutoff_bytes,
        }
    }

    /// Returns the length of the run that this arrival continues or begins, the arrival included.
    fn run_bytes(&mut self, arrival: &Arrival<K>) -> u64 {
        let (whole, index) = (arrival.key.whole(), arrival.key.index());
        let continued = self
            .runs
            .iter()
            .rposition(|run| run.next == index && run.whole == whole);
        let before = continued.and_then(|place| self.runs.remove(place));
        if self.runs.len() == RUNS_MAX {
            self.runs.pop_front();
        }
        let bytes = before.map_or(0, |run| run.bytes) + arrival.bytes;
        self.runs.push_back(Run {
            whole,
            next: index.wrapping_add(1),
            bytes,
        });
        bytes
    }
}

impl<K: Hash + PartOf> Admission<K> for ScanResistant<K> {
    fn admit(&mut self, arrival: &Arrival<K>) -> Result<(), Refusal> {
        let is_scan = self.run_bytes(arrival) > self.cutoff_bytes && arrival.is_crowded;
        if is_scan && !self.refused.see(&arrival.key) {
            return Err(Refusal::Scan);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Admission, Arrival, RUNS_MAX, Refusal, ScanResistant};
    use crate::{BlockId, VersionId};

    fn arrival(object: u8, index: u32) -> Arrival<BlockId> {
        let version = VersionId([object; 16]);
        Arrival {
            key: BlockId { version, index },
            bytes: 4,
            is_crowded: true,
        }
    }

    fn policy() -> ScanResistant<BlockId> {
        ScanResistant::new(12, 1000)
    }

    /// Returns the blocks that are refused.
    fn refused(
        policy: &mut ScanResistant<BlockId>,
        blocks: impl IntoIterator<Item = (u8, u32)>,
    ) -> Vec<(u8, u32)> {
        let is_refused =
            |&(object, index): &(u8, u32)| policy.admit(&arrival(object, index)) == Err(Refusal::Scan);
        blocks.into_iter().filter(is_refused).collect()
    }

    #[test]
    fn a_long_run_enters_up_to_the_cutoff_and_wholly_the_second_time() {
        let mut policy = policy();
        let run = (0..6).map(|index| (1, index));
        assert_eq!(refused(&mut policy, run.clone()), [(1, 3), (1, 4), (1, 5)]);
        assert!(refused(&mut policy, run).is_empty());
    }

    #[test]
    fn readers_are_told_from_each_other() {
        let interleaved = (0..4).flat_map(|index| [(1, index), (1, 100 + index), (2, index)]);
        assert_eq!(refused(&mut policy(), interleaved), [(1, 3), (1, 103), (2, 3)]);
    }

    #[test]
    fn leaps_are_no_run() {
        let leaps = (0..50)
            .map(|index| (1, 2 * index))
            .chain((0..50).rev().map(|index| (2, index)));
        assert!(refused(&mut policy(), leaps).is_empty());
    }

    #[test]
    fn while_there_is_room_a_scan_enters() {
        let mut policy = policy();
        for index in 0..50 {
            let arrival = Arrival {
                is_crowded: false,
                ..arrival(1, index)
            };
            assert_eq!(policy.admit(&arrival), Ok(()));
        }
        assert_eq!(
            refused(&mut policy, [(1, 50)]),
            [(1, 50)],
            "it was a scan all the while"
        );
    }

    #[test]
    fn the_run_that_rested_longest_is_forgotten() {
        let others = |policy: &mut _, number: usize| {
            refused(policy, (0..number as u32).map(|other| (2, 2 * other)));
        };
        let mut policy = policy();
        refused(&mut policy, (0..3).map(|index| (1, index)));
        others(&mut policy, RUNS_MAX - 1);
        assert_eq!(refused(&mut policy, [(1, 3)]), [(1, 3)]);
        others(&mut policy, RUNS_MAX);
        assert!(refused(&mut policy, [(1, 4)]).is_empty());
    }
}
