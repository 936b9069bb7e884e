//! The keys that a cache holds, the room that they take, and their eviction.
//!
//! Room is a promise: `used + reserved + leaving <= capacity` after every step. It is taken *before* bytes
//! are written ([`Residency::reserve`]) and given back only *after* they are gone ([`Residency::left`]), so
//! the promise also holds while many blocks are written and removed concurrently.
//!
//! A *pinned* key is set aside by the policy, so that no search for a victim finds it, and returns as just
//! used when the pin ends ([`Residency::pin`]). A *released* key leaves before all others when room is
//! needed, unless it is used again before ([`Residency::release`]).

mod pins;
mod released;
mod room;

use std::hash::Hash;
use std::time::Duration;

use crate::admission::Refusal;
use crate::eviction::Eviction;

pub use self::pins::Pins;
pub use self::room::{FreeRoom, Room};

use self::released::Released;

/// The keys that a cache holds and the room that they take; `P` decides which is evicted first.
#[derive(Debug)]
pub struct Residency<K, P: ?Sized> {
    policy: Box<P>,
    room: Room,
    /// The pinned keys, which the policy has set aside.
    pins: Pins<K>,
    /// Keys that leave before all others.
    released: Released<K>,
}

/// Room for a key that is about to be written. Must be passed to [`Residency::commit`],
/// [`Residency::restore`] or [`Residency::cancel`]. The default has no room.
#[derive(Debug, Default, PartialEq, Eq)]
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

impl Reservation {
    /// The reserved room in bytes.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes `bytes` of the room, for another purpose.
    ///
    /// # Panics
    ///
    /// Panics if the reservation has less room.
    pub fn split(&mut self, bytes: u64) -> Self {
        assert!(bytes <= self.bytes, "a part is no larger than the whole");
        self.bytes -= bytes;
        Self { bytes }
    }

    /// Adds room that was reserved for another purpose.
    pub fn join(&mut self, Self { bytes }: Self) {
        self.bytes += bytes;
    }
}

impl<K> Leaving<K> {
    /// The room in bytes that becomes free when the key is gone.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl<K: Copy + Eq + Hash, P: Eviction<K> + ?Sized> Residency<K, P> {
    /// Creates an empty cache of `capacity_bytes`, in which nothing can be pinned.
    pub fn new(capacity_bytes: u64, policy: Box<P>) -> Self {
        assert!(policy.is_empty(), "a new cache holds nothing");
        Self {
            policy,
            room: Room::new(capacity_bytes),
            pins: Pins::at_most(0),
            released: Released::default(),
        }
    }

    /// Allows pinned keys to take up to `bytes_max`.
    #[must_use]
    pub fn with_pins(mut self, bytes_max: u64) -> Self {
        self.pins = Pins::at_most(bytes_max);
        self
    }

    /// The room that the keys take, and the rest of it.
    pub const fn room(&self) -> &Room {
        &self.room
    }

    /// The pinned keys.
    pub const fn pins(&self) -> &Pins<K> {
        &self.pins
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
        if reservation.bytes.saturating_add(bytes) > self.room.capacity_bytes() {
            return Err(Refusal::TooLarge);
        }
        self.room.reserve(bytes)?;
        reservation.bytes += bytes;
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
        self.room.reserved_bytes -= bytes;
    }

    /// Prevents a held key from being evicted. Returns its size if it was not pinned before.
    ///
    /// # Errors
    ///
    /// Fails with [`Refusal::PinsFull`] if pinned keys would exceed their limit. The key stays held.
    pub fn pin(&mut self, key: &K) -> Result<Option<u64>, Refusal> {
        if self.pins.contains(key) {
            return Ok(None);
        }
        // Set aside first, because a policy returns the size of a key only when it gives it up; taken back
        // below if there is no room for the pin.
        let Some(bytes) = self.policy.set_aside(key) else {
            return Ok(None);
        };
        if let Err(refusal) = self.pins.admit(bytes) {
            self.policy.take_back(*key, bytes);
            return Err(refusal);
        }
        self.pins.insert(*key, bytes);
        self.released.remove(key);
        Ok(Some(bytes))
    }

    /// Ends the pin of a key, which counts as just used. Returns its size if it was pinned.
    pub fn unpin(&mut self, key: &K) -> Option<u64> {
        let bytes = self.pins.remove(key)?;
        self.policy.take_back(*key, bytes);
        Some(bytes)
    }

