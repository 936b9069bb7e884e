//! The groups of which a node keeps global metadata.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

use super::global::Global;
use crate::hash::KeyMap;

/// The minimum number of groups without a local block that may be remembered.
const ABSENT_MIN: usize = 16;

/// Global metadata by group: of groups with a block on this node, and of a bounded number of others.
#[derive(Debug)]
pub(super) struct Memory<G> {
    known: KeyMap<G, Known>,
    /// Groups without a block on this node, oldest first.
    absent: BTreeMap<u64, G>,
    absences: u64,
}

#[derive(Debug, Default)]
struct Known {
    global: Global,
    /// Its sequence number among the groups without a block on this node.
    absence: Option<u64>,
}

impl<G> Default for Memory<G> {
    fn default() -> Self {
        Self {
            known: KeyMap::default(),
            absent: BTreeMap::new(),
            absences: 0,
        }
    }
}

impl<G: Copy + Eq + Hash> Memory<G> {
    pub(super) fn groups(&self) -> impl Iterator<Item = G> {
        self.known.keys().copied()
    }

    pub(super) fn get(&self, group: G) -> Option<&Global> {
        self.known.get(&group).map(|known| &known.global)
    }

    pub(super) fn get_mut(&mut self, group: G) -> Option<&mut Global> {
        self.known.get_mut(&group).map(|known| &mut known.global)
    }

    /// Returns the metadata of a group, adding the group without a block on this node if it is unknown.
    /// `present` as in [`Memory::set_absent`].
    pub(super) fn known(&mut self, group: G, present: usize) -> &mut Global {
        if let Entry::Vacant(unknown) = self.known.entry(group) {
            unknown.insert(Known::default());
            self.set_absent(group, present);
        }
        self.get_mut(group)
            .expect("the group that was added last is kept")
    }

    /// Marks a known group as having no block on this node. Of these, forgets the groups marked earliest if
    /// they outnumber the `present` groups with a block.
    pub(super) fn set_absent(&mut self, group: G, present: usize) {
        if let Some(known) = self.known.get_mut(&group)
            && known.absence.is_none()
        {
            known.absence = Some(self.absences);
            self.absent.insert(self.absences, group);
            self.absences += 1;
        }
        while self.absent.len() > present.max(ABSENT_MIN)
            && let Some((_, longest)) = self.absent.pop_first()
        {
            self.known.remove(&longest);
        }
    }

    /// Marks a group as having a block on this node, and returns its metadata.
    pub(super) fn present(&mut self, group: G) -> &mut Global {
        let known = self.known.entry(group).or_default();
        if let Some(absence) = known.absence.take() {
            self.absent.remove(&absence);
        }
        &mut known.global
    }
}
