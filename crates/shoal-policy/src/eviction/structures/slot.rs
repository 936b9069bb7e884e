//! Handles of slab entries, shared by the slab's index and lists.

/// Identifies a slab entry while its key is held.
pub(crate) type Slot = u32;

/// Ends a chain of nodes.
pub(crate) const NONE: Slot = Slot::MAX;
