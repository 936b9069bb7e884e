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
}

/// The width of a connection; without a budget it is not limited.
#[derive(Debug, Default)]
pub(super) struct Width {
    budget: Option<BufferBudget>,
    /// The share of a wide connection, returned to the budget on drop.
    share: Option<OwnedSemaphorePermit>,
}

impl Width {
    /// A narrow connection, which may become wide within the budget.
    pub(super) fn within(budget: &BufferBudget) -> Self {
        let budget = Some(budget.clone());
        Self { budget, share: None }
    }

    fn is_narrow(&self) -> bool {
        self.budget.is_some() && self.share.is_none()
    }

    fn is_scarce(&self) -> bool {
        self.budget.as_ref().is_some_and(BufferBudget::is_scarce)
    }

    /// Returns the maximum number of bytes to hand to the HTTP library at a time.
    pub(super) fn read_bytes_max(&self) -> usize {
        if self.is_narrow() {
            NARROW_BYTES - 1
        } else {
            usize::MAX
        }
    }

    /// Makes the connection wide for a body, unless half of the budget is in use: the rest is reserved for
    /// heads.
    pub(super) fn widen_for_body(&mut self) {
        if !self.is_scarce() {
            self.widen_for_head();
        }
    }

    /// Makes the connection wide. Returns `false` if there is no room.
    pub(super) fn widen_for_head(&mut self) -> bool {
        if let (Some(budget), None) = (&self.budget, &self.share) {
            let free = Arc::clone(&budget.free);
            self.share = free.try_acquire_many_owned(WIDE_KIB as u32).ok();
        }
        !self.is_narrow()
    }

    /// Returns true if the connection should be closed after its current request, to free its share of the
    /// budget.
    pub(super) fn should_be_short(&self) -> bool {
        self.share.is_some() && self.is_scarce()
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
        let wide = bodies.iter().filter(|width| width.share.is_some());
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
