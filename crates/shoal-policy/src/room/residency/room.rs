//! Room: a capacity, and what takes it.

use crate::admission::Refusal;

/// A capacity, and the bytes of it that are taken: never more than there are.
#[derive(Debug)]
pub struct Room {
    capacity_bytes: u64,
    pub(super) free: FreeRoom,
    /// Taken by held keys.
    pub(super) used_bytes: u64,
    /// Promised to keys that are being written.
    pub(super) reserved_bytes: u64,
    /// Taken by keys that are forgotten but not yet gone.
    pub(super) leaving_bytes: u64,
}

/// The room that eviction ahead of demand keeps free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreeRoom {
    /// A share: eviction starts when less than a twentieth is free, and stops at a tenth. For an evictor that
    /// asks other nodes about many blocks at once, while a burst of writes goes on.
    Share,
    /// The room that writers in flight need. Keys then leave about as they come, each by what is known at
    /// that moment, and not in batches of a twentieth of the cache. The writers evict keys themselves if they
    /// need more.
    Bytes {
        /// Eviction starts when less is free. Of a small cache a twentieth is enough.
        start_bytes: u64,
        /// Once it has started, this much more is freed: so that many small keys are evicted at once.
        batch_bytes: u64,
    },
}

impl Room {
    pub(super) const fn new(capacity_bytes: u64) -> Self {
        Self {
            capacity_bytes,
            free: FreeRoom::Share,
            used_bytes: 0,
            reserved_bytes: 0,
            leaving_bytes: 0,
        }
    }

    /// Eviction ahead of demand starts above this: at most a twentieth of the room is kept free for it.
    pub(super) fn high_bytes(&self) -> u64 {
        let share_bytes = self.capacity_bytes / 20;
        let free_bytes = match self.free {
            FreeRoom::Share => share_bytes,
            FreeRoom::Bytes { start_bytes, .. } => start_bytes.min(share_bytes),
        };
        self.capacity_bytes - free_bytes
    }

    /// Eviction ahead of demand stops at this: when at most a tenth of the room is free, little enough not to
    /// empty a small cache.
    pub(super) fn low_bytes(&self) -> u64 {
        let least_bytes = self.capacity_bytes - self.capacity_bytes / 10;
        match self.free {
            FreeRoom::Share => least_bytes,
            FreeRoom::Bytes { batch_bytes, .. } => {
                least_bytes.max(self.high_bytes().saturating_sub(batch_bytes))
            }
        }
    }

    /// The capacity in bytes.
    pub const fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// The room that held keys take.
    pub const fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// All room taken by held, reserved and leaving keys.
    pub const fn taken_bytes(&self) -> u64 {
        self.used_bytes + self.reserved_bytes + self.leaving_bytes
    }

    /// The free room in bytes.
    pub const fn free_bytes(&self) -> u64 {
        self.capacity_bytes - self.taken_bytes()
    }

    /// Returns true if eviction ahead of demand should start.
    pub fn is_crowded(&self) -> bool {
        self.used_bytes + self.reserved_bytes > self.high_bytes()
    }

    /// The bytes to evict ahead of demand; 0 while there is enough room. `started` is as in
    /// [`Residency::evict_ahead`](super::Residency::evict_ahead).
    pub fn excess_bytes(&self, started: bool) -> u64 {
        if started || self.is_crowded() {
            let wanted_bytes = self.used_bytes + self.reserved_bytes;
            wanted_bytes.saturating_sub(self.low_bytes())
        } else {
            0
        }
    }

    pub(super) fn resize(&mut self, capacity_bytes: u64) {
        self.capacity_bytes = capacity_bytes;
        self.assert_promise();
    }

    pub(super) fn reserve(&mut self, bytes: u64) -> Result<(), Refusal> {
        if bytes > self.free_bytes() {
            return Err(Refusal::NoRoom);
        }
        self.reserved_bytes += bytes;
        self.assert_promise();
        Ok(())
    }

    pub(super) fn assert_promise(&self) {
        assert!(self.taken_bytes() <= self.capacity_bytes, "capacity is a promise");
    }
}
