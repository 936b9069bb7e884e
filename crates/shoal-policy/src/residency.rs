//! The keys that a cache holds, the room that they take, and which of them leave to make room for others.
//!
//! Room is a promise: `used + reserved + leaving <= capacity` after every step. It is taken *before* bytes
//! are written ([`Residency::reserve`]) and given back only *after* they are gone ([`Residency::left`]), so
//! the promise also holds while many blocks come and go at once.
//!
//! A *pinned* key is no policy's business: the policy forgets it, so that no search for a victim meets it,
//! and gets it back as one just used when the pin ends ([`Residency::pin`]).

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use crate::admission::Refusal;
use crate::eviction::Eviction;

/// The keys that a cache holds and the room that they take; `P` decides which leaves first.
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
    /// The held keys that the policy does not know of, with their bytes.
    pinned: HashMap<K, u64>,
    /// Taken by them.
    pinned_bytes: u64,
    /// The most that they may take.
    pinned_bytes_max: u64,
}

/// Where eviction ahead of need starts and where it stops, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watermarks {
    /// Eviction starts above it.
    pub high_bytes: u64,
    /// Eviction stops at or below it.
    pub low_bytes: u64,
}

/// Room for a key that is about to be written. Give it back: [`Residency::commit`] or [`Residency::cancel`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "room that is not given back is lost"]
pub struct Reservation {
    bytes: u64,
}

/// A key that no longer counts as held and whose room is not yet free. Give it back: [`Residency::left`] or
/// [`Residency::retake`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "room that is not given back is lost"]
pub struct Leaving<K> {
    /// The key that leaves.
    pub key: K,
    bytes: u64,
}

impl Watermarks {
    /// Eviction starts when the last twentieth of the room is touched and stops when a tenth is free: enough
    /// that a burst of fills finds room at once, little enough not to empty a small cache.
    pub const fn of(capacity_bytes: u64) -> Self {
        Self {
            high_bytes: capacity_bytes - capacity_bytes / 20,
            low_bytes: capacity_bytes - capacity_bytes / 10,
        }
    }
}

impl Reservation {
    /// The room that is reserved.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl<K> Leaving<K> {
    /// The room that becomes free when the key is gone.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl<K: Copy + Eq + Hash, P: Eviction<K>> Residency<K, P> {
    /// An empty cache with room for `capacity_bytes`, in which nothing can be pinned.
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

    /// The same cache, in which pinned keys take at most `bytes_max`.
    #[must_use]
    pub fn with_pins(self, bytes_max: u64) -> Self {
        Self {
            pinned_bytes_max: bytes_max,
            ..self
        }
    }

    /// Takes room for `bytes` that are about to be written, if there is enough.
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

    /// Takes more room for the same reservation; on refusal, the room that it has stays reserved.
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

    /// Turns the reservation into a held key, whose bytes were there before a restart.
    pub fn restore(&mut self, room: Reservation, key: K) {
        let bytes = self.hold(room, &key);
        self.policy.bring(key, bytes);
    }

    /// Gives back a reservation of which nothing is left on the medium.
    pub fn cancel(&mut self, Reservation { bytes }: Reservation) {
        self.reserved_bytes -= bytes;
    }

    /// Checks whether `bytes` more can be pinned.
    ///
    /// # Errors
    ///
    /// Fails with [`Refusal::PinsFull`] if pinned keys would take more than they may.
    pub fn pins_admit(&self, bytes: u64) -> Result<(), Refusal> {
        if self.pinned_bytes.saturating_add(bytes) > self.pinned_bytes_max {
            return Err(Refusal::PinsFull);
        }
        Ok(())
    }

