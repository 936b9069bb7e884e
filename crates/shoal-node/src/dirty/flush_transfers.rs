//! Flushes on their way over the link, and whether a client waits for them.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use shoal_registry::Name;

use crate::link::{Purpose, Transfer};

/// The flushes of one tier.
#[derive(Debug, Default)]
pub(super) struct FlushTransfers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    under_way: HashMap<Name, Transfer>,
    /// The number of requests that wait for the flush of a name.
    awaited: HashMap<Name, usize>,
    /// Whether clients will soon have to wait for all of them, as the tier is nearly full.
    are_urgent: bool,
}

/// A flush; it is over when this is dropped.
#[derive(Debug)]
pub(super) struct UnderWay<'a> {
    flushes: &'a FlushTransfers,
    name: &'a Name,
    pub(super) transfer: Transfer,
}

/// A request that waits for a flush, until this is dropped.
#[derive(Debug)]
pub(super) struct Awaiting {
    flushes: Arc<FlushTransfers>,
    name: Name,
}

impl FlushTransfers {
    /// Begins a flush. It goes as a client's if a client waits for it.
    pub(super) fn begin<'a>(&'a self, name: &'a Name) -> UnderWay<'a> {
        let transfer = Purpose::Cleaning
            .transfer()
            .expect("only a client's purpose has no transfer");
        let mut state = self.0.lock();
        if state.are_urgent || state.awaited.contains_key(name) {
            transfer.hurry();
        }
        state.under_way.insert(name.clone(), transfer.clone());
        drop(state);
        UnderWay {
            flushes: self,
            name,
            transfer,
        }
    }

    /// Notes that a request waits for the flush of a name.
    pub(super) fn await_flush(self: &Arc<Self>, name: &Name) -> Awaiting {
        let mut state = self.0.lock();
        *state.awaited.entry(name.clone()).or_default() += 1;
        if let Some(transfer) = state.under_way.get(name) {
            transfer.hurry();
        }
        drop(state);
        Awaiting {
            flushes: Arc::clone(self),
            name: name.clone(),
        }
    }

    /// Sets whether clients will soon wait for all flushes.
    pub(super) fn set_urgent(&self, are_urgent: bool) {
        let mut state = self.0.lock();
        if are_urgent && !state.are_urgent {
            state.under_way.values().for_each(Transfer::hurry);
        }
        state.are_urgent = are_urgent;
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.flushes.0.lock().under_way.remove(self.name);
    }
}

impl Drop for Awaiting {
    fn drop(&mut self) {
        let mut state = self.flushes.0.lock();
        if let Some(requests) = state.awaited.get_mut(&self.name) {
            *requests -= 1;
            if *requests == 0 {
                state.awaited.remove(&self.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use shoal_policy::link::Class;
    use shoal_registry::Name;

    use super::FlushTransfers;

    fn name(key: &str) -> Name {
        Name::new("bucket", key.as_bytes())
    }

    #[test]
    fn a_flush_that_a_client_waits_for_goes_as_the_clients() {
        let flushes = Arc::<FlushTransfers>::default();
        let (a, b) = (name("a"), name("b"));
        let (early, other) = (flushes.begin(&a), flushes.begin(&b));
        assert_eq!(early.transfer.class(), Class::Cleaning);
        let waits = [flushes.await_flush(&a), flushes.await_flush(&a)];
        assert_eq!(early.transfer.class(), Class::Client);
        assert_eq!(other.transfer.class(), Class::Cleaning);
        drop(early);
        let [first, second] = waits;
        drop(first);
        assert_eq!(flushes.begin(&a).transfer.class(), Class::Client);
        drop(second);
        assert_eq!(flushes.begin(&a).transfer.class(), Class::Cleaning);
    }

    #[test]
    fn the_flushes_of_a_tier_that_is_nearly_full_go_as_those_of_clients() {
        let flushes = FlushTransfers::default();
        let (a, b) = (name("a"), name("b"));
        let early = flushes.begin(&a);
        flushes.set_urgent(true);
        let late = flushes.begin(&b);
        for flush in [&early, &late] {
            assert_eq!(flush.transfer.class(), Class::Client);
        }
        drop(late);
        flushes.set_urgent(false);
        assert_eq!(flushes.begin(&b).transfer.class(), Class::Cleaning);
        drop(early);
        assert!(flushes.0.lock().under_way.is_empty());
    }
}
