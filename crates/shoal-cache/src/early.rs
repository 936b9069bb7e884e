//! Blocks that an order brought before a reader asked for them: which of them readers came for, and how early
//! they were.

use std::collections::{BTreeMap, HashMap};
use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use shoal_base::clock;
use shoal_base::moment::millis_since_1970;
use shoal_policy::BlockId;

/// Maximum number of blocks that are followed at a time. Further ones are not counted.
const BLOCKS_MAX: usize = 1 << 17;

/// Maximum number of orders with counts.
const ORDERS_MAX: usize = 1 << 12;

/// Follows the blocks of orders until a reader comes, or until they have left.
#[derive(Debug, Default)]
pub struct EarlyBlocks {
    /// True if any block is followed. Otherwise a request for a block only costs a load of this.
    has_any: AtomicBool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    blocks: HashMap<BlockId, Early>,
    counts: BTreeMap<u128, EarlyCounts>,
    totals: EarlyCounts,
}

/// A block that no reader has asked for yet.
#[derive(Debug)]
struct Early {
    order: u128,
    bytes: u64,
    /// When it was on disk; `None` while it is on its way.
    arrived: Option<Instant>,
    /// True if a reader came while it was on its way.
    is_awaited: bool,
}

/// Counts of the blocks that an order brought to one node before their readers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EarlyCounts {
    /// Bytes that were brought.
    pub brought_bytes: u64,
    /// Bytes of blocks that a reader asked for while they were here, or on their way.
    pub used_bytes: u64,
    /// Bytes of blocks that a reader asked for after they had been evicted.
    pub evicted_bytes: u64,
    /// Blocks that were used.
    pub used_blocks: u64,
    /// The sum over these of the time between arrival and first use, in milliseconds. A block that a reader
    /// waited for was not early.
    pub early_ms: u64,
    /// When a reader first asked for one of these, in milliseconds since 1970.
    pub first_used_ms: Option<u64>,
}

impl AddAssign for EarlyCounts {
    fn add_assign(&mut self, other: Self) {
        self.brought_bytes += other.brought_bytes;
        self.used_bytes += other.used_bytes;
        self.evicted_bytes += other.evicted_bytes;
        self.used_blocks += other.used_blocks;
        self.early_ms = self.early_ms.saturating_add(other.early_ms);
        let first = [self.first_used_ms, other.first_used_ms];
        self.first_used_ms = first.into_iter().flatten().min();
    }
}

impl EarlyCounts {
    /// Returns the counts of a block that is used now.
    fn of_use(bytes: u64, early_ms: u64) -> Self {
        Self {
            used_bytes: bytes,
            used_blocks: 1,
            early_ms,
            first_used_ms: Some(millis_since_1970(clock::utc_now())),
            ..Self::default()
        }
    }
}

