//! Notifies the node of stored and removed blocks, for its reports to a directory.

use std::fmt;
use std::sync::OnceLock;

use shoal_policy::BlockId;

/// A change of the blocks that a store holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockEvent {
    /// The block was stored.
    Stored,
    /// The block was removed.
    Removed,
}

type Watcher = Box<dyn Fn(BlockId, u64, BlockEvent) + Send + Sync>;

/// Forwards events to the watcher, if one is set.
#[derive(Default)]
pub(crate) struct Watch(OnceLock<Watcher>);

impl Watch {
    /// Sets the watcher. Later calls have no effect.
    pub(crate) fn set(&self, watcher: Watcher) {
        let _ = self.0.set(watcher);
    }

    pub(crate) fn notify(&self, block: BlockId, data_bytes: u64, event: BlockEvent) {
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
