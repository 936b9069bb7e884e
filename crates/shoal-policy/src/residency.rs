//! The keys that a cache holds, the room that they take, and their eviction.
//!
//! Room is a promise: `used + reserved + leaving <= capacity` after every step. It is taken *before* bytes
//! are written ([`Residency::reserve`]) and given back only *after* they are gone ([`Residency::left`]), so
//! the promise also holds while many blocks are written and removed concurrently.
//!
//! A *pinned* key is set aside by the policy, so that no search for a victim finds it, and returns as just
//! used when the pin ends ([`Residency::pin`]).

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use crate::admission::Refusal;
use crate::eviction::Eviction;

/// The keys that a cache holds and the room that they take; `P` decides which is evicted first.
#[derive(Debug)]
pub struct Residency<K, P> {
    policy: P,
    capacity_bytes: u64,
    watermarks: Watermarks,
    /// Taken by held keys.
    used_bytes: u64,
    /// Promised to keys that are being written.
    reserved_bytes: u64,
    /// Taken by keys that are forgotten but not yet gone.
    leaving_bytes: u64,
    /// The pinned keys, which the policy has set aside, with their sizes.
    pinned: HashMap<K, u64>,
    /// Taken by pinned keys.
    pinned_bytes: u64,
    /// The maximum that pinned keys may take.
    pinned_bytes_max: u64,
}

/// The bounds between which eviction ahead of demand runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// Eviction starts above it.
    pub high_bytes: u64,
    /// Eviction stops at or below it.
    pub low_bytes: u64,
}

/// Room for a key that is about to be written. Must be passed to [`Residency::commit`],
/// [`Residency::restore`] or [`Residency::cancel`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "room that is not given back is lost"]
pub struct Reservation {
    bytes: u64,
}

/// A key that is no longer held but whose room is not yet free. Must be passed to [`Residency::left`] or
/// [`Residency::retake`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "room that is not given back is lost"]
pub struct Leaving<K> {
    /// The key that leaves.
    pub key: K,
    bytes: u64,
}

impl Watermarks {
    /// Eviction starts when less than a twentieth of the room is free and stops when a tenth is free: enough
    /// for a burst of fills, little enough not to empty a small cache.
    pub const fn from_capacity(capacity_bytes: u64) -> Self {
        Self {
            high_bytes: capacity_bytes - capacity_bytes / 20,
            low_bytes: capacity_bytes - capacity_bytes / 10,
        }
    }
}

impl Reservation {
    /// The reserved room in bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl<K> Leaving<K> {
    /// The room in bytes that becomes free when the key is gone.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl<K: Copy + Eq + Hash, P: Eviction<K>> Residency<K, P> {
    /// Creates an empty cache of `capacity_bytes`, in which nothing can be pinned.
    pub fn new(capacity_bytes: u64, watermarks: Watermarks, policy: P) -> Self {
        assert!(watermarks.low_bytes <= watermarks.high_bytes && watermarks.high_bytes <= capacity_bytes);
        assert!(policy.is_empty(), "a new cache holds nothing");
        Self {
            policy,
            capacity_bytes,
            watermarks,
            used_bytes: 0,
            reserved_bytes: 0,
            leaving_bytes: 0,
            pinned: HashMap::new(),
            pinned_bytes: 0,
            pinned_bytes_max: 0,
        }
    }

    /// Allows pinned keys to take up to `bytes_max`.
    #[must_use]
    pub fn with_pins(self, bytes_max: u64) -> Self {
        Self {
            pinned_bytes_max: bytes_max,
            ..self
        }
    }

    /// Reserves room for `bytes` that are about to be written, if there is enough.
    ///
    /// # Errors
    ///
    /// Fails with [`Refusal::TooLarge`] above the whole capacity, and with [`Refusal::NoRoom`] until keys are
    /// evicted.
    pub fn reserve(&mut self, bytes: u64) -> Result<Reservation, Refusal> {
        let mut reservation = Reservation { bytes: 0 };
        self.extend(&mut reservation, bytes)?;
        Ok(reservation)
    }

