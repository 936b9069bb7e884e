//! Applies the pins and releases of objects to resident blocks.
//!
//! A pin names an object and applies to all blocks of its newest version, resident ones and later ones.
//! Blocks of older versions are unpinned.

use shoal_policy::admission::Refusal;
use shoal_policy::eviction::gwf::Weight;
use shoal_policy::{BlockId, ObjectId, VersionId};

use super::pin_orders::{Group, PinOrder};
use super::{Ledger, State};
use crate::counters::PinCounts;

/// The pinned blocks of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Blocks that are pinned.
    pub blocks: u64,
    /// Their disk space in bytes.
    pub bytes: u64,
    /// Set if not all of its resident blocks could be pinned.
    pub refusal: Option<Refusal>,
}

impl Ledger {
    /// Lets the blocks of an object leave before all others. Returns their number, without pinned ones.
    pub(crate) fn release(&self, object: ObjectId) -> u64 {
        let uses = self.mappings.take_uses();
        let mut state = self.state.lock();
        // Uses until now do not end the release.
        state.touch(&uses);
        state.release(object)
    }
}

impl State {
    /// Pins an object and its blocks.
    pub(crate) fn pin(&mut self, group: Group, object: ObjectId) -> Kept {
        match self.pins.add(group, object) {
            Ok(_) => self.pin_blocks(object),
            Err(refusal) => Kept {
                refusal: Some(refusal),
                ..Kept::default()
            },
        }
    }

    /// Removes the pins of an object by orders before `before`. Returns the blocks that are no longer pinned.
    pub(crate) fn unpin(&mut self, object: ObjectId, before: PinOrder) -> Kept {
        if self.pins.remove_object(object, before) {
            self.unpin_blocks(object, None)
        } else {
            Kept::default()
        }
    }

    /// Ends up to `most` pins of a group.
    pub(crate) fn end_pins(&mut self, group: Group, most: usize) {
        for object in self.pins.take(group, most) {
            self.unpin_blocks(object, None);
        }
    }

    /// Lets the blocks of an object leave before all others. Returns their number, without pinned ones.
    pub(super) fn release(&mut self, object: ObjectId) -> u64 {
        let mut released = 0;
        for block in self.index.ids_of_object(object) {
            if !self.residency.release(&block) {
                continue;
            }
            released += 1;
            if let Some(gwf) = self.gwf_mut() {
                let worth = gwf.worth_now(Weight::ZERO);
                gwf.weigh(&block, worth);
            }
        }
        released
    }

    /// Pins a new block if its object is pinned and it belongs to the newest version; unpins older versions.
    pub(super) fn pin_arrived(&mut self, object: ObjectId, block: BlockId) {
        if !self.pins.contains(object) || self.index.newest(object) != Some(block.version) {
            return;
        }
        // If there is no room for the pin, the block is an ordinary one.
        let _ = self.pin_block(block);
        if self.index.has_older(object) {
            self.unpin_blocks(object, Some(block.version));
        }
    }

    pub(super) fn pin_counts(&self) -> PinCounts {
        PinCounts {
            objects: self.pins.objects() as u64,
            bytes: self.residency.pins().bytes(),
            bytes_max: self.residency.pins().bytes_max(),
        }
    }

    /// Pins the resident blocks of an object's newest version, as far as there is room.
    fn pin_blocks(&mut self, object: ObjectId) -> Kept {
        let mut kept = Kept::default();
        let Some(version) = self.index.newest(object) else {
            return kept;
        };
        for block in self.index.ids_of(version) {
            if let Err(refusal) = self.pin_block(block) {
                // It may have been put back into a different layer.
                self.observe(block);
                kept.refusal = Some(refusal);
                break;
            }
        }
        let blocks = self.index.ids_of(version).into_iter();
        for bytes in blocks.filter_map(|block| self.residency.pins().bytes_of(&block)) {
            kept.blocks += 1;
            kept.bytes += bytes;
        }
        kept
    }

    fn pin_block(&mut self, block: BlockId) -> Result<(), Refusal> {
        if self.residency.pin(&block)?.is_some() {
            self.quotas.set_aside(&block);
        }
        Ok(())
    }

    /// Unpins the blocks of an object, except those of version `but`.
    fn unpin_blocks(&mut self, object: ObjectId, but: Option<VersionId>) -> Kept {
        let mut freed = Kept::default();
        for block in self.index.ids_of_object(object) {
            if Some(block.version) == but {
                continue;
            }
            if let Some(bytes) = self.residency.unpin(&block) {
                self.quotas.take_back(&block);
                // It may have been put back into a different layer.
                self.observe(block);
                freed.blocks += 1;
                freed.bytes += bytes;
            }
        }
        freed
    }
}
