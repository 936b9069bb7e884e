//! Admission policies: they decide which blocks are admitted to a cache, with a reason if not. Every "no"
//! has a name, because operators ask "why is it not cached?".
//!
//! A policy is asked once for each miss, in the order of the requests, before the block is stored. While
//! there is room, they admit everything, because a block that displaces nothing costs nothing.

mod bloom;
mod scan_resistant;
mod second_miss;

use std::fmt;

use shoal_base::words;

pub use scan_resistant::{RUNS_MAX, ScanResistant};
pub use second_miss::SecondMiss;

/// A block that was missed and could be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<K> {
    /// The block's key.
    pub key: K,
    /// Its size.
    pub bytes: u64,
    /// True if another block must be evicted to make room for it.
    pub is_crowded: bool,
}

/// Decides which blocks may enter a cache.
pub trait Admission<K> {
    /// Decides whether the block may enter.
    ///
    /// # Errors
    ///
    /// Fails with the [`Refusal`] if the block may not enter.
    fn admit(&mut self, arrival: &Arrival<K>) -> Result<(), Refusal>;
}

/// Admits every block.
#[derive(Clone, Copy, Debug, Default)]
pub struct Always;

impl<K> Admission<K> for Always {
    fn admit(&mut self, _arrival: &Arrival<K>) -> Result<(), Refusal> {
        Ok(())
    }
}

words! {
    /// Why a block was not stored. A refusal is never a failure of the read that brought the block.
    pub enum Refusal {
        /// It would not fit into the empty cache, or its description is larger than a block may carry.
        TooLarge = "too-large",
        /// There is not enough room even after evicting every evictable block: the rest is in use.
        NoRoom = "no-room",
        /// The block's layer on this node has a target of 0 bytes.
        NoShare = "no-share",
        /// The disk failed or is full; fills pause until a probe succeeds.
        Paused = "store-unavailable",
        /// The process, not the disk, has run out of a resource: file descriptors, memory mappings, threads.
        Exhausted = "exhausted",
        /// A foreign file or directory in the node's folder occupies the block's path.
        Obstructed = "obstructed",
        /// The bytes are not the block they claim to be: wrong length, version or block size, or none at all.
        Mismatched = "mismatched",
        /// It was not missed recently before, and another block would have to be evicted for it.
        SeenOnce = "seen-once",
        /// It is part of a long sequential read that has not been repeated, and another block would have to
        /// be evicted for it.
        Scan = "scan",
        /// It was to be pinned, and pinned blocks have reached their limit.
        PinsFull = "pins-full",
        /// It counts in a quota, and the blocks of the quota that are pinned, in use or on their way leave no
        /// room for it.
        QuotaFull = "quota-full",
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Refusal;

    #[test]
    fn reasons_are_listed_in_order_under_different_words() {
        assert!(
            Refusal::ALL
                .iter()
                .enumerate()
                .all(|(place, &reason)| reason as usize == place)
        );
        let words: BTreeSet<_> = Refusal::ALL.iter().map(|reason| reason.as_str()).collect();
        assert_eq!(words.len(), Refusal::ALL.len());
    }
}
