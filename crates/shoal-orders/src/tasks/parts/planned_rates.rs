//! The rates of planned transfers at the nodes that fetch for them.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use shoal_net::link::{Link, PlannedRate};

use super::messages::PlannedFill;

/// The number of transfers after which finished ones are forgotten.
const SWEEP: usize = 256;

/// The fastest that a transfer goes when its coordinator has it catch up, as a multiple of the planned rate.
const CATCH_UP: u64 = 2;

/// The rates of the transfers that have blocks on their way to this node.
#[derive(Debug, Default)]
pub(in crate::tasks) struct PlannedRates(Mutex<HashMap<PlannedFill, Weak<PlannedRate>>>);

impl PlannedRates {
    /// Returns the rate of a transfer, which all of its blocks here share. Clients wait for bytes at the
    /// planned rate. Those of a hint are faster if clients leave more of the link.
    pub(in crate::tasks) fn of(&self, planned: PlannedFill, link: Option<&Arc<Link>>) -> Arc<PlannedRate> {
        let mut rates = self.0.lock();
        if let Some(rate) = rates.get(&planned).and_then(Weak::upgrade) {
            return rate;
        }
        if rates.len() >= SWEEP {
            rates.retain(|_, rate| rate.strong_count() > 0);
        }
        let most = if planned.is_of_hint() {
            u64::MAX
        } else {
            planned.rate.saturating_mul(CATCH_UP)
        };
        let rate = PlannedRate::new(link, most, planned.rate);
        rates.insert(planned, Arc::downgrade(&rate));
        rate
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{PlannedFill, PlannedRates, SWEEP};

    #[test]
    fn the_blocks_of_a_transfer_share_its_rate_and_those_that_are_over_are_forgotten() {
        let rates = PlannedRates::default();
        let of = |transfer| {
            let (plan, rate) = (1, 7);
            rates.of(PlannedFill { plan, transfer, rate }, None)
        };
        let first = of(1);
        assert!(Arc::ptr_eq(&first, &of(1)));
        assert!(!Arc::ptr_eq(&first, &of(2)));
        (3..3 * SWEEP as u64).for_each(|transfer| drop(of(transfer)));
        assert!(rates.0.lock().len() <= SWEEP);
        assert!(Arc::ptr_eq(&first, &of(1)), "one that goes on is kept");
    }
}
