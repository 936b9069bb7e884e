//! Makes room on the disk: for a block that is about to be written, and ahead of demand.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use shoal_base::clock;
use shoal_policy::admission::Refusal;
use shoal_policy::quotas::QuotaIds;
use shoal_policy::residency::{FreeRoom, Reservation};

use super::emptying::Emptying;
use super::removal::Removal;
use crate::counters::RemovalReason;
use crate::ground::Ground;
use crate::ground::blocking::run_blocking;
use crate::ledger::quota_room::{QuotaReservation, RoomInQuotas};

/// Number of blocks evicted ahead of demand per acquisition of the locks.
const BATCH: usize = 16;

/// How long the write of a block waits for the node's evictor to make room: as long as it may wait for the
/// end of a burst. No reader waits for it.
const NODE_EVICTOR_TIMEOUT: Duration = crate::blocks::writers::PATIENCE;

/// Called when room has to be made ahead of demand.
type NodeEvictor = Box<dyn Fn() + Send + Sync>;

/// Reserves room, evicting blocks if necessary.
pub struct Evictor {
    ground: Arc<Ground>,
    removal: Arc<Removal>,
    emptying: Emptying,
    /// If set, makes room ahead of demand instead of this evictor.
    by_worth: OnceLock<NodeEvictor>,
    /// True if a block timed out waiting for the evictor, until there is enough room again.
    node_evictor_is_late: AtomicBool,
}

impl Evictor {
    pub(crate) fn new(ground: &Arc<Ground>, removal: &Arc<Removal>, emptying: Emptying) -> Self {
        Self {
            ground: Arc::clone(ground),
            removal: Arc::clone(removal),
            emptying,
            by_worth: OnceLock::new(),
            node_evictor_is_late: AtomicBool::new(false),
        }
    }

    /// Delegates eviction ahead of demand to `evictor`, which a thread of the store calls repeatedly while
    /// room is short. If there is no room for a new block, its write waits briefly for `evictor` and then
    /// evicts other blocks itself. From then on a share of the room is kept free, because `evictor` takes its
    /// time and decides about many blocks at once. Later calls have no effect.
    pub fn evict_by(&self, evictor: impl Fn() + Send + Sync + 'static) {
        let _ = self.by_worth.set(Box::new(evictor));
        self.ground.ledger.keep_free(FreeRoom::Share);
    }

    /// Evicts ahead of demand by this node's policy alone.
    pub async fn evict_ahead(self: &Arc<Self>) {
        let evictor = Arc::clone(self);
        run_blocking(move || evictor.evict_ahead_now()).await;
    }

    /// Reserves room, evicting blocks if there is none: the watermarks keep some room free, but a burst may
    /// use it up. If the node has an evictor, waits up to [`NODE_EVICTOR_TIMEOUT`] for it first.
    ///
    /// # Errors
    ///
    /// Fails if no block can be evicted, or if `bytes` exceed the store's capacity.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Reservation, Refusal> {
        let mut uses = self.ground.ledger.mappings.take_uses();
        let mut until = None;
        loop {
            let (room, is_crowded) = self.ground.ledger.reserve(bytes, &uses);
            uses.clear();
            if is_crowded {
                self.ground.maintenance.wake();
            }
            let Err(refusal @ Refusal::NoRoom) = room else {
                return room;
            };
            // Before a block leaves, room that other blocks left behind is won back.
            if self.emptying.empty_next() {
                continue;
            }
            let until = *until.get_or_insert_with(|| clock::instant() + NODE_EVICTOR_TIMEOUT);
            if !self.node_evictor_makes_room(bytes, until) {
                let victim = self.ground.ledger.evict().ok_or(refusal)?;
                self.removal.remove_all([victim], RemovalReason::Room);
            }
        }
    }

    /// Reserves room in quotas for a block that takes `bytes`. Blocks of a full quota are evicted, and no
    /// others.
    ///
    /// # Errors
    ///
    /// Fails with [`Refusal::QuotaFull`] if the blocks of a quota that may leave do not suffice.
    pub(crate) fn reserve_in_quotas(&self, ids: QuotaIds, bytes: u64) -> Result<RoomInQuotas<'_>, Refusal> {
        loop {
            match self.ground.ledger.reserve_in_quotas(ids, bytes)? {
                QuotaReservation::Made(room) => return Ok(room),
                QuotaReservation::Freed(victim) => {
                    self.removal.remove_all([victim], RemovalReason::Quota);
                }
            }
        }
    }

    /// Evicts blocks of quotas that take more than their room, which was less when they came, or is less
    /// since.
    fn shrink_quotas(&self) {
        while !self.ground.maintenance.is_stopped()
            && let Some(victim) = self.ground.ledger.evict_over_quota()
        {
            self.removal.remove_all([victim], RemovalReason::Quota);
        }
    }

    /// Waits for the evictor, if there is one, and returns true if it made room by `until`. After a timeout
    /// no block waits until there is enough room again, so that a stuck evictor does not stop all writes.
    fn node_evictor_makes_room(&self, bytes: u64, until: Instant) -> bool {
        if self.by_worth.get().is_none() || self.node_evictor_is_late.load(Ordering::Relaxed) {
            return false;
        }
        let in_time = self.ground.ledger.await_room(bytes, until);
        if !in_time {
            self.node_evictor_is_late.store(true, Ordering::Relaxed);
        }
        in_time
    }

    /// Evicts ahead of demand, through the node's evictor if there is one. Empties the segments that are due.
    pub(crate) fn make_room_ahead(&self) {
        self.shrink_quotas();
        self.empty_segments();
        match self.by_worth.get() {
            None => self.evict_ahead_now(),
            Some(evictor) if self.ground.ledger.lock().residency.room().is_crowded() => evictor(),
            Some(_) => self.node_evictor_is_late.store(false, Ordering::Relaxed),
        }
    }

    fn empty_segments(&self) {
        while !self.ground.maintenance.is_stopped() && self.emptying.empty_next() {}
    }

    /// Evicts down to the low watermark if the high one is exceeded.
    fn evict_ahead_now(&self) {
        let mut started = false;
        loop {
            // The victims of a segment free their room only with the segment.
            self.empty_segments();
            let victims = self.ground.ledger.evict_ahead(started, BATCH);
            let is_done = victims.is_empty() || self.ground.maintenance.is_stopped();
            self.removal.remove_all(victims, RemovalReason::Room);
            if is_done {
                return;
            }
            started = true;
        }
    }
}
