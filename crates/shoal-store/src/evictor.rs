//! Makes room on the disk: for a block that is about to be written, and ahead of demand.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use shoal_base::clock;
use shoal_policy::admission::Refusal;
use shoal_policy::residency::Reservation;

use super::ledger::{Attempt, Ledger};
use super::removal::Removal;
use super::signal::Signal;

/// Number of blocks evicted ahead of demand per acquisition of the locks.
const BATCH: usize = 16;

/// How long the write of a block waits for the keeper to make room: as long as it may wait for the end of a
/// burst. No reader waits for it.
const KEEPER_PATIENCE: Duration = super::writers::PATIENCE;

/// Called when room has to be made ahead of demand.
type Keeper = Box<dyn Fn() + Send + Sync>;

/// Reserves room, evicting blocks if necessary.
pub(super) struct Evictor {
    ledger: Arc<Ledger>,
    removal: Arc<Removal>,
    /// Wakes and stops the thread that evicts ahead of demand.
    maintenance: Arc<Signal>,
    /// If set, makes room ahead of demand instead of this evictor.
    keeper: OnceLock<Keeper>,
    /// True if a block timed out waiting for the keeper, until there is enough room again.
    keeper_is_late: AtomicBool,
}

impl Evictor {
    pub(super) fn new(ledger: &Arc<Ledger>, removal: &Arc<Removal>, maintenance: &Arc<Signal>) -> Self {
        Self {
            ledger: Arc::clone(ledger),
            removal: Arc::clone(removal),
            maintenance: Arc::clone(maintenance),
            keeper: OnceLock::new(),
            keeper_is_late: AtomicBool::new(false),
        }
    }

    /// Delegates eviction ahead of demand to `keeper`. Later calls have no effect.
    pub(super) fn leave_to(&self, keeper: Keeper) {
        let _ = self.keeper.set(keeper);
    }

    /// Reserves room, evicting blocks if there is none: the watermarks keep some room free, but a burst may
    /// use it up. If there is a keeper, waits up to [`KEEPER_PATIENCE`] for it first.
    ///
    /// # Errors
    ///
    /// Fails if no block can be evicted, or if `bytes` exceed the store's capacity.
    pub(super) fn reserve(&self, bytes: u64) -> Result<Reservation, Refusal> {
        let mut uses = self.ledger.take_uses();
        let mut until = None;
        loop {
            let Attempt { room, is_crowded } = self.ledger.reserve(bytes, &uses);
            uses.clear();
            if is_crowded {
                self.maintenance.wake();
            }
            let Err(refusal @ Refusal::NoRoom) = room else {
                return room;
            };
            let until = *until.get_or_insert_with(|| clock::instant() + KEEPER_PATIENCE);
            if !self.keeper_makes_room(bytes, until) {
                let victim = self.ledger.evict().ok_or(refusal)?;
                self.removal.evicted([victim]);
            }
        }
    }

    /// Waits for the keeper, if there is one, and returns true if it made room by `until`. After a timeout no
    /// block waits until there is enough room again, so that a stuck keeper does not stop all writes.
    fn keeper_makes_room(&self, bytes: u64, until: Instant) -> bool {
        if self.keeper.get().is_none() || self.keeper_is_late.load(Ordering::Relaxed) {
            return false;
        }
        let in_time = self.ledger.await_room(bytes, until);
        if !in_time {
            self.keeper_is_late.store(true, Ordering::Relaxed);
        }
        in_time
    }

    /// Evicts ahead of demand, through the keeper if there is one.
    pub(super) fn make_room_ahead(&self) {
        match self.keeper.get() {
            None => self.evict_ahead(),
            Some(keeper) if self.ledger.is_crowded() => keeper(),
            Some(_) => self.keeper_is_late.store(false, Ordering::Relaxed),
        }
    }

    /// Evicts down to the low watermark if the high one is exceeded.
    pub(super) fn evict_ahead(&self) {
        let mut started = false;
        loop {
            let victims = self.ledger.evict_ahead(started, BATCH);
            let is_done = victims.is_empty() || self.maintenance.is_stopped();
            self.removal.evicted(victims);
            if is_done {
                return;
            }
            started = true;
        }
    }
}
