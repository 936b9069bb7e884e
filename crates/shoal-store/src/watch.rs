//! Tells the node which blocks come and go, for a directory of them.

use std::fmt;
use std::sync::OnceLock;

use shoal_policy::BlockId;

/// A change of the blocks that a store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockEvent {
    /// The block is on disk from now on.
    Stored,
    /// The block is not here any more.
    Removed,
}

type Watcher = Box<dyn Fn(BlockId, u64, BlockEvent) + Send + Sync>;

/// Passes events on to the watcher, once there is one.
#[derive(Default)]
pub(super) struct Watch(OnceLock<Watcher>);

impl Watch {
    /// Sets the watcher; only the first one counts.
    pub(super) fn set(&self, watcher: Watcher) {
        let _ = self.0.set(watcher);
    }

    pub(super) fn tell(&self, block: BlockId, data_bytes: u64, event: BlockEvent) {
        if let Some(watcher) = self.0.get() {
            watcher(block, data_bytes, event);
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.0.get().is_some()).finish()
    }
}