    /// Keeps a held key from being evicted. Returns its bytes if it was not pinned before.
    ///
    /// # Errors
    ///
    /// Fails with [`Refusal::PinsFull`] if pinned keys would take more than they may. The key stays held.
    pub fn pin(&mut self, key: &K) -> Result<Option<u64>, Refusal> {
        if self.pinned.contains_key(key) {
            return Ok(None);
        }
        // It comes back if there is no room for the pin: a policy tells the size of a key only when it goes.
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

    /// Ends the pin of a key, which was used just now as far as the policy can tell. Returns its bytes if it
    /// was pinned.
    pub fn unpin(&mut self, key: &K) -> Option<u64> {
        let bytes = self.pinned.remove(key)?;
        self.pinned_bytes -= bytes;
        self.policy.take_back(*key, bytes);
        Some(bytes)
    }

    /// Whether `key` is held and pinned.
    pub fn is_pinned(&self, key: &K) -> bool {
        self.pinned.contains_key(key)
    }

    /// The bytes of a key that is held and pinned.
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

    /// The policy, which decides which key leaves first, and its knowledge.
    pub const fn policy(&self) -> &P {
        &self.policy
    }

    /// The policy, for facts that only this policy takes. Held and leaving keys go through the cache, which
    /// counts them.
    pub const fn policy_mut(&mut self) -> &mut P {
        &mut self.policy
    }

    /// Chooses the key that leaves to make room, among those that `may_leave` allows.
    pub fn evict(&mut self, may_leave: &mut dyn FnMut(&K) -> bool) -> Option<Leaving<K>> {
        let (key, bytes) = self.policy.evict(may_leave)?;
        Some(self.leave(key, bytes))
    }

    /// Chooses the keys that leave ahead of need: none while there is enough room, at most `most` at once.
    ///
    /// `started` tells whether the caller is in the middle of making room: between the watermarks eviction
    /// goes on, but does not begin.
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

    /// The room to make ahead of need: none while there is enough. `started` as in
    /// [`Residency::evict_ahead`].
    pub const fn excess_bytes(&self, started: bool) -> u64 {
        if started || self.is_crowded() {
            let wanted_bytes = self.used_bytes + self.reserved_bytes;
            wanted_bytes.saturating_sub(self.watermarks.low_bytes)
        } else {
            0
        }
    }

    /// Removes `key`, which is no longer valid, whatever the policy thinks of it.
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

    /// Frees the room of a key that is gone from the medium.
    pub fn left(&mut self, Leaving { bytes, .. }: Leaving<K>) {
        self.leaving_bytes -= bytes;
    }

    /// Reserves the room of a leaving key whose bytes stay on the medium, to be held under another name.
    pub fn retake(&mut self, Leaving { bytes, .. }: Leaving<K>) -> Reservation {
        self.leaving_bytes -= bytes;
        self.reserved_bytes += bytes;
        Reservation { bytes }
    }

    /// Changes the capacity to `capacity_bytes`. Evict before it becomes less: room that is taken stays
    /// taken.
    pub fn resize(&mut self, capacity_bytes: u64, watermarks: Watermarks) {
        assert!(watermarks.low_bytes <= watermarks.high_bytes && watermarks.high_bytes <= capacity_bytes);
        self.capacity_bytes = capacity_bytes;
        self.watermarks = watermarks;
        self.assert_promise();
    }

    /// Whether `key` is held.
    pub fn contains(&self, key: &K) -> bool {
        self.policy.contains(key) || self.pinned.contains_key(key)
    }

    /// The number of held keys.
    pub fn len(&self) -> usize {
        self.policy.len() + self.pinned.len()
    }

    /// Whether no key is held.
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

    /// All the room that is taken: held, reserved and leaving.
    pub const fn taken_bytes(&self) -> u64 {
        self.used_bytes + self.reserved_bytes + self.leaving_bytes
    }

    /// All the room there is.
    pub const fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Whether eviction ahead of need should start.
    pub const fn is_crowded(&self) -> bool {
        self.used_bytes + self.reserved_bytes > self.watermarks.high_bytes
    }

    /// The room that nothing takes.
    pub const fn free_bytes(&self) -> u64 {
        self.capacity_bytes - self.taken_bytes()
    }

    /// Counts reserved room as that of a held key. Returns how much it is.
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
