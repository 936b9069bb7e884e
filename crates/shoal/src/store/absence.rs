//! Why blocks that were here, or came, are not here now: what is remembered of the last few thousand.

use std::num::NonZeroUsize;

use lru::LruCache;
use parking_lot::Mutex;
use shoal_policy::BlockId;
use shoal_policy::admission::Refusal;

use super::Store;
use super::counters::Departure;

/// Blocks remembered; at about 100 bytes each.
const REMEMBERED: usize = 16 << 10;

/// Why a block is not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// It was here and left.
    Left(Departure),
    /// It came and was not let in.
    Refused(Refusal),
}

/// The last absences.
#[derive(Debug)]
pub(super) struct Absences(Mutex<LruCache<BlockId, Absence>>);

impl Default for Absences {
    fn default() -> Self {
        let remembered = NonZeroUsize::new(REMEMBERED).expect("written here and not zero");
        Self(Mutex::new(LruCache::new(remembered)))
    }
}

impl Absences {
    pub(super) fn note(&self, block: BlockId, why: Absence) {
        self.0.lock().put(block, why);
    }
}

impl Store {
    /// Why a block that is not here is not here; `None` when it never was, as far as is remembered.
    pub fn absence(&self, block: BlockId) -> Option<Absence> {
        self.absences.0.lock().peek(&block).copied()
    }
}
