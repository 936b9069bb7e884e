//! The flushes in flight on the link, and the clients that wait for them.

use std::collections::HashMap;
use std::ops::Deref;

use parking_lot::Mutex;
use scopeguard::guard;
use shoal_net::link::{Purpose, Transfer};
use shoal_registry::Name;

/// The flushes of one tier.
#[derive(Debug, Default)]
pub(crate) struct FlushTransfers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    under_way: HashMap<Name, Transfer>,
    /// The number of requests that wait for the flush of each name.
    awaited: HashMap<Name, usize>,
    /// True if the tier is nearly full, so that clients will soon wait for every flush.
    are_urgent: bool,
}

impl FlushTransfers {
    /// Begins a flush, at the priority of a client's transfer if a client waits for it. It ends when the
    /// transfer is dropped.
    #[must_use = "dropping the transfer ends the flush"]
    pub(crate) fn begin(&self, name: &Name) -> impl Deref<Target = Transfer> {
        let transfer = Purpose::Cleaning
            .transfer()
            .expect("only a client's purpose has no transfer");
        let mut state = self.0.lock();
        if state.are_urgent || state.awaited.contains_key(name) {
            transfer.hurry();
        }
        state.under_way.insert(name.clone(), transfer.clone());
        drop(state);
        guard(transfer, |_| {
            self.0.lock().under_way.remove(name);
        })
    }

    /// Registers a request that waits for the flush of `name`, until the result is dropped, and raises the
    /// priority of one in flight.
    #[must_use]
    pub(crate) fn await_flush(&self, name: &Name) -> impl Deref<Target = ()> {
        let mut state = self.0.lock();
        *state.awaited.entry(name.clone()).or_default() += 1;
        if let Some(transfer) = state.under_way.get(name) {
            transfer.hurry();
        }
        drop(state);
        guard((), |()| {
            let mut state = self.0.lock();
            let requests = state.awaited.get_mut(name).expect("it waits until now");
            *requests -= 1;
            if *requests == 0 {
                state.awaited.remove(name);
            }
        })
    }

    /// Sets whether every flush gets the priority of a client's transfer.
    pub(crate) fn set_urgent(&self, are_urgent: bool) {
        let mut state = self.0.lock();
        if are_urgent && !state.are_urgent {
            state.under_way.values().for_each(Transfer::hurry);
        }
        state.are_urgent = are_urgent;
    }
}

#[cfg(test)]
mod tests {
    use shoal_policy::link::Class;
    use shoal_registry::Name;

    use super::FlushTransfers;

    fn name(key: &str) -> Name {
        Name::new("bucket", key.as_bytes())
    }

    #[test]
    fn a_flush_that_a_client_waits_for_goes_as_the_clients() {
        let flushes = FlushTransfers::default();
        let (a, b) = (name("a"), name("b"));
        let (early, other) = (flushes.begin(&a), flushes.begin(&b));
        assert_eq!(early.class(), Class::Cleaning);
        let waits = [flushes.await_flush(&a), flushes.await_flush(&a)];
        assert_eq!(early.class(), Class::Client);
        assert_eq!(other.class(), Class::Cleaning);
        drop(early);
        let [first, second] = waits;
        drop(first);
        assert_eq!(flushes.begin(&a).class(), Class::Client);
        drop(second);
        assert_eq!(flushes.begin(&a).class(), Class::Cleaning);
    }

    #[test]
    fn the_flushes_of_a_tier_that_is_nearly_full_go_as_those_of_clients() {
        let flushes = FlushTransfers::default();
        let (a, b) = (name("a"), name("b"));
        let early = flushes.begin(&a);
        flushes.set_urgent(true);
        let late = flushes.begin(&b);
        for flush in [&early, &late] {
            assert_eq!(flush.class(), Class::Client);
        }
        drop(late);
        flushes.set_urgent(false);
        assert_eq!(flushes.begin(&b).class(), Class::Cleaning);
        drop(early);
        assert!(flushes.0.lock().under_way.is_empty());
    }
}
