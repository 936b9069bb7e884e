//! Bounds the memory for bodies that must be buffered before they can be used.
//!
//! A signed chunk is buffered until its signature is verified, and a list of keys until it can be parsed. The
//! bound applies to the whole process, across all senders.

use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;

/// The maximum buffered bytes in the process.
const ROOM_BYTES: usize = 64 << 20;

/// The step by which a reservation grows, in bytes.
const STEP_BYTES: usize = 64 << 10;

/// There is no memory left for more buffered bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Too many bytes of requests are held; please reduce your rate.")]
pub struct NoRoom;

/// The bytes of all reservations.
static TAKEN_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Reserved bytes, released on drop.
#[derive(Debug)]
pub struct MemoryReservation(usize);

impl MemoryReservation {
    /// Reserves no bytes.
    pub const fn none() -> Self {
        Self(0)
    }

    /// Grows this reservation to at least `bytes`.
    ///
    /// # Errors
    ///
    /// Fails with [`NoRoom`] if too little memory is left; the reservation is then unchanged.
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

    /// Attaches the reservation to `bytes`, so that it is released when the last clone is dropped.
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