impl EarlyBlocks {
    /// Follows a block of `bytes` that an order is about to bring.
    pub fn expect(&self, block: BlockId, bytes: u64, order: u128) {
        let mut inner = self.inner.lock();
        let has_room = inner.blocks.len() < BLOCKS_MAX;
        if has_room && (inner.counts.len() < ORDERS_MAX || inner.counts.contains_key(&order)) {
            inner.blocks.entry(block).or_insert(Early {
                order,
                bytes,
                arrived: None,
                is_awaited: false,
            });
            self.has_any.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that the block is on disk now, and that the order has brought it; otherwise it is no longer
    /// followed.
    pub fn came(&self, block: BlockId, bytes: u64, order: u128, was_brought: bool) {
        let mut inner = self.inner.lock();
        // Of two orders that bring a block together, the first one has brought it.
        let is_mine = |early: &&mut Early| early.order == order;
        let Some(early) = inner.blocks.get_mut(&block).filter(is_mine) else {
            return;
        };
        let is_awaited = early.is_awaited;
        if was_brought && !is_awaited {
            early.arrived = Some(clock::instant());
        } else {
            inner.blocks.remove(&block);
        }
        if was_brought {
            inner.count(order, |counts| {
                counts.brought_bytes += bytes;
                if is_awaited {
                    *counts += EarlyCounts::of_use(bytes, 0);
                }
            });
        }
        self.note_emptiness(&inner);
    }

    /// Notes that a reader asked for a block, which this node `held` or not.
    pub fn requested(&self, block: BlockId, held: bool) {
        if !self.has_any.load(Ordering::Relaxed) {
            return;
        }
        let mut inner = self.inner.lock();
        let Some(early) = inner.blocks.get_mut(&block) else {
            return;
        };
        let (order, bytes) = (early.order, early.bytes);
        match early.arrived {
            None => {
                early.is_awaited = true;
                return;
            }
            Some(_) if !held => inner.count(order, |counts| counts.evicted_bytes += bytes),
            Some(arrived) => {
                let early = clock::instant().saturating_duration_since(arrived);
                let early_ms = u64::try_from(early.as_millis()).unwrap_or(u64::MAX);
                inner.count(order, |counts| *counts += EarlyCounts::of_use(bytes, early_ms));
            }
        }
        inner.blocks.remove(&block);
        self.note_emptiness(&inner);
    }

    /// Returns the order that brought a block which no reader has asked for yet.
    pub fn brought_by(&self, block: BlockId) -> Option<u128> {
        let inner = self.inner.lock();
        let early = inner.blocks.get(&block);
        early
            .filter(|early| early.arrived.is_some())
            .map(|early| early.order)
    }

    /// Returns the counts of an order here.
    pub fn counts(&self, order: u128) -> EarlyCounts {
        self.inner.lock().counts.get(&order).copied().unwrap_or_default()
    }

    /// Returns the sums over all orders since the node started.
    pub fn totals(&self) -> EarlyCounts {
        self.inner.lock().totals
    }

    /// Drops the counts of orders that are not known, and no longer follows the blocks of those whose readers
    /// are not expected.
    pub fn keep(&self, is_known: impl Fn(u128) -> bool, is_expected: impl Fn(u128) -> bool) {
        let mut inner = self.inner.lock();
        inner.counts.retain(|order, _| is_known(*order));
        inner.blocks.retain(|_, early| is_expected(early.order));
        self.note_emptiness(&inner);
    }

    fn note_emptiness(&self, inner: &Inner) {
        self.has_any.store(!inner.blocks.is_empty(), Ordering::Relaxed);
    }
}

impl Inner {
    fn count(&mut self, order: u128, change: impl Fn(&mut EarlyCounts)) {
        change(&mut self.totals);
        if self.counts.len() < ORDERS_MAX || self.counts.contains_key(&order) {
            change(self.counts.entry(order).or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use shoal_policy::{BlockId, VersionId};

    use super::{BLOCKS_MAX, EarlyBlocks, EarlyCounts};

    fn block(index: u32) -> BlockId {
        let version = VersionId([7; 16]);
        BlockId { version, index }
    }

    /// Returns the bytes that were brought, used, and evicted before their use.
    fn bytes(counts: EarlyCounts) -> [u64; 3] {
        [counts.brought_bytes, counts.used_bytes, counts.evicted_bytes]
    }

    #[test]
    fn a_block_is_used_once_and_by_the_reader_that_finds_it() {
        let early = EarlyBlocks::default();
        for index in 0..4 {
            early.expect(block(index), 10, 1);
        }
        // A reader waits for this one.
        early.requested(block(3), false);
        for index in 0..4 {
            early.came(block(index), 10, 1, true);
        }
        assert_eq!(bytes(early.counts(1)), [40, 10, 0]);
        assert_eq!(early.counts(1).early_ms, 0);
        assert_eq!(early.brought_by(block(0)), Some(1));
        early.requested(block(0), true);
        early.requested(block(0), true);
        early.requested(block(1), false);
        early.requested(block(9), true);
        assert_eq!(bytes(early.counts(1)), [40, 20, 10]);
        assert_eq!(early.counts(1).used_blocks, 2);
        assert!(early.counts(1).first_used_ms.is_some() && early.counts(2).first_used_ms.is_none());
        assert_eq!(early.brought_by(block(0)), None);
        assert_eq!(bytes(early.totals()), [40, 20, 10]);
        early.keep(|_| true, |order| order != 1);
        assert_eq!(bytes(early.counts(1)), [40, 20, 10], "it is over, and known");
        assert_eq!(early.brought_by(block(2)), None);
        early.keep(|order| order != 1, |_| true);
        assert_eq!(early.counts(1), EarlyCounts::default());
        assert!(!early.has_any.load(std::sync::atomic::Ordering::Relaxed));
    }

    #[test]
    fn a_block_that_was_here_or_failed_was_not_brought() {
        let early = EarlyBlocks::default();
        early.expect(block(0), 10, 1);
        early.came(block(0), 10, 1, false);
        early.requested(block(0), true);
        assert_eq!(early.counts(1), EarlyCounts::default());
        // The first order that brings a block has its use.
        early.expect(block(1), 10, 1);
        early.expect(block(1), 10, 2);
        early.came(block(1), 10, 2, true);
        early.came(block(1), 10, 1, true);
        early.requested(block(1), true);
        assert_eq!(bytes(early.counts(1)), [10, 10, 0]);
        assert_eq!(early.counts(2), EarlyCounts::default());
    }

    #[test]
    fn the_first_use_is_that_on_any_node() {
        let used = |first_used_ms| EarlyCounts {
            first_used_ms,
            ..EarlyCounts::default()
        };
        for [one, other, first] in [
            [None, None, None],
            [Some(7), None, Some(7)],
            [None, Some(7), Some(7)],
            [Some(9), Some(7), Some(7)],
        ] {
            let mut all = used(one);
            all += used(other);
            assert_eq!(all.first_used_ms, first);
        }
    }

    #[test]
    fn the_blocks_that_are_followed_are_bounded() {
        let early = EarlyBlocks::default();
        for index in 0..BLOCKS_MAX as u32 + 9 {
            early.expect(block(index), 1, 1);
            early.came(block(index), 1, 1, true);
        }
        assert_eq!(early.counts(1).brought_bytes, BLOCKS_MAX as u64);
        assert_eq!(early.inner.lock().blocks.len(), BLOCKS_MAX);
        early.requested(block(BLOCKS_MAX as u32), true);
        assert_eq!(early.counts(1).used_bytes, 0);
    }
}
