//! Applies the pins of objects to resident blocks.
//!
//! A pin names an object and applies to all blocks of its newest version, resident ones and later ones.
//! Blocks of older versions are unpinned.

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
    /// Their disk space in bytes.
    pub bytes: u64,
    /// Set if not all of its resident blocks could be pinned.
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

    /// Records the pin of an object whose blocks will be restored later.
    pub(crate) fn add_pin(&self, order: PinOrder, until_ms: u64, object: ObjectId) -> Result<bool, Refusal> {
        self.state.lock().pins.add(order, until_ms, object)
    }

    /// Removes the pins of an object by orders before `before`. Returns the blocks that are no longer pinned.
    pub(crate) fn unpin(&self, object: ObjectId, before: PinOrder) -> Kept {
        let mut state = self.state.lock();
        if state.pins.remove_object(object, before) {
            state.unpin_blocks(object, None)
        } else {
            Kept::default()
        }
    }

    /// Ends up to `most` pins of an order. Returns true if all of them have ended.
    pub(crate) fn end_pins(&self, order: PinOrder, most: usize) -> bool {
        let mut state = self.state.lock();
        let (free, is_gone) = state.pins.take(order, most);
        state.release(free);
        is_gone
    }

    /// Ends up to `most` expired pins. Returns true if all of them have ended.
    pub(crate) fn end_due_pins(&self, now_ms: u64, most: usize) -> bool {
        let mut state = self.state.lock();
        let (free, are_gone) = state.pins.take_due(now_ms, most);
        state.release(free);
        are_gone
    }

    /// Returns true if any pin has expired.
    pub(crate) fn has_due_pins(&self, now_ms: u64) -> bool {
        self.state.lock().pins.has_due(now_ms)
    }

    /// Returns true if this order pins an object until this time.
    pub(crate) fn is_pinned_by(&self, object: ObjectId, order: PinOrder, until_ms: u64) -> bool {
        self.pin_orders_of(object).contains(&(order, until_ms))
    }

    /// The orders that pin an object, each with its expiry.
    pub(crate) fn pin_orders_of(&self, object: ObjectId) -> Vec<(PinOrder, u64)> {
        self.state.lock().pins.orders_of(object)
    }

    /// Returns true if an order before `before` pins an object.
    pub(crate) fn is_pinned_before(&self, object: ObjectId, before: PinOrder) -> bool {
        self.pin_orders_of(object)
            .iter()
            .any(|(order, _)| *order < before)
    }

    /// Returns true if an object is pinned.
    pub(crate) fn has_pin(&self, object: ObjectId) -> bool {
        self.state.lock().pins.contains(object)
    }

    /// Returns true if an order pins any object.
    pub(crate) fn has_order(&self, order: PinOrder) -> bool {
        self.state.lock().pins.has_order(order)
    }

    /// All orders, with their expiries and their objects. An order is listed once for each expiry.
    pub(crate) fn pinned_by_order(&self) -> Vec<(PinOrder, u64, Vec<ObjectId>)> {
        let state = self.state.lock();
        let orders = state.pins.all();
        orders
            .map(|(order, until_ms, objects)| (order, until_ms, objects.collect()))
            .collect()
    }

    /// All orders.
    pub(crate) fn pin_orders(&self) -> Vec<PinOrder> {
        let state = self.state.lock();
        let mut orders: Vec<_> = state.pins.all().map(|(order, ..)| order).collect();
        orders.dedup();
        orders
    }

    /// The number of pairs of an object and a pin.
    pub(crate) fn pin_pairs(&self) -> usize {
        self.state.lock().pins.pairs()
    }

    /// Returns true if a block is resident and pinned.
    pub(crate) fn is_pinned(&self, block: BlockId) -> bool {
        self.state.lock().residency.is_pinned(&block)
    }

    /// Checks that `bytes` more can be pinned.
    pub(crate) fn pins_admit(&self, bytes: u64) -> Result<(), Refusal> {
        self.state.lock().residency.pins_admit(bytes)
    }
}

impl State {
    /// Pins a new block if its object is pinned and it belongs to the newest version; unpins older versions.
    pub(super) fn pin_arrived(&mut self, object: ObjectId, block: BlockId) {
        if !self.pins.contains(object) || self.index.newest(object) != Some(block.version) {
            return;
        }
        // If there is no room for the pin, the block is an ordinary one.
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

    /// Pins the resident blocks of an object's newest version, as far as there is room.
    fn pin_blocks(&mut self, object: ObjectId) -> Kept {
        let mut kept = Kept::default();
        let Some(version) = self.index.newest(object) else {
            return kept;
        };
        for index in self.index.blocks_of(version) {
            let block = BlockId { version, index };
            if let Err(refusal) = self.residency.pin(&block) {
                // It may have been put back into a different layer.
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

    /// Unpins the blocks of objects without pins.
    fn release(&mut self, objects: Vec<ObjectId>) {
        for object in objects {
            self.unpin_blocks(object, None);
        }
    }

    /// Unpins the blocks of an object, except those of version `but`.
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
