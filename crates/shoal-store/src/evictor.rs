//! Makes room on the disk: for a block that is about to be written, and ahead of need.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use shoal_base::clock;
use shoal_policy::admission::Refusal;
use shoal_policy::residency::Reservation;

use super::ledger::{Attempt, Ledger};
use super::removal::Removal;
use super::signal::Signal;

/// Number of blocks evicted ahead of need in one turn. Between turns, other threads get the locks.
const BATCH: usize = 16;

/// How long a block that is written waits for the room that a keeper makes: as long as it may wait for a
/// burst to be over. No reader waits meanwhile.
const KEEPER_PATIENCE: Duration = super::writers::PATIENCE;

/// Is told that room has to be made ahead of need.
type Keeper = Box<dyn Fn() + Send + Sync>;

/// Reserves room, and evicts blocks where there is none.
pub(super) struct Evictor {
    ledger: Arc<Ledger>,
    removal: Arc<Removal>,
    /// Wakes the thread that evicts ahead of need, and tells when it has to end.
    maintenance: Arc<Signal>,
    /// Makes room ahead of need in place of this.
    keeper: OnceLock<Keeper>,
    /// Whether a block has waited for the keeper in vain, and there has not been enough room since.
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

    /// Leaves eviction ahead of need to `keeper`. Only the first one counts.
    pub(super) fn leave_to(&self, keeper: Keeper) {
        let _ = self.keeper.set(keeper);
    }

    /// Reserves room, and evicts if there is none: the watermarks keep some room free, but a burst may outrun
    /// them. A keeper is given a moment to make room first.
    ///
    /// # Errors
    ///
    /// Refuses if no block may leave, or if `bytes` exceed the store.
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

    /// Waits for the keeper, if there is one. Once it was late no block waits until there is enough room
    /// again: writing would come to a halt behind a keeper that cannot decide.
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

    /// Has room made ahead of need, by the keeper if there is one.
    pub(super) fn make_room_ahead(&self) {
        match self.keeper.get() {
            None => self.evict_ahead(),
            Some(keeper) if self.ledger.is_crowded() => keeper(),
            Some(_) => self.keeper_is_late.store(false, Ordering::Relaxed),
        }
    }

    /// Evicts down to the low mark, if the high one is passed.
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