    /// Extends the reservation by `bytes`; on refusal, its present room stays reserved.
    ///
    /// # Errors
    ///
    /// Fails with [`Refusal::TooLarge`] above the whole capacity, and with [`Refusal::NoRoom`] until keys are
    /// evicted.
    pub fn extend(&mut self, reservation: &mut Reservation, bytes: u64) -> Result<(), Refusal> {
        if reservation.bytes.saturating_add(bytes) > self.capacity_bytes {
            return Err(Refusal::TooLarge);
        }
        if bytes > self.free_bytes() {
            return Err(Refusal::NoRoom);
        }
        self.reserved_bytes += bytes;
        reservation.bytes += bytes;
        self.assert_promise();
        Ok(())
    }

    /// Turns the reservation into a held key, whose bytes have been written.
    pub fn commit(&mut self, room: Reservation, key: K) {
        let bytes = self.hold(room, &key);
        self.policy.insert(key, bytes);
    }

    /// Turns the reservation into a held key, whose bytes were written before a restart.
    pub fn restore(&mut self, room: Reservation, key: K) {
        let bytes = self.hold(room, &key);
        self.policy.bring(key, bytes);
    }

    /// Releases a reservation, none of whose bytes are left on disk.
    pub fn cancel(&mut self, Reservation { bytes }: Reservation) {
        self.reserved_bytes -= bytes;
    }

    /// Checks that `bytes` more can be pinned.
    ///
    /// # Errors
    ///
    /// Fails with [`Refusal::PinsFull`] if pinned keys would exceed their limit.
    pub fn pins_admit(&self, bytes: u64) -> Result<(), Refusal> {
        if self.pinned_bytes.saturating_add(bytes) > self.pinned_bytes_max {
            return Err(Refusal::PinsFull);
        }
        Ok(())
    }

    /// Prevents a held key from being evicted. Returns its size if it was not pinned before.
    ///
    /// # Errors
    ///
    /// Fails with [`Refusal::PinsFull`] if pinned keys would exceed their limit. The key stays held.
    pub fn pin(&mut self, key: &K) -> Result<Option<u64>, Refusal> {
        if self.pinned.contains_key(key) {
            return Ok(None);
        }
        // Set aside first, because a policy returns the size of a key only when it gives it up; taken back
        // below if there is no room for the pin.
        let Some(bytes) = self.policy.set_aside(key) else {
            return Ok(None);
        };
        if let Err(refusal) = self.pins_admit(bytes) {
            self.policy.take_back(*key, bytes);
            return Err(refusal);
        }
        self.pinned.insert(*key, bytes);
        self.pinned_bytes += bytes;
        Ok(Some(bytes))
    }

    /// Ends the pin of a key, which counts as just used. Returns its size if it was pinned.
    pub fn unpin(&mut self, key: &K) -> Option<u64> {
        let bytes = self.pinned.remove(key)?;
        self.pinned_bytes -= bytes;
        self.policy.take_back(*key, bytes);
        Some(bytes)
    }

    /// Returns true if `key` is held and pinned.
    pub fn is_pinned(&self, key: &K) -> bool {
        self.pinned.contains_key(key)
    }

    /// The size of a pinned key; `None` if it is not pinned.
    pub fn pinned_bytes_of(&self, key: &K) -> Option<u64> {
        self.pinned.get(key).copied()
    }

    /// Records a use of `key`.
    pub fn touch(&mut self, key: &K) {
        self.policy.touch(key);
    }

    /// Sets the time to `now`, counted from the same origin as before.
    pub fn advance(&mut self, now: Duration) {
        self.policy.advance(now);
    }

    /// The eviction policy.
    pub const fn policy(&self) -> &P {
        &self.policy
    }

    /// The eviction policy, for methods that only it has. Keys must be added and removed through `self`,
    /// which counts their bytes.
    pub const fn policy_mut(&mut self) -> &mut P {
        &mut self.policy
    }

