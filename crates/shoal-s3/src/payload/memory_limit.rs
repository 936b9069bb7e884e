//! Memory for bodies that must be held before they can be used.
//!
//! A signed chunk is held until its signature is verified, and a list of keys until it can be read. The bytes
//! held in this way are bounded for the whole process and all senders, because the memory is the process's,
//! too.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// The most that is held at a time, in bytes.
const ROOM_BYTES: usize = 64 << 20;

/// The step by which a reservation grows, in bytes.
const STEP_BYTES: usize = 64 << 10;

/// The bytes held leave no room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Too many bytes of requests are held; please reduce your rate.")]
pub struct NoRoom;

/// The bytes of all reservations.
static TAKEN_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Bytes reserved of the room, returned on drop.
#[derive(Debug)]
pub struct MemoryReservation(usize);

impl MemoryReservation {
    /// Reserves no bytes.
    pub const fn none() -> Self {
        Self(0)
    }

    /// Makes this reservation large enough for `bytes`.
    ///
    /// # Errors
    ///
    /// [`NoRoom`] if the room has too little left; the reservation stays as it was.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let wanted = bytes.checked_next_multiple_of(STEP_BYTES).ok_or(NoRoom)?;
        let missing = wanted.saturating_sub(self.0);
        if missing > 0 {
            let grown = |taken: usize| taken.checked_add(missing).filter(|taken| *taken <= ROOM_BYTES);
            TAKEN_BYTES
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown)
                .map_err(|_| NoRoom)?;
            self.0 = wanted;
        }
        Ok(())
    }

    /// Makes these bytes keep their reservation for as long as any of them is held.
    pub(super) fn keep_with(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Kept {
            bytes,
            _reservation: self,
        })
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        let before = TAKEN_BYTES.fetch_sub(self.0, Ordering::Relaxed);
        debug_assert!(before >= self.0, "a reservation is returned once");
    }
}

struct Kept {
    bytes: Vec<u8>,
    _reservation: MemoryReservation,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_bytes_count_until_the_last_of_them_is_dropped() {
        let mut reservation = MemoryReservation::none();
        reservation.grow_to(1).unwrap();
        assert_eq!(reservation.0, STEP_BYTES);
        reservation.grow_to(STEP_BYTES).unwrap();
        assert_eq!(reservation.0, STEP_BYTES, "one step is enough for them");
        assert_eq!(reservation.grow_to(ROOM_BYTES + 1), Err(NoRoom));
        assert_eq!(reservation.grow_to(usize::MAX), Err(NoRoom));
        assert_eq!(reservation.0, STEP_BYTES, "a refusal takes nothing");
        let bytes = reservation.keep_with(vec![7; 10]);
        let part = bytes.slice(3..4);
        drop(bytes);
        assert_eq!(part[..], [7]);
        assert!(
            TAKEN_BYTES.load(Ordering::Relaxed) >= STEP_BYTES,
            "a part holds the reservation"
        );
    }
}
