//! Names of the entries of a slab, which its index and its lists share.

/// Names an entry while its key is held.
pub(super) type Slot = u32;

/// Ends a chain of nodes.
pub(super) const NONE: Slot = Slot::MAX;