    /// Lets a held key leave before all others when room is needed: a plan no longer needs it. A use or a pin
    /// ends that. Returns true if the key is held and not pinned.
    pub fn release(&mut self, key: &K) -> bool {
        let is_held = self.policy.contains(key);
        if is_held {
            self.released.add(*key);
        }
        is_held
    }

    /// The keys that leave before all others, in their order.
    pub fn released(&self) -> impl Iterator<Item = &K> {
        self.released.iter()
    }

    /// Records a use of `key`.
    pub fn touch(&mut self, key: &K) {
        self.released.remove(key);
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
        if let Some(key) = self.released.first(may_leave) {
            // Its departure is no evidence for how long keys live here, so it does not age the policy.
            let bytes = self.policy.remove(&key).expect("a released key is held");
            return Some(self.leave(key, bytes));
        }
        let (key, bytes) = self.policy.evict(may_leave)?;
        Some(self.leave(key, bytes))
    }

    /// Evicts up to `most` keys ahead of demand; none while there is enough room.
    ///
    /// `started` is true if the caller is already making room: between the watermarks eviction continues, but
    /// does not start. It ends when an average key is more than is left to free, so that keys larger than a
    /// batch leave one at a time.
    pub fn evict_ahead(
        &mut self,
        started: bool,
        most: usize,
        may_leave: &mut dyn FnMut(&K) -> bool,
    ) -> Vec<Leaving<K>> {
        let mut victims = Vec::new();
        if self.room.excess_bytes(started) == 0 {
            return victims;
        }
        while victims.len() < most && self.is_short() {
            match self.evict(may_leave) {
                Some(leaving) => victims.push(leaving),
                None => break,
            }
        }
        victims
    }

    /// Returns true if a key should be evicted by an eviction ahead of demand that has started.
    fn is_short(&self) -> bool {
        let average_bytes = self.room.used_bytes() / self.held().max(1) as u64;
        self.room.is_crowded() || self.room.excess_bytes(true) >= average_bytes.max(1)
    }

    /// Removes `key` because it is no longer valid, pinned or not.
    pub fn remove(&mut self, key: &K) -> Option<Leaving<K>> {
        let bytes = match self.pins.remove(key) {
            Some(bytes) => {
                self.policy.left_aside(key);
                bytes
            }
            None => self.policy.remove(key)?,
        };
        Some(self.leave(*key, bytes))
    }

    /// Frees the room of a key whose bytes are gone from disk.
    pub fn left(&mut self, Leaving { bytes, .. }: Leaving<K>) {
        self.room.leaving_bytes -= bytes;
    }

    /// Reserves the room of a leaving key whose bytes stay on disk under another name.
    pub fn retake(&mut self, Leaving { bytes, .. }: Leaving<K>) -> Reservation {
        self.room.leaving_bytes -= bytes;
        self.room.reserved_bytes += bytes;
        Reservation { bytes }
    }

    /// Sets how much room is kept free ahead of demand; a share at first.
    pub const fn keep_free(&mut self, free: FreeRoom) {
        self.room.free = free;
    }

    /// Changes the capacity. Before reducing it, the caller must evict: taken room stays taken.
    pub fn resize(&mut self, capacity_bytes: u64) {
        self.room.resize(capacity_bytes);
    }

    /// Returns true if `key` is held, pinned or not.
    pub fn contains(&self, key: &K) -> bool {
        self.policy.contains(key) || self.pins.contains(key)
    }

    /// Returns the number of held keys.
    pub fn held(&self) -> usize {
        self.policy.len() + self.pins.len()
    }

    /// Moves reserved room to a held key, and returns its size.
    fn hold(&mut self, Reservation { bytes }: Reservation, key: &K) -> u64 {
        assert!(!self.contains(key), "a key is admitted once");
        self.room.reserved_bytes -= bytes;
        self.room.used_bytes += bytes;
        self.room.assert_promise();
        bytes
    }

    fn leave(&mut self, key: K, bytes: u64) -> Leaving<K> {
        self.released.remove(&key);
        self.room.used_bytes -= bytes;
        self.room.leaving_bytes += bytes;
        debug_assert!(
            self.pins.bytes() <= self.room.used_bytes(),
            "pinned keys are held"
        );
        Leaving { key, bytes }
    }
}

#[cfg(test)]
mod tests;
