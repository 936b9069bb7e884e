//! Connections whose other end has not proven itself. Their number is limited, and a newcomer takes the place
//! of the oldest.
//!
//! A node proves itself within milliseconds. A stranger that opens connections and stays silent loses them to
//! those that come after, so it cannot keep nodes out.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Maximum number of unproven connections; they are also at most half of all connections.
const HANDSHAKES_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct HandshakeLimit {
    waiting: Mutex<VecDeque<Arc<Notify>>>,
    max: usize,
}

/// A place among the unproven connections; given back when dropped.
pub(super) struct HandshakeSlot<'a> {
    handshakes: &'a HandshakeLimit,
    displaced: Arc<Notify>,
}

impl HandshakeLimit {
    /// Creates the limit for `connections` connections in all.
    pub(super) fn new(connections: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            max: HANDSHAKES_MAX.min(connections / 2).max(1),
        }
    }

    /// Enters one more connection. The oldest has to leave if there are too many.
    pub(super) fn enter(&self) -> HandshakeSlot<'_> {
        let displaced = Arc::<Notify>::default();
        let mut waiting = self.waiting.lock();
        waiting.push_back(Arc::clone(&displaced));
        if waiting.len() > self.max
            && let Some(oldest) = waiting.pop_front()
        {
            oldest.notify_one();
        }
        assert!(waiting.len() <= self.max, "unproven connections are bounded");
        HandshakeSlot {
            handshakes: self,
            displaced,
        }
    }
}

impl HandshakeSlot<'_> {
    /// Waits until another connection has taken this place.
    pub(super) async fn displaced(&self) {
        self.displaced.notified().await;
    }
}

impl Drop for HandshakeSlot<'_> {
    fn drop(&mut self) {
        let mut waiting = self.handshakes.waiting.lock();
        waiting.retain(|other| !Arc::ptr_eq(other, &self.displaced));
    }
}