    /// Evicts a key that `may_leave` allows; `None` if there is none.
    pub fn evict(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<Leaving<K>> {
        let (key, bytes) = self.policy.evict(may_leave)?;
        Some(self.leave(key, bytes))
    }

    /// Evicts up to `most` keys ahead of demand; none while there is enough room.
    ///
    /// `started` is true if the caller is already making room: between the watermarks eviction continues, but
    /// does not start.
    pub fn evict_ahead(
        &mut self,
        started: bool,
        most: usize,
        may_leave: &mut dyn FnMut(&K) -> bool,
    ) -> Vec<Leaving<K>> {
        let mut victims = Vec::new();
        if self.excess_bytes(started) == 0 {
            return victims;
        }
        while victims.len() < most && self.excess_bytes(true) > 0 {
            match self.evict(may_leave) {
                Some(leaving) => victims.push(leaving),
                None => break,
            }
        }
        victims
    }

    /// The bytes to evict ahead of demand; 0 while there is enough room. `started` is as in
    /// [`Residency::evict_ahead`].
    pub const fn excess_bytes(&self, started: bool) -> u64 {
        if started || self.is_crowded() {
            let wanted_bytes = self.used_bytes + self.reserved_bytes;
            wanted_bytes.saturating_sub(self.watermarks.low_bytes)
        } else {
            0
        }
    }

    /// Removes `key` because it is no longer valid, pinned or not.
    pub fn remove(&mut self, key: &K) -> Option<Leaving<K>> {
        let bytes = match self.pinned.remove(key) {
            Some(bytes) => {
                self.pinned_bytes -= bytes;
                self.policy.left_aside(key);
                bytes
            }
            None => self.policy.remove(key)?,
        };
        Some(self.leave(*key, bytes))
    }

    /// Frees the room of a key whose bytes are gone from disk.
    pub fn left(&mut self, Leaving { bytes, .. }: Leaving<K>) {
        self.leaving_bytes -= bytes;
    }

    /// Reserves the room of a leaving key whose bytes stay on disk under another name.
    pub fn retake(&mut self, Leaving { bytes, .. }: Leaving<K>) -> Reservation {
        self.leaving_bytes -= bytes;
        self.reserved_bytes += bytes;
        Reservation { bytes }
    }

    /// Changes the capacity. Before reducing it, the caller must evict: taken room stays taken.
    pub fn resize(&mut self, capacity_bytes: u64, watermarks: Watermarks) {
        assert!(watermarks.low_bytes <= watermarks.high_bytes && watermarks.high_bytes <= capacity_bytes);
        self.capacity_bytes = capacity_bytes;
        self.watermarks = watermarks;
        self.assert_promise();
    }

    /// Returns true if `key` is held, pinned or not.
    pub fn contains(&self, key: &K) -> bool {
        self.policy.contains(key) || self.pinned.contains_key(key)
    }

    /// The number of held keys.
    pub fn len(&self) -> usize {
        self.policy.len() + self.pinned.len()
    }

    /// Returns true if no key is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The room that pinned keys take.
    pub const fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes
    }

    /// The room that pinned keys may take.
    pub const fn pinned_bytes_max(&self) -> u64 {
        self.pinned_bytes_max
    }

    /// The room that held keys take.
    pub const fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// All room taken by held, reserved and leaving keys.
    pub const fn taken_bytes(&self) -> u64 {
        self.used_bytes + self.reserved_bytes + self.leaving_bytes
    }

    /// The capacity in bytes.
    pub const fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Returns true if eviction ahead of demand should start.
    pub const fn is_crowded(&self) -> bool {
        self.used_bytes + self.reserved_bytes > self.watermarks.high_bytes
    }

    /// The free room in bytes.
    pub const fn free_bytes(&self) -> u64 {
        self.capacity_bytes - self.taken_bytes()
    }

    /// Moves reserved room to a held key, and returns its size.
    fn hold(&mut self, Reservation { bytes }: Reservation, key: &K) -> u64 {
        assert!(!self.contains(key), "a key is admitted once");
        self.reserved_bytes -= bytes;
        self.used_bytes += bytes;
        self.assert_promise();
        bytes
    }

    fn leave(&mut self, key: K, bytes: u64) -> Leaving<K> {
        self.used_bytes -= bytes;
        self.leaving_bytes += bytes;
        Leaving { key, bytes }
    }

    fn assert_promise(&self) {
        assert!(self.taken_bytes() <= self.capacity_bytes, "capacity is a promise");
        debug_assert!(self.pinned_bytes <= self.used_bytes && self.pinned_bytes <= self.pinned_bytes_max);
    }
}

#[cfg(test)]
mod tests;
