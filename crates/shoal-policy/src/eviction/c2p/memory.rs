//! The groups of which a node keeps global metadata.

use std::collections::hash_map::Entry;
use std::fmt::Debug;
use std::hash::Hash;

use super::global::Global;
use crate::eviction::{Eviction as _, Lru};
use crate::hash::KeyMap;

/// The minimum number of groups without a local block that may be remembered.
const ABSENT_MIN: usize = 16;

/// Global metadata by group: of groups with a block on this node, and of a bounded number of others.
#[derive(Debug, Default)]
pub(super) struct Memory<G> {
    known: KeyMap<G, Global>,
    /// Groups without a block on this node, in the order in which they were marked.
    absent: Lru<G>,
}

impl<G: Copy + Debug + Eq + Hash> Memory<G> {
    pub(super) fn groups(&self) -> impl Iterator<Item = G> {
        self.known.keys().copied()
    }

    pub(super) fn get(&self, group: G) -> Option<&Global> {
        self.known.get(&group)
    }

    pub(super) fn get_mut(&mut self, group: G) -> Option<&mut Global> {
        self.known.get_mut(&group)
    }

    /// Returns the metadata of a group, adding the group without a block on this node if it is unknown.
    /// `present` as in [`Memory::set_absent`].
    pub(super) fn known(&mut self, group: G, present: usize) -> &mut Global {
        if let Entry::Vacant(unknown) = self.known.entry(group) {
            unknown.insert(Global::default());
            self.set_absent(group, present);
        }
        self.get_mut(group)
            .expect("the group that was added last is kept")
    }

    /// Marks a known group as having no block on this node. Of these, forgets the groups marked earliest if
    /// they outnumber the `present` groups with a block.
    pub(super) fn set_absent(&mut self, group: G, present: usize) {
        if !self.absent.contains(&group) {
            self.absent.insert(group, 0);
        }
        while self.absent.len() > present.max(ABSENT_MIN)
            && let Some((longest, _)) = self.absent.evict(&mut |_| true)
        {
            self.known.remove(&longest);
        }
    }

    /// Marks a group as having a block on this node, and returns its metadata.
    pub(super) fn present(&mut self, group: G) -> &mut Global {
        self.absent.remove(&group);
        self.known.entry(group).or_default()
    }
}
