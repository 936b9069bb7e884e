//! How many requests may be in flight, on the node and of one identity.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::front::error::{ErrorCode, S3Error};
use crate::identity::CallerId;

/// Counts requests in flight; a request counts until its response has been sent or given up.
#[derive(Debug)]
pub struct InFlight {
    node: Arc<AtomicUsize>,
    node_max: usize,
    /// One counter an identity, the last one for strangers together.
    callers: Vec<Arc<AtomicUsize>>,
    caller_max: usize,
}

/// A place among the requests in flight, given back when dropped.
#[derive(Debug)]
pub struct Place(Arc<AtomicUsize>);

impl InFlight {
    /// Bounds for a node that knows `identities` identities.
    pub fn new(node_max: usize, caller_max: usize, identities: usize) -> Self {
        Self {
            node: Arc::default(),
            node_max,
            callers: (0..=identities).map(|_| Arc::default()).collect(),
            caller_max,
        }
    }

    /// A place on the node, or `503 SlowDown`.
    pub fn enter(&self) -> Result<Place, S3Error> {
        Place::take(&self.node, self.node_max)
    }

    /// A place among this caller's requests, or `503 SlowDown`.
    pub fn enter_as(&self, caller: CallerId) -> Result<Place, S3Error> {
        let index = (caller.0 as usize).min(self.callers.len() - 1);
        Place::take(&self.callers[index], self.caller_max)
    }

    /// Requests in flight on the node.
    pub fn count(&self) -> usize {
        self.node.load(Ordering::Relaxed)
    }
}

impl Place {
    fn take(counter: &Arc<AtomicUsize>, max: usize) -> Result<Self, S3Error> {
        if counter.fetch_add(1, Ordering::AcqRel) >= max {
            counter.fetch_sub(1, Ordering::AcqRel);
            return Err(S3Error::new(
                ErrorCode::SlowDown,
                "Too many requests are in flight; please reduce your rate.",
            ));
        }
        Ok(Self(Arc::clone(counter)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_given_back_and_one_callers_load_is_not_anothers() {
        let limits = InFlight::new(3, 1, 2);
        let alice = limits.enter_as(CallerId(0)).unwrap();
        assert_eq!(
            limits.enter_as(CallerId(0)).unwrap_err().code,
            ErrorCode::SlowDown
        );
        let _bob = limits.enter_as(CallerId(1)).unwrap();
        let _stranger = limits.enter_as(CallerId(u32::MAX)).unwrap();
        drop(alice);
        limits.enter_as(CallerId(0)).unwrap();
    }

    #[test]
    fn the_node_is_bounded_too() {
        let limits = InFlight::new(2, 9, 0);
        let places = [limits.enter().unwrap(), limits.enter().unwrap()];
        assert!(limits.enter().is_err());
        assert_eq!(limits.count(), places.len());
    }
}
