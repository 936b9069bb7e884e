//! The pins of objects, as the blocks that are here follow them.
//!
//! A pin names an object and holds the blocks of its newest version: those that are here, and those that
//! come. Blocks of an older version are of no use any more.

use shoal_policy::admission::Refusal;
use shoal_policy::{BlockId, ObjectId, VersionId};

use super::{Ledger, State};
use crate::pinning::PinCounts;
use crate::pins::PinOrder;

/// The pinned blocks of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Blocks that are pinned.
    pub blocks: u64,
    /// The room that they take, in bytes.
    pub bytes: u64,
    /// Why not all of its blocks that are here are pinned.
    pub refusal: Option<Refusal>,
}

impl Ledger {
    /// Pins an object and its blocks.
    pub(crate) fn pin(&self, order: PinOrder, until_ms: u64, object: ObjectId) -> Kept {
        let mut state = self.state.lock();
        match state.pins.add(order, until_ms, object) {
            Ok(_) => state.pin_blocks(object),
            Err(refusal) => Kept {
                refusal: Some(refusal),
                ..Kept::default()
            },
        }
    }

    /// Notes the pin of an object whose blocks will be restored later.
    pub(crate) fn add_pin(&self, order: PinOrder, until_ms: u64, object: ObjectId) -> Result<bool, Refusal> {
        self.state.lock().pins.add(order, until_ms, object)
    }

    /// Ends the pins of an object by orders before this one. Returns the blocks that are no longer pinned.
    pub(crate) fn unpin(&self, object: ObjectId, before: PinOrder) -> Kept {
        let mut state = self.state.lock();
        if state.pins.remove_object(object, before) {
            state.unpin_blocks(object, None)
        } else {
            Kept::default()
        }
    }

    /// Ends the pins of up to `most` objects of an order. Returns whether all of them have ended.
    pub(crate) fn end_pins(&self, order: PinOrder, most: usize) -> bool {
        let mut state = self.state.lock();
        let (free, is_gone) = state.pins.take(order, most);
        for object in free {
            state.unpin_blocks(object, None);
        }
        is_gone
    }

    /// An order whose end has come.
    pub(crate) fn due_pins(&self, now_ms: u64) -> Option<PinOrder> {
        self.state.lock().pins.due(now_ms)
    }

    /// Whether an object is pinned by this order until this end.
    pub(crate) fn is_pinned_by(&self, object: ObjectId, order: PinOrder, until_ms: u64) -> bool {
        self.pin_orders_of(object).contains(&(order, until_ms))
    }

    /// The orders that pin an object, each with its end.
    pub(crate) fn pin_orders_of(&self, object: ObjectId) -> Vec<(PinOrder, u64)> {
        self.state.lock().pins.orders_of(object)
    }

    /// Whether an order before this one pins an object.
    pub(crate) fn is_pinned_before(&self, object: ObjectId, before: PinOrder) -> bool {
        self.pin_orders_of(object)
            .iter()
            .any(|(order, _)| *order < before)
    }

    /// Whether an object is pinned.
    pub(crate) fn has_pin(&self, object: ObjectId) -> bool {
        self.state.lock().pins.contains(object)
    }

    /// Whether an order pins anything.
    pub(crate) fn has_order(&self, order: PinOrder) -> bool {
        self.state.lock().pins.has_order(order)
    }

    /// All orders, with their ends and their objects.
    pub(crate) fn pinned_by_order(&self) -> Vec<(PinOrder, u64, Vec<ObjectId>)> {
        let state = self.state.lock();
        let orders = state.pins.all();
        orders
            .map(|(order, until_ms, objects)| (order, until_ms, objects.collect()))
            .collect()
    }

    /// All orders with their ends.
    pub(crate) fn pin_orders(&self) -> Vec<(PinOrder, u64)> {
        let state = self.state.lock();
        state
            .pins
            .all()
            .map(|(order, until_ms, _)| (order, until_ms))
            .collect()
    }

    /// The number of pairs of an object and an order.
    pub(crate) fn pin_pairs(&self) -> usize {
        self.state.lock().pins.pairs()
    }

    /// Whether a block is here and pinned.
    pub(crate) fn is_pinned(&self, block: BlockId) -> bool {
        self.state.lock().residency.is_pinned(&block)
    }

    /// Checks whether `bytes` more can be pinned.
    pub(crate) fn pins_admit(&self, bytes: u64) -> Result<(), Refusal> {
        self.state.lock().residency.pins_admit(bytes)
    }
}

impl State {
    /// Follows the pin of an object when a block of it has come.
    pub(super) fn pin_arrived(&mut self, object: ObjectId, block: BlockId) {
        if !self.pins.contains(object) || self.index.newest(object) != Some(block.version) {
            return;
        }
        // If there is no room for the pin, the block stays like any other.
        let _ = self.residency.pin(&block);
        if self.index.has_older(object) {
            self.unpin_blocks(object, Some(block.version));
        }
    }

    pub(super) fn pin_counts(&self) -> PinCounts {
        PinCounts {
            objects: self.pins.objects() as u64,
            bytes: self.residency.pinned_bytes(),
            bytes_max: self.residency.pinned_bytes_max(),
        }
    }

    /// Pins the blocks of the newest version of an object, as many as there is room for.
    fn pin_blocks(&mut self, object: ObjectId) -> Kept {
        let mut kept = Kept::default();
        let Some(version) = self.index.newest(object) else {
            return kept;
        };
        for index in self.index.blocks_of(version) {
            let block = BlockId { version, index };
            if let Err(refusal) = self.residency.pin(&block) {
                // It may have come back into another layer than it left.
                self.observe(block);
                kept.refusal = Some(refusal);
                break;
            }
        }
        let (blocks, bytes) = self.pinned_of(version);
        Kept {
            blocks,
            bytes,
            ..kept
        }
    }

    /// Gives the blocks of an object back to the policy, except those of the version `but`.
    fn unpin_blocks(&mut self, object: ObjectId, but: Option<VersionId>) -> Kept {
        let mut freed = Kept::default();
        for version in self.index.versions_of(object) {
            if Some(version) == but {
                continue;
            }
            for index in self.index.blocks_of(version) {
                let block = BlockId { version, index };
                if let Some(bytes) = self.residency.unpin(&block) {
                    self.observe(block);
                    freed.blocks += 1;
                    freed.bytes += bytes;
                }
            }
        }
        freed
    }

    fn pinned_of(&self, version: VersionId) -> (u64, u64) {
        let blocks = self.index.blocks_of(version).into_iter();
        let bytes = blocks.filter_map(|index| self.residency.pinned_bytes_of(&BlockId { version, index }));
        bytes.fold((0, 0), |(blocks, sum), bytes| (blocks + 1, sum + bytes))
    }
}
