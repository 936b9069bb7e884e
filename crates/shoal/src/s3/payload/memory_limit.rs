//! Memory for bodies that must be held before they can be used.
//!
//! A signed chunk is held until its signature is verified, and a list of keys until it can be read. The bytes
//! held in this way are bounded for the whole process and all senders, because the memory is the process's,
//! too.

use bytes::Bytes;
use tokio::sync::{Semaphore, SemaphorePermit};

/// The most that is held at a time, in KiB.
const ROOM_KIB: usize = 64 << 10;

/// The step by which a share grows, in KiB.
const STEP_KIB: usize = 64;

/// The bytes held leave no room for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Too many bytes of requests are held; please reduce your rate.")]
pub struct NoRoom;

static ROOM: Semaphore = Semaphore::const_new(ROOM_KIB);

/// A share of the room, returned on drop.
#[derive(Debug)]
pub(super) struct Held(SemaphorePermit<'static>);

impl Held {
    /// A share of no bytes.
    pub(super) fn none() -> Self {
        let nothing = ROOM.try_acquire_many(0).expect("nothing is always to be had");
        Self(nothing)
    }

    /// Makes this share large enough for `bytes`. Fails if there is no room for them.
    pub(super) fn grow_to(&mut self, bytes: usize) -> Result<(), NoRoom> {
        let steps = bytes.div_ceil(STEP_KIB << 10);
        let missing_kib = (steps * STEP_KIB).saturating_sub(self.0.num_permits());
        if missing_kib > 0 {
            let more = u32::try_from(missing_kib).map_err(|_| NoRoom)?;
            self.0.merge(ROOM.try_acquire_many(more).map_err(|_| NoRoom)?);
        }
        Ok(())
    }

    /// Makes these bytes keep their share for as long as any of them is held.
    pub(super) fn keep_with(self, bytes: Vec<u8>) -> Bytes {
        Bytes::from_owner(Kept { bytes, _held: self })
    }
}

struct Kept {
    bytes: Vec<u8>,
    _held: Held,
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
    fn what_is_held_is_counted_until_the_last_of_it_is_dropped() {
        let mut held = Held::none();
        held.grow_to(1).unwrap();
        assert_eq!(held.0.num_permits(), STEP_KIB);
        held.grow_to(STEP_KIB << 10).unwrap();
        assert_eq!(held.0.num_permits(), STEP_KIB, "one step is enough for them");
        assert_eq!(held.grow_to((ROOM_KIB << 10) + 1), Err(NoRoom));
        let bytes = held.keep_with(vec![7; 10]);
        let part = bytes.slice(3..4);
        drop(bytes);
        assert_eq!(part[..], [7]);
    }
}
