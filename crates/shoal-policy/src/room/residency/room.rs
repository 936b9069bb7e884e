//! Room: a capacity, and what takes it.

use crate::admission::Refusal;

/// A capacity, and the bytes of it that are taken: never more than there are.
#[derive(Debug)]
#[expect(clippy::struct_field_names, reason = "a field names its unit")]
pub struct Room {
    capacity_bytes: u64,
    /// Taken by held keys.
    pub(super) used_bytes: u64,
    /// Promised to keys that are being written.
    pub(super) reserved_bytes: u64,
    /// Taken by keys that are forgotten but not yet gone.
    pub(super) leaving_bytes: u64,
}

impl Room {
    pub(super) const fn new(capacity_bytes: u64) -> Self {
        Self {
            capacity_bytes,
            used_bytes: 0,
            reserved_bytes: 0,
            leaving_bytes: 0,
        }
    }

    /// Eviction ahead of demand starts when less than a twentieth of the room is free: enough for a burst of
    /// fills.
    pub(super) const fn high_bytes(&self) -> u64 {
        self.capacity_bytes - self.capacity_bytes / 20
    }

    /// Eviction ahead of demand stops when a tenth of the room is free: little enough not to empty a small
    /// cache.
    pub(super) const fn low_bytes(&self) -> u64 {
        self.capacity_bytes - self.capacity_bytes / 10
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
    pub const fn is_crowded(&self) -> bool {
        self.used_bytes + self.reserved_bytes > self.high_bytes()
    }

    /// The bytes to evict ahead of demand; 0 while there is enough room. `started` is as in
    /// [`Residency::evict_ahead`](super::Residency::evict_ahead).
    pub const fn excess_bytes(&self, started: bool) -> u64 {
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
