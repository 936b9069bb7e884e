//! Connections whose other end has not proven itself. Their number is limited, and a newcomer takes the place
//! of the oldest.
//!
//! A node proves itself within milliseconds. A stranger that opens connections and stays silent loses them to
//! those that come after, so it cannot keep nodes out.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Maximum number of unproven connections; they are also at most half of all connections.
const HANDSHAKES_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct HandshakeLimit {
    /// The places of unproven connections, the oldest first. A connection that has left its place has closed
    /// it.
    places: Mutex<VecDeque<oneshot::Sender<()>>>,
    max: usize,
}

impl HandshakeLimit {
    /// Creates the limit for `connections` connections in all.
    pub(super) fn new(connections: usize) -> Self {
        Self {
            places: Mutex::default(),
            max: HANDSHAKES_MAX.min(connections / 2).max(1),
        }
    }

    /// Enters one more connection, which keeps its place until it drops the receiver. The receiver is ready
    /// once another connection has taken the place: the oldest has to leave if there are too many.
    pub(super) fn enter(&self) -> oneshot::Receiver<()> {
        let (place, displaced) = oneshot::channel();
        let mut places = self.places.lock();
        places.retain(|place| !place.is_closed());
        if places.len() == self.max {
            places.pop_front();
        }
        places.push_back(place);
        assert!(places.len() <= self.max, "unproven connections are bounded");
        displaced
    }
}
