//! The keys that a cache holds, the room that they take, and which of them leave to make room for others.
//!
//! Room is a promise: `used + reserved + leaving <= capacity` after every step. It is taken *before* bytes
//! are written ([`Residency::reserve`]) and given back only *after* they are gone ([`Residency::left`]), so
//! the promise also holds while many blocks come and go at once.

use std::marker::PhantomData;
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
    key: PhantomData<K>,
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

impl<K: Copy, P: Eviction<K>> Residency<K, P> {
    /// An empty cache with room for `capacity_bytes`.
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
            key: PhantomData,
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
    pub fn commit(&mut self, Reservation { bytes }: Reservation, key: K) {
        assert!(!self.policy.contains(&key), "a key is admitted once");
        self.reserved_bytes -= bytes;
        self.used_bytes += bytes;
        self.policy.insert(key, bytes);
        self.assert_promise();
    }

    /// Gives back a reservation of which nothing is left on the medium.
    pub fn cancel(&mut self, Reservation { bytes }: Reservation) {
        self.reserved_bytes -= bytes;
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
        let bytes = self.policy.remove(key)?;
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
        self.policy.contains(key)
    }

    /// The number of held keys.
    pub fn len(&self) -> usize {
        self.policy.len()
    }

    /// Whether no key is held.
    pub fn is_empty(&self) -> bool {
        self.policy.is_empty()
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

    fn leave(&mut self, key: K, bytes: u64) -> Leaving<K> {
        self.used_bytes -= bytes;
        self.leaving_bytes += bytes;
        Leaving { key, bytes }
    }

    fn assert_promise(&self) {
        assert!(self.taken_bytes() <= self.capacity_bytes, "capacity is a promise");
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::{ProptestConfig, proptest};

    use super::{Leaving, Refusal, Reservation, Residency, Watermarks};
    use crate::eviction::Lru;

    type Cache = Residency<u32, Lru<u32>>;

    fn cache(capacity_bytes: u64) -> Cache {
        Residency::new(capacity_bytes, Watermarks::of(capacity_bytes), Lru::default())
    }

    fn fill(cache: &mut Cache, keys: std::ops::Range<u32>, bytes: u64) {
        for key in keys {
            let room = cache.reserve(bytes).expect("there is room");
            cache.commit(room, key);
        }
    }

    fn keys(victims: &[Leaving<u32>]) -> Vec<u32> {
        victims.iter().map(|leaving| leaving.key).collect()
    }

    #[test]
    fn a_block_too_large_for_the_cache_is_refused_differently_from_one_without_room_now() {
        let mut cache = cache(100);
        assert_eq!(cache.reserve(101), Err(Refusal::TooLarge));
        assert_eq!(cache.reserve(u64::MAX), Err(Refusal::TooLarge));
        fill(&mut cache, 0..1, 100);
        assert_eq!(cache.reserve(1), Err(Refusal::NoRoom));
    }

    #[test]
    fn room_is_taken_from_the_reservation_until_the_last_byte_is_gone() {
        let mut cache = cache(100);
        let room = cache.reserve(60).unwrap();
        assert_eq!(cache.reserve(60), Err(Refusal::NoRoom), "reserved room is taken");
        cache.commit(room, 1);
        let leaving = cache.evict(&mut |_| true).unwrap();
        assert_eq!(
            cache.reserve(60),
            Err(Refusal::NoRoom),
            "a victim takes room until it is gone"
        );
        cache.left(leaving);
        let room = cache.reserve(100).unwrap();
        cache.cancel(room);
        assert_eq!(cache.taken_bytes(), 0);
    }

    #[test]
    fn a_renamed_block_takes_its_room_along() {
        let mut cache = cache(100);
        fill(&mut cache, 0..1, 60);
        let leaving = cache.remove(&0).unwrap();
        let room = cache.retake(leaving);
        assert_eq!((room.bytes(), cache.taken_bytes()), (60, 60));
        assert_eq!(cache.reserve(60), Err(Refusal::NoRoom));
        cache.commit(room, 1);
        assert_eq!((cache.used_bytes(), cache.taken_bytes()), (60, 60));
    }

    #[test]
    fn a_reservation_grows_while_there_is_room() {
        let mut cache = cache(100);
        let mut room = cache.reserve(60).unwrap();
        assert_eq!(cache.extend(&mut room, 41), Err(Refusal::TooLarge));
        cache.extend(&mut room, 40).unwrap();
        assert_eq!(room.bytes(), 100);
        cache.commit(room, 1);
        assert_eq!(cache.used_bytes(), 100);
    }

    #[test]
    fn eviction_ahead_starts_above_high_and_stops_at_low() {
        let mut cache = cache(100);
        fill(&mut cache, 0..19, 5);
        assert!(!cache.is_crowded());
        assert!(
            cache.evict_ahead(false, 10, &mut |_| true).is_empty(),
            "at the mark nothing happens"
        );
        fill(&mut cache, 19..20, 5);
        assert!(cache.is_crowded());
        assert_eq!(
            keys(&cache.evict_ahead(false, 1, &mut |_| true)),
            [0],
            "not more than asked"
        );
        assert!(cache.evict_ahead(false, 10, &mut |_| true).is_empty());
        assert_eq!(
            keys(&cache.evict_ahead(true, 10, &mut |_| true)),
            [1],
            "once started, down to the low mark"
        );
        assert_eq!(cache.used_bytes(), 90);
    }

    #[test]
    fn a_block_in_use_does_not_leave() {
        let mut cache = cache(100);
        fill(&mut cache, 0..10, 10);
        assert_eq!(keys(&cache.evict_ahead(false, 10, &mut |key| *key == 7)), [7]);
        assert_eq!(cache.evict(&mut |_| false), None);
        assert!(cache.contains(&0));
    }

    #[test]
    fn room_may_be_added_and_taken_but_not_from_under_what_is_held() {
        let mut cache = cache(100);
        fill(&mut cache, 0..10, 10);
        cache.resize(110, Watermarks::of(110));
        fill(&mut cache, 10..11, 10);
        let leaving = cache.evict(&mut |_| true).unwrap();
        let promise = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            cache.resize(100, Watermarks::of(100));
        }));
        assert!(promise.is_err(), "a victim takes room until it is gone");
        cache.resize(110, Watermarks::of(110));
        cache.left(leaving);
        cache.resize(100, Watermarks::of(100));
        assert_eq!((cache.capacity_bytes(), cache.used_bytes()), (100, 100));
    }

    #[test]
    fn watermarks_are_in_order_at_every_capacity() {
        for capacity_bytes in (0..100).chain([1 << 20, u64::MAX]) {
            let Watermarks {
                high_bytes,
                low_bytes,
            } = Watermarks::of(capacity_bytes);
            assert!(low_bytes <= high_bytes && high_bytes <= capacity_bytes);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_books_balance_after_any_history(steps in vec((0..7u8, 0..40u32, 0..40u64), 0..200)) {
            let mut cache = cache(100);
            let (mut reserved, mut leaving): (Vec<Reservation>, Vec<Leaving<u32>>) = (Vec::new(), Vec::new());
            let mut used: Vec<(u32, u64)> = Vec::new();
            for (step, key, bytes) in steps {
                match step {
                    0 | 1 => reserved.extend(cache.reserve(bytes)),
                    2 if !cache.contains(&key) => if let Some(room) = reserved.pop() {
                        used.push((key, room.bytes()));
                        cache.commit(room, key);
                    },
                    3 => if let Some(room) = reserved.pop() { cache.cancel(room) },
                    4 => leaving.extend(cache.evict(&mut |other| *other >= key)),
                    5 => leaving.extend(cache.remove(&key)),
                    _ => if let Some(gone) = leaving.pop() { cache.left(gone) },
                }
                used.retain(|(key, _)| cache.contains(key));
                let used_bytes: u64 = used.iter().map(|(_, bytes)| bytes).sum();
                let reserved_bytes: u64 = reserved.iter().map(Reservation::bytes).sum();
                let leaving_bytes: u64 = leaving.iter().map(Leaving::bytes).sum();
                assert_eq!(cache.used_bytes(), used_bytes);
                assert_eq!(cache.taken_bytes(), used_bytes + reserved_bytes + leaving_bytes);
                assert!(cache.taken_bytes() <= cache.capacity_bytes());
                assert_eq!(cache.len(), used.len());
            }
        }
    }
}
