//! Limits the memory for request bytes beyond a connection's first buffer: long heads, and large reads of
//! bodies.
//!
//! The HTTP library reads into its own buffer, which grows when a read fills it and keeps its size until the
//! connection ends. A connection starts *narrow*: it never fills that buffer. A connection that sends a long
//! head or a body becomes *wide* until its end, if the budget allows. Otherwise its bodies are read in small
//! pieces, and a long head is refused.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Size of the HTTP library's first buffer.
pub(super) const NARROW_BYTES: usize = 8 << 10;

/// Memory reserved for a wide connection, in KiB: for a head until it is complete, and for the buffer that it
/// is then copied to.
const WIDE_KIB: usize = 192;

/// Memory that the connections of one listener share.
#[derive(Clone, Debug)]
pub struct BufferBudget {
    kib: usize,
    /// The free memory, one permit per KiB.
    free: Arc<Semaphore>,
}

impl BufferBudget {
    /// Creates a budget of `kib` KiB.
    pub fn new(kib: usize) -> Self {
        Self {
            kib,
            free: Arc::new(Semaphore::new(kib)),
        }
    }

    /// Returns true if more than half of the budget is in use.
    fn is_scarce(&self) -> bool {
        self.free.available_permits() < self.kib / 2
    }

    fn take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free)
            .try_acquire_many_owned(WIDE_KIB as u32)
            .ok()
    }
}

/// The width of a connection.
#[derive(Debug, Default)]
pub(super) enum Width {
    /// Not limited.
    #[default]
    Free,
    Narrow(BufferBudget),
    Wide {
        budget: BufferBudget,
        /// Returned to the budget on drop.
        _share: OwnedSemaphorePermit,
    },
}

impl Width {
    pub(super) fn within(budget: &BufferBudget) -> Self {
        Self::Narrow(budget.clone())
    }

    /// Returns the maximum number of bytes to hand to the HTTP library at a time.
    pub(super) fn read_bytes_max(&self) -> usize {
        match self {
            Self::Narrow(_) => NARROW_BYTES - 1,
            Self::Free | Self::Wide { .. } => usize::MAX,
        }
    }

    /// Makes the connection wide for a body, unless half of the budget is in use: the rest is reserved for
    /// heads.
    pub(super) fn widen_for_body(&mut self) {
        if let Self::Narrow(budget) = self
            && !budget.is_scarce()
        {
            self.widen_for_head();
        }
    }

    /// Makes the connection wide. Returns `false` if there is no room.
    pub(super) fn widen_for_head(&mut self) -> bool {
        let Self::Narrow(budget) = self else { return true };
        let Some(share) = budget.take() else { return false };
        *self = Self::Wide {
            budget: budget.clone(),
            _share: share,
        };
        true
    }

    /// Returns true if the connection should be closed after its current request, to free its share of the
    /// budget.
    pub(super) fn should_be_short(&self) -> bool {
        matches!(self, Self::Wide { budget, .. } if budget.is_scarce())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_leave_half_of_the_room_to_heads_and_what_ends_gives_its_share_back() {
        let budget = BufferBudget::new(4 * WIDE_KIB);
        let connection = || Width::within(&budget);
        let mut bodies: Vec<_> = (0..4).map(|_| connection()).collect();
        bodies.iter_mut().for_each(Width::widen_for_body);
        let wide = bodies.iter().filter(|width| matches!(width, Width::Wide { .. }));
        assert_eq!(wide.count(), 3, "the third finds half of it free");
        let mut heads = [connection(), connection()];
        assert!(heads[0].widen_for_head());
        assert!(!heads[1].widen_for_head());
        assert!(heads[0].should_be_short());
        drop(bodies);
        assert!(heads[1].widen_for_head());
        assert!(!heads[1].should_be_short());
        assert_eq!(heads[1].read_bytes_max(), usize::MAX);
        assert_eq!(connection().read_bytes_max(), NARROW_BYTES - 1);
    }
}
