//! The room of quotas: reserved before a block is written, and won back from the blocks of the same quota.

use shoal_policy::quotas::{QuotaId, QuotaIds, QuotaRoom, Quotas, Shortage};
use shoal_policy::{BlockId, admission::Refusal};

use super::{Ledger, Victim, may_leave};

/// The outcome of reserving room in quotas.
pub(crate) enum QuotaReservation<'a> {
    /// The room is reserved.
    Made(RoomInQuotas<'a>),
    /// A block of a full quota was removed; the caller tries again.
    Freed(Victim),
}

/// Room in quotas for a block that is being written. It is given back when this is dropped, unless the block
/// was [admitted](Ledger::admit) with it.
#[must_use = "the room is given back when this is dropped"]
pub(crate) struct RoomInQuotas<'a> {
    ledger: &'a Ledger,
    ids: QuotaIds,
    bytes: u64,
}

impl RoomInQuotas<'_> {
    /// Ends the reservation because its block is admitted now.
    pub(super) fn use_up(mut self, quotas: &mut Quotas<BlockId>) {
        quotas.cancel(std::mem::take(&mut self.ids), self.bytes);
    }
}

impl Drop for RoomInQuotas<'_> {
    fn drop(&mut self) {
        if !self.ids.is_empty() {
            self.ledger.lock().quotas.cancel(self.ids, self.bytes);
        }
    }
}

impl Ledger {
    /// Replaces the quotas and their room in bytes.
    pub(crate) fn set_quotas(&self, rooms: &[(QuotaId, u64)]) {
        self.lock().quotas.set(rooms);
    }

    /// Reserves `bytes` in each of these quotas. If one is full, removes the block of it that was used
    /// longest ago instead.
    ///
    /// # Errors
    ///
    /// Fails with [`Refusal::QuotaFull`] if no block of the full quota may leave.
    pub(crate) fn reserve_in_quotas(
        &self,
        ids: QuotaIds,
        bytes: u64,
    ) -> Result<QuotaReservation<'_>, Refusal> {
        let made = || {
            QuotaReservation::Made(RoomInQuotas {
                ledger: self,
                ids,
                bytes,
            })
        };
        if ids.is_empty() {
            return Ok(made());
        }
        match self.lock().quotas.reserve(ids, bytes) {
            Ok(()) => return Ok(made()),
            Err(Shortage::Never) => return Err(Refusal::QuotaFull),
            Err(Shortage::Full(_)) => {}
        }
        let uses = self.mappings.take_uses();
        let mut state = self.lock();
        state.touch(&uses);
        // Asked again, because the lock was free in between.
        match state.quotas.reserve(ids, bytes) {
            Ok(()) => Ok(made()),
            Err(Shortage::Never) => Err(Refusal::QuotaFull),
            Err(Shortage::Full(id)) => {
                drop(state);
                let victim = self.evict_of_quota(id).ok_or(Refusal::QuotaFull)?;
                Ok(QuotaReservation::Freed(victim))
            }
        }
    }

    /// Removes the block that was used longest ago from a quota whose blocks take more than its room. `None`
    /// if there is no such quota, or if none of its blocks may leave.
    pub(crate) fn evict_over_quota(&self) -> Option<Victim> {
        let over = self.lock().quotas.over();
        over.into_iter().find_map(|id| self.evict_of_quota(id))
    }

    /// Returns what each quota allows and holds.
    pub(crate) fn quota_rooms(&self) -> Vec<QuotaRoom> {
        self.lock().quotas.rooms()
    }

    /// Returns the quotas that a resident block counts in.
    pub(crate) fn quotas_of(&self, block: BlockId) -> QuotaIds {
        self.lock().quotas.ids_of(&block)
    }

    fn evict_of_quota(&self, id: QuotaId) -> Option<Victim> {
        let state = &mut *self.lock();
        state.advance();
        let victim = state
            .quotas
            .victim(id, &mut may_leave(&state.readers, &self.mappings))?;
        // The quota is no evidence for how long blocks live here, so the policy does not age.
        let leaving = state.residency.remove(&victim)?;
        let victim = state.forget(leaving, &self.mappings);
        self.notify_urgent(state);
        Some(victim)
    }
}
